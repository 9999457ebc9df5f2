"""Draws docs/reliability.svg: the recovery steps for each outcome, from the engine's tables."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from textwrap import wrap

from toolspeak.engine.outcome import OUTCOMES, OutcomeKind
from toolspeak.engine.plan import ModelProfile
from toolspeak.engine.recovery import RECOVERY_STEPS, Step

WIDTH, MARGIN = 900, 24
STEPS_LEFT, STEP_WIDTH, GAP = 262, 106, 14
END = 752
"""The left edge of the last column."""
LINE = 40
"""Characters of a description per line."""
SHORT_ROW, ROW, HEAD = 58, 68, 84
RETRIES = ModelProfile(model="").retries
LABELS: dict[Step, tuple[str, str]] = {
    "correct": ("correct", "say what is wrong"),
    "continue": ("continue", "where it stopped"),
    "constrain": ("constrain", "to a JSON schema"),
    "prompt": ("use the prompt", "if it was native"),
    "reformat": ("reformat", "without tools"),
}
SECOND_CORRECTION = ("correct", "more briefly")
CONDITIONAL = frozenset[Step]({"continue", "constrain", "prompt"})
STYLE = """
text { font: 12px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.title { font-size: 18px; font-weight: 600; }
.muted { fill: #59636e; }
.column { font-weight: 600; fill: #59636e; }
.kind { font: 600 14px ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
.what { font-weight: 600; text-anchor: middle; }
.how { font-size: 11px; fill: #3d444d; text-anchor: middle; }
.card { fill: #ffffff; stroke: #d0d7de; }
.rule { stroke: #eaeef2; }
.step { fill: #ddf4ff; stroke: #0969da; }
.maybe { fill: #ffffff; stroke: #0969da; stroke-dasharray: 4 3; }
.else { stroke: #818b98; stroke-width: 1.5; fill: none; marker-end: url(#arrow); }
.good { stroke: #1a7f37; stroke-width: 1.5; fill: none; }
.accepted { fill: #dafbe1; stroke: #1a7f37; }
.reply { fill: #fff8c5; stroke: #9a6700; }
.error { fill: #ffebe9; stroke: #cf222e; }
"""
ARROW = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#818b98"/></marker>'
)


def picture() -> str:
    """Return the drawing as SVG."""
    good: list[OutcomeKind] = [kind for kind in OUTCOMES if kind not in RECOVERY_STEPS]
    height = HEAD + SHORT_ROW * len(good) + ROW * len(RECOVERY_STEPS) + 84
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="t">',
        '<title id="t">The outcome of a reply, and the recovery steps</title>',
        f"<style>{STYLE}</style>",
        f"<defs>{ARROW}</defs>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(MARGIN, 36, "The outcome of a reply, and the recovery steps", "title"),
        _text(MARGIN, 68, "outcome", "column"),
        _text(STEPS_LEFT, 68, "recovery steps, in order", "column"),
        _text(END, 68, "the client receives", "column"),
    ]
    y = HEAD
    for kind in good:
        lines += _accepted(kind, y)
        y += SHORT_ROW
    for kind, actions in RECOVERY_STEPS.items():
        lines += _row(kind, actions, y)
        y += ROW
    return "\n".join([*lines, *_legend(y + 6), "</svg>", ""])


def _accepted(kind: OutcomeKind, y: int) -> Iterator[str]:
    """Draw an outcome that needs no recovery."""
    yield from _outcome(kind, y, SHORT_ROW)
    middle = y + SHORT_ROW // 2
    yield f'<path class="good" d="M{STEPS_LEFT - 24} {middle}H{END}"/>'
    yield _box("accepted", END, middle - 11, WIDTH - MARGIN - END, 22)
    yield _text(_middle_of_end(), middle + 4, "accepted", "what")


def _row(kind: OutcomeKind, actions: tuple[Step, ...], y: int) -> Iterator[str]:
    """Draw an outcome and its recovery steps."""
    yield from _outcome(kind, y, ROW)
    lane, top, middle = y + 15, y + 26, y + 44
    at = STEPS_LEFT - 24
    for index, action in enumerate(actions):
        left = STEPS_LEFT + index * (STEP_WIDTH + GAP)
        centre = left + STEP_WIDTH // 2
        yield f'<path class="else" d="M{at} {middle}H{left - 1}"/>'
        yield f'<path class="good" d="M{centre} {top}V{lane}"/>'
        yield _box("maybe" if action in CONDITIONAL else "step", left, top, STEP_WIDTH, 36)
        what, how = SECOND_CORRECTION if action == "correct" in actions[:index] else LABELS[action]
        yield _text(centre, top + 16, what, "what")
        yield _text(centre, top + 30, how, "how")
        at = left + STEP_WIDTH + 1
    yield f'<path class="good" d="M{STEPS_LEFT + STEP_WIDTH // 2} {lane}H{END}"/>'
    yield f'<path class="else" d="M{at} {middle}H{END - 1}"/>'
    yield _box("accepted", END, lane - 9, WIDTH - MARGIN - END, 18)
    yield _text(_middle_of_end(), lane + 4, "accepted", "what")
    only_required = kind == "missing-call"
    yield _box("error" if only_required else "reply", END, top + 2, WIDTH - MARGIN - END, 34)
    yield _text(_middle_of_end(), top + 16, "no step left", "what")
    gets = "502, with the reason" if only_required else "the first reply"
    yield _text(_middle_of_end(), top + 30, gets, "how")


def _outcome(kind: OutcomeKind, y: int, height: int) -> Iterator[str]:
    yield f'<path class="rule" d="M{MARGIN} {y}H{WIDTH - MARGIN}"/>'
    described = wrap(OUTCOMES[kind], LINE)
    first = y + (height - 16 * len(described)) // 2 + 5
    yield _text(MARGIN, first, kind, "kind")
    for index, line in enumerate(described, 1):
        yield _text(MARGIN, first + 16 * index, line, "muted")


def _legend(y: int) -> Iterator[str]:
    yield f'<path class="rule" d="M{MARGIN} {y - 6}H{WIDTH - MARGIN}"/>'
    yield f'<path class="good" d="M{MARGIN} {y + 14}h22"/>'
    yield _text(54, y + 18, "a usable reply is accepted after any step", "muted")
    yield f'<path class="else" d="M{MARGIN} {y + 36}h22"/>'
    yield _text(54, y + 40, "a reply that is not usable leads to the next step", "muted")
    yield _box("maybe", 440, y + 6, 22, 16)
    yield _text(470, y + 18, "only where possible; otherwise the next step is taken", "muted")
    yield _text(
        470, y + 40, f"at most {RETRIES} steps: retries = {RETRIES} is the default", "muted"
    )
    note = "If a required call is not made, the client receives a 502 with the reason."
    yield _text(MARGIN, y + 62, note, "muted")


def _middle_of_end() -> int:
    return (END + WIDTH - MARGIN) // 2


def _box(name: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'


def _text(x: int, y: int, text: str, name: str) -> str:
    return f'<text class="{name}" x="{x}" y="{y}">{escape(text)}</text>'
