"""The pool of connections to upstreams: direct or through a proxy, plain or with TLS.

connection = pool.idle(origin) or await pool.connect(origin, timeout)
…
pool.release(connection)        keeps it for the next request, or closes it
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from base64 import b64encode
from functools import cache, lru_cache
from time import perf_counter
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs
from msgspec import Struct

from ..config.addresses import is_loopback
from .http_connection import Connection, Disconnected, HttpProblem
from .timers import Alarm, Ticker

_MAX_IDLE = 30.0
"""Seconds until an idle connection is closed. Most servers wait for a minute or two."""
_NEXT_ADDRESS_DELAY = 0.25
"""Seconds until a server's next address is tried as well."""
PATH_CHARACTERS = "/%:@!$&'()*+,;=~-._"
"""The characters that are not percent-encoded in a path."""
_SOCKET_ADDRESS = re.compile(r" ?\('[^)]*\)")
NO_HANDLES = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process, or a system, that has too many open files."""
_PORTS = {"http": 80, "https": 443}


class Origin(Struct, frozen=True):
    """The server at the other end, and the proxy to it, if there is one."""

    scheme: str
    host: str
    port: int
    proxy: str = ""

    @property
    def place(self) -> str:
        """The host and the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def netloc(self) -> str:
        """The host, and the port unless it is the default."""
        return self.place.removesuffix(f":{_PORTS[self.scheme]}")


class Address(Struct, frozen=True):
    """The parts of a base URL."""

    origin: Origin
    path: str
    """The prefix of every request target: a path, or through an HTTP proxy a URL."""
    head: str
    """The header lines that the URL determines."""
    authorization: str
    """The Authorization line for the user and password in the URL; a configured one replaces it."""


class CannotConnect(HttpProblem):
    """No connection to the server could be opened."""

    def __init__(
        self, message: str, *, is_timeout: bool = False, is_exhausted: bool = False
    ) -> None:
        super().__init__(message)
        self.is_timeout = is_timeout
        self.is_exhausted = is_exhausted
        """This process has no file handles left."""


