"""Show what happened to a request, as the inspector does."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .._util import encode_json
from ..errors import UsageError
from ..observe.inspector.client import InspectorClient
from .arguments import CommandParser
from .terminal import open_console, plain_text, write_json

_PREVIEW_LENGTH = 2000
"""Characters of a long text that are printed without `--full`."""
_LIST_LENGTH = 20
_PIPE_WIDTH, _LIST_PIPE_WIDTH = 100, 160
_HIGHLIGHT_STYLES = {
    "call": "green",
    "rejected": "red",
    "reasoning": "dim italic",
    "note": "underline",
    "secret": "yellow",
}


def add_arguments(parser: CommandParser) -> None:
    parser.add("id", "an x-request-id, or last (default: list the requests)", nargs="?")
    parser.add("--url", "the gateway's URL (default: the gateway that was started last)")
    parser.add("--key", "the gateway's admin key (default: $TOOLSPEAK_ADMIN_KEY)")
    parser.add_flag("--full", "print long texts in full")
    parser.add_flag("--json", "print JSON")


def run(options: argparse.Namespace) -> int:
    inspector = InspectorClient.connect(options.url, options.key)
    if options.id is None:
        _print_list(_list_requests(inspector)[-_LIST_LENGTH:], as_json=options.json)
        return 0
    view = inspector.get(f"requests/{_find_key(inspector, options.id)}")
    if options.json:
        write_json(view)
        return 0
    console = open_console(_PIPE_WIDTH)
    console.print(Group(*_render_request(view, None if options.full else _PREVIEW_LENGTH)))
    return 0


def _find_key(inspector: InspectorClient, wanted: str) -> str:
    if wanted != "last":
        return quote(wanted, safe="")
    requests = _list_requests(inspector)
    if not requests:
        raise UsageError(f"{inspector.url} has served no request yet")
    return str(max(requests, key=lambda one: one["started_at"])["key"])


def _list_requests(inspector: InspectorClient) -> list[dict[str, Any]]:
    match inspector.get("requests"):
        case {"requests": list(requests)}:
            return requests
        case _:
            raise UsageError(f"{inspector.url} is not a Toolspeak gateway")


def _print_list(requests: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        write_json(requests)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("time", "id", "api", "model", "mode", "calls", "retries", "ms", "status"):
        table.add_column(column, justify="right" if column in ("retries", "ms") else "left")
    for one in requests:
        cells = (
            datetime.fromtimestamp(one["started_at"]).strftime("%H:%M:%S"),
            one["id"],
            one["wire"],
            one["model"],
            one["mode"],
            ", ".join(one["calls"]),
            str(one["retries"] or ""),
            f"{one['ms']:.0f}",
            str(one["status"] or "…"),
        )
        table.add_row(*map(plain_text, cells))
    open_console(_LIST_PIPE_WIDTH).print(table)


# One request.


def _render_request(view: dict[str, Any], limit: int | None) -> Iterator[RenderableType]:
    summary, request, response = view["summary"], view["request"], view["response"]
    started = datetime.fromtimestamp(summary["started_at"]).strftime("%Y-%m-%d %H:%M:%S")
    yield Rule(plain_text(summary["id"]), align="left")
    yield _render_fields(
        ("started", started),
        ("user message", summary["user_message"]),
        ("model", f"{summary['model']} at {summary['upstream']}"),
        ("mode", summary["mode"]),
        ("duration", f"{summary['ms']:.1f} ms, {summary['retries']} retries"),
        ("status", str(summary["status"])),
        ("failure", summary["failure"]),
        ("secrets", f"{view['masked_secrets']} masked" if view["masked_secrets"] else ""),
    )
    yield from _render_section(
        f"client request: {request['method']} {request['target']}", request["body"], limit
    )
    for number, attempt in enumerate(view["attempts"], 1):
        yield from _render_attempt(number, attempt, limit)
    yield from _render_calls(view["calls"])
    yield from _render_notes(view["notes"])
    yield from _render_section(f"client response: {response['status']}", response["body"], limit)


def _render_attempt(
    number: int, attempt: dict[str, Any], limit: int | None
) -> Iterator[RenderableType]:
    plan = attempt["plan"]
    reason = f" - {attempt['reason_text']}" if attempt["reason"] else ""
    yield plain_text("")
    yield Rule(plain_text(f"attempt {number}{reason}"), align="left")
    dialect = f" in {plan['dialect']}" if plan["dialect"] else ""
    address = f"{attempt['address']}{attempt['path']}"
    yield _render_fields(
        ("model", f"{attempt['model']} at {attempt['upstream']} ({address})"),
        ("plan", f"{plan['mode']}{dialect}: {'; '.join(plan['reasons'])}"),
        ("first byte", _format_ms(attempt["first_byte_ms"])),
        ("end", _format_ms(attempt["end_ms"])),
        ("outcome", attempt["outcome_text"]),
        ("failure", (attempt["failure"] or {}).get("message", "")),
    )
    for message in attempt["prompt"]:
        yield from _render_section(f"prompt, {message['role']}", message["text"], limit)
    if attempt["text"]:
        yield plain_text("\nreply", "bold")
        yield Padding(_render_reply(attempt, limit), (0, 0, 0, 2))
    yield from _render_calls(attempt["calls"])
    for one in attempt["rejected"]:
        line = f"  rejected call: {one['problem']} ({one['code']}, at {one['path']})"
        yield plain_text(line, "red")
    yield from _render_notes(attempt["notes"])


def _render_section(title: str, body: str, limit: int | None) -> Iterator[RenderableType]:
    yield plain_text(f"\n{title}", "bold")
    hidden = len(body) - limit if limit else 0
    shown = body[:limit] + _describe_hidden(hidden) if hidden > 0 else body
    yield Padding(plain_text(shown), (0, 0, 0, 2))


def _render_reply(attempt: dict[str, Any], limit: int | None) -> Text:
    """Return the reply with its highlights as styles; their offsets count UTF-16 units."""
    units = attempt["text"].encode("utf-16-le", "surrogatepass")
    highlights = attempt["highlights"]
    text = plain_text("")
    edges = {0, len(units) // 2}
    edges.update(one[edge] for one in highlights for edge in ("start", "end"))
    for start, end in pairwise(sorted(edges)):
        inside = [one for one in highlights if one["start"] <= start and end <= one["end"]]
        part = units[2 * start : 2 * end].decode("utf-16-le", "replace")
        style = _HIGHLIGHT_STYLES[inside[-1]["kind"]] if inside else ""
        text.append_text(plain_text(part, style))
    hidden = len(text) - limit if limit else 0
    if hidden > 0:
        text = text[:limit]
        text.append(_describe_hidden(hidden))
    return text


def _describe_hidden(count: int) -> str:
    return f"\n… {count} more characters; use --full to print them"


def _render_calls(calls: Iterable[dict[str, Any]]) -> Iterator[RenderableType]:
    lines = [f"  {call['name']}({encode_json(call['arguments'])})" for call in calls]
    if lines:
        yield plain_text("\ncalls", "bold")
        yield plain_text("\n".join(lines), "green")


def _render_notes(notes: list[dict[str, Any]]) -> Iterator[RenderableType]:
    if notes:
        yield plain_text("\nnotes", "bold")
    for note in notes:
        where = f"  {note['where']}" if note["where"] else ""
        yield plain_text(f"  {note['code']}: {note['message']}{where[:120]}")


def _render_fields(*fields: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in fields:
        if value:
            table.add_row(plain_text(name, "dim"), plain_text(value))
    return table


def _format_ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"
