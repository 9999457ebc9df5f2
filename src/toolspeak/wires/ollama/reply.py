"""Decodes an upstream's reply from /api/chat or /api/generate and encodes one for a client, whole
or in lines. A whole reply is a single line, which is the last.

{"model": "m", "created_at": "…", "message": {"role": "assistant", "content": "Hi"}, "done": false}
{"error": "model 'm' not found"}
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...events import CallEnd, Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Failure, Image, Reply, StopReason, ToolCall, Usage
from ..encoding import mark_private, omit_none, unmark_private
from ..errors import UNKNOWN_STATUS, decode_failure, write_context_message
from ..fields import PRIVATE, Fields, Json
from ..framing import encode_line
from ..wire import Envelope, FrameDecoder, StreamEncoder
from .request import IS_GENERATE, NAME, decode_call, decode_image, encode_call

_STATISTICS = frozenset(
    {
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
        "remote_model",
        "remote_host",
    }
)
"""Fields of a reply about how it was made."""
_STOP_REASONS: dict[str, StopReason] = {"stop": "stop", "length": "length"}


class OllamaFrameDecoder(FrameDecoder):
    stop_reasons = _STOP_REASONS

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(UNKNOWN_STATUS, frame)
            return
        model = fields.take_text("model")
        fields.discard("created_at")
        if not self._is_started:
            self._is_started = True
            yield Started("", model, wire=NAME)
        if message := fields.take_object("message"):
            message.discard("role")
            yield from self._decode_message(message, "content")
            self._dropped |= dict.fromkeys(message.rest())
        yield from self._decode_message(fields, "response")
        if fields.take("done", bool):
            self._decode_end(fields)
            return
        for key, value in mark_private(fields.rest(), _STATISTICS).items():
            if key.startswith(PRIVATE):
                self._extra[key] = value
            else:
                self._dropped[key] = None

    def _decode_message(self, fields: Fields, text_field: str) -> Iterator[Event]:
        if reasoning := fields.take_text("thinking"):
            yield ReasoningDelta(reasoning)
        if text := fields.take_text(text_field):
            yield TextDelta(text)
        for data in (*(fields.take("images", list) or ()), fields.take_any("image")):
            if isinstance(data, str):
                yield PartAdded(decode_image(data))
        for item, path in fields.take_items("tool_calls"):
            yield from self._calls.isolate(self._decode_call, item, path)

    def _decode_call(self, item: Any, path: str) -> list[Event]:
        identity, name, arguments, extra = decode_call(item, path)
        return self._calls.add_whole(identity, name, arguments, extra=extra)

    def _decode_end(self, fields: Fields) -> None:
        """Decode the last line: the stop reason and the statistics."""
        self._raw_stop = fields.take_text("done_reason")
        counts = [fields.take_any(key) for key in ("prompt_eval_count", "eval_count")]
        read, written = (count if type(count) is int else 0 for count in counts)
        if any(count is not None for count in counts):
            self._usage = Usage(read, written)
        self._extra |= mark_private(fields.rest(), _STATISTICS)


class OllamaStreamEncoder(StreamEncoder):
    """Encodes events as lines, in the shape of the endpoint that was called."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        created = datetime.fromtimestamp(envelope.created, UTC)
        self._head = {
            "model": envelope.request.model,
            "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self._is_generate = IS_GENERATE in envelope.request.extra

    def encode_whole(self, reply: Reply) -> Json:
        self._encode_event(Started("", reply.model, wire=reply.wire))
        images = (part.data for part in reply.parts if isinstance(part, Image))
        return self._encode_last(
            Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage, reply.extra),
            reply.text,
            thinking=reply.reasoning or None,
            image=next(images, None),
            tool_calls=[self._encode_call(call) for call in reply.calls] or None,
        )

    def feed(self, event: Event) -> bytes:
        line = self._encode_event(event)
        return encode_line(line) + b"\n" if line else b""

    def _encode_event(self, event: Event) -> Json | None:
        match event:
            case Started():
                self._head["model"] = event.model or self._head["model"]
                self.is_same_wire = event.wire == NAME
            case TextDelta():
                return self._encode_line(event.text) if event.text else None
            case ReasoningDelta():
                return self._encode_line(thinking=event.text) if event.text else None
            case CallEnd():
                return self._encode_line(tool_calls=[self._encode_call(event.call)])
            case PartAdded(Image(data=str(data))) if self._is_generate:
                return self._encode_line(image=data)
            case Failure():
                return encode_failure(event)
            case Finish():
                return self._encode_last(event)
            case _:
                pass
        return None

    def _encode_call(self, call: ToolCall) -> Json:
        return encode_call(call, call.name, call.extra if self.is_same_wire else None)

    def _encode_last(self, finish: Finish, text: str = "", **fields: Any) -> Json:
        usage = finish.usage or Usage()
        own_reason = self.find_own_stop_reason(finish, _STOP_REASONS)
        return {
            **self._head,
            **self._encode_message(text, fields),
            "done": True,
            "done_reason": own_reason or ("length" if finish.stop_reason == "length" else "stop"),
            "total_duration": 0,
            "load_duration": 0,
            "prompt_eval_count": usage.input,
            "prompt_eval_duration": 0,
            "eval_count": usage.output,
            "eval_duration": 0,
            **unmark_private(self.carry(finish.extra)),
        }

    def _encode_line(self, text: str = "", **fields: Any) -> Json:
        return {**self._head, **self._encode_message(text, fields), "done": False}

    def _encode_message(self, text: str, fields: Json) -> Json:
        if self._is_generate:
            return {"response": text, **omit_none(**fields)}
        # Clients reject a model's message with an image in it.
        fields.pop("image", None)
        return {"message": {"role": "assistant", "content": text, **omit_none(**fields)}}


# Errors.


_CONTEXT_MARK = "exceeded max context length by {excess} tokens"
_CONTEXT_SENTENCE = f"prompt too long; {_CONTEXT_MARK} ({{prompt}} > {{limit}})."


def encode_failure(failure: Failure) -> Json:
    return {"error": write_context_message(failure, _CONTEXT_SENTENCE, _CONTEXT_MARK)}
