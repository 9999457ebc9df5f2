"""Input, output and configuration that the commands share."""

from __future__ import annotations

import argparse
import codecs
import json
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .._util import escape_for_terminal
from ..config.loading import OPTIONS, LoadedConfig, read_config
from ..config.settings import Config
from ..errors import UsageError
from .arguments import STDIN

_PIPE_WIDTH = 120
log = logging.getLogger("toolspeak.cli")


# Input.


def read_text(path: Path) -> str:
    """Read a file or standard input; bytes that are not UTF-8 are escaped."""
    data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


@contextmanager
def open_input(path: Path) -> Generator[BinaryIO]:
    """Open a file, or standard input, which stays open."""
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None


def show_progress(chunks: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """Yield the chunks of a file, with a progress bar if only standard error is a terminal."""
    console = Console(stderr=True)
    is_shown = console.is_terminal and not sys.stdout.isatty()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not is_shown
    ) as progress:
        size = path.stat().st_size if path != STDIN else None
        task = progress.add_task(str(path), total=size)
        for chunk in chunks:
            yield chunk
            progress.advance(task, len(chunk))


# Output.


def write_json(value: Any) -> None:
    """Print a value as one line of JSON, in ASCII if standard output cannot encode it."""
    plain = msgspec.to_builtins(value)
    text = json.dumps(plain, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain)
    print(text, flush=True)


def open_console(pipe_width: int = _PIPE_WIDTH) -> Console:
    """Return a console for standard output, with a fixed width in a pipe."""
    return Console(width=None if sys.stdout.isatty() else pipe_width, highlight=False)


def open_status_console() -> Console:
    """Return a console for progress and remarks on standard error."""
    return Console(stderr=True, highlight=False)


def plain_text(text: str, style: str = "") -> Text:
    """Return text that is safe to print: users, servers or models wrote it."""
    return Text(escape_for_terminal(text), style)


def print_text(console: Console, text: str) -> None:
    """Print text that users, servers or models wrote; the terminal wraps its lines."""
    console.print(plain_text(text), soft_wrap=True)


def build_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    numbers: bool = False,
) -> Table:
    """Build a table; `numbers` aligns all columns but the first to the right."""
    table = Table(title=title)
    for index, column in enumerate(columns):
        is_right = numbers and index > 0
        table.add_column(column, overflow="fold", justify="right" if is_right else "left")
    for row in rows:
        table.add_row(*map(plain_text, row))
    return table


# The configuration.


class ConfigSource:
    """Reads the configuration that the command line and the environment select."""

    def __init__(
        self,
        options: argparse.Namespace,
        console: Console,
        on_read: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self._on_read = on_read
        """Called before warnings are printed."""
        self._options = options
        self._console = console
        self._file: Path | None = options.config

    def read_config(self) -> Config:
        return self.load().config

    def load(self) -> LoadedConfig:
        """Read the configuration; options override environment variables. Print its warnings."""
        loaded = read_config(self._file, os.environ, read_overrides(self._options))
        # A reload must read the same file: if it has disappeared, that is an error.
        self._file = Path(loaded.source) if loaded.source else None
        self._on_read(loaded.config)
        for warning in loaded.warnings:
            print_warning(self._console, loaded.config, f"warning: {warning}")
        return loaded


def read_overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options given that override settings."""
    given = {option: getattr(options, option.removeprefix("--"), None) for option in OPTIONS}
    return {
        option: str(value) if isinstance(value, Path) else value
        for option, value in given.items()
        if value is not None
    }


def print_warning(console: Console, config: Config, warning: str) -> None:
    """Print a warning, or log it if the log is JSON lines."""
    if config.server.log_format == "json":
        log.warning(warning.removeprefix("warning: "))
    else:
        print_text(console, warning)
