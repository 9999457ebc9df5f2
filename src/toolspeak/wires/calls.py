"""Calls in both directions: `CallHistory` reads those of a conversation, with their results;
`CallAssembler` assembles those of a reply from the pieces in which an API sends them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from .._util import format_json
from ..calls.drafts import CallDraft, decode_arguments, find_freeform_input
from ..errors import WireError
from ..events import ArgumentsDelta, CallEnd, CallRejected, CallStart, Event
from ..notes import NOTES
from ..types import Note, Rejection, StopReason, ToolCall
from .encoding import ToolNames
from .fields import ARGUMENTS_TEXT, PRIVATE, Json

ORIGINAL_ID = f"{PRIVATE}id"
"""In the `extra` of a call or result: the id that it came with, if it was replaced; "" for none."""
_ANY_NAME = ("", "")
_STRUCTURE = re.compile(r'["\\{}]')
_MAX_NOTE = 1000
TRUNCATING_REASONS: frozenset[StopReason] = frozenset({"length", "filter", "error"})
"""Stop reasons that cut a reply off in the middle."""


# Requests.


class CallHistory:
    """The calls of a conversation so far, and the notes on reading them."""

    def __init__(self, notes: list[Note] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self._names: dict[str, str] = {}
        self._unanswered: set[str] = set()
        self._waiting: dict[tuple[str, str], deque[str]] = {}
        """Ids of the calls in order, under three keys each: the exact name, the name without case
        and punctuation, and `_ANY_NAME`."""
        self._unindexed: list[ToolCall] = []
        """Calls that are not in `_waiting` yet: it is filled on demand, since most results have
        ids."""
        self._count = 0

    def new_id(self) -> str:
        """Return an id for a call without one: the same each time the conversation is read."""
        self._count = max(self._count, len(self._names) + 1)
        while f"call_{self._count}" in self._names:
            self._count += 1
        return f"call_{self._count}"

    def decode_call(
        self,
        identity: str,
        name: str,
        arguments: Any,
        path: str,
        *,
        namespace: str | None = None,
        freeform: bool = False,
        extra: Json | None = None,
    ) -> ToolCall:
        """Add a call whose arguments are an object, JSON text or the input of a freeform tool. Text
        that cannot be decoded is kept in `extra`."""
        identity, extra = identity or self.new_id(), dict(extra or {})
        if freeform:
            arguments = {"input": arguments}
        if not isinstance(arguments, dict):
            arguments = self._decode_arguments(name, arguments, path, extra)
        call = ToolCall(
            id=identity,
            name=name,
            arguments=arguments,
            namespace=namespace,
            freeform=freeform,
            extra=extra,
        )
        self._names[identity] = name
        self._unanswered.add(identity)
        self._unindexed.append(call)
        return call

    def _decode_arguments(self, name: str, arguments: Any, path: str, extra: Json) -> Json:
        decoded, problem, repairs = decode_arguments(CallDraft(name, arguments))
        if decoded is None:
            self.notes.append(Note("undecodable-arguments", problem, path))
        if isinstance(arguments, str) and (decoded is None or format_json(decoded) != arguments):
            extra[ARGUMENTS_TEXT] = arguments
        for code in (f"repaired-{repair}" for repair in repairs):
            message = f"In an earlier call to {name!r}: {NOTES[code]}"
            self.notes.append(Note(code, message, path))
        return decoded or {}

    def find_answered_call(
        self, identity: str = "", name: str = "", *, is_loose: bool = False
    ) -> tuple[str, str]:
        """Return the id and name of the call that a result answers.

        That is the call with this id, or else the first one without a result, by `name` if
        possible. With `is_loose`, an unknown id counts as missing.
        """
        if not identity or (is_loose and identity not in self._names):
            identity = self._find_unanswered(name) or identity or self.new_id()
        self._unanswered.discard(identity)
        return identity, self._names.setdefault(identity, name) or name

    def match_result(self, identity: str, name: str, path: str) -> tuple[str, str, Json]:
        """Return the id and name of the answered call, for an API whose results may lack an id;
        and an `extra` with the result's own id if that differs."""
        found, found_name = self.find_answered_call(identity, name, is_loose=True)
        if found == identity:
            return found, found_name, {}
        if identity or name not in ("", found_name):
            message = (
                f"The result for {name or identity!r} was matched to the call to {found_name!r}."
            )
            self.notes.append(Note("name-corrected", message, path))
        return found, found_name, {ORIGINAL_ID: identity}

    def _find_unanswered(self, name: str) -> str:
        for call in self._unindexed:
            for key in _name_keys(call.name):
                self._waiting.setdefault(key, deque()).append(call.id)
        self._unindexed = []
        for key in _name_keys(name) if name else [_ANY_NAME]:
            waiting = self._waiting.get(key)
            while waiting and waiting[0] not in self._unanswered:
                waiting.popleft()
            if waiting:
                return waiting[0]
        return ""


