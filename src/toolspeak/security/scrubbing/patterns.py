r"""Finds secrets by their format, by the text before them, and as blocks of lines.

    ghp_16C7e42F292c6912E7710c838347Ae178B4a      a shape: a long word in a known format
    postgres://app:hunter2@db/app                 a pattern: text after the cue `://`
    -----BEGIN RSA PRIVATE KEY-----               a block: the lines up to `-----END …`
    MIIE*[REDACTED]
    -----END RSA PRIVATE KEY-----

`find_candidates` finds the positions to examine: cues, and words as long as a key. To search in C,
it maps the text to one byte per character (lower case; part of a word or not).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from .kubernetes import DATA_CUE, find_kubernetes_values, may_be_data
from .named_values import find_name, find_named_values
from .rules import NAME_CUES, RULES, CuePattern, KeyBlock, KeyShape, is_placeholder, is_random
from .windows import (
    BLOCK_REACH,
    REACH,
    Continuation,
    Span,
    Window,
    fixed_window,
    line_window,
    match_end,
)

SpanFinder = Callable[[Window], Iterator[Span]]


# Shapes: keys in a known format.

SHAPE_LOOKBEHIND = 24
"""A key may begin this many characters before its long word: `SG.`, `12345678:`."""
_REPEATED_SUFFIX = 8
"""A key does not end with this many equal characters: `ghp_xxxxxxxx` is a placeholder."""
_JOINTS = frozenset(".:/~")
"""A long word after one of these may be a later part of a key."""
_PART_START = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9]|(?<=bot)\d")
_SEPARATORS = re.compile(r"[-_]{0,8}")
_KEY_BODY = re.compile(r"[A-Za-z0-9_.+/=~-]*")
_WORDS = re.compile(r"[A-Za-z]+(?:[-_][A-Za-z]+)*(?:[-_]\d{1,3})*")
_ANY_SHAPE = re.compile("|".join(row.shape.pattern for row in RULES.shapes))
_SHAPE_IN_WORD = "|".join(row.shape.pattern for row in RULES.shapes if not row.at_word_start)
_ESCAPE = rf"(?:(?<=\\)(?:[nrtbf]|u[0-9a-fA-F]{{4}})|(?<=%)..|[-_]{{1,8}})(?={_ANY_SHAPE.pattern})"
_NAME = rf"(?:\d{{1,3}}m|3D|(?:[A-Za-z0-9]{{0,64}}+[-_]){{1,32}}?)(?={_SHAPE_IN_WORD})"
_PREFIXES = (re.compile(_ESCAPE), re.compile(_NAME))
"""Text before a key in the same word: an escape or dashes; a colour (`\\x1b[33m`) or a name."""
_ANY_SHAPE_OR_PREFIX = re.compile(f"{_ANY_SHAPE.pattern}|{_ESCAPE}|{_NAME}")


def may_be_shape(text: str, at: int) -> object:
    """Return a true value if the long word at `at` may contain a key."""
    return text[at - 1 : at] in _JOINTS or _ANY_SHAPE_OR_PREFIX.match(text, at)


def find_shapes(window: Window) -> Iterator[Span]:
    """Yield the key in a long word, or several keys with only dashes between them."""
    for start in _possible_starts(window.text, window.at):
        has_found = False
        while span := _match_shape(window, start):
            has_found = True
            yield span
            start = match_end(_SEPARATORS, window.text, span.end, window.end)
        if has_found:
            return


def _match_shape(window: Window, start: int) -> Span | None:
    text, end = window.text, window.end
    if not _ANY_SHAPE.match(text, start, end):
        return None
    for shape in RULES.shapes:
        match = shape.shape.match(text, start, end)
        if match and _is_key(shape, match[0]):
            read_more = window.continue_from(match.end(), _KEY_BODY)
            return Span(start, match.end(), shape.kind, read_more=read_more)
    return None


def _is_key(shape: KeyShape, value: str) -> bool:
    if shape.needs_digit and (_WORDS.fullmatch(value) or not any(map(str.isdigit, value))):
        return False
    return not is_placeholder(value) and len(set(value[-_REPEATED_SUFFIX:])) > 1


def _possible_starts(text: str, at: int) -> Iterator[int]:
    """Yield where the key may begin: before a dot or the like, or after a prefix."""
    if text[at - 1 : at] in _JOINTS:
        for part in _PART_START.finditer(text, max(0, at - SHAPE_LOOKBEHIND), at):
            yield part.start()
    yield at
    for prefix in _PREFIXES:
        if match := prefix.match(text, at):
            yield match.end()


# Patterns: secrets after a cue, or right before it.

PATTERN_LOOKBEHIND = 160
"""The most characters before a cue that a pattern examines."""
VALUE_LOOKBEHIND = 64
"""A secret may begin this many characters before its cue: `app:hunter2@tcp(db)`."""


def _find_pattern(rows: tuple[CuePattern, ...], window: Window) -> Iterator[Span]:
    """Yield the secret of the first of these patterns that matches."""
    for row in rows:
        match = _match_pattern(row, window)
        if match and _is_pattern_value(row, match["value"]):
            start, end = match.span("value")
            read_more = window.continue_from(end, _KEY_BODY) if row.random_only else None
            yield Span(start, end, row.kind, read_more=read_more)
            return


def _match_pattern(row: CuePattern, window: Window) -> re.Match[str] | None:
    """Return the match that contains the secret."""
    match = row.pattern.match(window.text, window.at, window.end)
    if not match or not row.before:
        return match
    start = max(0, window.at - PATTERN_LOOKBEHIND)
    before = row.before.search(window.text, start, window.at)
    return before if "value" in row.before.groupindex else before and match


def _is_pattern_value(row: CuePattern, value: str) -> bool:
    return not is_placeholder(value) and (not row.random_only or is_random(value))


# Blocks: private keys of any length. Their lines may be indented, quoted, or written as `\n`. Other
# text may stand before or after a line: a number, the name of a file, a time, parts of JSON.

_BREAK = r"""(?:\s|\\+[nrt]|\\+u000[aAdD]|\\*["'`]|[+,>\#|*()]|-(?!-))"""
_BASE64 = r"""(?:[A-Za-z0-9+/=]|\\+/)"""
_HEADER = rf"""(?:[A-Za-z][A-Za-z-]{{2,31}}:[ ][^\n\\"]{{1,96}}+{_BREAK}{{1,16}}+)"""
_LONG_WORD = 16
_CLOSING_LINES = "|".join(block.closes.pattern for block in RULES.blocks)
_BLOCK_START = re.compile(
    rf"{_BREAK}{{1,64}}+{_HEADER}{{0,6}}(?=(?:[A-Za-z0-9+/]|\\+/){{{_LONG_WORD}}})",
    re.VERBOSE,
)
_BREAKS = re.compile(rf"{_BREAK}{{0,256}}+", re.VERBOSE)
_BLOCK_WORD = re.compile(rf"{_BASE64}*+", re.VERBOSE)
_NEXT_BLOCK_WORD = re.compile(
    rf"""{_BASE64}{{{_LONG_WORD}}}
    | (?!\d{{1,6}}(?![A-Za-z0-9+/=]))                 # not the number of a line
    {_BASE64}{{1,{_LONG_WORD}}}(?:{_BREAK}{{1,64}}+{_BASE64}{{1,8}})?
    {_BREAK}{{1,64}}+(?:{_CLOSING_LINES})""",
    re.VERBOSE,
)
"""A long word of a key, or its last one."""
_PLAIN_BREAK = re.compile(r"(?:[\s>#|*+-]|\\+[nrt]|\\+u000[aAdD])*")
"""A break without quotes or brackets, which must stay in pairs."""
_WORD_START = r"(?:(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<![A-Za-z0-9+/=\\]))"
_KEY_LINE = re.compile(
    rf"""{_WORD_START}(?<!ssh-rsa[ ])(?<!-ed25519[ ])(?<!sha...-)(?<!SHA...:)\+?(?P<word>
      (?={_BASE64}{{0,39}}[A-Z])(?={_BASE64}{{0,39}}[a-z])(?={_BASE64}{{0,39}}[0-9+])
      {_BASE64}{{40}}{_BASE64}*+)(?![\w.:]|-(?!-))""",
    re.VERBOSE,
)
"""A word that can only belong to a key, whatever stands before it."""
_NEWLINE = r"(?:\r?\n|\\+r\\+n|\\+[nr])"
_OTHER_TEXT = r"(?:(?!-----[A-Z])[^\n]){0,120}?"
_LINE_END = r"""(?:[\s"',;$|\\]|<[^<>\n]{1,16}>|\w{1,12}=\w{1,12}){0,8}?"""
_LAST_KEY_LINE = re.compile(
    rf"""{_OTHER_TEXT}{_NEWLINE}{_OTHER_TEXT}
    {_WORD_START}(?P<word>=?[A-Za-z0-9+/]{{1,80}}+={{0,2}}){_LINE_END}{_NEWLINE}
    (?:{_OTHER_TEXT}{_NEWLINE}?{_OTHER_TEXT}=[A-Za-z0-9+/]{{4}}{_LINE_END}{_NEWLINE})?
    {_OTHER_TEXT}{_NEWLINE}?{_OTHER_TEXT}(?:{_CLOSING_LINES})""",
    re.VERBOSE,
)
_CLOSING_LINE = re.compile(f"-----|{_CLOSING_LINES}")
_MAX_LINES_BEFORE = 8
"""The maximum number of lines before the first line of a key: `Proc-Type: 4,ENCRYPTED`."""


def _find_block(block: KeyBlock, window: Window) -> Iterator[Span]:
    """Yield the start of a block's secret lines."""
    opening = block.opens.match(window.text, window.at, window.end)
    if not opening:
        return
    plain = _BLOCK_START.match(window.text, opening.end(), window.end)
    key_line = _find_key_line(window.text, opening.end(), window.end, _MAX_LINES_BEFORE)
    for start in {plain.end() if plain else -1, key_line} - {-1}:
        yield Span(start, start, block.kind, read_more=_continue_block)


def _find_key_line(text: str, at: int, limit: int, lines: int) -> int:
    """Return where the next line of a key begins, at most `lines` lines below; -1 if it does
    not."""
    line = _KEY_LINE.search(text, at, limit)
    start = line.start("word") if line else -1
    if start < 0 or _CLOSING_LINE.search(text, at, start) or text.count("\n", at, start) > lines:
        return -1
    return start


def _continue_block(text: str, at: int, is_final: bool) -> Continuation:
    """Read one more word of a block, and the break after it."""
    end = match_end(_BLOCK_WORD, text, at, len(text))
    word = text[at:end]
    if not is_final and len(text) - end < BLOCK_REACH:
        return Continuation(end, word)
    next_word = _find_next_word(text, end, min(len(text), end + BLOCK_REACH))
    if next_word < 0:
        return Continuation(end, word, is_over=True)
    between = text[end:next_word]
    kept_text = "" if _PLAIN_BREAK.fullmatch(between) else between
    return Continuation(next_word, f"{word}\n", kept_text=kept_text)


def _find_next_word(text: str, at: int, limit: int) -> int:
    """Return where the next word of a block begins, or -1 if there is none."""
    next_word = match_end(_BREAKS, text, at, limit)
    if next_word > at and _NEXT_BLOCK_WORD.match(text, next_word, limit):
        return next_word
    next_word = _find_key_line(text, at, limit, 1)
    if next_word < 0 and (last := _LAST_KEY_LINE.match(text, at, limit)):
        return last.start("word")
    return next_word


# Candidates: the positions to examine.


class CueRule(Struct, frozen=True):
    """The way to examine the text at a cue."""

    find: SpanFinder
    may_match: Callable[[str, int], object] | None = None
    """A quick check: false if nothing will be found."""
    window: Callable[[str, int, bool], Window | None] = line_window
    """Returns the text that decides the result, or None if more text must arrive first."""


def _cue_rules() -> Iterator[tuple[bytes, CueRule]]:
    name_rule = CueRule(find_named_values, find_name)
    for cue in NAME_CUES:
        yield cue.encode(), name_rule
    for cue in dict.fromkeys(row.cue for row in RULES.patterns):
        rows = tuple(row for row in RULES.patterns if row.cue == cue)
        yield cue.encode(), CueRule(partial(_find_pattern, rows))
    # The window holds the data of a small Secret and the kind behind it.
    large_window = partial(fixed_window, reach=REACH)
    yield DATA_CUE.encode(), CueRule(find_kubernetes_values, may_be_data, large_window)
    for block in RULES.blocks:
        yield block.cue.encode(), CueRule(partial(_find_block, block), window=fixed_window)


MIN_LONG_WORD = 20
"""The shortest word that is examined for a shape."""
_WORD_BYTES = bytes(
    ord("w") if (chr(code).isalnum() and code < 128) or code in b"_-" else 32 for code in range(256)
)
_LONG_WORD_BYTES = b"w" * MIN_LONG_WORD
_CUES, _RULES_OF_CUES = zip(*_cue_rules(), strict=True)
MAX_CUE = max(map(len, _CUES))
_NO_CONSONANTS = bytes(set(range(256)) - set(b"bcdfghklmpqrstvwxz"))
_MIN_CONSONANTS = 3
_RARE_BYTES = re.compile(rb"(?<=.)[*$@]")


CueSearch = tuple[int, bytes, bytes, bytes, int]
"""The fastest way to search for a cue: the index of its rule; the cue; its consonants, which a text
that contains the cue also contains; what to search for, a rare byte or the whole cue; and the
offset of that in the cue."""


def _plan_search(rule: int, cue: bytes) -> CueSearch:
    if rare := _RARE_BYTES.search(cue):
        return rule, cue, b"", rare[0], rare.start()
    consonants = cue.translate(None, _NO_CONSONANTS)
    return rule, cue, consonants if len(consonants) >= _MIN_CONSONANTS else b"", cue, 0


_SHORT_TEXT = 1024
_CUE_SEARCHES = [_plan_search(rule, cue) for rule, cue in enumerate(_CUES)]
_SEARCHES_OF_CUES = [(search[1].decode(), search) for search in _CUE_SEARCHES]
CUE_RULES: tuple[CueRule, ...] = (*_RULES_OF_CUES, CueRule(find_shapes, may_be_shape))

Candidate = tuple[int, int]
"""A position, and the index of its rule in `CUE_RULES`."""


def find_candidates(text: str, start: int) -> list[Candidate]:
    """Return the positions to examine from `start` on, the last one first."""
    # Characters that are not Latin-1 become one byte each, so that positions stay the same.
    # The character before `start` shows whether a long word began earlier.
    start = max(0, start - 1)
    flat = text[start:].encode("latin-1", "replace")
    lower = flat.lower()
    found: list[Candidate] = []
    for rule, cue, _, byte, offset in _select_searches(lower):
        at = lower.find(byte)
        while at >= 0:
            if not offset or lower.startswith(cue, at - offset):
                found.append((start + at - offset, rule))
            at = lower.find(byte, at + 1)
    found += ((start + at, len(_CUES)) for at in _find_long_words(flat))
    found.sort(reverse=True)
    return found


def _select_searches(lower: bytes) -> list[CueSearch]:
    """Return the searches whose cue may be in the text."""
    if len(lower) < _SHORT_TEXT:
        # Short strings are searched faster than short bytes.
        string = lower.decode("latin-1")
        return [search for cue, search in _SEARCHES_OF_CUES if cue in string]
    all_consonants = lower.translate(None, _NO_CONSONANTS)
    return [search for search in _CUE_SEARCHES if search[2] in all_consonants]


def _find_long_words(flat: bytes) -> Iterator[int]:
    marked = flat.translate(_WORD_BYTES)
    at = 0
    while at >= 0 and (at := marked.find(_LONG_WORD_BYTES, at)) >= 0:
        yield at
        at = marked.find(b" ", at)
