"""Results that a prompt has put into the user's turn: what is in them is not the user's.

The spans are those that the dialects' own templates write, so that no result which this library
renders is ever taken for a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..dialects.catalog import ALL

_LINE = r"^[ \t]*+"
_SLOT = re.compile(r"\$([a-z]+(?:_json)?)")
_FIRST_TOKEN = re.compile(r"<(?P<tag>\w+)(?=[ >])|<[^<>\s]+>|\[[A-Za-z][\w ]+\]")
_LAST_TOKEN = re.compile(r"(?:<[^<>\s]+>|\[/\w+\])\Z")
_NUMBERS = ("index", "number")
_ALSO = (("<tool_results>", "</tool_results>"), ("<function_results>", "</function_results>"))
"""Seen in other projects' prompts."""


def split(text: str) -> Iterator[tuple[bool, str]]:
    """The user's words, and the results among them: (whether it was brought in, text).

    A span ends with the last of its closers, because what a tool gives may hold closers too; one
    that never ends goes on to the end.
    """
    at = 0
    while match := _OPENERS.search(text, at):
        yield False, text[at : match.start()]
        closers = _CLOSERS[match.lastindex or 0]
        found = ((text.rfind(closer, match.end()), len(closer)) for closer in closers)
        last, size = max(found, default=(-1, 0))
        at = last + size if last >= 0 else len(text)
        yield True, text[match.end() : at]
    yield False, text[at:]


def _spans() -> Iterator[tuple[str, str]]:
    """A pattern for what opens a result, and what closes it; "" if nothing does."""
    for dialect in ALL:
        one, _, after = dialect.result.partition("$content")
        yield _opener(one), _closer(after.removeprefix("_json"))
        before, _, after = dialect.results.partition("$results")
        yield _opener(before), _closer(after)
        yield from ((_opener(opener), _closer(closer)) for opener, closer in dialect.foreign)
    yield from ((_opener(opener), _closer(closer)) for opener, closer in _ALSO)


def _opener(before: str) -> str:
    """The token that a template begins with, or the words on a line of their own; "" if it has
    neither."""
    before = before.lstrip()
    if token := _FIRST_TOKEN.match(before):
        return re.escape(token[0]) + (r"\b[^<>]*+>" if token["tag"] else "")
    words, *slots = _SLOT.split(before)
    if sum(map(str.isalpha, words)) < 3:
        return ""
    number = r"\s*+\d" if slots and slots[0] in _NUMBERS else ""
    return f"{_LINE}{re.escape(words.strip())}{number}"


def _closer(after: str) -> str:
    """The token that a template ends with, or all behind its last slot."""
    rest = _SLOT.split(after)[-1].strip()
    token = _LAST_TOKEN.search(rest)
    return token[0] if token else "" if " " in rest else rest


def _table() -> dict[str, tuple[str, ...]]:
    """Each opener with all that may close it; tokens first, and then those that begin a line."""
    table: dict[str, dict[str, None]] = {}
    for opener, closer in sorted(_spans(), key=lambda span: span[0].startswith(_LINE)):
        if opener:
            table.setdefault(opener, {}).update({closer: None} if closer else {})
    return {opener: tuple(closers) for opener, closers in table.items()}


def _pattern(openers: Iterable[str]) -> re.Pattern[str]:
    """All openers in one, which sees at nearly every letter at once that none begins there."""
    tokens, lines = list[str](), list[str]()
    for opener in openers:
        begins_line = opener.startswith(_LINE)
        (lines if begins_line else tokens).append(f"({opener.removeprefix(_LINE)})")
    return re.compile(rf"(?=[<\[])(?:{'|'.join(tokens)})|{_LINE}(?:{'|'.join(lines)})", re.M)


_TABLE = _table()
_OPENERS = _pattern(_TABLE)
_CLOSERS = ((), *_TABLE.values())
