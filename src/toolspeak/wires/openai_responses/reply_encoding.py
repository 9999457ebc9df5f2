"""A response for a client, whole or in events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ...calls import json_values as jsonish
from ...calls.json_values import json_equal
from ...events import (
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
from ..encoding import ANY_NAME
from ..fields import Json
from ..framing import encode_sse
from ..wire import Envelope
from .errors import encode_stream_failure
from .parts import (
    CONTINUED,
    FILTERED,
    ID,
    INSTRUCTIONS,
    NAME,
    STOPS,
    STOPS_OUT,
    call_item,
    image_item,
    input_of,
    is_refusal,
    message_item,
    of_the_message,
    reasoning_item,
    said,
    text_part,
)
from .request_encoding import ResponsesRequestEncoder

_LONGEST = 48
"""What of a response's id is part of its items' ids, which have to be short."""
_ECHOED: Json = {
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
"""What a response repeats of its request, and what it says if that says nothing."""


class ResponsesStreamEncoder:
    """Events to the events of a stream."""

    def __init__(self, envelope: Envelope) -> None:
        self._writer = _Writer(envelope)
        self._count = 0

    def feed(self, event: Event) -> bytes:
        return b"".join(map(self._framed, self._writer.feed(event)))

    def _framed(self, event: Json) -> bytes:
        numbered = {"type": event["type"], "sequence_number": self._count, **event}
        self._count += 1
        return encode_sse(numbered, event["type"])


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """The reply as a whole response: the one that its stream would end in."""
    writer = _Writer(envelope)
    told = [out for event in unfold(reply) for out in writer.feed(event)]
    return told[-1]["response"]


class _Writer:
    """Tells what happens in this API's events, and keeps the response that they amount to."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._head: Json = {}
        self._same = False
        """The reply came by this very API: its every `extra` rides along."""
        self._refused = False
        """The model said why it does not answer."""
        self._usage: Usage | None = None
        self._open: OutputItem | None = None
        self._output: list[Json] = []
        self._count = 0
        """How many items have begun."""

    def feed(self, event: Event) -> Iterator[Json]:
        if not self._head:
            yield from self._begin(event if isinstance(event, Started) else Started())
        yield from self._event(event)

    def _event(self, event: Event) -> Iterator[Json]:
        match event:
            case TextDelta():
                yield from self._text(event)
            case ReasoningDelta():
                yield from self._thought(event)
            case CallStart():
                identity = self._id("ctc" if event.freeform else "fc", event.extra)
                yield from self._next(CallItem(self._count, identity, event))
            case ArgumentsDelta() if isinstance(self._open, CallItem):
                yield self._open.more(event.json)
            case CallEnd() if isinstance(self._open, CallItem):
                yield from self._open.ended(event.call, said(self._carried(event.call.extra)))
                self._keep()
            case CallRejected() if isinstance(self._open, CallItem):
                if event.index == self._open.call_index:
                    yield from self._open.taken_back()
                    self._open = None
            case PartAdded():
                yield from self._part(event.part)
            case Failure():
                yield from self._failed(event)
            case Finish():
                yield from self._finish(event)
            case _:
                pass

    # The response.

    def _begin(self, event: Started) -> Iterator[Json]:
        self._same = event.wire == NAME
        self._usage = event.usage
        request = self._envelope.request
        own = f"resp_{self._envelope.id.removeprefix('resp_') or 0}"
        is_known = event.id and (self._same or event.id.startswith("resp_"))
        carried = (event.extra or {}) if self._same else {}
        self._head = {
            "id": event.id if is_known else own,
            "object": "response",
            "created_at": self._envelope.created,
            "model": event.model or request.model,
            **{key: value for key, value in carried.items() if key not in ("id", "model")},
            **_echo(request, carried),
        }
        for state in ("created", "in_progress"):
            yield self._response(state, "in_progress")

    def _response(self, event: str, status: str, **said: Any) -> Json:
        response = {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": list(self._output),
            "usage": None,
            **said,
        }
        return {"type": f"response.{event}", "response": response}

    def _finish(self, event: Finish) -> Iterator[Json]:
        reason = self._reason(event)
        status = "incomplete" if reason else "completed"
        error = None
        if event.stop_reason == "error":
            status, why = "failed", event.raw_stop_reason or "error"
            error = {"code": "server_error", "message": f"the model stopped: {why}"}
        yield from self._close("completed" if status == "completed" else "incomplete")
        self._head |= self._carried(event.extra)
        usage = event.usage or self._usage or Usage()
        yield self._response(
            status,
            status,
            error=error,
            incomplete_details={"reason": reason} if reason else None,
            usage=_usage_out(usage, self._carried(usage.extra)),
        )

    def _reason(self, event: Finish) -> str | None:
        """Why the response is incomplete, if it is. A refusal that the model has put in words is an
        answer; of any other, no more than this can be said."""
        if event.stop_reason == "pause" and event.raw_stop_reason in STOPS:
            return event.raw_stop_reason
        if event.stop_reason == "refusal" and not self._refused:
            return FILTERED
        return STOPS_OUT.get(event.stop_reason or "")

    def _failed(self, failure: Failure) -> Iterator[Json]:
        event, error = encode_stream_failure(failure)
        yield event
        yield self._response("failed", "failed", error=error)

    # The items.

    def _id(self, prefix: str, extra: Json | None = None, item: str = "") -> str:
        """The id of the next item: the upstream's, if it is known."""
        if known := item or self._carried(extra).get(ID):
            return known
        suffix = self._head["id"].removeprefix("resp_")[:_LONGEST]
        return f"{prefix}_{self._count}_{suffix}"

    def _next(self, item: MessageItem | ReasoningItem | CallItem) -> Iterator[Json]:
        yield from self._close()
        self._open = item
        self._count += 1
        yield item.begun()

    def _keep(self) -> None:
        if self._open is not None:
            self._output.append(self._open.item)
            self._open = None

    def _close(self, status: str = "completed") -> Iterator[Json]:
        """What is open ends. A call that does not end by itself is not made."""
        if isinstance(self._open, MessageItem):
            yield from self._open.ended(status)
        elif isinstance(self._open, ReasoningItem):
            yield from self._open.ended(None, {})
        elif isinstance(self._open, CallItem):
            yield from self._open.taken_back()
            self._open = None
        self._keep()

    def _carried(self, extra: Json | None) -> Json:
        return (extra or {}) if self._same else {}

    def _is_open(self, kind: type[OutputItem], item: str) -> bool:
        """Whether more of an item can be said, or of one that goes by no id."""
        return isinstance(self._open, kind) and item in ("", self._open.id)

    def _text(self, event: TextDelta) -> Iterator[Json]:
        item, refused, about = event.item, False, {}
        if event.extra:
            extra = self._carried(event.extra)
            refused = is_refusal(Text("", event.extra))
            item, about = item or extra.get(ID, ""), said(extra)
        if not event.text and not about:
            return
        if not self._is_open(MessageItem, item):
            yield from self._next(MessageItem(self._count, self._id("msg", item=item)))
        assert isinstance(self._open, MessageItem)
        if event.text:
            self._refused = self._refused or refused
            yield from self._open.more(event.text, refused)
        if about:
            yield from self._open.told(about)
            if of_the_message(Text("", about)):
                yield from self._close()

    def _thought(self, event: ReasoningDelta) -> Iterator[Json]:
        extra = self._carried(event.extra)
        ends = event.signature is not None or bool(event.extra)
        is_open = self._is_open(ReasoningItem, event.item)
        if not event.text and not is_open and event.signature is None:
            return
        if not is_open:
            identity = self._id("rs", extra, event.item)
            yield from self._next(ReasoningItem(self._count, identity))
        assert isinstance(self._open, ReasoningItem)
        if event.text:
            yield from self._open.more(event.text)
        if ends:
            yield from self._open.ended(event.signature, extra)
            self._keep()

    def _part(self, part: Image | Other) -> Iterator[Json]:
        item: Json = {}
        if isinstance(part, Image) and part.data is not None:
            item = image_item(part)
        elif isinstance(part, Other) and self._same:
            item = part.data
        if not item:
            return
        yield from self._close()
        known = item.get("id")
        whole = WholeItem(self._count, known if isinstance(known, str) else self._id("ig"))
        self._count += 1
        yield from whole.told(item)
        self._output.append(whole.item)


