"""Whether a value is a secret, or only stands where one would.

hunter2hunter2, QWxhZGRpbg==, swordfish           -> secrets, under a name that says so
required, ${TOKEN}, <your key>, get_token()       -> no secrets
"""

from __future__ import annotations

import re

from .quoting import count_characters
from .rules import NameRule, load_rules, split_words

SHORTEST = 8
"""Shorter values under a mere name are left: so much is said to be a secret that is none."""

_LONG = 256
"""No placeholder is longer; but what begins a block is left to the rule for blocks."""
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
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.DOTALL)
_PATH = re.compile(r"(?:[~.]{0,2}/|[A-Za-z]:[\\/])[\w.@~+\- /\\]+")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*+(?:\.\d*+)?(?:[eE][+-]?\d+)?|0[xX][0-9a-fA-F]{1,8})%?")
_WORDS = re.compile(r"(?:[^\W\d]|[-. :/])+")
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z_]*\d{0,2}")
_CODE = re.compile(
    r"""
      [A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+[;,)]* |                                 # a path
      [&*!(]*[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*[!?]?[(\[{].*      # a call
    | [A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+[+*/%&|<>-].*                            # a sum
    | [&*!(]*[A-Za-z_$][A-Za-z_]*\d{0,2}(?:(?:\.|::|->|\?\.)[A-Za-z_$][A-Za-z_]*\d{0,2})*[)!?]*
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMES_SECRET = re.compile(
    r"(?:^|[-_. ])"
    r"(?i:token|secrets?|password|passwd|passphrase|credentials?|keys?|auth)(?:$|[-_. ])"
    r"|[a-z0-9](?:Token|Secret|Password|Credentials?|Key|Auth)(?:$|[A-Z])"
)
_IS_WORD = re.compile(r"\W*(?:[^\W\d]{2,}|\d{1,4})\W*")
_ESCAPED = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_LATIN = re.compile(r"[A-Za-z0-9]")
"""Keys have such letters; a text without is prose in a language that needs no spaces."""
_ENDS_AS_NAME = re.compile(r"(?:[-_.](?i:token|secret|key|auth)|(?:Token|Secret|Key|Auth))$")
_CASES = re.compile(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])")
_HARMLESS = split_words(load_rules().harmless.values)


def is_secret(value: str, rule: NameRule, *, strict: bool = False, phrase: bool = False) -> bool:
    """Whether the value of a name is a secret. `strict`: where words and code stand as well, only
    what looks random is one. `phrase`: several words are no prose."""
    if (
        count_characters(value) < SHORTEST
        or is_placeholder(value)
        or (_NUMBER.fullmatch(value) and strict)
    ):
        return False
    if _is_path(value) or _ADDRESS.fullmatch(value):
        return False
    if any(space in value for space in " \t"):
        return phrase or rule.phrase or _is_no_prose(_ESCAPED.sub("e", value).split())
    if rule.kind != "password" and not _LATIN.search(value):
        return False
    if strict or rule.strict:
        return is_random(value) and not _is_type(value, rule)
    return not is_word_about_secrets(value)


def _is_type(value: str, rule: NameRule) -> bool:
    """Whether what looks random names something else: `Ed25519PrivateKey`, `OAuth2Flow`."""
    if rule.strict and sum(map(str.isdigit, value)) < 2:
        return True
    return rule.kind != "password" and _ENDS_AS_NAME.search(value) is not None


def is_number(value: str) -> bool:
    """Whether it is a number, whatever stands behind it."""
    number = _NUMBER.match(value)
    return number is not None and not value[number.end() : number.end() + 1].isalnum()


def is_placeholder(value: str) -> bool:
    """Whether it only stands for a value, or is one that was redacted before."""
    if len(value) > _LONG:
        return value.startswith("-----BEGIN")
    return _PLACEHOLDER.fullmatch(value) is not None


def is_code(value: str) -> bool:
    """Whether a value without quotes is a variable, a call or the like."""
    return _CODE.fullmatch(value) is not None


def is_identifier(value: str) -> bool:
    return _IDENTIFIER.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Whether no word and no name would look like this."""
    if len(value) < SHORTEST or (_IDENTIFIER.fullmatch(value) and not _is_jumbled(value)):
        return False
    letters = any(map(str.isalpha, value))
    if letters and any(map(str.isdigit, value)):
        return True
    marks = letters and any(mark in value for mark in "!@#$%^&+=~")
    return marks or (letters and _is_jumbled(value))


def _is_no_prose(words: list[str]) -> bool:
    """Whether several words are a secret: one of them looks random, or none is a word."""
    if any(map(is_random, words)):
        return True
    return not any(map(_IS_WORD.fullmatch, words)) and any(map(str.isalnum, words))


def _is_jumbled(value: str) -> bool:
    """Whether cases change as often as chance has it: `QwErtZuiOpLKjhgf`, not `camelCaseName`."""
    return len(value) >= 2 * SHORTEST and len(_CASES.findall(value)) * 3 > len(value)


def is_word_about_secrets(value: str) -> bool:
    """Whether it is a word about secrets, or the name of one: `required`, `x-api-key`."""
    if value.lower().strip("?!*") in _HARMLESS:
        return True
    return _WORDS.fullmatch(value) is not None and _names_secret(value)


def _names_secret(value: str) -> bool:
    return _NAMES_SECRET.search(value) is not None


def _is_path(value: str) -> bool:
    if not _PATH.fullmatch(value):
        return False
    return not any(len(part) >= 2 * SHORTEST and is_random(part) for part in value.split("/"))
