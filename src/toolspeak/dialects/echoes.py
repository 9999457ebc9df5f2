"""Calls that stand in what tools and documents brought in, so that none is made just because the
model repeats it.

The guard knows verbatim and re-serialised echoes: in any wrapper, in JSON strings, in HTML, in
quoted or numbered lines, or cut in two between results. It does not claim to know paraphrases.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ..calls import Key, key_of
from ..conversation import sides
from ..literals import unescape
from ..schema import strings_in

_MARGIN = re.compile(
    r"^[ \t]*+(?:(?:\d++[ \t]*+[→|:\t]|[>|+#*\-]++|//++|\d++[.)])[ \t]?+){1,8}+", re.M
)
"""What stands before every line of a quoted mail, a numbered file, a diff, a comment, a list."""


class Echoes:
    """Whether a call only repeats what a conversation's foreign parts hold. They are read when a
    call is first asked about."""

    def __init__(self, context: Any, calls_in: Callable[[str], Iterable[Key]]) -> None:
        self._texts = sides(context)
        self._calls_in = calls_in

    def __call__(self, name: str, arguments: Mapping[str, Any], raw: str) -> bool:
        """Whether the call, or the text it was read from, stands there and not in the request."""
        foreign, own = self._sides
        call, raw = key_of(name, arguments), _one_line(raw)
        return foreign.holds(call, raw) and not own.holds(call, raw)

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        foreign, own = self._texts
        return _Side(foreign, self._calls_in), _Side(own, self._calls_in)


class _Side:
    """What was brought in, or what the user said."""

    def __init__(self, texts: list[str], calls_in: Callable[[str], Iterable[Key]]) -> None:
        joined = ["".join(texts), "\n".join(texts)] if len(texts) > 1 else []
        spellings = (spelling for text in (*texts, *joined) for spelling in _spellings(text))
        self._texts = tuple(dict.fromkeys(spellings))
        self._calls_in = calls_in

    def holds(self, call: Key, raw: str) -> bool:
        return call in self._calls or (raw != "" and any(raw in text for text in self._lines))

    @cached_property
    def _calls(self) -> frozenset[Key]:
        return frozenset(call for text in self._texts for call in self._calls_in(text))

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        return tuple(map(_one_line, self._texts))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _spellings(text: str) -> Iterator[str]:
    """The text, and what is hidden in it by the ways texts are carried in other texts."""
    yield text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    for inner in strings_in(value):
        yield inner
        yield from _uncovered(inner)
    yield from _uncovered(text)


def _uncovered(text: str) -> Iterator[str]:
    if "\\" in text:
        yield unescape(text)
    if "&" in text:
        yield html.unescape(html.unescape(text))
    if "%" in text:
        yield unquote(text)
    if len(_MARGIN.findall(text)) > 1:
        yield _MARGIN.sub("", text)