def _echo(request: Request, carried: Json) -> Json:
    """Return the fields of the request that a response repeats."""
    asked = ResponsesRequestEncoder(request, ANY_NAME).encode_settings()
    first = request.messages[0] if request.messages else None
    if first is not None and first.extra.get(INSTRUCTIONS):
        asked["instructions"] = "".join(text.text for text in first.parts if isinstance(text, Text))
    if previous := request.extra.get(CONTINUED):
        asked["previous_response_id"] = previous
    return {key: asked.get(key, carried.get(key, usual)) for key, usual in _ECHOED.items()}


def _usage_out(usage: Usage, carried: Json) -> Json:
    read = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written}
    written = {"reasoning_tokens": usage.reasoning}
    counts: Json = {
        "input_tokens": usage.input,
        "input_tokens_details": read | carried.get("input_tokens_details", {}),
        "output_tokens": usage.output,
        "output_tokens_details": written | carried.get("output_tokens_details", {}),
        "total_tokens": usage.input + usage.output,
    }
    details = counts.keys() - {"total_tokens"}
    return counts | {key: value for key, value in carried.items() if key not in details}


class OutputItem:
    """An item that has begun. `item` is all of it, once it has ended."""

    def __init__(self, index: int, identity: str) -> None:
        self._index = index
        self.id = identity
        self.item: Json = {}
        self._pieces: list[str] = []

    def _added(self, item: Json) -> Json:
        begun = {"id": self.id, **item}
        return self._whole("added", begun)

    def _done(self, item: Json) -> Json:
        self.item = {"id": self.id, **item}
        return self._whole("done", self.item)

    def _whole(self, state: str, item: Json) -> Json:
        return {
            "type": f"response.output_item.{state}",
            "output_index": self._index,
            "item": item,
        }

    def _event(self, kind: str, **said: object) -> Json:
        head = {"type": f"response.{kind}", "item_id": self.id, "output_index": self._index}
        return head | said


