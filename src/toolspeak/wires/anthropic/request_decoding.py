"""A client's Messages request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
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
from ..call_history import CallHistory
from ..fields import HOSTED_TOOLS, Fields, Json, json_type, memoize_by_json
from .parts import NAME, OWN_BLOCK, REDACTED, SAMPLING

_CHOICES = ("auto", "any", "tool", "none")


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """What a client asks for."""
    fields = Fields(body)
    _refuse_threads(fields)
    history = CallHistory()
    messages = list(_system(fields))
    for item, path in fields.take_items("messages"):
        messages += _messages(item, path, history)
    tools, hosted = _tools(fields)
    choice, parallel = _tool_choice(fields)
    sampling = fields.take_numbers(SAMPLING)
    streams = fields.take("stream", bool)
    thinking, left = _thinking(fields)
    config = fields.take_object("output_config") or Fields({})
    response_format = _format(config, "format") or _format(fields, "output_format")
    effort = config.take("effort", str)
    left |= {"output_config": rest} if (rest := config.rest()) else {}
    left |= {HOSTED_TOOLS: hosted} if hosted else {}
    return Request(
        model=fields.take_text("model") or model,
        messages=tuple(messages),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=response_format,
        thinking=Thinking(thinking.enabled, effort, thinking.budget, thinking.shown),
        stream=bool(streams if stream is None else stream),
        max_tokens=fields.take("max_tokens", int),
        stop=fields.take_texts("stop_sequences"),
        sampling=sampling,
        metadata=fields.take("metadata", dict) or {},
        wire=NAME,
        extra=fields.rest() | left,
    )


def _refuse_threads(fields: Fields) -> None:
    """A thread lives on the server, and here is none. Told so in these words, a client sends the
    whole conversation instead."""
    if fields.has("thread"):
        raise WireError(
            "message threads are not supported: send the whole conversation",
            fields.path_of("thread"),
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )


def _system(fields: Fields) -> Iterator[Message]:
    parts = tuple(_blocks(fields, "system", CallHistory()))
    if parts:
        yield Message("system", parts)


def _messages(item: Any, path: str, history: CallHistory) -> Iterator[Message]:
    """A message; the results in a user's message are one of their own."""
    fields = Fields(item, path)
    role = fields.require("role", str)
    if role not in ("user", "assistant", "system"):
        expected = "`user`, `assistant` or `system`"
        raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))
    parts = list(_blocks(fields, "content", history))
    extra = fields.rest()
    if role != "user" or not parts:
        yield Message(role, tuple(parts), extra)
        return
    for is_result, run in groupby(parts, lambda part: isinstance(part, ToolResult)):
        yield Message("tool" if is_result else "user", tuple(run), extra)
        extra = {}


def _blocks(fields: Fields, key: str, history: CallHistory) -> Iterator[Part]:
    content = fields.take_any(key)
    if isinstance(content, str):
        if content:
            yield Text(content)
    elif isinstance(content, list):
        for index, item in enumerate(content):
            yield _block(item, f"{fields.path_of(key)}[{index}]", history)
    elif content is not None:
        kind = json_type(content)
        raise WireError(f"Expected `string` or `array`, got `{kind}`", fields.path_of(key))


def _block(item: Any, path: str, history: CallHistory) -> Part:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match kind := fields.require("type", str):
        case "text":
            return Text(fields.take_text("text"), fields.rest())
        case "image" | "document":
            return _media(fields, kind) or Other(dict(item))
        case "thinking":
            text, signature = fields.take_text("thinking"), fields.take_text("signature")
            return Reasoning(text, signature or None, fields.rest())
        case "redacted_thinking":
            return Reasoning("", REDACTED + fields.take_text("data"))
        case "tool_use":
            return history.add(
                ToolCall(
                    id=fields.take_text("id") or history.new_id(),
                    name=fields.require("name", str),
                    arguments=fields.take("input", dict) or {},
                    extra=fields.rest(),
                )
            )
        case "tool_result":
            return _result(fields, history)
        case "tool_reference":
            said = f"The tool {fields.take_text('tool_name')!r} can be called now."
            return Text(said, {OWN_BLOCK: dict(item)})
        case _:
            return Other(dict(item))


def _result(fields: Fields, history: CallHistory) -> ToolResult:
    identity, name = history.find_answered_call(fields.take_text("tool_use_id"))
    is_error = bool(fields.take("is_error", bool))
    parts = list(_blocks(fields, "content", history))
    content: Any = tuple(part for part in parts if isinstance(part, (Text, Image, Document, Other)))
    match content:
        case ():
            content = ""
        case (Text(text, extra),) if not extra:
            content = text
        case _:
            pass
    return ToolResult(
        call_id=identity, name=name, content=content, is_error=is_error, extra=fields.rest()
    )


def _media(fields: Fields, block: str) -> Image | Document | None:
    """A picture or a document; None for one that stands on the API's own disk."""
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


@memoize_by_json("tools")
def _tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Json]]:
    """The tools that may be offered to any model, and those that only this API can run."""
    if not fields.has("tools"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Json] = []
    for item, path in fields.take_items("tools"):
        tool = Fields(item, path)
        kind = tool.take_text("type") or "custom"
        if kind not in ("custom", "function"):
            hosted.append(item)
            continue
        tools.append(
            Tool(
                name=tool.require("name", str),
                description=tool.take_text("description"),
                parameters=tool.take("input_schema", dict) or {},
                strict=tool.take("strict", bool),
                extra=tool.rest(),
            )
        )
    return tuple(tools), hosted


def _tool_choice(fields: Fields) -> tuple[ToolChoice, bool]:
    """Which tools may be called, and whether several at once."""
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


def _thinking(fields: Fields) -> tuple[Thinking, Json]:
    """How much to think; and what no other API has a word for."""
    given = fields.take_object("thinking")
    if given is None:
        return Thinking(), {}
    kind = given.take_text("type")
    budget = given.take("budget_tokens", int)
    display = given.take("display", str)
    shown = None if display is None else display != "omitted"
    left = given.rest() | ({"type": kind} if kind == "between_tools" else {})
    thinking = Thinking(enabled=kind != "disabled", budget=budget, shown=shown)
    return thinking, {"thinking": left} if left else {}


def _format(fields: Fields, key: str) -> ResponseFormat | None:
    """The form of the answer. One that only this API knows stays where it is."""
    form = fields.peek(key)
    if isinstance(form, dict) and form.get("type") == "json_schema":
        given = fields.take_object(key) or Fields({})
        return ResponseFormat(given.take("schema", dict), given.take_text("name"))
    return None
