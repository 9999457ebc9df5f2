"""A request to an upstream that speaks Responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

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
    Tool,
    ToolCall,
    ToolResult,
)
from ..content import as_plain_text, encode_media_url, render_document
from ..encoding import (
    OPENAI_NAMES,
    LossLog,
    as_object_schema,
    choose_effort,
    encode_choice_names,
    encode_sampling,
    encode_user_id,
    name_tools,
    omit_none,
    shorten_id,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, Json
from ..names import ToolNames
from ..wire import EncodedRequest
from .parts import (
    CHOICE,
    CONTINUED,
    CUSTOM,
    EFFORTS,
    HOSTED_CHOICE,
    HOSTED_CHOICES,
    ID,
    INSTRUCTIONS,
    ITEM,
    MADE_ID,
    NAME,
    SAMPLING,
    SPACE,
    SUMMARY,
    TEXTS,
    call_item,
    image_item,
    input_of,
    is_refusal,
    message_item,
    of_the_message,
    reasoning_item,
    remembered,
    said,
)
from .request_decoding import choice_of, is_hosted

_FEWEST_TOKENS = 16
"""The least that OpenAI lets a reply be limited to."""
_LONGEST_ID = 64
"""What OpenAI lets a call's id be."""


def encode_request(request: Request) -> EncodedRequest:
    """The request in this API's words."""
    unsaid = LossLog(NAME, request.wire)
    names = name_tools(request, OPENAI_NAMES, keeps_namespaces=True)
    body: Json = {"model": request.model, **_Input(request, names, unsaid).written()}
    body |= settings(request, names, unsaid)
    if not unsaid.is_same_wire:
        # Other APIs keep no replies, and give their clients what it takes to go on without.
        body |= {"store": False}
        if (body.get("reasoning") or {}).get("effort", "none") != "none":
            body["include"] = ["reasoning.encrypted_content"]
    if request.stop:
        unsaid.drop("stop sequences", "$.stop")
    if request.stream:
        body["stream"] = True
    return EncodedRequest("/responses", body, names, (*unsaid.notes(), *names.notes))


# The conversation.


