"""The results of an evaluation: figures per mode as tables, JSON and a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.table import Table
from rich.text import Text

from ..errors import UsageError
from .answers import GradedAnswer
from .questions import RELEVANCE

PICTURES = (".png", ".svg", ".pdf")
_NOTHING = "–"
_COLOURS = {"native": "#4477aa", "prompt": "#ee6677", "constrained": "#228833"}
"""Distinguishable for the colour-blind, and in print."""
_OTHER_COLOUR = "#777777"


class CorrectShare(Struct, frozen=True):
    """The share of correct answers."""

    correct: int = 0
    total: int = 0

    @property
    def value(self) -> float | None:
        """None without any answers."""
        return self.correct / self.total if self.total else None

    def __str__(self) -> str:
        return (
            f"{self.correct / self.total:.1%} ({self.correct}/{self.total})"
            if self.total
            else _NOTHING
        )


class ModeFigures(Struct, frozen=True, kw_only=True):
    """The results of one mode; means are over answers that did not fail."""

    mode: str
    answers: int
    failed: int
    accuracy: CorrectShare
    """Of the questions that expect calls."""
    relevance: CorrectShare
    """Of the questions for which no tool is relevant."""
    categories: dict[str, CorrectShare]
    calls: float
    input_tokens: float
    """Mean per question, retries included."""
    output_tokens: float
    seconds: float
    retries: float
    served_modes: dict[str, int]
    """The number of answers by the mode of their final attempt."""
    truncated: int


def summarize_mode(mode: str, answers: Sequence[GradedAnswer]) -> ModeFigures:
    """Compute the figures of one mode; a failed question counts as wrong."""
    completed = [answer for answer in answers if not answer.error]
    with_calls, without_calls = _split_by_relevance(answers)
    kinds = dict.fromkeys(answer.category for answer in answers)
    return ModeFigures(
        mode=mode,
        answers=len(answers),
        failed=len(answers) - len(completed),
        accuracy=_count_correct(with_calls),
        relevance=_count_correct(without_calls),
        categories={
            kind: _count_correct(answer for answer in answers if answer.category == kind)
            for kind in kinds
        },
        calls=_mean(len(answer.calls) for answer in completed),
        input_tokens=_mean(answer.input_tokens for answer in completed),
        output_tokens=_mean(answer.output_tokens for answer in completed),
        seconds=_mean(answer.seconds for answer in completed),
        retries=_mean(answer.retries for answer in completed),
        served_modes=dict(
            Counter(answer.served_mode for answer in completed if answer.served_mode).most_common()
        ),
        truncated=sum(answer.stop_reason == "length" for answer in completed),
    )


def _split_by_relevance(
    answers: Iterable[GradedAnswer],
) -> tuple[list[GradedAnswer], list[GradedAnswer]]:
    parts: tuple[list[GradedAnswer], list[GradedAnswer]] = ([], [])
    for answer in answers:
        parts[answer.category == RELEVANCE].append(answer)
    return parts


def _count_correct(answers: Iterable[GradedAnswer]) -> CorrectShare:
    right = [answer.correct for answer in answers]
    return CorrectShare(sum(right), len(right))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


# JSON.


def describe_modes(all_figures: Sequence[ModeFigures]) -> list[dict[str, Any]]:
    return [
        {
            "mode": one.mode,
            "answers": one.answers,
            "failed": one.failed,
            "accuracy": one.accuracy.value,
            "relevance": one.relevance.value,
            "categories": {
                kind: {"correct": share.correct, "total": share.total}
                for kind, share in one.categories.items()
            },
            "calls_per_question": one.calls,
            "input_tokens": one.input_tokens,
            "output_tokens": one.output_tokens,
            "seconds": one.seconds,
            "retries": one.retries,
            "served_modes": one.served_modes,
            "truncated": one.truncated,
        }
        for one in all_figures
    ]


# Tables.


def build_mode_table(all_figures: Sequence[ModeFigures], title: str) -> Table:
    """Build a table with one row per mode."""
    out = Table(title=Text(title), title_justify="left", caption_justify="left")
    out.add_column("mode", no_wrap=True)
    for column in ("accuracy", "relevance", "calls", "tokens in", "out", "seconds", "retries"):
        out.add_column(column, justify="right", no_wrap=True)
    out.add_column("failed", justify="right", no_wrap=True)
    for one in all_figures:
        means = (f"{one.calls:.2f}", f"{one.input_tokens:.0f}", f"{one.output_tokens:.0f}")
        times = (f"{one.seconds:.2f}", f"{one.retries:.2f}", str(one.failed))
        shown = means + times if one.answers > one.failed else (*[_NOTHING] * 5, str(one.failed))
        out.add_row(Text(one.mode), str(one.accuracy), str(one.relevance), *shown)
    out.caption = Text("calls, tokens, seconds and retries are means per question")
    return out


def build_category_table(all_figures: Sequence[ModeFigures]) -> Table:
    """Build a table with one row per category and one column per mode."""
    out = Table()
    out.add_column("category", no_wrap=True)
    for one in all_figures:
        out.add_column(Text(one.mode), justify="right", no_wrap=True)
    for kind in _list_categories(all_figures):
        shares = (str(one.categories.get(kind, CorrectShare())) for one in all_figures)
        out.add_row(Text(kind), *shares)
    return out


def describe_caveats(
    all_figures: Sequence[ModeFigures], answers: Iterable[GradedAnswer]
) -> Iterator[str]:
    """Yield what a reader must know to interpret the tables."""
    for one in all_figures:
        for mode, count in one.served_modes.items():
            if mode != one.mode:
                yield f"{one.mode}: {count} of {one.answers} answers fell back to {mode} mode"
        if one.truncated:
            yield (
                f"{one.mode}: {one.truncated} of {one.answers} answers were truncated; "
                "raise --max-tokens"
            )
    failures = Counter((answer.mode, answer.error) for answer in answers if answer.error)
    for (mode, error), count in failures.most_common(5):
        many = "1 question" if count == 1 else f"{count} questions"
        yield f"{mode}: {many} failed, counted as wrong: {error}"
    if len(failures) > 5:
        yield f"… and {len(failures) - 5} more kinds of failures; see the file of answers"


def _list_categories(all_figures: Sequence[ModeFigures]) -> list[str]:
    return list(dict.fromkeys(kind for one in all_figures for kind in one.categories))


# The chart.


def check_plot_path(path: Path) -> None:
    """Raise `UsageError` if the chart could not be written, before any question is asked."""
    if path.suffix.lower() not in PICTURES:
        raise UsageError(f"--plot {path}: the name must end with {', '.join(PICTURES)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot {path}: the folder {path.parent} does not exist")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'toolspeak[plot]'")


def save_plot(all_figures: Sequence[ModeFigures], title: str, path: Path) -> None:
    """Draw the correct answers per category, and the seconds and tokens per question."""
    # matplotlib takes a second to load, and only the chart needs it.
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    kinds = _list_categories(all_figures)
    figure, (rates, times, tokens) = pyplot.subplots(
        1, 3, figsize=(max(9.0, 4.5 + 1.2 * len(kinds)), 4.2), width_ratios=(2 + len(kinds), 2, 2)
    )
    _plot_categories(rates, kinds, all_figures)
    _plot_means(times, "seconds per question", all_figures, [one.seconds for one in all_figures])
    totals = [one.input_tokens + one.output_tokens for one in all_figures]
    _plot_means(tokens, "tokens per question", all_figures, totals)
    for axes in (rates, times, tokens):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=11)
    handles, labels = rates.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _plot_categories(axes: Any, kinds: Sequence[str], all_figures: Sequence[ModeFigures]) -> None:
    width = 0.8 / len(all_figures)
    for index, one in enumerate(all_figures):
        offset = (index - (len(all_figures) - 1) / 2) * width
        shares = [one.categories.get(kind, CorrectShare()) for kind in kinds]
        bars = axes.bar(
            [place + offset for place in range(len(kinds))],
            [100 * (share.value or 0) for share in shares],
            width=0.92 * width,
            color=_mode_color(one.mode),
            label=one.mode,
        )
        labels = ["" if share.value is None else f"{100 * share.value:.0f}" for share in shares]
        axes.bar_label(bars, labels, padding=2, fontsize=7)
    counts = [
        max(one.categories.get(kind, CorrectShare()).total for one in all_figures) for kind in kinds
    ]
    names = [f"{kind}\n({count})" for kind, count in zip(kinds, counts, strict=True)]
    axes.set_xticks(range(len(kinds)), [name.replace("_", "\n") for name in names], fontsize=8)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 20))
    axes.set_title("correct answers, %", fontsize=9)


def _plot_means(
    axes: Any, title: str, all_figures: Sequence[ModeFigures], values: Sequence[float]
) -> None:
    places = range(len(all_figures))
    bars = axes.bar(places, values, width=0.7, color=[_mode_color(one.mode) for one in all_figures])
    labels = [f"{value:.3g}" if value < 100 else f"{value:.0f}" for value in values]
    axes.bar_label(bars, labels, padding=2, fontsize=7)
    axes.set_xticks([])
    axes.margins(y=0.12)
    axes.set_title(title, fontsize=9)


def _mode_color(mode: str) -> str:
    return _COLOURS.get(mode, _OTHER_COLOUR)
