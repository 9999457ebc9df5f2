"""Decoding JSON objects field by field.

`Fields` hands out the fields that a wire knows, with their types checked. What remains becomes the
`extra` of the decoded value, and goes out again where the upstream speaks the same API.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, TypeVar

from ..errors import WireError

T = TypeVar("T")
Json = dict[str, Any]
_TYPE_NAMES: dict[type[Any], str] = {
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    int: "integer",
}
PRIVATE = "~"
"""Prefix of keys in an `extra` that only its own API needs: others drop them without a note."""
ARGUMENTS_TEXT = f"{PRIVATE}arguments"
"""In the `extra` of a call: the JSON text of its arguments, if encoding them would change it."""
HOSTED_TOOLS = f"{PRIVATE}tools"
"""In the `extra` of a request: the tools that only its own API can run."""


def json_type(value: Any) -> str:
    """Return JSON's name for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return "number"
    return _TYPE_NAMES.get(type(value), type(value).__name__)


class Fields:
    """An object whose fields are taken out one by one. A null counts as a missing field."""

    __slots__ = ("_left", "path")

    def __init__(self, value: Any, path: str = "$") -> None:
        if not isinstance(value, dict):
            raise WireError(f"Expected `object`, got `{json_type(value)}`", path)
        self._left: Json = dict(value)
        self.path = path

    def take(self, key: str, kind: type[T]) -> T | None:
        """Take a field, which must be of this type."""
        value = self._left.pop(key, None)
        if value is None or type(value) is kind:
            return value
        if kind is int and isinstance(value, float) and value.is_integer():
            return kind(value)
        raise self._type_error(_TYPE_NAMES[kind], value, key)

    def require(self, key: str, kind: type[T]) -> T:
        value = self.take(key, kind)
        if value is None:
            raise WireError(f"Expected `{_TYPE_NAMES[kind]}`, got nothing", self.path_of(key))
        return value

    def take_text(self, *keys: str) -> str:
        """Take the first of these fields that holds text; "" if none does."""
        for key in keys:
            value = self.take(key, str)
            if value:
                return value
        return ""

    def take_texts(self, key: str) -> tuple[str, ...]:
        """Take a field that holds one text or several."""
        value = self._left.pop(key, None)
        texts = [value] if isinstance(value, str) else value
        if texts is None:
            return ()
        if not isinstance(texts, list) or any(type(text) is not str for text in texts):
            raise WireError("Expected `string` or an array of them", self.path_of(key))
        return tuple(texts)

    def take_number(self, key: str) -> float | None:
        value = self._left.pop(key, None)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return value
        raise self._type_error("number", value, key)

    def take_numbers(self, keys: Container[str]) -> dict[str, float]:
        """Take those of these fields that are present."""
        found = [key for key in self._left if key in keys]
        if not found:
            return {}
        numbers = ((key, self.take_number(key)) for key in found)
        return {key: value for key, value in numbers if value is not None}

    def take_any(self, *keys: str) -> Any:
        """Take the first of these fields that is present, whatever its type."""
        for key in keys:
            value = self._left.pop(key, None)
            if value is not None:
                return value
        return None

    def take_items(self, key: str) -> list[tuple[Any, str]]:
        """Take the items of an array, each with its path."""
        items = self.take(key, list)
        if not items:
            return []
        return [(item, f"{self.path}.{key}[{index}]") for index, item in enumerate(items)]

    def take_one_or_more(self, key: str) -> list[tuple[Any, str]]:
        """Take the items of an array; any other value counts as its only item."""
        value, path = self.take_any(key), self.path_of(key)
        items = value if isinstance(value, list) else [value]
        return [(item, f"{path}[{at}]") for at, item in enumerate(items) if item is not None]

    def take_content(self, key: str, decode_part: Callable[[Any, str], T]) -> Iterator[T]:
        """Decode the parts of a content field; a text counts as its only part."""
        content = self.take_any(key)
        path = self.path_of(key)
        if isinstance(content, str):
            if content:
                yield decode_part(content, path)
        elif isinstance(content, list):
            for index, item in enumerate(content):
                yield decode_part(item, f"{path}[{index}]")
        elif content is not None:
            raise self._type_error("string` or `array", content, key)

    def take_object(self, key: str) -> Fields | None:
        value = self.take(key, dict)
        return None if value is None else Fields(value, self.path_of(key))

    def discard(self, *keys: str) -> None:
        for key in keys:
            self._left.pop(key, None)

    def peek(self, key: str) -> Any:
        """Return a field and leave it in place."""
        return self._left.get(key)

    def peek_text(self, key: str) -> str:
        """Return a field that holds text and leave it in place; "" for any other field."""
        value = self._left.get(key)
        return value if isinstance(value, str) else ""

    def update(self, fields: Mapping[str, Any]) -> None:
        self._left.update(fields)

    def has(self, key: str) -> bool:
        return self._left.get(key) is not None

    def has_any(self, keys: frozenset[str]) -> bool:
        return not keys.isdisjoint(self._left)

    def has_rest(self) -> bool:
        return bool(self._left)

    def rest(self) -> Json:
        """Return the fields that have not been taken."""
        if not self._left:
            return {}
        return {key: value for key, value in self._left.items() if value is not None}

    def path_of(self, key: str) -> str:
        return f"{self.path}.{key}"

    def _type_error(self, expected: str, value: Any, key: str) -> WireError:
        return WireError(f"Expected `{expected}`, got `{json_type(value)}`", self.path_of(key))


def nest(key: str, fields: Json | list[Any]) -> Json:
    """Return {key: fields}, or {} if there are no fields."""
    return {key: fields} if fields else {}
