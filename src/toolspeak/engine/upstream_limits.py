"""What an upstream cannot take: fields and ids that it rejects, prompts beyond its context.

Ollama and others silently truncate a prompt that does not fit, and with it the tools. The context
window to ask for, and the number of tokens that the upstream says it read, tell.
"""

from __future__ import annotations

import hashlib
import string
from typing import Any

from msgspec import to_builtins

from ..calls.json_values import iter_strings
from ..types import Note, Quirks, Request, Usage
from ..wires.framing import encode_json

Shape = dict[str, Any]
_LETTERS = string.ascii_letters + string.digits
_MIN_CHARACTERS_PER_TOKEN = 3
"""Few texts have fewer: a window is rather chosen too large."""
_MAX_CHARACTERS_PER_TOKEN = 8
"""Hardly any text has more: a prompt is rather underestimated before it is called truncated."""
_DEFAULT_WINDOW, _REPLY_TOKENS = 4096, 2048
_MIN_READ_TOKENS = 1024
_LONGEST_WORD = 200
"""A longer string without a space is an image or another file."""


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


def fits_context(request: Request, context: int | None) -> bool:
    """Return True if the request certainly fits: no token is shorter than a byte."""
    content = to_builtins((request.messages, request.tools or ()))
    return context is None or len(encode_json(content)) <= context


def choose_context_window(body: Any, max_tokens: int | None, context: int | None) -> int | None:
    """Return the context window to ask for, in tokens; None if every server's default is enough.

    It is a power of two, because a server reloads its model for each different size.
    """
    if context is not None:
        return context
    reply = min(max_tokens or _REPLY_TOKENS, _REPLY_TOKENS)
    needed = _count_characters(body) // _MIN_CHARACTERS_PER_TOKEN + reply
    window = _DEFAULT_WINDOW
    while window < needed:
        window *= 2
    return window if window > _DEFAULT_WINDOW else None


def note_truncated_prompt(body: Any, data: bytes, usage: Usage | None) -> Note | None:
    """Return a note if the upstream read far fewer tokens than the request has."""
    read = usage.input + usage.cached if usage else 0
    if read < _MIN_READ_TOKENS:
        # Some upstreams count only uncached tokens, which may be next to none.
        return None
    if read >= len(data) // _MAX_CHARACTERS_PER_TOKEN:
        # There are no more characters than bytes, and counting them takes longer.
        return None
    least = _count_characters(body) // _MAX_CHARACTERS_PER_TOKEN
    if read >= least:
        return None
    message = (
        f"the prompt has at least {least} tokens, but the upstream read only {read}: its beginning "
        "was cut off; give the model a larger context"
    )
    return Note("prompt-truncated", message)


def _count_characters(body: Any) -> int:
    strings = iter_strings(body)
    return sum(len(text) for text in strings if len(text) < _LONGEST_WORD or " " in text)
