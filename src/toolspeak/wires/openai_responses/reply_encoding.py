"""Encodes a response for a client, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ...calls.json_values import STRICT_DECODER, json_equal
from ...events import (
    ITEM_ID,
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    PartAdded,
    ReasoningDelta,
    Started,
    TextDelta,
    unfold,
)
from ...types import Failure, Image, Other, Reasoning, Reply, Request, Text, ToolCall, Usage
from ..content import REFUSAL, is_refusal
from ..encoding import ANY_NAME, public_fields
from ..fields import Json
from ..framing import encode_sse
from ..openai import encode_failure
from ..wire import Envelope, StreamEncoder
from .items import (
    INSTRUCTIONS,
    NAME,
    encode_assistant_message,
    encode_call,
    encode_call_input,
    encode_image_item,
    encode_output_text,
    encode_reasoning,
    encode_summary,
    message_fields,
)
from .reply_decoding import INCOMPLETE_REASONS
from .request import PREVIOUS_RESPONSE, ResponsesRequestEncoder

_MAX_ID_SUFFIX = 48
"""The length of a response's id in the ids of its items, which must be short."""
_CONTENT_FILTER = "content_filter"
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "filter": _CONTENT_FILTER}
_ERROR_CODES = {
    "bad_request": "invalid_prompt",
    "context_length": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
}
_REQUEST_FIELDS: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Fields of its request that a response repeats, with their defaults."""


class ResponsesStreamEncoder(StreamEncoder):
    """Encodes events, and collects the response that they amount to."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._event_count = 0
        self._head: Json = {}
        self._has_refusal = False
        self._usage: Usage | None = None
        self._open: OutputItem | None = None
        self._output: list[Json] = []
        self._item_count = 0
        """Items that have started."""

    def encode_whole(self, reply: Reply) -> Json:
        """Encode the response in which the reply's stream would end."""
        return [json for event in unfold(reply) for json in self.encode(event)][-1]["response"]

    def feed(self, event: Event) -> bytes:
        return b"".join(map(self._frame, self.encode(event)))

    def _frame(self, event: Json) -> bytes:
        numbered = {"type": event["type"], "sequence_number": self._event_count, **event}
        self._event_count += 1
        return encode_sse(numbered, event["type"])

    def encode(self, event: Event) -> Iterator[Json]:
        """Encode an event as events of this API."""
        if not self._head:
            yield from self._start(event if isinstance(event, Started) else Started())
        match event:
            case TextDelta():
                yield from self._encode_text(event)
            case ReasoningDelta():
                yield from self._encode_reasoning(event)
            case CallStart():
                identity = self._choose_id("ctc" if event.freeform else "fc", event.extra)
                yield from self._open_item(CallItem(self._item_count, identity, event))
            case ArgumentsDelta() if isinstance(self._open, CallItem):
                yield self._open.add(event.json)
            case CallEnd() if isinstance(self._open, CallItem):
                extra = public_fields(self.carry(event.call.extra))
                yield from self._open.end(event.call, extra)
                self._collect_item()
            case CallRejected() if isinstance(self._open, CallItem):
                if event.index == self._open.call_index:
                    yield from self._close_item()
            case PartAdded():
                yield from self._encode_part(event.part)
            case Failure():
                yield from self._encode_failure(event)
            case Finish():
                yield from self._encode_finish(event)
            case _:
                pass

    # The response.

    def _start(self, event: Started) -> Iterator[Json]:
        self.is_same_wire = event.wire == NAME
        self._usage = event.usage
        request = self.envelope.request
        own_id = f"resp_{self.envelope.id.removeprefix('resp_') or 0}"
        is_known = event.id and (self.is_same_wire or event.id.startswith("resp_"))
        extra = self.carry(event.extra)
        self._head = {
            "id": event.id if is_known else own_id,
            "object": "response",
            "created_at": self.envelope.created,
            "model": event.model or request.model,
            **{key: value for key, value in extra.items() if key not in ("id", "model")},
            **_repeat_request(request, extra),
        }
        for state in ("created", "in_progress"):
            yield self._response_event(state, "in_progress")

    def _response_event(self, kind: str, status: str, **fields: Any) -> Json:
        response = {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": list(self._output),
            "usage": None,
            **fields,
        }
        return {"type": f"response.{kind}", "response": response}

    def _encode_finish(self, event: Finish) -> Iterator[Json]:
        reason = self._find_incomplete_reason(event)
        status = "incomplete" if reason else "completed"
        yield from self._close_item(status if event.stop_reason != "error" else "incomplete")
        error = None
        if event.stop_reason == "error":
            status, why = "failed", event.raw_stop_reason or "error"
            error = {"code": "server_error", "message": f"The model stopped: {why}."}
        self._head |= self.carry(event.extra)
        usage = event.usage or self._usage or Usage()
        yield self._response_event(
            status,
            status,
            error=error,
            incomplete_details={"reason": reason} if reason else None,
            usage=_encode_usage(usage, self.carry(usage.extra)),
        )

    def _find_incomplete_reason(self, event: Finish) -> str | None:
        """Return why the response is incomplete, or None if it is complete. A refusal with a text
        is complete; any other can only be expressed as filtered."""
        if event.stop_reason == "pause" and event.raw_stop_reason in INCOMPLETE_REASONS:
            return event.raw_stop_reason
        if event.stop_reason == "refusal" and not self._has_refusal:
            return _CONTENT_FILTER
        return _INCOMPLETE_REASONS.get(event.stop_reason or "")

    def _encode_failure(self, failure: Failure) -> Iterator[Json]:
        """Encode the `error` event, at which SDKs raise, and the failed response, which Codex waits
        for."""
        error = encode_failure(failure)["error"]
        fields = {key: error[key] for key in ("code", "message", "param")}
        yield {"type": "error", **fields, "error": error}
        code = _ERROR_CODES.get(failure.kind, "server_error")
        error = {"code": code, "message": error["message"]}
        yield self._response_event("failed", "failed", error=error)

    # Items.

    def _choose_id(self, prefix: str, extra: Json | None = None, item: str = "") -> str:
        """Return the id of the next item: the upstream's, if it has one."""
        if known := item or self.carry(extra).get(ITEM_ID):
            return known
        suffix = self._head["id"].removeprefix("resp_")[:_MAX_ID_SUFFIX]
        return f"{prefix}_{self._item_count}_{suffix}"

    def _open_item(self, item: OutputItem) -> Iterator[Json]:
        yield from self._close_item()
        self._open = item
        self._item_count += 1
        yield item.start()

    def _close_item(self, status: str = "completed") -> Iterator[Json]:
        if self._open is not None:
            yield from self._open.close(status)
            self._collect_item()

    def _collect_item(self) -> None:
        if self._open is not None and not self._open.is_cancelled:
            self._output.append(self._open.item)
        self._open = None

    def _encode_text(self, event: TextDelta) -> Iterator[Json]:
        item, is_refused, fields = event.item, False, {}
        if event.extra:
            extra = self.carry(event.extra)
            is_refused = is_refusal(event)
            item, fields = item or extra.get(ITEM_ID, ""), public_fields(extra)
        if not event.text and not fields:
            return
        message = self._open
        if not isinstance(message, MessageItem) or item not in ("", message.id):
            message = MessageItem(self._item_count, self._choose_id("msg", item=item))
            yield from self._open_item(message)
        if event.text:
            self._has_refusal = self._has_refusal or is_refused
            yield from message.add(event.text, is_refused)
        if fields:
            yield from message.end_text(fields)
            if message_fields(fields):
                yield from self._close_item()

    def _encode_reasoning(self, event: ReasoningDelta) -> Iterator[Json]:
        extra, reasoning = self.carry(event.extra), self._open
        if not isinstance(reasoning, ReasoningItem) or event.item not in ("", reasoning.id):
            if not event.text and event.signature is None:
                return
            identity = self._choose_id("rs", extra, event.item)
            reasoning = ReasoningItem(self._item_count, identity)
            yield from self._open_item(reasoning)
        if event.text:
            yield from reasoning.add(event.text)
        if event.signature is not None or event.extra:
            yield from reasoning.end(event.signature, extra)
            self._collect_item()

    def _encode_part(self, part: Image | Other) -> Iterator[Json]:
        item: Json = {}
        if isinstance(part, Image) and part.data is not None:
            item = encode_image_item(part)
        elif isinstance(part, Other) and self.is_same_wire:
            item = part.data
        if item:
            identity = item.get("id")
            identity = identity if isinstance(identity, str) else self._choose_id("ig")
            yield from self._open_item(OutputItem(self._item_count, identity, item))
            yield from self._close_item()


