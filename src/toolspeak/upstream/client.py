"""Sends requests to upstreams, with retries, over one pool of connections, and reads the responses.

Every problem is an `UpstreamError`, whose message is for clients: it names the upstream, without
its address or secrets; the log has the address. A request is sent again after a connection error
or a retryable status, but never once a reply has begun.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from math import ceil, isfinite
from time import perf_counter, time
from typing import Any
from urllib.parse import quote

from msgspec import structs

from .. import __version__
from .._util import memoize_by_identity
from ..config.addresses import is_loopback, parse_http_url
from ..config.settings import mask_url
from ..errors import UpstreamError, WireError
from ..types import Failure
from ..wires import get_wire
from ..wires.framing import decode_json
from .catalog import Endpoint
from .http_connection import Connection, Disconnected, HttpProblem
from .http_pool import PATH_CHARACTERS, CannotConnect, Pool, address_of
from .record import CHUNK_OVERHEAD, RECOUNT_AFTER, StreamCapture
from .timers import Ticker

log = logging.getLogger("toolspeak.gateway")
_RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_MAX_WAIT = 20.0
_FIRST_WAIT = 0.25
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FORWARDED_HEADERS = {
    "anthropic": ("anthropic-version", "anthropic-beta"),
    "openai_chat": ("openai-beta",),
    "openai_responses": ("openai-beta",),
}
"""The client's headers that are forwarded to an upstream with the same API."""
_MAX_BODY = 64 * 2**20
"""The maximum size of a whole reply, and of data in a stream without any events."""
_MAX_ERROR_BODY = 2**16
_ERROR_BODY_TIMEOUT = 5.0
_SLICE = 2**15
"""The maximum number of bytes that a read returns, so that a million tiny events take many turns of
the event loop."""
_COMPLETE_TIMEOUT = 2.0
"""How long to wait for the end of a response whose reply is complete."""
_CONTEXT_ADVICE = (
    "(Shorten the conversation, offer fewer tools, or choose a model with a larger context.)"
)
_NO_HANDLES_LEFT = (
    "the gateway has no file handles left; try again later, or start it with a higher `ulimit -n`"
)
_MAX_ERROR_TEXT = 1000
_UNKNOWN_TYPE = "application/octet-stream"
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_FAILURE_FIELDS = ("message", "code", "param", "details")
_MASK = "••••"
_MASKED_PART = re.compile(r"([\w+/=.-]*?)(?:\*{2,}|\.{3,}|…+|•+|[xX]{4,})([\w+/=-]*)")
"""Text such as `sk-ab****yz`: some providers repeat a key like that."""


