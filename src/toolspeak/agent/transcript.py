"""A conversation as it grows, in memory and, if it has a path, in a file of JSON lines.

    {"message": {"role": "user", "parts": [{"type": "text", "text": "…"}]}}
    {"message": {"role": "assistant", "parts": [{"type": "call", "id": "call_1", …}]}}
    {"running": "call_1"}
    {"message": {"role": "tool", "parts": [{"type": "result", "call_id": "call_1", …}]}}
    {"message": {"role": "assistant", "parts": […]}, "partial": true}

Each line is on the disk before anything is done that depends on it: what a tool has given is there
before the model hears of it, and that a tool was started is there before it is.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..errors import UsageError
from ..types import Message, Text, ToolCall, ToolResult

StructType = TypeVar("StructType", bound=Struct)


class _Line(Struct, omit_defaults=True):
    message: Message | None = None
    partial: bool = False
    """The message was broken off."""
    running: str | None = None
    """The call that is about to be made."""
    retracted: bool = False
    """The last message counts no more."""


_DECODER = msgspec.json.Decoder(_Line)


class Transcript:
    """What was said and done so far. A file that exists is read, and gone on with."""

    def __init__(self, path: str | Path | None = None, messages: Iterable[Message] = ()) -> None:
        self.path = Path(path) if path else None
        self._messages: list[Message] = []
        self._started_ids: set[str] = set()
        self._is_partial = False
        """Whether the last message was broken off."""
        self._is_locked = False
        self._truncate_at: int | None = None
        """Where the file ends, without a line that was cut off."""
        self._separator = b""
        """What has to be written before the next line."""
        self._known_size = 0
        """How long the file was when it was last looked at."""
        if self.path and self.path.exists():
            self._load(self.path)
        for message in messages:
            self.add(message)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them; results stand behind their calls, and in their order."""
        return tuple(_order_results(self._messages))

    @property
    def needs_reply(self) -> bool:
        """Whether somebody was not answered yet."""
        if self.pending_calls or self._is_partial:
            return True
        return bool(self._messages) and self._messages[-1].role != "assistant"

    @property
    def is_partial(self) -> bool:
        """Whether the model was interrupted in the last that it said."""
        return self._is_partial

    @property
    def pending_calls(self) -> list[ToolCall]:
        """The calls that have no result."""
        parts = [part for message in self._messages for part in message.parts]
        answered = {part.call_id for part in parts if isinstance(part, ToolResult)}
        calls = (part for part in parts if isinstance(part, ToolCall))
        return [call for call in calls if call.id not in answered]

    @property
    def call_ids(self) -> set[str]:
        """The ids of all calls so far."""
        parts = (part for message in self._messages for part in message.parts)
        return {part.id for part in parts if isinstance(part, ToolCall)}

    def was_started(self, call: ToolCall) -> bool:
        """Whether a call without a result may have been made all the same."""
        return call.id in self._started_ids

    def is_latest(self, call: ToolCall) -> bool:
        """Whether nothing was said since that call was made."""
        said = next((one for one in reversed(self._messages) if one.role != "tool"), None)
        return said is not None and call in said.parts

    @contextmanager
    def lock(self) -> Generator[None]:
        """While somebody goes on with it, nobody else may."""
        if self._is_locked:
            raise UsageError("this conversation is being gone on with already")
        self._is_locked = True
        try:
            with _lock_file(self.path) as size:
                if size != self._known_size:
                    raise UsageError(
                        f"{self.path} was changed by another program since it was read"
                    )
                yield
        finally:
            self._is_locked = False

    # Taking down.

    def add(self, message: Message, *, is_partial: bool = False) -> Message:
        """Take down what was said."""
        message = make_writable(message)
        self._write(_Line(message=message, partial=is_partial))
        self._messages.append(message)
        self._is_partial = is_partial
        return message

    def add_user_text(self, text: str) -> None:
        """Take down what the user says."""
        self.add(Message("user", (Text(text),)))

    def mark_started(self, call: ToolCall) -> None:
        """Take down that a tool is about to be run."""
        self._write(_Line(running=call.id))
        self._started_ids.add(call.id)

    def add_result(self, result: ToolResult) -> ToolResult:
        """Take down what a tool has given; that is given back as it can be written."""
        [kept] = self.add(Message("tool", (result,))).parts
        assert isinstance(kept, ToolResult)
        return kept

    def retract_last(self) -> None:
        """The last message was broken off, and is to be said anew."""
        self._write(_Line(retracted=True))
        self._drop_last()

    def _drop_last(self) -> None:
        self._messages.pop()
        self._is_partial = False

    # Files.

    def create_file(self) -> None:
        """Have the file there, even if nothing was said yet."""
        if self.path:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))

    def _write(self, line: _Line) -> None:
        """Write a line, or nothing of it."""
        if self.path is None:
            return
        data = msgspec.json.encode(line) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if self._truncate_at is not None:
                # What was cut off by a crash would spoil this line too.
                os.ftruncate(descriptor, self._truncate_at)
            end = os.lseek(descriptor, 0, os.SEEK_END)
            try:
                _write_all(descriptor, self._separator + data)
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, end)
                raise
            self._known_size = os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)
        self._truncate_at, self._separator = None, b""

    def _load(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(f"{path} is no file: a transcript cannot be there")
        data = path.read_bytes()
        self._known_size = len(data)
        lines = data.split(b"\n")
        torn = lines.pop()
        for number, line in enumerate(lines, 1):
            self._load_line(line, f"{path}:{number}")
        try:
            if torn:
                # It may lack nothing but its end.
                self._load_line(torn, f"{path}:{len(lines) + 1}")
                self._separator = b"\n"
        except UsageError:
            self._truncate_at = len(data) - len(torn)

    def _load_line(self, data: bytes, where: str) -> None:
        try:
            line = _DECODER.decode(data)
        except msgspec.MsgspecError as problem:
            raise UsageError(f"{where} is no line of a transcript: {problem}") from None
        if line.message:
            self._messages.append(line.message)
            self._is_partial = line.partial
        if line.running:
            self._started_ids.add(line.running)
        if line.retracted and self._messages:
            self._drop_last()


def make_writable(value: StructType) -> StructType:
    """A value that can be written down and sent: without halves of characters, which are no text
    but do come."""
    try:
        msgspec.json.encode(value)
        return value
    except UnicodeEncodeError:
        cleaned = _replace_surrogates(msgspec.to_builtins(value))
        return msgspec.convert(cleaned, type(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise UsageError(f"this cannot be written as JSON: {problem}") from None


def _replace_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {
                _replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()
            }
        case list() | tuple():
            return [_replace_surrogates(item) for item in value]
        case _:
            return value


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of it: a disk that is nearly full takes less."""
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def _lock_file(path: Path | None) -> Generator[int]:
    """Keep other programs from going on with the same file, where the system can do that. Gives how
    long it is."""
    try:
        import fcntl
    except ImportError:
        fcntl = None
    if path is None or fcntl is None:
        yield path.stat().st_size if path and path.exists() else 0
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{path} is being gone on with by another program") from None
        yield os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _order_results(messages: list[Message]) -> Iterable[Message]:
    """Results as they come are in the order of their ends, and may come after other words; APIs
    want them right behind their calls, in the order of those."""
    results: dict[str, ToolResult] = {}
    for message in messages:
        found = (part for part in message.parts if isinstance(part, ToolResult))
        results |= {result.call_id: result for result in found}
    for message in messages:
        if message.role != "tool":
            yield message
        calls = (part for part in message.parts if isinstance(part, ToolCall))
        given = (results[call.id] for call in calls if call.id in results)
        yield from (Message("tool", (result,)) for result in given)
