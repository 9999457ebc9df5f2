r"""Where a value ends, in all the ways in which values are written.

    "hunter2"   'hunter2'   \"hunter2\" in a string   hunter2&x=1   hunter2; next   hunter2 next

Each is a regular expression for any part of a value, made of units that are never cut: characters,
and escapes such as `\n` and `\u00e9`. So a value that is longer than what is at hand can go on.
"""

from __future__ import annotations

import math
import re
from functools import cache

QUOTE = re.compile(
    r"""(?P<backslashes>\\{0,15})(?P<quote>\"{3}|'{3}(?=[^\n]{0,999}'{3})|["'`])|(?P<entity>&(?:quot|apos|\#34|\#39);)""",
    re.VERBOSE,
)
AHEAD = 80
"""So far a unit may look ahead."""

_NEXT_NAME = r"""\s{0,8}\\{0,7}["']?[\w.\-]{1,48}+\\{0,7}["']?[ ]{0,4}[:=]"""
_COLOUR = r"(?:u001[bB]|x1[bB])\["
_UNITS = rf"""
      [^\s"'`<&;,)\]}}\\#\x1b]++
    | '(?=\w)                                           # it's
    | <(?![/A-Za-z!?])
    | &(?!amp;|&|[\w.\[\]%\-]{{1,64}}=|\s|$)            # the next parameter of a query
    | ;(?!{_NEXT_NAME}|\s|\\*["']|\\+[nrt]|$)           # … of a connection string
    | ,(?!{_NEXT_NAME}|\s|\\*["']|\\+[nrt]|$)
    | [)\]}}](?![\s,;:.)\]}}"'`\\]|$)
    | \\+(?!["'`\\nrt]|u00(?:0[aAdD]|2[267]|3[cCdDeE])|{_COLOUR}|\s|$).
"""
PARAMETER = re.compile(f"(?:{_UNITS})*+", re.VERBOSE)
"""A value in a query."""
BARE = re.compile(rf"(?:{_UNITS}|\#)*+", re.VERBOSE)
"""A value without quotes. What may be part of one ends it only where something else begins."""

LINE = re.compile(rf"""(?:[^\n\r"'`\\\x1b]++|'(?=\w)|\\+(?!["'`\\nr]|{_COLOUR}|$).)*+""")
"""A value that goes on to the end of its line, or of the string in which it stands."""

ELEMENT = re.compile(r"""(?:[^<"\\\n]++|\\+(?!["\\nr]|u003[cC]|$).)*+""")
"""A value between tags."""

ENTITY = re.compile(r"""(?:[^&"\\\n<]++|&(?!quot;|apos;|#34;|#39;))*+""")
"""A value in quotes that HTML has escaped."""

_UNIT = re.compile(
    r"\\+(?:u[0-9a-fA-F]{4}(?:\\+u[dD][c-fC-F][0-9a-fA-F]{2})?|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|.|$)|.",
    re.DOTALL,
)


_STRING_ENDS = r"""\\{0,31}"(?:[\s,}\]:\\);]|$)"""
"""The end of a string of JSON or of code, as its quote and what stands behind it tell."""


@cache
def quoted_body(backslashes: int, quote: str, is_within: bool = False) -> re.Pattern[str]:
    """A value in these quotes, which stand behind so many backslashes if they are in a string
    themselves: `\\"` in a string, `\\\\\\"` in a string in a string. `is_within`: they may stand in
    a string of double quotes, and a value ends where that does."""
    if is_within and quote[0] != '"':
        units = _units(backslashes, quote, rf'[^{quote[0]}"\\\n]++|"')
        return re.compile(rf"(?:(?!{_STRING_ENDS})(?:{units}))*+")
    units = _units(backslashes, quote, rf"[^{quote[0]}\\\n]++")
    return re.compile(f"(?:{units})*+")


def _units(backslashes: int, quote: str, plain: str) -> str:
    """What a value in these quotes consists of: plain characters, and escapes."""
    mark = quote[0]
    if len(quote) == 3:
        return rf"{plain}|\\.|{mark}(?!{quote[1:]})"
    if mark == "'" and not backslashes:
        # TOML, YAML and shells know no escapes in these quotes; YAML doubles them.
        return rf"{plain}|''|\\(?!'\s*(?:[,;)\]}}#]|$))[^\n]"
    deep, deeper = rf"\\{{{backslashes}}}", rf"\\{{{backslashes + 1}}}"
    units = [plain, rf"{deeper}(?:{deeper}|{deep}{mark}|[^{mark}\\\n])"]
    if backslashes:
        units.append(rf"\\{{1,{backslashes}}}(?![\\nr{mark}])[^{mark}\\\n]")
    return "|".join(units)


def end_of(body: re.Pattern[str], text: str, at: int, limit: int) -> int:
    """Where what begins at a place ends."""
    match = body.match(text, at, limit)
    return match.end() if match else at


def keep_start(value: str, characters: int) -> str:
    """The beginning of a value, without half an escape."""
    if "\\" not in value[:characters]:
        return value[:characters]
    found, end = _UNIT.finditer(value), 0
    for _ in range(characters):
        unit = next(found, None)
        end = unit.end() if unit else end
    return value[:end]


def count_characters(value: str) -> int:
    """How many characters a value has, if its escapes are undone."""
    return len(value) if "\\" not in value else sum(1 for _ in _UNIT.finditer(value))


def escape_levels(backslashes: int) -> int:
    """How often a value was escaped that stands in quotes with so many backslashes."""
    return int(math.log2(backslashes + 1)) + 1
