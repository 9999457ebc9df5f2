"""Ollama: names, images and calls that requests and replies share."""

from __future__ import annotations

from typing import Any

from ...errors import WireError
from ...types import Image, StopReason, ToolCall
from ..calls import ORIGINAL_ID
from ..content import decode_image_url
from ..encoding import omit_none
from ..fields import ARGUMENTS_TEXT, PRIVATE, Fields, Json

NAME = "ollama"
IS_GENERATE = f"{PRIVATE}generate"
"""In the `extra` of a request: it came to /api/generate, whose replies have another shape."""
STATISTICS = frozenset(
    {
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
        "remote_model",
        "remote_host",
    }
)
"""Fields of a reply about how it was made."""
STOP_REASONS: dict[str, StopReason] = {"stop": "stop", "length": "length"}
_CALL_INDEX, _CALL_TYPE = f"{PRIVATE}index", f"{PRIVATE}type"
_MEDIA_TYPES = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}
"""By the first characters of the base64 data."""


def decode_image(data: str) -> Image:
    if data.startswith("data:"):
        return decode_image_url(data)
    kinds = (kind for prefix, kind in _MEDIA_TYPES.items() if data.startswith(prefix))
    return Image(data=data, media_type=next(kinds, "image/png"))


def decode_call(item: Any, path: str) -> tuple[str, str, Any, Json]:
    """Return a call's id or "", its name, its arguments and its `extra`."""
    call = Fields(item, path)
    identity, kind = call.take_text("id"), call.take_any("type")
    function = call.take_object("function")
    if function is None:
        raise WireError("Expected a call with a `function`", path)
    index = function.take_any("index")
    name, arguments = function.require("name", str), function.take_any("arguments")
    private = {ORIGINAL_ID: None if identity else "", _CALL_INDEX: index, _CALL_TYPE: kind}
    extra = call.rest() | omit_none(**private, function=function.rest() or None)
    return identity, name, arguments, extra


def encode_call(call: ToolCall, name: str, extra: Json | None) -> Json:
    """Encode a call; with its `extra` if it came by this very API."""
    function = {"name": name, "arguments": call.arguments}
    if extra is None:
        return {"function": function}
    rest = {key: value for key, value in extra.items() if key != ARGUMENTS_TEXT}
    identity = rest.pop(ORIGINAL_ID, call.id) or None
    head = omit_none(id=identity, type=rest.pop(_CALL_TYPE, None))
    index = omit_none(index=rest.pop(_CALL_INDEX, None))
    return {**head, "function": {**index, **function, **rest.pop("function", {})}, **rest}
