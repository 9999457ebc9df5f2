"""The calls of a reply, put together from the pieces in which an API sends them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from .. import jsonish
from ..calls import Draft, arguments_of
from ..events import ArgumentsDelta, CallEnd, CallRejected, CallStart, Event
from ..notes import NOTES
from ..types import Note, Rejection, ToolCall
from .fields import Json
from .names import Names

_SHOWN = 1000


class _Call:
    """A call whose end has not come."""

    __slots__ = (
        "_checked",
        "extra",
        "freeform",
        "given",
        "id",
        "index",
        "is_cut",
        "is_whole",
        "name",
        "namespace",
        "pieces",
        "unwraps",
    )

    def __init__(
        self, identity: str, name: str, namespace: str | None, freeform: bool, extra: Json
    ) -> None:
        self.id = identity
        self.name = name
        self.namespace = namespace
        self.freeform = freeform
        self.unwraps = False
        """The tool takes text, and the API could only send it as an object's `input`."""
        self.index = -1
        """Counts the calls that were announced; -1 before."""
        self.pieces: list[str] = []
        self.given: Any = None
        """The arguments, where they came in one piece."""
        self.is_whole = self.is_cut = False
        self.extra = extra
        self._checked = 0

    def has_come_to_an_end(self) -> bool:
        """Whether the pieces so far are all of an object."""
        if self.freeform or len(self.pieces) == self._checked:
            return False
        self._checked = len(self.pieces)
        text = "".join(self.pieces)
        try:
            return text.rstrip().endswith("}") and isinstance(jsonish.loads(text)[0], dict)
        except jsonish.NotAValue:
            return False

    def arguments(self) -> tuple[Json | None, str, tuple[str, ...]]:
        """The arguments, or what is wrong with them; and the repairs that they took."""
        text = "".join(self.pieces)
        given = text if self.given is None else self.given
        if self.freeform and not self.unwraps:
            return {"input": given if isinstance(given, str) else jsonish.dumps(given)}, "", ()
        return arguments_of(Draft(self.name, given))


class Calls:
    """Tells what happens to the calls of one reply.

    Only one is open at a time, and nothing comes between its start and its end: the pieces of those
    that follow, and all else, wait for it.
    """

    def __init__(self, names: Names, new_id: Callable[[], str]) -> None:
        self._names = names
        self._new_id = new_id
        self._open: dict[Hashable, _Call] = {}
        self._waiting: list[Event] = []
        self.count = 0
        """How many calls were announced."""

    def start(
        self,
        key: Hashable,
        identity: str,
        name: str,
        *,
        namespace: str | None = None,
        freeform: bool = False,
        **extra: Any,
    ) -> Iterator[Event]:
        """A call begins. `key` is what its pieces go by."""
        yield from self._end_what_is_whole()
        identity = identity or self._new_id()
        self._open[key] = call = _Call(identity, name, namespace, freeform, extra)
        if len(self._open) == 1:
            yield from self._announce(call)

    def more(self, key: Hashable, piece: str) -> Iterator[Event]:
        """More of a call's arguments."""
        call = self._open.get(key)
        if call is not None:
            call.pieces.append(piece)
            if call.index >= 0 and not call.unwraps and piece:
                yield ArgumentsDelta(call.index, piece)
        elif piece.strip():
            yield Note("late-arguments", NOTES["late-arguments"], piece[:_SHOWN])

    def end(
        self, key: Hashable, arguments: Any = None, *, cut: bool = False, **extra: Any
    ) -> Iterator[Event]:
        """A call is whole; with its arguments, where they came in one piece. If the reply was `cut`
        short in it, it is not made."""
        call = self._open.get(key)
        if call is None:
            return
        call.is_whole, call.is_cut = True, cut
        call.given = arguments
        call.extra.update(extra)
        while self._open:
            first, call = next(iter(self._open.items()))
            if not call.is_whole:
                return
            del self._open[first]
            yield from self._ended(call)
            yield from self._next()

    def whole(
        self, identity: str, name: str, arguments: Any, *, freeform: bool = False, **extra: Any
    ) -> Iterator[Event]:
        """A call that comes in one piece."""
        key = object()
        yield from self.start(key, identity, name, freeform=freeform)
        yield from self.end(key, {} if arguments is None else arguments, **extra)

    def beside(self, event: Event) -> Iterator[Event]:
        """Something else happens: now, or after the call that is open."""
        if self._open:
            yield from self._end_what_is_whole()
        if self._open:
            self._waiting.append(event)
        else:
            yield event

    def finish(self, *, cut: bool = False) -> Iterator[Event]:
        """No more pieces come; `cut` if there should have been more of the last call."""
        for key, call in list(self._open.items()):
            yield from self.end(key, cut=cut and not call.has_come_to_an_end())

    def _end_what_is_whole(self) -> Iterator[Event]:
        """The first call is over if nothing is missing from it: few APIs say that it is."""
        while self._open:
            key, call = next(iter(self._open.items()))
            if not call.has_come_to_an_end():
                return
            yield from self.end(key)

    def _next(self) -> Iterator[Event]:
        """What had to wait for a call."""
        if self._open:
            yield from self._announce(next(iter(self._open.values())))
        else:
            waiting, self._waiting = self._waiting, []
            yield from waiting

    def _announce(self, call: _Call) -> Iterator[Event]:
        call.index = self.count
        self.count += 1
        tool = self._names.read(call.name, call.namespace)
        if tool:
            call.name, call.namespace = tool.name, tool.namespace
            call.unwraps = tool.freeform and not call.freeform
            call.freeform = call.freeform or tool.freeform
        yield CallStart(call.index, call.id, call.name, "native", call.namespace, call.freeform)
        if call.pieces and not call.unwraps:
            yield ArgumentsDelta(call.index, "".join(call.pieces))

    def _ended(self, call: _Call) -> Iterator[Event]:
        arguments, problem, repairs = call.arguments()
        raw = ("".join(call.pieces) or str(call.given))[:_SHOWN]
        code = "truncated" if call.is_cut else "bad-arguments"
        if arguments is None or call.is_cut:
            problem = problem or NOTES[code]
            yield CallRejected(Rejection(raw, code, problem, "$.arguments", call.name), call.index)
            yield Note(code, problem, raw)
            return
        for repair in repairs:
            yield Note(f"repaired-{repair}", NOTES[f"repaired-{repair}"], raw)
        made = ToolCall(
            id=call.id,
            name=call.name,
            arguments=arguments,
            namespace=call.namespace,
            freeform=call.freeform,
            extra=call.extra,
        )
        yield CallEnd(call.index, made)
