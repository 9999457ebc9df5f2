"""Finds secrets that follow a name: `"api_key": "…"`, `DB_PASSWORD=…`, `--token …`.

After the name comes a sign (`=`, `:`, `">`, a space …), and after the sign a value. A quoted value
is a secret unless it describes one or is a placeholder. An unquoted value may be code, so its
context counts: in `PASSWORD=swordfish` any word is a secret, in `token: identifier` the word is a
type, and in `token = token` it is a variable.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from .rules import (
    MIN_LENGTH,
    RULES,
    SecretNameRule,
    find_header_secrets,
    find_name_rule,
    is_code,
    is_expression,
    is_identifier,
    is_number,
    is_placeholder,
    is_random,
    is_secret,
)
from .windows import (
    ELEMENT_VALUE,
    ENTITY_VALUE,
    LINE_VALUE,
    QUERY_VALUE,
    QUOTE,
    UNQUOTED_VALUE,
    Span,
    Window,
    count_escape_levels,
    match_end,
    quoted_value,
)

# Names.

_NAME = re.compile(
    r"""([\w.\-]{0,64})
    (?:["'`\\&\]:=>\x1b]|</|\s{1,80}(?:[:=,'"]|[Vv]alue)|[ \t]{0,16}\r?\n|(?P<space>\s)|$)""",
    re.VERBOSE,
)
"""The rest of a name, and what may follow it; a plain space only in some cases."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NAME_CHARACTERS = f"{_LETTERS}{_LETTERS.upper()}0123456789_.-"
_MAX_NAME = 64
_WORDS_BEFORE_NAME = frozenset(word for rule in RULES.names for word in rule.only_after)
_LONGEST_WORD = max(map(len, _WORDS_BEFORE_NAME)) + 1
_SECOND_WORDS = tuple(word for rule in RULES.names if rule.only_after for word in rule.words)
_MAX_SECOND_WORD = max(map(len, _SECOND_WORDS))
"""`API key` is a name of two words."""

_LINE_START = 128
"""This many characters before a name show how its line begins."""
_SECTION = re.compile(
    r"""^\[[^\]\n"']{1,64}+\][ \t\r]*(?:\n[ \t]*(?:[#;].*|[\w.-]++[ \t]*[=:].*)?)*+\Z""",
    re.MULTILINE,
)
_CONNECTION_STRING = re.compile(
    r"""(?i)(?:^|[\s;"'?&])(?:host|server|user|uid|user id|dbname|database|port|data source)="""
)


def find_named_values(window: Window) -> Iterator[Span]:
    """Yield the secrets that follow the name at the start of the window."""
    if found := find_name(window.text, window.at, window.end):
        yield from _NamedValueFinder(window, *found).find()


def find_name(
    text: str, at: int, limit: int = sys.maxsize
) -> tuple[int, int, SecretNameRule] | None:
    """Return the start, end and rule of the name that contains the cue at `at`."""
    rest = _NAME.match(text, at, limit)
    if not rest:
        return None
    end = rest.end(1)
    before = text[at - _MAX_NAME if at > _MAX_NAME else 0 : at]
    start = at - len(before) + len(before.rstrip(_NAME_CHARACTERS))
    if start and text[start - 1] in "[;":
        start = match_end(_COLOUR_END, text, start, at)
    rule = find_name_rule(text[start:end])
    if not rule and start and text[start - 1] == " " and _has_word_before(text, start):
        start = at - len(before) + before.rstrip().rfind(" ") + 1
        rule = find_name_rule(text[start:end])
    if rule and rest["space"] and not _may_precede_space(text, start, rule):
        return None
    return (start, end, rule) if rule else None


def _has_word_before(text: str, start: int) -> bool:
    """Return True for `key` in `API key`."""
    if not text[start : start + _MAX_SECOND_WORD].lower().startswith(_SECOND_WORDS):
        return False
    before = text[start - _LONGEST_WORD if start > _LONGEST_WORD else 0 : start - 1].lower()
    return before[len(before.rstrip(_LETTERS)) :] in _WORDS_BEFORE_NAME


