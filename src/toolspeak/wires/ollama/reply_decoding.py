"""An upstream's reply from /api/chat or /api/generate, whole or in lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Note, Usage
from ..call_assembly import CallAssembler
from ..encoding import mark_private
from ..fields import PRIVATE, Fields, Json
from .errors import decode_failure
from .parts import BOOKKEEPING, NAME, STOPS, call_in, image


class OllamaReplyDecoder:
    """Lines of a stream, or a whole reply, to events."""

    def __init__(self, calls: CallAssembler) -> None:
        self._calls = calls
        self._started = self._done = False
        self._usage: Usage | None = None
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._left: dict[str, None] = {}

    @property
    def is_complete(self) -> bool:
        return self._done

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(500, frame)
            return
        model = fields.take_text("model")
        fields.take_any("created_at")
        if not self._started:
            self._started = True
            yield Started("", model, wire=NAME)
        if message := fields.take_object("message"):
            message.take_any("role")
            yield from self._said(message, "content")
            self._left |= dict.fromkeys(message.rest())
        yield from self._said(fields, "response")
        if fields.take("done", bool):
            self._finish(fields)
            return
        rest = mark_private(fields.rest(), BOOKKEEPING)
        for key in rest:
            if key.startswith(PRIVATE):
                self._extra[key] = rest[key]
            else:
                self._left[key] = None

    def finish(self) -> Iterator[Event]:
        for key in self._left:
            yield Note("unsupported", f"{key} of the reply is not carried", key)
        reason = self._calls.adjust_stop_reason(STOPS.get(self._raw_stop or "", "stop"))
        yield Finish(reason, self._raw_stop, self._usage, self._extra or None)

    def _said(self, fields: Fields, key: str) -> Iterator[Event]:
        if thought := fields.take_text("thinking"):
            yield ReasoningDelta(thought)
        if text := fields.take_text(key):
            yield TextDelta(text)
        for data in (*(fields.take("images", list) or ()), fields.take_any("image")):
            if isinstance(data, str):
                yield PartAdded(image(data))
        for item, path in fields.take_items("tool_calls"):
            identity, name, arguments, extra = call_in(item, path)
            yield from self._calls.add_whole(identity, name, arguments, extra=extra)

    def _finish(self, fields: Fields) -> None:
        """The last line: why it ended, how much it was, and how long it took."""
        self._done = True
        self._raw_stop = fields.take_text("done_reason") or None
        counts = [fields.take_any(key) for key in ("prompt_eval_count", "eval_count")]
        read, written = (count if type(count) is int else 0 for count in counts)
        if any(count is not None for count in counts):
            self._usage = Usage(read, written)
        self._extra |= mark_private(fields.rest(), BOOKKEEPING)
