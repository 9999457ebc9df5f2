"""Convert requests, replies, streams and transcripts from one API to another."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import UsageError, WireError
from ..events import fold
from ..types import Note, Request
from ..wires import WIRES, Envelope, StreamDecoder, Wire, wire_of
from ..wires.framing import decode_json, encode_json

_CONVERSATION = {"gemini": "contents", "openai_responses": "input"}
"""Where a request keeps the conversation, if not in `messages`."""
_REQUEST = ("messages", "contents", "input", "prompt")
_REPLY = frozenset({"choices", "candidates", "output", "response", "stop_reason", "done"})
_STREAM = (b"data:", b"event:", b":")
_NO_REQUEST = Request(model="", messages=())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    wires = ", ".join(WIRES)
    parser.add_argument("file", nargs="?", default="-", help="JSON, JSON lines, or a stream")
    parser.add_argument("--from", dest="source", required=True, help=f"the API it is in: {wires}")
    parser.add_argument("--to", dest="target", required=True, help="the API it shall be in")
    parser.add_argument("-o", "--output", default="-", help="a file; standard output if left out")
    parser.add_argument(
        "--kind",
        choices=("auto", "request", "reply", "message"),
        default="auto",
        help="what each value is; lines of messages are one conversation",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the notes")


def run(options: argparse.Namespace) -> int:
    convert = _Conversion(wire_of(options.source), wire_of(options.target), options.kind)
    if options.file == "-":
        written = convert.all(sys.stdin.buffer)
        _write(written, options.output)
    else:
        with Path(options.file).open("rb") as file:
            _write(convert.all(_watched(file)), options.output)
    if not options.quiet:
        for note in convert.notes:
            print(f"note: {note.code}: {note.message} - at `{note.where}`", file=sys.stderr)
    return 0


def _write(pieces: Iterable[bytes], path: str) -> None:
    if path == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        return
    with Path(path).open("wb") as file:
        file.writelines(pieces)


def _watched(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, with a bar that shows how far it is where somebody looks."""
    size = Path(file.name).stat().st_size
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(Path(file.name).name, total=size)
        for line in file:
            yield line
            progress.advance(task, len(line))


class _Conversion:
    """Turns lines of one API into lines of another."""

    def __init__(self, source: Wire, target: Wire, kind: str) -> None:
        self._source, self._target, self._kind = source, target, kind
        self.notes: dict[Note, None] = {}

    def all(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Everything in a file: one value, a value on each line, or a stream."""
        iterator = iter(lines)
        first = next((line for line in iterator if line.strip()), b"")
        if first.startswith(_STREAM):
            yield from self._stream(_chained(first, iterator))
            return
        try:
            value = decode_json(first)
        except WireError:
            # Not all of it stands on one line: then it is one value.
            value = decode_json(b"".join(_chained(first, iterator)))
            yield self._pretty(value)
            return
        if isinstance(value, dict) and value.get("done") is False:
            yield from self._stream(_chained(first, iterator))
            return
        yield from self._lines(value, iterator)

    def _lines(self, value: Any, following: Iterator[bytes]) -> Iterator[bytes]:
        if self._kind_of(value) == "message":
            rest = [decode_json(line) for line in following if line.strip()]
            yield from self._transcript([value, *rest])
            return
        yield encode_json(self._converted(value, 1)) + b"\n"
        for number, line in enumerate(following, 2):
            if line.strip():
                yield encode_json(self._converted(_read(line, number), number)) + b"\n"

    def _pretty(self, value: Any) -> bytes:
        if isinstance(value, list):
            converted = [self._converted(item, index + 1) for index, item in enumerate(value)]
        else:
            converted = self._converted(value, 1)
        return (
            json.dumps(converted, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        )

    def _converted(self, value: Any, number: int) -> Any:
        try:
            match self._kind_of(value):
                case "request":
                    return self._request(value)
                case "message":
                    [body] = self._messages([value]) or [{}]
                    return body
                case _:
                    return self._reply(value)
        except WireError as error:
            raise UsageError(f"value {number}: {error}") from None

    def _kind_of(self, value: Any) -> str:
        if self._kind != "auto":
            return self._kind
        if not isinstance(value, dict):
            raise UsageError("Expected an object: a request, a reply or a message")
        if any(key in value for key in _REQUEST):
            return "request"
        if not _REPLY.isdisjoint(value):
            return "reply"
        return "message" if "role" in value or "type" in value else "reply"

    def _request(self, body: Any) -> Any:
        request = self._source.decode_request(body)
        outgoing = self._target.encode_request(request)
        self.notes |= dict.fromkeys((*request.notes, *outgoing.notes))
        return outgoing.body

    def _reply(self, body: Any) -> Any:
        reply = fold(self._source.decode_reply(body))
        self.notes |= dict.fromkeys(reply.notes)
        if reply.failure:
            raise UsageError(reply.failure.message)
        return self._target.encode_reply(reply, Envelope(_NO_REQUEST, reply.id))

    def _transcript(self, messages: list[Any]) -> Iterator[bytes]:
        for message in self._messages(messages):
            yield encode_json(message) + b"\n"

    def _messages(self, messages: list[Any]) -> list[Any]:
        """A conversation without anything around it. Instructions that a request would keep apart
        are its first message."""
        body = self._request({_CONVERSATION.get(self._source.name, "messages"): messages})
        said = list(body[_CONVERSATION.get(self._target.name, "messages")])
        if system := body.get("system"):
            said.insert(0, {"role": "system", "content": system})
        if instruction := body.get("systemInstruction"):
            said.insert(0, {**instruction, "role": "system"})
        return said

    def _stream(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        decoder = StreamDecoder(self._source)
        encoder = self._target.encoder(Envelope(_NO_REQUEST))
        for line in lines:
            for event in decoder.feed(line):
                yield encoder.feed(event)
        for event in decoder.finish():
            yield encoder.feed(event)


def _read(line: bytes, number: int) -> Any:
    try:
        return decode_json(line)
    except WireError as error:
        raise UsageError(f"line {number}: {error.problem}") from None


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