def _may_precede_space(text: str, start: int, rule: SecretNameRule) -> bool:
    """`--token x`, `<token type="x">`, `login x password y`, or `secret x` as a whole line."""
    is_tag = start > 0 and text[start - 1] in "<:"
    if rule.kind == "password" or text[start] == "-" or is_tag:
        return True
    return _may_be_directive(text, start)


def _may_be_directive(text: str, start: int) -> bool:
    """Return True if a line or a command may begin here: `secret swordfish`."""
    before = text[max(0, start - _MAX_INDENT) : start]
    line_start = before.rstrip(" ")
    return line_start in ("", ":") or line_start.endswith(_BEFORE_DIRECTIVE) or before[-1] == ":"


# Signs between a name and its value.

_CLOSING_QUOTE = r"""(?P<closed>\\*["'`]|&(?:quot|apos|\#34|\#39);)"""
_COLOURS = r"(?:(?:\x1b|\\+(?:u001[bB]|x1[bB]|033|e))\[[\d;]{0,16}m){0,3}"
_ASSIGNMENT = re.compile(
    rf"""{_COLOURS}{_CLOSING_QUOTE}?\]?(?P<spaces>[ \t]{{0,16}})
    (?::[ ]?[\w.\[\]|<>?, ]{{1,48}}(?==[ ]))?                 # password: str = …
    (?P<sign>=>|:=|={{1,3}}|:(?!:|//)|(?<=\w)::(?=[ ]\S)){_COLOURS}
    (?P<gap>(?:[ \t]*[|>][+-]?[ \t\r]*\n)?\s{{0,64}}){_COLOURS}""",
    re.VERBOSE,
)
_PAIR = re.compile(
    rf"""{_CLOSING_QUOTE}?\s{{0,16}},?\s{{0,64}}\\*["']?[Vv]alue\\*["']?\s{{0,8}}[:=]\s{{0,8}}""",
    re.VERBOSE,
)
"""`"name": "DB_PASSWORD", "value": …`"""
_BEFORE_PAIR = re.compile(r"""(?i)\b(?:name|key|id)\\*["']?\s{0,8}[:=]\s{0,8}\\*["']?$""")
_TUPLE = re.compile(rf"""{_CLOSING_QUOTE},[ ]?[a-z]?(?=\\*["'])""", re.VERBOSE)
"""`("Authorization", …)`"""
_BEFORE_TUPLE = re.compile(r"""\([a-z]?\\*["']$""")
_TUPLE_END = re.compile(r"""\\*["']\s{0,16}\)""")
_TAG_END = re.compile(r"""(?:\s[^<>]{0,64})?>\s{0,64}""")
_ATTRIBUTE_TAG_END = re.compile(r"""\\*["'](?:\s[^<>]{0,64})?>\s{0,64}""")
"""`<string name="api_key">…`"""
_PLIST = re.compile(r"""</key>\s{0,64}<string>\s{0,64}""")
"""`<key>password</key><string>…`"""
_FLAG = re.compile(r"""[ \t]{1,4}(?!-)""")
_SQL = re.compile(r"""[ \t]{1,4}(?:(?i:for)[ ]\S{1,64}[ ]?=[ ]?)?(?:(?i:password)\()?(?=')""")
"""`PASSWORD '…'`, `SET PASSWORD FOR bob = '…'`."""
_OBJECT = re.compile(
    rf"""{_CLOSING_QUOTE}?\s{{0,8}}[:=]\s{{0,8}}\{{[^{{}}]{{0,400}}?
    \\*"[Vv]alue\\*"\s{{0,8}}:\s{{0,8}}(?=\\*")""",
    re.VERBOSE,
)
"""`"db_password": {"sensitive": true, "value": "…"}`"""
_MAX_INDENT = 16
_BEFORE_DIRECTIVE = ("\n", "\t", ">", "+", "|", '"', "\\n", " :", "\n:", " set")
"""The text before a line such as `bindpw …`, or before a command such as `config set bindpw …`."""
_DIRECTIVE_END = re.compile(r"""[ \t\r]*(?:\\+[nr]|["']|\Z)""")
"""The end of such a line."""
_LOGIN = re.compile(r"""(?:login[ \t]+\S{1,64}|\bmachine[ \t]+[\w-]{1,32}\.[\w.-]{1,64})\s+\Z""")
"""`login bob password …` in a .netrc file."""