class UpstreamClient:
    """Sends requests to all upstreams."""

    def __init__(self, ticker: Ticker) -> None:
        self._pool = Pool(ticker)
        self._slots: dict[str, asyncio.Semaphore] = {}

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return self._pool.size

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def send(
        self,
        endpoint: Endpoint,
        path: str,
        body: bytes,
        client_headers: Mapping[str, str] | None = None,
        on_retry: Callable[[], None] = lambda: None,
        is_final: Callable[[Failure], bool] = lambda _: False,
        extra_headers: Mapping[str, str] | None = None,
    ) -> UpstreamResponse:
        """Send a chat request and return the response once its head is there.

        `client_headers` are the client's, if it uses the same API. A failure that `is_final` is
        not retried.
        """
        data = _encode_request(endpoint, path, body, client_headers or {}, extra_headers)
        slot = self._concurrency_slot(endpoint)
        if slot:
            await slot.acquire()
        try:
            connection = await self._send_with_retries(endpoint, data, on_retry, is_final)
        except BaseException:
            if slot:
                slot.release()
            raise
        return UpstreamResponse(connection, endpoint, partial(self._release, slot))

    async def request(
        self, endpoint: Endpoint, path: str, data: bytes | None = None
    ) -> UpstreamResponse:
        """Send a request other than a chat, once: POST with data, or else GET."""
        encoded = _encode_request(endpoint, path, data, {})
        connection = await self._send_once(endpoint, encoded, lambda: None)
        return UpstreamResponse(connection, endpoint, self._pool.release)

    def _release(self, slot: asyncio.Semaphore | None, connection: Connection) -> None:
        if slot:
            slot.release()
        self._pool.release(connection)

    def _concurrency_slot(self, endpoint: Endpoint) -> asyncio.Semaphore | None:
        limit = endpoint.settings.concurrency
        if not limit:
            return None
        return self._slots.setdefault(f"{endpoint.name} {limit}", asyncio.Semaphore(limit))

    async def _send_with_retries(
        self,
        endpoint: Endpoint,
        data: bytes,
        on_retry: Callable[[], None],
        is_final: Callable[[Failure], bool],
    ) -> Connection:
        """Return the first response that is not worth a retry, or the last one."""
        retries_left = endpoint.settings.retries
        wait = _FIRST_WAIT
        while True:
            requested_wait: float | None = None
            try:
                connection = await self._send_once(endpoint, data, on_retry)
            except UpstreamError as problem:
                # Not for `request`: most servers that discovery asks do not run.
                _log_with_address(endpoint, problem)
                if not retries_left or problem.failure.kind == "timeout":
                    raise
            else:
                if not retries_left or connection.status not in _RETRYABLE_STATUSES:
                    return connection
                requested_wait = retry_after(connection.headers)
                if (requested_wait or 0) > _MAX_WAIT:
                    return connection
                with UpstreamResponse(connection, endpoint, self._pool.release) as response:
                    problem = await response.read_error()
                if problem.failure.kind == "bad_request" or is_final(problem.failure):
                    # Not `problem`: with this frame, it would be a reference cycle.
                    raise response.error_for(problem.failure, problem.headers)
            jittered_wait = wait * (1 + random.random())  # noqa: S311 - it only spreads the load
            retries_left -= 1
            wait *= 2
            on_retry()
            await asyncio.sleep(
                min(jittered_wait if requested_wait is None else requested_wait, _MAX_WAIT)
            )

    async def _send_once(
        self, endpoint: Endpoint, data: bytes, on_retry: Callable[[], None]
    ) -> Connection:
        """Return a connection on which the head of the response has been received."""
        settings = endpoint.settings
        deadline = perf_counter() + settings.first_byte_timeout
        origin = address_of(endpoint.base_url).origin
        try:
            connection = self._pool.idle(origin)
            if connection:
                try:
                    await connection.send_request(data, deadline)
                    return connection
                except Disconnected:
                    # The upstream may have closed the idle connection just now.
                    on_retry()
            connection = await self._pool.connect(origin, settings.connect_timeout)
            await connection.send_request(data, deadline)
            return connection
        except CannotConnect as problem:
            if problem.is_exhausted:
                failure = Failure("overloaded", _NO_HANDLES_LEFT, 503)
                raise UpstreamError(failure, {"retry-after": "1"}) from None
            status = 504 if problem.is_timeout else 502
            raise upstream_error(endpoint, str(problem), status) from None
        except HttpProblem as problem:
            raise upstream_error(endpoint, str(problem)) from None
        except TimeoutError:
            message = f"did not start to respond within {settings.first_byte_timeout:g} s"
            raise upstream_error(endpoint, message, 504) from None


def _encode_request(
    endpoint: Endpoint,
    path: str,
    body: bytes | None,
    client_headers: Mapping[str, str],
    extra_headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of an HTTP request."""
    forwarded = client_headers
    if client_headers:
        names = _FORWARDED_HEADERS.get(endpoint.wire, ())
        forwarded = {name: client_headers[name] for name in names if name in client_headers}
    if forwarded or extra_headers:
        head = _encode_head(endpoint, forwarded, extra_headers or {})
    else:
        head = _default_head(endpoint)
    target = _request_target(address_of(endpoint.base_url).path, path)
    if body is None:
        return f"GET {target} HTTP/1.1\r\n{head}\r\n".encode()
    return f"POST {target} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


@lru_cache(maxsize=512)
def _request_target(base: str, path: str) -> str:
    return base + quote(path, safe=f"{PATH_CHARACTERS}?")


@memoize_by_identity
def _default_head(endpoint: Endpoint) -> str:
    return _encode_head(endpoint, {}, {})


def _encode_head(
    endpoint: Endpoint, forwarded: Mapping[str, str], extra_headers: Mapping[str, str]
) -> str:
    """Return all header lines except the body's length."""
    try:
        address = address_of(endpoint.base_url)
    except CannotConnect as problem:
        raise upstream_error(endpoint, str(problem)) from None
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": f"toolspeak/{__version__}",
    }
    if endpoint.wire == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    headers |= forwarded
    headers |= get_wire(endpoint.wire).auth_headers(endpoint.key)
    headers |= {name.lower(): value for name, value in endpoint.headers.items()}
    headers |= extra_headers
    headers.pop("content-length", None)
    if any(map(_CONTROL_CHARACTER.search, headers.values())):
        problem = (
            "cannot be used: its `key`, its `headers` or the client's have a control character"
        )
        raise upstream_error(endpoint, problem)
    authorization = "" if "authorization" in headers else address.authorization
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{address.head}{authorization}{lines}"


# The response.


