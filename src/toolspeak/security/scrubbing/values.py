"""Decides whether a value is a secret, or only in a place where a secret could be.

hunter2hunter2, QWxhZGRpbg==, swordfish           -> secrets, after a name such as `password`
required, ${TOKEN}, <your key>, get_token()       -> not secrets
Bearer abc…   session=abc…; Path=/                -> headers: only `abc…` is secret
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .rules import SecretNameRule, load_rules, split_words
from .windows import count_characters

MIN_LENGTH = 8
"""Shorter values after a name are not secrets: too many of them are harmless."""

_MAX_PLACEHOLDER = 256
_PLACEHOLDER = re.compile(
    r"""
      \$\w+ | \$\{[^}]*\}* | \{[^}]*\}+ | \$\([^)]*\)?.* | %\w+% | %\(?\w*\)?s | \{\{.*\}\}
    | (?:<[^>]*>[:@.-]?)*<[^>]*>? | \[[^\]]*\]+
    | [*•.…xX_\-#?]+ | .{0,12}(?:\*{3,}|…|\.{3}).{0,8}
    | .{0,48}\*\[REDACTED(?::[0-9a-f]*)?\]?.{0,7} | .*\[(?:REDACTED|MASKED|FILTERED|HIDDEN)\]?
    | (?i:(?:your|insert|enter|replace|some)[-_ ].* | (?:my|the)[-_ ][a-z_\- ]*)
    | (?i:change[-_ ]?(?:me|it|this).{0,4} | todo.* | example.* | placeholder.* | dummy[-_ ].*)
    | (?i:(?:env|file|vault|op|arn|ssm|gcp|aws|secretsmanager|keyring|sops|data):.*)
    | .*%[sdr].* | .*\{\w*\}.* | .*\$\{.* | \{.* | &lt;.* | __\w+__ | [A-Z]+(?:_[A-Z]+)+ | urn:.*
    | (?i:none|null|nil|true|false|undefined) | -----BEGIN.*
    """,
    re.VERBOSE | re.DOTALL,
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.DOTALL)
_PATH = re.compile(r"(?:[~.]{0,2}/|[A-Za-z]:[\\/])[\w.@~+\- /\\]+")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*+(?:\.\d*+)?(?:[eE][+-]?\d+)?|0[xX][0-9a-fA-F]{1,8})%?")
_WORDS = re.compile(r"(?:[^\W\d]|[-. :/])+")
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z_]*\d{0,2}")
_CODE = re.compile(
    r"""
      [A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+[;,)]* |                                 # a.b
      [&*!(]*[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*[!?]?[(\[{].*      # a.b(
    | [A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+[+*/%&|<>-].*                            # a.b+
    | [&*!(]*[A-Za-z_$][A-Za-z_]*\d{0,2}(?:(?:\.|::|->|\?\.)[A-Za-z_$][A-Za-z_]*\d{0,2})*[)!?]*
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMES_SECRET = re.compile(
    r"(?:^|[-_. ])"
    r"(?i:token|secrets?|password|passwd|passphrase|credentials?|keys?|auth)(?:$|[-_. ])"
    r"|[a-z0-9](?:Token|Secret|Password|Credentials?|Key|Auth)(?:$|[A-Z])"
)
_WORD_OR_YEAR = re.compile(r"\W*(?:[^\W\d]{2,}|\d{1,4})\W*")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_LATIN = re.compile(r"[A-Za-z0-9]")
"""Keys contain such letters. A text without them is prose in a language without spaces."""
_SECRET_NAME_SUFFIX = re.compile(r"(?:[-_.](?i:token|secret|key|auth)|(?:Token|Secret|Key|Auth))$")
_CASE_CHANGE = re.compile(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])")
_HARMLESS_VALUES = split_words(load_rules().harmless.values)


def is_secret(
    value: str, rule: SecretNameRule, *, random_only: bool = False, multi_word: bool = False
) -> bool:
    """Return True if a value after a name of this rule is a secret.

    `random_only`: words and code may be in this place too, so the value must look random.
    `multi_word`: a value of several words is not prose.
    """
    if count_characters(value) < MIN_LENGTH or is_placeholder(value):
        return False
    if (random_only and _NUMBER.fullmatch(value)) or _is_path(value) or _URL.fullmatch(value):
        return False
    if any(space in value for space in " \t"):
        return multi_word or rule.multi_word or not _is_prose(_ESCAPE.sub("e", value).split())
    if rule.kind != "password" and not _LATIN.search(value):
        return False
    if random_only or rule.random_only:
        return is_random(value) and not _is_type_name(value, rule)
    return not is_description(value)


def is_placeholder(value: str) -> bool:
    """Return True if the value stands for another one, or was redacted before."""
    if len(value) > _MAX_PLACEHOLDER:
        # The start of a block is left to the rule for blocks.
        return value.startswith("-----BEGIN")
    return _PLACEHOLDER.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Return True if the value looks like no word and no name."""
    if len(value) < MIN_LENGTH or (_IDENTIFIER.fullmatch(value) and not _has_mixed_case(value)):
        return False
    has_letters = any(map(str.isalpha, value))
    if has_letters and any(map(str.isdigit, value)):
        return True
    has_symbols = any(symbol in value for symbol in "!@#$%^&+=~")
    return has_letters and (has_symbols or _has_mixed_case(value))


def is_number(value: str) -> bool:
    """Return True if the value begins with a number that no letter or digit follows."""
    number = _NUMBER.match(value)
    return number is not None and not value[number.end() : number.end() + 1].isalnum()


def is_code(value: str) -> bool:
    """Return True if an unquoted value is a variable, a call or the like."""
    return _CODE.fullmatch(value) is not None


def is_identifier(value: str) -> bool:
    return _IDENTIFIER.fullmatch(value) is not None


def is_description(value: str) -> bool:
    """Return True if the value describes or names a secret: `required`, `x-api-key`."""
    if value.lower().strip("?!*") in _HARMLESS_VALUES:
        return True
    return _WORDS.fullmatch(value) is not None and _NAMES_SECRET.search(value) is not None


def _is_prose(words: list[str]) -> bool:
    if any(map(is_random, words)):
        return False
    return any(map(_WORD_OR_YEAR.fullmatch, words)) or not any(map(str.isalnum, words))


def _is_type_name(value: str, rule: SecretNameRule) -> bool:
    """Return True for what looks random and is a name: `Ed25519PrivateKey`, `OAuth2Flow`."""
    if rule.random_only and sum(map(str.isdigit, value)) < 2:
        return True
    return rule.kind != "password" and _SECRET_NAME_SUFFIX.search(value) is not None


def _has_mixed_case(value: str) -> bool:
    """Return True if the case changes as often as by chance: `QwErtZuiOpLKjhgf`."""
    return len(value) >= 2 * MIN_LENGTH and len(_CASE_CHANGE.findall(value)) * 3 > len(value)


def _is_path(value: str) -> bool:
    if not _PATH.fullmatch(value):
        return False
    return not any(len(part) >= 2 * MIN_LENGTH and is_random(part) for part in value.split("/"))


# Headers: schemes, cookie names and attributes are kept.

_SCHEME = re.compile(r"([A-Za-z][\w-]{2,24})[ \t:]+(?=\S)")
_CREDENTIAL = re.compile(r"\S(?:.*\S)?")
_DIGEST = re.compile(r"(?i)digest\s+\w+=")
"""The parts of a digest have names of their own; only `response` is secret."""
_COOKIE = re.compile(rf"=([^;]{{{MIN_LENGTH},}})")
_SENTENCE = re.compile(r"(?:[A-Za-z]+[.,;:!?]?\s+)+[A-Za-z]+.*", re.DOTALL)
"""`authentication is not …`, `or nothing at all`."""
_CREDENTIAL_SAMPLE = 256
"""This many characters of a credential are checked."""
_SCHEMES = split_words(load_rules().headers.schemes)
_ATTRIBUTES = split_words(load_rules().headers.attributes)


def find_header_secrets(header: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each secret in the value of a header."""
    yield from _find_cookies(value) if header == "cookie" else _find_credential(value)


def _find_credential(value: str) -> Iterator[tuple[int, int]]:
    scheme = _SCHEME.match(value)
    has_scheme = scheme is not None and scheme[1].lower() in _SCHEMES
    if scheme and _DIGEST.match(value):
        return
    credential = _CREDENTIAL.match(value, scheme.end() if scheme and has_scheme else 0)
    if credential and _is_credential(credential[0][:_CREDENTIAL_SAMPLE], has_scheme):
        yield credential.span()


def _is_credential(value: str, has_scheme: bool) -> bool:
    if len(value) < MIN_LENGTH or is_placeholder(value) or is_description(value):
        return False
    return is_random(value) or (has_scheme and not _SENTENCE.fullmatch(value))


def _find_cookies(value: str) -> Iterator[tuple[int, int]]:
    if "=" not in value and _is_cookie_value(value):
        yield 0, len(value)
    for cookie in _COOKIE.finditer(value):
        name = value[value.rfind(";", 0, cookie.start()) + 1 : cookie.start()]
        if not is_placeholder(cookie[1]) and name.strip().lower() not in _ATTRIBUTES:
            yield cookie.span(1)


def _is_cookie_value(value: str) -> bool:
    """Return True if the value is that of a cookie without its name."""
    return is_random(value) and " " not in value and any(map(str.isdigit, value))
