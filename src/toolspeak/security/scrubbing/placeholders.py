"""The placeholders that replace secrets, and the vault that can restore them.

    vault = Vault()
    scrub(output, vault=vault, source="read_file .env").text  -> "API_KEY=sk-1*[REDACTED:9f3ac0…]"
    vault.find_uses(call.arguments)   -> [SecretUse("$.headers.Authorization", Secret(…))]
    vault.restore(call.arguments)     -> the arguments with the secrets

The vault does not decide who may have a secret. Before calling `restore`, the caller must ask for
approval of each use, with the secret's source and destination (`SecretUse.question`), and only for
tools on an allowlist.

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

from ...types import Note
from .values import MIN_LENGTH
from .windows import Span, count_characters, take_characters

SHOWN_CHARACTERS = 4
"""The first characters of a secret are kept, to tell which one it was."""
MASK = "*"
"""Replaces each character of a secret where all positions must stay the same."""
_MAX_SECRET = 1 << 16
"""Longer secrets are not stored and cannot be restored."""
_PLACEHOLDER = re.compile(r"\*\[REDACTED:([0-9a-f]{16})\]")


class SecretFinding(Struct, frozen=True):
    """Reports the position of a secret, and never the secret itself."""

    kind: str
    name: str
    """The name before the secret, if any."""
    line: int
    column: int
    offset: int
    """The number of characters before the secret in the whole text."""

    def as_note(self) -> Note:
        subject = f"{self.kind} {self.name!r}" if self.name else self.kind
        return Note("scrubbed", f"removed a secret: {subject}", f"line {self.line}")


class Secret:
    """A stored secret. Only `reveal` returns its value."""

    __slots__ = ("_value", "kind", "name", "placeholder", "shown", "source")

    def __init__(self, kind: str, name: str, source: str, shown: str = "") -> None:
        self.kind, self.name, self.source, self.shown = kind, name, source, shown
        self.placeholder = f"*[REDACTED:{secrets.token_hex(8)}]"
        self._value = ""

    def __repr__(self) -> str:
        return f"Secret(kind={self.kind!r}, name={self.name!r}, source={self.source!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")

    def reveal(self) -> str:
        return self._value

    def set_value(self, value: str) -> None:
        self._value = value


class SecretUse:
    """A reference to a secret in the arguments of a call."""

    __slots__ = ("path", "secret")

    def __init__(self, path: str, secret: Secret) -> None:
        self.path, self.secret = path, secret

    def __repr__(self) -> str:
        return f"SecretUse(path={self.path!r}, secret={self.secret!r})"

    def question(self, tool: str) -> str:
        """Return the question for the person who approves this use."""
        name = f" `{self.secret.name}`" if self.secret.name else ""
        source = f" from {self.secret.source}" if self.secret.source else ""
        return f"Give the {self.secret.kind}{name}{source} to the tool `{tool}` at `{self.path}`?"


class Vault:
    """Stores the secrets of one conversation."""

    def __init__(self) -> None:
        self._by_placeholder: dict[str, Secret] = {}
        self._by_value: dict[tuple[str, ...], Secret] = {}

    def __repr__(self) -> str:
        return f"Vault({len(self)} secrets)"

    def __len__(self) -> int:
        return len(self._by_placeholder)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault cannot be pickled or copied")

    def store(self, value: str, kind: str, name: str, source: str, shown: str = "") -> Secret:
        """Store a secret, or return the one that was stored before.

        `shown` is the part of the secret that precedes its placeholder.
        """
        key = (value, kind, name, source, shown)
        if key not in self._by_value:
            self._by_value[key] = Secret(kind, name, source, shown)
            self.set_value(self._by_value[key], value)
        return self._by_value[key]

    def set_value(self, secret: Secret, value: str) -> None:
        """Set the value of a secret. Without one, it is not restored."""
        secret.set_value(value)
        self._by_placeholder[secret.placeholder] = secret

    def find_uses(self, arguments: Any) -> list[SecretUse]:
        """Return every reference to a secret in the arguments."""
        return [
            SecretUse(path, self._by_placeholder[placeholder[0]])
            for path, text in _strings_with_paths(arguments, "$")
            for placeholder in _PLACEHOLDER.finditer(text)
            if placeholder[0] in self._by_placeholder
        ]

    def restore(self, arguments: Any) -> Any:
        """Return the arguments with secrets for placeholders. Ask for approval before."""
        if isinstance(arguments, str):
            return self._restore_text(arguments)
        if isinstance(arguments, dict):
            return {self.restore(key): self.restore(item) for key, item in arguments.items()}
        if isinstance(arguments, (list, tuple)):
            return [self.restore(item) for item in arguments]
        return arguments

    def _restore_text(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        for placeholder in _PLACEHOLDER.finditer(text):
            secret = self._by_placeholder.get(placeholder[0])
            if secret:
                before = text[at : placeholder.start()]
                pieces += [_remove_shown(before, secret), secret.reveal()]
                at = placeholder.end()
        return "".join([*pieces, text[at:]])


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


class OpenSecret:
    """Collects a secret that is longer than its window."""

    def __init__(self, vault: Vault | None, secret: Secret | None) -> None:
        self._vault, self._secret = vault, secret
        self._parts: list[str] = []
        self._remaining = _MAX_SECRET

    def add(self, part: str) -> None:
        if self._secret and self._remaining > 0:
            self._parts.append(part)
            self._remaining -= len(part)

    def close(self) -> None:
        """Store the value, unless it is too long."""
        if self._vault is not None and self._secret and self._remaining > 0:
            self._vault.set_value(self._secret, "".join(self._parts))


class PlaceholderWriter:
    """Makes the placeholders for one text, and records where the secrets were."""

    def __init__(self, vault: Vault | None, source: str, *, in_place: bool = False) -> None:
        self._vault, self._source = vault, source
        self._in_place = in_place
        self.findings: list[SecretFinding] = []
        self._dropped = 0
        """The number of characters that were dropped from the start of the text."""
        self._line = 1
        self._line_start = 0
        self._counted = 0
        """The lines of the whole text are counted up to this offset."""

    def replace(self, span: Span, text: str) -> str:
        """Return the placeholder for a secret that is complete."""
        value = text[span.start : span.end]
        self._add_finding(span, text)
        is_long = count_characters(value) >= MIN_LENGTH
        shown = take_characters(value, SHOWN_CHARACTERS) if is_long else ""
        if self._in_place:
            return shown + MASK * (len(value) - len(shown))
        if self._vault is None:
            return f"{shown}*[REDACTED]"
        unescaped = _unescape_value(value, span.escape_levels)
        secret = self._vault.store(unescaped, span.kind, span.name, self._source, shown)
        return shown + secret.placeholder

    def open(self, span: Span, text: str) -> tuple[OpenSecret, str]:
        """Return the placeholder for a secret that is not complete, and a collector for it."""
        self._add_finding(span, text)
        if self._in_place:
            return OpenSecret(None, None), ""
        shown = take_characters(text[span.start : span.start + 64], SHOWN_CHARACTERS)
        if self._vault is None:
            return OpenSecret(None, None), f"{shown}*[REDACTED]"
        secret = Secret(span.kind, span.name, self._source, shown)
        return OpenSecret(self._vault, secret), shown + secret.placeholder

    def drop(self, text: str, end: int) -> None:
        """Record that `text` loses its first `end` characters."""
        self._count_lines(text, end)
        self._dropped += end

    def _add_finding(self, span: Span, text: str) -> None:
        self._count_lines(text, span.start)
        offset = self._dropped + span.start
        column = offset - self._line_start + 1
        self.findings.append(SecretFinding(span.kind, span.name, self._line, column, offset))

    def _count_lines(self, text: str, end: int) -> None:
        start = self._counted - self._dropped
        if end > start:
            lines = text.count("\n", start, end)
            self._counted = self._dropped + end
            if lines:
                self._line += lines
                self._line_start = self._dropped + text.rfind("\n", start, end) + 1


def _unescape_value(value: str, levels: int) -> str:
    for _ in range(levels):
        try:
            value = json.loads(f'"{value}"')
        except ValueError:
            break
    return value