class Pool:
    """All connections to upstreams, used and idle ones."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._idle: dict[Origin, list[tuple[float, Connection]]] = {}
        self._origins: dict[Connection, Origin] = {}
        """All open connections."""
        self._sweeping = Alarm(self._sweep)

    @property
    def size(self) -> int:
        """The number of open connections."""
        return len(self._origins)

    def idle(self, origin: Origin) -> Connection | None:
        """Return an idle connection that can be reused, or None."""
        idle = self._idle.get(origin)
        while idle:
            _, connection = idle.pop()
            if connection.is_reusable:
                return connection
        return None

    async def connect(self, origin: Origin, timeout: float) -> Connection:
        """Open a new connection."""
        connection = await self._open_connection(origin, timeout)
        self._origins[connection] = origin
        return connection

    def release(self, connection: Connection) -> None:
        """Keep a connection for the next request if it can be reused; else close it."""
        origin = self._origins.get(connection)
        if origin is None or not connection.is_reusable:
            connection.close()
            return
        connection.set_idle()
        now = perf_counter()
        if not self._idle:
            self._sweeping.at = now + _MAX_IDLE
            self._ticker.set(self._sweeping)
        self._idle.setdefault(origin, []).append((now, connection))

    def close(self) -> None:
        """Close every connection."""
        self._ticker.unset(self._sweeping)
        for connection in list(self._origins):
            connection.close()
        self._idle.clear()

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        now = perf_counter()
        oldest = now - _MAX_IDLE
        for origin, idle in list(self._idle.items()):
            for since, connection in idle:
                if since <= oldest:
                    connection.close()
            self._idle[origin] = [one for one in idle if one[0] > oldest and one[1].is_open]
            if not self._idle[origin]:
                del self._idle[origin]
        if self._idle:
            self._sweeping.at = now + _MAX_IDLE / 2
            self._ticker.set(self._sweeping)

    def _remove(self, connection: Connection) -> None:
        self._origins.pop(connection, None)

    # Connecting.

    async def _open_connection(self, origin: Origin, timeout: float) -> Connection:
        try:
            async with asyncio.timeout(timeout):
                if origin.proxy:
                    return await self._through_proxy(origin)
                tls = load_certificates() if origin.scheme == "https" else None
                return await self._direct(origin.host, origin.port, tls)
        except TimeoutError:
            message = f"cannot be reached within {timeout:g} s"
            raise CannotConnect(message, is_timeout=True) from None
        except (OSError, ssl.SSLError, UnicodeError) as problem:
            is_exhausted = getattr(problem, "errno", None) in NO_HANDLES
            message = f"cannot be reached: {_describe_error(problem)}"
            raise CannotConnect(message, is_exhausted=is_exhausted) from None

    async def _direct(self, host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        plain = await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=_NEXT_ADDRESS_DELAY, interleave=1
        )
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Detect a server that is gone even if it did not close the connection.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            name = host if tls else None
            _, connection = await loop.create_connection(
                self._new, sock=plain, ssl=tls, server_hostname=name
            )
        except BaseException:
            plain.close()
            raise
        return connection

    async def _through_proxy(self, origin: Origin) -> Connection:
        """Connect to a proxy, and for TLS through it to the server."""
        proxy = urlsplit(origin.proxy)
        if proxy.scheme not in _PORTS or not proxy.hostname:
            raise CannotConnect(
                "cannot be reached: the configured proxy is not an http:// or https:// URL"
            )
        tls = load_certificates() if proxy.scheme == "https" else None
        port = proxy.port or _PORTS[proxy.scheme]
        connection = await self._direct(proxy.hostname, port, tls)
        if origin.scheme == "http":
            return connection
        try:
            return await self._open_tunnel(connection, origin, proxy)
        except BaseException:
            connection.close()
            raise

    async def _open_tunnel(
        self, connection: Connection, origin: Origin, proxy: SplitResult
    ) -> Connection:
        where = origin.place
        lines = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{_proxy_authorization(proxy)}\r\n"
        try:
            await connection.send_request(lines.encode("latin-1"), perf_counter() + 3600)
        except Disconnected:
            raise CannotConnect("cannot be reached: the proxy closed the connection") from None
        if connection.status != 200:
            advice = "; put its user and password into its URL" if connection.status == 407 else ""
            problem = f"cannot be reached: the proxy answered {connection.status}{advice}"
            raise CannotConnect(problem)
        return await connection.with_tls(load_certificates(), origin.host)

    def _new(self) -> Connection:
        return Connection(self._ticker, self._remove)


@lru_cache(maxsize=256)
def address_of(base_url: str) -> Address:
    """Return the parts of a base URL, with the proxy that the environment sets for it."""
    parts = urlsplit(base_url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise CannotConnect("cannot be reached: its `base_url` must be an http:// or https:// URL")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as problem:
        raise CannotConnect(f"cannot be reached: {problem}") from None
    origin = Origin(parts.scheme, _ascii(parts.hostname), port, _proxy(parts))
    head = f"Host: {origin.netloc}\r\n"
    authorization = "" if parts.username is None else f"Authorization: {basic(parts)}\r\n"
    path = quote(parts.path.rstrip("/"), safe=PATH_CHARACTERS)
    if origin.proxy and parts.scheme == "http":
        head += _proxy_authorization(urlsplit(origin.proxy))
        path = f"http://{origin.netloc}{path}"
    return Address(origin, path, head, authorization)


def _proxy(address: SplitResult) -> str:
    """Return the proxy that the environment sets for a URL, or ""; loopback addresses have none."""
    host = address.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return ""
    found = getproxies()
    proxy = found.get(address.scheme) or found.get("all") or ""
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _proxy_authorization(proxy: SplitResult) -> str:
    return "" if proxy.username is None else f"Proxy-Authorization: {basic(proxy)}\r\n"


def basic(address: SplitResult) -> str:
    """Return the header value for the user and the password of a URL."""
    both = f"{unquote(address.username or '')}:{unquote(address.password or '')}"
    return f"Basic {b64encode(both.encode()).decode()}"


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError as problem:
        raise CannotConnect(f"cannot be reached: {problem}") from None


@cache
def load_certificates() -> ssl.SSLContext:
    """Return the TLS context of all connections; reading the certificates takes a while."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _describe_error(problem: Exception) -> str:
    """Return the message of an error without addresses, which clients do not see."""
    number = getattr(problem, "errno", None) or 0
    is_plain = number > 0 and not isinstance(problem, ssl.SSLError)
    message = os.strerror(number) if is_plain else _SOCKET_ADDRESS.sub("", str(problem))
    return message or type(problem).__name__
