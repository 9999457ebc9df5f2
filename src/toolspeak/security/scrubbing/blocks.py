r"""Private keys: the lines between `-----BEGIN … PRIVATE KEY-----` and `-----END …`.

    -----BEGIN RSA PRIVATE KEY-----
    MIIE*[REDACTED]
    -----END RSA PRIVATE KEY-----

A key may be of any length: its words are dropped as they come. Its lines may be indented, quoted,
or written as `\n` in a string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .rules import KeyBlock, load_rules
from .window import ContinuationStep, Span, Window

NEAR = 640
"""So many characters tell whether a block begins, or whether it goes on after a break."""

_BREAK = r"""(?:\s|\\+[nrt]|\\+u000[aAdD]|\\*["'`]|[+,>\#|*()]|-(?!-))"""
_BASE64 = r"""(?:[A-Za-z0-9+/=]|\\+/)"""
_HEADER = rf"""(?:[A-Za-z][A-Za-z-]{{2,31}}:[ ][^\n\\"]{{1,96}}+{_BREAK}{{1,16}}+)"""
_LONG = 16
_CLOSES = "|".join(block.closes for block in load_rules().blocks)

_BREAKS = re.compile(rf"{_BREAK}{{0,256}}+", re.VERBOSE)
_WORD = re.compile(rf"{_BASE64}*+", re.VERBOSE)
_GOES_ON = re.compile(
    rf"""{_BASE64}{{{_LONG}}} | {_BASE64}{{1,{_LONG}}}(?:{_BREAK}{{1,64}}+{_BASE64}{{1,8}})?
    {_BREAK}{{1,64}}+(?:{_CLOSES})""",
    re.VERBOSE,
)
"""A word of a key: a long one, or the last one."""
_PLAIN = re.compile(r"(?:[\s>#|*+-]|\\+[nrt]|\\+u000[aAdD])*")
"""A break without anything that has to be closed again."""


def block_finder(block: KeyBlock) -> Callable[[Window], Iterator[Span]]:
    """What is found at the cue of a block: the first word of its secret lines."""
    opens = re.compile(
        rf"(?-x:{block.opens}){_BREAK}{{1,64}}+{_HEADER}{{0,6}}(?={_BASE64}{{{_LONG}}})",
        re.VERBOSE,
    )

    def found(window: Window) -> Iterator[Span]:
        match = opens.match(window.text, window.at, window.end)
        if match:
            yield Span(match.end(), match.end(), block.kind, is_block=True)

    return found


class BlockContinuation:
    """The rest of a block that has been found."""

    def further(self, text: str, at: int, final: bool) -> ContinuationStep:
        """One word less, or one break."""
        end = _end(_WORD, text, at)
        word = text[at:end]
        if not final and len(text) - end < NEAR:
            return ContinuationStep(end, secret=word)
        following = _end(_BREAKS, text, end)
        if following == end or not _GOES_ON.match(text, following):
            return ContinuationStep(end, secret=word, is_over=True)
        between = text[end:following]
        given = "" if _PLAIN.fullmatch(between) else between
        return ContinuationStep(following, given, secret=f"{word}\n")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
