"""How far a run has come, on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..evaluation.answers import Answer


class Bar:
    """A bar that knows how many answers were right, and how many questions have failed."""

    def __init__(self, console: Console, whole: int, left: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=console,
        )
        self._right = self._failed = self._asked = 0
        self._task = self._progress.add_task("asking", total=whole, completed=whole - left, said="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def advance(self, answer: Answer) -> None:
        """One more answer has come."""
        self._asked += 1
        self._right += answer.right
        self._failed += bool(answer.error)
        said = f"{self._right} of {self._asked} right"
        if self._failed:
            said += f", {self._failed} failed"
        self._progress.update(self._task, advance=1, description=answer.key, said=said)
