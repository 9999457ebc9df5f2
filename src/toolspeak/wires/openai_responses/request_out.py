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
from ..common import (
    OPENAI_NAMES,
    choice_names,
    document_as_text,
    effort_of,
    names_of,
    object_schema,
    only_texts,
    sampling_out,
    url_of,
)
from ..fields import HOSTED, WRITTEN, Json, Unsaid, present
from ..names import Names
from ..wire import Outgoing
from .items import call_item, image_item, message_item, of_the_message, reasoning_item
from .request_in import choice_of
from .words import (
    CHOICE,
    CUSTOM,
    EFFORTS,
    ID,
    INSTRUCTIONS,
    ITEM,
    MADE_ID,
    NAME,
    SAMPLING,
    SUMMARY,
    TEXTS,
)

_FEWEST_TOKENS = 16
"""The least that OpenAI lets a reply be limited to."""


def encode_request(request: Request) -> Outgoing:
    """The request in this API's words."""
    unsaid = Unsaid(NAME, request.wire)
    names = names_of(request, OPENAI_NAMES, keeps_namespaces=True)
    body: Json = {"model": request.model, **_Input(request, names, unsaid).written()}
    body |= settings(request, names, unsaid)
    if not unsaid.same:
        # Other APIs keep no replies, and give their clients what it takes to go on without.
        body |= {"store": False}
        if (body.get("reasoning") or {}).get("effort", "none") != "none":
            body["include"] = ["reasoning.encrypted_content"]
    if request.stop:
        unsaid.drop("stop sequences", "$.stop")
    if request.stream:
        body["stream"] = True
    return Outgoing("/responses", body, names, (*unsaid.notes(), *names.notes()))


# The conversation.


class _Input:
    """The messages of a request, as items."""

    def __init__(self, request: Request, names: Names, unsaid: Unsaid) -> None:
        self._messages = request.messages
        self._names = names
        self._unsaid = unsaid
        self._freeform: set[str] = set()
        """The calls whose results are of another kind."""

    def written(self) -> Json:
        messages = list(enumerate(self._messages))
        head: Json = {}
        if messages and self._stood_beside(messages[0][1]):
            head["instructions"] = only_texts(messages.pop(0)[1])
        items = [
            item
            for index, message in messages
            for item in self._items(message, f"$.messages[{index}]")
        ]
        return head | {"input": items}

    def _stood_beside(self, message: Message) -> bool:
        came_so = self._unsaid.same and message.extra.get(INSTRUCTIONS)
        return bool(came_so) and only_texts(message) is not None

    def _items(self, message: Message, path: str) -> Iterator[Json]:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        yield from (self._result(result, path) for result in results)
        parts: list[Part] = [part for part in message.parts if not isinstance(part, ToolResult)]
        if message.role == "assistant":
            yield from self._assistant(parts, path)
            self._unsaid.carried(message.extra, path)
        elif parts or not results:
            role = "user" if message.role == "tool" else message.role
            extra = dict(self._unsaid.carried(message.extra, path))
            extra.pop(INSTRUCTIONS, None)
            content = self._content(parts, path)
            yield {"type": "message", "role": role, "content": content, **extra}

    def _assistant(self, parts: list[Part], path: str) -> Iterator[Json]:
        """What an assistant did, in order: the texts in a row are one message."""
        texts: list[Text] = []
        for part in parts:
            if isinstance(part, Text):
                texts.append(self._text(part, path))
                if not of_the_message(texts[-1]):
                    continue
            yield from _message(texts)
            texts = []
            yield from self._item(part, path)
        yield from _message(texts)

    def _text(self, text: Text, path: str) -> Text:
        """A text with what it may say here."""
        if text.extra == {"type": "refusal"}:
            return text
        return replace(text, extra=self._unsaid.carried(text.extra, path))

    def _item(self, part: Part, path: str) -> Iterator[Json]:
        match part:
            case ToolCall():
                yield self._call(part, path)
            case Reasoning():
                yield from self._thought(part, path)
            case Image() if self._unsaid.same and ITEM in part.extra:
                yield image_item(part)
            case Other() if self._unsaid.same:
                yield part.data
            case Text():
                pass
            case _:
                self._unsaid.drop(f"{_kind(part)} of the assistant's", path)

    def _thought(self, thought: Reasoning, path: str) -> Iterator[Json]:
        """A thought that its maker can recognise, by a signature or as its own words."""
        extra = self._unsaid.carried(thought.extra, path)
        identity = str(extra.get(ID) or "")
        is_made_up = bool(MADE_ID.match(identity))
        is_foreign = is_made_up or not self._unsaid.same
        if is_foreign and thought.signature is None and TEXTS not in extra:
            self._unsaid.drop("reasoning without a signature", path)
            return
        item = reasoning_item(replace(thought, extra=extra))
        if identity and not (is_made_up and thought.signature):
            item["id"] = identity
        yield item

    def _call(self, call: ToolCall, path: str) -> Json:
        extra = dict(self._unsaid.carried(call.extra, path))
        text = extra.pop(WRITTEN, None) or call.input
        if call.freeform:
            self._freeform.add(call.id)
        return call_item(call, self._names.write(call.name, call.namespace), text) | extra

    def _result(self, result: ToolResult, path: str) -> Json:
        extra = dict(self._unsaid.carried(result.extra, path))
        is_custom = extra.pop(CUSTOM, False) or result.call_id in self._freeform
        output: Any = result.content
        if not isinstance(output, str):
            output = self._content(output, path)
        if result.is_error:
            self._unsaid.drop("a result's error flag", path)
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        return {"type": kind, "call_id": result.call_id, "output": output, **extra}

    def _content(self, parts: Iterable[Part], path: str) -> str | list[Json]:
        message = Message("user", tuple(parts))
        text = only_texts(message)
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
                extra = self._unsaid.carried(part.extra, path)
                detail = part.detail or "auto"
                return {"type": "input_image", "image_url": url_of(part), "detail": detail, **extra}
            case Document():
                return self._document(part, path)
            case Other() if self._unsaid.same:
                return part.data
            case _:
                self._unsaid.drop(_kind(part), path)
                return {}

    def _document(self, part: Document, path: str) -> Json:
        extra = self._unsaid.carried(part.extra, path)
        if part.data is not None and part.media_type.startswith("audio/"):
            audio = {"data": part.data, "format": part.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": audio, **extra}
        if part.data is None and (part.text or part.url is None):
            self._unsaid.change("a document is written as text", path)
            return {"type": "input_text", "text": document_as_text(part), **extra}
        data = url_of(part) if part.data is not None else None
        file = present(filename=part.title or None, file_data=data, file_url=part.url)
        return {"type": "input_file", **file, **extra}


def _message(texts: list[Text]) -> Iterator[Json]:
    """What an assistant said, in the shortest form that says it all."""
    match texts:
        case [Text(said, extra)] if not extra:
            if said:
                yield {"type": "message", "role": "assistant", "content": said}
        case []:
            pass
        case _:
            yield message_item(texts)


def _kind(part: Part) -> str:
    name = part.data.get("type", "part") if isinstance(part, Other) else type(part).__name__
    return "a picture" if isinstance(part, Image) else f"a part of the kind {name!r}"


# The settings.


def settings(request: Request, names: Names, unsaid: Unsaid) -> Json:
    """All that a request says beside its conversation."""
    extra = dict(unsaid.carried(request.extra, "$"))
    hosted, kept = extra.pop(HOSTED, []), extra.pop(CHOICE, None)
    body: Json = {}
    if tools := [*_tools(request, names, unsaid), *hosted]:
        body |= {"tools": tools} | present(tool_choice=_choice_out(request, names, kept))
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    elif request.tools is not None and unsaid.same:
        body["tools"] = []
    metadata = dict(request.metadata)
    body |= present(
        text=_joined(extra, "text", present(format=_format_out(request.response_format))),
        reasoning=_joined(extra, "reasoning", _reasoning_out(request, unsaid, extra)),
        max_output_tokens=_limit(request, unsaid),
        user=metadata.pop("user_id", None),
        metadata=metadata or None,
    )
    return body | sampling_out(request, SAMPLING, unsaid) | extra


def _joined(extra: Json, key: str, said: Json) -> Json | None:
    """What a field says, with what was left over of it."""
    return said | (extra.pop(key, None) or {}) or None


def _limit(request: Request, unsaid: Unsaid) -> int | None:
    limit = request.max_tokens
    if unsaid.same or limit is None or limit >= _FEWEST_TOKENS:
        return limit
    unsaid.change(f"a reply of {limit} tokens may be {_FEWEST_TOKENS} long", "$.max_tokens")
    return _FEWEST_TOKENS


def _reasoning_out(request: Request, unsaid: Unsaid, extra: Json) -> Json:
    summary = extra.pop(SUMMARY, "auto") if request.thinking.shown else None
    return present(effort=effort_of(request.thinking, unsaid, EFFORTS), summary=summary)


def _format_out(form: ResponseFormat | None) -> Json | None:
    if form is None:
        return None
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema"} | present(
        name=form.name or "answer",
        schema=form.schema,
        description=form.description or None,
        strict=form.strict,
    )


