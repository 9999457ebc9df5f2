"""The connections of clients: HTTP/1.1, one request after another.

Every connection is a `Caller`. The head of a request makes an `Incoming` and a `Sender`, and a task
that serves them; what comes next by the same connection waits until that is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

import httptools

from ..errors import WireError
from ..types import Failure
from ..upstream.timers import Alarm, Ticker
from ..upstream.write_batching import Corked
from ..wires import get_wire
from ..wires.framing import encode_json
from . import http
from .http import Incoming, Sender

log = logging.getLogger("toolspeak.gateway")
_IDLE = 75.0
"""For how many seconds a connection is kept that nobody uses: longer than clients do, for whom it
is better to know."""
_LINGER = 2.0
"""How many seconds a client has to notice that nobody reads what it goes on sending."""
_MOST_HEAD = 2**20
"""Bytes of a head after which nobody waits for its end."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_HTTP = "the request is not valid HTTP"
_NO_PROXY = "this server is not a proxy; send the request to its own URL"
_UPGRADE = frozenset({b"upgrade", b"connection", b"http2-settings"})
"""What asks for another protocol."""
_LONG_HEAD = f"the request has more than {_MOST_HEAD} bytes before or after its body"
Serve = Callable[[Incoming, Sender], Coroutine[Any, Any, None]]


