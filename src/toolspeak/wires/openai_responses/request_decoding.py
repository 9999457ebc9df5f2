"""A client's request to Responses."""

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
from ..call_history import CallHistory, decode_call
from ..content import decode_image_url, split_data_url
from ..fields import HOSTED_TOOLS, Fields, Json, json_type, memoize_by_json
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
    """What a client asks for."""
    fields = Fields(body)
    notes: list[Note] = []
    sampling = fields.take_numbers(SAMPLING)
    metadata = fields.take("metadata", dict) or {}
    user = fields.take_text("user")
    parallel = fields.take("parallel_tool_calls", bool)
    streamed = fields.take("stream", bool)
    tools, hosted = _tools(fields)
    own: Json = {HOSTED_TOOLS: hosted} if hosted else {}
    return Request(
        model=fields.take_text("model") or model,
        messages=_messages(fields, notes),
        tools=tools,
        tool_choice=_tool_choice(fields, own),
        parallel_tool_calls=parallel is not False,
        response_format=_response_format(fields, own),
        thinking=_thinking(fields, own),
        stream=bool(stream if stream is not None else streamed),
        max_tokens=fields.take("max_output_tokens", int),
        sampling=sampling,
        metadata=metadata | ({"user_id": user} if user else {}),
        wire=NAME,
        notes=tuple(notes),
        extra=fields.rest() | own,
    )


# The conversation.


class _Turns:
    """Items, put together to messages: what an assistant does in a row is one of them, and so are
    the results that come in a row."""

    def __init__(self, notes: list[Note]) -> None:
        self.notes = notes
        self.history = CallHistory()
        self._turns: list[tuple[Role, list[Part], Json]] = []

    def say(self, role: Role, parts: Iterable[Part], extra: Json) -> None:
        self._turns.append((role, list(parts), extra))

    def join(self, role: Literal["assistant", "tool"], *parts: Part) -> None:
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(parts)
        else:
            self.say(role, parts, {})

    def messages(self) -> tuple[Message, ...]:
        return tuple(Message(role, tuple(parts), extra) for role, parts, extra in self._turns)


def _messages(fields: Fields, notes: list[Note]) -> tuple[Message, ...]:
    turns = _Turns(notes)
    if instructions := fields.take_text("instructions"):
        turns.say("system", [Text(instructions)], {INSTRUCTIONS: True})
    given = fields.peek("input")
    if isinstance(given, str):
        turns.say("user", [Text(fields.require("input", str))], {})
    for item, path in fields.take_items("input"):
        _item(item, path, turns)
    return turns.messages()


def _item(item: Any, path: str, turns: _Turns) -> None:
    fields = Fields(item, path)
    kind = fields.take_text("type") or ("message" if fields.has("role") else "")
    match kind:
        case "message":
            _message(fields, turns)
        case "reasoning":
            turns.join("assistant", thought(fields))
        case "function_call" | "custom_tool_call":
            turns.join("assistant", _call(fields, kind == "custom_tool_call", turns))
        case "function_call_output" | "custom_tool_call_output":
            turns.join("tool", _result(fields, kind == "custom_tool_call_output", turns))
        case "image_generation_call":
            turns.join("assistant", picture(fields) or Other(dict(item)))
        case "" if not fields.has("id"):
            raise WireError("Expected an item with a `type`, got one without", path)
        case _:
            turns.join("assistant", Other(dict(item)))


def _message(fields: Fields, turns: _Turns) -> None:
    role = fields.require("role", str)
    match role:
        case "system" | "developer" | "user":
            parts = list(content(fields, "content"))
            turns.say(role, parts, reminders(fields) | leftover(fields))
        case "assistant":
            turns.join("assistant", *_said(fields))
        case _:
            expected = "`system`, `developer`, `user` or `assistant`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))


def _said(fields: Fields) -> list[Part]:
    """What an assistant said. Its texts are held together by the id of the message, and the last
    tells what is said of all of it."""
    given = fields.peek("content")
    known = reminders(fields)
    named = {ID: known[ID]} if ID in known else {}
    parts: list[Part] = []
    for index, said in enumerate(content(fields, "content")):
        if isinstance(said, Text):
            parts.append(replace(said, extra=said.extra | named))
        else:
            # Only this API lets an assistant show things: as an item of its own it stays here.
            shown = [given[index]] if isinstance(given, list) else []
            parts.append(Other({"type": "message", "role": "assistant", "content": shown}))
    if of_the_message := known | leftover(fields):
        last = parts.pop() if parts and isinstance(parts[-1], Text) else Text("")
        assert isinstance(last, Text)
        parts.append(replace(last, extra=last.extra | of_the_message))
    return parts


def _call(fields: Fields, freeform: bool, turns: _Turns) -> ToolCall:
    known = reminders(fields)
    identity = fields.take_text("call_id", "id") or turns.history.new_id()
    name, namespace = fields.require("name", str), fields.take("namespace", str)
    path = fields.path_of("arguments")
    given = fields.take_text("input") if freeform else fields.take_any("arguments")
    extra = known | leftover(fields)
    if not freeform:
        call = decode_call(
            identity, name, given, path, turns.notes, namespace=namespace, extra=extra
        )
    else:
        call = ToolCall(
            id=identity,
            name=name,
            arguments={"input": given},
            namespace=namespace,
            freeform=True,
            extra=extra,
        )
    return turns.history.add(call)


def _result(fields: Fields, freeform: bool, turns: _Turns) -> ToolResult:
    identity, name = turns.history.find_answered_call(
        fields.take_text("call_id"), fields.take_text("name")
    )
    parts = tuple(content(fields, "output"))
    said: Any = parts
    if not parts or (len(parts) == 1 and isinstance(parts[0], Text) and not parts[0].extra):
        said = "".join(part.text for part in parts if isinstance(part, Text))
    extra = reminders(fields) | leftover(fields) | ({CUSTOM: True} if freeform else {})
    return ToolResult(call_id=identity, name=name, content=said, extra=extra)


