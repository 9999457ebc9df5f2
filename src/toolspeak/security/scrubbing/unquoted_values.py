"""Decides whether an unquoted value after a name is a secret.

How much a value must look like a secret depends on its context: after `PASSWORD=` any word is one
(`PASSWORD=swordfish`), in `token: identifier` it is a type, and in `token = token` it is code.
"""

from __future__ import annotations

import re

from msgspec import Struct

from .rules import SecretNameRule
from .values import (
    MIN_LENGTH,
    is_code,
    is_identifier,
    is_number,
    is_placeholder,
    is_random,
    is_secret,
)
from .windows import LINE_VALUE, Window, match_end

_LINE_START = 128
"""This many characters before a name show how its line begins."""
_SECTION = re.compile(
    r"""^\[[^\]\n"']{1,64}+\][ \t\r]*(?:\n[ \t]*(?:[#;].*|[\w.-]++[ \t]*[=:].*)?)*+\Z""",
    re.MULTILINE,
)
_CONNECTION_STRING = re.compile(
    r"""(?i)(?:^|[\s;"'?&])(?:host|server|user|uid|user id|dbname|database|port|data source)="""
)
_CAPITALS = re.compile(r"[A-Z][A-Z0-9]{15,}")
"""A constant with such a long name would contain a `_`."""
_TYPE = re.compile(r"[A-Z]\w*(?:Bytes|Config|Env|Field|Key|Secret|Spec|Str|String|Type|Value|Var)")
"""`API_KEY: SecretStr`"""


class SecretName(Struct, frozen=True):
    """A name in a text that a secret may follow."""

    source: str
    start: int
    end: int
    rule: SecretNameRule
    limit: int
    """The end of the window."""

    @property
    def text(self) -> str:
        return self.source[self.start : self.end].strip("-.")

    @property
    def _character_before(self) -> str:
        return self.source[self.start - 1 : self.start] if self.start else ""

    @property
    def is_tag(self) -> bool:
        return self._character_before in ("<", ":")

    @property
    def is_flag(self) -> bool:
        return self.source.startswith("-", self.start)

    @property
    def is_query_parameter(self) -> bool:
        return self._character_before in ("?", "&")

    @property
    def is_setting(self) -> bool:
        """An environment variable, a parameter of a query or connection string, or a flag."""
        return self.text.isupper() or self._character_before in ("?", "&", ";") or self.is_flag

    @property
    def is_first_on_line(self) -> bool:
        return not self._line_before.strip(" \t-\"'")

    @property
    def may_be_in_string(self) -> bool:
        """A double quote precedes it on its line, or the line is too long to know."""
        return '"' in self._line_before or len(self._line_before) == _LINE_START

    @property
    def is_in_section(self) -> bool:
        """Only settings are between the name and the `[section]` of an INI file."""
        before = self.source[max(0, self.start - _LINE_START) : self.start]
        return _SECTION.search(before) is not None

    @property
    def _line_before(self) -> str:
        before = self.source[max(0, self.start - _LINE_START) : self.start]
        return before.rpartition("\n")[2]


def is_unquoted_secret(name: SecretName, at: int, end: int, sign: re.Match[str]) -> bool:
    """Return True if the text between `at` and `end`, after the name and `sign`, is a secret."""
    value, after = name.source[at:end], name.source[end : min(end + 1, name.limit)]
    is_css_style = name.is_flag and sign["sign"] == ":"
    if not value or value[0] in "{[(<|>" or is_css_style:
        return False
    if len(value) < MIN_LENGTH:
        return _is_short_password(name, value, after)
    if sign["closed"] or sign["sign"] == ":":
        return _is_secret_after_colon(name, at, value, bool(sign["closed"]))
    if sign["spaces"] or sign["gap"]:
        return _is_secret_after_space(name, at, value)
    if name.is_setting:
        return is_secret(value, name.rule)
    if "." in name.text and (not name.is_first_on_line or any(mark in value for mark in "(;")):
        return "(" not in value and is_secret(value, name.rule, random_only=True)
    is_argument = is_identifier(value) and after in (",", ")")
    return not is_argument and not _is_expression(value) and is_secret(value, name.rule)


def _is_secret_after_colon(name: SecretName, at: int, value: str, is_closed: bool) -> bool:
    """`password: swordfish` on a line of its own is a secret, `token: Identifier` is a type.

    After a quoted name (JSON), numbers must remain numbers.
    """
    if is_closed and is_number(value):
        return False
    if value.isdecimal():
        return is_secret(value, name.rule)
    if is_random(value):
        return not _is_expression(value) and is_secret(value, name.rule, random_only=True)
    if not name.is_first_on_line or name.rule.random_only or not _is_last(name, at, value):
        return False
    is_setting = name.text.isupper() and not _is_expression(value) and not _TYPE.fullmatch(value)
    is_word = name.rule.kind == "password" and value.islower()
    return (is_word or (is_setting and not is_closed)) and is_secret(value, name.rule)


def _is_secret_after_space(name: SecretName, at: int, value: str) -> bool:
    """`password = swordfish` in an INI file is a secret, `token = token` is code."""
    if _CAPITALS.fullmatch(value) and not name.rule.random_only:
        return is_secret(value, name.rule)
    if not is_code(value):
        return is_secret(value, name.rule, random_only=True)
    is_line = name.is_first_on_line and _is_last(name, at, value) and name.is_in_section
    return is_line and not _is_expression(value) and is_secret(value, name.rule)


def _is_last(name: SecretName, at: int, value: str) -> bool:
    """Return True if nothing follows the value on its line."""
    end = at + len(value)
    return not name.source[end : match_end(LINE_VALUE, name.source, end, name.limit)].strip()


def _is_expression(value: str) -> bool:
    """Return True for code that is more than a name: `get_token()`, `config.token`."""
    return is_code(value) and not value.isalnum()


def _is_short_password(name: SecretName, value: str, after: str) -> bool:
    """Return True for a password in a connection string, where every length counts."""
    if name.rule.kind != "password" or name.rule.random_only or is_placeholder(value):
        return False
    before = name.source[max(0, name.start - 128) : name.start]
    is_in_list = _CONNECTION_STRING.search(before) and after in ("", ";", " ", '"', "\n", "&")
    return before.endswith(";") or bool(is_in_list)


def find_line_value_end(window: Window, at: int, end: int) -> int:
    """Return where a password of several words ends: with its line, or before a comment."""
    line = window.text[at : match_end(LINE_VALUE, window.text, at, window.end)]
    return max(end, at + len(line.partition(" #")[0].rstrip()))
