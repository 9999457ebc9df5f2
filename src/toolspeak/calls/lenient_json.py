"""Reads values that are not quite JSON: Python literals, the maps of the Gemma family, and what
models make of both.

Every liberty is named in `repairs`, and none of them changes what stands inside a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 200
"""Deeper nesting is refused: no tool needs it, and recursion must end somewhere."""

_SPACE = re.compile(r"(?:[\s\ufeff\u200b]++|#[^\n]*+|//[^\n]*+|/\*.*?\*/)*+", re.S)
_BLANK = re.compile(r"[\s\ufeff\u200b]*+")
_BARE_VALUE = re.compile(r"[^{}\[\]\n,]++(?:,(?!\s*+[\w-]++\s*+:)[^{}\[\]\n,]*+)*+")
_BARE_ITEM = re.compile(r"[^{}\[\]\n,]++")
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
_LOOSE_END = {
    quote: re.compile(rf"(?<!\\){quote}(?=\s*+(?:[:}}\]]|,\s*+[\"'}}\]]|\Z))") for quote in "\"'"
}
_QUOTED_OBJECT = re.compile(r'"(?=\{\s*+["}])')
_LETTER = re.compile(r"\w")
_ZERO_FIRST = re.compile(r"[+-]?0[0-9]+")
_SMART = {"“": "”", "”": "”", "‘": "’", "’": "’"}
_CODES = "u[0-9a-fA-F]{4}"
_PYTHON_CODES = rf"{_CODES}|x[0-9a-fA-F]{{2}}|U[0-9a-fA-F]{{8}}"
_ESCAPE, _PYTHON_ESCAPE = (
    re.compile(rf"\\(?:(?P<code>{codes})|(?P<line>\r?\n)|(?P<one>.))", re.S)
    for codes in (_CODES, _PYTHON_CODES)
)
_BAD_ESCAPE, _BAD_PYTHON_ESCAPE = (
    re.compile(rf"(?<!\\)(?:\\\\)*\\(?![{quotes}\\/bfnrt]|{codes})")
    for quotes, codes in (('"', _CODES), ("\"'", _PYTHON_CODES))
)
_RAW = re.compile(r"[\x00-\x1f]")
_ESCAPED = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_WORDS: dict[str, tuple[Any, str | None]] = {
    "true": (True, None),
    "false": (False, None),
    "null": (None, None),
    "True": (True, "python-literal"),
    "False": (False, "python-literal"),
    "None": (None, "python-literal"),
}


class NotAValue(ValueError):
    """The text is no value that this reader knows."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"{message} at character {at}")
        self.at = at


class Unfinished(NotAValue):
    """The text stops in the middle of a value."""


def unescape(body: str, *, python: bool = False, joins_lines: bool = False) -> str:
    """What the inside of a quoted string stands for. Unknown escapes keep their backslash, and so
    does a line break unless it `joins_lines`."""
    if "\\" not in body:
        return body
    replace = _unescape_and_join if joins_lines else _unescape_one
    text = (_PYTHON_ESCAPE if python else _ESCAPE).sub(replace, body)
    if "\\u" in body and any("\ud800" <= character <= "\udfff" for character in text):
        # Escaped surrogate pairs come as two characters; lone ones stay as they are.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _unescape_one(match: re.Match[str]) -> str:
    if match["code"]:
        number = int(match["code"][1:], 16)
        return chr(number) if number < 0x110000 else match[0]
    return _ESCAPED.get(match["one"] or "", match[0])


def _unescape_and_join(match: re.Match[str]) -> str:
    return "" if match["line"] else _unescape_one(match)


def is_joined(body: str, quote: str) -> bool:
    """Whether what looks like a string with quotes inside is several, joined by signs: the inside
    of `"a" + "b"` is, that of `"echo "a" now"` is not."""
    between = QUOTE[quote].split(body)[1::2]
    return bool(between) and not any(map(_LETTER.search, between))


