"""Recorded answers of real models: share of correct answers, compared with the leaderboard's
decoders, which know the model.

    TOOLSPEAK_CORPUS=… python -m bench.replay [--plot FILE] [--stream] [--model NAME] [--misses N]

An answer is right if it holds the calls that the leaderboard accepts; an answer to a question that
no tool can help with, if nothing was extracted. Toolspeak is not told which model gave an answer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from toolspeak import ToolCall, as_tools
from toolspeak.evaluation.questions import RELEVANCE, EvalQuestion, is_correct, read_questions
from toolspeak.testing import parse, split_into_chunks
from toolspeak.types import Trust

TRUSTS: tuple[Trust, ...] = ("strict", "standard", "lenient")


def read_answers(corpus: Path, model: str) -> list[tuple[EvalQuestion, dict[str, Any]]]:
    """Return every question with a model's answer."""
    folder = corpus / "bfcl-replay"
    questions = {question.id: question for question in read_questions(folder / "questions.jsonl")}
    with (folder / "outputs" / f"{model}.jsonl").open() as lines:
        return [(questions[row["id"]], row) for row in map(json.loads, lines)]


def extract_calls(
    question: EvalQuestion, text: str, trust: Trust, size: int = 0
) -> tuple[ToolCall, ...]:
    """Return the calls in the answer to a question."""
    pieces = split_into_chunks(text, size) if size else [text]
    return parse(pieces, tools=as_tools(question.tools), trust=trust).calls


def replay_model(job: tuple[Path, str, bool]) -> tuple[str, dict[str, list[float]], int]:
    """Score the answers of one model."""
    corpus, model, stream = job
    return model, *score_answers(read_answers(corpus, model), stream=stream)


def score_answers(
    rows: list[tuple[EvalQuestion, dict[str, Any]]],
    *,
    stream: bool,
    trusts: Sequence[Trust] = TRUSTS,
) -> tuple[dict[str, list[float]], int]:
    """Return [calls, relevance] for each trust, and the number of answers that differ when parsed
    in chunks."""
    scores: dict[str, list[float]] = {
        "official": _score(rows, [row["official"] for _, row in rows])
    }
    different = 0
    for trust in trusts:
        found = [extract_calls(question, row["text"], trust) for question, row in rows]
        right = [
            is_correct(question, calls) for (question, _), calls in zip(rows, found, strict=True)
        ]
        scores[trust] = _score(rows, right)
        if stream and trust == "lenient":
            streamed = [extract_calls(question, row["text"], trust, 4) for question, row in rows]
            different = sum(map(_count_differences, found, streamed))
    return scores, different


def _score(rows: list[tuple[EvalQuestion, dict[str, Any]]], right: Sequence[bool]) -> list[float]:
    by_kind: dict[bool, list[bool]] = {False: [], True: []}
    for (question, _), one in zip(rows, right, strict=True):
        by_kind[question.category == RELEVANCE].append(bool(one))
    return [sum(found) / len(found) for found in by_kind.values()]


def _count_differences(one: tuple[ToolCall, ...], other: tuple[ToolCall, ...]) -> bool:
    return [(c.name, c.arguments) for c in one] != [(c.name, c.arguments) for c in other]


def list_models(corpus: Path) -> list[str]:
    """Return the models with recorded answers."""
    return sorted(path.stem for path in (corpus / "bfcl-replay" / "outputs").glob("*.jsonl"))


def build_table(results: dict[str, dict[str, list[float]]]) -> Table:
    """Build a table of the scores of each model and trust."""
    ways = ("official", *TRUSTS)
    table = Table("model", *(f"{way}: {what}" for way in ways for what in ("calls", "relevance")))
    for model, scores in results.items():
        table.add_row(model, *(f"{score:.3f}" for way in ways for score in scores[way]))
    table.add_section()
    table.add_row("mean", *(f"{mean(results, way, kind):.3f}" for way in ways for kind in (0, 1)))
    return table


def mean(results: dict[str, dict[str, list[float]]], way: str, kind: int) -> float:
    """Return the mean over the models."""
    return sum(scores[way][kind] for scores in results.values()) / len(results)


def draw_plot(results: dict[str, dict[str, list[float]]], path: str) -> None:
    """Plot a bar for each model's own decoder and one for Toolspeak."""
    # Not among the tools for development: only this chart needs it.
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    names = sorted(results, key=lambda name: results[name]["official"][0])
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(names) + 1.5))
    for offset, way, label in (
        (0.2, "official", "its own decoder"),
        (-0.2, "lenient", "Toolspeak"),
    ):
        places = [index + offset for index in range(len(names))]
        scores = [results[name][way][0] for name in names]
        bars = axes.barh(places, scores, height=0.38, label=label)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlim(0, 1)
    axes.set_xlabel("answers whose calls are all right (BFCL, 1,000 questions)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def print_misses(corpus: Path, model: str, most: int) -> None:
    """Print answers that only the model's own decoder parses, and calls that were not asked for."""
    shown = 0
    for question, row in read_answers(corpus, model):
        reply = parse([row["text"]], tools=as_tools(question.tools), trust="lenient")
        if is_correct(question, reply.calls) or shown >= most:
            continue
        shown += 1
        calls = [(call.name, call.arguments) for call in reply.calls]
        print(f"{row['id']} official={row['official']}\n  text  {row['text']!r:.400}")
        print(f"  found {calls!r:.300}\n  truth {question.truth!r:.300}")
        print(f"  why   {[(one.code, one.problem) for one in reply.rejected]!r:.300}")


def main() -> int:
    options = argparse.ArgumentParser(description="Real answers, replayed.")
    options.add_argument("--plot", metavar="FILE", help="write a bar chart")
    options.add_argument("--json", metavar="FILE", help="write the figures")
    options.add_argument("--stream", action="store_true", help="feed 4 characters at a time too")
    options.add_argument("--model", action="append", help="only this one")
    options.add_argument(
        "--misses", type=int, metavar="N", help="show N answers that came out wrong"
    )
    chosen = options.parse_args()
    folder = os.environ.get("TOOLSPEAK_CORPUS")
    if not folder:
        print("TOOLSPEAK_CORPUS does not name the folder of recorded answers", file=sys.stderr)
        return 2
    corpus = Path(folder)
    names = chosen.model or list_models(corpus)
    if chosen.misses:
        for name in names:
            print_misses(corpus, name, chosen.misses)
        return 0
    results: dict[str, dict[str, list[float]]] = {}
    different = 0
    with Progress(console=Console(stderr=True)) as progress, Pool() as pool:
        task = progress.add_task("replaying", total=len(names))
        jobs = [(corpus, name, chosen.stream) for name in names]
        for name, scores, unlike in pool.imap_unordered(replay_model, jobs):
            results[name] = scores
            different += unlike
            progress.advance(task)
    results = dict(sorted(results.items()))
    Console(width=140).print(build_table(results))
    if chosen.stream:
        print(f"{different} answers come out otherwise in pieces of 4 characters")
    if chosen.plot:
        draw_plot(results, chosen.plot)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
