"""Read values that are not quite JSON: Python literals, the maps of the Gemma family, broken JSON.

Every repair is named in `repairs`; none changes the content of a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 200
"""Deeper nesting is rejected: no tool needs it, and recursion must be bounded."""

_SPACE = re.compile(r"(?:[\s\ufeff\u200b]++|#[^\n]*+|//[^\n]*+|/\*.*?\*/)*+", re.S)
_BLANK = re.compile(r"[\s\ufeff\u200b]*+")
_UNQUOTED_VALUE = re.compile(r"[^{}\[\]\n,]++(?:,(?!\s*+[\w-]++\s*+:)[^{}\[\]\n,]*+)*+")
_UNQUOTED_ITEM = re.compile(r"[^{}\[\]\n,]++")
"""Text without quotes, up to the next key, the next item or the closer."""
_WORD = re.compile(r"""[^\s,:;{}\[\]()="'“”‘’]++""")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*")
_STRING = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+{quote}", re.S) for quote in ('"', "'", "”", "’")
}
_LONG_STRING = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.|{quote}(?!{quote}{quote}))*+{quote * 3}", re.S)
    for quote in ('"', "'")
}
QUOTE = {quote: re.compile(rf"(?<!\\){quote}") for quote in "\"'"}
_POSSIBLE_END = {
    quote: re.compile(rf"(?<!\\){quote}(?=\s*+(?:[:}}\]]|,\s*+[\"'}}\]]|\Z))") for quote in "\"'"
}
_QUOTED_OBJECT = re.compile(r'"(?=\{\s*+["}])')
_LETTER = re.compile(r"\w")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")
_TYPOGRAPHIC = {"“": "”", "”": "”", "‘": "’", "’": "’"}
_CODE_PATTERNS = "u[0-9a-fA-F]{4}"
_PYTHON_CODE_PATTERNS = rf"{_CODE_PATTERNS}|x[0-9a-fA-F]{{2}}|U[0-9a-fA-F]{{8}}"
_ESCAPE, _PYTHON_ESCAPE = (
    re.compile(rf"\\(?:(?P<code>{codes})|(?P<line>\r?\n)|(?P<one>.))", re.S)
    for codes in (_CODE_PATTERNS, _PYTHON_CODE_PATTERNS)
)
_BAD_ESCAPE, _BAD_PYTHON_ESCAPE = (
    re.compile(rf"(?<!\\)(?:\\\\)*\\(?![{quotes}\\/bfnrt]|{codes})")
    for quotes, codes in (('"', _CODE_PATTERNS), ("\"'", _PYTHON_CODE_PATTERNS))
)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f]")
_ESCAPE_CHARACTERS = dict(zip("\"'\\/bfnrt", "\"'\\/\b\f\n\r\t", strict=True))
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


