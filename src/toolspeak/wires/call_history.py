"""The calls of a conversation, and which result answers which call."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from .._util import encode_json
from ..calls.drafts import CallDraft, decode_arguments
from ..types import Note, ToolCall
from .fields import ARGUMENTS_TEXT, PRIVATE, Json

ORIGINAL_ID = f"{PRIVATE}id"
"""In the `extra` of a call or result: the id that it came with, if that is another; "" for none."""


class CallHistory:
    """The calls of a conversation so far, to tell whose result a result is."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unanswered: set[str] = set()
        self._waiting: dict[tuple[str, str], deque[str]] = {}
        """The calls in their order: of a name, of a name however it is spelled, and all."""
        self._unsorted: list[ToolCall] = []
        """The calls that are not there yet: most results have ids, and nobody asks."""
        self._count = 0

    def new_id(self) -> str:
        """An id for a call that came without one: the same each time the conversation is read."""
        self._count = max(self._count, len(self._names) + 1)
        while f"call_{self._count}" in self._names:
            self._count += 1
        return f"call_{self._count}"

    def add(self, call: ToolCall) -> ToolCall:
        """Remember a call."""
        self._names[call.id] = call.name
        self._unanswered.add(call.id)
        self._unsorted.append(call)
        return call

    def find_answered_call(
        self, identity: str = "", name: str = "", *, loose: bool = False
    ) -> tuple[str, str]:
        """The id and the name of the call that a result answers: the one with that id, or else the
        first without a result, of that name if there is one. Where ids are `loose`, one that no
        call has is none."""
        if not identity or (loose and identity not in self._names):
            identity = self._first(name) or identity or self.new_id()
        self._unanswered.discard(identity)
        return identity, self._names.setdefault(identity, name) or name

    def _first(self, name: str) -> str:
        for call in self._unsorted:
            for key in _spellings(call.name):
                self._waiting.setdefault(key, deque()).append(call.id)
        self._unsorted = []
        for key in _spellings(name) if name else [_ALL]:
            waiting = self._waiting.get(key)
            while waiting and waiting[0] not in self._unanswered:
                waiting.popleft()
            if waiting:
                return waiting[0]
        return ""


_ALL = ("", "")


def _spellings(name: str) -> list[tuple[str, str]]:
    return [("exact", name), ("alike", re.sub(r"[\W_]", "", name).casefold()), _ALL]


def match_result(
    history: CallHistory, given: str, named: str, path: str, notes: list[Note]
) -> tuple[str, str, Json]:
    """The id and the name of the call that a result answers, where results need not say; and the
    id that it came with, to ride along."""
    identity, name = history.find_answered_call(given, named, loose=True)
    if identity == given:
        return identity, name, {}
    if given or named not in ("", name):
        message = f"a result of {named or given!r} is taken for that of a call of {name!r}"
        notes.append(Note("name-corrected", message, path))
    return identity, name, {ORIGINAL_ID: given}


def decode_call(
    identity: str, name: str, arguments: Any, path: str, notes: list[Note], **fields: Any
) -> ToolCall:
    """A call of the history whose arguments are JSON text. What cannot be read is kept as it is."""
    extra: Json = dict(fields.pop("extra", None) or {})
    decoded, problem, repairs = decode_arguments(CallDraft(name, arguments))
    if decoded is None:
        notes.append(Note("undecodable-arguments", problem, path))
    if isinstance(arguments, str) and (decoded is None or encode_json(decoded) != arguments):
        extra[ARGUMENTS_TEXT] = arguments
    notes.extend(
        Note(f"repaired-{repair}", f"in the history of {name!r}", path) for repair in repairs
    )
    return ToolCall(id=identity, name=name, arguments=decoded or {}, extra=extra, **fields)
