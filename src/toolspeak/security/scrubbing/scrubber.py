"""Removes secrets from a text that arrives in chunks.

    scrubber = Scrubber()
    scrubber.feed('{"api_key": "sk-12345')      -> '{"api'          the rest may be a secret
    scrubber.feed('67890"}\\n')                  -> '_key": "sk-1*[REDACTED]"}\\n'
    scrubber.finish()                           -> ""

The algorithm, in time linear in the text:

1. `find_candidates` lists the positions to examine: cues such as `token` or `://`, and long words.
2. Each candidate's rule looks at a window of the text and yields the spans that are secrets. If
   the window is not complete, the scrubber returns the text before it and waits.
3. Found spans are pending until all candidates before them are examined, because a cue may find a
   secret far after it. Then a placeholder replaces each, in the order of the text.
4. A secret that is longer than its window is open: its characters are dropped as they arrive.

The result does not depend on the chunks. Only text that may belong to a secret is held back, and
never more than `MAX_HELD` characters.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from operator import attrgetter

from msgspec import Struct, structs

from .patterns import (
    CUE_RULES,
    MAX_CUE,
    MIN_LONG_WORD,
    VALUE_LOOKBEHIND,
    Candidate,
    find_candidates,
)
from .rules import MIN_LENGTH
from .vault import SHOWN_CHARACTERS, Secret, Vault
from .windows import LOOKBEHIND, REACH, ReadMore, Span, count_characters, take_characters

_PIECE = 1 << 16
"""Long texts are processed in pieces that fit in a CPU cache."""
_TAIL = max(MAX_CUE, MIN_LONG_WORD) + VALUE_LOOKBEHIND
"""The maximum length of the end of a text that may be the start of a cue, or may be a secret before
one."""
MAX_HELD = REACH + 2 * _TAIL
_START = attrgetter("start")
_MAX_SECRET = 1 << 16
"""Longer secrets are not stored and cannot be restored."""


class SecretFinding(Struct):
    """The position of a secret in the whole text, and never the secret itself."""

    kind: str
    name: str
    """The name before the secret, if any."""
    line: int
    column: int
    offset: int
    """The number of characters before the secret."""
    end: int
    """The offset of its end, which moves while a long secret arrives."""


class ScrubResult(Struct, frozen=True):
    """A text without its secrets, and where they were."""

    text: str
    findings: tuple[SecretFinding, ...] = ()


def scrub(text: str, *, vault: Vault | None = None, source: str = "") -> ScrubResult:
    """Replace the secrets of a whole text with placeholders."""
    scrubber = Scrubber(vault=vault, source=source)
    scrubbed = scrubber.feed(text) + scrubber.finish()
    return ScrubResult(scrubbed, tuple(scrubber.findings))


class Scrubber:
    """Removes the secrets from one text.

    With a vault, each gets a placeholder that can be restored; `source` names the origin of the
    text. `findings` grows; a caller that reads an endless stream may clear it.
    """

    def __init__(self, *, vault: Vault | None = None, source: str = "") -> None:
        self.findings: list[SecretFinding] = []
        self._vault, self._source = vault, source
        self._text = ""
        self._done = 0
        """The text before this position was returned; its end is kept as context."""
        self._dropped = 0
        """The number of characters before the text."""
        self._line, self._line_start = 1, 0
        self._candidates: list[Candidate] = []
        self._pending: list[Span] = []
        """Secrets that are found and not yet replaced, in the order of the text."""
        self._read_more: ReadMore | None = None
        """Reads the rest of the last secret while that is open."""
        self._open_secret: Secret | None = None
        """Receives its text, to be added to the vault."""
        self._open_length = 0
        self._needed = 0
        """The next decision is possible with this much text, or at the end of a line."""
        self._output: list[str] = []

    @property
    def held_length(self) -> int:
        return len(self._text) - self._done

    def feed(self, text: str) -> str:
        """Add text, and return what can be returned of the result."""
        for at in range(0, len(text), _PIECE):
            piece = text[at : at + _PIECE]
            self._text += piece
            if len(self._text) >= self._needed or "\n" in piece:
                self._process(is_final=False)
        return self._take_output()

    def finish(self) -> str:
        """End the text, and return the rest of the result."""
        self._process(is_final=True)
        return self._take_output()

    def _take_output(self) -> str:
        output = "".join(self._output)
        self._output.clear()
        return output

    def _process(self, is_final: bool) -> None:
        self._needed = 0
        self._candidates = find_candidates(self._text, self._done)
        while self._read_open_secret(is_final) if self._read_more else self._examine(is_final):
            pass
        self._drop_old_text()

    # Finding secrets.

    def _examine(self, is_final: bool) -> bool:
        """Examine the candidates up to the next open secret; return False if there is none."""
        text = self._text
        quick_check_end = len(text) if is_final else len(text) - REACH
        while self._candidates:
            at, index = self._candidates[-1]
            if self._pending and self._pending[0].start <= at and self._replace_pending(at):
                return True
            rule = CUE_RULES[index]
            # The quick check, too, needs a complete window.
            quick_check = rule.may_match if at <= quick_check_end else None
            if at >= self._done and (quick_check is None or quick_check(text, at)):
                window = rule.window(text, at, is_final)
                if window is None:
                    # Return the text before this candidate, and wait for more.
                    self._emit_until(self._word_start(at))
                    self._needed = at + REACH
                    return False
                for span in rule.find(window):
                    self._add_pending(span)
            self._candidates.pop()
        if self._replace_pending(len(text)):
            return True
        self._emit_until(len(text) if is_final else self._word_start(len(text)))
        return False

    def _add_pending(self, span: Span) -> None:
        """Add a secret; of two that begin at the same position, the first is kept.

        curl -H 'Authorization: Bearer abc…' -u bob:hunter2     the cue `curl` finds `hunter2` first
        """
        index = bisect_left(self._pending, span.start, key=_START)
        if index == len(self._pending) or self._pending[index].start != span.start:
            self._pending.insert(index, span)

    def _word_start(self, end: int) -> int:
        """Return where the word begins that ends here: it may be the start of a cue."""
        word = self._text[max(0, end - _TAIL) : end]
        return end - len(word.split()[-1]) if word and not word[-1].isspace() else end

    # Replacing them.

    def _emit_until(self, end: int) -> None:
        if end > self._done:
            self._output.append(self._text[self._done : end])
            self._advance(end)

    def _skip_until(self, end: int) -> None:
        """Leave out the text of the last secret."""
        self._advance(end)
        if self.findings:
            self.findings[-1].end = self._dropped + end

    def _advance(self, end: int) -> None:
        newlines = self._text.count("\n", self._done, end)
        if newlines:
            self._line += newlines
            self._line_start = self._dropped + self._text.rfind("\n", self._done, end) + 1
        self._done = end

    def _replace_pending(self, limit: int) -> bool:
        """Replace the secrets that begin up to `limit`; return True if one is open."""
        while self._pending and self._pending[0].start <= limit:
            span = self._pending.pop(0)
            if span.start >= self._done:
                self._replace(span)
            elif span.end > self._done:
                # The secret overlaps the previous one, and shares its placeholder.
                self._read_more, self._open_secret = span.read_more, None
                self._skip_until(span.end)
            if self._read_more:
                return True
        return False

    def _replace(self, span: Span) -> None:
        self._emit_until(span.start)
        offset = self._dropped + span.start
        column = offset - self._line_start + 1
        finding = SecretFinding(span.kind, span.name, self._line, column, offset, offset)
        self.findings.append(finding)
        value = self._text[span.start : span.start + 64 if span.read_more else span.end]
        is_long = span.read_more or count_characters(value) >= MIN_LENGTH
        shown = take_characters(value, SHOWN_CHARACTERS) if is_long else ""
        self._output.append(shown + self._store_secret(span, value, shown))
        self._read_more = span.read_more
        if not span.read_more:
            self._skip_until(span.end)

    def _store_secret(self, span: Span, value: str, shown: str) -> str:
        """Return the placeholder of a secret; with a vault, one that can be restored."""
        self._open_secret, self._open_length = None, 0
        if self._vault is None:
            return "*[REDACTED]"
        if span.read_more:
            self._open_secret = Secret(span.kind, span.name, self._source, shown)
            return self._open_secret.placeholder
        value = _unescape_value(value, span.escape_levels)
        return self._vault.store(value, span.kind, span.name, self._source, shown).placeholder

    def _read_open_secret(self, is_final: bool) -> bool:
        """Read more of an open secret; return False if more of it must arrive first."""
        assert self._read_more
        before = self._done
        more = self._read_more(self._text, self._done, is_final)
        self._output.append(more.kept_text)
        self._skip_until(more.end)
        self._open_length += len(more.secret)
        if self._open_secret and self._open_length < _MAX_SECRET:
            self._open_secret.extend(more.secret)
        if more.is_over:
            self._read_more = None
            if self._vault is not None and self._open_secret and self._open_length < _MAX_SECRET:
                self._vault.add(self._open_secret)
        return more.is_over or more.end > before

    def _drop_old_text(self) -> None:
        """Drop the text that is no longer needed as context."""
        dropped = self._done - LOOKBEHIND
        if dropped > LOOKBEHIND:
            self._dropped += dropped
            self._text = self._text[dropped:]
            self._done = LOOKBEHIND
            self._needed = max(0, self._needed - dropped)
            self._pending = [
                structs.replace(span, start=span.start - dropped, end=span.end - dropped)
                for span in self._pending
            ]


def _unescape_value(value: str, levels: int) -> str:
    for _ in range(levels):
        try:
            value = json.loads(f'"{value}"')
        except ValueError:
            break
    return value
