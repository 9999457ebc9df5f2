"""The words of Ollama that more than one direction uses."""

from __future__ import annotations

from ...types import Image, StopReason
from ..common import image_from
from ..fields import OWN

NAME = "ollama"
SAMPLING = {
    key: key
    for key in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
}
GENERATE = f"{OWN}generate"
"""In the `extra` of a request: it came to /api/generate, whose replies are of another shape."""
PROMPTING = ("suffix", "raw", "template", "context")
"""What only /api/generate knows: how a prompt becomes the model's text."""
STOPS: dict[str, StopReason] = {"stop": "stop", "length": "length"}
STOPS_OUT = {"length": "length"}
_BEGINNINGS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}


def image(given: str) -> Image:
    """A picture, whose kind only its first bytes tell."""
    if given.startswith("data:"):
        return image_from(given)
    kinds = (kind for beginning, kind in _BEGINNINGS.items() if given.startswith(beginning))
    return Image(data=given, media_type=next(kinds, "image/png"))
