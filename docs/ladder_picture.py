"""Draws the ladder, from its tables: docs/reliability.svg."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from textwrap import wrap

from toolspeak.engine.outcome import OUTCOMES, OutcomeKind
from toolspeak.engine.pipeline import RECOVERY_STEPS, Step
from toolspeak.engine.plan import ModelProfile

WIDTH, MARGIN = 900, 24
RUNGS, RUNG, GAP = 262, 106, 14
"""Where the rungs begin, how wide each is, and what is between them."""
END = 752
"""Where the last column begins."""
LINE = 40
"""How many characters of a description fit into a line."""
SHORT_ROW, ROW, HEAD = 58, 68, 84
RETRIES = ModelProfile(model="").retries
LABELS: dict[Step, tuple[str, str]] = {
    "again": ("ask again", "say what is wrong"),
    "continue": ("let it go on", "where it stopped"),
    "constrain": ("constrain", "to a JSON schema"),
    "prompt": ("use a prompt", "if it was native"),
    "form": ("without tools", "held to the form"),
}
AGAIN = ("ask again", "only what to do")
"""The second time."""
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
.rung { fill: #ddf4ff; stroke: #0969da; }
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
    """The ladder as SVG."""
    good: list[OutcomeKind] = [kind for kind in OUTCOMES if kind not in RECOVERY_STEPS]
    height = HEAD + SHORT_ROW * len(good) + ROW * len(RECOVERY_STEPS) + 84
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="t">',
        '<title id="t">What a reply comes to, and what is done about it</title>',
        f"<style>{STYLE}</style>",
        f"<defs>{ARROW}</defs>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(MARGIN, 36, "What a reply comes to, and what is done about it", "title"),
        _text(MARGIN, 68, "outcome", "column"),
        _text(RUNGS, 68, "what is done, one rung after another", "column"),
        _text(END, 68, "what the client gets", "column"),
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
    """An outcome that is as good as it gets."""
    yield from _outcome(kind, y, SHORT_ROW)
    middle = y + SHORT_ROW // 2
    yield f'<path class="good" d="M{RUNGS - 24} {middle}H{END}"/>'
    yield _box("accepted", END, middle - 11, WIDTH - MARGIN - END, 22)
    yield _text(_middle_of_end(), middle + 4, "accepted", "what")


def _row(kind: OutcomeKind, actions: tuple[Step, ...], y: int) -> Iterator[str]:
    """An outcome that something is done about."""
    yield from _outcome(kind, y, ROW)
    lane, top, middle = y + 15, y + 26, y + 44
    at = RUNGS - 24
    for index, action in enumerate(actions):
        left = RUNGS + index * (RUNG + GAP)
        centre = left + RUNG // 2
        yield f'<path class="else" d="M{at} {middle}H{left - 1}"/>'
        yield f'<path class="good" d="M{centre} {top}V{lane}"/>'
        yield _box("maybe" if action in CONDITIONAL else "rung", left, top, RUNG, 36)
        what, how = AGAIN if action == "again" in actions[:index] else LABELS[action]
        yield _text(centre, top + 16, what, "what")
        yield _text(centre, top + 30, how, "how")
        at = left + RUNG + 1
    yield f'<path class="good" d="M{RUNGS + RUNG // 2} {lane}H{END}"/>'
    yield f'<path class="else" d="M{at} {middle}H{END - 1}"/>'
    yield _box("accepted", END, lane - 9, WIDTH - MARGIN - END, 18)
    yield _text(_middle_of_end(), lane + 4, "accepted", "what")
    only_required = kind == "missing-call"
    yield _box("error" if only_required else "reply", END, top + 2, WIDTH - MARGIN - END, 34)
    yield _text(_middle_of_end(), top + 16, "given up", "what")
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
    yield _text(54, y + 18, "a reply that will do is accepted, after whichever rung", "muted")
    yield f'<path class="else" d="M{MARGIN} {y + 36}h22"/>'
    yield _text(54, y + 40, "one that will not leads to the next rung", "muted")
    yield _box("maybe", 440, y + 6, 22, 16)
    yield _text(470, y + 18, "where it can be done; otherwise the next rung is taken", "muted")
    yield _text(
        470, y + 40, f"at most {RETRIES} rungs: retries = {RETRIES} is the default", "muted"
    )
    told = "Where a call is required, every reply that is given up is a 502 with the reason."
    yield _text(MARGIN, y + 62, told, "muted")


def _middle_of_end() -> int:
    return (END + WIDTH - MARGIN) // 2


def _box(name: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'


def _text(x: int, y: int, text: str, name: str) -> str:
    return f'<text class="{name}" x="{x}" y="{y}">{escape(text)}</text>'
