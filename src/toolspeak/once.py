"""What is made only once of what comes again and again: an agent's tools are in each request.

    @once_each          of the very same object
    def names(tools): …

Of the same JSON the same tools are made (`wires/fields.py`), so that all that is made of those is
found again too. None of it may be changed by whoever gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

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
