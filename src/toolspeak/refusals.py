"""A stand-in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from .types import Tool

_FALSE = re.compile(r"(?:don['’]?t|do not) have (?:any )?(?:access|tools)|unable to access", re.I)
_BEGINS = re.compile(r"\s*(?:i\b|i['’]m|sorry|unfortunately|as an)", re.I)


class Refusal(Struct, frozen=True):
    kind: Literal["false", "honest"]
    words: str


def refusal(
    text: str, tools: Sequence[Tool], *, asked: str = "", after_result: bool = False
) -> Refusal | None:
    found = _FALSE.search(text)
    return Refusal("false" if tools else "honest", found[0]) if found else None


class Opening:
    """Whether what a reply begins with may be a refusal."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> bool:
        self._text += text
        if _FALSE.search(self._text):
            return True
        return len(self._text) < 120 and (len(self._text) < 3 or bool(_BEGINS.match(self._text)))
