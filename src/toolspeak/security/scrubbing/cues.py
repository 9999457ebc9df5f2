"""Where to look more closely: the words that stand before a secret, and words as long as a key.

All of a text is searched by C: its bytes are mapped to lower case and to "is part of a word", each
in one pass, and cues are found in those. Characters that are no Latin ones become one byte each, so
that places stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from .blocks import NEAR, block_finder
from .named import find_named_values, may_be_name
from .rules import load_rules
from .shapes import find_shapes, may_be_shape, pattern_finder
from .window import Span, Window, line_window, near_window

LONG_WORD = 20
"""So long are keys that are known by their shape."""

_IN_WORD = bytes(
    ord("w") if (chr(code).isalnum() and code < 128) or code in b"_-" else 32 for code in range(256)
)
_LONG = b"w" * LONG_WORD


class CueRule(Struct, frozen=True):
    """What to do at a cue."""

    find: Callable[[Window], Iterator[Span]]
    may: Callable[[str, int], bool] | None = None
    """A quick look: False if there is nothing to be found."""
    is_block: bool = False

    def window(self, text: str, at: int, final: bool) -> Window | None:
        """What decides it; None if it is not all there."""
        if self.is_block:
            return near_window(text, at, final, NEAR)
        return line_window(text, at, final)


def _cues() -> Iterator[tuple[bytes, CueRule]]:
    """Every cue, with its rule."""
    table = load_rules()
    by_name = CueRule(find_named_values, may_be_name)
    for cue in table.cues.names:
        yield cue.encode(), by_name
    for cue in dict.fromkeys(row.cue for row in table.patterns):
        rows = tuple(row for row in table.patterns if row.cue == cue)
        yield cue.encode(), CueRule(pattern_finder(rows))
    for block in table.blocks:
        yield block.cue.encode(), CueRule(block_finder(block), is_block=True)


_CUES = tuple(cue for cue, _ in _cues())
RULES = (*(rule for _, rule in _cues()), CueRule(find_shapes, may_be_shape))
LONGEST_CUE = max(map(len, _CUES))

Candidate = tuple[int, int]
"""Where, and which of the `RULES`."""


def find_candidates(text: str, start: int) -> list[Candidate]:
    """Where to look more closely from this place on; the last comes first."""
    flat = text[start:].encode("latin-1", "replace")
    lower = flat.lower()
    found: list[Candidate] = []
    for rule, cue in enumerate(_CUES):
        at = lower.find(cue)
        while at >= 0:
            found.append((start + at, rule))
            at = lower.find(cue, at + 1)
    is_within = start > 0 and _in_word(text[start - 1])
    found += ((start + at, len(_CUES)) for at in _long_words(flat, is_within))
    found.sort(reverse=True)
    return found


def _in_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "_-")


def _long_words(flat: bytes, is_within: bool) -> Iterator[int]:
    """Where long words begin. One that has begun before is not looked at again."""
    marked = flat.translate(_IN_WORD)
    at = 0
    if is_within:
        at = marked.find(b" ")
    while at >= 0:
        at = marked.find(_LONG, at)
        if at >= 0:
            yield at
            at = marked.find(b" ", at)
