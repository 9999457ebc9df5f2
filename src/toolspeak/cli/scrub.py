"""Replace the secrets in files or standard input with placeholders."""

from __future__ import annotations

import argparse
import codecs
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError
from ..security.scrubbing import Scrubber, SecretFinding
from .arguments import STDIN, CommandParser, format_error
from .terminal import open_input, show_progress, write_json

_CHUNK = 1 << 16
_BOM_SIZE = 4
_ZERO_SHARE = 4
"""If more than one byte in four is zero, the file is not UTF-8."""
_REPORTED_FIELDS = ("kind", "name", "line", "column", "offset")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def add_arguments(parser: CommandParser) -> None:
    parser.add(
        "files",
        "scrub these files (default: standard input)",
        nargs="*",
        type=Path,
        default=[STDIN],
        metavar="FILE",
    )
    parser.add_flag("--json", "print the location of each secret as JSON, instead of the text")
    parser.add_flag(
        "--check",
        "print the location of each secret, instead of the text; exit with 1 if there are any",
    )


def run(options: argparse.Namespace) -> int:
    """Scrub every file, even if one of them cannot be read."""
    has_secrets = has_failed = False
    for path in options.files:
        try:
            with open_input(path) as file:
                has_secrets |= _scrub_file(path, show_progress(_read_chunks(file), path), options)
        except BrokenPipeError:
            raise
        except (UsageError, OSError) as error:
            print(f"toolspeak: {format_error(error)}", file=sys.stderr)
            has_failed = True
    if has_failed:
        return 2
    return 1 if options.check and has_secrets else 0


def _scrub_file(path: Path, chunks: Iterator[bytes], options: argparse.Namespace) -> bool:
    """Write a scrubbed file, or its findings, to standard output; return True if it has any."""
    has_secrets = False
    scrubber = Scrubber(source=str(path))
    start = _read_start(chunks)
    encoding, errors = _detect_encoding(start, path)
    texts = _decode_chunks(itertools.chain([start], chunks), encoding, errors, path)
    for text in _scrub_texts(scrubber, texts):
        has_secrets |= bool(scrubber.findings)
        if options.json or options.check:
            _report(path, scrubber.findings, options.json)
        else:
            sys.stdout.buffer.write(text.encode(encoding, errors))
            sys.stdout.buffer.flush()
        scrubber.findings.clear()
    return has_secrets


def _read_start(chunks: Iterator[bytes]) -> bytes:
    """Read enough of a file to detect its encoding."""
    start = b""
    while len(start) < _BOM_SIZE and (chunk := next(chunks, b"")):
        start += chunk
    return start


def _detect_encoding(start: bytes, path: Path) -> tuple[str, str]:
    """Return the encoding and the error handler, which keeps invalid bytes of UTF-8 unchanged."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if start.startswith(mark):
            return encoding, "surrogatepass"
    if start.count(0) * _ZERO_SHARE > len(start):
        raise UsageError(
            f"{path} is binary, or UTF-16 without a byte order mark: convert it to UTF-8"
        )
    return "utf-8", "surrogateescape"


def _decode_chunks(
    chunks: Iterable[bytes], encoding: str, errors: str, path: Path
) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    try:
        for chunk in chunks:
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid {encoding}: {error.reason}") from None


def _scrub_texts(scrubber: Scrubber, texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield scrubber.feed(text)
    yield scrubber.finish()


def _report(path: Path, found: list[SecretFinding], as_json: bool) -> None:
    for one in found:
        if as_json:
            write_json({"file": str(path), **{key: getattr(one, key) for key in _REPORTED_FIELDS}})
        else:
            print(f"{path}:{one.line}:{one.column}: {one.kind} {one.name}".rstrip())


def _read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes at hand without waiting for more: a pipe may stay open for days."""
    read = getattr(file, "read1", file.read)
    while chunk := read(_CHUNK):
        yield chunk
