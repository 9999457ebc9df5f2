"""Turn requests, replies and streams of one API into another's."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ..calls.tools import as_tools
from ..errors import UsageError, WireError
from ..events import Event, fold
from ..types import Note, Request
from ..wires import WIRES, Envelope, StreamDecoder, get_wire
from ..wires.framing import decode_json, encode_json

KINDS = ("auto", "request", "reply", "message", "tools")
_REQUEST = frozenset({"messages", "contents", "input", "prompt"})
_REPLY = frozenset({"choices", "candidates", "output", "response", "stop_reason", "done"})
_STREAM = (b"data:", b"event:", b":")
_NO_REQUEST = Request(model="", messages=(), extra={"stream_options": {"include_usage": True}})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    wires = ", ".join(WIRES)
    parser.add_argument("file", nargs="?", default="-", help="JSON, JSON lines, or a stream")
    parser.add_argument(
        "--from", dest="source", required=True, metavar="API", help=f"the API it is in: {wires}"
    )
    parser.add_argument(
        "--to", dest="target", required=True, metavar="API", help="the API it shall be in"
    )
    parser.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="a file; standard output if left out"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="auto",
        help="what each value is; lines of messages are one conversation",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the notes")


def run(options: argparse.Namespace) -> int:
    convert = Converter(options.source, options.target, options.kind)
    if options.file == "-":
        written = convert.convert_lines(sys.stdin.buffer)
        _write_output(written, options.output)
    else:
        with Path(options.file).open("rb") as file:
            _write_output(convert.convert_lines(_watched(file)), options.output)
    if not options.quiet:
        for note in convert.notes:
            print(f"note: {note.code}: {note.message} - at `{note.where}`", file=sys.stderr)
    return 0


def _write_output(pieces: Iterable[bytes], path: str) -> None:
    """Write to standard output, or to a file that is there only when all of it is."""
    if path == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        return
    unfinished = Path(f"{path}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(pieces)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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


class Converter:
    """Turns lines of one API into lines of another."""

    def __init__(self, source: str, target: str, kind: str = "auto") -> None:
        self._source, self._target = get_wire(source), get_wire(target)
        self._kind = kind
        self.notes: dict[Note, None] = {}

    def convert_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Everything in a file: one value, a value on each line, or a stream."""
        iterator = iter(lines)
        first = next((line for line in iterator if line.strip()), b"")
        if first.startswith(_STREAM):
            yield from self._convert_stream(chain([first], iterator))
            return
        try:
            value = decode_json(first)
        except WireError:
            # Not all of it stands on one line: then it is one value.
            value = decode_json(b"".join(chain([first], iterator)))
            yield _encode_indented(self.convert_value(value))
            return
        if isinstance(value, dict) and value.get("done") is False:
            yield from self._convert_stream(chain([first], iterator))
        else:
            yield from self._convert_json_lines(value, iterator)

    def _convert_json_lines(self, value: Any, following: Iterator[bytes]) -> Iterator[bytes]:
        if self._detect_kind(value) == "message":
            rest = [
                _decode_line(line, number)
                for number, line in enumerate(following, 2)
                if line.strip()
            ]
            for message in self._convert_messages([value, *rest]):
                yield encode_json(message) + b"\n"
            return
        yield encode_json(self.convert_value(value)) + b"\n"
        for number, line in enumerate(following, 2):
            if line.strip():
                yield encode_json(self.convert_value(_decode_line(line, number), number)) + b"\n"

    def convert_value(self, value: Any, number: int = 1) -> Any:
        """A request, a reply, a conversation, a list of tools, or of the first two."""
        try:
            match self._detect_kind(value):
                case "request":
                    return self._convert_request(value)
                case "message":
                    return self._convert_messages(value if isinstance(value, list) else [value])
                case "reply":
                    return self._convert_reply(value)
                case "tools":
                    return self._convert_tools(value)
                case _:
                    return [
                        self.convert_value(item, index) for index, item in enumerate(value, number)
                    ]
        except WireError as error:
            raise UsageError(f"value {number}: {error}") from None

    def _detect_kind(self, value: Any) -> str:
        if self._kind == "tools":
            # They are told from messages by nothing that is certain.
            return "tools"
        if isinstance(value, list) and value:
            kind = self._detect_kind(value[0])
            parts_of_one = kind == "reply" and self._source.name == "gemini"
            return kind if kind == "message" or parts_of_one else "list"
        if not isinstance(value, dict):
            raise UsageError("Expected an object: a request, a reply or a message")
        if self._kind != "auto":
            return self._kind
        said = {key for key, item in value.items() if item is not None}
        if said & _REPLY:
            return "reply"
        if said & _REQUEST:
            return "request"
        return "message" if said & {"role", "type"} else "reply"

    def _add_notes(self, *notes: Note) -> None:
        self.notes |= dict.fromkeys(notes)

    def _convert_request(self, body: Any) -> Any:
        request = self._source.decode_request(body)
        outgoing = self._target.encode_request(request)
        self._add_notes(*request.notes, *outgoing.notes)
        if request.model and "model" not in outgoing.body:
            message = f"the model stands in the path: {outgoing.path}"
            self._add_notes(Note("converted", message, "$.model"))
        return outgoing.body

    def _convert_reply(self, body: Any) -> Any:
        reply = fold(self._source.decode_reply(body))
        self._add_notes(*reply.notes, *self._target.find_losses(reply))
        if reply.failure:
            raise UsageError(reply.failure.message)
        return self._target.encode_reply(reply, Envelope(_NO_REQUEST, reply.id))

    def _convert_tools(self, tools: Any) -> Any:
        outgoing = self._target.encode_request(
            Request(model="", messages=(), tools=as_tools(tools), wire=self._source.name)
        )
        # What a request would need beside its tools is not asked for here.
        self._add_notes(*(note for note in outgoing.notes if note.where.startswith("$.tools")))
        return outgoing.body.get("tools", [])

    def _convert_messages(self, messages: list[Any]) -> list[Any]:
        """A conversation without anything around it. Instructions that a request would keep apart
        are its first message."""
        body = self._convert_request({self._source.messages_field: messages})
        said = list(body[self._target.messages_field])
        if system := body.get("system"):
            said.insert(0, {"role": "system", "content": system})
        if instruction := body.get("systemInstruction"):
            said.insert(0, {**instruction, "role": "system"})
        return said

    def _convert_stream(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        decoder = StreamDecoder(self._source, arguments="incremental")
        encoder = self._target.stream_encoder(Envelope(_NO_REQUEST))
        events: list[Event] = []
        for line in lines:
            heard = decoder.feed(line)
            yield from map(encoder.feed, heard)
            events += heard
        last = decoder.finish()
        yield from map(encoder.feed, last)
        reply = fold([*events, *last])
        self._add_notes(*reply.notes, *self._target.find_losses(reply))


def _encode_indented(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _decode_line(line: bytes, number: int) -> Any:
    try:
        return decode_json(line)
    except WireError as error:
        raise UsageError(f"line {number}: {error.problem}") from None
