"""Secrets that can be put back, if somebody allows it.

    vault = Vault()
    scrub(output, vault=vault, source="read_file .env").text  -> "API_KEY=sk-1*[REDACTED:9f3ac0…]"
    vault.uses(call.arguments)        -> [Use("$.headers.Authorization", Secret(…))]
    vault.restored(call.arguments)    -> the arguments with the secrets

The vault decides nothing. Who calls `restored` has asked before: for each use, with its secret,
where that came from and where it goes (`Use.question`), and only for tools that are on a list.

Secrets are in memory only. They are in no repr, can not be pickled and are no JSON. Marks are not
to be guessed, and a mark that another vault has made is left as it is.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any, NoReturn

_MARK = re.compile(r"\*\[REDACTED:([0-9a-f]{16})\]")
_SHOWN = 4


class Secret:
    """Something secret; what it is only `reveal` says."""

    __slots__ = ("_value", "kind", "name", "placeholder", "shown", "source")

    def __init__(self, kind: str, name: str, source: str, shown: str = "") -> None:
        self.kind, self.name, self.source, self.shown = kind, name, source, shown
        self.placeholder = f"*[REDACTED:{secrets.token_hex(8)}]"
        self._value = ""

    def __repr__(self) -> str:
        return f"Secret(kind={self.kind!r}, name={self.name!r}, source={self.source!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret stays in memory: it can not be pickled or copied")

    def reveal(self) -> str:
        return self._value

    def fill(self, value: str) -> None:
        self._value = value


class SecretUse:
    """A secret that the arguments of a call refer to, and where."""

    __slots__ = ("path", "secret")

    def __init__(self, path: str, secret: Secret) -> None:
        self.path, self.secret = path, secret

    def __repr__(self) -> str:
        return f"Use(path={self.path!r}, secret={self.secret!r})"

    def question(self, tool: str) -> str:
        """What to ask whoever approves it."""
        name = f" `{self.secret.name}`" if self.secret.name else ""
        source = f", which came from {self.secret.source}," if self.secret.source else ""
        return f"Give the {self.secret.kind}{name}{source} to the tool `{tool}` at `{self.path}`?"


class Vault:
    """The secrets of one conversation."""

    def __init__(self) -> None:
        self._by_mark: dict[str, Secret] = {}
        self._by_value: dict[tuple[str, ...], Secret] = {}

    def __repr__(self) -> str:
        return f"Vault({len(self)} secrets)"

    def __len__(self) -> int:
        return len(self._by_mark)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault stays in memory: it can not be pickled or copied")

    def store(self, value: str, kind: str, name: str, source: str, shown: str = "") -> Secret:
        """A secret; the same one if it was kept before. `shown` stands before its mark."""
        key = (value, kind, name, source, shown)
        if key not in self._by_value:
            self._by_value[key] = self.begin(kind, name, source, shown)
            self.fill(self._by_value[key], value)
        return self._by_value[key]

    def begin(self, kind: str, name: str, source: str, shown: str = "") -> Secret:
        """A secret whose value is not known yet; until then it is not put back."""
        return Secret(kind, name, source, shown)

    def fill(self, secret: Secret, value: str) -> None:
        secret.fill(value)
        self._by_mark[secret.placeholder] = secret

    def find_uses(self, arguments: Any) -> list[SecretUse]:
        """The secrets that arguments refer to, each with every place."""
        return [
            SecretUse(path, self._by_mark[mark[0]])
            for path, text in _texts(arguments, "$")
            for mark in _MARK.finditer(text)
            if mark[0] in self._by_mark
        ]

    def restore(self, arguments: Any) -> Any:
        """The arguments with the secrets in place of their marks. Ask before: see `uses`."""
        if isinstance(arguments, str):
            return self._restored_text(arguments)
        if isinstance(arguments, dict):
            return {self.restore(key): self.restore(item) for key, item in arguments.items()}
        if isinstance(arguments, (list, tuple)):
            return [self.restore(item) for item in arguments]
        return arguments

    def _restored_text(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        for mark in _MARK.finditer(text):
            secret = self._by_mark.get(mark[0])
            if secret:
                before = text[at : mark.start()]
                pieces += [_without_beginning(before, secret), secret.reveal()]
                at = mark.end()
        return "".join([*pieces, text[at:]])


def _without_beginning(before: str, secret: Secret) -> str:
    """What stands before a mark, without the characters of the secret that were kept: as they were
    written there, or without escapes."""
    for shown in (secret.shown, secret.reveal()[:_SHOWN]):
        if secret.shown and before.endswith(shown):
            return before.removesuffix(shown)
    return before


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key, f"{path}.{key}")
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


def unescape_value(value: str, levels: int) -> str:
    """A value as it was before it was written into a string, or into a string in a string."""
    for _ in range(levels):
        try:
            value = json.loads(f'"{value}"')
        except ValueError:
            break
    return value
