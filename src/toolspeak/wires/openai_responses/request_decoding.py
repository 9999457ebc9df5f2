"""Decodes a client's Responses request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec.structs import replace

from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Note,
    Other,
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
from ..content import as_result_content, decode_image_url, split_data_url
from ..fields import HOSTED_TOOLS, Fields, Json, memoize_by_json, nest
from .parts import (
    CHOICE,
    CUSTOM,
    HOSTED_CHOICE,
    HOSTED_CHOICES,
    ID,
    INSTRUCTIONS,
    NAME,
    SAMPLING,
    SPACE,
    SUMMARY,
    leftover,
    picture,
    reminders,
    thought,
)


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = Fields(body)
    notes: list[Note] = []
    sampling = fields.take_numbers(SAMPLING)
    metadata = fields.take("metadata", dict) or {}
    user = fields.take_text("user")
    parallel = fields.take("parallel_tool_calls", bool)
    streamed = fields.take("stream", bool)
    tools, hosted = _decode_tools(fields)
    own: Json = {HOSTED_TOOLS: hosted} if hosted else {}
    return Request(
        model=fields.take_text("model") or model,
        messages=_decode_messages(fields, notes),
        tools=tools,
        tool_choice=_decode_tool_choice(fields, own),
        parallel_tool_calls=parallel is not False,
        response_format=_decode_response_format(fields, own),
        thinking=_decode_thinking(fields, own),
        stream=bool(stream if stream is not None else streamed),
        max_tokens=fields.take("max_output_tokens", int),
        sampling=sampling,
        metadata=metadata | ({"user_id": user} if user else {}),
        wire=NAME,
        notes=tuple(notes),
        extra=fields.rest() | own,
    )


# Messages.


class _Turns:
    """Merges items into messages: consecutive items of the assistant, and consecutive results."""

    def __init__(self, notes: list[Note]) -> None:
        self.history = CallHistory(notes)
        self._turns: list[tuple[Role, list[Part], Json]] = []

    def add(self, role: Role, parts: Iterable[Part], extra: Json) -> None:
        self._turns.append((role, list(parts), extra))

    def join(self, role: Literal["assistant", "tool"], *parts: Part) -> None:
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(parts)
        else:
            self.add(role, parts, {})

    def messages(self) -> tuple[Message, ...]:
        return tuple(Message(role, tuple(parts), extra) for role, parts, extra in self._turns)


def _decode_messages(fields: Fields, notes: list[Note]) -> tuple[Message, ...]:
    turns = _Turns(notes)
    if instructions := fields.take_text("instructions"):
        turns.add("system", [Text(instructions)], {INSTRUCTIONS: True})
    given = fields.peek("input")
    if isinstance(given, str):
        turns.add("user", [Text(fields.require("input", str))], {})
    for item, path in fields.take_items("input"):
        _decode_item(item, path, turns)
    return turns.messages()


def _decode_item(item: Any, path: str, turns: _Turns) -> None:
    fields = Fields(item, path)
    kind = fields.take_text("type") or ("message" if fields.has("role") else "")
    match kind:
        case "message":
            _decode_message(fields, turns)
        case "reasoning":
            turns.join("assistant", thought(fields))
        case "function_call" | "custom_tool_call":
            turns.join("assistant", _decode_call(fields, kind == "custom_tool_call", turns))
        case "function_call_output" | "custom_tool_call_output":
            turns.join("tool", _decode_result(fields, kind == "custom_tool_call_output", turns))
        case "image_generation_call":
            turns.join("assistant", picture(fields) or Other(dict(item)))
        case "" if not fields.has("id"):
            raise WireError("Expected an item with a `type`, got one without", path)
        case _:
            turns.join("assistant", Other(dict(item)))


def _decode_message(fields: Fields, turns: _Turns) -> None:
    role = fields.require("role", str)
    match role:
        case "system" | "developer" | "user":
            parts = list(fields.take_content("content", decode_part))
            turns.add(role, parts, reminders(fields) | leftover(fields))
        case "assistant":
            turns.join("assistant", *_decode_assistant(fields))
        case _:
            expected = "`system`, `developer`, `user` or `assistant`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))


def _decode_assistant(fields: Fields) -> list[Part]:
    """Decode an assistant's message. Its texts share the message's id, and the last one carries the
    `extra` of the whole message."""
    given = fields.peek("content")
    known = reminders(fields)
    named = {ID: known[ID]} if ID in known else {}
    parts: list[Part] = []
    for index, said in enumerate(fields.take_content("content", decode_part)):
        if isinstance(said, Text):
            parts.append(replace(said, extra=said.extra | named))
        else:
            # Only this API has images in assistant messages; it gets them back as an item.
            shown = [given[index]] if isinstance(given, list) else []
            parts.append(Other({"type": "message", "role": "assistant", "content": shown}))
    if of_the_message := known | leftover(fields):
        last = parts.pop() if parts and isinstance(parts[-1], Text) else Text("")
        assert isinstance(last, Text)
        parts.append(replace(last, extra=last.extra | of_the_message))
    return parts


def _decode_call(fields: Fields, freeform: bool, turns: _Turns) -> ToolCall:
    extra = reminders(fields)
    identity = fields.take_text("call_id", "id") or turns.history.new_id()
    name, namespace = fields.require("name", str), fields.take("namespace", str)
    arguments = fields.take_text("input") if freeform else fields.take_any("arguments")
    extra |= leftover(fields)
    if not freeform:
        path = fields.path_of("arguments")
        return turns.history.decode_call(
            identity, name, arguments, path, namespace=namespace, extra=extra
        )
    call = ToolCall(
        id=identity,
        name=name,
        arguments={"input": arguments},
        namespace=namespace,
        freeform=True,
        extra=extra,
    )
    return turns.history.add(call)


def _decode_result(fields: Fields, freeform: bool, turns: _Turns) -> ToolResult:
    given, named = fields.take_text("call_id"), fields.take_text("name")
    call_id, name = turns.history.find_answered_call(given, named)
    content = as_result_content(fields.take_content("output", decode_part))
    extra = reminders(fields) | leftover(fields) | ({CUSTOM: True} if freeform else {})
    return ToolResult(call_id=call_id, name=name, content=content, extra=extra)


def decode_part(item: Any, path: str) -> Text | Image | Document | Other:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match fields.take_text("type") or "input_text":
        case "input_text" | "output_text" | "text":
            return Text(fields.take_text("text"), leftover(fields))
        case "refusal":
            return Text(fields.take_text("refusal"), {"type": "refusal"})
        case "input_image" if fields.has("image_url"):
            return _decode_image(fields)
        case "input_file" if fields.has("file_data") or fields.has("file_url"):
            return _decode_file(fields)
        case "input_audio":
            audio = Fields(fields.take_any("input_audio"), fields.path_of("input_audio"))
            kind = f"audio/{audio.take_text('format') or 'wav'}"
            return Document(data=audio.take_text("data"), media_type=kind, extra=leftover(fields))
        case _:
            return Other(dict(item))


def _decode_image(fields: Fields) -> Image:
    detail = fields.take_text("detail")
    url = fields.require("image_url", str)
    kept_detail = None if detail in ("", "auto") else detail
    return decode_image_url(url, detail=kept_detail, extra=leftover(fields))


def _decode_file(fields: Fields) -> Document:
    media_type, data = split_data_url(given := fields.take_text("file_data"))
    return Document(
        title=fields.take_text("filename"),
        url=fields.take("file_url", str),
        data=data or given or None,
        media_type=media_type or "application/pdf",
        extra=leftover(fields),
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
        given = Fields(item, path)
        match kind := given.take_text("type") or "function":
            case "function" | "custom":
                tools.append(_decode_tool(given, kind == "custom"))
            case "namespace" if item.get("tools"):
                tools += _decode_namespace(given, hosted)
            case _:
                hosted.append(item)
    return tuple(tools), hosted


def _decode_tool(fields: Fields, freeform: bool, namespace: str | None = None) -> Tool:
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=fields.take("parameters", dict) or {},
        namespace=namespace,
        freeform=freeform,
        strict=fields.take("strict", bool),
        extra=fields.rest(),
    )


def _decode_namespace(fields: Fields, hosted: list[Json]) -> Iterator[Tool]:
    """Decode the tools of a namespace; each carries the namespace's own fields."""
    name = fields.require("name", str)
    inner = list(fields.take_items("tools"))
    rest = fields.rest()
    about = nest("namespace", rest)
    for item, path in inner:
        given = Fields(item, path)
        kind = given.take_text("type") or "function"
        if kind in ("function", "custom"):
            tool = _decode_tool(given, kind == "custom", name)
            yield replace(tool, extra=tool.extra | about)
        else:
            hosted.append(item | {SPACE: {"name": name, **rest}})