class _Input:
    """The messages of a request, as items."""

    def __init__(self, request: Request, names: ToolNames, unsaid: LossLog) -> None:
        self._messages = request.messages
        self._names = names
        self._unsaid = unsaid
        self._freeform: set[str] = set()
        """The calls whose results are of another kind."""

    def written(self) -> Json:
        messages = list(enumerate(self._messages))
        head: Json = {}
        if messages and self._stood_beside(messages[0][1]):
            head["instructions"] = as_plain_text(messages.pop(0)[1].parts)
        items = [
            item
            for index, message in messages
            for item in self._items(message, f"$.messages[{index}]")
        ]
        return head | {"input": items}

    def _stood_beside(self, message: Message) -> bool:
        came_so = self._unsaid.is_same_wire and message.extra.get(INSTRUCTIONS)
        return bool(came_so) and as_plain_text(message.parts) is not None

    def _items(self, message: Message, path: str) -> Iterator[Json]:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        yield from (self._result(result, path) for result in results)
        parts: list[Part] = [part for part in message.parts if not isinstance(part, ToolResult)]
        if message.role == "assistant":
            yield from self._assistant(parts, path)
            self._unsaid.carry(message.extra, path)
        elif parts or not results:
            role = "user" if message.role == "tool" else message.role
            item = {"type": "message", "role": role, "content": self._content(parts, path)}
            yield item | _beside(self._unsaid.carry(message.extra, path))

    def _assistant(self, parts: list[Part], path: str) -> Iterator[Json]:
        """What an assistant did, in order: the texts in a row are one message, unless they came in
        several."""
        texts: list[Text] = []
        for part in parts:
            if isinstance(part, Text):
                text = self._text(part, path)
                if texts and text.extra.get(ID) != texts[-1].extra.get(ID):
                    yield from _message(texts)
                    texts = []
                texts.append(text)
                if not of_the_message(text):
                    continue
            yield from _message(texts)
            texts = []
            yield from self._item(part, path)
        yield from _message(texts)

    def _text(self, text: Text, path: str) -> Text:
        """A text with what it may say here."""
        if not text.extra:
            return text
        refusal = {"type": "refusal"} if is_refusal(text) else {}
        rest = {key: value for key, value in text.extra.items() if key not in refusal}
        return replace(text, extra=refusal | self._unsaid.carry(rest, path))

    def _item(self, part: Part, path: str) -> Iterator[Json]:
        match part:
            case ToolCall():
                yield self._call(part, path)
            case Reasoning():
                yield from self._thought(part, path)
            case Image() if self._unsaid.is_same_wire and ITEM in part.extra:
                yield image_item(part)
            case Other() if self._unsaid.is_same_wire:
                yield part.data
            case Text():
                pass
            case _:
                self._unsaid.drop(f"{_kind(part)} of the assistant's", path)

    def _thought(self, thought: Reasoning, path: str) -> Iterator[Json]:
        """A thought that its maker can recognise, by a signature or as its own words."""
        extra = self._unsaid.carry(thought.extra, path)
        identity = str(extra.get(ID) or "")
        is_made_up = bool(MADE_ID.match(identity))
        is_foreign = is_made_up or not self._unsaid.is_same_wire
        if is_foreign and thought.signature is None and TEXTS not in extra:
            self._unsaid.drop("reasoning without a signature", path)
            return
        item = reasoning_item(replace(thought, extra=extra))
        if identity and not (is_made_up and thought.signature):
            item["id"] = identity
        yield item

    def _call(self, call: ToolCall, path: str) -> Json:
        extra = self._unsaid.carry(call.extra, path)
        text = extra.get(ARGUMENTS_TEXT) or input_of(call)
        if call.freeform:
            self._freeform.add(call.id)
        item = call_item(call, self._names.to_wire(call.name, call.namespace), text)
        return item | {"call_id": self._identity(call.id)} | _beside(extra)

    def _identity(self, identity: str) -> str:
        return identity if self._unsaid.is_same_wire else shorten_id(identity, _LONGEST_ID)

    def _result(self, result: ToolResult, path: str) -> Json:
        extra = self._unsaid.carry(result.extra, path)
        is_custom = extra.get(CUSTOM) or result.call_id in self._freeform
        output: Any = result.content
        if not isinstance(output, str):
            output = self._content(output, path)
        if result.is_error:
            self._unsaid.drop("a result's error flag", path)
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        identity = self._identity(result.call_id)
        return {"type": kind, "call_id": identity, "output": output, **_beside(extra)}

    def _content(self, parts: Iterable[Part], path: str) -> str | list[Json]:
        message = Message("user", tuple(parts))
        text = as_plain_text(message.parts)
        if text is not None:
            return text
        written = (self._part(part, path) for part in message.parts)
        return [part for part in written if part]

    def _part(self, part: Part, path: str) -> Json:
        match part:
            case Text():
                extra = self._text(part, path).extra
                return {**extra, "type": "input_text", "text": part.text}
            case Image():
                extra = self._unsaid.carry(part.extra, path)
                detail = part.detail or "auto"
                return {
                    "type": "input_image",
                    "image_url": encode_media_url(part),
                    "detail": detail,
                    **extra,
                }
            case Document():
                return self._document(part, path)
            case Other() if self._unsaid.is_same_wire:
                return part.data
            case _:
                self._unsaid.drop(_kind(part), path)
                return {}

    def _document(self, part: Document, path: str) -> Json:
        extra = self._unsaid.carry(part.extra, path)
        if part.data is not None and part.media_type.startswith("audio/"):
            audio = {"data": part.data, "format": part.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": audio, **extra}
        if part.data is None and (part.text or part.url is None):
            self._unsaid.change("a document is written as text", path)
            return {"type": "input_text", "text": render_document(part), **extra}
        data = encode_media_url(part) if part.data is not None else None
        file = omit_none(filename=part.title or None, file_data=data, file_url=part.url)
        return {"type": "input_file", **file, **extra}


def _beside(extra: Json) -> Json:
    """What an item says beside what it holds."""
    return remembered(extra) | said(extra) if extra else {}


def _message(texts: list[Text]) -> Iterator[Json]:
    """What an assistant said, in the shortest form that says it all."""
    match texts:
        case [Text(text, extra)] if not extra:
            if text:
                yield {"type": "message", "role": "assistant", "content": text}
        case []:
            pass
        case _:
            yield message_item(texts)


def _kind(part: Part) -> str:
    name = part.data.get("type", "part") if isinstance(part, Other) else type(part).__name__
    return "a picture" if isinstance(part, Image) else f"a part of the kind {name!r}"


# The settings.


def settings(request: Request, names: ToolNames, unsaid: LossLog) -> Json:
    """All that a request says beside its conversation."""
    extra = dict(unsaid.carry(request.extra, "$"))
    hosted = extra.pop(HOSTED_TOOLS, [])
    extra.pop(CONTINUED, None)
    kept = [extra.pop(key, None) for key in (CHOICE, HOSTED_CHOICE, HOSTED_CHOICES)]
    body: Json = {}
    if tools := _tools(request, names, unsaid, hosted):
        chosen = _choice_out(request, names, next(filter(None, kept), None))
        body |= {"tools": tools} | omit_none(tool_choice=chosen)
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    elif request.tools is not None and unsaid.is_same_wire:
        body["tools"] = []
    metadata = {key: value for key, value in request.metadata.items() if key != "user_id"}
    body |= omit_none(
        text=_joined(extra, "text", omit_none(format=_format_out(request.response_format))),
        reasoning=_joined(extra, "reasoning", _reasoning_out(request, unsaid, extra)),
        max_output_tokens=_limit(request, unsaid),
        user=encode_user_id(request, unsaid),
        metadata=metadata or None,
    )
    return body | encode_sampling(request, SAMPLING, unsaid) | extra


def _joined(extra: Json, key: str, said: Json) -> Json | None:
    """What a field says, with what was left over of it."""
    return said | (extra.pop(key, None) or {}) or None


def _limit(request: Request, unsaid: LossLog) -> int | None:
    limit = request.max_tokens
    if unsaid.is_same_wire or limit is None or limit >= _FEWEST_TOKENS:
        return limit
    unsaid.change(f"a reply of {limit} tokens may be {_FEWEST_TOKENS} long", "$.max_tokens")
    return _FEWEST_TOKENS


def _reasoning_out(request: Request, unsaid: LossLog, extra: Json) -> Json:
    summary = extra.pop(SUMMARY, "auto") if request.thinking.shown else None
    thinking = replace(request.thinking, shown=None)
    return omit_none(effort=choose_effort(thinking, unsaid, EFFORTS), summary=summary)


def _format_out(form: ResponseFormat | None) -> Json | None:
    if form is None:
        return None
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema"} | omit_none(
        name=form.name or "answer",
        schema=form.schema,
        description=form.description or None,
        strict=form.strict,
    )


