"""What stands in the place of a secret, and the report of what was there."""

from __future__ import annotations

from msgspec import Struct

from ...types import Note
from .quoting import count_characters, keep_start
from .values import SHORTEST
from .vault import Secret, Vault, unescape_value
from .window import Span

KEPT = 4
"""So many characters of a secret stay, so that one can tell which it was."""
COVER = "*"
"""What stands for each character of a secret where every place has to stay as it was."""


class SecretFinding(Struct, frozen=True):
    """A secret that was found; it does not say the secret."""

    kind: str
    name: str
    """What the text calls it, if it has a name there."""
    line: int
    column: int
    offset: int
    """Characters before it in the whole text."""

    def as_note(self) -> Note:
        """The same as a note."""
        said = f"{self.kind} {self.name!r}" if self.name else self.kind
        return Note("scrubbed", f"a secret was taken out: {said}", f"line {self.line}")


class OpenSecret:
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
        if self._vault is not None and self._secret and self._left > 0:
            self._vault.fill(self._secret, "".join(self._parts))


_LONGEST = 1 << 16
"""Longer secrets are not kept: they can not be put back."""


class PlaceholderWriter:
    """Makes the marks for one text, and remembers where they stand."""

    def __init__(self, vault: Vault | None, source: str, *, in_place: bool = False) -> None:
        self._vault, self._source = vault, source
        self._in_place = in_place
        self.found: list[SecretFinding] = []
        self._dropped = 0
        """So many characters of the text are not at hand any more."""
        self._line = 1
        self._line_start = 0
        self._counted = 0
        """Up to here, in the whole text, lines have been counted."""

    def of(self, span: Span, text: str) -> str:
        """The mark for a secret that is all there."""
        value = text[span.start : span.end]
        self._report(span, text)
        begin = keep_start(value, KEPT) if count_characters(value) >= SHORTEST else ""
        if self._in_place:
            return begin + COVER * (len(value) - len(begin))
        if self._vault is None:
            return f"{begin}*[REDACTED]"
        whole = unescape_value(value, span.levels)
        secret = self._vault.store(whole, span.kind, span.name, self._source, begin)
        return begin + secret.placeholder

    def opened(self, span: Span, text: str) -> tuple[OpenSecret, str]:
        """The mark for a secret that is not over yet."""
        self._report(span, text)
        if self._in_place:
            return OpenSecret(None, None), ""
        begin = keep_start(text[span.start : span.start + 64], KEPT)
        if self._vault is None:
            return OpenSecret(None, None), f"{begin}*[REDACTED]"
        secret = self._vault.begin(span.kind, span.name, self._source, begin)
        return OpenSecret(self._vault, secret), begin + secret.placeholder

    def passed(self, text: str, end: int) -> None:
        """So much of the text is not needed any more."""
        self._count(text, end)
        self._dropped += end

    def _report(self, span: Span, text: str) -> None:
        self._count(text, span.start)
        offset = self._dropped + span.start
        column = offset - self._line_start + 1
        self.found.append(SecretFinding(span.kind, span.name, self._line, column, offset))

    def _count(self, text: str, end: int) -> None:
        """Count the lines up to a place, from where they were counted before."""
        start = self._counted - self._dropped
        if end > start:
            lines = text.count("\n", start, end)
            self._counted = self._dropped + end
            if lines:
                self._line += lines
                self._line_start = self._dropped + text.rfind("\n", start, end) + 1