def _decode_tool_choice(fields: Fields, own: Json) -> ToolChoice:
    """Decode the tool choice; what other APIs cannot express goes into `own`."""
    given, path = fields.take_any("tool_choice"), fields.path_of("tool_choice")
    choice = decode_choice(given, path)
    chosen = _list_chosen(given)
    if any(map(is_hosted, chosen)):
        own[HOSTED_CHOICES if choice.names else HOSTED_CHOICE] = given
    elif any("namespace" in tool for tool in chosen):
        own[CHOICE] = given
    return choice


def _list_chosen(given: Any) -> list[Json]:
    """Return the tools that a choice names."""
    if not isinstance(given, dict):
        return []
    return (given.get("tools") or []) if given.get("type") == "allowed_tools" else [given]


def is_hosted(tool: Json) -> bool:
    """Tell whether only this API can run a tool."""
    return (tool.get("type") or "function") not in ("function", "custom")


def decode_choice(given: Any, path: str) -> ToolChoice:
    """Decode a `tool_choice`, without the tools that only this API can run."""
    if given is None:
        return ToolChoice()
    if isinstance(given, str):
        if given in ("auto", "none", "required"):
            return ToolChoice(given)
        raise WireError(f"Expected `auto`, `none`, `required` or an object, got `{given}`", path)
    choice = Fields(given, path)
    kind = choice.take_text("type")
    if kind == "allowed_tools":
        return _decode_allowed(choice)
    if is_hosted(given):
        return ToolChoice()
    return ToolChoice("required", (choice.require("name", str),))


