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
"""In the `extra` of a call or result: the id that it came with, if it was replaced; "" for none."""
_ANY_NAME = ("", "")


class CallHistory:
    """The calls of a conversation so far, and the notes on reading them."""

    def __init__(self, notes: list[Note] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self._names: dict[str, str] = {}
        self._unanswered: set[str] = set()
        self._waiting: dict[tuple[str, str], deque[str]] = {}
        """Ids of calls in order: by exact name, by name without case and punctuation, and all."""
        self._unindexed: list[ToolCall] = []
        """Calls missing from `_waiting`. Most results have ids, so it is built on demand."""
        self._count = 0

    def new_id(self) -> str:
        """Return an id for a call without one: the same each time the conversation is read."""
        self._count = max(self._count, len(self._names) + 1)
        while f"call_{self._count}" in self._names:
            self._count += 1
        return f"call_{self._count}"

    def add(self, call: ToolCall) -> ToolCall:
        self._names[call.id] = call.name
        self._unanswered.add(call.id)
        self._unindexed.append(call)
        return call

    def decode_call(
        self, identity: str, name: str, arguments: Any, path: str, **fields: Any
    ) -> ToolCall:
        """Add a call whose arguments may be JSON text. Text that cannot be decoded is kept."""
        extra: Json = dict(fields.pop("extra", None) or {})
        decoded, problem, repairs = decode_arguments(CallDraft(name, arguments))
        if decoded is None:
            self.notes.append(Note("undecodable-arguments", problem, path))
        if isinstance(arguments, str) and (decoded is None or encode_json(decoded) != arguments):
            extra[ARGUMENTS_TEXT] = arguments
        message = f"Repaired in an earlier call of {name!r}."
        self.notes.extend(Note(f"repaired-{repair}", message, path) for repair in repairs)
        identity = identity or self.new_id()
        call = ToolCall(id=identity, name=name, arguments=decoded or {}, extra=extra, **fields)
        return self.add(call)

    def find_answered_call(
        self, identity: str = "", name: str = "", *, is_loose: bool = False
    ) -> tuple[str, str]:
        """Return the id and name of the call that a result answers.

        That is the call with this id, or else the first one without a result, by `name` if
        possible. Where ids are loose, an unknown id counts as none.
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
            message = f"The result for {name or identity!r} answers the call of {found_name!r}."
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