class _RepeatedRequest(ResponsesRequestEncoder):
    """A request with the tool names of its client."""

    name_rule = replace(ANY_NAME, has_namespaces=True)


def _repeat_request(request: Request, extra: Json) -> Json:
    """Return the fields of the request that a response repeats."""
    fields = _RepeatedRequest(request).encode_settings()
    first = request.messages[0] if request.messages else None
    if first is not None and first.extra.get(INSTRUCTIONS):
        texts = [part.text for part in first.parts if isinstance(part, Text)]
        fields["instructions"] = "".join(texts)
    if previous := request.extra.get(PREVIOUS_RESPONSE):
        fields["previous_response_id"] = previous
    return {
        key: fields.get(key, extra.get(key, default)) for key, default in _REQUEST_FIELDS.items()
    }


def _encode_usage(usage: Usage, extra: Json) -> Json:
    read = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written}
    written = {"reasoning_tokens": usage.reasoning}
    counts: Json = {
        "input_tokens": usage.input,
        "input_tokens_details": read | extra.get("input_tokens_details", {}),
        "output_tokens": usage.output,
        "output_tokens_details": written | extra.get("output_tokens_details", {}),
        "total_tokens": usage.input + usage.output,
    }
    details = counts.keys() - {"total_tokens"}
    return counts | {key: value for key, value in extra.items() if key not in details}


