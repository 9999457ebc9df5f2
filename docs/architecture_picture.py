"""Draws docs/architecture.svg: a request from the client to the model and back."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from toolspeak import DIALECTS
from toolspeak.engine.plan import ModelProfile

SOURCE = Path(__file__).parent.parent / "src" / "toolspeak"
RETRIES = ModelProfile(model="").retries
WIDTH, HEIGHT, MARGIN = 900, 384, 24
BOX, GAP, TALL = 128, 14, 92
"""A step's width, what is between two, and its height."""
SIDE = 122
"""The width of what stands outside of the gateway."""
INSIDE = MARGIN + SIDE + 32
"""Where the first step begins."""
THERE, BACK = 104, 232
"""Where the two rows of steps begin."""
STEPS_THERE = (
    ("decode", "the client's API", "to one Request", "wires/*/request.py"),
    ("plan", "native, prompt", "or constrained", "engine/plan.py"),
    ("prompt", "tools as the model", "expects them", "engine/prompt.py"),
    ("send", "in the upstream's", "own API", "upstream/client.py"),
)
STEPS_BACK = (
    ("encode", "as a stream, in the", "client's API", "wires/*/reply.py"),
    ("recover", "not usable? prepare", "the next attempt", "engine/recovery.py"),
    ("validate", "names, arguments,", "schema", "calls/resolution.py"),
    ("parse", "finds calls in text,", f"in {len(DIALECTS)} dialects", "dialects/parser.py"),
)
CLIENTS = ("OpenAI Chat", "OpenAI Responses", "Anthropic", "Ollama", "Gemini")
MODELS = ("Ollama", "vLLM", "llama.cpp", "any provider", "bundled model")
STYLE = """
text { font: 12px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328; text-anchor: middle; }
.title { font-size: 18px; font-weight: 600; text-anchor: start; }
.muted { fill: #59636e; }
.start { text-anchor: start; }
.what { font-size: 14px; font-weight: 600; }
.file { font: 9.5px ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; fill: #59636e; }
.card { fill: #ffffff; stroke: #d0d7de; }
.inside { fill: #f6f8fa; stroke: #d0d7de; }
.side { fill: #ffffff; stroke: #818b98; }
.there { fill: #ddf4ff; stroke: #0969da; }
.back { fill: #dafbe1; stroke: #1a7f37; }
.way { stroke: #818b98; stroke-width: 1.5; fill: none; marker-end: url(#arrow); }
.again { stroke: #9a6700; stroke-width: 1.5; stroke-dasharray: 4 3; fill: none; marker-end: url(#again); }
.note { fill: #9a6700; font-weight: 600; text-anchor: start; }
.point { fill: #818b98; }
.point-again { fill: #9a6700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .muted, .file { fill: #9198a1; }
  .card { fill: #0d1117; stroke: #3d444d; }
  .inside { fill: #151b23; stroke: #3d444d; }
  .side { fill: #0d1117; stroke: #656c76; }
  .there { fill: #121d2f; stroke: #4493f8; }
  .back { fill: #12261e; stroke: #3fb950; }
  .again { stroke: #d29922; }
  .note, .point-again { fill: #d29922; }
}
"""
TITLE = "A request from the client to the model and back"


def picture() -> str:
    """Return the drawing as SVG."""
    right = INSIDE + 4 * BOX + 3 * GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="t">',
        f'<title id="t">{TITLE}</title>',
        f"<style>{STYLE}</style>",
        f"<defs>{_arrow('arrow', 'point')}{_arrow('again', 'point-again')}</defs>",
        _box("card", 0.5, 0.5, WIDTH - 1, HEIGHT - 1, 10),
        _text(MARGIN, 36, TITLE, "title"),
        _box("inside", INSIDE - 14, 60, right - INSIDE + 28, 284, 8),
        _text(INSIDE, 82, "the gateway", "muted start"),
        *_side(MARGIN, "client", CLIENTS),
        *_side(WIDTH - MARGIN - SIDE, "model", MODELS),
        *_row("there", THERE, STEPS_THERE),
        *_row("back", BACK, STEPS_BACK),
        *_ways(right),
        *_again(),
        _text(
            MARGIN,
            366,
            "Every repair, coercion, drop and retry is recorded as a note.",
            "muted start",
        ),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _row(name: str, y: int, steps: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    for index, (what, first, second, file) in enumerate(steps):
        assert list(SOURCE.glob(file)), f"there is no {file}"
        x = INSIDE + index * (BOX + GAP)
        middle = x + BOX // 2
        yield _box(name, x, y, BOX, TALL, 6)
        yield _text(middle, y + 24, what, "what")
        yield _text(middle, y + 44, first)
        yield _text(middle, y + 60, second)
        yield _text(middle, y + 80, file, "file")


def _side(x: int, what: str, lines: tuple[str, ...]) -> Iterator[str]:
    yield _box("side", x, THERE, SIDE, BACK + TALL - THERE, 6)
    middle = x + SIDE // 2
    top = THERE + 96 - 8 * len(lines)
    yield _text(middle, top, what, "what")
    for index, line in enumerate(lines, 1):
        yield _text(middle, top + 4 + 18 * index, line, "muted")


def _ways(right: int) -> Iterator[str]:
    """From each step to the next: above to the right, below to the left."""
    above, below = THERE + TALL // 2, BACK + TALL // 2
    yield _way(MARGIN + SIDE, above, INSIDE)
    yield _way(right, above, WIDTH - MARGIN - SIDE)
    yield _way(WIDTH - MARGIN - SIDE, below, right)
    yield _way(INSIDE, below, MARGIN + SIDE)
    for index in range(3):
        left = INSIDE + BOX + index * (BOX + GAP)
        yield _way(left, above, left + GAP)
        yield _way(left + GAP, below, left)


def _again() -> Iterator[str]:
    """What will not do is asked for again."""
    middle = INSIDE + BOX + GAP + BOX // 2
    yield f'<path class="again" d="M{middle} {BACK - 1}V{THERE + TALL + 1}"/>'
    y = (THERE + TALL + BACK) // 2 + 4
    yield _text(middle + 8, y, f"retry, at most {RETRIES} times", "note")


def _way(start: int, y: int, end: int) -> str:
    return f'<path class="way" d="M{start} {y}H{end}"/>'


def _arrow(name: str, point: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path class="{point}" d="M0 0 8 4 0 8z"/></marker>'
    )


def _box(name: str, x: float, y: float, width: float, height: float, round_: int) -> str:
    return f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{round_}"/>'


def _text(x: int, y: int, text: str, name: str = "") -> str:
    attribute = f'class="{name}" ' if name else ""
    return f'<text {attribute}x="{x}" y="{y}">{escape(text)}</text>'
