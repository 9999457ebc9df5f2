"""Secrets that are known by their names: `"api_key": "…"`, `DB_PASSWORD=…`, `--token …`.

After the name comes a sign, and after that a value; in quotes, or as `bare` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import signs
from .headers import find_header_secrets
from .names import find_name_rule
from .quoting import (
    BARE,
    ELEMENT,
    ENTITY,
    LINE,
    PARAMETER,
    QUOTE,
    end_of,
    escape_levels,
    quoted_body,
)
from .rules import NameRule, load_rules
from .unquoted_values import is_unquoted_secret, line_end
from .values import is_secret
from .window import SecretName, Span, Window

_NAME = re.compile(
    r"""([\w.\-]{0,64})
    (?:["'`\\&\]:=>\x1b]|</|\s{1,80}(?:[:=,'"]|[Vv]alue)|[ \t]{0,16}\r?\n|(?P<space>\s)|$)""",
    re.VERBOSE,
)
"""The rest of a name, and what may stand behind one; a mere space only in some cases."""
_IN_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_LONGEST = 64
_WORDS_BEFORE = tuple(f"{word} " for rule in load_rules().names for word in rule.only_after)
"""`API key` is a name of two words."""


def may_be_name(text: str, at: int) -> bool:
    """Whether a cue stands in the name of something secret."""
    return _name_at(text, at, len(text)) is not None


def find_named_values(window: Window) -> Iterator[Span]:
    """The secrets of the name in which a cue stands."""
    found = _name_at(window.text, window.at, window.end)
    if found:
        yield from _Named(window, SecretName(window.text, *found, window.end)).spans()


def _name_at(text: str, at: int, limit: int) -> tuple[int, int, NameRule] | None:
    """The name in which a cue stands, if it is one of something secret that a value may follow."""
    found = _NAME.match(text, at, limit)
    if not found:
        return None
    end = found.end(1)
    before = text[at - _LONGEST if at > _LONGEST else 0 : at]
    start = at - len(before) + len(before.rstrip(_IN_NAME))
    if start and text[start - 1] in "[;":
        start = end_of(signs.COLOUR, text, start, at)
    rule = find_name_rule(text[start:end])
    if not rule and before.lower().endswith(_WORDS_BEFORE):
        start = at - len(before) + before.rstrip().rfind(" ") + 1
        rule = find_name_rule(text[start:end])
    if rule and found["space"] and not _may_end_with_space(text, start, rule):
        return None
    return (start, end, rule) if rule else None


def _may_end_with_space(text: str, start: int, rule: NameRule) -> bool:
    """`--token x`, `<token type="x">`, `login x password y`."""
    return rule.kind == "password" or text[start] == "-" or text[start - 1] in "<:"


class _Named:
    """A name, and the window in which its values stand."""

    def __init__(self, window: Window, name: SecretName) -> None:
        self._window, self._name, self._rule = window, name, name.rule
        self._text, self._end = window.text, window.end

    def spans(self) -> Iterator[Span]:
        """The secrets that this name has."""
        if match := self._after(signs.ASSIGNED):
            yield from self._assigned(match)
        elif (match := self._after(signs.PAIRED)) and self._follows(signs.NAMES_PAIR):
            yield from self._value_if_begun(match.end())
        elif (match := self._after(signs.LISTED)) and self._follows(signs.BEGINS_LIST):
            yield from self._second(match.end())
        elif self._name.is_tag and (match := self._after(signs.TAGGED)):
            yield from self._element(match.end())
        elif (match := self._after(signs.TAG_NAMED)) and self._follows(signs.NAMES_PAIR):
            yield from self._element(match.end(), strict=True)
        elif match := self._after(signs.PLIST):
            yield from self._element(match.end())
        elif self._name.is_flag and (match := self._after(signs.FLAGGED)):
            yield from self._value_if_begun(match.end(), strict=True)
        elif self._rule.kind == "password" and not self._rule.strict and (match := self._spoken()):
            yield from self._value_if_begun(match.end())

    def _after(self, sign: re.Pattern[str]) -> re.Match[str] | None:
        return sign.match(self._text, self._name.end, self._end)

    def _follows(self, before: re.Pattern[str]) -> bool:
        start = self._name.start
        return before.search(self._text, max(0, start - 24), start) is not None

    def _spoken(self) -> re.Match[str] | None:
        """`PASSWORD 'x'` of SQL, `login x password y`."""
        start = self._name.start
        is_login = signs.LOGIN.search(self._text, max(0, start - 96), start)
        return self._after(signs.FLAGGED if is_login else signs.SQL)

    def _assigned(self, match: re.Match[str]) -> Iterator[Span]:
        at, gap = match.end(), match["gap"]
        if self._is_string(at):
            yield from self._string(at, match)
        elif self._rule.header == "cookie" and signs.JAR.match(self._text, at, self._end):
            yield from self._jar(at)
        elif item := signs.LIST.match(self._text, at, self._end):
            yield from self._items(item.end(), are_strings=item[0].startswith("["))
        elif match["sign"] in ("=", ":") and ("\n" not in gap or gap.strip()):
            yield from self._bare(at, match)

    def _is_string(self, at: int) -> bool:
        begin = end_of(signs.PREFIX, self._text, at, self._end)
        return QUOTE.match(self._text, begin, self._end) is not None

    def _string(self, at: int, match: re.Match[str]) -> Iterator[Span]:
        """A value in quotes, unless they close a string in which the name itself stands."""
        start = QUOTE.search(self._text, at, self._end)
        if start and not match["closed"] and self._text.startswith(signs.AFTER_STRING, start.end()):
            return
        is_tight = not match["spaces"] + match["gap"] and match["sign"] == "="
        is_setting = is_tight and self._name.text.isupper()
        is_compared = len(match["sign"]) > 1 and set(match["sign"]) == {"="}
        yield from self._value(at, strict=is_compared, phrase=is_setting)

    def _second(self, at: int) -> Iterator[Span]:
        """The second of two in brackets: `("Authorization", "Bearer …")`."""
        for span in self._value(at, strict=not self._rule.header):
            if signs.ENDS_LIST.match(self._text, span.end, self._end):
                yield span

    def _items(self, at: int, are_strings: bool) -> Iterator[Span]:
        """Every value of a list; in JSON, numbers have to stay numbers."""
        while at < self._end and (self._is_string(at) or not are_strings):
            end = at
            for span in self._value_if_begun(at, strict=not self._is_string(at)):
                end = span.end
                yield span
            following = end_of(signs.NEXT_ITEM, self._text, end, self._end)
            if end == at or following == end:
                return
            at = following

    def _jar(self, at: int) -> Iterator[Span]:
        """The values of a list of cookies."""
        end = signs.JAR_ENDS.search(self._text, at, self._end)
        for found in signs.JAR_VALUE.finditer(self._text, at, end.start() if end else self._end):
            depth = len(found["backslashes"])
            body = quoted_body(depth, '"')
            value_end = end_of(body, self._text, found.end(), self._end)
            if is_secret(self._text[found.end() : value_end], self._rule, strict=True):
                yield self._span(found.end(), value_end, body).escaped(escape_levels(depth))

    def _value_if_begun(self, at: int, *, strict: bool = False) -> Iterator[Span]:
        """A value, unless its quote is the end of a string in which all of it stands."""
        if not signs.STRING_ENDS.match(self._text, at, self._end):
            yield from self._value(at, strict=strict)

    def _value(self, at: int, *, strict: bool = False, phrase: bool = False) -> Iterator[Span]:
        """A value that stands in quotes, or one that does not."""
        begin = end_of(signs.PREFIX, self._text, at, self._end)
        opened = QUOTE.match(self._text, begin, self._end)
        if not opened:
            yield from self._judged(at, BARE, strict=strict)
            return
        depth = len(opened["backslashes"] or "")
        within = self._name.may_be_within
        body = ENTITY if opened["entity"] else quoted_body(depth, opened["quote"], within)
        if signs.TEMPLATE.match(self._text, at, end_of(body, self._text, opened.end(), self._end)):
            return
        escaped = escape_levels(depth) if opened["quote"] == '"' else 0
        for span in self._judged(opened.end(), body, strict=strict, phrase=phrase):
            yield span.escaped(escaped)

    def _element(self, at: int, *, strict: bool = False) -> Iterator[Span]:
        """The text of an XML element, if the element ends; or a line of its own."""
        end = end_of(ELEMENT, self._text, at, self._end)
        is_line = end == self._end and "\n" in self._text[self._name.end : at]
        if is_line or self._text.startswith(("<", "\\u003c"), end, self._end):
            yield from self._judged(at, ELEMENT, strict=strict)

    def _bare(self, at: int, match: re.Match[str]) -> Iterator[Span]:
        """A value without quotes: a setting, a parameter, prose or code."""
        is_colon, is_closed = match["sign"] == ":", match["closed"]
        if is_colon and not is_closed and (self._rule.header or self._is_phrase(at)):
            yield from self._judged(at, LINE)
            return
        body = PARAMETER if self._name.is_parameter else BARE
        end = end_of(body, self._text, at, self._end)
        if is_unquoted_secret(self._name, at, end, match):
            if is_colon and self._rule.kind == "password" and self._name.is_first:
                end, body = line_end(self._window, at, end), LINE
            yield self._span(at, end, body)

    def _is_phrase(self, at: int) -> bool:
        """Whether a passphrase of several words stands there, and nothing else on its line."""
        if not self._rule.phrase or not self._name.is_first:
            return False
        return signs.PHRASE.match(self._text, at, self._end) is not None

    def _judged(
        self, start: int, body: re.Pattern[str], *, strict: bool = False, phrase: bool = False
    ) -> Iterator[Span]:
        end = end_of(body, self._text, start, self._end)
        value = self._text[start:end]
        if self._rule.header:
            for part, part_end in find_header_secrets(self._rule.header, value):
                yield self._span(start + part, start + part_end, body)
        elif is_secret(value, self._rule, strict=strict, phrase=phrase):
            yield self._span(start, end, body)

    def _span(self, start: int, end: int, body: re.Pattern[str]) -> Span:
        return Span(start, end, self._rule.kind, self._name.text, body)
