"""Measure how well a model calls tools in each mode."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
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
from .io import write_json
from .serve import ConfigSource

if TYPE_CHECKING:
    from ..evaluation.runner import EvalClient

INTERRUPTED = 130
"""What a shell expects of a program that Ctrl-C has ended."""
_MODES: tuple[ToolsMode, ...] = get_args(ToolsMode)
_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", default="", metavar="MODEL", help="the default model if left out"
    )
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="questions, one JSON object a line; else our own"
    )
    parser.add_argument(
        "--modes", metavar="MODE,…", help=f"{','.join(_MODES)}; all of them if left out"
    )
    _add_choice(parser)
    _add_gateway(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where answers are kept, and a run goes on"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the answers in that file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the figures")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    """Which questions are asked, and how."""
    parser.add_argument("--limit", type=_count, metavar="N", help="at most N questions")
    parser.add_argument(
        "--every", type=_count, default=1, metavar="N", help="only each Nth question"
    )
    parser.add_argument(
        "--start", type=_count, default=1, metavar="K", help="from question K on; the first is 1"
    )
    parser.add_argument(
        "--concurrency", type=_count, default=1, metavar="N", help="questions at the same time"
    )
    parser.add_argument(
        "--max-tokens",
        type=_count,
        default=1024,
        metavar="N",
        help="the most that a model may say, its thoughts among it; 1024 if left out",
    )
    parser.add_argument(
        "--timeout", type=_count, default=600, metavar="SECONDS", help="for one question"
    )


def _add_gateway(parser: argparse.ArgumentParser) -> None:
    """Who is asked."""
    parser.add_argument(
        "--url", help="a gateway that runs already, which chooses the mode; its key: TOOLSPEAK_KEYS"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file; toolspeak.toml if there is one"
    )
    parser.add_argument(
        "--gguf", type=Path, metavar="FILE", help="a model file to run in place of the bundled one"
    )
    parser.add_argument(
        "--embedded",
        action=argparse.BooleanOptionalAction,
        help="run the embedded model, or do not",
    )
    parser.add_argument(
        "--retries", type=_number, metavar="N", help="how often the gateway may ask a model again"
    )


def _number(text: str, least: int = 0) -> int:
    """A whole number."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1)


def run(options: argparse.Namespace) -> int:
    try:
        from ..gateway.server import event_loop_factory
        from ..observe.logs import configure_logging
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"the gateway needs {missing.name}: pip install 'toolspeak[gateway,local]'"
        ) from None
    _check(options)
    configure_logging("text", logging.ERROR)
    evaluation = _Evaluation(options)
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            runner.run(evaluation.run())
    except KeyboardInterrupt:
        return evaluation.stopped()
    return evaluation.ended()


def _check(options: argparse.Namespace) -> None:
    """What would be a pity to find out at the end."""
    if options.plot:
        check_plot_path(options.plot)
    if options.url and options.modes:
        raise UsageError("a gateway that runs already chooses the mode: leave --modes or --url out")
    if options.url and not options.model:
        raise UsageError(f"say which MODEL {options.url} shall be asked for")
    if options.url and options.retries is not None:
        raise UsageError("a gateway that runs already has its own settings: leave --retries out")