def _tools(request: Request, names: Names, unsaid: Unsaid) -> list[Json]:
    """The tools, those of one namespace together."""
    out: list[Json] = []
    spaces: dict[str, Json] = {}
    for tool in request.tools or ():
        item = _tool(tool, names, unsaid)
        about = item.pop("namespace", {})
        if tool.namespace is None:
            out.append(item)
            continue
        if tool.namespace not in spaces:
            space = {"type": "namespace", "name": tool.namespace, "description": tool.namespace}
            spaces[tool.namespace] = space | about | {"tools": []}
            out.append(spaces[tool.namespace])
        spaces[tool.namespace]["tools"].append(item)
    return out


def _tool(tool: Tool, names: Names, unsaid: Unsaid) -> Json:
    extra = dict(tool.extra)
    form = extra.pop("format", None) if tool.freeform else None
    extra = dict(unsaid.carried(extra, f"$.tools[{tool.name!r}]"))
    item = {"name": names.write(tool.name, tool.namespace), "description": tool.description}
    if tool.freeform:
        return {"type": "custom", **item} | present(format=_flat(form)) | extra
    # Left to itself, this API is strict where it can be. No other is.
    strict = False if tool.strict is None and not unsaid.same else tool.strict
    parameters = tool.parameters or (None if unsaid.same else object_schema({}))
    return {"type": "function", **item, "parameters": parameters} | present(strict=strict) | extra


def _flat(form: Any) -> Any:
    """The grammar of a freeform tool, which chat completions keep one level deeper."""
    inner = form.get("grammar") if isinstance(form, Mapping) else None
    return {"type": "grammar", **inner} if isinstance(inner, Mapping) else form


def _choice_out(request: Request, names: Names, kept: Any) -> Any:
    choice = request.tool_choice
    if kept is not None and choice_of(kept, "$.tool_choice") == choice:
        return kept
    tools = request.tools or ()
    freeform = {tool.name for tool in tools if tool.freeform}
    written = zip(choice.names, choice_names(choice, names, tools), strict=True)
    named = [
        {"type": "custom" if name in freeform else "function", "name": out} for name, out in written
    ]
    if not named:
        return None if choice.mode == "auto" else choice.mode
    if len(named) == 1 and choice.mode == "required":
        return named[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": named}
