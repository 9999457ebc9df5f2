"""Decodes an upstream's reply from /api/chat or /api/generate, whole or in lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Usage
from ..calls import CallAssembler
from ..encoding import mark_private
from ..fields import PRIVATE, Fields
from ..wire import ReplyDecoder
from .errors import decode_failure
from .parts import NAME, STATISTICS, STOP_REASONS, decode_call, decode_image


class OllamaReplyDecoder(ReplyDecoder):
    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._has_ended = False

    @property
    def is_complete(self) -> bool:
        return self._has_ended

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(500, frame)
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
        for key, value in mark_private(fields.rest(), STATISTICS).items():
            if key.startswith(PRIVATE):
                self._extra[key] = value
            else:
                self._dropped[key] = None

    def finish(self) -> Iterator[Event]:
        yield from self._note_dropped()
        reason = self._calls.adjust_stop_reason(STOP_REASONS.get(self._raw_stop or "", "stop"))
        yield Finish(reason, self._raw_stop, self._usage, self._extra or None)

    def _decode_message(self, fields: Fields, text_field: str) -> Iterator[Event]:
        if reasoning := fields.take_text("thinking"):
            yield ReasoningDelta(reasoning)
        if text := fields.take_text(text_field):
            yield TextDelta(text)
        for data in (*(fields.take("images", list) or ()), fields.take_any("image")):
            if isinstance(data, str):
                yield PartAdded(decode_image(data))
        for item, path in fields.take_items("tool_calls"):
            identity, name, arguments, extra = decode_call(item, path)
            yield from self._calls.add_whole(identity, name, arguments, extra=extra)

    def _decode_end(self, fields: Fields) -> None:
        """Decode the last line: the stop reason and the statistics."""
        self._has_ended = True
        self._raw_stop = fields.take_text("done_reason") or None
        counts = [fields.take_any(key) for key in ("prompt_eval_count", "eval_count")]
        read, written = (count if type(count) is int else 0 for count in counts)
        if any(count is not None for count in counts):
            self._usage = Usage(read, written)
        self._extra |= mark_private(fields.rest(), STATISTICS)
