"""A reply for a client of /api/chat or /api/generate, whole or in lines.

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
from .parts import GENERATE, NAME, STOPS, STOPS_OUT, call_out


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """The reply as a whole: one line, which is the last."""
    lines = _Lines(envelope, reply.model, same=reply.wire == NAME)
    pictures = (part.data for part in reply.parts if isinstance(part, Image))
    finish = Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage, reply.extra)
    return lines.last(
        finish,
        reply.text,
        thinking=reply.reasoning or None,
        image=next(pictures, None),
        tool_calls=[lines.call(call) for call in reply.calls] or None,
    )


class _Lines:
    """The lines of one reply, in the shape of the endpoint that was asked."""

    def __init__(self, envelope: Envelope, model: str, *, same: bool) -> None:
        created = datetime.fromtimestamp(envelope.created, UTC)
        self._head = {
            "model": model or envelope.request.model,
            "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self.generates = GENERATE in envelope.request.extra
        self._same = same

    def line(self, text: str = "", **beside: Any) -> Json:
        """More of the reply."""
        return {**self._head, **self._said(text, beside), "done": False}

    def last(self, finish: Finish, text: str = "", **beside: Any) -> Json:
        """The end of the reply, with what is known about it."""
        usage = finish.usage or Usage()
        carried = unmark_private(finish.extra or {}) if self._same else {}
        return {
            **self._head,
            **self._said(text, beside),
            "done": True,
            "done_reason": self._reason(finish),
            "total_duration": 0,
            "load_duration": 0,
            "prompt_eval_count": usage.input,
            "prompt_eval_duration": 0,
            "eval_count": usage.output,
            "eval_duration": 0,
            **carried,
        }

    def call(self, call: ToolCall) -> Json:
        """A call."""
        return call_out(call, call.name, call.extra if self._same else None)

    def _reason(self, finish: Finish) -> str:
        """The upstream's own word, if it still says what happened."""
        reason, raw = finish.stop_reason, finish.raw_stop_reason
        if (
            self._same
            and raw
            and STOPS.get(raw, "stop") == ("stop" if reason == "calls" else reason)
        ):
            return raw
        return STOPS_OUT.get(reason or "", "stop")

    def _said(self, text: str, beside: Json) -> Json:
        if self.generates:
            return {"response": text, **omit_none(**beside)}
        # Clients refuse a message with a picture in it, if it is the model's.
        beside.pop("image", None)
        return {"message": {"role": "assistant", "content": text, **omit_none(**beside)}}


class OllamaStreamEncoder:
    """Events to lines."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._lines = _Lines(envelope, "", same=False)

    def feed(self, event: Event) -> bytes:
        line = self._line(event)
        return encode_line(line) + b"\n" if line else b""

    def _line(self, event: Event) -> Json | None:
        match event:
            case Started():
                self._lines = _Lines(self._envelope, event.model, same=event.wire == NAME)
                return None
            case TextDelta():
                return self._lines.line(event.text) if event.text else None
            case ReasoningDelta():
                return self._lines.line(thinking=event.text) if event.text else None
            case CallEnd():
                return self._lines.line(tool_calls=[self._lines.call(event.call)])
            case PartAdded(Image(data=str(data))) if self._lines.generates:
                return self._lines.line(image=data)
            case Failure():
                return encode_failure(event)
            case Finish():
                return self._lines.last(event)
            case _:
                return None
