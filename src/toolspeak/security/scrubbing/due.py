"""Secrets that have been found, and have to wait: others may stand between them and their cues.

curl -H 'Authorization: Bearer abc…' -u bob:hunter2     `curl` finds the last one first
"""

from __future__ import annotations

import sys
from bisect import bisect_left

from msgspec import Struct

from .blocks import BlockContinuation
from .window import Span, ValueContinuation

_NONE = sys.maxsize


class PendingSecret(Struct, frozen=True):
    """A secret that has been found, and what reads on if it is not over where its window ends."""

    span: Span
    rest: BlockContinuation | ValueContinuation | None


class PendingSecrets:
    """What has been found and is still to be replaced, in the order in which it stands."""

    def __init__(self) -> None:
        self._secrets: list[PendingSecret] = []
        """The next one is the last."""
        self.next = _NONE
        """Where the next one begins."""

    def add(self, secret: PendingSecret) -> None:
        """One more. Where two begin at the same place, the first that was found counts."""
        place = bisect_left(self._secrets, -secret.span.start, key=_backwards)
        is_last = place == len(self._secrets)
        if is_last or self._secrets[place].span.start != secret.span.start:
            self._secrets.insert(place, secret)
            self._look_at_next()

    def pop(self) -> PendingSecret:
        """The next one; it is not due any more."""
        secret = self._secrets.pop()
        self._look_at_next()
        return secret

    def moved(self, by: int) -> None:
        """So much of the text before them is gone."""
        self._secrets = [PendingSecret(one.span.moved(by), one.rest) for one in self._secrets]
        self._look_at_next()

    def _look_at_next(self) -> None:
        self.next = self._secrets[-1].span.start if self._secrets else _NONE


def _backwards(secret: PendingSecret) -> int:
    return -secret.span.start
