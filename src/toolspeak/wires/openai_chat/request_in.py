"""A client's chat completion request."""

from __future__ import annotations

from collections.abc import Iterator
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
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..common import (
    History,
    call_from_text,
    image_from,
    split_data_url,
)
from ..fields import HOSTED, Fields, name_of
from ..framing import decode_json
from .words import DETAILS, EXTENSIONS, NAME, REASONING, SAMPLING

_PACKED = {"content", "tool_calls", "tool_call_id", "reasoning_content"}
"""What a message holds that is kept as JSON in another's content."""


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """What a client asks for."""
    fields = Fields(body)
    notes: list[Note] = []
    history = History()
    sampling = {key: fields.number(key) for key in (*SAMPLING, *EXTENSIONS)}
    metadata = fields.take("metadata", dict) or {}
    user = fields.text("user")
    stop = fields.any("stop")
    given = fields.take("parallel_tool_calls", bool)
    limits = [fields.take(key, int) for key in ("max_completion_tokens", "max_tokens")]
    tools, hosted = _tools(fields, notes)
    return Request(
        model=fields.text("model") or model,
        messages=tuple(
            _message(item, path, history, notes) for item, path in fields.each("messages")
        ),
        tools=tools,
        tool_choice=_tool_choice(fields),
        parallel_tool_calls=given is not False,
        response_format=_response_format(fields),
        thinking=Thinking(effort=fields.take("reasoning_effort", str)),
        stream=bool(fields.take("stream", bool)),
        max_tokens=limits[0] or limits[1],
        stop=(stop,) if isinstance(stop, str) else tuple(map(str, stop or ())),
        sampling={key: value for key, value in sampling.items() if value is not None},
        metadata=metadata | ({"user_id": user} if user else {}),
        wire=NAME,
        notes=tuple(notes),
        extra=fields.rest() | ({HOSTED: hosted} if hosted else {}),
    )


def _message(item: Any, path: str, history: History, notes: list[Note]) -> Message:
    fields = Fields(item, path)
    role = fields.need("role", str)
    match role:
        case "system" | "developer" | "user":
            return Message(role, tuple(_content(fields)), fields.rest())
        case "assistant":
            _unpack(fields)
            parts: list[Part] = [*reasoning(fields), *_content(fields)]
            if refusal := fields.text("refusal"):
                parts.append(Text(refusal, {"type": "refusal"}))
            parts += _calls(fields, history, notes)
            return Message("assistant", tuple(parts), fields.rest())
        case "tool" | "function":
            _unpack(fields)
            identity, name = history.answered(fields.text("tool_call_id"), fields.text("name"))
            content = tuple(_content(fields))
            text = content[0].text if len(content) == 1 and type(content[0]) is Text else None
            said: Any = (text or "") if text is not None or not content else content
            return Message("tool", (ToolResult(call_id=identity, name=name, content=said),))
        case _:
            expected = "`system`, `developer`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.at("role"))


def _unpack(fields: Fields) -> None:
    """Some keep calls and results as JSON in the content: as if they stood in the message."""
    content = fields.peek("content")
    if not isinstance(content, str) or not content.lstrip().startswith("{"):
        return
    try:
        packed = decode_json(content)
    except WireError:
        return
    keys = packed.keys() if isinstance(packed, dict) else set[str]()
    if keys & {"tool_calls", "tool_call_id"} and keys <= _PACKED:
        fields.update(packed)


def _content(fields: Fields) -> Iterator[Text | Image | Document | Other]:
    content = fields.any("content")
    if isinstance(content, str):
        if content:
            yield Text(content)
    elif isinstance(content, list):
        for index, item in enumerate(content):
            yield part(item, f"{fields.at('content')}[{index}]")
    elif content is not None:
        kind = name_of(content)
        raise WireError(f"Expected `string` or `array`, got `{kind}`", fields.at("content"))


def part(item: Any, path: str) -> Text | Image | Document | Other:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match fields.text("type") or "text":
        case "text" | "input_text" | "output_text":
            return Text(fields.text("text"), fields.rest())
        case "refusal":
            return Text(fields.text("refusal"), {"type": "refusal"})
        case "image_url":
            given = fields.any("image_url")
            image = Fields({"url": given} if isinstance(given, str) else given, path)
            return image_from(
                image.need("url", str), detail=image.take("detail", str), extra=fields.rest()
            )
        case "input_audio":
            audio = Fields(fields.any("input_audio"), path)
            kind = f"audio/{audio.text('format') or 'wav'}"
            return Document(data=audio.text("data"), media_type=kind, extra=fields.rest())
        case "file":
            return _file(Fields(fields.any("file"), path))
        case _:
            return Other(dict(item))


