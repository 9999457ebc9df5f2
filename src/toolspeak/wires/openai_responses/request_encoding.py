"""Encodes a Responses request for an upstream."""

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
    EFFORTS,
    OPENAI_NAMES,
    EncodedRequest,
    NameRule,
    RequestEncoder,
    as_object_schema,
    choose_effort,
    omit_none,
    shorten_id,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, Json
from ..openai_chat.request_encoding import encode_schema_format
from .parts import (
    CHOICE,
    CONTINUED,
    CUSTOM,
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
from .request_decoding import decode_choice, is_hosted

_MIN_TOKENS = 16
_MAX_ID = 64


def encode_request(request: Request) -> EncodedRequest:
    return ResponsesRequestEncoder(request).encode()


class ResponsesRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = OPENAI_NAMES
    keeps_namespaces = True

    def __init__(self, request: Request, name_rule: NameRule | None = None) -> None:
        super().__init__(request, name_rule)
        self._freeform_calls: set[str] = set()
        """Ids of calls whose results have another type."""

    def encode(self) -> EncodedRequest:
        body: Json = {"model": self.request.model, **self._encode_input()}
        body |= self.encode_settings()
        if not self.is_same_wire:
            # Other APIs store no replies; their clients get what they need to continue without.
            body |= {"store": False}
            if (body.get("reasoning") or {}).get("effort", "none") != "none":
                body["include"] = ["reasoning.encrypted_content"]
        if self.request.stop:
            self.losses.drop("stop sequences", "$.stop")
        if self.request.stream:
            body["stream"] = True
        return self.finish("/responses", body)

    # Messages.

    def _encode_input(self) -> Json:
        messages = list(enumerate(self.request.messages))
        head: Json = {}
        if messages and self._is_instructions_field(messages[0][1]):
            head["instructions"] = as_plain_text(messages.pop(0)[1].parts)
        items = [
            item
            for index, message in messages
            for item in self._encode_message(message, f"$.messages[{index}]")
        ]
        return head | {"input": items}

    def _is_instructions_field(self, message: Message) -> bool:
        was_field = self.is_same_wire and message.extra.get(INSTRUCTIONS)
        return bool(was_field) and as_plain_text(message.parts) is not None

    def _encode_message(self, message: Message, path: str) -> Iterator[Json]:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        yield from (self._encode_result(result, path) for result in results)
        parts: list[Part] = [part for part in message.parts if not isinstance(part, ToolResult)]
        if message.role == "assistant":
            yield from self._encode_assistant(parts, path)
            self.losses.carry(message.extra, path)
        elif parts or not results:
            role = "user" if message.role == "tool" else message.role
            item = {"type": "message", "role": role, "content": self._encode_content(parts, path)}
            yield item | _encode_extra(self.losses.carry(message.extra, path))

    def _encode_assistant(self, parts: list[Part], path: str) -> Iterator[Json]:
        """Encode an assistant's parts in order: consecutive texts are one message, unless they came
        in several."""
        texts: list[Text] = []
        for part in parts:
            if isinstance(part, Text):
                text = self._carry_text_extra(part, path)
                if texts and text.extra.get(ID) != texts[-1].extra.get(ID):
                    yield from _encode_texts(texts)
                    texts = []
                texts.append(text)
                if not of_the_message(text):
                    continue
            yield from _encode_texts(texts)
            texts = []
            yield from self._encode_item(part, path)
        yield from _encode_texts(texts)

    def _carry_text_extra(self, text: Text, path: str) -> Text:
        """Return a text with the `extra` that may be sent."""
        if not text.extra:
            return text
        refusal = {"type": "refusal"} if is_refusal(text) else {}
        rest = {key: value for key, value in text.extra.items() if key not in refusal}
        return replace(text, extra=refusal | self.losses.carry(rest, path))

    def _encode_item(self, part: Part, path: str) -> Iterator[Json]:
        match part:
            case ToolCall():
                yield self._encode_call(part, path)
            case Reasoning():
                yield from self._encode_reasoning(part, path)
            case Image() if self.is_same_wire and ITEM in part.extra:
                yield image_item(part)
            case Other() if self.is_same_wire:
                yield part.data
            case Text():
                pass
            case _:
                self.losses.drop(f"{_describe_part(part)} of the assistant", path)

    def _encode_reasoning(self, part: Reasoning, path: str) -> Iterator[Json]:
        """Encode reasoning that its model recognises: signed, or in the model's own items."""
        extra = self.losses.carry(part.extra, path)
        identity = str(extra.get(ID) or "")
        is_our_id = bool(MADE_ID.match(identity))
        is_foreign = is_our_id or not self.is_same_wire
        if is_foreign and part.signature is None and TEXTS not in extra:
            self.losses.drop("unsigned reasoning", path)
            return
        item = reasoning_item(replace(part, extra=extra))
        if identity and not (is_our_id and part.signature):
            item["id"] = identity
        yield item

    def _encode_call(self, call: ToolCall, path: str) -> Json:
        extra = self.losses.carry(call.extra, path)
        text = extra.get(ARGUMENTS_TEXT) or input_of(call)
        if call.freeform:
            self._freeform_calls.add(call.id)
        item = call_item(call, self.names.to_wire(call.name, call.namespace), text)
        return item | {"call_id": self._encode_id(call.id)} | _encode_extra(extra)

    def _encode_id(self, identity: str) -> str:
        return identity if self.is_same_wire else shorten_id(identity, _MAX_ID)

    def _encode_result(self, result: ToolResult, path: str) -> Json:
        extra = self.losses.carry(result.extra, path)
        is_custom = extra.get(CUSTOM) or result.call_id in self._freeform_calls
        output: Any = result.content
        if not isinstance(output, str):
            output = self._encode_content(output, path)
        if result.is_error:
            self.losses.drop("the error flag of results", path)
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        identity = self._encode_id(result.call_id)
        return {"type": kind, "call_id": identity, "output": output, **_encode_extra(extra)}

    def _encode_content(self, parts: Iterable[Part], path: str) -> str | list[Json]:
        message = Message("user", tuple(parts))
        text = as_plain_text(message.parts)
        if text is not None:
            return text
        written = (self._encode_part(part, path) for part in message.parts)
        return [part for part in written if part]

    def _encode_part(self, part: Part, path: str) -> Json:
        match part:
            case Text():
                extra = self._carry_text_extra(part, path).extra
                return {**extra, "type": "input_text", "text": part.text}
            case Image():
                extra = self.losses.carry(part.extra, path)
                detail = part.detail or "auto"
                return {
                    "type": "input_image",
                    "image_url": encode_media_url(part),
                    "detail": detail,
                    **extra,
                }
            case Document():
                return self._encode_document(part, path)
            case Other() if self.is_same_wire:
                return part.data
            case _:
                self.losses.drop(_describe_part(part), path)
                return {}

    def _encode_document(self, part: Document, path: str) -> Json:
        extra = self.losses.carry(part.extra, path)
        if part.data is not None and part.media_type.startswith("audio/"):
            audio = {"data": part.data, "format": part.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": audio, **extra}
        if part.data is None and (part.text or part.url is None):
            self.losses.change("A document is sent as text.", path)
            return {"type": "input_text", "text": render_document(part), **extra}
        data = encode_media_url(part) if part.data is not None else None
        file = omit_none(filename=part.title or None, file_data=data, file_url=part.url)
        return {"type": "input_file", **file, **extra}

    # Tools and settings.

    def encode_settings(self) -> Json:
        """Encode all that a request says beside its conversation."""
        request, extra = self.request, self.extra
        hosted = extra.pop(HOSTED_TOOLS, [])
        extra.pop(CONTINUED, None)
        originals = [extra.pop(key, None) for key in (CHOICE, HOSTED_CHOICE, HOSTED_CHOICES)]
        body: Json = {}
        if tools := self._encode_tools(hosted):
            choice = self._encode_tool_choice(next(filter(None, originals), None))
            body |= {"tools": tools} | omit_none(tool_choice=choice)
            if not request.parallel_tool_calls:
                body["parallel_tool_calls"] = False
        elif request.tools is not None and self.is_same_wire:
            body["tools"] = []
        metadata = {key: value for key, value in request.metadata.items() if key != "user_id"}
        text = omit_none(format=_encode_response_format(request.response_format))
        body |= omit_none(
            text=text | (extra.pop("text", None) or {}) or None,
            reasoning=self._encode_thinking() | (extra.pop("reasoning", None) or {}) or None,
            max_output_tokens=self._encode_max_tokens(),
            user=self.encode_user_id(),
            metadata=metadata or None,
        )
        return body | self.encode_sampling(SAMPLING) | extra

    def _encode_max_tokens(self) -> int | None:
        limit = self.request.max_tokens
        if self.is_same_wire or limit is None or limit >= _MIN_TOKENS:
            return limit
        message = f"A limit of {limit} tokens is sent as {_MIN_TOKENS}, the least allowed."
        self.losses.change(message, "$.max_tokens")
        return _MIN_TOKENS

    def _encode_thinking(self) -> Json:
        summary = self.extra.pop(SUMMARY, "auto") if self.request.thinking.shown else None
        thinking = replace(self.request.thinking, shown=None)
        return omit_none(effort=choose_effort(thinking, self.losses, EFFORTS), summary=summary)

    def _encode_tools(self, hosted: list[Json]) -> list[Json]:
        """Encode the tools, those of one namespace together."""
        tools: list[Json] = []
        namespaces: dict[str, list[Json]] = {}
        for tool in self.request.tools or ():
            item = self._encode_tool(tool)
            about = item.pop("namespace", {})
            if tool.namespace is None:
                tools.append(item)
            else:
                namespace = {"name": tool.namespace, **about}
                _open_namespace(namespace, namespaces, tools).append(item)
        for item in hosted:
            plain = {key: value for key, value in item.items() if key != SPACE}
            is_inside = SPACE in item
            target = _open_namespace(item[SPACE], namespaces, tools) if is_inside else tools
            target.append(plain)
        return tools

    def _encode_tool(self, tool: Tool) -> Json:
        extra = dict(tool.extra)
        grammar = extra.pop("format", None) if tool.freeform else None
        extra = dict(self.losses.carry(extra, f"$.tools[{tool.name!r}]"))
        item = {"name": self.encode_name(tool), "description": tool.description}
        if tool.freeform:
            return {"type": "custom", **item} | omit_none(format=_flatten_grammar(grammar)) | extra
        # By default this API is strict where it can be, and no other is.
        strict = False if tool.strict is None and not self.is_same_wire else tool.strict
        parameters = tool.parameters or (None if self.is_same_wire else as_object_schema({}))
        function = {"type": "function", **item, "parameters": parameters}
        return function | omit_none(strict=strict) | extra

    def _encode_tool_choice(self, original: Any) -> Any:
        """Encode the tool choice; as the client wrote it, if that still says the same."""
        choice = self.request.tool_choice
        if original is not None and decode_choice(original, "$.tool_choice") == choice:
            return self._rename_choice(original)
        freeform = {tool.name for tool in self.request.tools or () if tool.freeform}
        kinds = ["custom" if name in freeform else "function" for name in choice.names]
        names = self.encode_choice_names()
        chosen = [{"type": kind, "name": name} for kind, name in zip(kinds, names, strict=True)]
        if not chosen:
            return None if choice.mode == "auto" else choice.mode
        if len(chosen) == 1 and choice.mode == "required":
            return chosen[0]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": chosen}

    def _rename_choice(self, choice: Json) -> Json:
        """Return the client's tool choice with the tool names that are sent."""
        if choice.get("type") == "allowed_tools":
            return choice | {"tools": [self._rename_choice(tool) for tool in choice["tools"]]}
        if is_hosted(choice):
            return choice
        return choice | {"name": self.names.to_wire(choice["name"], choice.get("namespace"))}


def _encode_extra(extra: Json) -> Json:
    """Return the fields of an item that its `extra` holds."""
    return remembered(extra) | said(extra) if extra else {}


def _encode_texts(texts: list[Text]) -> Iterator[Json]:
    """Encode an assistant's texts as a message, in the shortest form."""
    match texts:
        case [Text(text, extra)] if not extra:
            if text:
                yield {"type": "message", "role": "assistant", "content": text}
        case []:
            pass
        case _:
            yield message_item(texts)


def _describe_part(part: Part) -> str:
    name = part.data.get("type", "part") if isinstance(part, Other) else type(part).__name__
    return "images" if isinstance(part, Image) else f"the part type `{name}`"


def _encode_response_format(form: ResponseFormat | None) -> Json | None:
    if form is None:
        return None
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema"} | encode_schema_format(form)


def _open_namespace(
    about: Json, namespaces: dict[str, list[Json]], tools: list[Json]
) -> list[Json]:
    """Return the tools of a namespace so far; a new one is added to `tools`."""
    name = about["name"]
    if name not in namespaces:
        namespaces[name] = []
        namespace = {"type": "namespace", "description": name, **about, "tools": namespaces[name]}
        tools.append(namespace)
    return namespaces[name]


def _flatten_grammar(grammar: Any) -> Any:
    """Return the grammar of a freeform tool, which Chat Completions nests one level deeper."""
    inner = grammar.get("grammar") if isinstance(grammar, Mapping) else None
    return {"type": "grammar", **inner} if isinstance(inner, Mapping) else grammar
