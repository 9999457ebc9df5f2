"""The words of Ollama that more than one direction uses."""

from __future__ import annotations

from typing import Any

from ...errors import WireError
from ...types import Image, StopReason, ToolCall
from ..call_history import ORIGINAL_ID
from ..content import decode_image_url
from ..encoding import omit_none
from ..fields import ARGUMENTS_TEXT, PRIVATE, Fields, Json

NAME = "ollama"
SAMPLING = {
    key: key
    for key in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
}
GENERATE = f"{PRIVATE}generate"
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
_INDEX, _TYPE = f"{PRIVATE}index", f"{PRIVATE}type"
_BEGINNINGS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}


def image(given: str) -> Image:
    """A picture, whose kind only its first bytes tell."""
    if given.startswith("data:"):
        return decode_image_url(given)
    kinds = (kind for beginning, kind in _BEGINNINGS.items() if given.startswith(beginning))
    return Image(data=given, media_type=next(kinds, "image/png"))


def call_in(item: Any, path: str) -> tuple[str, str, Any, Json]:
    """A call: its id, if it has one, its name, its arguments, and what else rides along."""
    call = Fields(item, path)
    identity, kind = call.take_text("id"), call.take_any("type")
    function = call.take_object("function")
    if function is None:
        raise WireError("Expected a call with a `function`", path)
    index = function.take_any("index")
    name, arguments = function.require("name", str), function.take_any("arguments")
    own = {ORIGINAL_ID: None if identity else "", _INDEX: index, _TYPE: kind}
    extra = call.rest() | omit_none(**own, function=function.rest() or None)
    return identity, name, arguments, extra


def call_out(call: ToolCall, name: str, extra: Json | None) -> Json:
    """A call, with what rides along where it came by this very API."""
    function = {"name": name, "arguments": call.arguments}
    if extra is None:
        return {"function": function}
    left = {key: value for key, value in extra.items() if key != ARGUMENTS_TEXT}
    identity = left.pop(ORIGINAL_ID, call.id) or None
    head = omit_none(id=identity, type=left.pop(_TYPE, None))
    index = omit_none(index=left.pop(_INDEX, None))
    return {**head, "function": {**index, **function, **left.pop("function", {})}, **left}
