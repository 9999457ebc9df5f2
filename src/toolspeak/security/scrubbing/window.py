"""The piece of a text that decides whether there is a secret at a place.

It reaches from the place to the end of its line, or as far as `REACH`. That depends on the text
alone, and not on the pieces in which it came; so what is found does not depend on them either.
"""

from __future__ import annotations

import re

from msgspec import Struct, structs

from .quoting import AHEAD, end_of
from .rules import NameRule

REACH = 2048
"""So many characters after a cue are waited for at most."""
BEFORE = 256
"""So many characters before it are at hand, even if they have been given back."""

_IN_SIGHT = 128
"""So many characters before a name tell how its line begins."""
_GOES_ON = re.compile(r"""(?:[:=>|,(\[{\\]|[|>][+-])[ \t\r]*$""")
_SECTION = re.compile(
    r"""^\[[^\]\n"']{1,64}+\][ \t\r]*(?:\n[ \t]*(?:[#;].*|[\w.-]++[ \t]*[=:].*)?)*+\Z""",
    re.MULTILINE,
)
_NAME_ONLY = re.compile(r"""[\w.\-]*\\*["']?[ \t\r]*""")
_LIST = re.compile(r"""[:\[][ \t\r]*$""")
_ITEM = re.compile(r"""\s*(?:-\s|\\*["'])""")
_ITEMS = 8
"""So many lines of a list belong to the name before it."""


class Window(Struct, frozen=True):
    """A place in a text, and how far one may look from there."""

    text: str
    at: int
    end: int
    is_cut: bool = False
    """The line is longer: a value that ends here may go on."""

    @property
    def before(self) -> str:
        return self.text[max(0, self.at - BEFORE) : self.at]


class Span(Struct, frozen=True):
    """A secret in a text."""

    start: int
    end: int
    kind: str
    name: str = ""
    body: re.Pattern[str] | None = None
    """What more of it would look like, if it is longer than the window."""
    levels: int = 0
    """How often it was escaped."""
    is_block: bool = False
    """It only begins here: the rest is `BlockRest`."""

    def escaped(self, levels: int) -> Span:
        return structs.replace(self, levels=levels)

    def moved(self, by: int) -> Span:
        """The same one, in a text that has lost so many characters before it."""
        return structs.replace(self, start=self.start - by, end=self.end - by)


class SecretName(Struct, frozen=True):
    """The name of something secret in a text."""

    source: str
    start: int
    end: int
    rule: NameRule
    limit: int
    """So far one may look from here."""

    @property
    def text(self) -> str:
        return self.source[self.start : self.end].strip("-.")

    @property
    def _before(self) -> str:
        return self.source[self.start - 1 : self.start] if self.start else ""

    @property
    def is_tag(self) -> bool:
        return self._before in ("<", ":")

    @property
    def is_flag(self) -> bool:
        return self.source.startswith("-", self.start)

    @property
    def is_parameter(self) -> bool:
        """It is one of a query."""
        return self._before in ("?", "&")

    @property
    def is_setting(self) -> bool:
        """It is one of the environment, of a query, of a connection string or of a command."""
        return self.text.isupper() or self._before in ("?", "&", ";") or self.is_flag

    @property
    def is_first(self) -> bool:
        """It is the first thing on its line."""
        return not self._line_before.strip(" \t-\"'")

    @property
    def may_be_within(self) -> bool:
        """It may stand in a string of double quotes: one is on its line, or that is a long one."""
        return '"' in self._line_before or len(self._line_before) == _IN_SIGHT

    @property
    def is_in_section(self) -> bool:
        """It is one of an INI file: only settings stand between it and a `[section]`."""
        before = self.source[max(0, self.start - _IN_SIGHT) : self.start]
        return _SECTION.search(before) is not None

    @property
    def _line_before(self) -> str:
        before = self.source[max(0, self.start - _IN_SIGHT) : self.start]
        return before.rpartition("\n")[2]


class ContinuationStep(Struct, frozen=True):
    """How far the rest of a long secret has been read."""

    end: int
    given: str = ""
    """What stands between, and stays."""
    secret: str = ""
    is_over: bool = False


class ValueContinuation(Struct, frozen=True):
    """The rest of a value that is longer than a window."""

    body: re.Pattern[str]

    def further(self, text: str, at: int, final: bool) -> ContinuationStep:
        end = end_of(self.body, text, at, len(text))
        is_over = final or end < len(text) - AHEAD
        if not is_over:
            end = end_of(self.body, text, at, max(at, len(text) - AHEAD))
        return ContinuationStep(end, secret=text[at:end], is_over=is_over)


def line_window(text: str, at: int, final: bool) -> Window | None:
    """What stands after a place to the end of its line; None if that is not all there yet. A line
    that ends with its name or with `:` goes on in the next one."""
    limit = at + REACH
    end = text.find("\n", at, limit)
    if end >= 0:
        end = _further(text, at, end, limit)
    if end >= 0:
        return Window(text, at, end)
    if len(text) >= limit:
        return Window(text, at, limit, is_cut=True)
    return Window(text, at, len(text)) if final else None


def _further(text: str, at: int, end: int, limit: int) -> int:
    """The end of the last line that belongs to the one that ends here; -1 if it is not in sight."""
    tail = max(at, end - 8)
    if not (_GOES_ON.search(text, tail, end) or _NAME_ONLY.fullmatch(text, at, end)):
        return end
    lines = _ITEMS if _LIST.search(text, tail, end) else 1
    while lines:
        is_item = _ITEM.match(text, end, limit)
        end = text.find("\n", end + 1, limit)
        lines = lines - 1 if is_item and end >= 0 else 0
    return end


def near_window(text: str, at: int, final: bool, reach: int) -> Window | None:
    """So many characters after a place, whatever their lines are."""
    if len(text) >= at + reach:
        return Window(text, at, at + reach, is_cut=True)
    return Window(text, at, len(text)) if final else None
