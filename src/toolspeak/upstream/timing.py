"""How long it takes to ask a model: the time that is spent on waiting, and on holding back."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from .record import RequestRecord

if TYPE_CHECKING:
    from ..engine import ReplyReader


class HeldBack:
    """For how long what a model says is held back, until it is known what it is.

    What leaves is not looked at: where a piece leaves only in part, the rest of it counts from the
    next piece on.
    """

    def __init__(self, answer: ReplyReader, record: RequestRecord) -> None:
        self._answer = answer
        self._record = record
        self.since = 0.0
        record.add_holdback(0.0)

    def look(self, *, is_free: bool) -> None:
        """Look at a piece that has come; whether something leaves because of it."""
        if not self.since:
            self.since = 0.0 if is_free or not self._answer.has_content else perf_counter()
        elif is_free:
            self._record.add_holdback(perf_counter() - self.since)
            self.since = 0.0


class Stopwatch:
    """Adds up the time that is spent inside of it."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._began = 0.0

    @property
    def seconds(self) -> float:
        """The time so far: somebody may look in the midst of a wait."""
        return self._passed + (perf_counter() - self._began if self._began else 0.0)

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *problem: object) -> None:
        self._passed += perf_counter() - self._began
        self._began = 0.0
