"""Take secrets out of files, logs and what comes from standard input."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ..scrubbing import Found, Scrubber
from .io import write_json

_CHUNK = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", default=["-"], help="standard input if left out")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print what was found instead of the text, an object on each line; never the secrets",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print where secrets are instead of the text; the exit code is 1 if there are any",
    )


def run(options: argparse.Namespace) -> int:
    some = False
    for path in options.files:
        with _opened(path) as file:
            some |= _scrub(path, _watched(file, path), options)
    return 1 if options.check and some else 0


def _scrub(path: str, chunks: Iterator[bytes], options: argparse.Namespace) -> bool:
    """One file to standard output, or the report of it; whether something was found."""
    some = False
    scrubber = Scrubber(source=path)
    for text in _scrubbed(scrubber, chunks):
        some |= bool(scrubber.found)
        if options.json or options.check:
            _report(path, scrubber.found, options.json)
        else:
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()
        scrubber.found.clear()
    return some


def _scrubbed(scrubber: Scrubber, chunks: Iterator[bytes]) -> Iterator[str]:
    """The text as it can be given on. Bytes that are no text come out as they went in."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for chunk in chunks:
        yield scrubber.feed(decoder.decode(chunk))
    yield scrubber.feed(decoder.decode(b"", final=True)) + scrubber.finish()


def _report(path: str, found: list[Found], as_json: bool) -> None:
    for one in found:
        if as_json:
            write_json({"file": path, **{key: getattr(one, key) for key in one.__struct_fields__}})
        else:
            print(f"{path}:{one.line}:{one.column}: {one.kind} {one.name}".rstrip())


@contextlib.contextmanager
def _opened(path: str) -> Generator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


def _watched(file: BinaryIO, path: str) -> Iterator[bytes]:
    """The chunks of a file as they come, with a bar that shows how far it is where somebody looks
    and nothing else is shown."""
    console = Console(stderr=True)
    is_seen = console.is_terminal and not sys.stdout.isatty()
    size = Path(path).stat().st_size if path != "-" else None
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not is_seen
    ) as progress:
        task = progress.add_task(path, total=size)
        while chunk := _read(file):
            yield chunk
            progress.advance(task, len(chunk))


def _read(file: BinaryIO) -> bytes:
    """What is there, and not more: a pipe may go on for days."""
    read = getattr(file, "read1", file.read)
    return read(_CHUNK)
