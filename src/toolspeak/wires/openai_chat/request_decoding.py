"""A client's chat completion request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Note,
    Other,
    Part,
    Reasoning,
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
from ..call_history import CallHistory, decode_call
from ..content import as_plain_text, decode_image_url, split_data_url
from ..fields import HOSTED_TOOLS, Fields, Json, json_type, memoize_by_json
from ..framing import decode_json
from .parts import (
    DETAILS,
    EXTENSIONS,
    NAME,
    NEWER_LIMIT,
    OWN_DETAILS,
    OWN_LIMIT,
    OWN_NAME,
    OWN_OUTER,
    REASONING,
    SAMPLING,
    THOUGHTS,
)

_NUMBERS = frozenset((*SAMPLING, *EXTENSIONS))
_SETTINGS = _NUMBERS | {
    *("metadata", "user", "max_tokens", NEWER_LIMIT, "stop", "reasoning_effort", "response_format"),
    *("tool_choice", "function_call", "parallel_tool_calls", "stream_options"),
}
_OFFERS = frozenset({"tools", "functions"})
_PEOPLE: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user"}
"""Those who speak to a model."""
_CALLS = frozenset({"tool_calls", "function_call"})
_PACKED = {"content", "tool_calls", "tool_call_id", "reasoning_content"}
"""What a message holds that is kept as JSON in another's content."""


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """What a client asks for."""
    fields = Fields(body)
    notes: list[Note] = []
    settings, carried = _settings(fields) if fields.has_any(_SETTINGS) else ({}, {})
    tools, hosted = _tools(fields) if fields.has_any(_OFFERS) else (None, ())
    streams = fields.take("stream", bool)
    named = fields.take_text("model") or model
    messages = _messages(fields.take("messages", list) or (), notes)
    extra = {**fields.rest(), **carried} if carried or fields.has_rest() else {}
    if hosted:
        extra[HOSTED_TOOLS] = hosted
    return Request(
        model=named,
        messages=messages,
        tools=tools,
        stream=bool(streams if stream is None else stream),
        wire=NAME,
        notes=tuple(notes),
        extra=extra,
        **settings,
    )


def _settings(fields: Fields) -> tuple[Json, Json]:
    """How the model is to answer, as a `Request` has it; and what rides along."""
    metadata = fields.take("metadata", dict) or {}
    if user := fields.take_text("user"):
        metadata = {**metadata, "user_id": user}
    limit, carried = _limit(fields)
    choice, beside = _tool_choice(fields)
    options = fields.take("stream_options", dict)
    settings: Json = {
        "sampling": fields.take_numbers(_NUMBERS),
        "metadata": metadata,
        "parallel_tool_calls": fields.take("parallel_tool_calls", bool) is not False,
        "max_tokens": limit,
        "tool_choice": choice,
        "stop": fields.take_texts("stop"),
        "thinking": Thinking(effort=fields.take("reasoning_effort", str)),
        "response_format": _response_format(fields),
    }
    told = {} if options is None else {"stream_options": options}
    return settings, {**carried, **beside, **told}


def _limit(fields: Fields) -> tuple[int | None, Json]:
    """The most tokens of an answer, and under which of its two names it was given."""
    newer, older = fields.take(NEWER_LIMIT, int), fields.take("max_tokens", int)
    return (older, {}) if newer is None else (newer, {OWN_LIMIT: NEWER_LIMIT})


def _messages(items: Iterable[Any], notes: list[Note]) -> tuple[Message, ...]:
    history = CallHistory()
    said: list[Message] = []
    for item in items:
        if type(item) is dict and len(item) == 2:
            # Nothing but what somebody says to the model, as most are.
            role, text = item.get("role"), item.get("content")
            who = _PEOPLE.get(role) if type(role) is str else None
            if who and type(text) is str and text:
                said.append(Message(who, (Text(text),)))
                continue
        said.append(_message(item, f"$.messages[{len(said)}]", history, notes))
    return tuple(said)


