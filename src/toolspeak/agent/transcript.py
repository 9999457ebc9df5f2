"""A conversation as it grows, in memory and, if it has a path, in a file of JSON lines.

    {"message": {"role": "user", "parts": [{"type": "text", "text": "…"}]}}
    {"message": {"role": "assistant", "parts": [{"type": "call", "id": "call_1", …}]}}
    {"running": "call_1"}
    {"message": {"role": "tool", "parts": [{"type": "result", "call_id": "call_1", …}]}}
    {"message": {"role": "assistant", "parts": […]}, "partial": true}

Each line is synced to disk before anything depends on it: a result before the model sees it, and
the start of a call before its tool runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from ..errors import UsageError
from ..types import Message, ToolCall, ToolResult

StructType = TypeVar("StructType", bound=Struct)


class _Line(Struct, omit_defaults=True):
    message: Message | None = None
    partial: bool = False
    """The message was interrupted."""
    running: str | None = None
    """The id of a call that is about to run."""
    retracted: bool = False
    """The last message no longer counts."""


_DECODER = msgspec.json.Decoder(_Line)


class Transcript:
    """The messages of a conversation; with a path, each is also added to that file."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._messages: list[Message] = []
        """Without those that hold results."""
        self._results: dict[str, ToolResult] = {}
        """By call id: they may arrive in any order, and after other messages."""
        self._started_ids: set[str] = set()
        self.is_partial = False
        """True if the model's last message was interrupted."""
        self._is_locked = False
        self._truncate_at: int | None = None
        """The end of the file without a torn last line; None if no line is torn."""
        self._separator = b""
        """Bytes to write before the next line."""
        self._known_size = 0
        """The size of the file when it was last read or written."""

    @classmethod
    def load(cls, path: str | Path | None) -> Transcript:
        """Return a transcript that continues a file; without one, a new transcript."""
        transcript = cls(Path(path) if path else None)
        if transcript.path and transcript.path.exists():
            transcript._load(transcript.path)
        return transcript

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages; results directly follow their calls, in the calls' order, as APIs
        require."""
        return tuple(self._list_messages())

    def _list_messages(self) -> Iterator[Message]:
        for message in self._messages:
            yield message
            for call in _list_calls(message):
                if result := self._results.get(call.id):
                    yield Message("tool", (result,))

    @property
    def needs_reply(self) -> bool:
        """True if the model has to answer the last message."""
        if not self._messages:
            return False
        last = self._messages[-1]
        is_answer = last.role == "assistant" and not _list_calls(last) and not self.is_partial
        return not is_answer or bool(self.pending_calls)

    @property
    def calls(self) -> list[ToolCall]:
        return [call for message in self._messages for call in _list_calls(message)]

    @property
    def pending_calls(self) -> list[ToolCall]:
        """The calls without a result."""
        return [call for call in self.calls if call.id not in self._results]

    def was_started(self, call: ToolCall) -> bool:
        """Return True if the call was about to run: it may have run, even if it has no result."""
        return call.id in self._started_ids

    def is_latest(self, call: ToolCall) -> bool:
        """Return True if the call is in the last message that is not a result."""
        return call in self._messages[-1].parts

    @contextmanager
    def lock(self) -> Generator[None]:
        """Let only one task, and only one program, continue the conversation at a time."""
        if self._is_locked:
            raise UsageError("this conversation is already in use by another run")
        self._is_locked = True
        try:
            with _lock_file(self.path) as size:
                if size != self._known_size:
                    raise UsageError(f"{self.path} was changed by another program; load it again")
                yield
        finally:
            self._is_locked = False

    # Writing.

    def add(self, message: Message, *, is_partial: bool = False) -> Message:
        """Append a message, and return it as it was written."""
        message = make_writable(message)
        self._write(_Line(message=message, partial=is_partial))
        self._append(message, is_partial)
        return message

    def _append(self, message: Message, is_partial: bool) -> None:
        results = (part for part in message.parts if isinstance(part, ToolResult))
        self._results |= {result.call_id: result for result in results}
        if message.role != "tool":
            self._messages.append(message)
        self.is_partial = is_partial

    def add_result(self, result: ToolResult) -> ToolResult:
        """Append a result, and return it as it was written."""
        [written] = self.add(Message("tool", (result,))).parts
        assert isinstance(written, ToolResult)
        return written

    def mark_started(self, call: ToolCall) -> None:
        """Record that a call is about to run."""
        self._write(_Line(running=call.id))
        self._started_ids.add(call.id)

    def retract_last(self) -> None:
        """Remove the last message, which was interrupted and will be generated again."""
        self._write(_Line(retracted=True))
        self._drop_last()

    def _drop_last(self) -> None:
        self._messages.pop()
        self.is_partial = False

    # The file.

    def create_file(self) -> None:
        """Create the file if it does not exist yet."""
        if self.path:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))

    def _write(self, line: _Line) -> None:
        """Write a line completely or not at all."""
        if self.path is None:
            return
        data = msgspec.json.encode(line) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if self._truncate_at is not None:
                # A line torn by a crash would make this one unreadable too.
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
            raise UsageError(f"{path} is not a file, so it cannot hold a transcript")
        data = path.read_bytes()
        self._known_size = len(data)
        lines = data.split(b"\n")
        last = lines.pop()
        for number, line in enumerate(lines, 1):
            self._load_line(line, f"{path}:{number}")
        try:
            if last:
                # It may lack only its line break.
                self._load_line(last, f"{path}:{len(lines) + 1}")
                self._separator = b"\n"
        except UsageError:
            self._truncate_at = len(data) - len(last)

    def _load_line(self, data: bytes, location: str) -> None:
        try:
            line = _DECODER.decode(data)
        except msgspec.MsgspecError as problem:
            raise UsageError(f"{location} is not a transcript line: {problem}") from None
        if line.message:
            self._append(line.message, line.partial)
        if line.running:
            self._started_ids.add(line.running)
        if line.retracted and self._messages:
            self._drop_last()


def make_writable(value: StructType) -> StructType:
    """Return the value with lone surrogates replaced, which cannot be written or sent."""
    try:
        msgspec.json.encode(value)
        return value
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return msgspec.convert(json.loads(text.encode("utf-8", "replace")), type(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise UsageError(f"the message cannot be written as JSON: {problem}") from None


def _write_all(descriptor: int, data: bytes) -> None:
    """Write everything: `os.write` may write less when the disk is nearly full."""
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def _lock_file(path: Path | None) -> Generator[int]:
    """Lock a file against other programs, where the system can, and yield its size."""
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
            raise UsageError(f"{path} is in use by another program") from None
        yield os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _list_calls(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if isinstance(part, ToolCall)]