# The items of the output.


class OutputItem:
    """An item of the output. `item` is complete once it has ended."""

    def __init__(self, index: int, identity: str, item: Json) -> None:
        self._index = index
        self.id = identity
        self.item = {"id": identity, **item}
        self.is_cancelled = False
        """The response does not list the item."""
        self._pieces: list[str] = []

    def start(self) -> Json:
        return self._item_event("added")

    def close(self, status: str) -> Iterator[Json]:
        """End the item as it is, with this status if it has one."""
        yield self._item_event("done")

    def _complete(self, item: Json) -> Json:
        self.item = {"id": self.id, **item}
        return self._item_event("done")

    def _item_event(self, state: str) -> Json:
        kind = f"response.output_item.{state}"
        return {"type": kind, "output_index": self._index, "item": self.item}

    def _event(self, kind: str, **fields: object) -> Json:
        head = {"type": f"response.{kind}", "item_id": self.id, "output_index": self._index}
        return head | fields


class MessageItem(OutputItem):
    def __init__(self, index: int, identity: str) -> None:
        super().__init__(index, identity, {"status": "in_progress", **encode_assistant_message(())})
        self._texts: list[Text] = []
        """The texts that have ended, and empty ones with fields of the message."""
        self._part_count = 0
        self._part: Text | None = None
        """The open text, as yet empty."""

    def add(self, text: str, is_refused: bool) -> Iterator[Json]:
        if self._part is None or is_refusal(self._part) != is_refused:
            yield from self._end_part({})
            yield self._start_part(is_refused)
        self._pieces.append(text)
        if is_refused:
            yield self._part_event("refusal.delta", delta=text)
        else:
            yield self._part_event("output_text.delta", delta=text, logprobs=[])

    def end_text(self, extra: Json) -> Iterator[Json]:
        """End the open text, with an `extra` for it or for the message."""
        if self._part is None and self._texts:
            self._texts.append(Text("", extra))
            return
        if self._part is None:
            yield self._start_part(False)
        yield from self._end_part(extra)

    def close(self, status: str) -> Iterator[Json]:
        yield from self._end_part({})
        yield self._complete({"status": status, **encode_assistant_message(self._texts)})

    def _start_part(self, is_refused: bool) -> Json:
        self._part = Text("", REFUSAL if is_refused else {})
        return self._part_event("content_part.added", part=encode_output_text(self._part))

    def _end_part(self, extra: Json) -> Iterator[Json]:
        if self._part is None:
            return
        joined = "".join(self._pieces)
        text = replace(self._part, text=joined, extra=self._part.extra | extra)
        if is_refusal(text):
            yield self._part_event("refusal.done", refusal=joined)
        else:
            yield self._part_event("output_text.done", text=joined, logprobs=[])
        yield self._part_event("content_part.done", part=encode_output_text(text))
        self._texts.append(text)
        self._part_count += 1
        self._part, self._pieces = None, []

    def _part_event(self, kind: str, **fields: object) -> Json:
        return self._event(kind, content_index=self._part_count, **fields)