class WholeItem(OutputItem):
    """An item that comes in one piece."""

    def told(self, item: Json) -> Iterator[Json]:
        yield self._added(item)
        yield self._done(item)


class MessageItem(OutputItem):
    """What the model says."""

    def __init__(self, index: int, identity: str) -> None:
        super().__init__(index, identity)
        self._texts: list[Text] = []
        self._parts = 0
        self._part: Text | None = None
        """The one that is open, as yet without its words."""

    def begun(self) -> Json:
        return self._added({"status": "in_progress", **message_item(())})

    def more(self, text: str, refused: bool) -> Iterator[Json]:
        if self._part is None or is_refusal(self._part) != refused:
            yield from self._end_part({})
            yield self._begin_part(refused)
        self._pieces.append(text)
        if refused:
            yield self._said("refusal.delta", delta=text)
        else:
            yield self._said("output_text.delta", delta=text, logprobs=[])

    def told(self, extra: Json) -> Iterator[Json]:
        """What is said of the text, which it ends."""
        if self._part is None and self._texts:
            self._texts.append(Text("", extra))
            return
        if self._part is None:
            yield self._begin_part(False)
        yield from self._end_part(extra)

    def ended(self, status: str) -> Iterator[Json]:
        yield from self._end_part({})
        yield self._done({"status": status, **message_item(self._texts)})

    def _begin_part(self, refused: bool) -> Json:
        self._part = Text("", {"type": "refusal"} if refused else {})
        return self._said("content_part.added", part=text_part(self._part))

    def _end_part(self, extra: Json) -> Iterator[Json]:
        if self._part is None:
            return
        words = "".join(self._pieces)
        text = replace(self._part, text=words, extra=self._part.extra | extra)
        if is_refusal(text):
            yield self._said("refusal.done", refusal=words)
        else:
            yield self._said("output_text.done", text=words, logprobs=[])
        yield self._said("content_part.done", part=text_part(text))
        self._texts.append(text)
        self._parts += 1
        self._part, self._pieces = None, []

    def _said(self, kind: str, **said: object) -> Json:
        return self._event(kind, content_index=self._parts, **said)


class ReasoningItem(OutputItem):
    """What the model thinks, as a summary."""

    def begun(self) -> Json:
        return self._added(reasoning_item(Reasoning("")))

    def more(self, text: str) -> Iterator[Json]:
        if not self._pieces:
            yield self._said("part.added", part=_summary(""))
        self._pieces.append(text)
        yield self._said("text.delta", delta=text)

    def ended(self, signature: str | None, extra: Json) -> Iterator[Json]:
        text = "".join(self._pieces)
        if text:
            yield self._said("text.done", text=text)
            yield self._said("part.done", part=_summary(text))
        yield self._done(reasoning_item(Reasoning(text, signature, extra)))

    def _said(self, kind: str, **said: object) -> Json:
        return self._event(f"reasoning_summary_{kind}", summary_index=0, **said)


def _summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}


class CallItem(OutputItem):
    """What the model calls."""

    def __init__(self, index: int, identity: str, event: CallStart) -> None:
        super().__init__(index, identity)
        self.call_index = event.index
        self._call = ToolCall(
            id=event.id,
            name=event.name,
            arguments={},
            namespace=event.namespace,
            freeform=event.freeform,
        )
        self._events, self._key = (
            ("custom_tool_call_input", "input")
            if event.freeform
            else ("function_call_arguments", "arguments")
        )

    def begun(self) -> Json:
        return self._added(self._item("in_progress", ""))

    def more(self, text: str) -> Json:
        self._pieces.append(text)
        return self._event(f"{self._events}.delta", delta=text)

    def ended(self, call: ToolCall, extra: Json) -> Iterator[Json]:
        """`extra` is what the item says beside the call."""
        if not self._pieces:
            yield self.more(input_of(call))
        text = "".join(self._pieces)
        yield from self._over("completed", text if _says(text, call) else input_of(call), extra)

    def taken_back(self) -> Iterator[Json]:
        """The call is not made. A client that acts on items has to see that this one is not whole;
        the response will not list it."""
        yield from self._over("incomplete", "".join(self._pieces), {})

    def _over(self, status: str, text: str, extra: Json) -> Iterator[Json]:
        yield self._event(f"{self._events}.done", **{self._key: text})
        yield self._done(self._item(status, text) | extra)

    def _item(self, status: str, text: str) -> Json:
        return {"status": status, **call_item(self._call, self._call.name, text)}


def _says(text: str, call: ToolCall) -> bool:
    """Whether the text that was sent is what the call came to be."""
    if call.freeform:
        return text == input_of(call)
    try:
        return json_equal(jsonish.STRICT_DECODER.decode(text), call.arguments)
    except (ValueError, RecursionError):
        return False
