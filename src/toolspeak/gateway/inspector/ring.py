"""The requests that are under way, and the last ones that are over: so many, and so many bytes.

Those that are over are nothing but blocks of bytes, until somebody looks. A thousand as they are
would be a hundred thousand objects, and every new request would have to make its own in memory that
nothing has touched for long: that costs more than to write it down.
"""

from __future__ import annotations

import logging
from collections import deque
from time import time

import msgspec
from msgspec import Struct, structs

from ...types import Reply, ToolCall
from ..flow import Kept, Room, weight_of
from ..record import Record
from .summary import Summary, summary_of

log = logging.getLogger("toolspeak.gateway")
_TICK = 1e-6
_AS_IT_IS = 4000
"""Bytes that Python itself needs for a request that cannot be written down, about."""
_MOST_PAPER = 2**20
_MOST_TOGETHER = 2**16
"""Bytes of requests that make a block: more would drive all else out of the caches."""
_AT_ONCE = 32
"""How many requests make a block, at most."""
_HEAD = 5
"""Bytes at the beginning of a block, for how many requests it has."""
_BLOCKS = 16
"""What is kept has about so many blocks, or more, since a block is only forgotten as a whole."""
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""Half a character, a number that no machine has, a nest: models write such things."""
_write = msgspec.msgpack.Encoder().encode_into
"""A value, where to write it, and at which place there."""
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_read = msgspec.msgpack.Decoder(Record).decode


class Over(Struct, frozen=True):
    """A request that is over, once somebody has looked."""

    said: bytes | list[Record]
    """Those that were written down together."""
    index: int
    """Which of them it is."""
    summary: Summary

    @property
    def record(self) -> Record:
        """All that is kept of it."""
        return _record(self.said, self.index)


class Block(Struct, eq=False):
    """Requests that were written down together; or one as it is, if that was not possible."""

    said: bytes | list[Record]
    count: int
    size: int
    """Bytes that it takes, about."""
    looked: list[Over] | None = None
    """What is known since the last look."""

    def over(self) -> list[Over]:
        """Those of them that can be read."""
        if self.looked is None:
            found = (_look(self.said, index) for index in range(self.count))
            self.looked = [one for one in found if one]
        return self.looked


class Ring:
    """What one process keeps. A request is begun, ended and written down by the process's event
    loop; `over` may be asked for by any thread."""

    def __init__(self, most: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.most = most
        self.max_bytes = max_bytes
        self.room = Room(_for_active(max_bytes))
        self.active: dict[str, Record] = {}
        self._over: deque[Block] = deque()
        """Those that ended last are last."""
        self._count = 0
        """How many requests that are."""
        self._paper = bytearray(_HEAD)
        """Where requests are written down as they end, always in the same place: nothing of them
        stays where the next one could have it."""
        self._end = _HEAD
        """Where on it the last one ends."""
        self._written = 0
        """How many are on it."""
        self.size = 0
        """Bytes of all that are over."""
        self.changed = 0.0
        """When one ended last."""
        self.resize(most, max_bytes)

    def resize(self, most: int, max_bytes: int) -> None:
        """Keep so many from now on."""
        self.room.left += _for_active(max_bytes) - _for_active(self.max_bytes)
        self.most, self.max_bytes = most, max_bytes
        self._at_once = min(_AT_ONCE, max(1, most // _BLOCKS))
        self._most_together = min(_MOST_TOGETHER, max_bytes // _BLOCKS)

    def end(self, record: Record) -> None:
        """A request is over. Every one pays for this, so it calls nothing that it can do itself."""
        kept = record.kept
        if kept is None:
            return
        self.active.pop(kept.key, None)
        weight = kept.weight
        for question in record.questions:
            if question.heard:
                weight += question.heard.weight
        self.room.left += weight
        # Never the same time twice: so nothing is missed that is newer than another.
        now = time()
        self.changed = kept.changed = now if now > self.changed else self.changed + _TICK
        if record.spans:
            record.spans = None
        try:
            self._note(record)
        except Exception:
            log.exception("the inspector cannot write down a request")

    def _note(self, record: Record) -> None:
        """Write it down."""
        begin, paper = self._end, self._paper
        try:
            _write(record, paper, begin)
        except Exception as problem:
            self._unwritable(record, problem)
            return
        end = len(paper)
        if end - begin > self._most_together:
            self._large(record, begin, end)
            return
        self._end = end
        self._written += 1
        if end > self._most_together or self._written >= self._at_once:
            self.write()

    def write(self) -> None:
        """Make a block of what is on the paper: before somebody looks, and else a few at once."""
        count, end = self._written, self._end
        self._written, self._end = 0, _HEAD
        if count:
            self._paper[:_HEAD] = _head(count)
            said = self._copied(0, end)
            if len(said) <= self.max_bytes:
                self._add(Block(said, count, len(said)))
            else:
                # There may be less room than when they were written.
                for one in _split(said):
                    self._add(Block(_head(1) + bytes(one), 1, _HEAD + len(bytes(one))))

    def _large(self, record: Record, begin: int, end: int) -> None:
        """One that must not take those before it along when it has to go."""
        said = _head(1) + self._copied(begin, end)
        self.write()
        if end > _MOST_PAPER:
            self._paper = bytearray(_HEAD)
        if len(said) <= self.max_bytes:
            self._add(Block(said, 1, len(said)))
        else:
            self._as_it_is(_without_bytes(record))

    def _unwritable(self, record: Record, problem: Exception) -> None:
        """One that is kept as it is. It keeps no others from being written."""
        self.write()
        if not isinstance(problem, _UNWRITABLE):
            raise problem
        self._as_it_is(record if _size(record) <= self.max_bytes else _without_bytes(record))

    def _as_it_is(self, record: Record) -> None:
        self._add(Block([record], 1, _size(record)))

    def _copied(self, begin: int, end: int) -> bytes:
        with memoryview(self._paper) as paper:
            return bytes(paper[begin:end])

    def _add(self, block: Block) -> None:
        """Keep what is written down; the oldest have to go if there is no room for it."""
        over = self._over
        over.append(block)
        self._count += block.count
        self.size += block.size
        while over and (self.size > self.max_bytes or self._count - over[0].count >= self.most):
            oldest = over.popleft()
            self._count -= oldest.count
            self.size -= oldest.size

    def over(self) -> list[Over]:
        """Those that are written down, the oldest first. Some thousands take a while, the first
        time."""
        found = [one for block in tuple(self._over) for one in block.over()]
        return found[-self.most :]

    def find(self, key: str, active: Record | None) -> Record | None:
        """The request of that key; or that one, or else the last that its client calls so."""
        over = self.over()
        same = (one.record for one in over if one.summary.key == key)
        named = (one.record for one in reversed(over) if one.summary.id == key)
        return next(same, None) or active or next(named, None)

    def snapshot(self, key: str) -> Record | None:
        """One that is under way, as it is now; by its key, or the last that its client calls so."""
        active = self.active.get(key)
        if active is None:
            named = (one for one in reversed(self.active.values()) if one.id == key)
            active = next(named, None)
        return _copied(active) if active else None


def _head(count: int) -> bytes:
    """The beginning of a list of so many values, as msgpack has it."""
    return b"\xdd" + count.to_bytes(_HEAD - 1, "big")


def _copied(record: Record) -> Record:
    """A request as it is now. It goes on: what comes in pieces grows, all else is set anew."""
    questions = [
        structs.replace(question, heard=question.heard and question.heard.so_far())
        for question in record.questions
    ]
    kept = record.kept and record.kept.so_far()
    return structs.replace(record, spans=None, questions=questions, kept=kept)


def _look(said: bytes | list[Record], index: int) -> Over | None:
    try:
        return Over(said, index, summary_of(_record(said, index)))
    except Exception:
        # One that cannot be read must not hide all others.
        log.exception("the inspector cannot read a request that it has written down")
        return None


def _record(said: bytes | list[Record], index: int) -> Record:
    return _read(_split(said)[index]) if isinstance(said, bytes) else said[index]


def _size(record: Record) -> int:
    """Bytes that it takes as it is, about: what was understood of a reply is there beside it."""
    kept, weight = record.kept, _AS_IT_IS
    if kept:
        weight += len(kept.body) + weight_of(kept.pieces)
        weight += sum(map(len, (*kept.headers, *kept.headers.values())))
    for question in record.questions:
        heard = weight_of(question.heard.pieces) if question.heard else 0
        weight += _AS_IT_IS + len(question.sent) + 2 * heard
    return weight


def _without_bytes(record: Record) -> Record:
    """What can be said of a request that is larger than all that may be kept."""
    kept = record.kept
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
        questions=[],
        first_upstream=record.upstream,
        has_replied=reply is not None,
        other_reply=reply,
        kept=bare,
    )


def _for_active(max_bytes: int) -> int:
    """The room for requests that are under way. One that takes all of it can still be kept."""
    return max_bytes * 3 // 4
