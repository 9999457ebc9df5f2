"""Decodes a client's Messages request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..calls import CallHistory
from ..content import as_result_content, split_results
from ..fields import HOSTED_TOOLS, Fields, Json, memoize_by_json, nest
from .parts import NAME, ORIGINAL_BLOCK, REDACTED

SAMPLING = {key: key for key in ("temperature", "top_p", "top_k")}
_CHOICES = ("auto", "any", "tool", "none")


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = Fields(body)
    _reject_threads(fields)
    history = CallHistory()
    messages = list(_decode_system(fields))
    for item, path in fields.take_items("messages"):
        messages += _decode_message(Fields(item, path), history)
    tools, hosted = _decode_tools(fields)
    choice, parallel = _decode_tool_choice(fields)
    streamed = fields.take("stream", bool)
    config = fields.take_object("output_config") or Fields({})
    response_format = _decode_response_format(config, "format")
    response_format = response_format or _decode_response_format(fields, "output_format")
    thinking, extra = _decode_thinking(fields, config.take("effort", str))
    extra |= nest("output_config", config.rest())
    extra |= {HOSTED_TOOLS: hosted} if hosted else {}
    return Request(
        model=fields.take_text("model") or model,
        messages=tuple(messages),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=response_format,
        thinking=thinking,
        stream=bool(streamed if stream is None else stream),
        max_tokens=fields.take("max_tokens", int),
        stop=fields.take_texts("stop_sequences"),
        sampling=fields.take_numbers(SAMPLING),
        metadata=fields.take("metadata", dict) or {},
        wire=NAME,
        extra=fields.rest() | extra,
    )


def _reject_threads(fields: Fields) -> None:
    # With this error code, clients send the whole conversation instead of a thread on the server.
    if fields.has("thread"):
        raise WireError(
            "Message threads are not supported; send the whole conversation.",
            fields.path_of("thread"),
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )


# Messages.


def _decode_system(fields: Fields) -> Iterator[Message]:
    parts = tuple(_decode_blocks(fields, "system", CallHistory()))
    if parts:
        yield Message("system", parts)


def _decode_message(fields: Fields, history: CallHistory) -> Iterator[Message]:
    role = fields.require("role", str)
    if role not in ("user", "assistant", "system"):
        expected = "`user`, `assistant` or `system`"
        raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))
    parts = list(_decode_blocks(fields, "content", history))
    yield from split_results(role, parts, fields.rest())


def _decode_blocks(fields: Fields, key: str, history: CallHistory) -> Iterator[Part]:
    return fields.take_content(key, lambda item, path: _decode_block(item, path, history))


def _decode_block(item: Any, path: str, history: CallHistory) -> Part:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match kind := fields.require("type", str):
        case "text":
            return Text(fields.take_text("text"), fields.rest())
        case "image" | "document":
            return _decode_media(fields, kind) or Other(dict(item))
        case "thinking":
            text, signature = fields.take_text("thinking"), fields.take_text("signature")
            return Reasoning(text, signature or None, fields.rest())
        case "redacted_thinking":
            return Reasoning("", REDACTED + fields.take_text("data"))
        case "tool_use":
            return history.add(_decode_call(fields, history))
        case "tool_result":
            return _decode_result(fields, history)
        case "tool_reference":
            text = f"The tool {fields.take_text('tool_name')!r} can be called now."
            return Text(text, {ORIGINAL_BLOCK: dict(item)})
        case _:
            return Other(dict(item))


def _decode_media(fields: Fields, block: str) -> Image | Document | None:
    """Decode an image or document; None for one in the API's own file store."""
    source = Fields(fields.take_any("source"), fields.path_of("source"))
    kind, media_type = source.take_text("type"), source.take_text("media_type")
    title = fields.take_text("title")
    data, url = source.take_text("data"), source.take_text("url")
    if kind not in ("base64", "url", "text"):
        return None
    if block == "image":
        known = {"media_type": media_type} if media_type else {}
        return Image(url=url or None, data=data or None, extra=fields.rest(), **known)
    if kind == "text":
        return Document(data, title, extra=fields.rest())
    media_type = media_type or "application/pdf"
    return Document("", title, url or None, data or None, media_type, fields.rest())


def _decode_call(fields: Fields, history: CallHistory) -> ToolCall:
    return ToolCall(
        id=fields.take_text("id") or history.new_id(),
        name=fields.require("name", str),
        arguments=fields.take("input", dict) or {},
        extra=fields.rest(),
    )


def _decode_result(fields: Fields, history: CallHistory) -> ToolResult:
    call_id, name = history.find_answered_call(fields.take_text("tool_use_id"))
    return ToolResult(
        call_id=call_id,
        name=name,
        is_error=bool(fields.take("is_error", bool)),
        content=as_result_content(_decode_blocks(fields, "content", history)),
        extra=fields.rest(),
    )


# Tools and settings.


@memoize_by_json("tools")
def _decode_tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Json]]:
    """Return the tools that any model can be offered, and those that only this API can run."""
    if not fields.has("tools"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Json] = []
    for item, path in fields.take_items("tools"):
        tool = Fields(item, path)
        if (tool.take_text("type") or "custom") in ("custom", "function"):
            tools.append(_decode_tool(tool))
        else:
            hosted.append(item)
    return tuple(tools), hosted


def _decode_tool(fields: Fields) -> Tool:
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=fields.take("input_schema", dict) or {},
        strict=fields.take("strict", bool),
        extra=fields.rest(),
    )


def _decode_tool_choice(fields: Fields) -> tuple[ToolChoice, bool]:
    """Return the tool choice, and whether several calls at once are allowed."""
    choice = fields.take_object("tool_choice")
    if choice is None:
        return ToolChoice(), True
    parallel = not choice.take("disable_parallel_tool_use", bool)
    match choice.require("type", str):
        case "auto":
            return ToolChoice(), parallel
        case "none":
            return ToolChoice("none"), parallel
        case "any":
            return ToolChoice("required"), parallel
        case "tool":
            return ToolChoice("required", (choice.require("name", str),)), parallel
        case other:
            expected = ", ".join(f"`{word}`" for word in _CHOICES)
            raise WireError(f"Expected one of {expected}, got `{other}`", choice.path_of("type"))


def _decode_thinking(fields: Fields, effort: str | None) -> tuple[Thinking, Json]:
    """Return the reasoning settings, and as `extra` what only this API supports."""
    given = fields.take_object("thinking")
    if given is None:
        return Thinking(effort=effort), {}
    kind = given.take_text("type")
    display = given.take("display", str)
    thinking = Thinking(
        enabled=kind != "disabled",
        effort=effort,
        budget=given.take("budget_tokens", int),
        shown=None if display is None else display != "omitted",
    )
    rest = given.rest() | ({"type": kind} if kind == "between_tools" else {})
    return thinking, nest("thinking", rest)


def _decode_response_format(fields: Fields, key: str) -> ResponseFormat | None:
    """Decode the response format; one that only this API supports stays in `fields`."""
    form = fields.peek(key)
    if isinstance(form, dict) and form.get("type") == "json_schema":
        given = fields.take_object(key) or Fields({})
        return ResponseFormat(given.take("schema", dict), given.take_text("name"))
    return None