# Around a value.

_COLOUR_END = re.compile(r"""(?:\d{1,3}m)?""")
"""The end of a terminal colour right before a name: `\\x1b[33m`."""
_STRING_PREFIX = re.compile(r"""(?:[rRbBuUfF@$]{1,2}(?=["'`]))?""")
_TEMPLATE = re.compile(r"""[bB]?[rRfF][bB]?["'][^{(\[\\]*+[{(\[\\]""")
"""A regular expression, or a string with fields to fill in."""
_AFTER_STRING = tuple(",}]:+.) \t\n\r")
"""Characters that follow a closing quote, where an opening one was expected."""
_STRING_END = re.compile(r"""[rRbBuUfF@$]{0,2}\\*"[\s,}\]:]""")
"""The end of a JSON string, where a value was expected."""
_COOKIE_JAR = re.compile(r"""\[\s{0,64}\{""")
"""`"cookies": [{"name": "sid", "value": …}]`"""
_COOKIE_VALUE = re.compile(r"""(?P<backslashes>\\{0,15})"value\\*"\s{0,8}:\s{0,8}\\*["]""")
_COOKIE_JAR_END = re.compile(r"""\}\s{0,64}\]|\Z""")
_PHRASE = re.compile(r"""(?:\w{2,24}[ ]){2,23}\w{2,24}[ \t\r]*(?:\n|$)""")
_LIST = re.compile(r"""\[\s{0,64}|-[ ]{1,4}""")
_NEXT_ITEM = re.compile(r"""\\*["'`]?\s{0,64},?\s{0,64}(?:-\s{1,4})?""")


# Unquoted values.

_CAPITALS = re.compile(r"[A-Z][A-Z0-9]{15,}")
"""A constant with such a long name would contain a `_`."""
_TYPE = re.compile(r"[A-Z]\w*(?:Bytes|Config|Env|Field|Key|Secret|Spec|Str|String|Type|Value|Var)")
"""`API_KEY: SecretStr`"""
_AFTER_PARAMETER = ("", ";", " ", '"', "\n", "&")


