"""The calls of a reply, put together from the pieces in which an API sends them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from .._util import encode_json
from ..calls.drafts import CallDraft, decode_arguments
from ..events import ArgumentsDelta, CallEnd, CallRejected, CallStart, Event
from ..notes import NOTES
from ..types import Note, Rejection, StopReason, ToolCall
from .fields import Json
from .framing import BraceCounter
from .names import ToolNames

_SHOWN = 1000
TRUNCATING_REASONS: frozenset[StopReason] = frozenset({"length", "filter", "error"})
"""The reasons for which a reply stops in the midst of what it says."""


class _Call:
    """A call whose end has not come."""

    __slots__ = (
        "_braces",
        "extra",
        "freeform",
        "given",
        "id",
        "index",
        "is_cut",
        "is_over",
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
        self.is_over = self.is_cut = False
        self.extra = extra
        self._braces: BraceCounter | None = None
        """What follows the pieces; a call that comes whole has none."""

    def add(self, piece: str) -> None:
        """More of the arguments."""
        self.pieces.append(piece)
        self._braces = self._braces or BraceCounter()
        self._braces.read(piece)

    def is_whole(self) -> bool:
        """Whether the pieces so far are all of an object."""
        return self._braces is not None and self._braces.is_closed and not self.freeform

    def arguments(self) -> tuple[Json | None, str, tuple[str, ...]]:
        """The arguments, or what is wrong with them; and the repairs that they took."""
        text = "".join(self.pieces)
        given = text if self.given is None else self.given
        if self.freeform and not self.unwraps:
            return {"input": given if isinstance(given, str) else encode_json(given)}, "", ()
        arguments, problem, repairs = decode_arguments(CallDraft(self.name, given))
        if arguments is None or not self.unwraps:
            return arguments, problem, repairs
        texts = [value for value in arguments.values() if isinstance(value, str)]
        if len(texts) != 1:
            return None, "the tool takes one text, and the call has none or several", ()
        renamed = () if "input" in arguments else ("wrong-input-key",)
        return {"input": texts[0]}, "", (*repairs, *renamed)


class CallAssembler:
    """Tells what happens to the calls of one reply.

    Only one is open at a time, and nothing comes between its start and its end: the pieces of those
    that follow, and all else, wait for it. Unless `incremental`, a call is told only when it is
    whole, and its arguments are JSON for certain.
    """

    def __init__(
        self, names: ToolNames, new_id: Callable[[], str], *, incremental: bool = False
    ) -> None:
        self._names = names
        self._new_id = new_id
        self._incremental = incremental
        self._open: dict[Hashable, _Call] = {}
        self._waiting: list[Event] = []
        self._count = 0
        self.completed_count = 0
        """How many calls were made."""

    @property
    def is_open(self) -> bool:
        """Whether a call has begun that is not over."""
        return bool(self._open)

    def start(
        self,
        key: Hashable,
        identity: str,
        name: str,
        *,
        namespace: str | None = None,
        freeform: bool = False,
        extra: Json | None = None,
    ) -> Iterator[Event]:
        """A call begins. `key` is what its pieces go by; one that is open does not begin again."""
        if key in self._open:
            return
        yield from self._end_what_is_whole()
        identity = identity or self._new_id()
        call = _Call(identity, name, namespace, freeform, dict(extra or {}))
        self._mean(call)
        self._open[key] = call
        if len(self._open) == 1:
            yield from self._announce(call)

    def append(self, key: Hashable, piece: str) -> Iterator[Event]:
        """More of a call's arguments."""
        call = self._open.get(key)
        if call is not None:
            call.add(piece)
            if call.index >= 0 and not call.unwraps and piece:
                yield ArgumentsDelta(call.index, piece)
        elif piece.strip():
            yield Note("late-arguments", NOTES["late-arguments"], piece[:_SHOWN])

    def end(
        self,
        key: Hashable,
        arguments: Any = None,
        *,
        cut: bool = False,
        extra: Json | None = None,
    ) -> Iterator[Event]:
        """A call is over; with its arguments, where they came in one piece. If the reply was `cut`
        short in it, it is not made."""
        call = self._open.get(key)
        if call is None:
            return
        call.is_over, call.is_cut = True, cut
        call.given = arguments
        call.extra |= extra or {}
        while self._open:
            first, call = next(iter(self._open.items()))
            if not call.is_over:
                return
            del self._open[first]
            yield from self._ended(call)
            yield from self._next()

    def end_if_complete(self, key: Hashable) -> Iterator[Event]:
        """A call is over, unless it lacks something: then what follows has to tell whether the
        reply was cut short in it."""
        call = self._open.get(key)
        if call is not None and call.is_whole():
            yield from self.end(key)

    def add_whole(
        self,
        identity: str,
        name: str,
        arguments: Any,
        *,
        freeform: bool = False,
        extra: Json | None = None,
    ) -> list[Event]:
        """A call that comes in one piece."""
        if self._open:
            key = object()
            begun = list(self.start(key, identity, name, freeform=freeform, extra=extra))
            return [*begun, *self.end(key, {} if arguments is None else arguments)]
        call = _Call(identity or self._new_id(), name, None, freeform, dict(extra or {}))
        self._mean(call)
        if isinstance(arguments, str):
            call.pieces = [arguments]
        else:
            call.given = {} if arguments is None else arguments
        return self._ended(call)

    def emit(self, event: Event) -> Iterable[Event]:
        """Something else happens: now, or after the call that is open."""
        return self._beside_calls(event) if self._open else (event,)

    def _beside_calls(self, event: Event) -> Iterator[Event]:
        yield from self._end_what_is_whole()
        if self._open:
            self._waiting.append(event)
        else:
            yield event

    def finish(self, reason: StopReason = "stop") -> Iterator[Event]:
        """No more pieces come. Where the reply was cut short, a call that lacks something is not
        made."""
        for key, call in list(self._open.items()):
            yield from self.end(key, cut=reason in TRUNCATING_REASONS and not call.is_whole())

    def adjust_stop_reason(self, reason: StopReason) -> StopReason:
        """Why the reply stops: for its calls, if it has any. Few APIs tell that apart."""
        if self.completed_count:
            return "calls" if reason == "stop" else reason
        return "stop" if reason == "calls" else reason

    def _end_what_is_whole(self) -> Iterator[Event]:
        """The first call is over if nothing is missing from it: few APIs say that it is."""
        while self._open:
            key, call = next(iter(self._open.items()))
            if not call.is_whole():
                return
            yield from self.end(key)

    def _next(self) -> Iterator[Event]:
        """What had to wait for a call."""
        if self._open:
            yield from self._announce(next(iter(self._open.values())))
        else:
            waiting, self._waiting = self._waiting, []
            yield from waiting

    def _mean(self, call: _Call) -> None:
        """Find the tool that a call's name means."""
        tool = self._names.find_tool(call.name, call.namespace)
        if tool:
            call.name, call.namespace = tool.name, tool.namespace
            call.unwraps = tool.freeform and not call.freeform
            call.freeform = call.freeform or tool.freeform

    def _announce(self, call: _Call) -> Iterator[Event]:
        if self._incremental:
            yield self._begin(call)
            if call.pieces and not call.unwraps:
                yield ArgumentsDelta(call.index, "".join(call.pieces))

    def _begin(self, call: _Call) -> CallStart:
        call.index = self._count
        self._count += 1
        return CallStart(
            call.index, call.id, call.name, "native", call.namespace, call.freeform, call.extra
        )

    def _ended(self, call: _Call) -> list[Event]:
        arguments, problem, repairs = call.arguments()
        text = "".join(call.pieces)
        raw = text or ("" if call.given is None else encode_json(call.given))
        if arguments is None or call.is_cut:
            code = "truncated" if call.is_cut else "undecodable-arguments"
            problem = problem or NOTES[code]
            index = call.index if call.index >= 0 else None
            rejection = Rejection(raw, code, problem, "$.arguments", call.name)
            return [CallRejected(rejection, index), Note(code, problem, raw[:_SHOWN])]
        ended: list[Event] = [
            Note(f"repaired-{repair}", NOTES[f"repaired-{repair}"], raw[:_SHOWN])
            for repair in repairs
        ]
        made = ToolCall(
            id=call.id,
            name=call.name,
            arguments=arguments,
            namespace=call.namespace,
            freeform=call.freeform,
            extra=call.extra,
        )
        if call.index < 0:
            ended.append(self._begin(call))
        if not self._incremental or call.unwraps:
            is_object = not repairs and (call.freeform or text.lstrip()[:1] == "{")
            ended.append(ArgumentsDelta(call.index, text if is_object else made.input))
        self.completed_count += 1
        ended.append(CallEnd(call.index, made))
        return ended
