"""Chat completions: decoded from an upstream, encoded for a client, whole or in chunks.

data: {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": null}]}

Most of a stream are chunks with nothing but text, and most whole replies have the same few fields.
Both have a fast path: `msgspec` parses them in one go into structs that allow nothing else, in
which a field of type `None` must be null or absent. All others are decoded field by field, with
the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...errors import WireError
from ...events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    PartAdded,
    ReasoningDelta,
    Started,
    TextDelta,
)
from ...types import Failure, Image, Reasoning, Reply, Request, StopReason, Text, ToolCall, Usage
from ..calls import TRUNCATING_REASONS, CallAssembler
from ..content import REFUSAL, encode_media_url, is_refusal
from ..encoding import public_fields
from ..errors import UNKNOWN_STATUS, decode_failure
from ..fields import Fields, Json, nest
from ..framing import check_json, decode_json, encode_line, encode_sse
from ..openai import decode_part, encode_failure
from ..wire import Envelope, FrameDecoder, StreamEncoder
from .request import NAME, REASONING_FIELDS, decode_reasoning, encode_reasoning

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filter",
}
_FINISH_REASONS = {"length": "length", "calls": "tool_calls", "filter": "content_filter"}
_EXTRA_FIELDS = ("system_fingerprint", "service_tier")
"""Fields of a completion of the usual shape that are carried in the reply's `extra`."""
_MAX_CHUNK = 4000
"""In bytes. A longer chunk may hold a number that is too long to be valid."""
_DONE = b"data: [DONE]\n\n"
# The ends of a chunk, for the fast path.
_CHUNK_END = b',"logprobs":null,"finish_reason":%b}]}\n\n'
_OPEN_CHUNK_END = _CHUNK_END % b"null"
_TEXT_CHUNK_END = b"}" + _OPEN_CHUNK_END


# The fast path.


_NonEmptyText = Annotated[str, Meta(min_length=1)]


class _Function(Struct, forbid_unknown_fields=True):
    name: _NonEmptyText
    arguments: str


class _Call(Struct, forbid_unknown_fields=True):
    function: _Function
    id: str | None = None
    type: Literal["function"] | UnsetType = UNSET