def _message(item: Any, path: str, history: CallHistory, notes: list[Note]) -> Message:
    fields = Fields(item, path)
    role = fields.require("role", str)
    match role:
        case "system" | "developer" | "user":
            return Message(role, tuple(_content(fields)), fields.rest())
        case "assistant":
            _unpack(fields, "tool_calls", notes)
            details = fields.peek(DETAILS)
            thoughts = reasoning(fields) if fields.has_any(THOUGHTS) else ()
            parts: list[Part] = [*thoughts, *_content(fields)]
            if refusal := fields.take_text("refusal"):
                parts.append(Text(refusal, {"type": "refusal"}))
            if fields.has_any(_CALLS):
                parts += _calls(fields, history, notes)
            own = {OWN_DETAILS: details} if details else {}
            return Message("assistant", tuple(parts), fields.rest() | own)
        case "tool" | "function":
            _unpack(fields, "tool_call_id", notes)
            return Message("tool", (_result(fields, history),))
        case _:
            expected = "`system`, `developer`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))


def _result(fields: Fields, history: CallHistory) -> ToolResult:
    given = fields.take_text("name")
    identity, name = history.find_answered_call(fields.take_text("tool_call_id"), given)
    content = tuple(_content(fields))
    text = as_plain_text(content)
    own = {OWN_NAME: given} if given else {}
    return ToolResult(
        call_id=identity,
        name=name,
        content=content if text is None else text,
        extra=fields.rest() | own,
    )


def _unpack(fields: Fields, key: str, notes: list[Note]) -> None:
    """Some keep calls and results as JSON in the content: as if they stood in the message. What
    the message says itself counts before that."""
    content = fields.peek("content")
    if fields.has(key) or not isinstance(content, str) or not content.lstrip().startswith("{"):
        return
    try:
        packed = decode_json(content)
    except WireError:
        return
    if isinstance(packed, dict) and packed.keys() <= _PACKED:
        given = packed.get(key)
        if _are_calls(given) if key == "tool_calls" else isinstance(given, str) and given:
            notes.append(Note("converted", f"the content is JSON with {key!r}", fields.path))
            fields.update(packed)


def _are_calls(given: Any) -> bool:
    """Whether a value is a list of calls, and not of anything else."""
    return (
        isinstance(given, list)
        and bool(given)
        and all(
            isinstance(item, dict) and (isinstance(item.get("function"), dict) or _is_flat(item))
            for item in given
        )
    )


def _is_flat(call: Json) -> bool:
    """Whether a call has its name beside its id, as some write it."""
    return isinstance(call.get("name"), str) and "function" not in call


def _content(fields: Fields) -> list[Text | Image | Document | Other]:
    content = fields.take_any("content")
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    if isinstance(content, list):
        path = fields.path_of("content")
        return [part(item, f"{path}[{index}]") for index, item in enumerate(content)]
    kind = json_type(content)
    raise WireError(f"Expected `string` or `array`, got `{kind}`", fields.path_of("content"))


def part(item: Any, path: str) -> Text | Image | Document | Other:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match fields.take_text("type") or "text":
        case "text" | "input_text" | "output_text":
            return Text(fields.take_text("text"), fields.rest())
        case "refusal":
            return Text(fields.take_text("refusal"), {"type": "refusal"})
        case "image_url":
            given = fields.take_any("image_url")
            image = Fields({"url": given} if isinstance(given, str) else given, path)
            url, detail = image.require("url", str), image.take("detail", str)
            return decode_image_url(url, detail=detail, extra=_both(fields, "image_url", image))
        case "input_audio":
            audio = Fields(fields.take_any("input_audio"), path)
            kind, data = f"audio/{audio.take_text('format') or 'wav'}", audio.take_text("data")
            extra = _both(fields, "input_audio", audio)
            return Document(data=data, media_type=kind, extra=extra)
        case "file":
            return _file(fields, Fields(fields.take_any("file"), path))
        case _:
            return Other(dict(item))


def _file(fields: Fields, file: Fields) -> Document:
    media_type, data = split_data_url(given := file.take_text("file_data"))
    return Document(
        title=file.take_text("filename"),
        data=data or given or None,
        media_type=media_type or "application/pdf",
        extra=_both(fields, "file", file),
    )


def _both(fields: Fields, key: str, inner: Fields) -> Json:
    """What is left over of a part, and of the object inside of it."""
    return fields.rest() | ({key: rest} if (rest := inner.rest()) else {})