class Callers:
    """All clients that are connected."""

    def __init__(self, serve: Serve, ticker: Ticker) -> None:
        self.serve = serve
        self.ticker = ticker
        self.connected: set[Caller] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that are being served."""
        self.is_closing = False
        """No connection outlives the request that it is used for."""

    def new(self) -> Caller:
        """For a client that connects."""
        return Caller(self)

    def close(self) -> None:
        """Let go of all that ask nothing; the others may end what they have begun."""
        self.is_closing = True
        for caller in tuple(self.connected):
            caller.let_go()

    def abort(self) -> None:
        """Let go of all."""
        for task in self.tasks:
            task.cancel()


class Caller(Corked):
    """One connection of a client."""

    def __init__(self, callers: Callers) -> None:
        super().__init__(callers.ticker)
        self._callers = callers
        self._parser: Any = httptools.HttpRequestParser(self)
        self._current: tuple[Incoming, Sender] | None = None
        """What is being answered."""
        self._task: asyncio.Task[None] | None = None
        """Who answers it."""
        self._waiting: deque[tuple[Incoming, Sender]] = deque()
        """What some clients ask before they have an answer."""
        self._later = b""
        """What they send then, as far as it is taken."""
        self._heard: Incoming | None = None
        """The request whose body comes."""
        self._is_in_head = False
        self._loose = 0
        """Bytes since the last that were a body's."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_still = False
        """Nothing more is read, until somebody wants it."""
        self._is_deaf = False
        """What comes now is of no use to anybody."""
        self.is_paused = False
        self._room = asyncio.Event()
        """Set while the client takes what it is sent."""
        self._is_held = False
        """The next request waits until the client takes what it was sent."""
        self._unsent = 0
        """Bytes that the client had still to take when it was last looked."""
        self._late = Alarm(self._give_up)
        self._stalled = Alarm(self._look)

    # What is asked of it.

    def go_on(self, incoming: Incoming) -> None:
        """Somebody wants the body of a request: read on."""
        if incoming.awaits_word:
            incoming.awaits_word = False
            self.write(_CONTINUE)
        self._resume()

    async def drained(self) -> None:
        """Wait until the client takes more, or is gone."""
        await self._room.wait()

    def answered(self, sender: Sender) -> None:
        """All of an answer was written: on to the next request."""
        if self._current is None or self._current[1] is not sender:
            return
        incoming, self._current = self._current[0], None
        if self._transport is None:
            return
        if not sender.keeps:
            self._is_deaf = True
        if incoming.is_complete:
            self._next()
        else:
            # To close it now would take the answer from a client that still writes.
            incoming.is_unwanted = True
            self._wait_for(_LINGER if self._is_deaf else http.PATIENCE)
            self._resume()

    def let_go(self) -> None:
        """Close it; after the answer, if somebody waits for one."""
        if self._current:
            self._current[1].keeps = False
        else:
            self._hang_up()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._callers.connected.add(self)
        self._room.set()
        if self._callers.is_closing:
            self._hang_up()
        else:
            self._wait_for(http.PATIENCE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._callers.connected.discard(self)
        self.ticker.unset(self._late)
        self.resume_writing()
        lost = [one for one in (self._current, *self._waiting) if one]
        self._current = self._heard = self._task = None
        self._waiting.clear()
        self._later = b""
        for incoming, _ in lost:
            incoming.lose()
        # They know us, and would wait with us for the collector of garbage.
        self._parser = None
        self._late.ring = self._stalled.ring = _nothing

    def eof_received(self) -> None:
        """A client that says no more is gone, as far as any of ours is concerned. It may still take
        what it was told: with this the event loop closes the connection."""
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf and self._heard is None:
            return
        if self._waiting:
            # It is taken, as far as there is room, since who goes is noticed only by reading on.
            self._later += data
            if len(self._later) > http.MOST_UNREAD:
                self._pause()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            self._read_without_upgrade(data[wish.args[0] :])
        except httptools.HttpParserError as problem:
            self._not_http(f"{_NO_HTTP}: {problem}")
        self._loose += len(data)
        if self._loose > _MOST_HEAD:
            self._not_http(_LONG_HEAD, 431)

    def pause_writing(self) -> None:
        self.is_paused = True
        self._room.clear()
        self._watch_unsent()

    def resume_writing(self) -> None:
        self.is_paused = False
        self._room.set()
        self.ticker.unset(self._stalled)
        if self._is_held and self._transport:
            self._is_held = False
            self._next()

    # What the parser finds.

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._loose = 0
        self._url, self._headers = b"", []
        if self._current is None:
            self._late.at = perf_counter() + http.PATIENCE

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after the body is of no use to anybody.
        if self._is_in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        parser = self._parser
        if parser.should_upgrade() or self._is_deaf:
            return
        method: str = parser.get_method().decode("latin-1")
        incoming = Incoming(self, method, _target(self._url), self._headers)
        is_old = parser.get_http_version() != "1.1"
        if is_old:
            incoming.awaits_word = False
        sender = Sender(self, incoming, is_old=is_old)
        may_stay = not is_old and not self._callers.is_closing
        sender.keeps = may_stay and parser.should_keep_alive()
        self._heard = incoming
        if self._current is None and not self._is_held:
            self._begin(incoming, sender)
        else:
            self._waiting.append((incoming, sender))

    def on_body(self, data: bytes) -> None:
        self._loose = 0
        if incoming := self._heard:
            incoming.take(data)
            if incoming.may_wait:
                self._pause()

    def on_message_complete(self) -> None:
        incoming, self._heard = self._heard, None
        if incoming:
            incoming.complete()
            if incoming.is_unwanted:
                self._next()

    # What it does.

    def _read_without_upgrade(self, rest: bytes) -> None:
        """No other protocol is spoken here, and who would like one is to be answered all the same:
        the parser, which takes all that follows for that protocol, reads the head anew."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._not_http(_NO_PROXY)
            return
        headers = [one for one in self._headers if one[0].lower() not in _UPGRADE]
        if not self._parser.should_keep_alive():
            headers.append((b"Connection", b"close"))
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b\r\n" % (method, self._url, version)]
        lines += [b"%b: %b\r\n" % header for header in headers]
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join((*lines, b"\r\n", rest)))

    def _next(self) -> None:
        """All was answered that is there: on to the next request, if there may be one."""
        if self._is_deaf:
            self._hang_up()
        elif self.is_paused:
            # Who takes nothing is not served any further.
            self._is_held = True
            self._pause()
        elif self._waiting:
            self._begin(*self._waiting.popleft())
        else:
            self._wait_for(_IDLE)
            self._resume()

    def _begin(self, incoming: Incoming, sender: Sender) -> None:
        self._current = incoming, sender
        self.ticker.unset(self._late)
        self._task = task = self.ticker.loop.create_task(self._callers.serve(incoming, sender))
        self._callers.tasks.add(task)
        task.add_done_callback(self._done)
        if not self._waiting:
            later, self._later = self._later, b""
            if later:
                self.data_received(later)
            # Who goes is noticed only where something is read.
            self._resume()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._callers.tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()):
            log.error("a request has failed", exc_info=problem)
        if self._task is task:
            self._task = None
            if self._current:
                # Its client would wait for the end of the answer for ever.
                self._drop()

    def _not_http(self, words: str, status: int = 400) -> None:
        """Say what is wrong, if nobody else can. Whatever comes now cannot be told from anything
        else."""
        self._is_deaf = True
        self._is_in_head = False
        if self._current:
            self._current[1].keeps = False
        if self._heard:
            # Who asks for the body is told, and tells the client in the words of its API.
            self._heard.fail(WireError(words))
            self._heard = None
        elif self._current is None and self._transport:
            sender = Sender(self)
            sender.keeps = False
            failure = Failure("bad_request" if status == 400 else "too_large", words, status)
            # Nobody knows by which API.
            sender.put(status, encode_json(get_wire("openai_chat").encode_failure(failure)))
            self._hang_up()

    def _wait_for(self, seconds: float) -> None:
        """Something has to happen within that time."""
        self._late.at = perf_counter() + seconds
        self.ticker.set(self._late)

    def _pause(self) -> None:
        if self._transport:
            self._is_still = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_still and self._transport:
            self._is_still = False
            self._transport.resume_reading()

    def _hang_up(self) -> None:
        """Close it, after what was written."""
        self.flush()
        if self._transport:
            self._transport.close()

    def _watch_unsent(self) -> None:
        """A client that does not read is let go: to close its connection would wait for ever."""
        if self._transport:
            self._unsent = self._transport.get_write_buffer_size()
            self._stalled.at = perf_counter() + http.PATIENCE
            self.ticker.set(self._stalled)

    def _look(self) -> None:
        """See whether a client has taken anything for a while."""
        if self._transport and self._transport.get_write_buffer_size() < self._unsent:
            self._watch_unsent()
        else:
            self._drop()

    def _give_up(self) -> None:
        """Nothing has happened for too long: also nobody takes what may still be to be written."""
        if self._transport and self._transport.get_write_buffer_size():
            self._drop()
        self._hang_up()

    def _drop(self) -> None:
        """Close it at once."""
        self.flush()
        self.drop()


def _target(url: bytes) -> str:
    """The path and the query, also of an address that is given whole."""
    target = url.decode("latin-1")
    if target.startswith("/"):
        return target
    try:
        found = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        return target
    path, query = found.path or b"/", found.query
    return (path + b"?" + query if query else path).decode("latin-1")


def _nothing() -> None:
    """Nobody is there any more."""
