"""Input, output and errors that the commands share."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._util import escape_for_terminal
from ..errors import UsageError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells expect it."""
_PIPE_WIDTH = 120


def read_text(path: str) -> str:
    """Read a file, or standard input for "-"; bytes that are not UTF-8 are escaped."""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def read_json(path: str) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None


def write_json(value: Any) -> None:
    """Print a value as one line of JSON, in ASCII if standard output cannot encode it."""
    plain = msgspec.to_builtins(value)
    text = json.dumps(plain, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain)
    print(text)


def open_console() -> Console:
    """Return a console for tables on standard output, with a fixed width in a pipe."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def build_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None
) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_for_terminal(cell)) for cell in row))
    return table


@contextmanager
def explain_missing_packages(feature: str, extras: str) -> Generator[None]:
    """Turn a failed import into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"{feature} needs {missing.name}: pip install 'toolspeak[{extras}]'"
        ) from None
