"""The items of a conversation, decoded from a client's input and encoded for an upstream.

{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
{"type": "reasoning", "id": "rs_1", "summary": [{…}], "encrypted_content": "gAAA"}
{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
{"type": "function_call_output", "call_id": "call_1", "output": "done"}

Replies consist of the same items (`reply_decoding.py`, `reply_encoding.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from ..._util import format_json
from ...errors import WireError
from ...events import ITEM_ID
from ...types import (
    Image,
    Message,
    Note,
    Other,
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from ..calls import CallHistory
from ..content import (
    REFUSAL,
    ContentPart,
    as_result_content,
    describe_part,
    encode_media_url,
    is_refusal,
)
from ..encoding import OPENAI_NAMES, omit_none, public_fields
from ..fields import ARGUMENTS_TEXT, PRIVATE, Fields, Json
from ..openai import OpenAIRequestEncoder, decode_part

NAME = "openai_responses"
INSTRUCTIONS = f"{PRIVATE}instructions"
"""In the `extra` of a message: it was the request's `instructions`."""
ITEM_STATUS = f"{PRIVATE}status"
"""In any `extra`: the `status` of the item."""
REASONING_TEXTS = f"{PRIVATE}texts"
"""In the `extra` of reasoning: its texts, if they are more than one summary."""
_IS_CUSTOM = f"{PRIVATE}custom"
"""In the `extra` of a result: it answers a call of a freeform tool."""
_IMAGE_ITEM = f"{PRIVATE}item"
"""In the `extra` of a generated image: the other fields of its item."""
PARAGRAPH_BREAK = "\n\n"
"""Joins the texts of one reasoning item."""
_GENERATED_ID = re.compile(r"(rs|msg|fc|ctc|ig)_\d+_")
"""Matches the item ids that our encoder generates. Upstreams would look for them in vain."""
_TEXT_FIELDS = frozenset({"annotations", "logprobs", "prompt_cache_breakpoint"})
"""Fields of an `extra` that belong to one text; all others belong to its whole message."""
_CALL_TYPES = {False: ("function_call", "arguments"), True: ("custom_tool_call", "input")}
"""The type of a call's item and the field of its arguments, by whether the tool is freeform."""


def decode_input(fields: Fields, notes: list[Note]) -> tuple[Message, ...]:
    """Decode `instructions` and `input`. Consecutive items of the assistant become one message,
    and so do consecutive results."""
    history = CallHistory(notes)
    turns: list[tuple[Role, list[Part], Json]] = []
    if instructions := fields.take_text("instructions"):
        turns.append(("system", [Text(instructions)], {INSTRUCTIONS: True}))
    if isinstance(fields.peek("input"), str):
        turns.append(("user", [Text(fields.require("input", str))], {}))
    for item, path in fields.take_items("input"):
        role, parts, extra = _decode_item(item, path, history)
        if turns and turns[-1][0] == role and role in ("assistant", "tool"):
            turns[-1][1].extend(parts)
        else:
            turns.append((role, parts, extra))
    return tuple(Message(role, tuple(parts), extra) for role, parts, extra in turns)


def _decode_item(item: Any, path: str, history: CallHistory) -> tuple[Role, list[Part], Json]:
    fields = Fields(item, path)
    kind = fields.take_text("type") or ("message" if fields.has("role") else "")
    match kind:
        case "message":
            return _decode_message(fields)
        case "reasoning":
            part = decode_reasoning(fields)
        case "function_call" | "custom_tool_call":
            part = _decode_call(fields, kind == "custom_tool_call", history)
        case "function_call_output" | "custom_tool_call_output":
            return "tool", [_decode_result(fields, kind == "custom_tool_call_output", history)], {}
        case "image_generation_call":
            part = decode_image_item(fields) or Other(dict(item))
        case "" if not fields.has("id"):
            raise WireError("Expected an item with a `type`, got one without", path)
        case _:
            part = Other(dict(item))
    return "assistant", [part], {}