class ReasoningItem(OutputItem):
    """Reasoning, sent as a summary."""

    def __init__(self, index: int, identity: str) -> None:
        super().__init__(index, identity, encode_reasoning(Reasoning("")))

    def add(self, text: str) -> Iterator[Json]:
        if not self._pieces:
            yield self._summary_event("part.added", part=encode_summary(""))
        self._pieces.append(text)
        yield self._summary_event("text.delta", delta=text)

    def end(self, signature: str | None, extra: Json) -> Iterator[Json]:
        text = "".join(self._pieces)
        if text:
            yield self._summary_event("text.done", text=text)
            yield self._summary_event("part.done", part=encode_summary(text))
        yield self._complete(encode_reasoning(Reasoning(text, signature, extra)))

    def close(self, status: str) -> Iterator[Json]:
        return self.end(None, {})

    def _summary_event(self, kind: str, **fields: object) -> Json:
        return self._event(f"reasoning_summary_{kind}", summary_index=0, **fields)


class CallItem(OutputItem):
    def __init__(self, index: int, identity: str, event: CallStart) -> None:
        self._call = ToolCall(
            id=event.id,
            name=event.name,
            arguments={},
            namespace=event.namespace,
            freeform=event.freeform,
        )
        super().__init__(index, identity, self._encode("in_progress", ""))
        self.call_index = event.index
        self._arguments_event, self._field = (
            ("custom_tool_call_input", "input")
            if event.freeform
            else ("function_call_arguments", "arguments")
        )

    def add(self, text: str) -> Json:
        self._pieces.append(text)
        return self._event(f"{self._arguments_event}.delta", delta=text)

    def end(self, call: ToolCall, extra: Json) -> Iterator[Json]:
        if not self._pieces:
            yield self.add(encode_call_input(call))
        text = "".join(self._pieces)
        text = text if _is_input_of(text, call) else encode_call_input(call)
        yield from self._end_as("completed", text, extra)

    def close(self, status: str) -> Iterator[Json]:
        """End a call that is not made. Clients that act on items see that it is incomplete."""
        self.is_cancelled = True
        yield from self._end_as("incomplete", "".join(self._pieces), {})

    def _end_as(self, status: str, text: str, extra: Json) -> Iterator[Json]:
        yield self._event(f"{self._arguments_event}.done", **{self._field: text})
        yield self._complete(self._encode(status, text) | extra)

    def _encode(self, status: str, text: str) -> Json:
        return {"status": status, **encode_call(self._call, self._call.name, text)}


def _is_input_of(text: str, call: ToolCall) -> bool:
    """Return True if the text that was sent equals the call's final arguments."""
    if call.freeform:
        return text == encode_call_input(call)
    try:
        return json_equal(STRICT_DECODER.decode(text), call.arguments)
    except (ValueError, RecursionError):
        return False
