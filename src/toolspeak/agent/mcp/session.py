"""A connection to a server, from its start to its end.

It lives in a task of its own. The SDK's contexts have to be left in the task that has entered them,
but an agent may be opened in one task and closed in another. Requests may come from any.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anyio
import mcp_types as sdk
from mcp import Client, MCPError
from pydantic import ValidationError

from ... import __version__
from ..tools import ToolFailed
from . import transports
from .endpoints import Address, Command, Place
from .failures import NotSent, NotStarted, ServerFailed, root_of, words_for
from .request_state import Journey
from .results import sendable
from .tool_list import Listing

# What the SDK has to say is for those who have set up where it goes.
logging.getLogger("mcp").addHandler(logging.NullHandler())

Answer = TypeVar("Answer")
_ADVICE = "Try once more, or go on without it."
_FORGOTTEN = (sdk.INVALID_REQUEST, sdk.CONNECTION_CLOSED)
"""With HTTP 400, what servers say of a session that they do not know."""
_GRACE = 5.0
"""Seconds that a server has to part in peace."""
_CHECK = 5.0
"""Seconds in which a server that is alive answers what costs it nothing."""


class Session:
    """One connection. It is opened once; after its end there is another."""

    def __init__(self, name: str, place: Place, startup: float) -> None:
        self._name = name
        self._place = place
        self._startup = startup
        self._listing = Listing()
        self._complaints = transports.Complaints()
        self._start = Journey()
        self._client: Client | None = None
        self._problem: BaseException | None = None
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None
        self._running = 0
        self._is_suspect = False
        """A call was given up. Either it takes long, or the server does not answer any more."""

    @property
    def is_alive(self) -> bool:
        return self._client is not None and not self._over.is_set()

    async def open(self) -> None:
        """Connect, and read the list of tools; `NotStarted` if that does not come to anything."""
        self._task = asyncio.create_task(self._live(), name=f"MCP server {self._name}")
        try:
            await self._ready.wait()
        except BaseException:
            await self.close()
            raise
        if self._client is None:
            await self.close()
            await asyncio.to_thread(self._complaints.complete)
            raise self._not_started()

    async def close(self) -> None:
        """Part from the server: in peace if it lets us, and in time."""
        if self._task is None:
            return
        if not self._ready.is_set():
            self._scope.cancel()
        self._over.set()
        done, _ = await asyncio.wait({self._task}, timeout=_GRACE)
        if not done:
            self._scope.cancel()
            await asyncio.wait({self._task})

    async def tools(self) -> tuple[sdk.Tool, ...]:
        """The tools that the server has now. It is asked only if they may have changed, and if it
        can be expected to answer."""
        is_asked = self.is_alive and not self._listing.is_current and not self._is_suspect
        if self._client and is_asked:
            await self._answer(self._listing.read(self._client), self._startup)
        return self._listing.tools

    async def call(
        self, tool: str, arguments: dict[str, Any], seconds: float | None
    ) -> sdk.CallToolResult:
        """What a tool gives."""
        if self._client is None or not self.is_alive:
            raise NotSent(f"the MCP server {self._name!r} has ended")
        self._running += 1
        try:
            asked = self._client.call_tool(tool, sendable(arguments))
            return await self._answer(asked, seconds)
        except asyncio.CancelledError:
            self._is_suspect = True
            raise
        finally:
            self._running -= 1

    async def is_good(self) -> bool:
        """Whether it can be used. After a call that was given up it is tried out, unless others
        still wait for their results."""
        if not self._is_suspect or self._running or not self.is_alive or not self._client:
            return self.is_alive
        try:
            await self._answer(self._listing.read(self._client), _CHECK)
        except ToolFailed:
            return False
        self._is_suspect = False
        return True

    # The task.

    async def _live(self) -> None:
        try:
            with self._scope, self._start.begun():
                self._scope.deadline = anyio.current_time() + self._startup
                async with self._connection() as client, anyio.create_task_group() as group:
                    await self._listing.read(client)
                    self._scope.deadline = math.inf
                    self._client = client
                    group.start_soon(self._listing.listen, client)
                    await self._until_over()
                    group.cancel_scope.cancel()
        except Exception as problem:
            self._problem = root_of(problem)
        finally:
            self._over.set()
            self._ready.set()

    async def _until_over(self) -> None:
        self._ready.set()
        try:
            await self._over.wait()
        finally:
            # Whoever is told that the connection is closed shall know that this is true.
            self._over.set()

    def _connection(self) -> Client:
        return Client(
            transports.watched(self._way(), self._over.set),
            client_info=sdk.Implementation(name="toolspeak", version=__version__),
            message_handler=self._listing.heard,
        )

    def _way(self) -> AbstractAsyncContextManager[transports.TransportStreams]:
        if isinstance(self._place, Command):
            return transports.stdio(self._place, self._name, self._complaints)
        return transports.http(self._place)

    # What an answer comes to, or that there is none.

    async def _answer(self, asked: Awaitable[Answer], seconds: float | None) -> Answer:
        """What the server answers; what it says instead is raised."""
        journey = Journey()
        try:
            with journey.begun():
                async with asyncio.timeout(seconds):
                    return await asked
        except TimeoutError:
            self._is_suspect = True
            raise self._failed(f"has not answered in {seconds or 0:g} s") from None
        except MCPError as problem:
            raise await self._meaning(problem, journey) from None
        except (ValidationError, RuntimeError) as problem:
            # The SDK compares results with what the server itself has declared.
            said = f"has answered with something else than it promises: {words_for(problem)}"
            raise self._failed(said) from None

    async def _meaning(self, problem: MCPError, journey: Journey) -> ToolFailed:
        """What an error is. Servers have codes of their own, and some that the SDK has, too."""
        code, status = problem.code, journey.status
        is_cut_off = problem.message.startswith("SSE stream")
        if code == sdk.CONNECTION_CLOSED and (is_cut_off or self._over.is_set()):
            await self.close()
            return self._lost(journey)
        if status == 404 or (status == 400 and code in _FORGOTTEN):
            # The server was started anew, and does not know of this session.
            await self.close()
            return NotSent(f"{self._who} has forgotten this session: {problem.message}")
        if status is not None and code == sdk.INTERNAL_ERROR:
            return self._failed(f"has failed with HTTP {status} ({problem.message})")
        return ToolFailed(problem.message)

    def _lost(self, journey: Journey) -> ServerFailed:
        if isinstance(self._place, Address) and not journey.has_left:
            reason = words_for(self._problem) if self._problem else "it has ended"
            return NotSent(f"{self._who} cannot be reached: {reason}")
        return self._failed(
            "was lost in the midst of it",
            "It is not known what it has done: find out before you call it again.",
        )

    def _failed(self, what: str, advice: str = _ADVICE) -> ServerFailed:
        return ServerFailed(f"{self._who} {what}. {advice}")

    @property
    def _who(self) -> str:
        return f"the MCP server {self._name!r}"

    def _not_started(self) -> NotStarted:
        """What was tried, what came of it, and what the program said last."""
        verb = "started" if isinstance(self._place, Command) else "reached"
        lines = "".join(f"\n    {line}" for line in self._complaints.lines)
        said = f"\n  It said last:{lines}" if lines else ""
        what, reason = f"{self._who} cannot be {verb}", self._reason()
        return NotStarted(f"{what}: {self._place}: {reason}{said}", f"{what}: {reason}")

    def _reason(self) -> str:
        problem, status = self._problem, self._start.status
        if problem is None:
            return f"it has not answered in {self._startup:g} s"
        if isinstance(problem, MCPError) and problem.code == sdk.CONNECTION_CLOSED:
            return "it has ended before it answered"
        if status is None:
            return words_for(problem)
        advice = ": are its headers right?" if status in (401, 403) else ""
        return f"HTTP {status} ({words_for(problem)}){advice}"
