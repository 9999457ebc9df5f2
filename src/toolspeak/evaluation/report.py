"""The results of an evaluation: figures per mode as tables, JSON and a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct, to_builtins

from ..errors import UsageError
from .questions import RELEVANCE
from .runner import GradedAnswer

PICTURES = (".png", ".svg", ".pdf")
_NO_VALUE = "–"
_COLORS = {"native": "#4477aa", "prompt": "#ee6677", "constrained": "#228833"}
"""Distinguishable for the colour-blind, and in print."""
_MAX_FAILURES = 5


class CorrectShare(Struct, frozen=True):
    """The share of correct answers."""

    correct: int = 0
    total: int = 0

    @property
    def value(self) -> float | None:
        """The share as a number, or None without any answers."""
        return self.correct / self.total if self.total else None

    def __str__(self) -> str:
        if not self.total:
            return _NO_VALUE
        return f"{self.correct / self.total:.1%} ({self.correct}/{self.total})"


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
    calls_per_question: float
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
    by_category: dict[str, list[GradedAnswer]] = {}
    for answer in answers:
        by_category.setdefault(answer.category, []).append(answer)

    def take_mean(field: str) -> float:
        return fmean(getattr(answer, field) for answer in completed) if completed else 0.0

    return ModeFigures(
        mode=mode,
        answers=len(answers),
        failed=len(answers) - len(completed),
        accuracy=_count_correct(one for one in answers if one.category != RELEVANCE),
        relevance=_count_correct(by_category.get(RELEVANCE, ())),
        categories={kind: _count_correct(part) for kind, part in by_category.items()},
        calls_per_question=fmean(len(one.calls) for one in completed) if completed else 0.0,
        input_tokens=take_mean("input_tokens"),
        output_tokens=take_mean("output_tokens"),
        seconds=take_mean("seconds"),
        retries=take_mean("retries"),
        served_modes=dict(Counter(one.served_mode for one in completed).most_common()),
        truncated=sum(answer.stop_reason == "length" for answer in completed),
    )


def _count_correct(answers: Iterable[GradedAnswer]) -> CorrectShare:
    grades = [answer.correct for answer in answers]
    return CorrectShare(sum(grades), len(grades))


def describe_modes(all_figures: Sequence[ModeFigures]) -> list[dict[str, Any]]:
    """Return the figures as JSON, with shares as numbers."""
    return [
        {**to_builtins(one), "accuracy": one.accuracy.value, "relevance": one.relevance.value}
        for one in all_figures
    ]


def describe_caveats(
    all_figures: Sequence[ModeFigures], answers: Iterable[GradedAnswer]
) -> Iterator[str]:
    """Yield what a reader must know to interpret the tables."""
    for one in all_figures:
        for mode, count in one.served_modes.items():
            if mode != one.mode:
                yield f"{one.mode}: {count} of {one.answers} answers were retried in {mode} mode"
        if one.truncated:
            count = f"{one.truncated} of {one.answers} answers were truncated"
            yield f"{one.mode}: {count}; raise --max-tokens"
    failures = Counter((answer.mode, answer.error) for answer in answers if answer.error)
    for (mode, error), count in failures.most_common(_MAX_FAILURES):
        yield f"{mode}: {count_questions(count)} failed ({error}) and count as wrong"
    if len(failures) > _MAX_FAILURES:
        rest = len(failures) - _MAX_FAILURES
        yield f"… and {rest} more kinds of failures; see the answers file"


def count_questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count} questions"


# Tables.

MODE_COLUMNS = (
    *("mode", "accuracy", "relevance", "calls", "tokens in", "out", "seconds", "retries"),
    "failed",
)


def list_mode_rows(all_figures: Sequence[ModeFigures]) -> Iterator[list[str]]:
    """Yield one row per mode, for `MODE_COLUMNS`."""
    for one in all_figures:
        means = [
            f"{one.calls_per_question:.2f}",
            f"{one.input_tokens:.0f}",
            f"{one.output_tokens:.0f}",
            f"{one.seconds:.2f}",
            f"{one.retries:.2f}",
        ]
        if one.answers == one.failed:
            means = [_NO_VALUE] * len(means)
        yield [one.mode, str(one.accuracy), str(one.relevance), *means, str(one.failed)]


def list_category_rows(all_figures: Sequence[ModeFigures]) -> Iterator[list[str]]:
    """Yield one row per category, with a column for each mode."""
    for kind, shares in _list_shares(all_figures).items():
        yield [kind, *map(str, shares)]


def _list_shares(all_figures: Sequence[ModeFigures]) -> dict[str, list[CorrectShare]]:
    """Return the shares of all modes for each category."""
    kinds = dict.fromkeys(kind for one in all_figures for kind in one.categories)
    return {
        kind: [one.categories.get(kind, CorrectShare()) for one in all_figures] for kind in kinds
    }


# The chart.


def check_plot_path(path: Path) -> None:
    """Raise `UsageError` if the chart could not be written, before any question is asked."""
    if path.suffix.lower() not in PICTURES:
        raise UsageError(
            f"--plot {path}: the name must end with {', '.join(PICTURES[:-1])} or {PICTURES[-1]}"
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot {path}: the folder {path.parent} does not exist")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'toolspeak[plot]'")


def save_plot(all_figures: Sequence[ModeFigures], title: str, path: Path) -> None:
    """Draw the correct answers per category, and the seconds and tokens per question."""
    # matplotlib takes a second to load, and only the chart needs it.
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    charts = {
        "correct answers, %": {
            _name_category(kind, shares): [100 * (share.value or 0) for share in shares]
            for kind, shares in _list_shares(all_figures).items()
        },
        "seconds per question": {"": [one.seconds for one in all_figures]},
        "tokens per question": {"": [one.input_tokens + one.output_tokens for one in all_figures]},
    }
    modes = [one.mode for one in all_figures]
    widths = [1.5 + len(groups) for groups in charts.values()]
    figure, axes = pyplot.subplots(
        1, len(charts), figsize=(max(9.0, 1.2 * sum(widths)), 4.2), width_ratios=widths
    )
    for ax, (name, groups) in zip(axes, charts.items(), strict=True):
        _plot_bars(ax, name, groups, modes)
    figure.suptitle(title, fontsize=11)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _name_category(kind: str, shares: Sequence[CorrectShare]) -> str:
    count = max(share.total for share in shares)
    return f"{kind}\n({count})".replace("_", "\n")


def _plot_bars(axes: Any, title: str, groups: dict[str, list[float]], modes: Sequence[str]) -> None:
    """Draw a group of bars for each name, one bar for each mode."""
    width = 0.8 / len(modes)
    for index, mode in enumerate(modes):
        offset = (index - (len(modes) - 1) / 2) * width
        places = [place + offset for place in range(len(groups))]
        values = [group[index] for group in groups.values()]
        bars = axes.bar(places, values, width=0.92 * width, color=_COLORS[mode], label=mode)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], padding=2, fontsize=7)
    axes.set_xticks(range(len(groups)), groups.keys(), fontsize=8)
    axes.margins(y=0.12)
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