class ValueReader:
    """Reads one value after another from a text.

    `quote` is an extra token that opens and closes strings without escapes, as `<|"|>` does; texts
    may then also stand without any quotes. `close` allows closers that are missing at the end.
    `python` says that strings are Python's, whatever their quotes.
    """

    def __init__(
        self,
        text: str,
        at: int = 0,
        *,
        quote: str = "",
        close: bool = False,
        loose: bool = False,
        python: bool = False,
    ) -> None:
        self.text = text
        self.at = at
        self._quote = quote
        self._close = close
        self._loose = loose
        self._python = python
        self._depth = 0
        self._in_list = False
        self._repairs: dict[str, None] = {}

    def repairs(self) -> tuple[str, ...]:
        """The names of the liberties taken so far."""
        return tuple(self._repairs)

    def repaired(self, name: str) -> None:
        """Remember that a liberty was taken."""
        self._repairs[name] = None

    def skip(self) -> str:
        """Go past white space and comments; the next character, or "" at the end."""
        start = self.at
        self.at = _SPACE.match(self.text, start).end()  # pyright: ignore[reportOptionalMemberAccess]
        if self.text[start : self.at].strip(" \t\r\n"):
            blank = _BLANK.match(self.text, start).end()  # pyright: ignore[reportOptionalMemberAccess]
            self.repaired("comment" if self.at > blank else "odd-space")
        return self.text[self.at : self.at + 1]

    def fail(self, message: str) -> NotAValue:
        """The exception for something unexpected here."""
        kind = Unfinished if self.at >= len(self.text) else NotAValue
        return kind(message, self.at)

    def value(self) -> Any:
        """Any value."""
        character = self.skip()
        if self._quote and self.text.startswith(self._quote, self.at):
            return self._token_string()
        if self._loose and _QUOTED_OBJECT.match(self.text, self.at):
            return self._quoted_object()
        if character in {'"', "'"} or character in _SMART:
            return self.string()
        if character == "{":
            return self._nested(self._map)
        if character == "[":
            return self._nested(lambda: self.items("]"))
        if character == "(":
            self.repaired("python-literal")
            return self._nested(lambda: self.items(")"))
        return self._scalar()

    def string(self) -> str:
        """A quoted string; the next character is its quote."""
        quote = self.text[self.at]
        if quote in _SMART:
            self.repaired("smart-quotes")
            quote = _SMART[quote]
        elif quote == "'":
            self.repaired("single-quotes")
        if self._loose and quote in QUOTE:
            return self._loose_string(quote)
        long = _LONG_STRING.get(quote) if self.text.startswith(quote * 3, self.at) else None
        width = 3 if long else 1
        match = (long or _STRING[quote]).match(self.text, self.at + width)
        if match is None:
            self.at = len(self.text)
            raise self.fail("a string that does not end")
        body = self.text[self.at + width : match.end() - width]
        self.at = match.end()
        python = self._python or quote == "'"
        if (_BAD_PYTHON_ESCAPE if python else _BAD_ESCAPE).search(body):
            self.repaired("invalid-escape")
        if long:
            self.repaired("python-literal")
        elif _RAW.search(body):
            self.repaired("raw-newline")
        return unescape(body, python=python, joins_lines=bool(long))

    def _quoted_object(self) -> Any:
        """`"{"a": 1}"`: an object in quotes that should have escaped its own."""
        self.at += 1
        value = self._nested(self._map)
        if self.skip() != '"':
            raise self.fail("an object in quotes that does not end with one")
        self.at += 1
        self.repaired("inner-quotes")
        return value

    def _loose_string(self, quote: str) -> str:
        """A string that may hold quotes, if it is the last value and can end in only one place."""
        start = self.at + 1
        first = QUOTE[quote].search(self.text, start)
        ends = _LOOSE_END[quote].finditer(self.text, start)
        end = next(ends, None)
        if first is None or end is None:
            self.at = len(self.text)
            raise self.fail("a string that does not end")
        if end.start() > first.start():
            if next(ends, None) is not None or self.text[end.end() :].strip(" \t\r\n}]"):
                raise self.fail("a string with quotes inside that can end in several places")
            if is_joined(self.text[start : end.start()], quote):
                raise self.fail("several strings where one should be")
            self.repaired("inner-quotes")
        self.at = end.end()
        return unescape(self.text[start : end.start()])

    def items(self, closer: str) -> list[Any]:
        """Values separated by commas, up to and with `closer`; stands on the opening bracket."""
        self.at += 1
        values: list[Any] = []
        while (character := self.skip()) != closer:
            if not character and self._closed_for_it():
                return values
            values.append(self.value())
            self.separator(closer)
        self.at += 1
        return values

    def separator(self, closer: str) -> None:
        """The comma before the next value, or nothing before `closer`."""
        character = self.skip()
        if character == ",":
            self.at += 1
            follows = self.skip()
            if follows == closer:
                self.repaired("trailing-comma")
            elif not follows:
                raise self.fail("something is missing after the comma")
        elif character != closer and not (not character and self._close):
            raise self.fail(f"expected ',' or '{closer}'")

    def _closed_for_it(self) -> bool:
        if not self._close:
            raise self.fail("the value is not closed")
        self.repaired("missing-closer")
        return True

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotAValue("nested too deeply", self.at)
        outer, self._in_list = self._in_list, self.text[self.at] != "{"
        value = read()
        self._in_list = outer
        self._depth -= 1
        return value

    def _doubled_map(self) -> Any:
        """`{{"a": 1}}`: a map as templates have to write it to get a single brace."""
        self.at += 1
        value = self._nested(self._map)
        if self.skip() != "}":
            raise self.fail("expected a second '}'")
        self.at += 1
        self.repaired("doubled-braces")
        return value

    def _map(self) -> Any:
        if self.text.startswith("{{", self.at):
            return self._doubled_map()
        self.at += 1
        result: dict[str, Any] = {}
        values: list[Any] = []
        while (character := self.skip()) != "}":
            if not character and self._closed_for_it():
                return result
            key = self._key()
            sign = self.skip()
            if sign == "=" and self._quote:
                self.repaired("other-signs")
            if sign == ":" or (sign == "=" and self._quote):
                self.at += 1
                value = self.value()
                if key in result and result[key] != value:
                    raise self.fail(f"the key {key!r} stands there twice")
                result[key] = value
            else:
                values.append(key)
            self.separator("}")
        self.at += 1
        if values and not result:
            self.repaired("python-set")
            return values
        if values:
            raise self.fail("a key without a value")
        return result

    def _key(self) -> str:
        character = self.text[self.at]
        if self._quote and self.text.startswith(self._quote, self.at):
            return self._token_string()
        if character in {'"', "'"} or character in _SMART:
            return self.string()
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self.fail("expected a key")
        self.at = match.end()
        if not self._quote:
            self.repaired("unquoted-key")
        return match[0]

    def _token_string(self) -> str:
        start = self.at + len(self._quote)
        end = self.text.find(self._quote, start)
        if end < 0 and self._close:
            return self._unclosed_token_string(start)
        if end < 0:
            self.at = len(self.text)
            raise self.fail("a string that does not end")
        self.at = end + len(self._quote)
        return self.text[start:end]

    def _unclosed_token_string(self, start: int) -> str:
        """A string whose closing token is missing: it ends before the brackets that close all."""
        brackets = [at for at in range(start, len(self.text)) if self.text[at] in "}]"]
        self.at = len(self.text)
        for at in reversed(brackets[-self._depth :]):
            if self.text[at : self.at].strip() not in ("}", "]"):
                break
            self.at = at
        self.repaired("missing-quote")
        return self.text[start : self.at]

    def _scalar(self) -> Any:
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self.fail("expected a value")
        word = match[0]
        if self._quote and self._bare_text() != word:
            return self._bare()
        if word in _WORDS:
            value, repair = _WORDS[word]
        elif _ZERO_FIRST.fullmatch(word):
            # No number in JSON or Python; where a text is asked for, its digits count.
            value, repair = word, "unquoted-value"
        elif _INTEGER.fullmatch(word) and len(word) < 1000:
            value, repair = int(word), None
        elif _NUMBER.fullmatch(word) and len(word) < 1000:
            value, repair = float(word), None
        else:
            return self._bare()
        if value in (math.inf, -math.inf):
            raise self.fail("a number that is too large")
        self.at = match.end()
        if not repair and word not in _WORDS and not JSON_NUMBER.fullmatch(word):
            repair = "python-literal"
        if repair:
            self.repaired(repair)
        return value

    def _bare_text(self) -> str:
        """The text without quotes that stands here, where such may stand."""
        pattern = _BARE_ITEM if self._in_list else _BARE_VALUE
        match = pattern.match(self.text, self.at) if self._quote else None
        return match[0].rstrip() if match else ""

    def _bare(self) -> str:
        """Text without quotes, or with the closing one alone."""
        found = self._bare_text()
        text, token, rest = found.partition(self._quote) if found else ("", "", "")
        if not text or rest:
            raise self.fail(f"unknown word {self.text[self.at : self.at + 40]!r}")
        self.repaired("missing-quote" if token else "unquoted-value")
        self.at += len(found)
        return text
