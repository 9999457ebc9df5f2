"""Convert requests, replies and streams from one API to another."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from .._util import encode_json
from ..calls.tools import as_tools
from ..errors import UsageError, WireError
from ..events import Event, fold
from ..types import Note, Request
from ..wires import WIRES, Envelope, StreamDecoder, get_wire
from ..wires.framing import decode_json
from .arguments import STDIN, CommandParser
from .terminal import open_input, show_progress

KINDS = ("auto", "request", "reply", "message", "tools")
_REQUEST = frozenset({"messages", "contents", "input", "prompt"})
_REPLY = frozenset({"choices", "candidates", "output", "response", "stop_reason", "done"})
_STREAM = (b"data:", b"event:", b":")
_NO_REQUEST = Request(model="", messages=(), extra={"stream_options": {"include_usage": True}})


def add_arguments(parser: CommandParser) -> None:
    parser.add_input("convert this JSON, JSON lines or stream")
    parser.add(
        "--from",
        f"the input's API: {', '.join(WIRES)}",
        dest="source",
        required=True,
        metavar="API",
    )
    parser.add("--to", "the output's API", dest="target", required=True, metavar="API")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=STDIN,
        metavar="FILE",
        help="write to this file (default: standard output)",
    )
    parser.add_choice(
        "--kind", KINDS, "the kind of the JSON values; auto cannot detect lists of tools"
    )
    parser.add_flag("--quiet", "do not print notes about changed or dropped fields")


def run(options: argparse.Namespace) -> int:
    converter = Converter(options.source, options.target, options.kind)
    with open_input(options.file) as file:
        lines = show_progress(file, options.file)
        _write_output(converter.convert_lines(lines), options.output)
    if not options.quiet:
        for note in converter.notes:
            print(f"note: {note.code}: {note.message} - at `{note.where}`", file=sys.stderr)
    return 0


def _write_output(chunks: Iterable[bytes], path: Path) -> None:
    """Write to standard output, or to a file that appears only when it is complete."""
    if path == STDIN:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        return
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(chunks)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


class Converter:
    """Converts JSON values or a stream from one wire to another, and collects the notes."""

    def __init__(self, source: str, target: str, kind: str = "auto") -> None:
        self._source, self._target = get_wire(source), get_wire(target)
        self._kind = kind
        self.notes: dict[Note, None] = {}

    def convert_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Convert a file: one JSON value, one per line, or a stream."""
        iterator = iter(lines)
        first = next((line for line in iterator if line.strip()), b"")
        if first.startswith(_STREAM):
            yield from self._convert_stream(chain([first], iterator))
            return
        try:
            value = decode_json(first)
        except WireError:
            # The first line is incomplete, so the file is one value over several lines.
            value = decode_json(b"".join(chain([first], iterator)))
            yield _encode_indented(self.convert_value(value))
            return
        if isinstance(value, dict) and value.get("done") is False:
            yield from self._convert_stream(chain([first], iterator))
        else:
            yield from self._convert_json_lines(value, iterator)

    def _convert_json_lines(self, first: Any, following: Iterator[bytes]) -> Iterator[bytes]:
        lines = enumerate(following, 2)
        rest = (_decode_line(line, number) for number, line in lines if line.strip())
        converted: Iterable[Any]
        if self._detect_kind(first) == "message":
            converted = self._convert_messages([first, *rest])
        else:
            values = enumerate(chain([first], rest), 1)
            converted = (self.convert_value(value, number) for number, value in values)
        for value in converted:
            yield encode_json(value) + b"\n"

    def convert_value(self, value: Any, number: int = 1) -> Any:
        """Convert a request, a reply, messages, tools, or a list of requests or replies."""
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
            # Tools cannot be told apart from messages reliably.
            return "tools"
        if isinstance(value, list) and value:
            kind = self._detect_kind(value[0])
            parts_of_one = kind == "reply" and self._source.name == "gemini"
            return kind if kind == "message" or parts_of_one else "list"
        if not isinstance(value, dict):
            raise UsageError("Expected a JSON object: a request, a reply or a message")
        if self._kind != "auto":
            return self._kind
        keys = {key for key, item in value.items() if item is not None}
        if keys & _REPLY:
            return "reply"
        if keys & _REQUEST:
            return "request"
        return "message" if keys & {"role", "type"} else "reply"

    def _add_notes(self, *notes: Note) -> None:
        self.notes |= dict.fromkeys(notes)

    def _convert_request(self, body: Any) -> Any:
        request = self._source.decode_request(body)
        outgoing = self._target.encode_request(request)
        self._add_notes(*request.notes, *outgoing.notes)
        if request.model and "model" not in outgoing.body:
            message = f"the model is part of the path: {outgoing.path}"
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
        # Only the tools are converted, so notes on other fields do not apply.
        self._add_notes(*(note for note in outgoing.notes if note.where.startswith("$.tools")))
        return outgoing.body.get("tools", [])

    def _convert_messages(self, messages: list[Any]) -> list[Any]:
        """Convert a list of messages; a separate system prompt becomes the first message."""
        body = self._convert_request({self._source.messages_field: messages})
        converted = list(body[self._target.messages_field])
        if system := body.get("system"):
            converted.insert(0, {"role": "system", "content": system})
        if instruction := body.get("systemInstruction"):
            converted.insert(0, {**instruction, "role": "system"})
        return converted

    def _convert_stream(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        decoder = StreamDecoder(self._source, arguments="incremental")
        encoder = self._target.stream_encoder(Envelope(_NO_REQUEST))
        events: list[Event] = []
        for line in lines:
            decoded = decoder.feed(line)
            yield from map(encoder.feed, decoded)
            events += decoded
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