def content(fields: Fields, key: str) -> Iterator[Text | Image | Document | Other]:
    """What a message or a result holds."""
    given = fields.take_any(key)
    if isinstance(given, str):
        if given:
            yield Text(given)
    elif isinstance(given, list):
        for index, item in enumerate(given):
            yield part(item, f"{fields.path_of(key)}[{index}]")
    elif given is not None:
        kind = json_type(given)
        raise WireError(f"Expected `string` or `array`, got `{kind}`", fields.path_of(key))


def part(item: Any, path: str) -> Text | Image | Document | Other:
    """One part of a message or a result."""
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match fields.take_text("type") or "input_text":
        case "input_text" | "output_text" | "text":
            return Text(fields.take_text("text"), leftover(fields))
        case "refusal":
            return Text(fields.take_text("refusal"), {"type": "refusal"})
        case "input_image" if fields.has("image_url"):
            return _image(fields)
        case "input_file" if fields.has("file_data") or fields.has("file_url"):
            return _file(fields)
        case "input_audio":
            audio = Fields(fields.take_any("input_audio"), fields.path_of("input_audio"))
            kind = f"audio/{audio.take_text('format') or 'wav'}"
            return Document(data=audio.take_text("data"), media_type=kind, extra=leftover(fields))
        case _:
            return Other(dict(item))


def _image(fields: Fields) -> Image:
    detail = fields.take_text("detail")
    url = fields.require("image_url", str)
    closely = None if detail in ("", "auto") else detail
    return decode_image_url(url, detail=closely, extra=leftover(fields))


def _file(fields: Fields) -> Document:
    media_type, data = split_data_url(given := fields.take_text("file_data"))
    return Document(
        title=fields.take_text("filename"),
        url=fields.take("file_url", str),
        data=data or given or None,
        media_type=media_type or "application/pdf",
        extra=leftover(fields),
    )


# The tools.


@memoize_by_json("tools")
def _tools(fields: Fields) -> tuple[tuple[Tool, ...] | None, list[Json]]:
    """The tools that may be offered to any model, and those that only this API can run."""
    if not fields.has("tools"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Json] = []
    for item, path in fields.take_items("tools"):
        given = Fields(item, path)
        match kind := given.take_text("type") or "function":
            case "function" | "custom":
                tools.append(_tool(given, kind == "custom"))
            case "namespace" if item.get("tools"):
                tools += _namespace(given, hosted)
            case _:
                hosted.append(item)
    return tuple(tools), hosted


def _tool(fields: Fields, freeform: bool, namespace: str | None = None) -> Tool:
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=fields.take("parameters", dict) or {},
        namespace=namespace,
        freeform=freeform,
        strict=fields.take("strict", bool),
        extra=fields.rest(),
    )


def _namespace(fields: Fields, hosted: list[Json]) -> Iterator[Tool]:
    """The tools of a namespace. Each remembers what is said of it."""
    name = fields.require("name", str)
    inner = list(fields.take_items("tools"))
    about = {"namespace": rest} if (rest := fields.rest()) else {}
    for item, path in inner:
        given = Fields(item, path)
        kind = given.take_text("type") or "function"
        if kind in ("function", "custom"):
            tool = _tool(given, kind == "custom", name)
            yield replace(tool, extra=tool.extra | about)
        else:
            hosted.append(item | {SPACE: {"name": name, **rest}})


def _tool_choice(fields: Fields, own: Json) -> ToolChoice:
    """What a choice means, and in `own` all that it says, if that is more."""
    given, path = fields.take_any("tool_choice"), fields.path_of("tool_choice")
    choice = choice_of(given, path)
    chosen = _chosen(given)
    if any(map(is_hosted, chosen)):
        own[HOSTED_CHOICES if choice.names else HOSTED_CHOICE] = given
    elif any("namespace" in tool for tool in chosen):
        own[CHOICE] = given
    return choice


def _chosen(given: Any) -> list[Json]:
    """The tools that a choice is about."""
    if not isinstance(given, dict):
        return []
    return (given.get("tools") or []) if given.get("type") == "allowed_tools" else [given]


def is_hosted(tool: Json) -> bool:
    """Whether only this API can run a tool."""
    return (tool.get("type") or "function") not in ("function", "custom")


def choice_of(given: Any, path: str) -> ToolChoice:
    """What a `tool_choice` means, without the tools that only this API can run."""
    if given is None:
        return ToolChoice()
    if isinstance(given, str):
        if given in ("auto", "none", "required"):
            return ToolChoice(given)
        raise WireError(f"Expected `auto`, `none`, `required` or an object, got `{given}`", path)
    choice = Fields(given, path)
    kind = choice.take_text("type")
    if kind == "allowed_tools":
        return _allowed(choice)
    if is_hosted(given):
        return ToolChoice()
    return ToolChoice("required", (choice.require("name", str),))


def _allowed(fields: Fields) -> ToolChoice:
    mode = fields.take_text("mode")
    tools = [Fields(item, path) for item, path in fields.take_items("tools")]
    named = tuple(tool.require("name", str) for tool in tools if not is_hosted(tool.rest()))
    if tools and not named:
        # Nothing may be called but what elsewhere cannot be.
        return ToolChoice("none")
    return ToolChoice("required" if mode == "required" else "auto", named)


# The settings.


def _response_format(fields: Fields, own: Json) -> ResponseFormat | None:
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


def _thinking(fields: Fields, own: Json) -> Thinking:
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
