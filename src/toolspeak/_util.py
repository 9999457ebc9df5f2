"""What is made only once of what comes again and again: an agent's tools are in each request.

    @memoize_by_identity          of the very same object
    def names(tools): …

Of the same JSON the same tools are made (`wires/fields.py`), so that all that is made of those is
found again too. None of it may be changed by whoever gets it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Argument = TypeVar("Argument")
Result = TypeVar("Result")
_CACHE_SIZE = 128


def memoize_by_identity(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """A function that remembers what it made of the last objects that it was given. They are told
    apart by which they are, and not by what they say, which would take longer than to make it."""
    cache: dict[int, tuple[Argument, Result]] = {}

    @wraps(function)
    def cached(given: Argument) -> Result:
        # What is kept holds its object, so that no other has the same id.
        found = cache.get(id(given))
        if found is None:
            found = cache[id(given)] = (given, function(given))
            # Others may do the same at the same time.
            for oldest in list(cache)[:-_CACHE_SIZE]:
                cache.pop(oldest, None)
        return found[1]

    return cached


def state_directory() -> Path:
    """For what is remembered: histories, and which gateways run."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "toolspeak"


_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What could move the cursor, recolour the screen, turn the text around, or cannot be seen."""


def escape_for_terminal(text: str) -> str:
    """A text that does nothing to a terminal but stand there."""
    return _UNSAFE_CHARACTERS.sub(
        lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n")
    )


def encode_json(value: Any) -> str:
    """Compact JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
