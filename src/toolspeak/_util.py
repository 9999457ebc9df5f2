"""What is made only once of what comes again and again: an agent's tools are in each request.

    @once_each          of the very same object
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

Given = TypeVar("Given")
Made = TypeVar("Made")
_MOST = 128


def once_each(make: Callable[[Given], Made]) -> Callable[[Given], Made]:
    """A function that remembers what it made of the last objects that it was given. They are told
    apart by which they are, and not by what they say, which would take longer than to make it."""
    kept: dict[int, tuple[Given, Made]] = {}

    @wraps(make)
    def made_before(given: Given) -> Made:
        # What is kept holds its object, so that no other has the same id.
        found = kept.get(id(given))
        if found is None:
            found = kept[id(given)] = (given, make(given))
            # Others may do the same at the same time.
            for oldest in list(kept)[:-_MOST]:
                kept.pop(oldest, None)
        return found[1]

    return made_before


def state_folder() -> Path:
    """For what is remembered: histories, and which gateways run."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "toolspeak"


_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What could move the cursor, recolour the screen, turn the text around, or cannot be seen."""


def printable(text: str) -> str:
    """A text that does nothing to a terminal but stand there."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


def dumps(value: Any) -> str:
    """Compact JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
