"""A vault keeps the secrets that were scrubbed, to restore them where that was approved.

    vault = Vault()
    scrub(output, vault=vault, source="read_file .env").text  -> "API_KEY=sk-1*[REDACTED:9f3ac0…]"
    vault.find_uses(call.arguments)   -> [SecretUse("$.headers.Authorization", Secret(…))]
    vault.restore(call.arguments)     -> the arguments with the secrets

The vault does not decide which tool may have a secret. Before calling `restore`, the caller must
ask for approval of each use, with the secret's source and destination (`SecretUse.question`), and
only for tools on an allowlist.

Secrets are kept in memory only: no repr shows them, and they cannot be pickled or encoded as JSON.
Placeholders cannot be guessed, and those of another vault are left as they are.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any, NoReturn

from msgspec import Struct

from ...calls.json_values import map_strings

SHOWN_CHARACTERS = 4
"""The first characters of a secret are kept, to tell which one it was."""
_PLACEHOLDER = re.compile(r"\*\[REDACTED:([0-9a-f]{16})\]")
_MAX_QUOTED = 200


class Secret:
    """A stored secret. Only `reveal` returns its value."""

    __slots__ = ("_parts", "kind", "name", "placeholder", "shown", "source")

    def __init__(self, kind: str, name: str, source: str, shown: str, value: str = "") -> None:
        self.kind, self.name, self.source = kind, name, source
        self.shown = shown
        """The part of the secret that precedes its placeholder."""
        self.placeholder = f"*[REDACTED:{secrets.token_hex(8)}]"
        self._parts = [value]

    def __repr__(self) -> str:
        return f"Secret(kind={self.kind!r}, name={self.name!r}, source={self.source!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")

    def reveal(self) -> str:
        return "".join(self._parts)

    def extend(self, value: str) -> None:
        """Add more of a secret that is still arriving."""
        self._parts.append(value)


class SecretUse(Struct, frozen=True):
    """A reference to a secret in the arguments of a call."""

    path: str
    secret: Secret

    def question(self, tool: str) -> str:
        """Return the question for the person who approves this use.

        Names and sources may come from untrusted text, so they are quoted.
        """
        name = f" {_quote(self.secret.name)}" if self.secret.name else ""
        source = f" from {_quote(self.secret.source)}" if self.secret.source else ""
        destination = f"`{tool}` in its argument {_quote(self.path)}"
        return f"Give the {self.secret.kind}{name}{source} to {destination}?"


def _quote(text: str) -> str:
    if len(text) > _MAX_QUOTED:
        text = f"{text[: _MAX_QUOTED // 2]} … {text[-_MAX_QUOTED // 2 :]}"
    return json.dumps(text, ensure_ascii=False)


class Vault:
    """Stores the secrets of one conversation."""

    def __init__(self) -> None:
        self._by_placeholder: dict[str, Secret] = {}
        self._by_value: dict[tuple[str, ...], Secret] = {}

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault cannot be pickled or copied")

    def store(self, value: str, kind: str, name: str, source: str, shown: str) -> Secret:
        """Store a secret, or return the one that was stored before."""
        key = (value, kind, name, source, shown)
        if key not in self._by_value:
            self._by_value[key] = Secret(kind, name, source, shown, value)
            self.add(self._by_value[key])
        return self._by_value[key]

    def add(self, secret: Secret) -> None:
        """Add a secret whose placeholder was returned before its value was complete."""
        self._by_placeholder[secret.placeholder] = secret

    def find_uses(self, arguments: Any) -> list[SecretUse]:
        return [
            SecretUse(path, self._by_placeholder[placeholder[0]])
            for path, text in _strings_with_paths(arguments, "$")
            for placeholder in _PLACEHOLDER.finditer(text)
            if placeholder[0] in self._by_placeholder
        ]

    def restore(self, arguments: Any) -> Any:
        """Return the arguments with secrets for placeholders. Ask for approval before."""
        return map_strings(arguments, self._restore_text)

    def _restore_text(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for placeholder in _PLACEHOLDER.finditer(text):
            secret = self._by_placeholder.get(placeholder[0])
            if secret:
                before = text[at : placeholder.start()]
                parts += [_remove_shown(before, secret), secret.reveal()]
                at = placeholder.end()
        return "".join([*parts, text[at:]])


def _remove_shown(before: str, secret: Secret) -> str:
    """Remove the shown characters before a placeholder, as they were written or unescaped."""
    for shown in (secret.shown, secret.reveal()[:SHOWN_CHARACTERS]):
        if secret.shown and before.endswith(shown):
            return before.removesuffix(shown)
    return before


def _strings_with_paths(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings_with_paths(key, f"{path}.{key}")
            yield from _strings_with_paths(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _strings_with_paths(item, f"{path}[{index}]")
