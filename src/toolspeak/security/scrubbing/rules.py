"""The rules of `rules.toml`: which names a secret follows, and which values are secrets.

GITHUB_TOKEN, accessToken, x-api-key          -> a SecretNameRule
max_tokens, token_count, primary_key, key     -> None

hunter2hunter2, QWxhZGRpbg==, swordfish       -> secrets, after a name such as `password`
required, ${TOKEN}, <your key>, get_token()   -> not secrets
Bearer abc…   session=abc…; Path=/            -> headers: only `abc…` is secret
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from .windows import count_characters


class SecretNameRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A name that is followed by a secret, as words."""

    kind: str
    words: tuple[str, ...]
    not_after: tuple[str, ...] = ()
    """The rule does not apply after one of these words: `max_token`."""
    only_after: tuple[str, ...] = ()
    """The rule applies only after one of these words: `api_key`."""
    after_space: bool = False
    """Any word is a secret if only a space is before it: `bindpw swordfish`."""
    random_only: bool = False
    """Only values that look random are secrets."""
    multi_word: bool = False
    """Values of several words are secrets too."""
    header: str = ""
    """The value is structured like that of this header: `authorization` or `cookie`."""


class KeyShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is recognised by its format."""

    kind: str
    shape: re.Pattern[str]
    needs_digit: bool = False
    """The key contains a digit and does not consist of words."""
    at_word_start: bool = False
    """The key is not recognised behind a prefix: `cache-key-…` is something else."""


class CuePattern(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that is recognised by the text before it."""

    kind: str
    cue: str
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None = None
    """The text before the cue ends with this."""
    random_only: bool = False


