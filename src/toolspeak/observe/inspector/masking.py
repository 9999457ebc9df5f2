"""Secrets are covered wherever a request is shown: what looks like one, and what is known to be.

A star stands for each character, so that every place in a text stays where it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..._util import encode_json
from ...errors import WireError
from ...security.scrubbing import mask
from ...wires.framing import decode_json

Span = tuple[int, int]
_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})")
_SHORTEST = 6
"""Shorter ones would be found in many a word."""
_SHOWN = 4
_MOST = 500


class Covering:
    """Covers the secrets of one request. One that was seen is known in all other places, too."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = {secret for secret in known if len(secret) >= _SHORTEST}
        self._met: set[str] = set()
        self._looks: dict[str, list[Span]] = {}
        """What looks like a secret in the texts so far: some are shown more than once."""

    @property
    def met(self) -> int:
        """How many secrets were covered."""
        return len(self._met)

    def learn(self, text: str) -> None:
        """Remember the secrets in a text."""
        for start, end in self._look(text):
            secret = text[start:end]
            for form in {secret, _unescaped(secret)}:
                if len(form) >= _SHORTEST and len(self._known) < _MOST:
                    self._known.add(form)

    def spans(self, text: str) -> list[Span]:
        """Where the secrets of a text are."""
        spans = _joined([*self._look(text), *self._again(text)])
        self._met.update(text[start:end] for start, end in spans)
        return spans

    def text(self, text: str) -> str:
        """A text with its secrets covered."""
        return covered(text, self.spans(text))

    def bytes(self, text: str) -> str:
        """What is shown of JSON as it came. Where that writes a secret in other signs than it has,
        in escapes, there are only stars."""
        other = plain(text)
        hides = other != text and len(self.spans(other)) > len(self.spans(text))
        return "*" * len(text) if hides else self.text(text)

    def value(self, value: Any) -> Any:
        """The same for a value of JSON, where a key may tell that a text is secret."""
        self.learn(encode_json(value))
        return _each(value, self.text)

    def known(self, value: Any) -> Any:
        """A value without those that are known, wherever they stand."""

        def change(text: str) -> str:
            text = sendable(text)
            return covered(text, _joined(list(self._again(text))))

        return _each(value, change)

    def _look(self, text: str) -> list[Span]:
        if text not in self._looks:
            self._looks[text] = list(_found(text))
        return self._looks[text]

    def _again(self, text: str) -> Iterator[Span]:
        """Where those stand that are known."""
        for secret in self._known:
            at = text.find(secret)
            while at >= 0:
                yield at, at + len(secret)
                at = text.find(secret, at + len(secret))


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """A value with every text in it changed."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): _each(item, change) for key, item in value.items()}
        case list():
            return [_each(item, change) for item in value]
        case _:
            return value


def sendable(text: str) -> str:
    """Half a surrogate pair is no text that anything else could read."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def plain(text: str) -> str:
    """JSON without the escapes that it need not have."""
    return _ESCAPE.sub(_unescape, text) if "\\u" in text else text


def _unescape(found: re.Match[str]) -> str:
    sign = chr(int(found[2], 16))
    needs = sign in '"\\' or not sign.isprintable()
    return found[0] if needs else found[1] + sign


def covered(text: str, spans: Iterable[Span]) -> str:
    """A text with stars on these places, but for the first few characters of each."""
    parts: list[str] = []
    done = 0
    for start, end in spans:
        shown = start + _SHOWN if end - start >= 2 * _SHOWN else start
        # Half an escape would be worse than none.
        shown = start if "\\" in text[start:shown] else shown
        parts += text[done:shown], "*" * (end - shown)
        done = end
    return "".join(parts) + text[done:]


def _found(text: str) -> Iterator[Span]:
    """Where a text has what looks like a secret."""
    scrubbed = mask(text)
    for found in scrubbed.findings:
        # Its beginning is left as it was, and it may have stars of its own.
        at = scrubbed.text.find("*", found.offset)
        while at < len(text) and scrubbed.text[at] == "*":
            at += 1
        yield found.offset, at


def _unescaped(secret: str) -> str:
    if "\\" not in secret:
        return secret
    try:
        return str(decode_json(f'"{secret}"'.encode("utf-8", "replace")))
    except WireError:
        return secret


def _joined(spans: list[Span]) -> list[Span]:
    """The same places in order, and none that reaches into another."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif start < end:
            joined.append((start, end))
    return joined
