"""Values without quotes, after a name of something secret.

How much such a value has to look like a secret depends on what stands around it: in
`PASSWORD=swordfish` any word is one, `token: identifier` is a type, and `token = token` is code.
"""

from __future__ import annotations

import re

from .quoting import LINE, end_of
from .values import (
    SHORTEST,
    is_code,
    is_identifier,
    is_number,
    is_placeholder,
    is_random,
    is_secret,
)
from .window import SecretName, Window

_CONNECTION = re.compile(
    r"""(?i)(?:^|[\s;"'?&])(?:host|server|user|uid|user id|dbname|database|port|data source)="""
)
_CAPITALS = re.compile(r"[A-Z][A-Z0-9]{15,}")
"""No constant has so long a name without a `_`."""
_TYPE = re.compile(r"[A-Z]\w*(?:Bytes|Config|Env|Field|Key|Secret|Spec|Str|String|Type|Value|Var)")
"""`API_KEY: SecretStr`"""


def is_unquoted_secret(name: SecretName, at: int, end: int, sign: re.Match[str]) -> bool:
    """Whether the value between two places is a secret."""
    value, after = name.source[at:end], name.source[end : min(end + 1, name.limit)]
    is_style = name.is_flag and sign["sign"] == ":"
    if not value or value[0] in "{[(<|>" or is_style:
        return False
    if len(value) < SHORTEST:
        return _is_short_password(name, value, after)
    if sign["closed"] or sign["sign"] == ":":
        return _is_secret_after_colon(name, at, value, bool(sign["closed"]))
    if sign["spaces"] or sign["gap"]:
        return _is_secret_after_space(name, at, value)
    if name.is_setting:
        return is_secret(value, name.rule)
    if "." in name.text and (not name.is_first or any(mark in value for mark in "(;")):
        return "(" not in value and is_secret(value, name.rule, strict=True)
    is_argument = is_identifier(value) and after in (",", ")")
    return not is_argument and not _is_expression(value) and is_secret(value, name.rule)


def _is_secret_after_colon(name: SecretName, at: int, value: str, is_closed: bool) -> bool:
    """`password: swordfish` on a line of its own is one, `token: Identifier` is a type. JSON has
    numbers there, and they have to stay numbers."""
    if is_closed and is_number(value):
        return False
    if value.isdecimal():
        return is_secret(value, name.rule)
    if is_random(value):
        return not _is_expression(value) and is_secret(value, name.rule, strict=True)
    if not name.is_first or name.rule.strict or not _is_last(name, at, value):
        return False
    is_setting = name.text.isupper() and not _is_expression(value) and not _TYPE.fullmatch(value)
    is_word = name.rule.kind == "password" and value.islower()
    return (is_word or (is_setting and not is_closed)) and is_secret(value, name.rule)


def _is_secret_after_space(name: SecretName, at: int, value: str) -> bool:
    """`password = swordfish` of an INI file is one, `token = token` is code."""
    if _CAPITALS.fullmatch(value) and not name.rule.strict:
        return is_secret(value, name.rule)
    if not is_code(value):
        return is_secret(value, name.rule, strict=True)
    is_line = name.is_first and _is_last(name, at, value) and name.is_in_section
    return is_line and not _is_expression(value) and is_secret(value, name.rule)


def _is_last(name: SecretName, at: int, value: str) -> bool:
    """Whether nothing else stands on its line."""
    end = at + len(value)
    return not name.source[end : end_of(LINE, name.source, end, name.limit)].strip()


def _is_expression(value: str) -> bool:
    """Whether it is more than a name: `get_token()`, `config.token`."""
    return is_code(value) and not value.isalnum()


def _is_short_password(name: SecretName, value: str, after: str) -> bool:
    """Whether it is one in a connection string: there, passwords of every length count."""
    if name.rule.kind != "password" or name.rule.strict or is_placeholder(value):
        return False
    before = name.source[max(0, name.start - 128) : name.start]
    is_in_list = _CONNECTION.search(before) and after in ("", ";", " ", '"', "\n", "&")
    return before.endswith(";") or bool(is_in_list)


def line_end(window: Window, at: int, end: int) -> int:
    """Where a password of several words ends: with its line, or before a comment."""
    line = window.text[at : end_of(LINE, window.text, at, window.end)]
    return max(end, at + len(line.partition(" #")[0].rstrip()))
