"""Take secrets out of files, logs and standard input."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import itertools
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import UsageError
from ..security.scrubbing import Scrubber, SecretFinding
from .io import write_json

_CHUNK = 1 << 16
_ENOUGH = 4
_MANY = 4
"""Where more than each fourth byte is zero, there is no UTF-8."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""What a file begins with, and how it is written then."""


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
    """Each file; one that can not be read does not keep the others from being read."""
    some = failed = False
    for path in options.files:
        try:
            with _opened(path) as file:
                some |= _scrub(path, _watched(file, path), options)
        except BrokenPipeError:
            raise
        except (UsageError, OSError) as error:
            print(f"toolspeak: {error}", file=sys.stderr)
            failed = True
    if failed:
        return 2
    return 1 if options.check and some else 0


def _scrub(path: str, chunks: Iterator[bytes], options: argparse.Namespace) -> bool:
    """One file to standard output, or the report of it; whether something was found."""
    some = False
    scrubber = Scrubber(source=path)
    first = _first(chunks)
    encoding, errors = _encoding(first, path)
    for text in _scrubbed(scrubber, _decoded(itertools.chain([first], chunks), encoding, errors)):
        some |= bool(scrubber.findings)
        if options.json or options.check:
            _report(path, scrubber.findings, options.json)
        else:
            sys.stdout.buffer.write(text.encode(encoding, errors))
            sys.stdout.buffer.flush()
        scrubber.findings.clear()
    return some


def _first(chunks: Iterator[bytes]) -> bytes:
    """The beginning of a file: enough of it to tell its encoding."""
    first = b""
    while len(first) < _ENOUGH and (chunk := next(chunks, b"")):
        first += chunk
    return first


def _encoding(first: bytes, path: str) -> tuple[str, str]:
    """How a file is written, and what to do with bytes that are no text: in UTF-8 they come out as
    they went in. UTF-16 is known by its first two bytes; without them nobody can tell."""
    for mark, encoding in _MARKS:
        if first.startswith(mark):
            return encoding, "surrogatepass"
    if first.count(0) * _MANY > len(first):
        raise UsageError(f"{path} can not be read: it is no text, or UTF-16 that does not say so")
    return "utf-8", "surrogateescape"


def _decoded(chunks: Iterable[bytes], encoding: str, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    try:
        for chunk in chunks:
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UsageError(f"this is no {encoding}: {error.reason}") from None


def _scrubbed(scrubber: Scrubber, texts: Iterator[str]) -> Iterator[str]:
    """The text as it can be given on."""
    for text in texts:
        yield scrubber.feed(text)
    yield scrubber.finish()


def _report(path: str, found: list[SecretFinding], as_json: bool) -> None:
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
