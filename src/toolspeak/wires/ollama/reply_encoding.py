"""Encodes a reply for a client of /api/chat or /api/generate, whole or in lines.

{"model": "m", "created_at": "…", "message": {"role": "assistant", "content": "Hi"}, "done": false}
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ...events import CallEnd, Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Failure, Image, Reply, ToolCall, Usage
from ..encoding import omit_none, unmark_private
from ..fields import Json
from ..framing import encode_line
from ..wire import Envelope
from .errors import encode_failure
from .parts import IS_GENERATE, NAME, STOP_REASONS, encode_call


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """Encode a whole reply: one line, which is the last."""
    lines = _LineEncoder(envelope, reply.model, is_same_wire=reply.wire == NAME)
    images = (part.data for part in reply.parts if isinstance(part, Image))
    finish = Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage, reply.extra)
    return lines.encode_last(
        finish,
        reply.text,
        thinking=reply.reasoning or None,
        image=next(images, None),
        tool_calls=[lines.encode_call(call) for call in reply.calls] or None,
    )


class _LineEncoder:
    """Encodes the lines of one reply, in the shape of the endpoint that was called."""

    def __init__(self, envelope: Envelope, model: str, *, is_same_wire: bool) -> None:
        created = datetime.fromtimestamp(envelope.created, UTC)
        self._head = {
            "model": model or envelope.request.model,
            "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self.is_generate = IS_GENERATE in envelope.request.extra
        self._is_same_wire = is_same_wire

    def encode_line(self, text: str = "", **fields: Any) -> Json:
        return {**self._head, **self._encode_message(text, fields), "done": False}

    def encode_last(self, finish: Finish, text: str = "", **fields: Any) -> Json:
        usage = finish.usage or Usage()
        return {
            **self._head,
            **self._encode_message(text, fields),
            "done": True,
            "done_reason": self._encode_stop_reason(finish),
            "total_duration": 0,
            "load_duration": 0,
            "prompt_eval_count": usage.input,
            "prompt_eval_duration": 0,
            "eval_count": usage.output,
            "eval_duration": 0,
            **(unmark_private(finish.extra or {}) if self._is_same_wire else {}),
        }

    def encode_call(self, call: ToolCall) -> Json:
        return encode_call(call, call.name, call.extra if self._is_same_wire else None)

    def _encode_stop_reason(self, finish: Finish) -> str:
        """Return the upstream's own stop reason if it is still true."""
        reason, raw = finish.stop_reason, finish.raw_stop_reason
        if self._is_same_wire and raw:
            expected = "stop" if reason == "calls" else reason
            if STOP_REASONS.get(raw, "stop") == expected:
                return raw
        return "length" if reason == "length" else "stop"

    def _encode_message(self, text: str, fields: Json) -> Json:
        if self.is_generate:
            return {"response": text, **omit_none(**fields)}
        # Clients reject a model's message with an image in it.
        fields.pop("image", None)
        return {"message": {"role": "assistant", "content": text, **omit_none(**fields)}}


class OllamaStreamEncoder:
    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._lines = _LineEncoder(envelope, "", is_same_wire=False)

    def feed(self, event: Event) -> bytes:
        line = self._encode_event(event)
        return encode_line(line) + b"\n" if line else b""

    def _encode_event(self, event: Event) -> Json | None:
        lines = self._lines
        match event:
            case Started():
                is_same_wire = event.wire == NAME
                self._lines = _LineEncoder(self._envelope, event.model, is_same_wire=is_same_wire)
                return None
            case TextDelta():
                return lines.encode_line(event.text) if event.text else None
            case ReasoningDelta():
                return lines.encode_line(thinking=event.text) if event.text else None
            case CallEnd():
                return lines.encode_line(tool_calls=[lines.encode_call(event.call)])
            case PartAdded(Image(data=str(data))) if lines.is_generate:
                return lines.encode_line(image=data)
            case Failure():
                return encode_failure(event)
            case Finish():
                return lines.encode_last(event)
            case _:
                return None