class _NamedValueFinder:
    """Finds the secrets that follow one name."""

    def __init__(self, window: Window, start: int, end: int, rule: SecretNameRule) -> None:
        text = window.text
        self._window, self._text, self._limit = window, text, window.end
        self._name_end, self._rule = end, rule
        self._name = text[start:end].strip("-.")
        self._before = text[max(0, start - _LINE_START) : start]
        self._line_before = self._before.rpartition("\n")[2]
        self._is_first_on_line = not self._line_before.strip(" \t-\"'")
        self._is_flag = text.startswith("-", start)
        self._start = start

    def find(self) -> Iterator[Span]:
        if sign := self._match_sign(_ASSIGNMENT):
            yield from self._find_assigned(sign)
        elif (sign := self._match_sign(_PAIR)) and _BEFORE_PAIR.search(self._before):
            yield from self._find_value_unless_string_end(sign.end())
        elif (sign := self._match_sign(_TUPLE)) and _BEFORE_TUPLE.search(self._before):
            yield from self._find_in_tuple(sign.end())
        elif self._before.endswith(("<", ":")) and (sign := self._match_sign(_TAG_END)):
            yield from self._find_in_element(sign.end())
        elif (sign := self._match_sign(_ATTRIBUTE_TAG_END)) and _BEFORE_PAIR.search(self._before):
            yield from self._find_in_element(sign.end(), random_only=True)
        elif sign := self._match_sign(_PLIST):
            yield from self._find_in_element(sign.end())
        elif self._is_flag and (sign := self._match_sign(_FLAG)):
            yield from self._find_value_unless_string_end(sign.end(), random_only=True)
        elif (sign := self._match_sign(_FLAG)) and _may_be_directive(self._text, self._start):
            yield from self._find_directive(sign.end())
        elif self._rule.kind == "password" and not self._rule.random_only:
            is_login = _LOGIN.search(self._before)
            if sign := self._match_sign(_FLAG if is_login else _SQL):
                yield from self._find_value_unless_string_end(sign.end())

    def _match_sign(self, sign: re.Pattern[str]) -> re.Match[str] | None:
        return sign.match(self._text, self._name_end, self._limit)

    # Signs.

    def _find_directive(self, at: int) -> Iterator[Span]:
        """Find a value that fills the rest of its line: `bindpw swordfish`."""
        quote = self._match_quote(at)
        random_only = not self._rule.after_space
        for span in self._find_value_unless_string_end(at, random_only=random_only):
            is_whole = quote or _DIRECTIVE_END.match(self._text, span.end, self._limit)
            is_macro = self._name.isupper() and self._rule.kind != "password"
            value = self._text[span.start : span.end]
            is_code = is_expression(value, is_setting=self._rule.after_space)
            if is_whole and not is_macro and not is_code:
                yield span

    def _find_assigned(self, sign: re.Match[str]) -> Iterator[Span]:
        at, gap = sign.end(), sign["gap"]
        if self._match_quote(at):
            yield from self._find_string(at, sign)
        elif self._rule.header == "cookie" and _COOKIE_JAR.match(self._text, at, self._limit):
            yield from self._find_in_cookie_jar(at)
        elif self._text.startswith("{", at) and (value := self._match_sign(_OBJECT)):
            random_only = self._rule.kind != "password"
            yield from self._find_value(value.end(), random_only=random_only)
        elif item := _LIST.match(self._text, at, self._limit):
            yield from self._find_in_list(item.end(), is_json=item[0].startswith("["))
        elif sign["sign"] in ("=", ":", "::") and ("\n" not in gap or gap.strip()):
            yield from self._find_unquoted(at, sign)

    def _find_string(self, at: int, sign: re.Match[str]) -> Iterator[Span]:
        """Find a quoted value, unless its quote closes a string that contains the name."""
        quote = QUOTE.search(self._text, at, self._limit)
        if quote and not sign["closed"] and self._text.startswith(_AFTER_STRING, quote.end()):
            return
        is_tight = not sign["spaces"] + sign["gap"] and sign["sign"] == "="
        is_setting = is_tight and self._name.isupper()
        is_comparison = len(sign["sign"]) > 1 and set(sign["sign"]) == {"="}
        yield from self._find_value(at, random_only=is_comparison, multi_word=is_setting)

    def _find_in_tuple(self, at: int) -> Iterator[Span]:
        """Find the second of two items: `("Authorization", "Bearer …")`.

        In a longer tuple, it is not the value of the first.
        """
        for span in self._find_value(at, random_only=not self._rule.header):
            if _TUPLE_END.match(self._text, span.end, self._limit):
                yield span

    def _find_in_list(self, at: int, is_json: bool) -> Iterator[Span]:
        """Find every value of a list; numbers in JSON must remain numbers."""
        while at < self._limit and (self._match_quote(at) or not is_json):
            end = at
            random_only = not self._match_quote(at)
            for span in self._find_value_unless_string_end(at, random_only=random_only):
                end = span.end
                yield span
            next_item = match_end(_NEXT_ITEM, self._text, end, self._limit)
            if end == at or next_item == end:
                return
            at = next_item

    def _find_in_cookie_jar(self, at: int) -> Iterator[Span]:
        jar_end = _COOKIE_JAR_END.search(self._text, at, self._limit)
        limit = jar_end.start() if jar_end else self._limit
        for value in _COOKIE_VALUE.finditer(self._text, at, limit):
            backslashes = len(value["backslashes"])
            body = quoted_value(backslashes, '"')
            end = match_end(body, self._text, value.end(), self._limit)
            if is_secret(self._text[value.end() : end], self._rule, random_only=True):
                yield self._span(value.end(), end, body, count_escape_levels(backslashes))

    # Values.

    def _match_quote(self, at: int) -> re.Match[str] | None:
        """Match the opening quote of a string, which may have a prefix: `f"…"`."""
        quote_at = match_end(_STRING_PREFIX, self._text, at, self._limit)
        return QUOTE.match(self._text, quote_at, self._limit)

    def _find_value_unless_string_end(
        self, at: int, *, random_only: bool = False
    ) -> Iterator[Span]:
        """Find a value, unless its quote closes the string that contains all of this."""
        if not _STRING_END.match(self._text, at, self._limit):
            yield from self._find_value(at, random_only=random_only)

    def _find_value(
        self, at: int, *, random_only: bool = False, multi_word: bool = False
    ) -> Iterator[Span]:
        opening = self._match_quote(at)
        if not opening:
            yield from self._check_value(at, UNQUOTED_VALUE, random_only=random_only)
            return
        backslashes, quote = len(opening["backslashes"] or ""), opening["quote"]
        # Only in a string: a double quote precedes the name, or its line is too long to know.
        may_be_nested = '"' in self._line_before or len(self._line_before) == _LINE_START
        is_entity = opening["entity"]
        body = ENTITY_VALUE if is_entity else quoted_value(backslashes, quote, may_be_nested)
        value_end = match_end(body, self._text, opening.end(), self._limit)
        if not _TEMPLATE.match(self._text, at, value_end):
            levels = count_escape_levels(backslashes) if quote == '"' else 0
            yield from self._check_value(
                opening.end(), body, levels, random_only=random_only, multi_word=multi_word
            )

    def _find_in_element(self, at: int, *, random_only: bool = False) -> Iterator[Span]:
        """Find the text of an XML element that is closed, or whose text fills its line."""
        end = match_end(ELEMENT_VALUE, self._text, at, self._limit)
        is_line = end == self._limit and "\n" in self._text[self._name_end : at]
        if is_line or self._text.startswith(("<", "\\u003c"), end, self._limit):
            yield from self._check_value(at, ELEMENT_VALUE, random_only=random_only)

    def _check_value(
        self,
        start: int,
        body: re.Pattern[str],
        levels: int = 0,
        *,
        random_only: bool = False,
        multi_word: bool = False,
    ) -> Iterator[Span]:
        end = match_end(body, self._text, start, self._limit)
        value = self._text[start:end]
        if self._rule.header:
            for part, part_end in find_header_secrets(self._rule.header, value):
                yield self._span(start + part, start + part_end, body, levels)
        elif is_secret(value, self._rule, random_only=random_only, multi_word=multi_word):
            yield self._span(start, end, body, levels)

    def _span(self, start: int, end: int, body: re.Pattern[str], levels: int = 0) -> Span:
        read_more = self._window.continue_from(end, body)
        return Span(start, end, self._rule.kind, self._name, levels, read_more)

    # Unquoted values: settings, parameters, prose or code.

    def _find_unquoted(self, at: int, sign: re.Match[str]) -> Iterator[Span]:
        is_colon = sign["sign"].startswith(":")
        is_phrase = self._rule.multi_word and self._is_first_on_line
        if (
            is_colon
            and not sign["closed"]
            and (self._rule.header or (is_phrase and _PHRASE.match(self._text, at, self._limit)))
        ):
            yield from self._check_value(at, LINE_VALUE)
            return
        body = QUERY_VALUE if self._before.endswith(("?", "&")) else UNQUOTED_VALUE
        end = match_end(body, self._text, at, self._limit)
        if not self._is_unquoted_secret(self._text[at:end], end, sign):
            return
        if is_colon and self._rule.kind == "password" and self._is_first_on_line:
            # A password of several words ends with its line, or before a comment.
            line = self._text[at : match_end(LINE_VALUE, self._text, at, self._limit)]
            end = max(end, at + len(line.partition(" #")[0].rstrip()))
            body = LINE_VALUE
        yield self._span(at, end, body)

    def _is_unquoted_secret(self, value: str, end: int, sign: re.Match[str]) -> bool:
        """Return True if the value that ends at `end`, after the name and `sign`, is a secret."""
        is_colon = sign["sign"].startswith(":")
        is_css_style = self._is_flag and is_colon
        if not value or value[0] in "{[(<|>" or is_css_style:
            return False
        after = self._text[end : min(end + 1, self._limit)]
        if len(value) < MIN_LENGTH:
            return self._is_short_password(value, after)
        if is_colon or sign["closed"]:
            return self._is_secret_after_colon(value, end, bool(sign["closed"]))
        if sign["spaces"] or sign["gap"]:
            return self._is_secret_after_space(value, end)
        if self._name.isupper() or self._is_flag or self._before.endswith(("?", "&", ";")):
            return is_secret(value, self._rule)
        if "." in self._name and (not self._is_first_on_line or any(c in value for c in "(;")):
            return "(" not in value and is_secret(value, self._rule, random_only=True)
        if is_identifier(value) and after in (",", ")"):
            return False
        is_setting = self._is_only_value(end)
        return not is_expression(value, is_setting=is_setting) and is_secret(value, self._rule)

    def _is_short_password(self, value: str, after: str) -> bool:
        """Return True for a password in a connection string, where every length counts."""
        if self._rule.kind != "password" or self._rule.random_only or is_placeholder(value):
            return False
        is_parameter = _CONNECTION_STRING.search(self._before) and after in _AFTER_PARAMETER
        return self._before.endswith(";") or bool(is_parameter)

    def _is_secret_after_colon(self, value: str, end: int, is_closed: bool) -> bool:
        """`password: swordfish` is a secret if nothing else is on the line; `token: Identifier`
        is not.

        After a quoted name (JSON), numbers must remain numbers.
        """
        if is_closed and is_number(value):
            return False
        if value.isdecimal():
            return is_secret(value, self._rule)
        if is_random(value):
            is_setting = self._rule.kind == "password" and self._is_only_value(end)
            is_code = is_expression(value, is_setting=is_setting)
            return not is_code and is_secret(value, self._rule, random_only=True)
        if self._rule.random_only or not self._is_only_value(end):
            return False
        is_setting = (
            self._name.isupper() and not is_expression(value) and not _TYPE.fullmatch(value)
        )
        is_word = self._rule.kind == "password" and value.islower()
        return (is_word or (is_setting and not is_closed)) and is_secret(value, self._rule)

    def _is_secret_after_space(self, value: str, end: int) -> bool:
        """`password = swordfish` in an INI file is a secret, `token = token` is code."""
        if _CAPITALS.fullmatch(value) and not self._rule.random_only:
            return is_secret(value, self._rule)
        if not is_code(value):
            return is_secret(value, self._rule, random_only=True)
        is_entry = self._is_only_value(end) and _SECTION.search(self._before)
        return bool(is_entry) and not is_expression(value) and is_secret(value, self._rule)

    def _is_only_value(self, end: int) -> bool:
        """Return True if the line has nothing before the name, and nothing after the value."""
        line_end = match_end(LINE_VALUE, self._text, end, self._limit)
        return self._is_first_on_line and not self._text[end:line_end].strip()
