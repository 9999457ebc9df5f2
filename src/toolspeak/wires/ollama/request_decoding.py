"""A client's request to /api/chat or /api/generate."""

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
from ..call_history import CallHistory, decode_call, match_result
from ..fields import HOSTED_TOOLS, Fields, Json, json_type, memoize_by_json
from .parts import GENERATE, NAME, SAMPLING, call_in, image


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """What a client asks for. It gets a stream unless it wants none."""
    fields = Fields(body)
    notes: list[Note] = []
    given = fields.take("stream", bool)
    generates = fields.has("prompt") and not fields.has("messages")
    messages = tuple(_prompt(fields) if generates else _messages(fields, notes))
    extra: Json = {GENERATE: True} if generates else {}
    tools, hosted = _tools(fields)
    extra |= {HOSTED_TOOLS: hosted} if hosted else {}
    options = fields.take_object("options") or Fields({})
    sampling = options.take_numbers(SAMPLING)
    settings: Json = {
        "max_tokens": _limit(options),
        "stop": tuple(filter(None, options.take_texts("stop"))),
        "sampling": sampling,
    }
    left = options.rest()
    extra |= {"options": left} if left else {}
    return Request(
        model=fields.take_text("model") or model,
        messages=messages,
        tools=tools,
        response_format=_format(fields),
        thinking=_thinking(fields),
        stream=stream is not False if given is None else given,
        wire=NAME,
        notes=tuple(notes),
        **settings,
        extra=fields.rest() | extra,
    )


# Messages.


def _prompt(fields: Fields) -> Iterator[Message]:
    """The conversation that a prompt stands for."""
    if system := fields.take_text("system"):
        yield Message("system", (Text(system),))
    prompt = fields.take_text("prompt")
    parts = (*([Text(prompt)] if prompt else []), *_images(fields))
    if parts:
        yield Message("user", parts)


def _messages(fields: Fields, notes: list[Note]) -> Iterator[Message]:
    history = CallHistory()
    for item, path in fields.take_items("messages"):
        yield _message(Fields(item, path), history, notes)


def _message(fields: Fields, history: CallHistory, notes: list[Note]) -> Message:
    role = fields.require("role", str).lower()
    said: list[Part] = [Text(text)] if (text := fields.take_text("content")) else []
    match role:
        case "system" | "developer" | "user":
            parts = [*said, *_images(fields)]
        case "assistant":
            thought = fields.take_text("thinking")
            thoughts: list[Part] = [Reasoning(thought)] if thought else []
            parts = [*thoughts, *said, *_images(fields), *_calls(fields, history, notes)]
        case "tool":
            return Message("tool", (_result(fields, text, history, notes),))
        case _:
            expected = "`system`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))
    return Message(role, tuple(parts), fields.rest())


def _images(fields: Fields) -> Iterator[Image]:
    for item, path in fields.take_items("images"):
        if not isinstance(item, str):
            raise WireError(f"Expected `string`, got `{json_type(item)}`", path)
        yield image(item)


def _calls(fields: Fields, history: CallHistory, notes: list[Note]) -> Iterator[ToolCall]:
    for item, path in fields.take_items("tool_calls"):
        given, name, arguments, extra = call_in(item, path)
        identity, at = given or history.new_id(), f"{path}.function.arguments"
        yield history.add(decode_call(identity, name, arguments, at, notes, extra=extra))


def _result(fields: Fields, text: str, history: CallHistory, notes: list[Note]) -> ToolResult:
    """A result: for the call with its id, or of its name, or for the first that has none."""
    given, named = fields.take_text("tool_call_id"), fields.take_text("tool_name", "name")
    identity, name, own = match_result(history, given, named, fields.path, notes)
    shown = tuple(_images(fields))
    content = (*([Text(text)] if text else []), *shown) if shown else text
    return ToolResult(call_id=identity, name=name, content=content, extra=fields.rest() | own)


# Tools and settings.


@memoize_by_json("tools")
def _tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Any]]:
    """The tools that may be offered to any model, and those that only this API can run. No tools
    mean nothing: the SDK sends an empty list where its user says none."""
    if fields.peek("tools") in (None, []):
        fields.take_any("tools")
        return None, []
    tools: list[Tool] = []
    hosted: list[Any] = []
    for item, path in fields.take_items("tools"):
        given = Fields(item, path)
        if (given.take_text("type") or "function") != "function":
            hosted.append(item)
            continue
        inner = given.take_object("function")
        tool = inner or given
        tools.append(
            Tool(
                name=tool.require("name", str),
                description=tool.take_text("description"),
                parameters=tool.take("parameters", dict) or {},
                extra=tool.rest() | (given.rest() if inner else {}),
            )
        )
    return tuple(tools), hosted


def _limit(options: Fields) -> int | None:
    """The limit of the reply. Those below one have meanings of their own."""
    given = options.peek("num_predict")
    unlimited = isinstance(given, (int, float)) and given < 1
    return None if unlimited else options.take("num_predict", int)


def _format(fields: Fields) -> ResponseFormat | None:
    given = fields.take_any("format")
    if given is None or given == "":
        return None
    if given == "json":
        return ResponseFormat()
    if isinstance(given, dict):
        return ResponseFormat(given)
    raise WireError(f"Expected `json` or a schema, got `{given}`", fields.path_of("format"))


def _thinking(fields: Fields) -> Thinking:
    given = fields.take_any("think")
    if given is None or isinstance(given, bool):
        return Thinking(enabled=given)
    if isinstance(given, str):
        return Thinking(effort=given)
    kind = json_type(given)
    raise WireError(f"Expected `boolean` or `string`, got `{kind}`", fields.path_of("think"))
