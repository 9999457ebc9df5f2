"""Takes secrets out of a text that arrives in pieces.

    scrubber = Scrubber()
    scrubber.feed('{"api_key": "sk-12345')      -> '{"api'          the rest may be a secret
    scrubber.feed('67890"}\\n')                  -> '_key": "sk-1*[REDACTED]"}\\n'
    scrubber.finish()                           -> ""

What comes out does not depend on the pieces. Nothing is held back but what may belong to a secret,
and never more than `HELD_AT_MOST` characters.
"""

from __future__ import annotations

from msgspec import Struct

from .blocks import BlockContinuation
from .cues import LONG_WORD, LONGEST_CUE, RULES, Candidate, find_candidates
from .due import PendingSecret, PendingSecrets
from .marks import COVER, OpenSecret, PlaceholderWriter, SecretFinding
from .quoting import AHEAD
from .shapes import BACK
from .vault import Vault
from .window import BEFORE, REACH, Span, ValueContinuation, Window

_SLAB = 1 << 16
"""Long texts are worked on in pieces that fit in a cache."""
_TAIL = max(LONGEST_CUE, LONG_WORD) + BACK
"""So much of the last word may be the beginning of a cue, or stand before one and belong to it."""
MAX_HELD = REACH + 2 * _TAIL


class ScrubResult(Struct, frozen=True):
    """A text without its secrets, and what they were."""

    text: str
    findings: tuple[SecretFinding, ...] = ()


def mask(text: str) -> ScrubResult:
    """Put a star on each character of the secrets, so that all places stay where they are."""
    scrubber = Scrubber(in_place=True)
    given = scrubber.feed(text) + scrubber.finish()
    return ScrubResult(given, tuple(scrubber.findings))


def scrub(text: str, *, vault: Vault | None = None, source: str = "") -> ScrubResult:
    """Take the secrets out of a whole text."""
    scrubber = Scrubber(vault=vault, source=source)
    given = scrubber.feed(text) + scrubber.finish()
    return ScrubResult(given, tuple(scrubber.findings))


class Scrubber:
    """Takes secrets out of one text. With a vault, each gets a mark by which it can be put back;
    `source` says where the text comes from.

    `found` grows; whoever reads an endless stream may empty it.
    """

    def __init__(
        self, *, vault: Vault | None = None, source: str = "", in_place: bool = False
    ) -> None:
        self._marks = PlaceholderWriter(vault, source, in_place=in_place)
        self._in_place = in_place
        """Whether what comes out is as long as what goes in."""
        self._text = ""
        self._done = 0
        """What stands before this place in the text was given back, and is kept as context."""
        self._hits: list[Candidate] = []
        self._due = PendingSecrets()
        self._open: tuple[BlockContinuation | ValueContinuation, OpenSecret] | None = None
        self._enough = 0
        """With so many characters the next decision can be made, even if no line ends."""
        self._out: list[str] = []

    @property
    def findings(self) -> list[SecretFinding]:
        """What was found so far."""
        return self._marks.found

    @property
    def held_length(self) -> int:
        """How many characters are held back."""
        return len(self._text) - self._done

    def feed(self, text: str) -> str:
        """More of the text; returns what can be given on."""
        for at in range(0, len(text), _SLAB):
            piece = text[at : at + _SLAB]
            self._text += piece
            if len(self._text) >= self._enough or "\n" in piece:
                self._advance(final=False)
        return self._given()

    def finish(self) -> str:
        """The text is over; returns the rest of it."""
        self._advance(final=True)
        return self._given()

    def _given(self) -> str:
        given = "".join(self._out)
        self._out.clear()
        return given

    def _advance(self, final: bool) -> None:
        self._enough = 0
        self._hits = find_candidates(self._text, self._done)
        while self._go_on(final) if self._open else self._look(final):
            pass
        self._forget()

    def _look(self, final: bool) -> bool:
        """Up to the next secret of any length; False if there is nothing more to do. What stands
        between a cue and its secret is looked at before that is replaced."""
        text = self._text
        seen = len(text) if final else len(text) - REACH
        while self._hits:
            at, number = self._hits[-1]
            if self._due.next <= at and self._replaced(at):
                return True
            rule = RULES[number]
            if at >= self._done and (not rule.may or at > seen or rule.may(text, at)):
                window = rule.window(text, at, final)
                if window is None:
                    self._wait_from(at)
                    return False
                for span in rule.find(window):
                    self._due.add(PendingSecret(span, _rest(span, window)))
            self._hits.pop()
        if self._replaced(len(text)):
            return True
        self._give(len(text) if final else self._word_before(len(text)))
        return False

    def _wait_from(self, at: int) -> None:
        """More has to come before it can be said what stands here."""
        self._give(self._word_before(at))
        self._enough = at + REACH

    def _replaced(self, limit: int) -> bool:
        """Put marks in the place of the secrets that begin up to here; True if one is not over."""
        while self._due.next <= limit:
            self._replace(self._due.pop())
            if self._open:
                return True
        return False

    def _word_before(self, end: int) -> int:
        """Where the word begins that ends here: a cue may begin in it, or what belongs to one."""
        word = self._text[max(0, end - _TAIL) : end]
        return end - len(word.split()[-1]) if word and not word[-1].isspace() else end

    def _give(self, end: int) -> None:
        """Everything up to this place is no secret."""
        if end > self._done:
            self._out.append(self._text[self._done : end])
            self._done = end

    def _replace(self, secret: PendingSecret) -> None:
        span, rest = secret.span, secret.rest
        if span.start < self._done:
            self._swallow(span, rest)
            return
        self._give(span.start)
        if rest:
            opened, mark = self._marks.opened(span, self._text)
            self._open = rest, opened
        else:
            mark = self._marks.of(span, self._text)
            self._done = span.end
        self._out.append(mark)

    def _swallow(self, span: Span, rest: BlockContinuation | ValueContinuation | None) -> None:
        """What remains of a secret if the one before reaches into it: one mark stands for both."""
        if span.end > self._done:
            self._cover(span.end)
            self._done = span.end
            self._open = (rest, OpenSecret(None, None)) if rest else None

    def _go_on(self, final: bool) -> bool:
        """Read more of a long secret; False if more of it has to come."""
        assert self._open
        rest, opened = self._open
        step = rest.further(self._text, self._done, final)
        moved = step.end > self._done
        if self._in_place:
            self._cover(step.end)
        else:
            self._out.append(step.given)
        self._done = step.end
        opened.add(step.secret)
        if step.is_over:
            opened.close()
            self._open = None
        return moved or step.is_over

    def _cover(self, end: int) -> None:
        if self._in_place:
            self._out.append(COVER * (end - self._done))

    def _forget(self) -> None:
        """Drop what is not needed as context any more."""
        dropped = self._done - BEFORE
        if dropped > BEFORE:
            self._marks.passed(self._text, dropped)
            self._text = self._text[dropped:]
            self._done = BEFORE
            self._due.moved(dropped)
            if self._enough:
                self._enough -= dropped


def _rest(span: Span, window: Window) -> BlockContinuation | ValueContinuation | None:
    """What reads on, if a secret is not over where its window ends."""
    if span.is_block:
        return BlockContinuation()
    if span.body and window.is_cut and span.end > window.end - AHEAD:
        return ValueContinuation(span.body)
    return None
