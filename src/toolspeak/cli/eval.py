"""Measure how well a model calls tools in each mode."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from .._util import escape_for_terminal
from ..errors import UsageError
from ..evaluation.answers import AnswerFile, GradedAnswer
from ..evaluation.questions import OWN_SET, read_questions, select_questions
from ..evaluation.report import (
    ModeFigures,
    build_category_table,
    build_mode_table,
    check_plot_path,
    describe_caveats,
    describe_modes,
    save_plot,
    summarize_mode,
)
from ..types import ToolsMode
from .io import INTERRUPTED, explain_missing_packages, open_console, write_json
from .serve import ConfigSource

if TYPE_CHECKING:
    from ..evaluation.runner import EvalClient

_MODES: tuple[ToolsMode, ...] = get_args(ToolsMode)
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9.]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default="",
        metavar="MODEL",
        help="the model's name (default: the default model)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="questions as JSON lines (default: the built-in set)",
    )
    parser.add_argument("--modes", metavar="MODE,…", help=f"{','.join(_MODES)} (default: all)")
    _add_choice(parser)
    _add_gateway(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the file of answers; a new run continues it",
    )
    parser.add_argument("--fresh", action="store_true", help="discard the answers in that file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the results as a chart")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_count, metavar="N", help="ask at most N questions")
    parser.add_argument(
        "--every", type=_count, default=1, metavar="N", help="ask only every Nth question"
    )
    parser.add_argument(
        "--start", type=_count, default=1, metavar="K", help="start with question K (default: 1)"
    )
    parser.add_argument(
        "--concurrency",
        type=_count,
        default=1,
        metavar="N",
        help="ask N questions at a time (default: 1)",
    )
    parser.add_argument(
        "--max-tokens",
        type=_count,
        default=1024,
        metavar="N",
        help="the longest answer (default: 1024)",
    )
    parser.add_argument(
        "--timeout",
        type=_count,
        default=600,
        metavar="SECONDS",
        help="the limit for one question (default: 600)",
    )


def _add_gateway(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", help="a running gateway, which chooses the mode; TOOLSPEAK_KEYS holds its key"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML file (default: toolspeak.toml)",
    )
    parser.add_argument(
        "--gguf", type=Path, metavar="FILE", help="a model file to run instead of the bundled one"
    )
    parser.add_argument(
        "--embedded",
        action=argparse.BooleanOptionalAction,
        help="start the embedded model, or do not",
    )
    parser.add_argument(
        "--retries",
        type=_number,
        metavar="N",
        help="the gateway's retries (default: as configured)",
    )


def _number(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1)


def run(options: argparse.Namespace) -> int:
    with explain_missing_packages("the gateway", "gateway,local"):
        from ..gateway.server import event_loop_factory
        from ..observe.logs import configure_logging
    _check(options)
    configure_logging("text", logging.ERROR)
    evaluation = _Evaluation(options)
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            runner.run(evaluation.run())
    except KeyboardInterrupt:
        return evaluation.report_interruption()
    return evaluation.finish()


def _check(options: argparse.Namespace) -> None:
    """Reject bad combinations of options before any question is asked."""
    if options.plot:
        check_plot_path(options.plot)
    if options.url and options.modes:
        raise UsageError("a running gateway chooses the mode itself: omit --modes or --url")
    if options.url and not options.model:
        raise UsageError(f"--url needs a MODEL: name one of {options.url}")
    if options.url and options.retries is not None:
        raise UsageError("a running gateway has its own settings: omit --retries or --url")


def _modes(text: str | None) -> list[ToolsMode]:
    """Parse a comma-separated list of modes."""
    names = [name.strip() for name in (text or ",".join(_MODES)).split(",")]
    for name in names:
        if name not in _MODES:
            raise UsageError(f"unknown mode {name!r}: choose from {', '.join(_MODES)}")
    return [mode for mode in _MODES if mode in names]


class _Evaluation:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._questions = select_questions(
            read_questions(options.data),
            start=options.start,
            every=options.every,
            limit=options.limit,
        )
        self._console = Console(stderr=True, highlight=False)
        self._modes: Sequence[str] = _modes(options.modes)
        self._model = ""
        self._answers: AnswerFile | None = None

    async def run(self) -> None:
        """Ask every question that has no answer yet."""
        status = self._console.status("Looking for the model …")
        with status:
            async with self._gateway() as client:
                status.stop()
                await self._ask(client)

    def finish(self) -> int:
        """Print the report; return 1 if questions failed."""
        answers = self._report(is_complete=True)
        failed = sum(bool(answer.error) for answer in answers)
        if failed:
            count = "1 question" if failed == 1 else f"{failed} questions"
            self._print(f"{count} failed: run the same command to ask again.")
        return int(bool(failed))

    def report_interruption(self) -> int:
        """Print the results so far, and how to continue."""
        if self._answers is None:
            self._print("Interrupted before the first question.")
            return INTERRUPTED
        answers = self._report(is_complete=False)
        total = len(self._modes) * len(self._questions)
        again = " (without --fresh)" if self._options.fresh else ""
        self._print(
            f"Interrupted after {len(answers)} of {total} answers. They are in "
            f"{self._answers.path}: run the same command{again} to continue."
        )
        return INTERRUPTED

    def _gateway(self) -> AbstractAsyncContextManager[EvalClient]:
        from ..evaluation.runner import QuestionLimits, connect_gateway, start_gateway

        options = self._options
        wanted = QuestionLimits(options.timeout, options.max_tokens, options.retries)
        if options.url:
            key = os.environ.get("TOOLSPEAK_KEYS", "").partition(",")[0].strip()
            self._print(f"{options.url} chooses the mode itself, so only that mode is measured.")
            return connect_gateway(options.url, key, options.model, wanted)
        config = ConfigSource(options, self._console).read_config()
        return start_gateway(config, os.environ, options.model, _modes(options.modes), wanted)

    async def _ask(self, client: EvalClient) -> None:
        from ..evaluation.runner import ask_questions

        self._model, self._modes = client.model, client.modes
        answers = self._answers = self._open_answers()
        work = list(answers.find_unanswered(self._modes, self._questions))
        with EvalProgress(self._console, len(self._modes) * len(self._questions), len(work)) as bar:

            def keep(answer: GradedAnswer) -> None:
                answers.add(answer)
                bar.advance(answer)

            await ask_questions(client, work, keep, concurrency=self._options.concurrency)

    def _open_answers(self) -> AnswerFile:
        """Open the file of answers; its default name contains the model's."""
        name = _UNSAFE_CHARACTERS.sub("-", self._model).strip("-.")
        path: Path = self._options.out or Path(f"eval-{name}.jsonl")
        data: Path | None = self._options.data
        if data and path.exists() and path.samefile(data):
            raise UsageError(
                f"--out {path} is the file of questions: choose another for the answers"
            )
        return AnswerFile(path, self._model, fresh=self._options.fresh)

    def _report(self, *, is_complete: bool) -> list[GradedAnswer]:
        """Print the results, draw the chart, and return the answers."""
        assert self._answers
        self._answers.close()
        by_mode = {mode: self._list_answers(mode) for mode in self._modes}
        answers = [answer for given in by_mode.values() for answer in given]
        every = [summarize_mode(mode, given) for mode, given in by_mode.items()]
        data: Path | None = self._options.data
        title = (
            f"{self._model}: {len(self._questions)} questions of {data.name if data else OWN_SET}"
        )
        if self._options.json:
            write_json(
                {
                    "model": self._model,
                    "data": str(data or OWN_SET),
                    "questions": len(self._questions),
                    "complete": is_complete,
                    "answers": str(self._answers.path),
                    "modes": describe_modes(every),
                    "remarks": list(describe_caveats(every, answers)),
                }
            )
        else:
            _print_report(every, answers, title)
            self._print(f"The answers are in {self._answers.path}.")
        if self._options.plot:
            save_plot(every, title, self._options.plot)
            self._print(f"The chart is in {self._options.plot}.")
        return answers

    def _list_answers(self, mode: str) -> list[GradedAnswer]:
        assert self._answers
        given = (self._answers.get(mode, question) for question in self._questions)
        return [answer for answer in given if answer]

    def _print(self, text: str) -> None:
        self._console.print(Text(escape_for_terminal(text)), soft_wrap=True)


def _print_report(
    every: Sequence[ModeFigures], answers: Sequence[GradedAnswer], title: str
) -> None:
    console = open_console()
    console.print(build_mode_table(every, title))
    console.print(build_category_table(every))
    for remark in describe_caveats(every, answers):
        console.print(Text(escape_for_terminal(remark)), soft_wrap=True)


class EvalProgress:
    """A progress bar with the number of correct answers and failed questions."""

    def __init__(self, console: Console, whole: int, left: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[summary]}", markup=False),
            console=console,
        )
        self._right = self._failed = self._asked = 0
        self._task = self._progress.add_task(
            "asking", total=whole, completed=whole - left, summary=""
        )

    def __enter__(self) -> EvalProgress:
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def advance(self, answer: GradedAnswer) -> None:
        self._asked += 1
        self._right += answer.correct
        self._failed += bool(answer.error)
        summary = f"{self._right} of {self._asked} correct"
        if self._failed:
            summary += f", {self._failed} failed"
        self._progress.update(self._task, advance=1, description=answer.key, summary=summary)