def _file(fields: Fields) -> Document:
    media_type, data = split_data_url(given := fields.text("file_data"))
    return Document(
        title=fields.text("filename"),
        data=data or given or None,
        media_type=media_type or "application/pdf",
        extra=fields.rest(),
    )


def reasoning(fields: Fields) -> Iterator[Reasoning]:
    """What an assistant thought, and the signatures that some upstreams put beside it."""
    text = fields.text(*REASONING)
    details = [item for item in fields.any(DETAILS) or () if isinstance(item, dict)]
    signed = [item for item in details if item.get("signature") or item.get("data")]
    if not signed:
        if text:
            yield Reasoning(text)
        return
    for item in details:
        said = str(item.get("text") or item.get("summary") or "")
        signature = item.get("signature") or item.get("data")
        yield Reasoning(said, str(signature) if signature else None)


def _calls(fields: Fields, history: History, notes: list[Note]) -> Iterator[ToolCall]:
    for item, path in fields.each("tool_calls"):
        call = Fields(item, path)
        identity = call.text("id") or history.new_id()
        kind = call.text("type") or "function"
        if custom := call.inner("custom"):
            yield history.made(
                ToolCall(
                    id=identity,
                    name=custom.need("name", str),
                    arguments={"input": custom.text("input")},
                    freeform=True,
                    extra=call.rest(),
                )
            )
            continue
        function = call.inner("function")
        if function is None:
            raise WireError(f"Expected a call with a `function`, got a `{kind}`", path)
        name, arguments = function.need("name", str), function.any("arguments")
        at = function.at("arguments")
        extra = call.rest() | ({"function": rest} if (rest := function.rest()) else {})
        yield history.made(call_from_text(identity, name, arguments, at, notes, extra=extra))
    if legacy := fields.inner("function_call"):
        name, arguments = legacy.need("name", str), legacy.any("arguments")
        at = legacy.at("arguments")
        yield history.made(call_from_text(history.new_id(), name, arguments, at, notes))


def _tools(fields: Fields, notes: list[Note]) -> tuple[tuple[Tool, ...] | None, list[Any]]:
    """The tools that may be offered to any model, and those that only this API can run."""
    if not fields.has("tools") and not fields.has("functions"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Any] = []
    for item, path in (*fields.each("tools"), *fields.each("functions")):
        given = Fields(item, path)
        kind = given.text("type") or "function"
        inner = given.inner(kind) if kind in ("function", "custom") else None
        if kind not in ("function", "custom"):
            notes.append(
                Note("skipped-tool", f"a tool of the kind {kind!r} cannot be offered", path)
            )
            hosted.append(item)
            continue
        tool = inner or given
        tools.append(
            Tool(
                name=tool.need("name", str),
                description=tool.text("description"),
                parameters=tool.take("parameters", dict) or {},
                freeform=kind == "custom",
                strict=tool.take("strict", bool),
                extra=tool.rest() | (given.rest() if inner else {}),
            )
        )
    return tuple(tools), hosted


def _tool_choice(fields: Fields) -> ToolChoice:
    given, path = fields.any("tool_choice", "function_call"), fields.at("tool_choice")
    if given is None:
        return ToolChoice()
    if isinstance(given, str):
        if given in ("auto", "none", "required", "any"):
            return ToolChoice("required" if given == "any" else given)
        raise WireError(f"Expected `auto`, `none`, `required` or an object, got `{given}`", path)
    choice = Fields(given, path)
    kind = choice.text("type")
    if kind == "allowed_tools":
        allowed = choice.inner("allowed_tools") or choice
        named = tuple(_tool_name(item, at) for item, at in allowed.each("tools"))
        return ToolChoice("required" if allowed.text("mode") == "required" else "auto", named)
    return ToolChoice("required", (_tool_name(given, path),))


def _tool_name(item: Any, path: str) -> str:
    fields = Fields(item, path)
    return (fields.inner("function") or fields.inner("custom") or fields).need("name", str)


def _response_format(fields: Fields) -> ResponseFormat | None:
    given = fields.inner("response_format")
    match given and given.text("type"):
        case "json_object":
            return ResponseFormat()
        case "json_schema":
            assert given is not None
            inner = Fields(given.any("json_schema"), given.at("json_schema"))
            return ResponseFormat(
                inner.take("schema", dict),
                inner.text("name"),
                inner.text("description"),
                inner.take("strict", bool),
            )
        case _:
            return None