def _tools(request: Request, names: ToolNames, unsaid: LossLog, hosted: list[Json]) -> list[Json]:
    """The tools, those of one namespace together."""
    out: list[Json] = []
    spaces: dict[str, list[Json]] = {}
    for tool in request.tools or ():
        item = _tool(tool, names, unsaid)
        about = item.pop("namespace", {})
        if tool.namespace is None:
            out.append(item)
        else:
            _within({"name": tool.namespace, **about}, spaces, out).append(item)
    for item in hosted:
        plain = {key: value for key, value in item.items() if key != SPACE}
        (_within(item[SPACE], spaces, out) if SPACE in item else out).append(plain)
    return out


def _within(about: Json, spaces: dict[str, list[Json]], out: list[Json]) -> list[Json]:
    """The tools of a namespace so far."""
    name = about["name"]
    if name not in spaces:
        spaces[name] = []
        space = {"type": "namespace", "description": name, **about, "tools": spaces[name]}
        out.append(space)
    return spaces[name]


def _tool(tool: Tool, names: ToolNames, unsaid: LossLog) -> Json:
    extra = dict(tool.extra)
    form = extra.pop("format", None) if tool.freeform else None
    extra = dict(unsaid.carry(extra, f"$.tools[{tool.name!r}]"))
    item = {"name": names.to_wire(tool.name, tool.namespace), "description": tool.description}
    if tool.freeform:
        return {"type": "custom", **item} | omit_none(format=_flat(form)) | extra
    # Left to itself, this API is strict where it can be. No other is.
    strict = False if tool.strict is None and not unsaid.is_same_wire else tool.strict
    parameters = tool.parameters or (None if unsaid.is_same_wire else as_object_schema({}))
    return {"type": "function", **item, "parameters": parameters} | omit_none(strict=strict) | extra


def _flat(form: Any) -> Any:
    """The grammar of a freeform tool, which chat completions keep one level deeper."""
    inner = form.get("grammar") if isinstance(form, Mapping) else None
    return {"type": "grammar", **inner} if isinstance(inner, Mapping) else form


def _choice_out(request: Request, names: ToolNames, kept: Any) -> Any:
    choice = request.tool_choice
    if kept is not None and choice_of(kept, "$.tool_choice") == choice:
        return _renamed(kept, names)
    tools = request.tools or ()
    freeform = {tool.name for tool in tools if tool.freeform}
    written = zip(choice.names, encode_choice_names(choice, names, tools), strict=True)
    named = [
        {"type": "custom" if name in freeform else "function", "name": out} for name, out in written
    ]
    if not named:
        return None if choice.mode == "auto" else choice.mode
    if len(named) == 1 and choice.mode == "required":
        return named[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": named}


def _renamed(choice: Json, names: ToolNames) -> Json:
    """A choice as it was given, with the names as they go out."""
    if choice.get("type") == "allowed_tools":
        return choice | {"tools": [_renamed(tool, names) for tool in choice["tools"]]}
    if is_hosted(choice):
        return choice
    return choice | {"name": names.to_wire(choice["name"], choice.get("namespace"))}