def _decode_message(fields: Fields) -> tuple[Role, list[Part], Json]:
    role = fields.require("role", str)
    match role:
        case "system" | "developer" | "user":
            return role, [*fields.take_content("content", _decode_part)], take_extra(fields)
        case "assistant":
            return role, _decode_assistant(fields), {}
        case _:
            expected = "`system`, `developer`, `user` or `assistant`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))


def _decode_assistant(fields: Fields) -> list[Part]:
    """Decode an assistant's message. Its texts share the message's id, and the last one carries the
    `extra` of the whole message."""
    content = fields.peek("content")
    decoded = list(fields.take_content("content", _decode_part))
    extra = take_extra(fields)
    identity = {ITEM_ID: extra[ITEM_ID]} if ITEM_ID in extra else {}
    parts: list[Part] = []
    for index, part in enumerate(decoded):
        if isinstance(part, Text):
            parts.append(replace(part, extra=part.extra | identity))
        else:
            # Only this API has images in assistant messages; it gets them back as an item.
            item = [content[index]] if isinstance(content, list) else []
            parts.append(Other({"type": "message", "role": "assistant", "content": item}))
    if extra:
        last = parts.pop() if parts and isinstance(parts[-1], Text) else Text("")
        assert isinstance(last, Text)
        parts.append(replace(last, extra=last.extra | extra))
    return parts


def _decode_part(item: Any, path: str) -> ContentPart:
    return decode_part(item, path, take_rest)


def decode_reasoning(fields: Fields) -> Reasoning | Other:
    """Decode reasoning. Without text or signature, only this API can use it: by its id."""
    item = fields.rest()
    summary, content = fields.take("summary", list) or [], fields.take("content", list) or []
    text = PARAGRAPH_BREAK.join(_list_texts(summary) or _list_texts(content))
    signature = fields.take("encrypted_content", str)
    if not text and signature is None:
        return Other({"type": "reasoning", **item})
    extra = _item_state(fields) | take_rest(fields)
    if content or len(summary) > 1:
        extra[REASONING_TEXTS] = {"summary": summary} | ({"content": content} if content else {})
    return Reasoning(text, signature, extra)


def _list_texts(parts: Iterable[Any]) -> list[str]:
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]


def _decode_call(fields: Fields, freeform: bool, history: CallHistory) -> ToolCall:
    identity = fields.take_text("call_id") or fields.peek_text("id") or history.new_id()
    name, namespace = fields.require("name", str), fields.take("namespace", str)
    arguments = fields.take_text("input") if freeform else fields.take_any("arguments")
    path, extra = fields.path_of("arguments"), take_extra(fields)
    return history.decode_call(
        identity, name, arguments, path, namespace=namespace, freeform=freeform, extra=extra
    )


def _decode_result(fields: Fields, freeform: bool, history: CallHistory) -> ToolResult:
    call_id, name = fields.take_text("call_id"), fields.take_text("name")
    call_id, name = history.find_answered_call(call_id, name)
    content = as_result_content(fields.take_content("output", _decode_part))
    extra = take_extra(fields) | ({_IS_CUSTOM: True} if freeform else {})
    return ToolResult(call_id=call_id, name=name, content=content, extra=extra)


def decode_image_item(fields: Fields) -> Image | None:
    """Decode a generated image; None if the item holds none."""
    if not isinstance(fields.peek("result"), str):
        return None
    kind, data = fields.peek("output_format"), fields.take_text("result")
    media_type = f"image/{kind}" if isinstance(kind, str) else "image/png"
    return Image(data=data, media_type=media_type, extra={_IMAGE_ITEM: fields.rest()})


def take_rest(fields: Fields) -> Json:
    """Take the fields that are left, without those that every item has."""
    fields.discard("type", "id", "status")
    return {key: value for key, value in fields.rest().items() if value != []}


def take_extra(fields: Fields) -> Json:
    """Take the fields that are left, with the item's id and status unless we generated the id."""
    state = _item_state(fields)
    return ({} if _GENERATED_ID.match(state.get(ITEM_ID, "")) else state) | take_rest(fields)