def _decode_allowed(fields: Fields) -> ToolChoice:
    mode = fields.take_text("mode")
    tools = [Fields(item, path) for item, path in fields.take_items("tools")]
    named = tuple(tool.require("name", str) for tool in tools if not is_hosted(tool.rest()))
    if tools and not named:
        # Only hosted tools are allowed, which no other API has.
        return ToolChoice("none")
    return ToolChoice("required" if mode == "required" else "auto", named)


def _decode_response_format(fields: Fields, own: Json) -> ResponseFormat | None:
    text = fields.take_object("text")
    if text is None:
        return None
    form = text.take_object("format")
    found: ResponseFormat | None = None
    match form and form.peek("type"):
        case None | "text":
            pass
        case "json_object":
            found = ResponseFormat()
        case "json_schema":
            assert form is not None
            found = ResponseFormat(
                form.take("schema", dict) or {},
                form.take_text("name"),
                form.take_text("description"),
                form.take("strict", bool),
            )
        case _:
            assert form is not None
            text.update({"format": form.rest()})
    if rest := text.rest():
        own["text"] = rest
    return found


def _decode_thinking(fields: Fields, own: Json) -> Thinking:
    given = fields.take_object("reasoning")
    if given is None:
        return Thinking()
    effort = given.take("effort", str)
    summary = given.take_text("summary", "generate_summary")
    if summary not in ("", "auto"):
        own[SUMMARY] = summary
    if rest := given.rest():
        own["reasoning"] = rest
    return Thinking(effort=effort, shown=bool(summary))
