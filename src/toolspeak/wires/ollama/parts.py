"""The words of Ollama that more than one direction uses."""

from __future__ import annotations

from typing import Any

from ...errors import WireError
from ...types import Image, StopReason, ToolCall
from ..common import GIVEN_ID, image_from
from ..fields import OWN, WRITTEN, Fields, Json, present

NAME = "ollama"
SAMPLING = {
    key: key
    for key in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
}
GENERATE = f"{OWN}generate"
"""In the `extra` of a request: it came to /api/generate, whose replies are of another shape."""
PROMPTING = ("suffix", "raw", "template", "context")
"""What only /api/generate knows: how a prompt becomes the model's text."""
BOOKKEEPING = frozenset(
    {
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
        "remote_model",
        "remote_host",
    }
)
"""What a reply says of how it was made."""
STOPS: dict[str, StopReason] = {"stop": "stop", "length": "length"}
STOPS_OUT = {"length": "length"}
_INDEX, _TYPE = f"{OWN}index", f"{OWN}type"
_BEGINNINGS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}


def image(given: str) -> Image:
    """A picture, whose kind only its first bytes tell."""
    if given.startswith("data:"):
        return image_from(given)
    kinds = (kind for beginning, kind in _BEGINNINGS.items() if given.startswith(beginning))
    return Image(data=given, media_type=next(kinds, "image/png"))


def call_in(item: Any, path: str) -> tuple[str, str, Any, Json]:
    """A call: its id, if it has one, its name, its arguments, and what else rides along."""
    call = Fields(item, path)
    identity, kind = call.text("id"), call.any("type")
    function = call.inner("function")
    if function is None:
        raise WireError("Expected a call with a `function`", path)
    index = function.any("index")
    name, arguments = function.need("name", str), function.any("arguments")
    own = {GIVEN_ID: None if identity else "", _INDEX: index, _TYPE: kind}
    extra = call.rest() | present(**own, function=function.rest() or None)
    return identity, name, arguments, extra


def call_out(call: ToolCall, name: str, extra: Json | None) -> Json:
    """A call, with what rides along where it came by this very API."""
    function = {"name": name, "arguments": call.arguments}
    if extra is None:
        return {"function": function}
    left = {key: value for key, value in extra.items() if key != WRITTEN}
    identity = left.pop(GIVEN_ID, call.id) or None
    head = present(id=identity, type=left.pop(_TYPE, None))
    index = present(index=left.pop(_INDEX, None))
    return {**head, "function": {**index, **function, **left.pop("function", {})}, **left}
