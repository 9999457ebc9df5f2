"""Show what happened to a request that a gateway has served."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .._util import encode_json, escape_for_terminal
from ..errors import UsageError
from ..observe.inspector.client import Inspector
from .io import write_json

_SHOWN = 2000
"""So many characters of a long text are shown, unless all of it is asked for."""
_LISTED = 20
_STYLES = {
    "call": "green",
    "rejected": "red",
    "reasoning": "dim italic",
    "note": "underline",
    "secret": "yellow",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", help="an x-request-id, or `last`; without it, the last requests"
    )
    parser.add_argument("--url", help="the gateway; else the one that runs on this machine")
    parser.add_argument("--key", help="its admin key, if it has one; or TOOLSPEAK_ADMIN_KEY")
    parser.add_argument("--full", action="store_true", help="show long texts to their end")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    inspector = Inspector.at(options.url, options.key)
    if options.id is None:
        _list(_requests(inspector)[-_LISTED:], as_json=options.json)
        return 0
    shown = inspector.get(f"requests/{_key(inspector, options.id)}")
    if options.json:
        write_json(shown)
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(Group(*_request(shown, None if options.full else _SHOWN)))
    return 0


def _key(inspector: Inspector, wanted: str) -> str:
    if wanted != "last":
        return quote(wanted, safe="")
    requests = _requests(inspector)
    if not requests:
        raise UsageError(f"no request has reached {inspector.url} yet")
    return str(max(requests, key=lambda one: one["at"])["key"])


def _requests(inspector: Inspector) -> list[dict[str, Any]]:
    match inspector.get("requests"):
        case {"requests": list(requests)}:
            return requests
        case _:
            raise UsageError(f"what answers at {inspector.url} is no gateway of Toolspeak")


# All of them.


def _list(requests: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        write_json(requests)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("time", "id", "api", "model", "mode", "calls", "retries", "ms", "status"):
        table.add_column(column, justify="right" if column in ("retries", "ms") else "left")
    for one in requests:
        cells = (
            datetime.fromtimestamp(one["at"]).strftime("%H:%M:%S"),
            one["id"],
            one["wire"],
            one["model"],
            one["mode"],
            ", ".join(one["calls"]),
            str(one["retries"] or ""),
            f"{one['ms']:.0f}",
            str(one["status"] or "…"),
        )
        table.add_row(*map(_text, cells))
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


# One of them.


def _request(shown: dict[str, Any], most: int | None) -> Iterator[RenderableType]:
    summary, sent, received = shown["summary"], shown["sent"], shown["received"]
    when = datetime.fromtimestamp(summary["at"]).strftime("%Y-%m-%d %H:%M:%S")
    yield Rule(_text(summary["id"]), align="left")
    yield _pairs(
        ("when", when),
        ("asked", summary["asked"]),
        ("model", f"{summary['model']} at {summary['upstream']}"),
        ("mode", summary["mode"]),
        ("took", f"{summary['ms']:.1f} ms, {summary['retries']} retries"),
        ("status", str(summary["status"])),
        ("failure", summary["failure"]),
        ("secrets", f"{shown['hidden']} covered" if shown["hidden"] else ""),
    )
    yield from _section(f"the client sent: {sent['method']} {sent['target']}", sent["body"], most)
    for number, turn in enumerate(shown["turns"], 1):
        yield from _turn(number, turn, most)
    yield from _calls("calls", shown["calls"])
    yield from _notes(shown["notes"])
    yield from _section(f"the client received: {received['status']}", received["body"], most)


def _turn(number: int, turn: dict[str, Any], most: int | None) -> Iterator[RenderableType]:
    plan = turn["plan"]
    why = f" - {turn['why_text']}" if turn["why"] else ""
    yield _text("")
    yield Rule(_text(f"turn {number}{why}"), align="left")
    dialect = f" in {plan['dialect']}" if plan["dialect"] else ""
    yield _pairs(
        ("asked", f"{turn['model']} at {turn['upstream']} ({turn['address']}{turn['path']})"),
        ("plan", f"{plan['mode']}{dialect}: {'; '.join(plan['reasons'])}"),
        ("first byte", _ms(turn["first_ms"])),
        ("ended", _ms(turn["ms"])),
        ("outcome", turn["outcome_text"]),
        ("failure", (turn["failure"] or {}).get("message", "")),
    )
    for message in turn["prompt"]:
        yield from _section(f"prompt, {message['role']}", message["text"], most)
    if turn["text"]:
        yield _text("\nthe model wrote", "bold")
        yield Padding(_highlighted(turn, most), (0, 0, 0, 2))
    yield from _calls("calls", turn["calls"])
    for one in turn["rejected"]:
        yield _text(f"  no call: {one['problem']} ({one['code']}, at {one['path']})", "red")
    yield from _notes(turn["notes"])


def _section(title: str, body: str, most: int | None) -> Iterator[RenderableType]:
    yield _text(f"\n{title}", "bold")
    left = len(body) - most if most else 0
    shown = body[:most] if left > 0 else body
    more = f"\n… {left} more characters: --full shows them" if left > 0 else ""
    yield Padding(_text(shown + more), (0, 0, 0, 2))


def _highlighted(turn: dict[str, Any], most: int | None) -> Text:
    """What a model wrote, with its calls to be seen. The places count as JavaScript does."""
    units = turn["text"].encode("utf-16-le", "surrogatepass")
    text = _text("")
    cuts = sorted({0, len(units) // 2, *(span[end] for span in turn["spans"] for end in _ENDS)})
    for start, end in pairwise(cuts):
        inside = [one for one in turn["spans"] if one["start"] <= start and end <= one["end"]]
        piece = units[2 * start : 2 * end].decode("utf-16-le", "replace")
        text.append_text(_text(piece, _STYLES[inside[-1]["kind"]] if inside else ""))
    left = len(text) - most if most else 0
    if left > 0:
        text = text[:most]
        text.append(f"\n… {left} more characters: --full shows them")
    return text


_ENDS = ("start", "end")


def _calls(title: str, calls: Iterable[dict[str, Any]]) -> Iterator[RenderableType]:
    lines = [f"  {call['name']}({encode_json(call['arguments'])})" for call in calls]
    if lines:
        yield _text(f"\n{title}", "bold")
        yield _text("\n".join(lines), "green")


def _notes(notes: list[dict[str, Any]]) -> Iterator[RenderableType]:
    if notes:
        yield _text("\nnotes", "bold")
    for note in notes:
        where = f"  {note['where']}" if note["where"] else ""
        yield _text(f"  {note['code']}: {note['message']}{where[:120]}")


def _pairs(*pairs: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value:
            table.add_row(_text(name, "dim"), _text(value))
    return table


def _text(text: str, style: str = "") -> Text:
    """All that is shown goes through here: clients and models have written much of it."""
    return Text(escape_for_terminal(text), style)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"
