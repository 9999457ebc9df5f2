"""Ids of calls, and keys that tell whether two calls are the same."""

from __future__ import annotations

import os
import random
import re
import secrets
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from .json_values import canonical_json, json_equal


class CallIds:
    """The ids of one reply's calls, and the calls made so far."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._taken: set[str] = set()
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._keys: set[CallKey] = set()
        """The keys of the first `_key_count` calls; computed on demand: most replies need none."""
        self._key_count = 0

    def claim(self, wanted: str) -> str:
        """Reserve an id for a call: the wanted one if it is free, else a new one."""
        identity = wanted if wanted and wanted not in self._taken else self._new_id()
        self._taken.add(identity)
        return identity

    def release(self, identity: str) -> None:
        """Free the id of a call that was not made."""
        self._taken.discard(identity)

    def record(self, identity: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Remember a call that was made."""
        self._calls[identity] = (name, arguments)

    def is_repeated(self, identity: str, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the same call with the same id was made before."""
        known = self._calls.get(identity) if identity else None
        return known is not None and known[0] == name and json_equal(known[1], arguments)

    def has_call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the same call was made before, under any id."""
        for made_name, made_arguments in islice(self._calls.values(), self._key_count, None):
            self._keys.add(call_key(made_name, made_arguments))
        self._key_count = len(self._calls)
        return call_key(name, arguments) in self._keys

    def keep_first(self, count: int) -> None:
        """Forget all calls but the first `count`."""
        while len(self._calls) > count:
            identity, _ = self._calls.popitem()
            self._taken.discard(identity)
        if self._key_count > count:
            self._keys, self._key_count = set(), 0


_MAYBE_INTEGRAL_FLOAT = re.compile(r"\.0|\de")
"""A float that may be integral: `3.0`, `1e3`."""
CallKey = tuple[str, str]
"""A call without its id: the name, and the arguments as canonical JSON."""


def call_key(name: str, arguments: Mapping[str, Any]) -> CallKey:
    """Return a key that is equal for calls that do the same."""
    try:
        written = canonical_json(arguments)
    except TypeError:
        # A mapping that is not a dict.
        return name, canonical_json(_with_integral_floats_as_integers(arguments))
    if _MAYBE_INTEGRAL_FLOAT.search(written):
        try:
            written = canonical_json(_with_integral_floats_as_integers(arguments))
        except RecursionError:
            pass
    return name, written


def _with_integral_floats_as_integers(value: Any) -> Any:
    """Replace 3.0 by 3, everywhere in a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_with_integral_floats_as_integers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _with_integral_floats_as_integers(item) for key, item in value.items()}
    return value


def new_call_id() -> str:
    """Return an id for a call that came without one."""
    return f"call_{random_id()}"


def random_id() -> str:
    """Return a random id. It is not a secret."""
    return f"{_RANDOM.getrandbits(96):024x}"


def _seed_random() -> None:
    _RANDOM.seed(secrets.randbits(256))


_RANDOM = random.Random()  # noqa: S311 - ids must be unique, not secret
_seed_random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_seed_random)
