"""What stands in the place of a secret, and the report of what was there."""

from __future__ import annotations

from msgspec import Struct

from ..types import Note
from .quoting import kept, size
from .values import SHORTEST
from .vault import Secret, Vault, unescaped
from .window import Span

KEPT = 4
"""So many characters of a secret stay, so that one can tell which it was."""


class Found(Struct, frozen=True):
    """A secret that was found; it does not say the secret."""

    kind: str
    name: str
    """What the text calls it, if it has a name there."""
    line: int
    column: int
    offset: int
    """Characters before it in the whole text."""

    def note(self) -> Note:
        """The same as a note."""
        said = f"{self.kind} {self.name!r}" if self.name else self.kind
        return Note("scrubbed", f"a secret was taken out: {said}", f"line {self.line}")


class Open:
    """A secret that is still being read."""

    def __init__(self, vault: Vault | None, secret: Secret | None) -> None:
        self._vault, self._secret = vault, secret
        self._parts: list[str] = []
        self._left = _LONGEST

    def add(self, part: str) -> None:
        if self._secret and self._left > 0:
            self._parts.append(part)
            self._left -= len(part)

    def close(self) -> None:
        """It is all there: now it can be put back, unless it is too long to be kept."""
        if self._vault and self._secret and self._left > 0:
            self._vault.fill(self._secret, "".join(self._parts))


_LONGEST = 1 << 16
"""Longer secrets are not kept: they can not be put back."""


class Marks:
    """Makes the marks for one text, and remembers where they stand."""

    def __init__(self, vault: Vault | None, source: str) -> None:
        self._vault, self._source = vault, source
        self.found: list[Found] = []
        self._offset = 0
        self._line = 1
        self._column = 1

    def of(self, span: Span, text: str) -> str:
        """The mark for a secret that is all there."""
        value = text[span.start : span.end]
        self._report(span, text)
        begin = kept(value, KEPT) if size(value) >= SHORTEST else ""
        if self._vault is None:
            return f"{begin}*[REDACTED]"
        secret = self._vault.keep(unescaped(value, span.levels), span.kind, span.name, self._source)
        return begin + secret.mark

    def opened(self, span: Span, text: str) -> tuple[Open, str]:
        """The mark for a secret that is not over yet."""
        self._report(span, text)
        begin = kept(text[span.start : span.start + 64], KEPT)
        secret = self._vault.begin(span.kind, span.name, self._source) if self._vault else None
        return Open(self._vault, secret), begin + (secret.mark if secret else "*[REDACTED]")

    def passed(self, text: str, end: int) -> None:
        """So much of the text is not needed any more."""
        self._line, self._column = self._place(text, end)
        self._offset += end

    def _report(self, span: Span, text: str) -> None:
        line, column = self._place(text, span.start)
        self.found.append(Found(span.kind, span.name, line, column, self._offset + span.start))

    def _place(self, text: str, at: int) -> tuple[int, int]:
        lines = text.count("\n", 0, at)
        if not lines:
            return self._line, self._column + at
        return self._line + lines, at - text.rfind("\n", 0, at)
