"""Delay of prose in a stream, with recovery enabled.

    python -m bench.holdback [--json]

Replies arrive in chunks of 4 characters, to a request that offers tools, and go through the parser
and the holdback, as in the gateway. The delay of a character is the number of characters that
arrive before it is sent: 0 if it is sent at once. A token is 4 characters, and a model writes 50 of
them per second. The tables show the median and the longest delay over the replies, each with its
longest delay.

ordinary       answers that do not begin like a refusal
candidates     answers that begin like a refusal, but are not refusals
refusals       refusals, which are held back to their end
before a call  text before a call, a short one and one that writes a file
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.holdback_replies import BEFORE_A_CALL, CANDIDATES, ORDINARY, REFUSALS
from toolspeak import (
    DIALECTS,
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Failure,
    Finish,
    Message,
    Request,
    Started,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    render_calls,
)
from toolspeak.engine import ModelProfile, Pipeline, ReplyReader
from toolspeak.engine.pipeline import Attempts
from toolspeak.errors import UpstreamError
from toolspeak.security.refusals import MAX_UNDECIDED
from toolspeak.testing import split_into_chunks

CHUNK = 4
TOKENS_A_SECOND = 50
NATIVE = "native"
TOOLS = (
    Tool(
        name="get_weather",
        description="The current weather in a city.",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    ),
    Tool(
        name="write_file",
        description="Write a text file.",
        parameters={
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    ),
)
SHORT = ToolCall(id="a1b2c3d4e", name="get_weather", arguments={"city": "Oslo"})
LONG = ToolCall(
    id="a1b2c3d4e",
    name="write_file",
    arguments={"path": "notes.txt", "content": "Rain in Oslo, wind in Bergen.\n" * 130},
)
REQUEST = Request(
    model="m",
    messages=(Message("user", (Text("How is the weather in Oslo?"),)),),
    tools=TOOLS,
    stream=True,
)


class _Reader(ReplyReader):
    """A reader that passes native calls as events."""

    is_native_call = False

    @property
    def is_in_call(self) -> bool:
        return self.is_native_call or super().is_in_call


class Waited(Struct, frozen=True):
    """The number of characters that arrived while prose was held back, over a set of replies."""

    median: float
    worst: int
    which: str
    """The reply with the longest delay."""

    @property
    def seconds(self) -> float:
        """The longest delay at the speed of a model."""
        return self.worst / CHUNK / TOKENS_A_SECOND


class Row(Struct, frozen=True):
    """The delays of one dialect."""

    dialect: str
    ordinary: Waited
    candidates: Waited
    refusals: Waited
    before_a_call: Waited
    before_a_long_call: Waited


def build_events(text: str, call: ToolCall | None = None, dialect: str = NATIVE) -> list[Event]:
    """Return the events of a reply, a token at a time: some text, and a call in the dialect."""
    made: list[Event] = []
    if call and dialect == NATIVE:
        arguments = map(
            ArgumentsDelta, (0,) * len(call.input), split_into_chunks(call.input, CHUNK)
        )
        made = [CallStart(0, call.id, call.name), *arguments, CallEnd(0, call)]
    elif call:
        text = f"{text}\n{render_calls(dialect, [call], TOOLS)}"
    words = map(TextDelta, split_into_chunks(text, CHUNK))
    return [Started(), *words, *made, Finish("calls" if made else "stop")]


def iter_released(
    events: Sequence[Event], dialect: str, *, with_recovery: bool
) -> Iterator[tuple[int, str]]:
    """Yield the text that is sent, and how many characters had arrived by then."""
    mode = NATIVE if dialect == NATIVE else "prompt"
    named = None if dialect == NATIVE else dialect
    profile = ModelProfile(model="m", mode=mode, dialect=named)
    pipeline = Pipeline(REQUEST, [profile], is_streaming=True)
    attempts = pipeline.run()
    reader = _Reader(next(attempts))
    pipeline.reader = reader
    came = 0
    for event in events:
        came += _count_characters(event)
        reader.is_native_call = isinstance(event, (CallStart, ArgumentsDelta))
        extracted = reader.read_events([event])
        for one in pipeline.receive(extracted) if with_recovery else extracted:
            yield came, _get_text(one)
    for one in _finish(attempts) if with_recovery else ():
        yield came, _get_text(one)


def _finish(attempts: Attempts[list[Event]]) -> list[Event]:
    """Return the rest of the reply. If the model is asked again, its upstream fails."""
    try:
        next(attempts)
        attempts.throw(UpstreamError(Failure("upstream", "gone", 502)))
    except StopIteration as end:
        return end.value
    raise AssertionError("a failed retry ends the reply")


def measure_waits(
    text: str, dialect: str, call: ToolCall | None = None, *, with_recovery: bool = True
) -> list[int]:
    """Return, for each character, how many more had arrived by the time it was sent. Without
    `with_recovery`, only the parser holds text back."""
    events = build_events(text, call, dialect)
    found: list[int] = []
    at = 0
    for came, words in iter_released(events, dialect, with_recovery=with_recovery):
        for character in words:
            # White space that only joins text and call does not leave.
            at = text.find(character, at) + 1
            if not at:
                return found
            found.append(came - min(-(-at // CHUNK) * CHUNK, came))
    return found


def _count_characters(event: Event) -> int:
    return len(_get_text(event)) + (len(event.json) if isinstance(event, ArgumentsDelta) else 0)


def _get_text(event: Event) -> str:
    return event.text if isinstance(event, TextDelta) else ""


def summarize_waits(replies: dict[str, str], dialect: str, call: ToolCall | None = None) -> Waited:
    """Return the median and the longest delay of these replies."""
    longest = {
        name: max(measure_waits(text, dialect, call), default=0) for name, text in replies.items()
    }
    which = max(longest, key=lambda name: longest[name])
    return Waited(statistics.median(longest.values()), longest[which], which)


def measure(dialect: str) -> Row:
    """Measure the delays of one dialect."""
    return Row(
        dialect,
        summarize_waits(ORDINARY, dialect),
        summarize_waits(CANDIDATES, dialect),
        summarize_waits(REFUSALS, dialect),
        summarize_waits(BEFORE_A_CALL, dialect, SHORT),
        summarize_waits(BEFORE_A_CALL, dialect, LONG),
    )


def measure_all() -> list[Row]:
    """Measure every dialect and native calls."""
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        return [measure(name) for name in progress.track((NATIVE, *DIALECTS), description="")]


def build_table(rows: Sequence[Row]) -> Table:
    """Build a table with one row for all dialects with the same delays of prose."""
    shown = Table(title="Characters that prose waits: median, worst, and the worst in seconds")
    shown.add_column("dialect", max_width=40)
    for column in Row.__struct_fields__[1:]:
        shown.add_column(column.replace("_", " "), justify="right")
    alike: dict[tuple[Waited, ...], list[Row]] = {}
    for row in rows:
        key = (row.ordinary, row.candidates, row.refusals)
        alike.setdefault(key, []).append(row)
    for prose, group in alike.items():
        before = max((row.before_a_call for row in group), key=_find_worst)
        long = max((row.before_a_long_call for row in group), key=_find_worst)
        cells = map(_format_cell, (*prose, before, long))
        shown.add_row(", ".join(row.dialect for row in group), *cells)
    return shown


def _find_worst(found: Waited) -> int:
    return found.worst


def _format_cell(found: Waited) -> str:
    return f"{found.median:g} {found.worst:>4} {found.seconds:>6.2f} s"


def main() -> int:
    options = argparse.ArgumentParser(description="How long prose waits in a stream.")
    options.add_argument("--json", action="store_true", help="print JSON")
    chosen = options.parse_args()
    rows = measure_all()
    if chosen.json:
        print(json.dumps(to_builtins(rows)))
        return 0
    Console(width=None if sys.stdout.isatty() else 130).print(build_table(rows))
    print(
        f"{len(ORDINARY)} ordinary replies, {len(CANDIDATES)} candidates, {len(REFUSALS)} "
        f"refusals, {len(BEFORE_A_CALL)} before calls; chunks of {CHUNK}, "
        f"{TOKENS_A_SECOND} in a second. What may be a refusal is undecided for at most "
        f"{MAX_UNDECIDED} characters."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