def reasoning(fields: Fields) -> Iterator[Reasoning]:
    """What an assistant thought, and the signatures that some upstreams put beside it."""
    text = fields.take_text(*REASONING)
    details = [item for item, _ in fields.take_items(DETAILS) if isinstance(item, dict)]
    signed = [item for item in details if item.get("signature") or item.get("data")]
    told = any(item.get("text") for item in details)
    if text and not (signed and told):
        yield Reasoning(text)
    for item in details if signed else ():
        said = str(item.get("text") or "")
        signature = item.get("signature") or item.get("data")
        if said or signature:
            yield Reasoning(said, str(signature) if signature else None)


def _calls(fields: Fields, history: CallHistory, notes: list[Note]) -> Iterator[ToolCall]:
    for item, path in fields.take_items("tool_calls"):
        call = Fields(item, path)
        identity = call.take_text("id") or history.new_id()
        kind = call.take_text("type") or "function"
        if custom := call.take_object("custom"):
            yield history.add(
                ToolCall(
                    id=identity,
                    name=custom.require("name", str),
                    arguments={"input": custom.take_text("input")},
                    freeform=True,
                    extra=call.rest(),
                )
            )
            continue
        function = call if _is_flat(call.rest()) else call.take_object("function")
        if function is None:
            raise WireError(f"Expected a call with a `function`, got a `{kind}`", path)
        name, arguments = function.require("name", str), function.take_any("arguments")
        at = function.path_of("arguments")
        rest = {} if function is call else function.rest()
        extra = call.rest() | ({"function": rest} if rest else {})
        yield history.add(decode_call(identity, name, arguments, at, notes, extra=extra))
    if legacy := fields.take_object("function_call"):
        name, arguments = legacy.require("name", str), legacy.take_any("arguments")
        at = legacy.path_of("arguments")
        yield history.add(decode_call(history.new_id(), name, arguments, at, notes))


@memoize_by_json("tools", "functions")
def _tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Any]]:
    """The tools that may be offered to any model, and those that only this API can run."""
    if not fields.has("tools") and not fields.has("functions"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Any] = []
    for item, path in (*fields.take_items("tools"), *fields.take_items("functions")):
        given = Fields(item, path)
        kind = given.take_text("type") or "function"
        inner = given.take_object(kind) if kind in ("function", "custom") else None
        if kind not in ("function", "custom"):
            hosted.append(item)
            continue
        tool = inner or given
        tools.append(
            Tool(
                name=tool.require("name", str),
                description=tool.take_text("description"),
                parameters=tool.take("parameters", dict) or {},
                freeform=kind == "custom",
                strict=tool.take("strict", bool),
                extra=tool.rest()
                | ({OWN_OUTER: outer} if inner and (outer := given.rest()) else {}),
            )
        )
    return tuple(tools), hosted


def _tool_choice(fields: Fields) -> tuple[ToolChoice, Json]:
    """Which tools may be called; and a choice that only this API can make."""
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
        named = tuple(_tool_name(item, at) for item, at in allowed.take_items("tools"))
        mode = "required" if allowed.take_text("mode") == "required" else "auto"
        return ToolChoice(mode, named), {}
    if kind not in ("", "function", "custom"):
        return ToolChoice(), {"tool_choice": given}
    return ToolChoice("required", (_tool_name(given, path),)), {}


def _tool_name(item: Any, path: str) -> str:
    fields = Fields(item, path)
    return (fields.take_object("function") or fields.take_object("custom") or fields).require(
        "name", str
    )


def _response_format(fields: Fields) -> ResponseFormat | None:
    """The form of the answer. One that only this API knows stays where it is."""
    form = fields.peek("response_format")
    if form is None:
        return None
    known = (None, "text", "json_object", "json_schema")
    if isinstance(form, dict) and form.get("type") not in known:
        return None
    given = fields.take_object("response_format")
    match given and given.take_text("type"):
        case "json_object":
            return ResponseFormat()
        case "json_schema":
            assert given is not None
            inner = Fields(given.take_any("json_schema"), given.path_of("json_schema"))
            return ResponseFormat(
                inner.take("schema", dict),
                inner.take_text("name"),
                inner.take_text("description"),
                inner.take("strict", bool),
            )
        case _:
            return None
