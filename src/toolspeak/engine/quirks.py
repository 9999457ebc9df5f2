"""Adapt an encoded request to a provider's quirks."""

from __future__ import annotations

import hashlib
import string
from typing import Any

from ..types import Note, Quirks

Shape = dict[str, Any]
_LETTERS = string.ascii_letters + string.digits


def apply_quirks(body: Shape, quirks: Quirks) -> tuple[Shape, tuple[Note, ...]]:
    """Return the request as the provider accepts it, with a note for every dropped field."""
    if not (quirks.rename or quirks.replace or quirks.drop or _changes_messages(quirks)):
        return body, ()
    out: Shape = {}
    for key, value in body.items():
        if key not in quirks.drop:
            known = quirks.replace.get(key, {})
            changed = known.get(value, value) if isinstance(value, str) else value
            out[quirks.rename.get(key, key)] = changed
    messages = body.get("messages")
    if isinstance(messages, list) and _changes_messages(quirks):
        out["messages"] = [_adapt_message(message, quirks) for message in messages]
    lost = [key for key in quirks.drop if key in body]
    lost += [
        f"messages[].{key}"
        for key in quirks.drop_in_messages
        if isinstance(messages, list) and any(key in message for message in messages)
    ]
    notes = (
        Note("unsupported", f"this provider does not support `{key}`; dropped", f"$.{key}")
        for key in lost
    )
    return out, tuple(notes)


def _changes_messages(quirks: Quirks) -> bool:
    return bool(quirks.drop_in_messages or quirks.call_ids)


def _adapt_message(message: Shape, quirks: Quirks) -> Shape:
    out = {key: value for key, value in message.items() if key not in quirks.drop_in_messages}
    return _fit_call_ids(out, quirks.call_ids) if quirks.call_ids else out


def _fit_call_ids(message: Shape, length: int) -> Shape:
    """A message whose calls have ids of this length. A call and its result get the same."""
    out = dict(message)
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [{**call, "id": _fit_id(call["id"], length)} for call in calls]
    if answered := message.get("tool_call_id"):
        out["tool_call_id"] = _fit_id(answered, length)
    return out


def _fit_id(identity: str, length: int) -> str:
    if len(identity) == length and set(identity) <= set(_LETTERS):
        return identity
    digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=32).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)[:length]
