"""Show what happened to a request, as the inspector does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table

from .._util import format_json
from ..errors import UsageError
from ..observe.inspector.client import InspectorClient
from .arguments import CommandParser
from .terminal import build_table, open_console, plain_text, write_json

_PREVIEW_LENGTH = 2000
"""Characters of a long text that are printed without `--full`."""
_LIST_LENGTH = 20
_PIPE_WIDTH, _LIST_PIPE_WIDTH = 100, 160


def add_arguments(parser: CommandParser) -> None:
    help_text = "an x-request-id, or `last` for the latest request (default: list the requests)"
    parser.add("id", help_text, nargs="?")
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
    printer = _RequestPrinter(open_console(_PIPE_WIDTH), None if options.full else _PREVIEW_LENGTH)
    printer.print_request(view)
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
    columns = ("time", "id", "api", "model", "mode", "calls", "retries", "ms", "status")
    table = build_table(columns, map(_list_cells, requests))
    table.box, table.pad_edge = None, False
    open_console(_LIST_PIPE_WIDTH).print(table)


def _list_cells(one: dict[str, Any]) -> Sequence[str]:
    return (
        f"{datetime.fromtimestamp(one['started_at']):%H:%M:%S}",
        *(one[name] for name in ("id", "wire", "model", "mode")),
        ", ".join(one["calls"]),
        str(one["retries"] or ""),
        f"{one['ms']:.0f}",
        str(one["status"] or "…"),
    )


# One request.


class _RequestPrinter:
    """Prints what the inspector knows about a request, in sections."""

    def __init__(self, console: Console, max_length: int | None) -> None:
        self._console = console
        self._max_length = max_length
        """Longer texts are shortened."""

    def print_request(self, view: dict[str, Any]) -> None:
        summary, request, response = view["summary"], view["request"], view["response"]
        self._print_fields(
            summary["id"],
            ("started", f"{datetime.fromtimestamp(summary['started_at']):%Y-%m-%d %H:%M:%S}"),
            ("user message", summary["user_message"]),
            ("model", f"{summary['model']} at {summary['upstream']}"),
            ("mode", summary["mode"]),
            ("duration", f"{summary['ms']:.1f} ms, {_count_retries(summary['retries'])}"),
            ("status", str(summary["status"])),
            ("failure", summary["failure"]),
            ("secrets", f"{view['masked_secrets']} masked" if view["masked_secrets"] else ""),
        )
        self._print_section(
            f"client request: {request['method']} {request['target']}", request["body"]
        )
        for number, attempt in enumerate(view["attempts"], 1):
            self._print_attempt(number, attempt)
        self._print_result(view)
        self._print_section(f"client response: {response['status']}", response["body"])

    def _print_attempt(self, number: int, attempt: dict[str, Any]) -> None:
        plan = attempt["plan"]
        reason = f" - {attempt['reason_text']}" if attempt["reason"] else ""
        dialect = f" in {plan['dialect']}" if plan["dialect"] else ""
        address = f"{attempt['address']}{attempt['path']}"
        self._print_fields(
            f"attempt {number}{reason}",
            ("model", f"{attempt['model']} at {attempt['upstream']} ({address})"),
            ("plan", f"{plan['mode']}{dialect}: {'; '.join(plan['reasons'])}"),
            ("first byte", _format_ms(attempt["first_byte_ms"])),
            ("end", _format_ms(attempt["end_ms"])),
            ("outcome", attempt["outcome_text"]),
            ("failure", (attempt["failure"] or {}).get("message", "")),
        )
        for message in attempt["prompt"]:
            self._print_section(f"prompt, {message['role']}", message["text"])
        if attempt["text"]:
            self._print_section("reply", attempt["text"])
        self._print_result(attempt)

    def _print_result(self, part: dict[str, Any]) -> None:
        """Print the calls and notes of an attempt, or of the whole request."""
        calls = [f"{one['name']}({format_json(one['arguments'])})" for one in part["calls"]]
        rejected = [
            f"{one['problem']} ({one['code']}, at {one['path']})"
            for one in part.get("rejected", ())
        ]
        notes = [
            f"{one['code']}: {one['message']}  {one['where'][:120]}".rstrip()
            for one in part["notes"]
        ]
        sections = (
            ("calls", calls, "green"),
            ("rejected calls", rejected, "red"),
            ("notes", notes, ""),
        )
        for title, lines, style in sections:
            if lines:
                self._print_section(title, "\n".join(lines), style)

    def _print_fields(self, title: str, *fields: tuple[str, str]) -> None:
        table = Table.grid(padding=(0, 2))
        for name, value in fields:
            if value:
                table.add_row(plain_text(name, "dim"), plain_text(value))
        self._console.print("", Rule(plain_text(title), align="left"), table, sep="\n")

    def _print_section(self, title: str, body: str, style: str = "") -> None:
        hidden = len(body) - (self._max_length or len(body))
        if hidden > 0:
            body = f"{body[:-hidden]}\n… {hidden} more characters; use --full to print them"
        self._console.print(plain_text(f"\n{title}", "bold"))
        self._console.print(Padding(plain_text(body, style), (0, 0, 0, 2)))


def _count_retries(number: int) -> str:
    return f"{number} {'retry' if number == 1 else 'retries'}"


def _format_ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"
