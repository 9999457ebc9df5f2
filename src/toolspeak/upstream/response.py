"""An upstream's response after its head: reads the body, or describes the error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from math import ceil, isfinite
from time import perf_counter, time
from typing import Any

from msgspec import structs

from ..config.settings import mask_url
from ..errors import WireError
from ..types import Failure
from ..wires import get_wire
from ..wires.framing import decode_json
from .capture import CHUNK_OVERHEAD, RECOUNT_AFTER, StreamCapture
from .catalog import Endpoint
from .errors import UpstreamError, mask_failure, upstream_error
from .http_connection import Connection, HttpProblem

_MAX_BODY = 64 * 2**20
"""The maximum size of a whole reply, and of data in a stream without any events."""
_MAX_ERROR_BODY = 2**16
_ERROR_BODY_TIMEOUT = 5.0
_COMPLETE_TIMEOUT = 2.0
"""Seconds for the connection to end after a complete reply."""
_CONTEXT_ADVICE = (
    "(Shorten the conversation, offer fewer tools, or choose a model with a larger context.)"
)
_MAX_ERROR_TEXT = 1000
_UNKNOWN_TYPE = "application/octet-stream"
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})


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

    async def read_chunk(self) -> bytes:
        """Return the next chunk of the body, or b"" at its end."""
        if self._is_released:
            return b""
        connection = self._connection
        try:
            while (data := connection.take()) is None:
                await connection.something(self._deadline)
        except TimeoutError:
            message = f"sent nothing for {self._timeout:g} s"
            raise upstream_error(self._endpoint, message, 504) from None
        except HttpProblem as problem:
            raise upstream_error(self._endpoint, str(problem)) from None
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
        while data := await self.read_chunk():
            parts.append(data)
            if self._connection.is_over:
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
            message = f"sent more than {_MAX_BODY} bytes that are not a reply"
            raise upstream_error(self._endpoint, message)
        if self._captures:
            self._check_size_at = self._size + RECOUNT_AFTER
        else:
            self._check_size_at = self._progress_size + _MAX_BODY

    # Errors.

    async def read_error(self) -> UpstreamError:
        """Return the error that a response with another status than 2xx describes."""
        body = await self._read_error_body()
        status = self.status if 400 <= self.status < 600 else 502
        if self.status < 400:
            location = mask_url(self.headers.get("location", ""))
            message = f"redirects to {location!r}; set its `base_url` to the final URL"
            failure = upstream_error(self._endpoint, message).failure
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
        return UpstreamError(self.mask_failure(failure), headers)

    def mask_failure(self, failure: Failure) -> Failure:
        """Mask the upstream's secrets, in case it repeats them."""
        return mask_failure(failure, self._endpoint)

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
                data = await self.read_chunk()
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
