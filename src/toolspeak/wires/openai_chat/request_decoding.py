"""Decodes a client's Chat Completions request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import WireError
from ...types import (
    Message,
    Note,
    Part,
    Request,
    ResponseFormat,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..calls import CallHistory
from ..content import as_plain_text
from ..fields import HOSTED_TOOLS, Fields, Json, memoize_by_json, nest
from ..framing import decode_json
from .parts import (
    ALL_REASONING_FIELDS,
    LIMIT_FIELD,
    NAME,
    OUTSIDE_FUNCTION,
    OWN_REASONING_DETAILS,
    REASONING_DETAILS,
    REFUSAL,
    RESULT_NAME,
    decode_part,
    decode_reasoning,
)

SAMPLING = {
    key: key for key in ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
}
SAMPLING_EXTENSIONS = ("top_k", "min_p", "repetition_penalty")
"""Settings that many servers accept, and OpenAI's own does not."""
_NEWER_LIMIT = "max_completion_tokens"
_NUMBERS = frozenset((*SAMPLING, *SAMPLING_EXTENSIONS))
_SETTINGS = _NUMBERS | {
    *("metadata", "user", "max_tokens", _NEWER_LIMIT, "stop", "reasoning_effort"),
    *("response_format", "tool_choice", "function_call", "parallel_tool_calls", "stream_options"),
}
_TOOL_FIELDS = frozenset({"tools", "functions"})
_CALL_FIELDS = frozenset({"tool_calls", "function_call"})
_INPUT_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user"}
_PACKED_FIELDS = {"content", "tool_calls", "tool_call_id", "reasoning_content"}
"""Fields of a message that some clients store as JSON in the content of another."""


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = Fields(body)
    notes: list[Note] = []
    settings, extra = _decode_settings(fields) if fields.has_any(_SETTINGS) else ({}, {})
    tools, hosted = _decode_tools(fields) if fields.has_any(_TOOL_FIELDS) else (None, ())
    streamed = fields.take("stream", bool)
    named = fields.take_text("model") or model
    messages = _decode_messages(fields.take("messages", list) or (), notes)
    if fields.has_rest():
        extra = {**fields.rest(), **extra}
    if hosted:
        extra[HOSTED_TOOLS] = hosted
    return Request(
        model=named,
        messages=messages,
        tools=tools,
        stream=bool(streamed if stream is None else stream),
        wire=NAME,
        notes=tuple(notes),
        extra=extra,
        **settings,
    )


# Messages.


def _decode_messages(items: Iterable[Any], notes: list[Note]) -> tuple[Message, ...]:
    history = CallHistory(notes)
    messages: list[Message] = []
    for item in items:
        if type(item) is dict and len(item) == 2:
            # A fast path for most messages: a role and a text.
            role, text = item.get("role"), item.get("content")
            input_role = _INPUT_ROLES.get(role) if type(role) is str else None
            if input_role and type(text) is str and text:
                messages.append(Message(input_role, (Text(text),)))
                continue
        messages.append(_decode_message(Fields(item, f"$.messages[{len(messages)}]"), history))
    return tuple(messages)


def _decode_message(fields: Fields, history: CallHistory) -> Message:
    role = fields.require("role", str)
    match role:
        case "system" | "developer" | "user":
            parts = tuple(fields.take_content("content", decode_part))
            return Message(role, parts, fields.rest())
        case "assistant":
            _unpack_content(fields, "tool_calls", history.notes)
            return _decode_assistant(fields, history)
        case "tool" | "function":
            _unpack_content(fields, "tool_call_id", history.notes)
            return Message("tool", (_decode_result(fields, history),))
        case _:
            expected = "`system`, `developer`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))


def _decode_assistant(fields: Fields, history: CallHistory) -> Message:
    details = fields.peek(REASONING_DETAILS)
    parts: list[Part] = []
    if fields.has_any(ALL_REASONING_FIELDS):
        parts += decode_reasoning(fields)
    parts += fields.take_content("content", decode_part)
    if refusal := fields.take_text("refusal"):
        parts.append(Text(refusal, REFUSAL))
    if fields.has_any(_CALL_FIELDS):
        parts += _decode_calls(fields, history)
    extra = fields.rest() | ({OWN_REASONING_DETAILS: details} if details else {})
    return Message("assistant", tuple(parts), extra)


def _unpack_content(fields: Fields, key: str, notes: list[Note]) -> None:
    """Read calls or a result that a client stored as JSON in the content, unless the message has
    them itself."""
    content = fields.peek("content")
    if fields.has(key) or not isinstance(content, str) or not content.lstrip().startswith("{"):
        return
    try:
        packed = decode_json(content)
    except WireError:
        return
    if isinstance(packed, dict) and packed.keys() <= _PACKED_FIELDS:
        value = packed.get(key)
        if _are_calls(value) if key == "tool_calls" else isinstance(value, str) and value:
            message = f"The content is JSON with `{key}`, which is read as part of the message."
            notes.append(Note("converted", message, fields.path))
            fields.update(packed)


def _are_calls(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict) and (isinstance(item.get("function"), dict) or _is_flat(item))
            for item in value
        )
    )


def _is_flat(call: Json) -> bool:
    """Tell whether a call has its name beside its id, as some clients write it."""
    return isinstance(call.get("name"), str) and "function" not in call


def _decode_calls(fields: Fields, history: CallHistory) -> Iterator[ToolCall]:
    for item, path in fields.take_items("tool_calls"):
        yield _decode_call(Fields(item, path), history)
    if legacy := fields.take_object("function_call"):
        name, arguments = legacy.require("name", str), legacy.take_any("arguments")
        yield history.decode_call("", name, arguments, legacy.path_of("arguments"))