class KeyBlock(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret of many lines between an opening and a closing line, which are kept."""

    kind: str
    cue: str
    opens: re.Pattern[str]
    closes: re.Pattern[str]


class ScrubbingRules(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `rules.toml`."""

    names: tuple[SecretNameRule, ...]
    words: dict[str, str]
    placeholders: tuple[str, ...]
    shapes: tuple[KeyShape, ...]
    patterns: tuple[CuePattern, ...]
    blocks: tuple[KeyBlock, ...]


def _load_rules() -> ScrubbingRules:
    table = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
    return msgspec.convert(table, ScrubbingRules, dec_hook=lambda _, text: re.compile(text))


RULES = _load_rules()
NAME_CUES = tuple(RULES.words["name_cues"].split())
_WORD_LISTS = {name: frozenset(words.split()) for name, words in RULES.words.items()}
MIN_LENGTH = 8
"""Shorter values after a name are not secrets: too many of them are harmless."""

# Names.

_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""`HTTPPassword2_old` consists of `HTTP`, `Password` and `old`."""
_MIN_SUFFIX = 5
"""Shorter words do not count as the end of a longer one: `monkey` ends with `key`."""
_PHRASES = tuple((phrase, rule) for rule in RULES.names for phrase in rule.words)


@lru_cache(1024)
def find_name_rule(name: str) -> SecretNameRule | None:
    """Return the rule for a name that is followed by a secret, or None.

    Of a dotted name only the last part can match: `token.kind` is not a token.
    """
    words = [word.lower() for word in _NAME_WORD.findall(name)]
    if "public" in words:
        return None
    last_part = name.rstrip(".").rpartition(".")[2]
    first_end = len(words) - len(_NAME_WORD.findall(last_part)) + 1
    for end in range(len(words), first_end - 1, -1):
        for phrase, rule in _PHRASES:
            if _ends_with(words[:end], phrase) and _applies_after(rule, words[: end - 1]):
                return rule if _WORD_LISTS["harmless_suffixes"].isdisjoint(words[end:]) else None
    return None


def _ends_with(words: list[str], phrase: str) -> bool:
    if " " in phrase:
        return " ".join(words).endswith(phrase)
    is_suffix = len(phrase) >= _MIN_SUFFIX and words[-1].endswith(phrase)
    return words[-1] == phrase or is_suffix


def _applies_after(rule: SecretNameRule, before: list[str]) -> bool:
    last = before[-1] if before else ""
    return last not in rule.not_after and (not rule.only_after or last in rule.only_after)


# Values.

_MAX_PLACEHOLDER = 256
_PLACEHOLDER = re.compile("|".join(RULES.placeholders), re.DOTALL)
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
_DOTTED = re.compile(r"[\w$-]+(?:\.[\w$-]+)*[;,)]*")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_LONG_NUMBER = re.compile(r"\d{5}")
"""Names in programs contain shorter numbers: years, ports, sizes."""
_MIN_WORD = 4
"""The shortest part of a name that counts as a word."""
_SAMPLE = 256
"""This many characters of a value are checked."""
_WORD_OR_YEAR = re.compile(r"\W*(?:[^\W\d]{2,}|\d{1,4})\W*")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_LATIN = re.compile(r"[A-Za-z0-9]")
"""Keys contain such letters. A text without them is prose in a language without spaces."""
_SECRET_NAME_SUFFIX = re.compile(r"(?:[-_.](?i:token|secret|key|auth)|(?:Token|Secret|Key|Auth))$")
_CASE_CHANGE = re.compile(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])")


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
    return not _is_description(value)


def is_placeholder(value: str) -> bool:
    """Return True if the value stands for another one, or was redacted before."""
    if len(value) > _MAX_PLACEHOLDER:
        # The start of a block is left to the rule for blocks.
        return value.startswith("-----BEGIN")
    return _PLACEHOLDER.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Return True if the value looks like neither a word nor a name."""
    if len(value) < MIN_LENGTH:
        return False
    if is_identifier(value) and not _has_mixed_case(value) and not _is_scrambled(value):
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
    return _CODE.fullmatch(value) is not None and not _is_scrambled(value)


def is_expression(value: str, *, is_setting: bool = False) -> bool:
    """Return True for code that is more than a name: `get_token()`, `config.token`.

    `is_setting`: code is unlikely in this place.
    """
    if not is_code(value) or value.isalnum():
        return False
    return not (is_setting and _is_scrambled(value, min_digits=1))


def is_identifier(value: str) -> bool:
    return _IDENTIFIER.fullmatch(value) is not None


def _is_description(value: str) -> bool:
    """Return True if the value describes or names a secret: `required`, `x-api-key`."""
    if value.lower().strip("?!*") in _WORD_LISTS["harmless_values"]:
        return True
    return _WORDS.fullmatch(value) is not None and _NAMES_SECRET.search(value) is not None


def _is_prose(words: list[str]) -> bool:
    if any(map(is_random, words)):
        return False
    return any(map(_WORD_OR_YEAR.fullmatch, words)) or not any(map(str.isalnum, words))


def _is_type_name(value: str, rule: SecretNameRule) -> bool:
    """Return True for names that look random: `Ed25519PrivateKey`, `OAuth2Flow`."""
    if rule.random_only and sum(map(str.isdigit, value)) < 2:
        return True
    return rule.kind != "password" and _SECRET_NAME_SUFFIX.search(value) is not None


def _has_mixed_case(value: str) -> bool:
    """Return True if the case changes as often as by chance: `QwErtZuiOpLKjhgf`."""
    return len(value) >= 2 * MIN_LENGTH and len(_CASE_CHANGE.findall(value)) * 3 > len(value)


def _is_scrambled(value: str, min_digits: int = 3) -> bool:
    """Return True for parts that nobody would name so: `Xk29.fJq_81`, `eu1.v2.Zm9vYmFyMTIz`,
    `abcd.efgh_12345`."""
    if not _DOTTED.fullmatch(value) or value.partition(".")[0] in _WORD_LISTS["objects"]:
        return False
    if _LONG_NUMBER.search(value, 0, _SAMPLE):
        return True
    parts = _PART.findall(value[:_SAMPLE])
    in_words = sum(len(part) for part in parts if len(part) >= _MIN_WORD and part.isalpha())
    digits = sum(len(part) for part in parts if part.isdecimal())
    if in_words * 5 >= sum(map(len, parts)) * 2:
        return False
    has_both_cases = not value.islower() and not value.isupper()
    return digits >= (1 if has_both_cases and "_" in value else min_digits)


def _is_path(value: str) -> bool:
    if not _PATH.fullmatch(value):
        return False
    return not any(len(part) >= 2 * MIN_LENGTH and is_random(part) for part in value.split("/"))


# Headers: schemes, cookie names and attributes are kept.

_SCHEME = re.compile(r"([A-Za-z][\w-]{2,24})[ \t:]+(?=\S)")
_CREDENTIAL = re.compile(r"\S(?:.*\S)?")
_DIGEST = re.compile(r"(?i)digest\s+\w+=")
"""The parts of a digest have names; only `response` is secret, and a cue finds it."""
_COOKIE = re.compile(rf"(?:^|;)([^;=]*+)=([^;]{{{MIN_LENGTH},}})")
_SENTENCE = re.compile(r"(?:[A-Za-z]+[.,;:!?]?\s+)+[A-Za-z]+.*", re.DOTALL)
"""`authentication is not …`, `or nothing at all`."""
_CREDENTIAL_SAMPLE = 256
"""This many characters of a credential are checked."""


def find_header_secrets(header: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each secret in the value of a header."""
    yield from _find_cookies(value) if header == "cookie" else _find_credential(value)


def _find_credential(value: str) -> Iterator[tuple[int, int]]:
    scheme = _SCHEME.match(value)
    if scheme and _DIGEST.match(value):
        return
    has_scheme = scheme is not None and scheme[1].lower() in _WORD_LISTS["header_schemes"]
    credential = _CREDENTIAL.match(value, scheme.end() if scheme and has_scheme else 0)
    if credential and _is_credential(credential[0][:_CREDENTIAL_SAMPLE], has_scheme):
        yield credential.span()


def _is_credential(value: str, has_scheme: bool) -> bool:
    if len(value) < MIN_LENGTH or is_placeholder(value) or _is_description(value):
        return False
    return is_random(value) or (has_scheme and not _SENTENCE.fullmatch(value))


def _find_cookies(value: str) -> Iterator[tuple[int, int]]:
    has_digit = any(map(str.isdigit, value))
    if "=" not in value and " " not in value and has_digit and is_random(value):
        # The value of a cookie without its name.
        yield 0, len(value)
    for cookie in _COOKIE.finditer(value):
        is_attribute = cookie[1].strip().lower() in _WORD_LISTS["cookie_attributes"]
        if not is_attribute and not is_placeholder(cookie[2]):
            yield cookie.span(2)
