"""The requests that are under way, and the last ones that are over: so many, and so many bytes.

One that is over is nothing but bytes, until somebody looks. A thousand as they are would be a
hundred thousand objects, and every new request would have to make its own in memory that nothing
has touched for long: that costs more than to write it down.
"""

from __future__ import annotations

import logging
from collections import deque
from time import time

import msgspec
from msgspec import Struct, structs

from ...types import Reply, ToolCall
from ...upstream.capture import Kept, Room, weight_of
from ...upstream.record import RequestRecord
from .summary import Summary, summary_of

log = logging.getLogger("toolspeak.gateway")
_TICK = 1e-6
_AS_IT_IS = 4000
"""Bytes that Python itself needs for a request that cannot be written down, about."""
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""Half a character, a number that no machine has, a nest: models write such things."""
_MOST_PAPER = 2**20
"""Bytes of what is written on that are kept for the next request."""
_write = msgspec.msgpack.Encoder().encode_into
_read = msgspec.msgpack.Decoder(RequestRecord).decode


class AsItIs:
    """A request that cannot be written down."""

    def __init__(self, record: RequestRecord) -> None:
        self.record = record
        self._size = _size(record)

    def __len__(self) -> int:
        """Bytes that it takes, about."""
        return self._size


Said = bytes | AsItIs
"""What is kept of a request that is over."""


class Over(Struct, frozen=True):
    """A request that is over, once somebody has looked."""

    said: Said
    summary: Summary

    @property
    def record(self) -> RequestRecord:
        """All that is kept of it."""
        return _record(self.said)


class Ring:
    """What one process keeps. A request is begun and ended by the process's event loop; `over` may
    be asked for by any thread."""

    def __init__(self, most: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.most = most
        self.max_bytes = max_bytes
        self.room = Room(_for_active(max_bytes))
        self.active: dict[str, RequestRecord] = {}
        self._over: deque[Said] = deque()
        """Those that ended last are last."""
        self._looked: dict[int, tuple[Said, Over | None]] = {}
        """What is known of them since the last look; None of those that cannot be read."""
        self._paper = bytearray()
        """Where a request is written down: what is kept of it has no more room than it needs."""
        self.size = 0
        """Bytes of all that are over."""
        self.changed = 0.0
        """When one ended last."""

    def resize(self, most: int, max_bytes: int) -> None:
        """Keep so many from now on."""
        self.room.left += _for_active(max_bytes) - _for_active(self.max_bytes)
        self.most, self.max_bytes = most, max_bytes
        self._forget()

    def end(self, record: RequestRecord) -> None:
        """A request is over. Every one pays for this, so it calls nothing that it can do itself."""
        kept = record.capture
        if kept is None:
            return
        self.active.pop(kept.key, None)
        weight = kept.weight
        for question in record.attempts:
            if question.response_capture:
                weight += question.response_capture.weight
        self.room.left += weight
        # Never the same time twice: so nothing is missed that is newer than another.
        now = time()
        self.changed = kept.changed = now if now > self.changed else self.changed + _TICK
        if record.spans:
            record.spans = None
        try:
            try:
                _write(record, self._paper)
                said = bytes(self._paper)
            except _UNWRITABLE:
                said = AsItIs(record)
            if len(said) > self.max_bytes:
                said = AsItIs(_without_bytes(record))
        except Exception:
            # Whatever it is, the request was served.
            log.exception("the inspector cannot write down a request")
            return
        self._over.append(said)
        self.size += len(said)
        self._forget()

    def _forget(self) -> None:
        """The oldest go where there is no room for them."""
        over = self._over
        while self.size > self.max_bytes or len(over) > self.most:
            oldest = over.popleft()
            self.size -= len(oldest)
            if self._looked:
                self._looked.pop(id(oldest), None)
        if len(self._paper) > _MOST_PAPER:
            self._paper = bytearray()

    def over(self) -> list[Over]:
        """Those that are over, the oldest first. Some thousands take a while, the first time."""
        known = self._looked
        kept = tuple(self._over)
        looked = {id(said): known.get(id(said)) or (said, _look(said)) for said in kept}
        found = [one for _, one in looked.values() if one]
        # From here on they are forgotten with what they are about; some of that went meanwhile.
        self._looked = looked
        for gone in set(looked).difference(map(id, tuple(self._over))):
            looked.pop(gone, None)
        return found

    def find(self, key: str, active: RequestRecord | None) -> RequestRecord | None:
        """The request of that key; or that one, or else the last that its client calls so."""
        over = self.over()
        same = (one.record for one in over if one.summary.key == key)
        named = (one.record for one in reversed(over) if one.summary.id == key)
        return next(same, None) or active or next(named, None)

    def snapshot(self, key: str) -> RequestRecord | None:
        """One that is under way, as it is now; by its key, or the last that its client calls so."""
        active = self.active.get(key)
        if active is None:
            named = (one for one in reversed(self.active.values()) if one.id == key)
            active = next(named, None)
        return _copied(active) if active else None


def _copied(record: RequestRecord) -> RequestRecord:
    """A request as it is now. It goes on: what comes in pieces grows, all else is set anew."""
    questions = [
        structs.replace(
            question,
            response_capture=question.response_capture and question.response_capture.so_far(),
        )
        for question in record.attempts
    ]
    kept = record.capture and record.capture.so_far()
    return structs.replace(record, spans=None, attempts=questions, capture=kept)


def _look(said: Said) -> Over | None:
    try:
        return Over(said, summary_of(_record(said)))
    except Exception:
        # One that cannot be read must not hide all others.
        log.exception("the inspector cannot read a request that it has written down")
        return None


def _record(said: Said) -> RequestRecord:
    return _read(said) if isinstance(said, bytes) else said.record


def _size(record: RequestRecord) -> int:
    """Bytes that it takes as it is, about: what was understood of a reply is there beside it."""
    kept, weight = record.capture, _AS_IT_IS
    if kept:
        weight += len(kept.body) + weight_of(kept.pieces)
        weight += sum(map(len, (*kept.headers, *kept.headers.values())))
    for question in record.attempts:
        heard = weight_of(question.response_capture.pieces) if question.response_capture else 0
        weight += _AS_IT_IS + len(question.request_body) + 2 * heard
    return weight


def _without_bytes(record: RequestRecord) -> RequestRecord:
    """What can be said of a request that is larger than all that may be kept."""
    kept = record.capture
    assert kept
    lost, asked = kept.size, summary_of(record).asked
    bare = Kept(kept.began, kept.room, lost=lost, key=kept.key, target=kept.target, asked=asked)
    bare.headers, bare.changed = kept.headers, kept.changed
    reply = record.reply
    if reply:
        calls = [ToolCall(id=call.id, name=call.name, arguments={}) for call in reply.calls]
        reply = Reply(parts=tuple(calls), dialect=reply.dialect, usage=reply.usage)
    return structs.replace(
        record,
        attempts=[],
        first_upstream=record.upstream,
        has_replied=reply is not None,
        replaced_reply=reply,
        capture=bare,
    )


def _for_active(max_bytes: int) -> int:
    """The room for requests that are under way. One that takes all of it can still be kept."""
    return max_bytes * 3 // 4