class UpstreamResponse:
    """A response, whose connection is released at the end of `with`."""

    def __init__(
        self, connection: Connection, endpoint: Endpoint, release: Callable[[Connection], None]
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._idle_timeout = endpoint.settings.idle_timeout
        self._release_connection = release
        self._is_released = False
        self._captured: list[float | bytes] | None = None
        """Where chunks are captured for the inspector."""
        self._captures: tuple[StreamCapture, ...] = ()
        self._rest = b""
        """Received, but not returned yet."""
        self._size = 0
        """Bytes received."""
        self._check_size_at = _MAX_BODY
        self.received_at = perf_counter()
        """The time of the last chunk."""
        self._set_deadline(endpoint.settings.first_byte_timeout, self.received_at)
        self.status = connection.status
        self.headers = connection.headers
        self.content_type = _media_type(connection.headers.get("content-type", _UNKNOWN_TYPE))
        self.is_html = self.content_type in _HTML_TYPES
        self.is_stream = self.content_type != "application/json" and not self.is_html

    def __enter__(self) -> UpstreamResponse:
        return self

    def __exit__(self, *problem: object) -> None:
        self._release()

    def _release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._release_connection(self._connection)

    def _set_deadline(self, seconds: float, now: float) -> None:
        """Require progress within this time."""
        self._timeout = seconds
        self._deadline = now + seconds
        self._progress_size = self._size

    def mark_progress(self, *, is_complete: bool) -> None:
        """Extend the deadline: events were received. Comments and white space are no progress."""
        # Called for every chunk of a stream.
        self._timeout = _COMPLETE_TIMEOUT if is_complete else self._idle_timeout
        self._deadline = self.received_at + self._timeout
        self._progress_size = self._size

    # The body.

    @property
    def pending_bytes(self) -> int:
        """Bytes received since the last event."""
        return self._size - self._progress_size

    async def read_chunk(self) -> bytes:
        """Return the next chunk of a stream, or b"" at its end."""
        if self._rest:
            # Other requests take their turns.
            await asyncio.sleep(0)
            data, self._rest = self._rest[:_SLICE], self._rest[_SLICE:]
            return data
        data = await self._receive()
        if len(data) > _SLICE:
            data, self._rest = data[:_SLICE], data[_SLICE:]
        return data

    async def _receive(self) -> bytes:
        """Return all that was received of the body, or b"" at its end."""
        if self._is_released:
            return b""
        connection = self._connection
        try:
            while (data := connection.read_nowait()) is None:
                await connection.wait(self._deadline)
        except TimeoutError:
            message = f"sent nothing for {self._timeout:g} s"
            raise _log_error(self._endpoint, message, 504) from None
        except HttpProblem as problem:
            raise _log_error(self._endpoint, str(problem)) from None
        self.received_at = now = perf_counter()
        if not data:
            # Other requests can use the connection while the client still reads.
            self._release()
            return data
        captured = self._captured
        if captured is not None:
            captured += (now, data)
            self._check_size_at -= CHUNK_OVERHEAD
        self._size += len(data)
        if self._size > self._check_size_at:
            self._check_size()
        return data

    async def read_body(self) -> bytes:
        """Return the whole body."""
        parts: list[bytes] = []
        while data := await self._receive():
            parts.append(data)
            if self._connection.is_read:
                # Most often, everything has been received by now.
                self._release()
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def capture_to(self, received: StreamCapture, sent: StreamCapture) -> None:
        """Capture chunks, and check from time to time that both captures stay within limits."""
        self._captured = received.entries
        self._captures = received, sent
        self._check_size_at = self._size + RECOUNT_AFTER

    def _check_size(self) -> None:
        for capture in self._captures:
            capture.reserve_new()
        if self._size - self._progress_size > _MAX_BODY:
            message = (
                f"sent more than {_MAX_BODY >> 20} MiB before a part of its reply could be read"
            )
            raise upstream_error(self._endpoint, message)
        if self._captures:
            self._check_size_at = self._size + RECOUNT_AFTER
        else:
            self._check_size_at = self._progress_size + _MAX_BODY

    # Errors.

    async def read_error(self) -> UpstreamError:
        """Return the error that a response with a status other than 2xx describes."""
        body = await self._read_error_body()
        status = self.status if 400 <= self.status < 600 else 502
        if self.status < 400:
            message = "redirects to another address; set its `base_url` to the final URL"
            failure = _log_error(self._endpoint, message).failure
        elif self.is_html:
            failure = structs.replace(self.html_error().failure, status=status)
        else:
            failure = get_wire(self._endpoint.wire).decode_failure(status, _decode_error(body))
            if failure.kind == "context_length":
                failure = structs.replace(failure, message=f"{failure.message} {_CONTEXT_ADVICE}")
        wait = retry_after(self.headers)
        headers = {} if wait is None else {"retry-after": str(ceil(wait))}
        return self.error_for(failure, headers)

    def error_for(
        self, failure: Failure, headers: Mapping[str, str] | None = None
    ) -> UpstreamError:
        """Return the error to raise for a failure that the upstream reports."""
        return UpstreamError(mask_failure(failure, self._endpoint), headers)

    def html_error(self) -> UpstreamError:
        """Return the error to raise for a web page."""
        return upstream_error(self._endpoint, "sent a web page, not a reply; check its `base_url`")

    def unreadable_error(self, problem: Exception) -> UpstreamError:
        """Return the error to raise for a reply that cannot be decoded."""
        return upstream_error(self._endpoint, f"sent a reply that cannot be decoded: {problem}")

    async def _read_error_body(self) -> bytes:
        """Return the beginning of the body, as far as it arrives in time."""
        self._set_deadline(_ERROR_BODY_TIMEOUT, perf_counter())
        parts: list[bytes] = []
        try:
            while self._size - self._progress_size < _MAX_ERROR_BODY:
                data = await self._receive()
                if not data:
                    break
                parts.append(data)
        except UpstreamError:
            pass
        return b"".join(parts)


def _decode_error(body: bytes) -> Any:
    """Return the JSON value of an error, or else its text."""
    try:
        return decode_json(body)
    except WireError:
        return body.decode("utf-8", "replace")[:_MAX_ERROR_TEXT]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an upstream asks to wait before a retry, or None."""
    if milliseconds := headers.get("retry-after-ms"):
        headers = {"retry-after": str(_parse_float(milliseconds, 0.0) / 1000)}
    value = headers.get("retry-after", "")
    if not value:
        return None
    try:
        seconds = float(value)
        return max(0.0, seconds) if isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None


def _parse_float(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


@lru_cache(maxsize=64)
def _media_type(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


# Errors.


def upstream_error(endpoint: Endpoint, problem: str, status: int = 502) -> UpstreamError:
    """Return an error that begins with the upstream's name; `problem` is the predicate."""
    kind = "timeout" if status == 504 else "upstream"
    failure = Failure(kind, f"the upstream {endpoint.name} {problem}", status)
    return UpstreamError(mask_failure(failure, endpoint))


def _log_error(endpoint: Endpoint, problem: str, status: int = 502) -> UpstreamError:
    """Return `upstream_error(…)`, and log it with the upstream's address."""
    error = upstream_error(endpoint, problem, status)
    _log_with_address(endpoint, error)
    return error


def _log_with_address(endpoint: Endpoint, error: UpstreamError) -> None:
    log.info("%s (%s)", error, mask_url(endpoint.base_url))


def mask_failure(failure: Failure, endpoint: Endpoint) -> Failure:
    """Mask the upstream's secrets and its address, in case it repeats them in its error."""
    mask = partial(_mask_text, endpoint, sorted(endpoint.secrets(), key=len, reverse=True))
    masked = {name: _map_texts(mask, getattr(failure, name)) for name in _FAILURE_FIELDS}
    return structs.replace(failure, **masked)


def _mask_text(endpoint: Endpoint, secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, _MASK)
    if secrets:
        text = _MASKED_PART.sub(partial(_mask_part, secrets), text)
    pattern = _address_pattern(endpoint.base_url)
    return pattern.sub(endpoint.name, text) if pattern else text


def _mask_part(secrets: list[str], match: re.Match[str]) -> str:
    """Mask what an upstream left of a secret that it masked in part (`sk-ab****yz`)."""
    start, end = match.groups()
    is_part = any(one.startswith(start) and one.endswith(end) for one in secrets)
    return _MASK if is_part and (start or end) else match[0]


@lru_cache(maxsize=256)
def _address_pattern(base_url: str) -> re.Pattern[str] | None:
    """Return a pattern for the upstream's URL, its host with the port, and its host.

    A host such as `localhost` or `ollama` is masked only with its port: it may be another word.
    """
    parts = parse_http_url(base_url)
    if parts is None:
        return None
    name = parts.hostname or ""
    is_word = is_loopback(name) or ("." not in name and ":" not in name)
    if is_word and not parts.port:
        return None
    port = f":{parts.port}" if is_word else f"(?::{parts.port})?"
    host = rf"\[?{re.escape(name)}\]?{port}(?![\w-])"
    url = rf"(?:https?://(?:[^\s/@]*@)?)?{host}(?:{re.escape(parts.path)})?"
    return re.compile(rf"(?<![\w.-]){url}", re.IGNORECASE)


def _map_texts(change: Callable[[str], str], value: Any) -> Any:
    """Change all texts of a JSON value, including the keys of objects."""
    match value:
        case str():
            return change(value)
        case dict():
            return {_map_texts(change, key): _map_texts(change, one) for key, one in value.items()}
        case list():
            return [_map_texts(change, one) for one in value]
        case _:
            return value
