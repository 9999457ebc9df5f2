"""A conversation as it grows, in memory and, if it has a path, in a file of JSON lines.

    {"message": {"role": "user", "parts": [{"type": "text", "text": "…"}]}}
    {"message": {"role": "assistant", "parts": [{"type": "call", "id": "call_1", …}]}}
    {"running": "call_1"}
    {"message": {"role": "tool", "parts": [{"type": "result", "call_id": "call_1", …}]}}

Each line is on the disk before anything is done that depends on it: what a tool has given is there
before the model hears of it, and that a tool was started is there before it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import UsageError
from ..types import Message, Text, ToolCall, ToolResult


class _Line(Struct, omit_defaults=True):
    message: Message | None = None
    running: str | None = None


_DECODER = msgspec.json.Decoder(_Line)


class Transcript:
    """What was said and done so far. A file that exists is read, and gone on with."""

    def __init__(self, path: str | Path | None = None, messages: Iterable[Message] = ()) -> None:
        self.path = Path(path) if path else None
        self._messages: list[Message] = []
        self._running: set[str] = set()
        self._end: int | None = None
        """Where the file ends, without a line that was cut off."""
        self._gap = b""
        """What has to be written before the next line."""
        if self.path and self.path.exists():
            self._read(self.path)
        for message in messages:
            self.add(message)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them; the results of a turn in the order of its calls."""
        return tuple(_in_order(self._messages))

    @property
    def pending(self) -> list[ToolCall]:
        """The calls of the last turn that have no result."""
        answered: set[str] = set()
        for message in reversed(self._messages):
            answered |= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
            if message.role == "assistant":
                calls = (part for part in message.parts if isinstance(part, ToolCall))
                return [call for call in calls if call.id not in answered]
        return []

    @property
    def is_open(self) -> bool:
        """Whether somebody was not answered yet."""
        return bool(self.pending or (self._messages and self._messages[-1].role != "assistant"))

    def was_started(self, call: ToolCall) -> bool:
        """Whether a call without a result may have been made all the same."""
        return call.id in self._running

    def add(self, message: Message) -> None:
        """Take down what was said."""
        self._messages.append(message)
        self._write(_Line(message=message))

    def say(self, text: str) -> None:
        """Take down what the user says."""
        self.add(Message("user", (Text(text),)))

    def started(self, call: ToolCall) -> None:
        """Take down that a tool is about to be run."""
        self._running.add(call.id)
        self._write(_Line(running=call.id))

    def result(self, result: ToolResult) -> None:
        """Take down what a tool has given."""
        self.add(Message("tool", (result,)))

    def _write(self, line: _Line) -> None:
        if self.path is None:
            return
        data = msgspec.json.encode(line) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if self._end is not None:
                # What was cut off by a crash, or a full disk, would spoil this line too.
                os.ftruncate(descriptor, self._end)
            os.lseek(descriptor, 0, os.SEEK_END)
            os.write(descriptor, self._gap + data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._end, self._gap = None, b""

    def _read(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(f"{path} is no file: a transcript cannot be there")
        data = path.read_bytes()
        lines = data.split(b"\n")
        torn = lines.pop()
        for number, line in enumerate(lines, 1):
            self._take(line, f"{path}:{number}")
        try:
            if torn:
                # It may lack nothing but its end.
                self._take(torn, f"{path}:{len(lines) + 1}")
                self._gap = b"\n"
        except UsageError:
            self._end = len(data) - len(torn)

    def _take(self, data: bytes, where: str) -> None:
        try:
            line = _DECODER.decode(data)
        except msgspec.MsgspecError as problem:
            raise UsageError(f"{where} is no line of a transcript: {problem}") from None
        if line.message:
            self._messages.append(line.message)
        if line.running:
            self._running.add(line.running)


def _in_order(messages: list[Message]) -> Iterable[Message]:
    """Results as they come are in the order of their ends; here, in that of their calls."""
    places: dict[str, int] = {}
    held: list[tuple[int, Message]] = []
    for message in messages:
        if message.role == "tool":
            held.append((_place(message, places), message))
            continue
        yield from _sorted(held)
        held = []
        if message.role == "assistant":
            calls = (part for part in message.parts if isinstance(part, ToolCall))
            places = {call.id: place for place, call in enumerate(calls)}
        yield message
    yield from _sorted(held)


def _place(message: Message, places: dict[str, int]) -> int:
    results = (part for part in message.parts if isinstance(part, ToolResult))
    return min((places.get(result.call_id, len(places)) for result in results), default=0)


def _sorted(held: list[tuple[int, Message]]) -> Iterable[Message]:
    return (message for _, message in sorted(held, key=lambda pair: pair[0]))
