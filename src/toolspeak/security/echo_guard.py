"""Calls that stand in what tools and documents brought in, so that none is made just because the
model repeats it.

The guard knows verbatim and re-serialised echoes: in any wrapper, in JSON strings, in HTML, in
quoted or numbered lines, or cut in two between results. It does not claim to know paraphrases.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ..calls.drafts import CallKey, call_key
from ..calls.lenient_json import unescape
from ..calls.schema import iter_strings
from .message_origin import UserTurn, split_by_origin, split_results

_MARGIN = re.compile(
    r"^[ \t]*+(?:(?:\d++[ \t]*+[→|:\t]|[>|+#*\-]++|//++|\d++[.)])[ \t]?+){1,8}+", re.M
)
"""What stands before every line of a quoted mail, a numbered file, a diff, a comment, a list."""

_LAYERS = 6
"""How often texts are looked for in texts."""
_MOST = 24
"""How many spellings of a text are looked at, the least hidden first."""
_WORD = re.compile(r"[A-Za-z0-9]+")
_NO_LETTER = re.compile(r"[\W_]+")
_JSON = ("{", "[", '"')
_QUOTE = re.compile(r'(\\.)|"', re.S)


class EchoGuard:
    """Whether a call only repeats what a conversation's foreign parts hold. They are read when a
    call is first asked about."""

    def __init__(
        self,
        context: Any,
        calls_in: Callable[[str], Iterable[CallKey]],
        makes_calls: Callable[[str], bool],
    ) -> None:
        self._foreign, self._requests = split_by_origin(context)
        self._calls_in = calls_in
        self._makes_calls = makes_calls

    def __call__(self, name: str, arguments: Mapping[str, Any], raw: str) -> bool:
        """Whether the call, or the text it was read from, stands there and not in the request."""
        foreign, own = self._sides
        if foreign.is_empty:
            return False
        call = _Asked(name, arguments, raw)
        return foreign.holds(call) and not own.holds(call)

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        foreign, own = list(self._foreign), list[str]()
        for request in self._requests:
            for brought_in, text in self._split(request):
                (foreign if brought_in else own).append(text)
        return _Side(foreign, self._calls_in), _Side(own, self._calls_in)

    def _split(self, request: UserTurn) -> Iterable[tuple[bool, str]]:
        """What a turn brings in and what it asks for. Some dialects write results without any mark:
        then what follows a call is its result."""
        parts = list(split_results(request.text))
        if len(parts) > 1 or not request.reply or not request.text.strip():
            return parts
        return [(self._makes_calls(request.reply), request.text)]


class _Side:
    """What was brought in, or what the user said."""

    def __init__(self, texts: list[str], calls_in: Callable[[str], Iterable[CallKey]]) -> None:
        self._given = texts
        self._calls_in = calls_in

    @property
    def is_empty(self) -> bool:
        return not any(self._given)

    @cached_property
    def _texts(self) -> list[_Spelling]:
        texts = self._given
        joined = ["".join(texts), "\n".join(texts)] if len(texts) > 1 else []
        spellings = (spelling for text in (*texts, *joined) for spelling in decode_layers(text))
        return [_Spelling(text, self._calls_in) for text in dict.fromkeys(spellings)]

    def holds(self, call: _Asked) -> bool:
        return any(text.repeats(call) for text in self._texts) or any(
            text.makes(call) for text in self._texts
        )


class _Asked:
    """A call that is asked about."""

    def __init__(self, name: str, arguments: Mapping[str, Any], raw: str) -> None:
        self.key = call_key(name, arguments)
        self.raw = _one_line(raw)
        self._name = _letters(name.rpartition(".")[2])
        self._keys = [_letters(key) for key in arguments]
        self._words = {
            word.lower() for text in iter_strings(arguments) for word in _WORD.findall(text)
        }

    def may_stand_in(self, letters: str) -> bool:
        """Whether a text of these letters has all that any way to write this call has: the words of
        its arguments, and the tool's name, or the keys where the name goes without saying."""
        keyed = bool(self._keys) and all(key in letters for key in self._keys)
        return (keyed or self._name in letters) and all(word in letters for word in self._words)


class _Spelling:
    """A text that may hold calls; it is read only for one that it might hold."""

    def __init__(self, text: str, calls_in: Callable[[str], Iterable[CallKey]]) -> None:
        self._text = text
        self._calls_in = calls_in

    def repeats(self, call: _Asked) -> bool:
        return call.raw != "" and call.raw in self._line

    def makes(self, call: _Asked) -> bool:
        return call.may_stand_in(self._letters) and call.key in self._calls

    @cached_property
    def _line(self) -> str:
        return _one_line(self._text)

    @cached_property
    def _letters(self) -> str:
        return _letters(self._text)

    @cached_property
    def _calls(self) -> frozenset[CallKey]:
        return frozenset(self._calls_in(self._text))


def _letters(text: str) -> str:
    """What is left if quotes, escapes and separators make no difference."""
    return _NO_LETTER.sub("", text).lower()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def decode_layers(text: str) -> list[str]:
    """The text, and what is hidden in it by the ways texts are carried in other texts, one in
    another: JSON in HTML in JSON. Every layer is undone wherever it stands, so that nothing depends
    on the whole being well-formed."""
    found = {text: None}
    layer = [text]
    for _ in range(_LAYERS):
        below = (inner for outer in layer for inner in _uncovered(outer))
        layer = [inner for inner in dict.fromkeys(below) if inner not in found]
        layer = layer[: _MOST - len(found)]
        found.update(dict.fromkeys(layer))
    return list(found)


def _uncovered(text: str) -> Iterator[str]:
    if "\\" in text or text.lstrip()[:1] in _JSON:
        yield unescape(_QUOTE.sub(_apart, text))
    if "&" in text:
        yield html.unescape(text)
    if "\\" in text:
        yield unescape(text)
    if "%" in text:
        yield unquote(text)
    if len(_MARGIN.findall(text)) > 1:
        yield _MARGIN.sub("", text)


def _apart(match: re.Match[str]) -> str:
    """Escapes as they are; a quote that begins or ends a string parts it from what is around."""
    return match[1] or "\n"