class LenientJsonError(ValueError):
    """The text is not a value that this reader supports."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"{message} at character {at}")
        self.at = at


class IncompleteJson(LenientJsonError):
    """The text ends inside a value."""


def unescape(body: str, *, python: bool = False, joins_lines: bool = False) -> str:
    """Replace the escapes in the body of a quoted string. Unknown escapes keep their backslash.
    Escaped line breaks keep it too, unless `joins_lines`."""
    if "\\" not in body:
        return body
    replace = _unescape_and_join if joins_lines else _unescape_one
    text = (_PYTHON_ESCAPE if python else _ESCAPE).sub(replace, body)
    if "\\u" in body and any("\ud800" <= character <= "\udfff" for character in text):
        # Join escaped surrogate pairs, which are two characters; keep lone surrogates.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _unescape_one(match: re.Match[str]) -> str:
    if match["code"]:
        number = int(match["code"][1:], 16)
        return chr(number) if number < 0x110000 else match[0]
    return _ESCAPE_CHARACTERS.get(match["one"] or "", match[0])


def _unescape_and_join(match: re.Match[str]) -> str:
    return "" if match["line"] else _unescape_one(match)


def is_string_concatenation(body: str, quote: str) -> bool:
    """Return True if a string with quotes inside is really several strings, joined by operators:
    true for `"a" + "b"`, false for `"echo "a" now"`."""
    between = QUOTE[quote].split(body)[1::2]
    return bool(between) and not any(map(_LETTER.search, between))


class LenientJsonReader:
    """Reads one value after another from a text.

    `string_token` is a token that opens and closes strings without escapes, such as `<|"|>`; then
    strings may also be unquoted. `allow_missing_closers` is for text that is known to be complete.
    With `python`, strings have Python's escapes whatever their quotes.
    """

    def __init__(
        self,
        text: str,
        at: int = 0,
        *,
        string_token: str = "",
        allow_missing_closers: bool = False,
        allow_inner_quotes: bool = False,
        python: bool = False,
    ) -> None:
        self.text = text
        self.position = at
        self._string_token = string_token
        self._allow_missing_closers = allow_missing_closers
        self._allow_inner_quotes = allow_inner_quotes
        self._python = python
        self._depth = 0
        self._in_list = False
        self._repairs: dict[str, None] = {}

    def repairs(self) -> tuple[str, ...]:
        return tuple(self._repairs)

    def add_repair(self, name: str) -> None:
        self._repairs[name] = None

    def skip_space(self) -> str:
        """Skip white space and comments; return the next character, or "" at the end."""
        start = self.position
        self.position = _SPACE.match(self.text, start).end()  # pyright: ignore[reportOptionalMemberAccess]
        if self.text[start : self.position].strip(" \t\r\n"):
            blank = _BLANK.match(self.text, start).end()  # pyright: ignore[reportOptionalMemberAccess]
            self.add_repair("comment" if self.position > blank else "unusual-whitespace")
        return self.text[self.position : self.position + 1]

    def error(self, message: str) -> LenientJsonError:
        """Return the exception for unexpected text at this position."""
        kind = IncompleteJson if self.position >= len(self.text) else LenientJsonError
        return kind(message, self.position)

    def read_value(self) -> Any:
        character = self.skip_space()
        if self._string_token and self.text.startswith(self._string_token, self.position):
            return self._read_token_string()
        if self._allow_inner_quotes and _QUOTED_OBJECT.match(self.text, self.position):
            return self._read_quoted_object()
        if character in {'"', "'"} or character in _TYPOGRAPHIC:
            return self.read_string()
        if character == "{":
            return self._read_nested(self._read_map)
        if character == "[":
            return self._read_nested(lambda: self.read_items("]"))
        if character == "(":
            self.add_repair("python-literal")
            return self._read_nested(lambda: self.read_items(")"))
        return self._read_scalar()

    def read_string(self) -> str:
        """Read a quoted string; the next character is its quote."""
        quote = self.text[self.position]
        if quote in _TYPOGRAPHIC:
            self.add_repair("smart-quotes")
            quote = _TYPOGRAPHIC[quote]
        elif quote == "'":
            self.add_repair("single-quotes")
        if self._allow_inner_quotes and quote in QUOTE:
            return self._read_string_with_inner_quotes(quote)
        long = _LONG_STRING.get(quote) if self.text.startswith(quote * 3, self.position) else None
        width = 3 if long else 1
        match = (long or _STRING[quote]).match(self.text, self.position + width)
        if match is None:
            self.position = len(self.text)
            raise self.error("the string is not closed")
        body = self.text[self.position + width : match.end() - width]
        self.position = match.end()
        python = self._python or quote == "'"
        if (_BAD_PYTHON_ESCAPE if python else _BAD_ESCAPE).search(body):
            self.add_repair("invalid-escape")
        if long:
            self.add_repair("python-literal")
        elif _CONTROL_CHARACTER.search(body):
            self.add_repair("raw-newline")
        return unescape(body, python=python, joins_lines=bool(long))

    def _read_quoted_object(self) -> Any:
        """Read `"{"a": 1}"`: an object in quotes whose own quotes are not escaped."""
        self.position += 1
        value = self._read_nested(self._read_map)
        if self.skip_space() != '"':
            raise self.error("the quoted object is not closed")
        self.position += 1
        self.add_repair("inner-quotes")
        return value

    def _read_string_with_inner_quotes(self, quote: str) -> str:
        """Read a string that may contain quotes, if it is the last value and has only one possible
        end."""
        start = self.position + 1
        first = QUOTE[quote].search(self.text, start)
        ends = _POSSIBLE_END[quote].finditer(self.text, start)
        end = next(ends, None)
        if first is None or end is None:
            self.position = len(self.text)
            raise self.error("the string is not closed")
        if end.start() > first.start():
            if next(ends, None) is not None or self.text[end.end() :].strip(" \t\r\n}]"):
                raise self.error("the string contains quotes and has several possible ends")
            if is_string_concatenation(self.text[start : end.start()], quote):
                raise self.error("expected one string, found several")
            self.add_repair("inner-quotes")
        self.position = end.end()
        return unescape(self.text[start : end.start()])

    def read_items(self, closer: str) -> list[Any]:
        """Read values separated by commas, from the opening bracket to `closer`."""
        self.position += 1
        values: list[Any] = []
        while (character := self.skip_space()) != closer:
            if not character and self._close_implicitly():
                return values
            values.append(self.read_value())
            self.read_separator(closer)
        self.position += 1
        return values

    def read_separator(self, closer: str) -> None:
        """Skip the comma before the next value; before `closer`, none is needed."""
        character = self.skip_space()
        if character == ",":
            self.position += 1
            follows = self.skip_space()
            if follows == closer:
                self.add_repair("trailing-comma")
            elif not follows:
                raise self.error("expected a value after the comma")
        elif character != closer and not (not character and self._allow_missing_closers):
            raise self.error(f"expected ',' or '{closer}'")

    def _close_implicitly(self) -> bool:
        if not self._allow_missing_closers:
            raise self.error("the value is not closed")
        self.add_repair("missing-closer")
        return True

    def _read_nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise LenientJsonError("nested too deeply", self.position)
        outer, self._in_list = self._in_list, self.text[self.position] != "{"
        value = read()
        self._in_list = outer
        self._depth -= 1
        return value

    def _read_doubled_map(self) -> Any:
        """Read `{{"a": 1}}`: a map as templates write it to get a single brace."""
        self.position += 1
        value = self._read_nested(self._read_map)
        if self.skip_space() != "}":
            raise self.error("expected a second '}'")
        self.position += 1
        self.add_repair("doubled-braces")
        return value

    def _read_map(self) -> Any:
        if self.text.startswith("{{", self.position):
            return self._read_doubled_map()
        self.position += 1
        result: dict[str, Any] = {}
        values: list[Any] = []
        while (character := self.skip_space()) != "}":
            if not character and self._close_implicitly():
                return result
            key = self._read_key()
            sign = self.skip_space()
            if sign == "=" and self._string_token:
                self.add_repair("wrong-punctuation")
            if sign == ":" or (sign == "=" and self._string_token):
                self.position += 1
                value = self.read_value()
                if key in result and result[key] != value:
                    raise self.error(f"the key {key!r} has two different values")
                result[key] = value
            else:
                values.append(key)
            self.read_separator("}")
        self.position += 1
        if values and not result:
            self.add_repair("python-set")
            return values
        if values:
            raise self.error("a key has no value")
        return result

    def _read_key(self) -> str:
        character = self.text[self.position]
        if self._string_token and self.text.startswith(self._string_token, self.position):
            return self._read_token_string()
        if character in {'"', "'"} or character in _TYPOGRAPHIC:
            return self.read_string()
        match = _WORD.match(self.text, self.position)
        if match is None:
            raise self.error("expected a key")
        self.position = match.end()
        if not self._string_token:
            self.add_repair("unquoted-key")
        return match[0]

    def _read_token_string(self) -> str:
        start = self.position + len(self._string_token)
        end = self.text.find(self._string_token, start)
        if end < 0 and self._allow_missing_closers:
            return self._read_unclosed_token_string(start)
        if end < 0:
            self.position = len(self.text)
            raise self.error("the string is not closed")
        self.position = end + len(self._string_token)
        return self.text[start:end]

    def _read_unclosed_token_string(self, start: int) -> str:
        """Read a string whose closing token is missing: it ends before the final brackets."""
        brackets = [at for at in range(start, len(self.text)) if self.text[at] in "}]"]
        self.position = len(self.text)
        for at in reversed(brackets[-self._depth :]):
            if self.text[at : self.position].strip() not in ("}", "]"):
                break
            self.position = at
        self.add_repair("missing-quote")
        return self.text[start : self.position]

    def _read_scalar(self) -> Any:
        match = _WORD.match(self.text, self.position)
        if match is None:
            raise self.error("expected a value")
        word = match[0]
        if self._string_token and self._match_unquoted_text() != word:
            return self._read_unquoted_text()
        if word in _LITERALS:
            value, repair = _LITERALS[word], "python-literal" if word[0].isupper() else None
        elif _LEADING_ZERO.fullmatch(word):
            # Not a number in JSON or Python; a schema may want a string with exactly these digits.
            value, repair = word, "unquoted-value"
        elif _INTEGER.fullmatch(word) and len(word) < 1000:
            value, repair = int(word), None
        elif _NUMBER.fullmatch(word) and len(word) < 1000:
            value, repair = float(word), None
        else:
            return self._read_unquoted_text()
        if value in (math.inf, -math.inf):
            raise self.error("the number is too large")
        self.position = match.end()
        if not repair and word not in _LITERALS and not JSON_NUMBER.fullmatch(word):
            repair = "python-literal"
        if repair:
            self.add_repair(repair)
        return value

    def _match_unquoted_text(self) -> str:
        """Return the unquoted text at this position, if unquoted strings are allowed."""
        pattern = _UNQUOTED_ITEM if self._in_list else _UNQUOTED_VALUE
        match = pattern.match(self.text, self.position) if self._string_token else None
        return match[0].rstrip() if match else ""

    def _read_unquoted_text(self) -> str:
        """Read text without quotes, or with only the closing one."""
        found = self._match_unquoted_text()
        text, token, rest = found.partition(self._string_token) if found else ("", "", "")
        if not text or rest:
            raise self.error(f"unknown word {self.text[self.position : self.position + 40]!r}")
        self.add_repair("missing-quote" if token else "unquoted-value")
        self.position += len(found)
        return text
