"""Values as models write them: JSON, Python literals, and the maps of the Gemma family.

    {'city': "Oslo", days: 3, live: True,}   ->   {"city": "Oslo", "days": 3, "live": True}

Strict JSON is what the standard library reads; this reader is for the rest. Every liberty it takes
is named in `repairs`, and none of them changes what stands inside a string.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

MAX_DEPTH = 200
"""Deeper nesting is refused: no tool needs it, and recursion must end somewhere."""

_SPACE = re.compile(r"(?:\s++|#[^\n]*+|//[^\n]*+|/\*.*?\*/)*+", re.S)
_BLANK = re.compile(r"\s*+")
_BARE_VALUE = re.compile(r"[^{}\[\]\n,]++(?:,(?!\s*+[\w-]++\s*+:)[^{}\[\]\n,]*+)*+")
_BARE_ITEM = re.compile(r"[^{}\[\]\n,]++")
"""Text without quotes, up to the next key, the next item or the closer."""
_WORD = re.compile(r"""[^\s,:;{}\[\]()="'“”‘’]++""")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*")
_STRING = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+{quote}", re.S) for quote in ('"', "'", "”", "’")
}
_LONG_STRING = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.|{quote}(?!{quote}{quote}))*+{quote * 3}", re.S)
    for quote in ('"', "'")
}
_QUOTE = re.compile(r'(?<!\\)"')
_LOOSE_END = re.compile(r'(?<!\\)"(?=\s*+(?:[:}\]]|,\s*+["}\]]|\Z))')
_SMART = {"“": "”", "”": "”", "‘": "’", "’": "’"}
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(\r?\n)|(.))", re.S
)
_RAW = re.compile(r"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\"'\\/bfnrtuxU\n\r])")
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


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
"""Strict JSON: no NaN, no infinity, no raw line breaks in strings."""
_with_raw_newlines = json.JSONDecoder(
    strict=False, parse_constant=_no_constant, parse_float=_finite
)


class NotAValue(ValueError):
    """The text is no value that this reader knows."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"{message} at character {at}")
        self.at = at


class Unfinished(NotAValue):
    """The text stops in the middle of a value."""


def loads(text: str, *, close: bool = False, loose: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The value that `text` holds, and the names of the repairs it took.

    `close` allows brackets that are missing at the end, for text that is known not to be cut off;
    `loose` allows strings that hold their own quotes unescaped.
    """
    for reads, repairs in ((decoder, ()), (_with_raw_newlines, ("raw-newline",))):
        try:
            return reads.decode(text), repairs
        except (ValueError, RecursionError):
            pass
    reader = ValueReader(without_fence(text), close=close, loose=loose)
    value = reader.value()
    reader.skip()
    if reader.at < len(reader.text):
        raise NotAValue("unexpected text after the value", reader.at)
    return value, reader.repairs()


def is_unfinished(text: str) -> bool:
    """Whether the text is the beginning of a value, as far as it goes."""
    try:
        ValueReader(text).value()
    except Unfinished:
        return True
    except NotAValue:
        pass
    return False


def dumps(value: Any) -> str:
    """Compact JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def canonical(value: Any) -> str:
    """The same text for the same value, in whatever order its keys stand."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def same(text: str, value: Any) -> bool:
    """Whether a JSON text stands for exactly this value."""
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def depth_of(value: Any) -> int:
    """How deeply objects and lists are nested in each other; counts to just over the limit."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        nested = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in nested for item in items if isinstance(item, (dict, list))]
    return depth


def unescape(body: str) -> str:
    """What the inside of a quoted string stands for. Unknown escapes keep their backslash."""
    if "\\" not in body:
        return body
    text = _ESCAPE.sub(_unescape_one, body)
    if "\\u" in body and any("\ud800" <= character <= "\udfff" for character in text):
        # Escaped surrogate pairs come as two characters; lone ones stay as they are.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _unescape_one(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) < 0x110000 else match[0]
    if match[4]:
        return ""
    return _ESCAPED.get(match[5], match[0])


def without_fence(text: str) -> str:
    """What stands in a code fence, if the text is nothing but one."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 :].rstrip("`")
    return text


class ValueReader:
    """Reads one value after another from a text.

    `quote` is an extra token that opens and closes strings without escapes, as `<|"|>` does; texts
    may then also stand without any quotes. `close` allows closers that are missing at the end.
    """

    def __init__(
        self,
        text: str,
        at: int = 0,
        *,
        quote: str = "",
        close: bool = False,
        loose: bool = False,
    ) -> None:
        self.text = text
        self.at = at
        self._quote = quote
        self._close = close
        self._loose = loose
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
        if self.at > _BLANK.match(self.text, start).end():  # pyright: ignore[reportOptionalMemberAccess]
            self.repaired("comment")
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
        if self._loose and quote == '"':
            return self._loose_string()
        long = _LONG_STRING.get(quote) if self.text.startswith(quote * 3, self.at) else None
        width = 3 if long else 1
        match = (long or _STRING[quote]).match(self.text, self.at + width)
        if match is None:
            self.at = len(self.text)
            raise self.fail("a string that does not end")
        body = self.text[self.at + width : match.end() - width]
        self.at = match.end()
        if _BAD_ESCAPE.search(body):
            self.repaired("invalid-escape")
        if not long and _RAW.search(body):
            self.repaired("raw-newline")
        return unescape(body)

    def _loose_string(self) -> str:
        """A string that may hold quotes, if it is the last value and can end in only one place."""
        start = self.at + 1
        first = _QUOTE.search(self.text, start)
        ends = _LOOSE_END.finditer(self.text, start)
        end = next(ends, None)
        if first is None or end is None:
            self.at = len(self.text)
            raise self.fail("a string that does not end")
        if end.start() > first.start():
            if next(ends, None) is not None or self.text[end.end() :].strip(" \t\r\n}]"):
                raise self.fail("a string with quotes inside that can end in several places")
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
            if self.skip() == closer:
                self.repaired("trailing-comma")
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

    def _map(self) -> Any:
        self.at += 1
        result: dict[str, Any] = {}
        values: list[Any] = []
        while (character := self.skip()) != "}":
            if not character and self._closed_for_it():
                return result
            key = self._key()
            if self.skip() == ":":
                self.at += 1
                result[key] = self.value()
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
        elif _INTEGER.fullmatch(word) and len(word) < 1000:
            value, repair = int(word), None
        elif _NUMBER.fullmatch(word) and len(word) < 1000:
            value, repair = float(word), None
        else:
            return self._bare()
        if value in (math.inf, -math.inf):
            raise self.fail("a number that is too large")
        self.at = match.end()
        if repair:
            self.repaired(repair)
        return value

    def _bare_text(self) -> str:
        """The text without quotes that stands here, where such may stand."""
        pattern = _BARE_ITEM if self._in_list else _BARE_VALUE
        match = pattern.match(self.text, self.at) if self._quote else None
        return match[0].rstrip() if match and self._quote not in match[0] else ""

    def _bare(self) -> str:
        text = self._bare_text()
        if not text:
            raise self.fail(f"unknown word {self.text[self.at : self.at + 40]!r}")
        self.repaired("unquoted-value")
        self.at += len(text)
        return text
