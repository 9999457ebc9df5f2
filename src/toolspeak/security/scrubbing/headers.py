"""The secret parts of an `Authorization` or a `Cookie`: schemes, names and attributes stay.

Bearer abc…               -> abc…
session=abc…; Path=/      -> abc…
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .rules import load_rules, split_words
from .values import SHORTEST, is_placeholder, is_random, is_word_about_secrets

_SCHEME = re.compile(r"([A-Za-z][\w-]{2,24})[ \t:]+(?=\S)")
_CREDENTIAL = re.compile(r"\S(?:.*\S)?")
_DIGEST = re.compile(r"(?i)digest\s+\w+=")
"""Its parts have names of their own, and only `response` is secret."""
_COOKIE = re.compile(rf"=([^;]{{{SHORTEST},}})")
_PROSE = re.compile(r"(?:[A-Za-z]+[.,;:!?]?\s+)+[A-Za-z]+.*", re.DOTALL)
"""`authentication is not …`, `or nothing at all`."""
_ENOUGH = 256
"""So much of a credential tells whether it is one."""
_SCHEMES = split_words(load_rules().headers.schemes)
_ATTRIBUTES = split_words(load_rules().headers.attributes)


def find_header_secrets(header: str, value: str) -> Iterator[tuple[int, int]]:
    """Where the secrets are in the value of a header."""
    yield from _cookies(value) if header == "cookie" else _credential(value)


def _credential(value: str) -> Iterator[tuple[int, int]]:
    scheme = _SCHEME.match(value)
    has_scheme = scheme is not None and scheme[1].lower() in _SCHEMES
    if scheme and _DIGEST.match(value):
        return
    said = _CREDENTIAL.match(value, scheme.end() if scheme and has_scheme else 0)
    if said and _is_credential(said[0][:_ENOUGH], has_scheme):
        yield said.span()


def _is_credential(said: str, has_scheme: bool) -> bool:
    if len(said) < SHORTEST or is_placeholder(said) or is_word_about_secrets(said):
        return False
    return is_random(said) or (has_scheme and not _PROSE.fullmatch(said))


def _cookies(value: str) -> Iterator[tuple[int, int]]:
    if "=" not in value and _is_cookie(value):
        yield 0, len(value)
    for cookie in _COOKIE.finditer(value):
        name = value[value.rfind(";", 0, cookie.start()) + 1 : cookie.start()]
        if not is_placeholder(cookie[1]) and name.strip().lower() not in _ATTRIBUTES:
            yield cookie.span(1)


def _is_cookie(value: str) -> bool:
    """Whether it is one without its name."""
    return is_random(value) and " " not in value and any(map(str.isdigit, value))
