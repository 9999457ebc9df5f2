"""Taking JSON objects apart, and putting them together for another API.

`Fields` hands out what a wire knows by name; what is left over is carried as `extra`. `Unsaid`
gathers what the other API has no words for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import wraps
from threading import Lock
from typing import Any, TypeVar

import msgspec

from ..errors import WireError

T = TypeVar("T")
_NAMES: dict[type[Any], str] = {
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    int: "integer",
}
Json = dict[str, Any]


def json_type(value: Any) -> str:
    """What JSON calls this kind of value."""
    if value is None:
        return "null"
    return "number" if isinstance(value, float) else _NAMES.get(type(value), type(value).__name__)


ARGUMENTS_TEXT = "~arguments"
"""In the `extra` of a call: its arguments, letter by letter, where they came as JSON text."""
HOSTED_TOOLS = "~tools"
"""In the `extra` of a request: the tools that only its own API can run."""
PRIVATE = "~"
"""A key of an `extra` that begins so is a wire's own reminder: nobody said it, nobody misses it."""
_MOST_KEPT = 2**22
"""How many bytes of JSON are remembered by each function that reads it only once."""


class Fields:
    """An object whose fields are taken out one by one. A null is the same as nothing."""

    __slots__ = ("_left", "path")

    def __init__(self, value: Any, path: str = "$") -> None:
        if not isinstance(value, dict):
            raise WireError(f"Expected `object`, got `{json_type(value)}`", path)
        self._left: Json = dict(value)
        self.path = path

    def take(self, key: str, kind: type[T]) -> T | None:
        """The value of a field, which has to be of this kind; None if there is none."""
        value = self._left.pop(key, None)
        if value is None or type(value) is kind:
            return value
        if kind is int and isinstance(value, float) and value.is_integer():
            return kind(value)
        raise WireError(f"Expected `{_NAMES[kind]}`, got `{json_type(value)}`", self.path_of(key))

    def require(self, key: str, kind: type[T]) -> T:
        """The value of a field that has to be there."""
        value = self.take(key, kind)
        if value is None:
            raise WireError(f"Expected `{_NAMES[kind]}`, got nothing", self.path_of(key))
        return value

    def take_text(self, *keys: str) -> str:
        """The first of these fields that holds text; "" if none does."""
        for key in keys:
            value = self.take(key, str)
            if value:
                return value
        return ""

    def take_numbers(self, keys: Container[str]) -> dict[str, float]:
        """The numbers in those of these fields that there are."""
        there = [key for key in self._left if key in keys]
        if not there:
            return {}
        numbers = ((key, self.take_number(key)) for key in there)
        return {key: value for key, value in numbers if value is not None}

    def take_number(self, key: str) -> float | None:
        """The number in a field."""
        value = self._left.pop(key, None)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return value
        raise WireError(f"Expected `number`, got `{json_type(value)}`", self.path_of(key))

    def take_texts(self, key: str) -> tuple[str, ...]:
        """The texts in a field that holds one or several."""
        value = self._left.pop(key, None)
        texts = [value] if isinstance(value, str) else value
        if texts is None:
            return ()
        if not isinstance(texts, list) or any(type(text) is not str for text in texts):
            raise WireError("Expected `string` or an array of them", self.path_of(key))
        return tuple(texts)

    def take_any(self, *keys: str) -> Any:
        """The first of these fields that there is, whatever it holds."""
        for key in keys:
            value = self._left.pop(key, None)
            if value is not None:
                return value
        return None

    def discard(self, *keys: str) -> None:
        """These fields say nothing that anybody needs."""
        for key in keys:
            self._left.pop(key, None)

    def take_items(self, key: str) -> list[tuple[Any, str]]:
        """The items of an array, each with its path."""
        items = self.take(key, list)
        if not items:
            return []
        return [(item, f"{self.path}.{key}[{index}]") for index, item in enumerate(items)]

    def take_one_or_more(self, key: str) -> list[tuple[Any, str]]:
        """The items of an array; an object that stands there alone is its only one."""
        value = self.peek(key)
        if not isinstance(value, dict):
            return self.take_items(key)
        return [(self.take_any(key), self.path_of(key))]

    def take_object(self, key: str) -> Fields | None:
        """The object in a field, to be taken apart too."""
        value = self.take(key, dict)
        return None if value is None else Fields(value, self.path_of(key))

    def peek(self, key: str) -> Any:
        """The value of a field, which stays there."""
        return self._left.get(key)

    def update(self, fields: Mapping[str, Any]) -> None:
        """Put other fields in the place of those of the same name."""
        self._left.update(fields)

    def has_rest(self) -> bool:
        """Whether there is anything that nobody took."""
        return bool(self._left)

    def has_any(self, keys: frozenset[str]) -> bool:
        """Whether one of these fields is there."""
        return not keys.isdisjoint(self._left)

    def has(self, key: str) -> bool:
        """Whether a field is there and not null."""
        return self._left.get(key) is not None

    def path_of(self, key: str) -> str:
        """The path of a field."""
        return f"{self.path}.{key}"

    def rest(self) -> Json:
        """What nobody took."""
        if not self._left:
            return {}
        return {key: value for key, value in self._left.items() if value is not None}


F = TypeVar("F", bound=Fields)
Reads = Callable[[F], T]


def memoize_by_json(*keys: str) -> Callable[[Reads[F, T]], Reads[F, T]]:
    """For a function that reads these fields and no others: what it makes of the same JSON it makes
    only once."""

    def remembering(read: Reads[F, T]) -> Reads[F, T]:
        kept: dict[bytes, T] = {}
        size = 0
        # What a request said is read once more, by threads, for those who look at it.
        changing = Lock()

        @wraps(read)
        def read_before(fields: F) -> T:
            nonlocal size
            given = _encoded([fields.peek(key) for key in keys])
            found = kept.get(given) if given else None
            if found is not None:
                for key in keys:
                    fields.take_any(key)
                return found
            made = read(fields)
            with changing:
                if given and given not in kept:
                    kept[given] = made
                    size += len(given)
                while size > _MOST_KEPT:
                    oldest = next(iter(kept))
                    size -= len(oldest)
                    del kept[oldest]
            return made

        return read_before

    return remembering


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (ValueError, RecursionError):
        return b""