def _item_state(fields: Fields) -> Json:
    state = {ITEM_ID: fields.peek_text("id"), ITEM_STATUS: fields.peek_text("status")}
    return {key: value for key, value in state.items() if value}


# Encoding.


class InputEncoder(OpenAIRequestEncoder):
    """Encodes messages as items."""

    wire = NAME
    name_rule = replace(OPENAI_NAMES, has_namespaces=True)
    max_id = 64
    has_file_urls = True

    def __init__(self, request: Request, *, has_cache_control: bool = False) -> None:
        super().__init__(request, has_cache_control=has_cache_control)
        self._freeform_calls: set[str] = set()
        """Ids of calls whose results have another type."""

    def encode_message(self, message: Message, path: str) -> Iterator[Json]:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        yield from (self._encode_result(result, path) for result in results)
        parts: list[Part] = [part for part in message.parts if not isinstance(part, ToolResult)]
        if message.role == "assistant":
            yield from self._encode_assistant(parts, path)
            self.losses.carry(message.extra, path)
        elif parts or not results:
            role = "user" if message.role == "tool" else message.role
            item = {"type": "message", "role": role, "content": self.encode_content(parts, path)}
            yield item | _encode_extra(self.losses.carry(message.extra, path))

    def _encode_assistant(self, parts: list[Part], path: str) -> Iterator[Json]:
        """Encode an assistant's parts in order: consecutive texts are one message, unless they came
        in several."""
        texts: list[Text] = []
        for part in parts:
            if isinstance(part, Text):
                text = self._carry_text_extra(part, path)
                if texts and text.extra.get(ITEM_ID) != texts[-1].extra.get(ITEM_ID):
                    yield from _encode_texts(texts)
                    texts = []
                texts.append(text)
                if not message_fields(text.extra):
                    continue
            yield from _encode_texts(texts)
            texts = []
            yield from self._encode_item(part, path)
        yield from _encode_texts(texts)

    def _carry_text_extra(self, text: Text, path: str) -> Text:
        """Return a text with the `extra` that may be sent."""
        if not text.extra:
            return text
        refusal = REFUSAL if is_refusal(text) else {}
        rest = {key: value for key, value in text.extra.items() if key not in refusal}
        return replace(text, extra=refusal | self.losses.carry(rest, path))

    def _encode_item(self, part: Part, path: str) -> Iterator[Json]:
        match part:
            case ToolCall():
                yield self._encode_call(part, path)
            case Reasoning():
                yield from self._encode_reasoning(part, path)
            case Image() if self.is_same_wire and _IMAGE_ITEM in part.extra:
                yield encode_image_item(part)
            case Other() if self.is_same_wire:
                yield part.data
            case Text():
                pass
            case _:
                what = "images" if isinstance(part, Image) else describe_part(part)
                self.losses.drop(f"{what} in assistant messages", path)

    def _encode_reasoning(self, part: Reasoning, path: str) -> Iterator[Json]:
        """Encode reasoning that the upstream can use: signed, or an item of this API."""
        extra = self.losses.carry(part.extra, path)
        identity = str(extra.get(ITEM_ID) or "")
        is_generated = bool(_GENERATED_ID.match(identity))
        is_foreign = is_generated or not self.is_same_wire
        if is_foreign and part.signature is None and REASONING_TEXTS not in extra:
            self.losses.drop("unsigned reasoning", path)
            return
        item = encode_reasoning(replace(part, extra=extra))
        if identity and not (is_generated and part.signature):
            item["id"] = identity
        yield item

    def _encode_call(self, call: ToolCall, path: str) -> Json:
        extra = self.losses.carry(call.extra, path)
        text = extra.get(ARGUMENTS_TEXT) or encode_call_input(call)
        if call.freeform:
            self._freeform_calls.add(call.id)
        item = encode_call(call, self.names.to_wire(call.name, call.namespace), text)
        return item | {"call_id": self.encode_id(call.id)} | _encode_extra(extra)

    def _encode_result(self, result: ToolResult, path: str) -> Json:
        extra = self.losses.carry(result.extra, path)
        is_custom = extra.get(_IS_CUSTOM) or result.call_id in self._freeform_calls
        output: Any = result.content
        if not isinstance(output, str):
            output = self.encode_content(output, path)
        if result.is_error:
            self.losses.drop("the error flag on results", path)
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        identity = self.encode_id(result.call_id)
        return {"type": kind, "call_id": identity, "output": output, **_encode_extra(extra)}

    def encode_text(self, text: Text, path: str) -> Json:
        extra = self._carry_text_extra(text, path).extra
        return {**extra, "type": "input_text", "text": text.text}

    def encode_image(self, image: Image, extra: Json) -> Json:
        url, detail = encode_media_url(image), image.detail or "auto"
        return {**extra, "type": "input_image", "image_url": url, "detail": detail}


