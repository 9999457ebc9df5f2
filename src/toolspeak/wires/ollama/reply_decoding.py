"""An upstream's reply from /api/chat or /api/generate, whole or in lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Note, Usage
from ..call_assembly import Calls
from ..common import set_apart
from ..fields import OWN, Fields, Json
from .errors import decode_failure
from .parts import BOOKKEEPING, NAME, STOPS, call_in, image


class Decoder:
    """Lines of a stream, or a whole reply, to events."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._started = self._done = False
        self._usage: Usage | None = None
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._left: dict[str, None] = {}

    @property
    def complete(self) -> bool:
        return self._done

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(500, frame)
            return
        model = fields.text("model")
        fields.any("created_at")
        if not self._started:
            self._started = True
            yield Started("", model, wire=NAME)
        if message := fields.inner("message"):
            message.any("role")
            yield from self._said(message, "content")
            self._left |= dict.fromkeys(message.rest())
        yield from self._said(fields, "response")
        if fields.take("done", bool):
            self._finish(fields)
            return
        rest = set_apart(fields.rest(), BOOKKEEPING)
        for key in rest:
            if key.startswith(OWN):
                self._extra[key] = rest[key]
            else:
                self._left[key] = None

    def finish(self) -> Iterator[Event]:
        for key in self._left:
            yield Note("unsupported", f"{key} of the reply is not carried", key)
        reason = self._calls.reason(STOPS.get(self._raw_stop or "", "stop"))
        yield Finish(reason, self._raw_stop, self._usage, self._extra or None)

    def _said(self, fields: Fields, key: str) -> Iterator[Event]:
        if thought := fields.text("thinking"):
            yield ReasoningDelta(thought)
        if text := fields.text(key):
            yield TextDelta(text)
        for data in (*(fields.take("images", list) or ()), fields.any("image")):
            if isinstance(data, str):
                yield PartAdded(image(data))
        for item, path in fields.each("tool_calls"):
            identity, name, arguments, extra = call_in(item, path)
            yield from self._calls.whole(identity, name, arguments, extra=extra)

    def _finish(self, fields: Fields) -> None:
        """The last line: why it ended, how much it was, and how long it took."""
        self._done = True
        self._raw_stop = fields.text("done_reason") or None
        counts = [fields.any(key) for key in ("prompt_eval_count", "eval_count")]
        read, written = (count if type(count) is int else 0 for count in counts)
        if any(count is not None for count in counts):
            self._usage = Usage(read, written)
        self._extra |= set_apart(fields.rest(), BOOKKEEPING)
