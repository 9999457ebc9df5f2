"""Helpers that all layers may use: memoization, JSON, ids, terminal escapes, and the state
directory."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Argument = TypeVar("Argument")
Result = TypeVar("Result")
_CACHE_SIZE = 128


def memoize_by_identity(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """Cache a function by the identity of its argument, which is cheaper than comparing values.

    An agent sends the same tools with each request, and the wires decode the same JSON to the same
    tools (`wires/content.py`). Results are shared: nobody may change them.
    """
    cache: dict[int, tuple[Argument, Result]] = {}

    @wraps(function)
    def call_cached(argument: Argument) -> Result:
        # The entry keeps its object alive, so that no other object gets the same id.
        found = cache.get(id(argument))
        if found is None:
            found = cache[id(argument)] = (argument, function(argument))
            # Other threads may remove entries at the same time.
            for oldest in list(cache)[:-_CACHE_SIZE]:
                cache.pop(oldest, None)
        return found[1]

    return call_cached


def state_directory() -> Path:
    """Return the folder for files that outlive a run: chat histories, and the list of running
    gateways."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "toolspeak"


def create_private_file(path: Path) -> None:
    """Create a file and its folder, readable only by their owner, unless they exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, change colours or the direction of text, or are invisible."""


def escape_for_terminal(text: str) -> str:
    """Escape the characters of a text that would affect a terminal."""
    return _UNSAFE_CHARACTERS.sub(
        lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n")
    )


def encode_json(value: Any) -> bytes:
    """Return a value as compact JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def format_json(value: Any) -> str:
    """Return a value as compact JSON text."""
    return encode_json(value).decode()


def random_id() -> str:
    """Return a random id. It is not a secret."""
    return f"{_RANDOM.getrandbits(96):024x}"


def _seed_random() -> None:
    _RANDOM.seed(secrets.randbits(256))


_RANDOM = random.Random()  # noqa: S311 - ids must be unique, not secret
_seed_random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_seed_random)