def _encode_extra(extra: Json) -> Json:
    """Return the fields of an item that its `extra` holds."""
    return _encode_state(extra) | public_fields(extra) if extra else {}


def _encode_state(extra: Json) -> Json:
    return omit_none(id=extra.get(ITEM_ID), status=extra.get(ITEM_STATUS))


def _encode_texts(texts: list[Text]) -> Iterator[Json]:
    """Encode an assistant's texts as a message, in the shortest form."""
    match texts:
        case [Text(text, extra)] if not extra:
            if text:
                yield {"type": "message", "role": "assistant", "content": text}
        case []:
            pass
        case _:
            yield encode_assistant_message(texts)


def encode_assistant_message(texts: Iterable[Text]) -> Json:
    """Encode texts as one message. An empty text only adds fields to the one before."""
    content: list[Json] = []
    item: Json = {"type": "message", "role": "assistant", "content": content}
    for text in texts:
        if text.text or not content:
            content.append(encode_output_text(text))
        else:
            content[-1] |= _text_fields(text.extra)
        item |= _encode_state(text.extra) | message_fields(text.extra)
    return item


def encode_output_text(text: Text) -> Json:
    if is_refusal(text):
        return {"type": "refusal", "refusal": text.text}
    fields = _text_fields(text.extra)
    return {"type": "output_text", "text": text.text, "annotations": [], **fields}


def _text_fields(extra: Json) -> Json:
    return {key: value for key, value in extra.items() if key in _TEXT_FIELDS}


def message_fields(extra: Json) -> Json:
    """Return the fields in the `extra` of a message's last text that belong to the message."""
    public = public_fields(extra).items()
    return {key: value for key, value in public if key not in _TEXT_FIELDS and key != "type"}


def encode_reasoning(reasoning: Reasoning) -> Json:
    """Encode reasoning as an item without its id."""
    extra = reasoning.extra
    summary = [encode_summary(reasoning.text)] if reasoning.text else []
    item = {"type": "reasoning", **(extra.get(REASONING_TEXTS) or {"summary": summary})}
    item |= omit_none(encrypted_content=reasoning.signature, status=extra.get(ITEM_STATUS))
    return item | public_fields(extra)


def encode_summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}


def encode_call(call: ToolCall, name: str, text: str) -> Json:
    """Encode a call whose arguments, or freeform input, are this text."""
    kind, field = _CALL_TYPES[call.freeform]
    item = {"type": kind, "call_id": call.id, "name": name, field: text}
    return item | omit_none(namespace=call.namespace)


def encode_call_input(call: ToolCall) -> str:
    """Return the arguments of a call, or the input of a freeform one, as text."""
    value = call.arguments.get("input")
    if not call.freeform or isinstance(value, str):
        return call.input
    return "" if value is None else format_json(value)


def encode_image_item(image: Image) -> Json:
    subtype = image.media_type.removeprefix("image/")
    fields: Json = image.extra.get(_IMAGE_ITEM) or {"output_format": subtype}
    return {"type": "image_generation_call", "status": "completed", "result": image.data, **fields}