def _name_keys(name: str) -> list[tuple[str, str]]:
    normalized = re.sub(r"[\W_]", "", name).casefold()
    return [("exact", name), ("normalized", normalized), _ANY_NAME]


# Replies.


class _BraceCounter:
    """Counts the braces of JSON as it arrives, except for those inside strings."""

    __slots__ = ("_depth", "_in_string", "_is_escaped", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False
        """An object was opened and closed again."""
        self._depth = 0
        self._in_string = self._is_escaped = False

    def read(self, text: str) -> None:
        skipped = 0 if self._is_escaped else -1
        for match in _STRUCTURE.finditer(text):
            at, mark = match.start(), match[0]
            if at == skipped:
                continue
            if mark == "\\":
                skipped = at + 1 if self._in_string else -1
            elif mark == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                continue
            elif mark == "{":
                self._depth += 1
                self.is_closed = False
            elif self._depth:
                self._depth -= 1
                self.is_closed = not self._depth
        self._is_escaped = skipped == len(text)


class _OpenCall(Struct, eq=False):
    """A call that has not ended."""

    id: str
    name: str
    namespace: str | None
    freeform: bool
    extra: Json
    unwraps: bool = False
    """The tool is freeform, and the API sends its text as the argument `input`."""
    index: int = -1
    """Position among the announced calls; -1 before."""
    pieces: list[str] = []
    whole_arguments: Any = None
    """Arguments that came whole."""
    has_ended: bool = False
    is_cut: bool = False
    braces: _BraceCounter | None = None
    """None for a call that comes whole."""

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.braces = self.braces or _BraceCounter()
        self.braces.read(piece)

    def is_whole(self) -> bool:
        """Return True if the pieces so far form a whole object."""
        return self.braces is not None and self.braces.is_closed and not self.freeform

    def decode(self) -> tuple[Json | None, str, tuple[str, ...]]:
        """Return the arguments or None, the problem with them, and the repairs made."""
        text = "".join(self.pieces)
        given = text if self.whole_arguments is None else self.whole_arguments
        if self.freeform and not self.unwraps:
            return {"input": given if isinstance(given, str) else format_json(given)}, "", ()
        arguments, problem, repairs = decode_arguments(CallDraft(self.name, given))
        if arguments is None or not self.unwraps:
            return arguments, problem, repairs
        text = find_freeform_input(arguments)
        if text is None:
            return None, "the tool takes exactly one text, in `input`", ()
        renamed = () if "input" in arguments else ("wrong-input-key",)
        return {"input": text}, "", (*repairs, *renamed)


class CallAssembler:
    """Turns the pieces of a reply's calls into events.

    Nothing comes between the start and the end of a call: later calls and all other events are held
    back meanwhile. Unless `incremental`, a call is emitted once it is whole and its arguments are
    known to be JSON.
    """

    def __init__(
        self, names: ToolNames, new_id: Callable[[], str], *, incremental: bool = False
    ) -> None:
        self._names = names
        self._new_id = new_id
        self._incremental = incremental
        self._open: dict[Hashable, _OpenCall] = {}
        self._held_back: list[Event] = []
        self._count = 0
        self._completed_count = 0
        """Calls that ended with valid arguments."""

    @property
    def is_open(self) -> bool:
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
        """Start the call that `key` identifies, unless it is open already."""
        if key in self._open:
            return
        yield from self._end_whole_calls()
        self._open[key] = call = self._new_call(identity, name, namespace, freeform, extra)
        if len(self._open) == 1:
            yield from self._announce(call)

    def append(self, key: Hashable, piece: str) -> Iterator[Event]:
        """Add a piece of a call's arguments."""
        call = self._open.get(key)
        if call is not None:
            call.add(piece)
            if call.index >= 0 and not call.unwraps and piece:
                yield ArgumentsDelta(call.index, piece)
        elif piece.strip():
            yield Note("late-arguments", NOTES["late-arguments"], piece[:_MAX_NOTE])

    def end(
        self,
        key: Hashable,
        arguments: Any = None,
        *,
        cut: bool = False,
        extra: Json | None = None,
    ) -> Iterator[Event]:
        """End a call, with its arguments if they came whole. A call that was `cut` short is
        rejected."""
        call = self._open.get(key)
        if call is None:
            return
        call.has_ended, call.is_cut = True, cut
        call.whole_arguments = arguments
        call.extra |= extra or {}
        while self._open:
            first, call = next(iter(self._open.items()))
            if not call.has_ended:
                return
            del self._open[first]
            yield from self._end_events(call)
            yield from self._release_next()

    def end_if_complete(self, key: Hashable) -> Iterator[Event]:
        """End a call if its arguments are whole; otherwise later frames decide whether it was cut
        short."""
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
        """Add a call that comes in one piece."""
        if self._open:
            key = object()
            begun = list(self.start(key, identity, name, freeform=freeform, extra=extra))
            return [*begun, *self.end(key, {} if arguments is None else arguments)]
        call = self._new_call(identity, name, None, freeform, extra)
        if isinstance(arguments, str):
            call.pieces = [arguments]
        else:
            call.whole_arguments = {} if arguments is None else arguments
        return self._end_events(call)

    def isolate(
        self, decode: Callable[..., Iterable[Event]], call: Any, *options: Any
    ) -> Iterator[Event]:
        """Decode a call. If it is malformed, reject it alone, so that the others survive."""
        try:
            yield from decode(call, *options)
        except WireError as error:
            yield from self.reject(call, error.problem, error.path)

    def reject(self, call: Any, problem: str, path: str = "$") -> Iterator[Event]:
        raw = format_json(call)
        yield from self.emit(CallRejected(Rejection(raw, "malformed", problem, path)))
        yield from self.emit(Note("malformed", problem, raw[:_MAX_NOTE]))

    def emit(self, event: Event) -> Iterable[Event]:
        """Return another event: now, or held back until the open call has ended."""
        return self._emit_after_calls(event) if self._open else (event,)

    def _emit_after_calls(self, event: Event) -> Iterator[Event]:
        yield from self._end_whole_calls()
        if self._open:
            self._held_back.append(event)
        else:
            yield event

    def finish(self, reason: StopReason = "stop") -> Iterator[Event]:
        """End all calls. If the stop reason says that the reply was cut short, incomplete calls are
        rejected."""
        for key, call in list(self._open.items()):
            yield from self.end(key, cut=reason in TRUNCATING_REASONS and not call.is_whole())

    def adjust_stop_reason(self, reason: StopReason) -> StopReason:
        """Return "calls" where the reply has calls, which few APIs report reliably."""
        if self._completed_count:
            return "calls" if reason == "stop" else reason
        return "stop" if reason == "calls" else reason

    def _end_whole_calls(self) -> Iterator[Event]:
        """End the first calls that are whole, since few APIs announce the end of a call."""
        while self._open:
            key, call = next(iter(self._open.items()))
            if not call.is_whole():
                return
            yield from self.end(key)

    def _release_next(self) -> Iterator[Event]:
        """Emit what was held back for a call."""
        if self._open:
            yield from self._announce(next(iter(self._open.values())))
        else:
            held_back, self._held_back = self._held_back, []
            yield from held_back

    def _new_call(
        self, identity: str, name: str, namespace: str | None, freeform: bool, extra: Json | None
    ) -> _OpenCall:
        """Return a call of the tool that this name refers to."""
        call = _OpenCall(identity or self._new_id(), name, namespace, freeform, dict(extra or {}))
        tool = self._names.find_tool(name, namespace)
        if tool:
            call.name, call.namespace = tool.name, tool.namespace
            call.unwraps = tool.freeform and not freeform
            call.freeform = freeform or tool.freeform
        return call

    def _announce(self, call: _OpenCall) -> Iterator[Event]:
        if self._incremental:
            yield self._start_event(call)
            if call.pieces and not call.unwraps:
                yield ArgumentsDelta(call.index, "".join(call.pieces))

    def _start_event(self, call: _OpenCall) -> CallStart:
        call.index = self._count
        self._count += 1
        return CallStart(
            call.index, call.id, call.name, "native", call.namespace, call.freeform, call.extra
        )

    def _end_events(self, call: _OpenCall) -> list[Event]:
        arguments, problem, repairs = call.decode()
        text = "".join(call.pieces)
        raw = text or _as_text(call.whole_arguments)
        if arguments is None or call.is_cut:
            code = "truncated" if call.is_cut else "undecodable-arguments"
            problem = problem or NOTES[code]
            index = call.index if call.index >= 0 else None
            rejection = Rejection(raw, code, problem, "$.arguments", call.name)
            return [CallRejected(rejection, index), Note(code, problem, raw[:_MAX_NOTE])]
        events: list[Event] = [
            Note(f"repaired-{repair}", NOTES[f"repaired-{repair}"], raw[:_MAX_NOTE])
            for repair in repairs
        ]
        assembled = ToolCall(
            id=call.id,
            name=call.name,
            arguments=arguments,
            namespace=call.namespace,
            freeform=call.freeform,
            extra=call.extra,
        )
        if call.index < 0:
            events.append(self._start_event(call))
        if not self._incremental or call.unwraps:
            is_object = text and not repairs and (call.freeform or text.lstrip()[:1] == "{")
            events.append(ArgumentsDelta(call.index, text if is_object else assembled.input))
        self._completed_count += 1
        events.append(CallEnd(call.index, assembled))
        return events


def _as_text(arguments: Any) -> str:
    """Return, as text, arguments that came whole."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else format_json(arguments)
