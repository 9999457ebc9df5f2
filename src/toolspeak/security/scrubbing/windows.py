r"""Windows on a text, and where the values in them end.

A window is the part of a text that decides whether there is a secret at a position. It reaches from
there to the end of the line, or `REACH` characters far. That depends on the text alone, not on the
chunks in which it arrives, so neither does the result.

    "hunter2"   'hunter2'   \"hunter2\" in a string   hunter2&x=1   hunter2; next   hunter2 next

Each way to write a value has a regular expression for any part of one. It is made of units that are
never cut: characters, and escapes such as `\n` and `\u00e9`. So a value that is longer than the
window can be continued in the next one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

REACH = 2048
"""The longest window: the scrubber waits for at most this many characters after a cue."""
LOOKBEHIND = 256
"""This many characters before a window are available as context, even if they were returned."""
LOOKAHEAD = 80
"""The most characters that a unit of a value looks ahead."""


class Continuation(NamedTuple):
    """More of a secret that is longer than its window."""

    end: int
    secret: str
    is_over: bool = False
    kept_text: str = ""
    """Text between the parts of the secret that is kept."""


ReadMore = Callable[[str, int, bool], Continuation]
"""Reads more of a secret from a position of the text, which may be final."""


class Span(Struct, frozen=True):
    """The position of a secret in a text."""

    start: int
    end: int
    kind: str
    name: str = ""
    escape_levels: int = 0
    """The number of times the value was escaped."""
    read_more: ReadMore | None = None
    """Set if the secret may continue beyond the window."""


class Window(Struct, frozen=True):
    """A position in a text, and where to stop looking from there."""

    text: str
    at: int
    end: int
    is_cut: bool = False
    """The line is longer, so a value that ends with the window may continue."""

    def continue_from(self, end: int, body: re.Pattern[str]) -> ReadMore | None:
        """Return how to read on if a value with this body, which ends here, may be longer."""
        may_be_longer = self.is_cut and end > self.end - LOOKAHEAD
        return partial(_continue_value, body) if may_be_longer else None


def _continue_value(body: re.Pattern[str], text: str, at: int, is_final: bool) -> Continuation:
    end = match_end(body, text, at, len(text))
    is_over = is_final or end < len(text) - LOOKAHEAD
    if not is_over:
        end = match_end(body, text, at, max(at, len(text) - LOOKAHEAD))
    return Continuation(end, text[at:end], is_over)


# Windows.

_CONTINUES_ON_NEXT_LINE = re.compile(r"""(?:[:=>|,(\[{\\]|[|>][+-])[ \t\r]*$""")
_NAME_ONLY = re.compile(r"""[\w.\-]*\\*["']?[ \t\r]*""")
_LIST_START = re.compile(r"""[:\[{][ \t\r]*$""")
_LIST_ITEM = re.compile(r"""\s*(?:-\s|\\*["'])""")
_MAX_ITEMS = 8
"""The most lines of a list that belong to the name before it."""


def line_window(text: str, at: int, is_final: bool) -> Window | None:
    """Return the window to the end of the line, or None if more text must arrive first.

    A line that ends with a name or with `:` continues on the next one.
    """
    limit = at + REACH
    end = text.find("\n", at, limit)
    if end >= 0:
        end = _last_line_end(text, at, end, limit)
    if end >= 0:
        return Window(text, at, end)
    return fixed_window(text, at, is_final, REACH)


def _last_line_end(text: str, at: int, end: int, limit: int) -> int:
    """Return the end of the last line that continues this one, or -1 if it is not in the text."""
    tail = max(at, end - 8)
    continues = _CONTINUES_ON_NEXT_LINE.search(text, tail, end)
    if not (continues or _NAME_ONLY.fullmatch(text, at, end)):
        return end
    lines = _MAX_ITEMS if _LIST_START.search(text, tail, end) else 1
    while lines:
        is_item = _LIST_ITEM.match(text, end, limit)
        end = text.find("\n", end + 1, limit)
        lines = lines - 1 if is_item and end >= 0 else 0
    return end


BLOCK_REACH = 1024
"""This many characters show whether a block begins, or continues after a break."""


def fixed_window(text: str, at: int, is_final: bool, reach: int = BLOCK_REACH) -> Window | None:
    """Return a window of this length, or None if more text must arrive first."""
    if len(text) >= at + reach:
        return Window(text, at, at + reach, is_cut=True)
    return Window(text, at, len(text)) if is_final else None


# Values.

QUOTE = re.compile(
    r"""(?P<backslashes>\\{0,15})(?P<quote>\"{3}|'{3}(?=[^\n]{0,999}'{3})|["'`])|(?P<entity>&(?:quot|apos|\#34|\#39);)""",
    re.VERBOSE,
)
_NEXT_NAME = r"""\s{0,8}\\{0,7}["']?[\w.\-]{1,48}+\\{0,7}["']?[ ]{0,4}[:=]"""
_COLOUR = r"(?:u001[bB]|x1[bB])\["
_UNITS = rf"""
      [^\s"'`<&;,)\]}}\\#\x1b]++
    | '(?=\w)                                           # it's
    | <(?![/A-Za-z!?])
    | &(?!amp;|&|[\w.\[\]%\-]{{1,64}}=|\s|$)            # not the next parameter of a query
    | ;(?!{_NEXT_NAME}|\s|\\*["']|\\+[nrt]|$)           # … of a connection string
    | ,(?!{_NEXT_NAME}|\s|\\*["']|\\+[nrt]|$)
    | [)\]}}](?![\s,;:.)\]}}"'`\\]|$)
    | \\+(?!["'`\\nrt]|u00(?:0[aAdD]|2[267]|3[cCdDeE])|{_COLOUR}|\s|$).
"""
QUERY_VALUE = re.compile(f"(?:{_UNITS})*+", re.VERBOSE)
"""A value in the query of a URL."""
UNQUOTED_VALUE = re.compile(rf"(?:{_UNITS}|\#)*+", re.VERBOSE)
"""A delimiter ends an unquoted value only where something else begins."""
LINE_VALUE = re.compile(rf"""(?:[^\n\r"'`\\\x1b]++|'(?=\w)|\\+(?!["'`\\nr]|{_COLOUR}|$).)*+""")
"""A value that reaches to the end of the line, or of the string that contains it."""
ELEMENT_VALUE = re.compile(r"""(?:[^<"\\\n]++|\\+(?!["\\nr]|u003[cC]|$).)*+""")
"""The text of an XML element."""
ENTITY_VALUE = re.compile(r"""(?:[^&"\\\n<]++|&(?!quot;|apos;|#34;|#39;))*+""")
"""A value in quotes that are HTML entities."""
_STRING_END = r"""\\{0,31}"(?:[\s,}\]:\\);]|$)"""
"""The end of a JSON string or of a string in code: its quote, and what follows it."""
_UNIT = re.compile(
    r"\\+(?:u[0-9a-fA-F]{4}(?:\\+u[dD][c-fC-F][0-9a-fA-F]{2})?|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|.|$)|.",
    re.DOTALL,
)


@cache
def quoted_value(backslashes: int, quote: str, may_be_nested: bool = False) -> re.Pattern[str]:
    """Return a pattern for a value in these quotes.

    Quotes in a string have backslashes before them: `\\"` in a string, `\\\\\\"` in a string in a
    string. With `may_be_nested`, the quotes may be in a string of double quotes, and the value ends
    where that string ends.
    """
    if may_be_nested and quote[0] != '"':
        units = _quoted_units(backslashes, quote, rf'[^{quote[0]}"\\\n]++|"')
        return re.compile(rf"(?:(?!{_STRING_END})(?:{units}))*+")
    units = _quoted_units(backslashes, quote, rf"[^{quote[0]}\\\n]++")
    return re.compile(f"(?:{units})*+")


def _quoted_units(backslashes: int, quote: str, plain: str) -> str:
    mark = quote[0]
    if len(quote) == 3:
        return rf"{plain}|\\.|{mark}(?!{quote[1:]})"
    if mark == "'" and not backslashes:
        # TOML, YAML and shells have no escapes in these quotes; YAML doubles the quotes.
        return rf"{plain}|''|\\(?!'\s*(?:[,;)\]}}#]|$))[^\n]"
    deep, deeper = rf"\\{{{backslashes}}}", rf"\\{{{backslashes + 1}}}"
    units = [plain, rf"{deeper}(?:{deeper}|{deep}{mark}|[^{mark}\\\n])"]
    if backslashes:
        units.append(rf"\\{{1,{backslashes}}}(?![\\nr{mark}])[^{mark}\\\n]")
    return "|".join(units)


def match_end(body: re.Pattern[str], text: str, at: int, limit: int) -> int:
    """Return where the match at `at` ends, or `at` if there is none."""
    match = body.match(text, at, limit)
    return match.end() if match else at


def take_characters(value: str, count: int) -> str:
    """Return the first characters of a value without cutting an escape."""
    if "\\" not in value[:count]:
        return value[:count]
    return "".join(unit[0] for unit in islice(_UNIT.finditer(value), count))


def count_characters(value: str) -> int:
    """Return the length of a value; an escape counts as one character."""
    return len(value) if "\\" not in value else sum(1 for _ in _UNIT.finditer(value))


def count_escape_levels(backslashes: int) -> int:
    """Return how many times a value was escaped whose quotes have this many backslashes."""
    return int(math.log2(backslashes + 1)) + 1