def _modes(text: str | None) -> list[ToolsMode]:
    """The modes of a list with commas, each once."""
    names = [name.strip() for name in (text or ",".join(_MODES)).split(",")]
    for name in names:
        if name not in _MODES:
            raise UsageError(f"there is no mode {name!r}; there are {', '.join(_MODES)}")
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
        """Ask all that is not answered yet."""
        status = self._console.status("Looking for the model …")
        with status:
            async with self._gateway() as asked:
                status.stop()
                await self._ask(asked)

    def ended(self) -> int:
        """Tell what came of it; 1 if questions have failed."""
        answers = self._report(is_complete=True)
        failed = sum(bool(answer.error) for answer in answers)
        if failed:
            many = "1 question has" if failed == 1 else f"{failed} questions have"
            self._say(f"{many} failed: the same command asks again.")
        return int(bool(failed))

    def stopped(self) -> int:
        """Tell what there is so far, and how to go on."""
        if self._answers is None:
            self._say("Stopped before anything was asked.")
            return INTERRUPTED
        answers = self._report(is_complete=False)
        whole = len(self._modes) * len(self._questions)
        again = " (without --fresh)" if self._options.fresh else ""
        self._say(
            f"Stopped with {len(answers)} of {whole} answers, which are in {self._answers.path}: "
            f"the same command{again} goes on from there."
        )
        return INTERRUPTED

    def _gateway(self) -> AbstractAsyncContextManager[EvalClient]:
        from ..evaluation.runner import QuestionLimits, connect_gateway, start_gateway

        options = self._options
        wanted = QuestionLimits(options.timeout, options.max_tokens, options.retries)
        if options.url:
            key = os.environ.get("TOOLSPEAK_KEYS", "").partition(",")[0].strip()
            self._say(f"{options.url} chooses the mode itself: only that one is measured.")
            return connect_gateway(options.url, key, options.model, wanted)
        config = ConfigSource(options, self._console).read_config()
        return start_gateway(config, os.environ, options.model, _modes(options.modes), wanted)

    async def _ask(self, asked: EvalClient) -> None:
        from ..evaluation.runner import ask_questions

        self._model, self._modes = asked.model, asked.modes
        answers = self._answers = self._open()
        work = list(answers.find_unanswered(self._modes, self._questions))
        with EvalProgress(self._console, len(self._modes) * len(self._questions), len(work)) as bar:

            def keep(answer: GradedAnswer) -> None:
                answers.add(answer)
                bar.advance(answer)

            await ask_questions(asked, work, keep, concurrency=self._options.concurrency)

    def _open(self) -> AnswerFile:
        """The file of answers, once it is known whose they are."""
        name = _UNSAFE.sub("-", self._model).strip("-.")
        path: Path = self._options.out or Path(f"eval-{name}.jsonl")
        data: Path | None = self._options.data
        if data and path.exists() and path.samefile(data):
            raise UsageError(f"--out {path} has the questions; the answers need another file")
        return AnswerFile(path, self._model, fresh=self._options.fresh)

    # Telling.

    def _report(self, *, is_complete: bool) -> list[GradedAnswer]:
        """Print the figures, and draw them; returns the answers that they are of."""
        assert self._answers
        self._answers.close()
        by_mode = {mode: self._given(mode) for mode in self._modes}
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
            _print(every, answers, title)
            self._say(f"The answers are in {self._answers.path}.")
        if self._options.plot:
            save_plot(every, title, self._options.plot)
            self._say(f"The picture is {self._options.plot}.")
        return answers

    def _given(self, mode: str) -> list[GradedAnswer]:
        assert self._answers
        given = (self._answers.get(mode, question) for question in self._questions)
        return [answer for answer in given if answer]

    def _say(self, text: str) -> None:
        self._console.print(Text(escape_for_terminal(text)), soft_wrap=True)


def _print(every: Sequence[ModeFigures], answers: Sequence[GradedAnswer], title: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(build_mode_table(every, title))
    console.print(build_category_table(every))
    for remark in describe_caveats(every, answers):
        console.print(Text(escape_for_terminal(remark)), soft_wrap=True)


class EvalProgress:
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

    def __enter__(self) -> EvalProgress:
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def advance(self, answer: GradedAnswer) -> None:
        """One more answer has come."""
        self._asked += 1
        self._right += answer.correct
        self._failed += bool(answer.error)
        said = f"{self._right} of {self._asked} right"
        if self._failed:
            said += f", {self._failed} failed"
        self._progress.update(self._task, advance=1, description=answer.key, said=said)
