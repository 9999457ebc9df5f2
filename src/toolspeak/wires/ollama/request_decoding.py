"""Decodes a client's request to /api/chat or /api/generate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import WireError
from ...types import (
    Image,
    Message,
    Note,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from ..calls import CallHistory
from ..content import as_result_content
from ..fields import HOSTED_TOOLS, Fields, Json, json_type, memoize_by_json, nest
from .parts import IS_GENERATE, NAME, decode_call, decode_image

SAMPLING = {
    key: key
    for key in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
}


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """Decode a request. Unlike in other APIs, the reply is streamed by default."""
    fields = Fields(body)
    notes: list[Note] = []
    streamed = fields.take("stream", bool)
    is_generate = fields.has("prompt") and not fields.has("messages")
    messages = tuple(_decode_prompt(fields) if is_generate else _decode_messages(fields, notes))
    extra: Json = {IS_GENERATE: True} if is_generate else {}
    tools, hosted = _decode_tools(fields)
    extra |= {HOSTED_TOOLS: hosted} if hosted else {}
    options = fields.take_object("options") or Fields({})
    settings: Json = {
        "sampling": options.take_numbers(SAMPLING),
        "max_tokens": _decode_max_tokens(options),
        "stop": tuple(filter(None, options.take_texts("stop"))),
    }
    extra |= nest("options", options.rest())
    return Request(
        model=fields.take_text("model") or model,
        messages=messages,
        tools=tools,
        response_format=_decode_response_format(fields),
        thinking=_decode_thinking(fields),
        stream=stream is not False if streamed is None else streamed,
        wire=NAME,
        notes=tuple(notes),
        **settings,
        extra=fields.rest() | extra,
    )


# Messages.


def _decode_prompt(fields: Fields) -> Iterator[Message]:
    """Decode the prompt of /api/generate as a conversation."""
    if system := fields.take_text("system"):
        yield Message("system", (Text(system),))
    prompt = fields.take_text("prompt")
    parts = (*([Text(prompt)] if prompt else []), *_decode_images(fields))
    if parts:
        yield Message("user", parts)


def _decode_messages(fields: Fields, notes: list[Note]) -> Iterator[Message]:
    history = CallHistory(notes)
    for item, path in fields.take_items("messages"):
        yield _decode_message(Fields(item, path), history)


def _decode_message(fields: Fields, history: CallHistory) -> Message:
    role = fields.require("role", str).lower()
    text = fields.take_text("content")
    parts: list[Part] = [Text(text)] if text else []
    match role:
        case "system" | "developer" | "user":
            parts += _decode_images(fields)
        case "assistant":
            if reasoning := fields.take_text("thinking"):
                parts.insert(0, Reasoning(reasoning))
            parts += [*_decode_images(fields), *_decode_calls(fields, history)]
        case "tool":
            return Message("tool", (_decode_result(fields, parts, history),))
        case _:
            expected = "`system`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))
    return Message(role, tuple(parts), fields.rest())


def _decode_images(fields: Fields) -> Iterator[Image]:
    for item, path in fields.take_items("images"):
        if not isinstance(item, str):
            raise WireError(f"Expected `string`, got `{json_type(item)}`", path)
        yield decode_image(item)


def _decode_calls(fields: Fields, history: CallHistory) -> Iterator[ToolCall]:
    for item, path in fields.take_items("tool_calls"):
        identity, name, arguments, extra = decode_call(item, path)
        at = f"{path}.function.arguments"
        yield history.decode_call(identity, name, arguments, at, extra=extra)


def _decode_result(fields: Fields, parts: list[Part], history: CallHistory) -> ToolResult:
    given, named = fields.take_text("tool_call_id"), fields.take_text("tool_name", "name")
    call_id, name, extra = history.match_result(given, named, fields.path)
    content = as_result_content([*parts, *_decode_images(fields)])
    return ToolResult(call_id=call_id, name=name, content=content, extra=fields.rest() | extra)


# Tools and settings.


@memoize_by_json("tools")
def _decode_tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Any]]:
    """Return the tools that any model can be offered, and those that only this API can run."""
    # An empty list means nothing: the SDK sends it where its user passes no tools.
    if fields.peek("tools") in (None, []):
        fields.discard("tools")
        return None, []
    tools: list[Tool] = []
    hosted: list[Any] = []
    for item, path in fields.take_items("tools"):
        outer = Fields(item, path)
        if (outer.take_text("type") or "function") == "function":
            tools.append(_decode_tool(outer))
        else:
            hosted.append(item)
    return tuple(tools), hosted


def _decode_tool(outer: Fields) -> Tool:
    inner = outer.take_object("function")
    fields = inner or outer
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=fields.take("parameters", dict) or {},
        extra=fields.rest() | (outer.rest() if inner else {}),
    )


def _decode_max_tokens(options: Fields) -> int | None:
    # Values below one have meanings of their own and stay in `options`.
    given = options.peek("num_predict")
    is_special = isinstance(given, (int, float)) and given < 1
    return None if is_special else options.take("num_predict", int)


def _decode_response_format(fields: Fields) -> ResponseFormat | None:
    given = fields.take_any("format")
    if given is None or given == "":
        return None
    if given == "json":
        return ResponseFormat()
    if isinstance(given, dict):
        return ResponseFormat(given)
    raise WireError(f"Expected `json` or a schema, got `{given}`", fields.path_of("format"))


def _decode_thinking(fields: Fields) -> Thinking:
    given = fields.take_any("think")
    if given is None or isinstance(given, bool):
        return Thinking(enabled=given)
    if isinstance(given, str):
        return Thinking(effort=given)
    kind = json_type(given)
    raise WireError(f"Expected `boolean` or `string`, got `{kind}`", fields.path_of("think"))