class _Message(Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None
    annotations: None = None


class _Choice(Struct, forbid_unknown_fields=True):
    message: _Message
    finish_reason: Literal["stop", "tool_calls"]
    index: Literal[0] | UnsetType = UNSET
    logprobs: None = None
    stop_reason: None = None


class _TokenCounts(Struct, forbid_unknown_fields=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int = -1
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


class Completion(Struct, forbid_unknown_fields=True):
    choices: Annotated[list[_Choice], Meta(min_length=1, max_length=1)]
    id: str = ""
    model: str = ""
    object: str | None = None
    created: int | None = None
    usage: _TokenCounts | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_logprobs: None = None
    kv_transfer_params: None = None


class _TextDelta(Struct, forbid_unknown_fields=True):
    content: str
    role: str | None = None
    tool_calls: None = None
    refusal: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class _ChunkChoice(Struct, forbid_unknown_fields=True):
    delta: _TextDelta
    finish_reason: None = None
    index: Literal[0] | UnsetType = UNSET
    logprobs: None = None
    stop_reason: None = None


class _TextChunk(Struct):
    choices: Annotated[list[_ChunkChoice], Meta(min_length=1, max_length=1)]
    usage: None = None
    error: None = None


_decode_completion = msgspec.json.Decoder(Completion).decode
_decode_text_chunk = msgspec.json.Decoder(_TextChunk).decode


def parse_reply_body(body: bytes) -> Any:
    """Return a `Completion` if the body has the usual shape; otherwise the parsed JSON."""
    check_json(body)
    try:
        return _decode_completion(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Half a surrogate pair is invalid, but upstreams do send it.
        return decode_json(body)


def can_forward(body: Any, reply: Reply) -> bool:
    """Return True if a completion equals what we would encode, in every field that clients use."""
    if not isinstance(body, Completion):
        return False
    if not (body.id and body.model and body.created and body.usage):
        return False
    (choice,) = body.choices
    message, calls = choice.message, choice.message.tool_calls
    if body.object != "chat.completion" or message.role != "assistant" or choice.index != 0:
        return False
    counts = body.usage
    if min(counts.prompt_tokens, counts.completion_tokens, counts.total_tokens) < 0:
        return False
    if calls is None:
        return choice.finish_reason == "stop" and message.content is not None
    # Tool names may have been mapped, and a text may have become an object.
    is_same = [_call_key(call) for call in reply.calls] == [
        (call.type, call.id, call.function.name, False, None) for call in calls
    ]
    is_json = all(call.function.arguments[:1] == "{" for call in calls)
    return bool(calls) and is_same and is_json and choice.finish_reason == "tool_calls"


def _call_key(call: ToolCall) -> tuple[str, str, str, bool, str | None]:
    return "function", call.id, call.name, call.freeform, call.namespace


def read_text_chunk(data: bytes) -> str | None:
    """Return the text of a chunk that holds nothing else; None for any other."""
    if len(data) > _MAX_CHUNK:
        return None
    try:
        if not data.isascii():
            # msgspec does not check that skipped fields are valid UTF-8.
            data.decode()
        return _decode_text_chunk(data).choices[0].delta.content
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


# Decoding.


class _CallSlot(Struct, eq=False):
    """Identifies the call that pieces belong to."""

    id: str = ""
    is_named: bool = False


class ChatFrameDecoder(FrameDecoder):
    stop_reasons = _STOP_REASONS

    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._slots: dict[int | None, _CallSlot] = {}
        self._is_whole = False
        """The current message is whole and not truncated."""

    def feed(self, frame: Any) -> Iterable[Event]:
        if isinstance(frame, Completion):
            return self._decode_completion(frame)
        return self._decode_chunk(frame)

    def _decode_completion(self, completion: Completion) -> list[Event]:
        """Decode a completion of the usual shape: the same as `_decode_chunk`, faster."""
        self._is_started = True
        (choice,) = completion.choices
        self._raw_stop = choice.finish_reason
        if counts := completion.usage:
            self._usage = Usage(input=counts.prompt_tokens, output=counts.completion_tokens)
        carried = ((key, getattr(completion, key)) for key in _EXTRA_FIELDS)
        extra = {key: value for key, value in carried if value is not None}
        started = Started(completion.id, completion.model, wire=NAME, extra=extra or None)
        events: list[Event] = [started]
        if choice.message.content:
            events.append(TextDelta(choice.message.content))
        for call in choice.message.tool_calls or ():
            function = call.function
            events += self._calls.add_whole(call.id or "", function.name, function.arguments)
        return events

    def _decode_chunk(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(UNKNOWN_STATUS, frame)
            return
        usage, choices = fields.take_object("usage"), fields.take_items("choices")
        if not self._is_started:
            self._is_started = True
            identity, model = str(fields.take_any("id") or ""), fields.take_text("model")
            fields.discard("object", "created")
            yield Started(identity, model, wire=NAME, extra=fields.rest() or None)
        if usage is not None:
            self._usage = _decode_usage(usage)
        for item, path in choices:
            choice = Fields(item, path)
            if choice.take_any("index"):
                self._dropped["choices[1]"] = None
            else:
                yield from self._decode_choice(choice)

    def _decode_choice(self, choice: Fields) -> Iterator[Event]:
        if reason := choice.take("finish_reason", str):
            self._raw_stop = reason
        is_delta = choice.has("delta")
        stop_reason = _STOP_REASONS.get(reason or "")
        self._is_whole = not is_delta and stop_reason not in TRUNCATING_REASONS
        message = choice.take_object("delta" if is_delta else "message")
        if message is not None:
            yield from self._decode_message(message)
        self._dropped |= dict.fromkeys(choice.rest())

    def _decode_message(self, fields: Fields) -> Iterator[Event]:
        fields.discard("role")
        if fields.has_any(REASONING_FIELDS):
            for part in decode_reasoning(fields):
                yield from self._calls.emit(ReasoningDelta(part.text, part.signature))
        content = fields.take_any("content")
        if isinstance(content, str):
            if content:
                yield from self._calls.emit(TextDelta(content))
        elif content is not None:
            yield from self._decode_parts(content)
        if fields.has_rest():
            yield from self._decode_rare_fields(fields)

    def _decode_rare_fields(self, fields: Fields) -> Iterator[Event]:
        if refusal := fields.take_text("refusal"):
            self._is_refused = True
            yield from self._calls.emit(TextDelta(refusal, REFUSAL))
        for item, path in fields.take_items("images"):
            image = decode_part(item, path)
            if isinstance(image, Image):
                yield from self._calls.emit(PartAdded(image))
        for item, path in fields.take_items("tool_calls"):
            yield from self._calls.isolate(self._decode_call, item, path)
        if (legacy := fields.take_any("function_call")) is not None:
            call = {"index": -1, "function": legacy}
            yield from self._calls.isolate(self._decode_call, call, fields.path)
        self._dropped |= dict.fromkeys(fields.rest())

    def _decode_parts(self, content: Any) -> Iterator[Event]:
        """Decode content in parts. Mistral's models put their reasoning there."""
        for item in content if isinstance(content, list) else ():
            if isinstance(item, dict) and item.get("type") == "thinking":
                inner = item.get("thinking")
                parts = inner if isinstance(inner, list) else [{"text": inner}]
                texts = [str(part.get("text") or "") for part in parts if isinstance(part, dict)]
                yield from self._calls.emit(ReasoningDelta("".join(texts)))
            elif isinstance(text := decode_part(item, "$.content"), Text):
                yield from self._calls.emit(TextDelta(text.text))

    def _decode_call(self, item: Any, path: str) -> Iterable[Event]:
        """Decode a call or a piece of one. Some servers omit the index, others give all calls the
        same, some send the id before the name, and some omit the inner object."""
        fields = Fields(item, path)
        index, identity = fields.take("index", int), str(fields.take_any("id") or "")
        custom = fields.take_object("custom")
        function = custom or fields.take_object("function") or fields
        name = function.take_text("name")
        arguments = function.take_any("arguments", "input")
        freeform = custom is not None
        fields.discard("type")
        if self._is_whole:
            if not name.strip():
                raise WireError("Expected a call with the name of a function", path)
            extra = fields.rest()
            return self._calls.add_whole(identity, name, arguments, freeform=freeform, extra=extra)
        slot = self._find_slot(index, identity, name)
        return self._decode_piece(slot, name, arguments, freeform, fields)

    def _find_slot(self, index: int | None, identity: str, name: str) -> _CallSlot:
        slot = self._slots.setdefault(index, _CallSlot())
        if (identity and slot.id not in ("", identity)) or (index is None and name):
            slot = self._slots[index] = _CallSlot()
        slot.id = slot.id or identity
        return slot

    def _decode_piece(
        self, slot: _CallSlot, name: str, arguments: Any, freeform: bool, fields: Fields
    ) -> Iterator[Event]:
        if name and not slot.is_named:
            slot.is_named = True
            extra = fields.rest()
            yield from self._calls.start(slot, slot.id, name, freeform=freeform, extra=extra)
        if isinstance(arguments, str):
            yield from self._calls.append(slot, arguments)
        elif arguments is not None:
            yield from self._calls.end(slot, arguments)


def _decode_usage(fields: Fields) -> Usage:
    read, written = fields.take("prompt_tokens", int), fields.take("completion_tokens", int)
    fields.take("total_tokens", int)
    if not fields.has_rest():
        return Usage(input=read or 0, output=written or 0)
    cached, prompt_rest = _decode_detail(fields, "prompt_tokens_details", "cached_tokens")
    reasoning, reply_rest = _decode_detail(fields, "completion_tokens_details", "reasoning_tokens")
    return Usage(
        input=read or 0,
        output=written or 0,
        cached=cached,
        reasoning=reasoning,
        extra=fields.rest() | prompt_rest | reply_rest,
    )


def _decode_detail(fields: Fields, key: str, count: str) -> tuple[int, Json]:
    """Return a count within the object `key`, and what remains of that object."""
    details = fields.take_object(key)
    if details is None:
        return 0, {}
    counted = details.take(count, int) or 0
    return counted, nest(key, details.rest())


# Encoding.


def _encode_stop_reason(reason: StopReason | None, has_refusal: bool) -> str:
    # A refusal in its own field ends like any other reply.
    if reason == "refusal" and not has_refusal:
        return "content_filter"
    return _FINISH_REASONS.get(reason or "", "stop")


def _encode_input(text: str, freeform: bool) -> Json:
    return {"input": text} if freeform else {"arguments": text}


def _encode_image(image: Image) -> Json:
    return {"type": "image_url", "image_url": {"url": encode_media_url(image)}}


def is_frame_wanted(chunk: Any, request: Request) -> bool:
    """Return True if a chunk is anything but the final usage, which only clients that asked
    for it understand: others take it for a chunk without a choice."""
    is_usage = isinstance(chunk, dict) and not chunk.get("choices") and bool(chunk.get("usage"))
    return not is_usage or _wants_usage(request)


def _wants_usage(request: Request) -> bool:
    options = request.extra.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


class ChatStreamEncoder(StreamEncoder):
    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._head: Json = {}
        self._has_refusal = self._has_sent_arguments = self._is_freeform = False

    def encode_whole(self, reply: Reply) -> Json:
        started = Started(reply.id, reply.model, None, reply.wire, reply.extra)
        head = self._encode_head(started, "chat.completion")
        texts = [part for part in reply.parts if isinstance(part, Text)]
        refusal = "".join(part.text for part in texts if is_refusal(part))
        text = "".join(part.text for part in texts if not is_refusal(part))
        calls = [self._encode_call(call, call.input) for call in reply.calls]
        message: Json = {
            "role": "assistant",
            "content": text or (None if calls or refusal else ""),
            "refusal": refusal or None,
            **encode_reasoning([part for part in reply.parts if isinstance(part, Reasoning)]),
            **({"tool_calls": calls} if calls else {}),
        }
        images = [_encode_image(part) for part in reply.parts if isinstance(part, Image)]
        if images:
            message["images"] = images
        reason = _encode_stop_reason(reply.stop_reason, bool(refusal))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return {**head, "choices": [choice], "usage": self._encode_usage(reply.usage)}

    def _encode_head(self, started: Started, kind: str) -> Json:
        self.is_same_wire = started.wire == NAME
        identity = started.id if self.is_same_wire else ""
        return {
            **self.carry(started.extra),
            "id": identity or f"chatcmpl-{self.envelope.id or 0}",
            "object": kind,
            "created": self.envelope.created,
            "model": started.model or self.envelope.request.model,
        }

    def _encode_call(self, call: ToolCall | CallStart, text: str) -> Json:
        """Encode a call whose arguments, or freeform input, are this text."""
        kind = "custom" if call.freeform else "function"
        inner = {"name": call.name, **_encode_input(text, call.freeform)}
        extra = public_fields(self.carry(call.extra))
        return {"id": call.id, "type": kind, kind: inner, **extra}

    def _encode_usage(self, usage: Usage | None) -> Json:
        usage = usage or Usage()
        extra = self.carry(usage.extra)
        return {
            **extra,
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {
                "cached_tokens": usage.cached,
                **extra.get("prompt_tokens_details", {}),
            },
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning,
                **extra.get("completion_tokens_details", {}),
            },
        }

    def feed(self, event: Event) -> bytes:
        if type(event) is TextDelta and self._head and event.text and not event.extra:
            # A fast path for most of a stream.
            return self._text_chunk_start + encode_line(event.text) + _TEXT_CHUNK_END
        if not self._head:
            is_start = isinstance(event, Started)
            start = self._start(event if is_start else Started())
            return start if is_start else start + self._encode_event(event)
        return self._encode_event(event)

    def _start(self, event: Started) -> bytes:
        self._head = self._encode_head(event, "chat.completion.chunk")
        self._chunk_start = encode_line(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._text_chunk_start = b'data: %b{"content":' % self._chunk_start
        return self._encode_chunk({"role": "assistant", "content": ""})

    def _encode_event(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._encode_text(event)
            case ReasoningDelta():
                return self._encode_chunk(
                    encode_reasoning([Reasoning(event.text, event.signature)])
                )
            case CallStart():
                self._has_sent_arguments, self._is_freeform = False, event.freeform
                call = self._encode_call(event, "")
                return self._encode_call_chunk(event.index, call)
            case ArgumentsDelta():
                self._has_sent_arguments = True
                return self._encode_arguments(event.index, event.json)
            case CallEnd() if not self._has_sent_arguments:
                return self._encode_arguments(event.index, event.call.input)
            case PartAdded(Image() as image):
                return self._encode_chunk({"images": [_encode_image(image)]})
            case Failure():
                return encode_sse(encode_failure(event)) + _DONE
            case Finish():
                return self._encode_finish(event)
            case _:
                return b""

    def _encode_text(self, event: TextDelta) -> bytes:
        if not event.text:
            return b""
        if is_refusal(event):
            self._has_refusal = True
            return self._encode_chunk({"refusal": event.text})
        return self._encode_chunk({"content": event.text})

    def _encode_arguments(self, index: int, text: str) -> bytes:
        kind = "custom" if self._is_freeform else "function"
        return self._encode_call_chunk(index, {kind: _encode_input(text, self._is_freeform)})

    def _encode_finish(self, event: Finish) -> bytes:
        last = self._encode_chunk({}, _encode_stop_reason(event.stop_reason, self._has_refusal))
        if _wants_usage(self.envelope.request):
            usage = self._encode_usage(event.usage)
            last += encode_sse({**self._head, "choices": [], "usage": usage})
        return last + _DONE

    def _encode_call_chunk(self, index: int, call: Json) -> bytes:
        return self._encode_chunk({"tool_calls": [{"index": index, **call}]})

    def _encode_chunk(self, delta: Json, reason: str | None = None) -> bytes:
        end = _OPEN_CHUNK_END if reason is None else _CHUNK_END % encode_line(reason)
        return b"data: " + self._chunk_start + encode_line(delta) + end