def _decode_call(fields: Fields, history: CallHistory) -> ToolCall:
    identity = fields.take_text("id") or history.new_id()
    kind = fields.take_text("type") or "function"
    if custom := fields.take_object("custom"):
        call = ToolCall(
            id=identity,
            name=custom.require("name", str),
            arguments={"input": custom.take_text("input")},
            freeform=True,
            extra=fields.rest(),
        )
        return history.add(call)
    function = fields if _is_flat(fields.rest()) else fields.take_object("function")
    if function is None:
        raise WireError(f"Expected a call with a `function`, got a `{kind}`", fields.path)
    name, arguments = function.require("name", str), function.take_any("arguments")
    path = function.path_of("arguments")
    inner = {} if function is fields else function.rest()
    extra = fields.rest() | nest("function", inner)
    return history.decode_call(identity, name, arguments, path, extra=extra)


def _decode_result(fields: Fields, history: CallHistory) -> ToolResult:
    name = fields.take_text("name")
    call_id, call_name = history.find_answered_call(fields.take_text("tool_call_id"), name)
    content = tuple(fields.take_content("content", decode_part))
    text = as_plain_text(content)
    return ToolResult(
        call_id=call_id,
        name=call_name,
        content=content if text is None else text,
        extra=fields.rest() | ({RESULT_NAME: name} if name else {}),
    )


# Tools and settings.


@memoize_by_json("tools", "functions")
def _decode_tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Any]]:
    """Return the tools that any model can be offered, and those that only this API can run."""
    if not fields.has("tools") and not fields.has("functions"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Any] = []
    for item, path in (*fields.take_items("tools"), *fields.take_items("functions")):
        outer = Fields(item, path)
        kind = outer.take_text("type") or "function"
        if kind in ("function", "custom"):
            tools.append(_decode_tool(outer, kind))
        else:
            hosted.append(item)
    return tuple(tools), hosted


def _decode_tool(outer: Fields, kind: str) -> Tool:
    inner = outer.take_object(kind)
    fields = inner or outer
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=fields.take("parameters", dict) or {},
        freeform=kind == "custom",
        strict=fields.take("strict", bool),
        extra=fields.rest() | (nest(OUTSIDE_FUNCTION, outer.rest()) if inner else {}),
    )


def _decode_tool_choice(fields: Fields) -> tuple[ToolChoice, Json]:
    """Return the tool choice, and as `extra` a choice that only this API supports."""
    given = fields.take_any("tool_choice", "function_call")
    if given is None:
        return ToolChoice(), {}
    path = fields.path_of("tool_choice")
    if isinstance(given, str):
        if given in ("auto", "none", "required", "any"):
            return ToolChoice("required" if given == "any" else given), {}
        raise WireError(f"Expected `auto`, `none`, `required` or an object, got `{given}`", path)
    choice = Fields(given, path)
    kind = choice.take_text("type")
    if kind == "allowed_tools":
        allowed = choice.take_object("allowed_tools") or choice
        names = tuple(_decode_tool_name(item, at) for item, at in allowed.take_items("tools"))
        mode = "required" if allowed.take_text("mode") == "required" else "auto"
        return ToolChoice(mode, names), {}
    if kind not in ("", "function", "custom"):
        return ToolChoice(), {"tool_choice": given}
    return ToolChoice("required", (_decode_tool_name(given, path),)), {}


def _decode_tool_name(item: Any, path: str) -> str:
    fields = Fields(item, path)
    inner = fields.take_object("function") or fields.take_object("custom")
    return (inner or fields).require("name", str)


def _decode_settings(fields: Fields) -> tuple[Json, Json]:
    """Return the settings as arguments of `Request`, and what belongs into its `extra`."""
    metadata = fields.take("metadata", dict) or {}
    if user := fields.take_text("user"):
        metadata = {**metadata, "user_id": user}
    newer, older = fields.take(_NEWER_LIMIT, int), fields.take("max_tokens", int)
    choice, extra = _decode_tool_choice(fields)
    options = fields.take("stream_options", dict)
    settings: Json = {
        "sampling": fields.take_numbers(_NUMBERS),
        "metadata": metadata,
        "parallel_tool_calls": fields.take("parallel_tool_calls", bool) is not False,
        "max_tokens": older if newer is None else newer,
        "tool_choice": choice,
        "stop": fields.take_texts("stop"),
        "thinking": Thinking(effort=fields.take("reasoning_effort", str)),
        "response_format": _decode_response_format(fields),
    }
    if newer is not None:
        extra[LIMIT_FIELD] = _NEWER_LIMIT
    if options is not None:
        extra["stream_options"] = options
    return settings, extra


def _decode_response_format(fields: Fields) -> ResponseFormat | None:
    """Decode the response format; one that only this API supports stays in `fields`."""
    given = fields.peek("response_format")
    if given is None:
        return None
    known = (None, "text", "json_object", "json_schema")
    if isinstance(given, dict) and given.get("type") not in known:
        return None
    form = fields.take_object("response_format") or Fields({})
    match form.take_text("type"):
        case "json_object":
            return ResponseFormat()
        case "json_schema":
            inner = Fields(form.take_any("json_schema"), form.path_of("json_schema"))
            return ResponseFormat(
                inner.take("schema", dict),
                inner.take_text("name"),
                inner.take_text("description"),
                inner.take("strict", bool),
            )
        case _:
            return None
