"""Measure how well a model calls tools in each mode."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..config.settings import Config
from ..errors import UsageError
from ..evaluation.questions import BUILT_IN_SET, EvalQuestion, read_questions
from ..types import ToolsMode
from .arguments import INTERRUPTED, CommandParser
from .terminal import (
    ConfigSource,
    build_table,
    open_console,
    open_status_console,
    print_text,
    write_json,
)

if TYPE_CHECKING:
    from ..evaluation.report import ModeFigures
    from ..evaluation.runner import AnswerFile, EvalRunner, GradedAnswer

_MODES: tuple[ToolsMode, ...] = get_args(ToolsMode)
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9.]+")


def add_arguments(parser: CommandParser) -> None:
    parser.add_model()
    parser.add_file("--data", "ask the questions in this file (default: the built-in questions)")
    modes = ",".join(_MODES)
    parser.add("--modes", f"measure these modes (default: {modes})", metavar="MODE,…")
    parser.add_count("--limit", "ask at most N questions (default: all)")
    parser.add_count("--every", "ask only every Nth question", 1)
    parser.add_count("--concurrency", "ask N questions at a time", 1)
    parser.add_count("--max-tokens", "limit each answer to N tokens", 1024)
    parser.add_count("--timeout", "limit the time for each question", 600, "SECONDS")
    parser.add_count(
        "--retries", "retry an unusable reply up to N times (default: as configured)", least=0
    )
    parser.add_config()
    parser.add_file(
        "--out",
        "add answers to this file; skip questions that have one (default: eval-MODEL.jsonl)",
    )
    parser.add_flag("--fresh", "discard the answers in the file, and start over")
    parser.add_file("--plot", "draw the results as a chart", "FILE.png")
    parser.add_flag("--json", "print JSON")


def run(options: argparse.Namespace) -> int:
    from ..evaluation.report import check_plot_path

    if options.plot:
        check_plot_path(options.plot)
    questions = read_questions(options.data)[:: options.every][: options.limit]
    evaluation = _Evaluation(options, questions, _parse_modes(options.modes), open_status_console())
    config = ConfigSource(options, evaluation.console).read_config()
    try:
        asyncio.run(evaluation.ask_questions(config))
    except KeyboardInterrupt:
        return evaluation.finish(is_complete=False)
    return evaluation.finish(is_complete=True)


def _parse_modes(text: str | None) -> list[ToolsMode]:
    """Parse a comma-separated list of modes."""
    names = [name.strip() for name in (text or ",".join(_MODES)).split(",")]
    for name in names:
        if name not in _MODES:
            raise UsageError(f"unknown mode {name!r}: choose from {', '.join(_MODES)}")
    return [mode for mode in _MODES if mode in names]


class _Evaluation(Struct):
    """One run of the command: asks the questions, and reports the answers so far."""

    options: argparse.Namespace
    questions: Sequence[EvalQuestion]
    modes: Sequence[ToolsMode]
    console: Console
    model: str = ""
    answers: AnswerFile | None = None

    @property
    def data(self) -> str:
        return str(self.options.data or BUILT_IN_SET)

    @property
    def total(self) -> int:
        return len(self.modes) * len(self.questions)

    async def ask_questions(self, config: Config) -> None:
        """Ask every question that has no answer yet."""
        from ..evaluation.runner import EvalRunner, full_name
        from ..upstream.model_connection import connect_model

        options = self.options
        with self.console.status("Looking for the model …") as status:
            async with connect_model(config, options.model) as connection:
                status.stop()
                self.model = full_name(await connection.resolve())
                self.answers = self._open_answers()
                runner = EvalRunner(
                    connection, options.timeout, options.max_tokens, options.retries
                )
                await self._ask(runner, self.answers)

    async def _ask(self, runner: EvalRunner, answers: AnswerFile) -> None:
        """Ask with a progress bar that counts correct answers and failed questions."""
        work = list(answers.find_unanswered(self.modes, self.questions))
        asked: list[GradedAnswer] = []
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[summary]}", markup=False),
            console=self.console,
        )

        def add_answer(answer: GradedAnswer) -> None:
            answers.add(answer)
            asked.append(answer)
            failed = sum(bool(one.error) for one in asked)
            summary = f"{sum(one.correct for one in asked)} of {len(asked)} correct"
            summary += f", {failed} failed" if failed else ""
            progress.update(task, advance=1, description=answer.key, summary=summary)

        done = self.total - len(work)
        with progress:
            task = progress.add_task("asking", total=self.total, completed=done, summary="")
            await runner.ask_questions(work, add_answer, concurrency=self.options.concurrency)

    def _open_answers(self) -> AnswerFile:
        """Open the file of answers; its default name contains the model's."""
        from ..evaluation.runner import open_answers

        name = _UNSAFE_CHARACTERS.sub("-", self.model).strip("-.")
        path: Path = self.options.out or Path(f"eval-{name}.jsonl")
        data: Path | None = self.options.data
        if data and path.exists() and path.samefile(data):
            raise UsageError(
                f"--out {path} is the questions file: choose another file for the answers"
            )
        return open_answers(path, self.model, fresh=self.options.fresh)

    def finish(self, *, is_complete: bool) -> int:
        """Print the results so far and how to continue; return the exit code."""
        from ..evaluation.report import count_questions

        if self.answers is None:
            self._print("Interrupted before the first question.")
            return INTERRUPTED
        answers = self._report(self.answers, is_complete=is_complete)
        if is_complete:
            failed = sum(bool(answer.error) for answer in answers)
            if failed:
                self._print(f"{count_questions(failed)} failed: run the same command to ask again.")
            return int(bool(failed))
        again = " (without --fresh)" if self.options.fresh else ""
        self._print(
            f"Interrupted after {len(answers)} of {self.total} answers. They are in "
            f"{self.answers.path}: run the same command{again} to continue."
        )
        return INTERRUPTED

    def _report(self, file: AnswerFile, *, is_complete: bool) -> list[GradedAnswer]:
        """Print the results, draw the chart, and return the answers."""
        from ..evaluation import report

        by_mode = {
            mode: [answer for one in self.questions if (answer := file.get(mode, one))]
            for mode in self.modes
        }
        answers = [answer for part in by_mode.values() for answer in part]
        figures = [report.summarize_mode(mode, part) for mode, part in by_mode.items()]
        remarks = list(report.describe_caveats(figures, answers))
        title = f"{self.model}: {len(self.questions)} questions of {Path(self.data).name}"
        if self.options.json:
            modes = report.describe_modes(figures)
            summary = self._describe(file.path, is_complete=is_complete)
            write_json({**summary, "modes": modes, "remarks": remarks})
        else:
            _print_tables(figures, title, remarks)
            self._print(f"The answers are in {file.path}.")
        if self.options.plot:
            report.save_plot(figures, title, self.options.plot)
            self._print(f"The chart is in {self.options.plot}.")
        return answers

    def _describe(self, path: Path, *, is_complete: bool) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data,
            "questions": len(self.questions),
            "complete": is_complete,
            "answers": str(path),
        }

    def _print(self, text: str) -> None:
        print_text(self.console, text)


def _print_tables(figures: list[ModeFigures], title: str, remarks: list[str]) -> None:
    from ..evaluation.report import MODE_COLUMNS, list_category_rows, list_mode_rows

    console = open_console()
    print_text(console, title)
    console.print(build_table(MODE_COLUMNS, list_mode_rows(figures), numbers=True))
    print_text(console, "calls, tokens, seconds and retries are means per question")
    columns = ("category", *(one.mode for one in figures))
    console.print(build_table(columns, list_category_rows(figures), numbers=True))
    for remark in remarks:
        print_text(console, remark)
