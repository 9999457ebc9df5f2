"""The store of the first process, which its workers reach by a socket that only they know.

With it, several workers remember, count and show as one, without any other program beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UsageError
from .base import MemoryStore
from .remote import RemoteStore

_NAME = "store"
_LONGEST_PATH = 103
"""Bytes of a path to a socket on macOS; Linux takes four more."""
_HEAD = struct.Struct(">I")
_COMMANDS = frozenset(
    ("get", "put", "put_many", "delete", "push", "list_items", "increment", "read_counters")
)
_MOST = 64 * 2**20
"""Bytes of one message: more does not fit into the store either."""


class StoreServer:
    """Has the store, and lets others use it."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self._folder = _new_folder()
        self.path = str(self._folder / _NAME)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._serving.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError, msgspec.MsgspecError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            name, arguments, options = msgspec.msgpack.decode(await _message(reader))
            if name not in _COMMANDS:
                return
            answer = await getattr(self._store, name)(*arguments, **options)
            writer.write(_framed(answer))
            await writer.drain()


class SocketStore(RemoteStore):
    """The same store, from another process."""

    errors = (OSError, EOFError)

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        """For answers, which come in the order of the commands."""
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    async def get(self, key: str) -> bytes | None:
        return await self._ask(None, "get", _plain(key))

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        await self._ask(None, "put", _plain(key), value, seconds)

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        plain = {_plain(key): value for key, value in values.items()}
        await self._ask(None, "put_many", plain, seconds)

    async def delete(self, key: str) -> None:
        await self._ask(None, "delete", _plain(key))

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        await self._ask(
            None, "push", _plain(key), value, {"max_items": max_items, "seconds": seconds}
        )

    async def list_items(self, key: str) -> list[bytes]:
        return await self._ask([], "list_items", _plain(key))

    async def increment(
        self, key: str, amounts: Mapping[str, float], *, writer: str = "", batch: int = 0
    ) -> None:
        plain = {_plain(name): amount for name, amount in amounts.items()}
        options = {"writer": writer, "batch": batch}
        await self._ask(None, "increment", _plain(key), plain, options)

    async def read_counters(self, key: str) -> dict[str, float]:
        sums: dict[str, float] = await self._ask({}, "read_counters", _plain(key))
        return {_original(name): amount for name, amount in sums.items()}

    async def ping(self) -> bool:
        await self._try(None, "get", "")
        return self.last_error is None

    async def close(self) -> None:
        if self._reading:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        if self._writer:
            self._writer.close()

    async def _execute(self, *command: Any) -> Any:
        name, *arguments = command
        options = arguments.pop() if name in ("push", "increment") else {}
        writer = await self._connected()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        writer.write(_framed((name, arguments, options)))
        return await answer

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None or self._writer.is_closing():
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                self._waiting = deque()
                self._reading = asyncio.create_task(self._read(reader, self._writer, self._waiting))
            return self._writer

    async def _read(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waiting: deque[asyncio.Future[Any]],
    ) -> None:
        try:
            while True:
                value = msgspec.msgpack.decode(await _message(reader))
                answer = waiting.popleft()
                if not answer.done():
                    answer.set_result(value)
        except (OSError, EOFError, msgspec.MsgspecError):
            writer.close()
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(ConnectionError("the first process has exited"))


def _new_folder() -> Path:
    """A folder that only this user can open, with a path that is short enough for a socket."""
    for place in (None, os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):  # noqa: S108 - a folder of its own in it
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="toolspeak-", dir=place))
            if len(os.fsencode(folder / _NAME)) <= _LONGEST_PATH:
                return folder
            folder.rmdir()
    raise UsageError(
        "no temporary folder has a path short enough for the socket that workers share: "
        "set TMPDIR to one, `store` to a Redis URL, or `server.workers` to 1"
    )


def _plain(text: str) -> str:
    """A text that can be sent, whatever is in it: half a surrogate pair cannot."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _original(plain: str) -> str:
    return plain.encode("latin-1").decode("utf-8", "surrogatepass")


async def _message(reader: asyncio.StreamReader) -> bytes:
    (length,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if length > _MOST:
        raise EOFError
    return await reader.readexactly(length)


def _framed(value: Any) -> bytes:
    data = msgspec.msgpack.encode(value)
    return _HEAD.pack(len(data)) + data
