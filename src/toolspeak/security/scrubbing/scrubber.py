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
   secret far behind it. Then a placeholder replaces each, in the order of the text.
4. A secret that is longer than its window is open: its characters are dropped as they arrive.

The result does not depend on the chunks. Only text that may belong to a secret is held back, and
never more than `MAX_HELD` characters.
"""

from __future__ import annotations

import sys
from bisect import bisect_left

from msgspec import Struct

from .patterns import (
    MAX_CUE,
    MIN_LONG_WORD,
    RULES,
    SHAPE_LOOKBEHIND,
    BlockContinuation,
    Candidate,
    find_candidates,
)
from .placeholders import MASK, OpenSecret, PlaceholderWriter, SecretFinding, Vault
from .windows import LOOKAHEAD, LOOKBEHIND, REACH, Span, ValueContinuation, Window

_PIECE = 1 << 16
"""Long texts are processed in pieces that fit in a CPU cache."""
_TAIL = max(MAX_CUE, MIN_LONG_WORD) + SHAPE_LOOKBEHIND
"""This much of the last word may be the start of a cue, or precede one and belong to it."""
MAX_HELD = REACH + 2 * _TAIL

Continuation = BlockContinuation | ValueContinuation


class ScrubResult(Struct, frozen=True):
    """A text without its secrets, and where they were."""

    text: str
    findings: tuple[SecretFinding, ...] = ()


def scrub(text: str, *, vault: Vault | None = None, source: str = "") -> ScrubResult:
    """Replace the secrets of a whole text with placeholders."""
    scrubber = Scrubber(vault=vault, source=source)
    scrubbed = scrubber.feed(text) + scrubber.finish()
    return ScrubResult(scrubbed, tuple(scrubber.findings))


def mask(text: str) -> ScrubResult:
    """Replace each character of the secrets with a star, so that all positions stay the same."""
    scrubber = Scrubber(in_place=True)
    masked = scrubber.feed(text) + scrubber.finish()
    return ScrubResult(masked, tuple(scrubber.findings))


class Scrubber:
    """Removes the secrets from one text.

    With a vault, each gets a placeholder that can be restored; `source` names the origin of the
    text. `findings` grows; a caller that reads an endless stream may clear it.
    """

    def __init__(
        self, *, vault: Vault | None = None, source: str = "", in_place: bool = False
    ) -> None:
        self._placeholders = PlaceholderWriter(vault, source, in_place=in_place)
        self._in_place = in_place
        """The result is as long as the text."""
        self._text = ""
        self._done = 0
        """The text before this position was returned; its end is kept as context."""
        self._candidates: list[Candidate] = []
        self._pending = _PendingSecrets()
        self._open: tuple[Continuation, OpenSecret] | None = None
        self._needed = 0
        """The next decision is possible with this much text, or at the end of a line."""
        self._output: list[str] = []

    @property
    def findings(self) -> list[SecretFinding]:
        return self._placeholders.findings

    @property
    def held_length(self) -> int:
        """The number of characters that are held back."""
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
        while self._read_open_secret(is_final) if self._open else self._examine(is_final):
            pass
        self._drop_old_text()

    def _examine(self, is_final: bool) -> bool:
        """Examine the candidates up to the next open secret; return False if there is none."""
        text = self._text
        quick_check_end = len(text) if is_final else len(text) - REACH
        while self._candidates:
            at, index = self._candidates[-1]
            if self._pending.next_start <= at and self._replace_pending(at):
                return True
            rule = RULES[index]
            # The quick check, too, needs a complete window.
            quick_check = rule.may_match if at <= quick_check_end else None
            if at >= self._done and (quick_check is None or quick_check(text, at)):
                window = rule.window(text, at, is_final)
                if window is None:
                    self._wait_at(at)
                    return False
                for span in rule.find(window):
                    self._pending.add(_PendingSecret(span, _continuation(span, window)))
            self._candidates.pop()
        if self._replace_pending(len(text)):
            return True
        self._emit_until(len(text) if is_final else self._word_start(len(text)))
        return False

    def _wait_at(self, at: int) -> None:
        """Return the text before a candidate whose window is not complete."""
        self._emit_until(self._word_start(at))
        self._needed = at + REACH

    def _word_start(self, end: int) -> int:
        """Return where the word begins that ends here: it may be the start of a cue."""
        word = self._text[max(0, end - _TAIL) : end]
        return end - len(word.split()[-1]) if word and not word[-1].isspace() else end

    def _emit_until(self, end: int) -> None:
        if end > self._done:
            self._output.append(self._text[self._done : end])
            self._done = end

    def _replace_pending(self, limit: int) -> bool:
        """Replace the secrets that begin up to `limit`; return True if one is open."""
        while self._pending.next_start <= limit:
            self._replace(self._pending.pop())
            if self._open:
                return True
        return False

    def _replace(self, secret: _PendingSecret) -> None:
        span, continuation = secret.span, secret.continuation
        if span.start < self._done:
            self._extend_previous(span, continuation)
            return
        self._emit_until(span.start)
        if continuation:
            opened, placeholder = self._placeholders.open(span, self._text)
            self._open = continuation, opened
        else:
            placeholder = self._placeholders.replace(span, self._text)
            self._done = span.end
        self._output.append(placeholder)

    def _extend_previous(self, span: Span, continuation: Continuation | None) -> None:
        """Drop the rest of a secret that overlaps the previous one and shares its placeholder."""
        if span.end > self._done:
            self._mask_until(span.end)
            self._done = span.end
            self._open = (continuation, OpenSecret(None, None)) if continuation else None

    def _read_open_secret(self, is_final: bool) -> bool:
        """Read more of an open secret; return False if more of it must arrive first."""
        assert self._open
        continuation, opened = self._open
        step = continuation.read_on(self._text, self._done, is_final)
        has_moved = step.end > self._done
        if self._in_place:
            self._mask_until(step.end)
        else:
            self._output.append(step.kept_text)
        self._done = step.end
        opened.add(step.secret)
        if step.is_over:
            opened.close()
            self._open = None
        return has_moved or step.is_over

    def _mask_until(self, end: int) -> None:
        if self._in_place:
            self._output.append(MASK * (end - self._done))

    def _drop_old_text(self) -> None:
        """Drop the text that is no longer needed as context."""
        dropped = self._done - LOOKBEHIND
        if dropped > LOOKBEHIND:
            self._placeholders.drop(self._text, dropped)
            self._text = self._text[dropped:]
            self._done = LOOKBEHIND
            self._pending.shift(dropped)
            if self._needed:
                self._needed -= dropped


def _continuation(span: Span, window: Window) -> Continuation | None:
    """Return what reads on, if a secret may be longer than its window."""
    if span.is_block:
        return BlockContinuation()
    if span.body and window.is_cut and span.end > window.end - LOOKAHEAD:
        return ValueContinuation(span.body)
    return None


class _PendingSecret(Struct, frozen=True):
    span: Span
    continuation: Continuation | None


class _PendingSecrets:
    """Secrets that are found and not yet replaced, in the order of the text.

    curl -H 'Authorization: Bearer abc…' -u bob:hunter2     the cue `curl` finds `hunter2` first
    """

    def __init__(self) -> None:
        self._secrets: list[_PendingSecret] = []
        """The next one is last."""
        self.next_start = sys.maxsize

    def add(self, secret: _PendingSecret) -> None:
        """Add a secret; of two that begin at the same position, the first is kept."""
        index = bisect_left(self._secrets, -secret.span.start, key=_negative_start)
        is_last = index == len(self._secrets)
        if is_last or self._secrets[index].span.start != secret.span.start:
            self._secrets.insert(index, secret)
            self._update_next()

    def pop(self) -> _PendingSecret:
        secret = self._secrets.pop()
        self._update_next()
        return secret

    def shift(self, dropped: int) -> None:
        self._secrets = [
            _PendingSecret(one.span.shift(dropped), one.continuation) for one in self._secrets
        ]
        self._update_next()

    def _update_next(self) -> None:
        self.next_start = self._secrets[-1].span.start if self._secrets else sys.maxsize


def _negative_start(secret: _PendingSecret) -> int:
    return -secret.span.start
