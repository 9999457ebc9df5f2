"""A reply of an upstream whose head has come: the body, or what is wrong with it."""

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
"""How long a whole reply may be, and what comes in a stream and says nothing."""
_MAX_ERROR_BODY = 2**16
_ERROR_BODY_TIMEOUT = 5.0
_COMPLETE_TIMEOUT = 2.0
"""How many seconds a reply that is complete may take to end."""
_TOO_LONG = (
    "(Shorten the conversation, offer fewer tools, or choose a model with a larger context.)"
)
_SHOWN = 1000
_UNKNOWN = "application/octet-stream"
_PAGES = frozenset({"text/html", "application/xhtml+xml"})


class UpstreamResponse:
    """A reply whose head has come. It is let go of at the end of `with`."""

    def __init__(
        self, connection: Connection, endpoint: Endpoint, let_go: Callable[[Connection], None]
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._idle = endpoint.settings.idle_timeout
        self._let_go = let_go
        self._is_over = False
        self._said: list[float | bytes] | None = None
        """Where what comes is kept, if somebody may want to look at it."""
        self._flows: tuple[StreamCapture, ...] = ()
        self._size = 0
        """Bytes that have come."""
        self._due = _MAX_BODY
        """After so many it has to be looked whether those were too many."""
        self.received_at = perf_counter()
        """When the last piece did."""
        self._set_deadline(endpoint.settings.first_byte_timeout, self.received_at)
        self.status = connection.status
        self.headers = connection.headers
        self.content_type = _kind(connection.headers.get("content-type", _UNKNOWN))
        self.is_html = self.content_type in _PAGES
        """Whether it is made for people to look at."""
        self.is_stream = self.content_type != "application/json" and not self.is_html
        """Whether it is a stream, and no value or page that is only read whole."""

    def __enter__(self) -> UpstreamResponse:
        return self

    def __exit__(self, *problem: object) -> None:
        self._release()

    def _release(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._let_go(self._connection)

    def _set_deadline(self, seconds: float, now: float) -> None:
        """From now on, something that makes sense has to come within that time."""
        self._patience = seconds
        self._deadline = now + seconds
        # What has come by now made sense, or is of no matter.
        self._sense = self._size

    def mark_progress(self, *, is_complete: bool) -> None:
        """What came so far makes sense. Comments and white space do not."""
        # Every piece of a stream comes by here.
        self._patience = _COMPLETE_TIMEOUT if is_complete else self._idle
        self._deadline = self.received_at + self._patience
        self._sense = self._size

    async def read_chunk(self) -> bytes:
        """The next piece of the body, b"" at its end."""
        if self._is_over:
            return b""
        connection = self._connection
        try:
            while (data := connection.take()) is None:
                await connection.something(self._deadline)
        except TimeoutError:
            raise upstream_error(
                self._endpoint, f"said nothing for {self._patience:g} s", 504
            ) from None
        except HttpProblem as problem:
            raise upstream_error(self._endpoint, str(problem)) from None
        self.received_at = now = perf_counter()
        if not data:
            # Others need not wait until the client has taken it all.
            self._release()
            return data
        said = self._said
        if said is not None:
            said += (now, data)
            self._due -= CHUNK_OVERHEAD
        self._size += len(data)
        if self._size > self._due:
            self._check_size()
        return data

    def capture_to(self, heard: StreamCapture, sent: StreamCapture) -> None:
        """Keep what comes there. It is seen to now and then whether there is still room for it, and
        for what is sent to the client in turn."""
        self._said = heard.entries
        self._flows = heard, sent
        self._due = self._size + RECOUNT_AFTER

    def _check_size(self) -> None:
        for flow in self._flows:
            flow.reserve_new()
        if self._size - self._sense > _MAX_BODY:
            raise upstream_error(
                self._endpoint, f"sent more than {_MAX_BODY} bytes that are no reply"
            )
        self._due = self._size + RECOUNT_AFTER if self._flows else self._sense + _MAX_BODY

    async def read_body(self) -> bytes:
        """All of the body, which has to come to an end."""
        parts: list[bytes] = []
        while data := await self.read_chunk():
            parts.append(data)
            if self._connection.is_over:
                # Most often all of it has come by now.
                self._release()
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read_error(self) -> UpstreamError:
        """What an answer says that is no reply."""
        said = await self._read_error_body()
        status = self.status if 400 <= self.status < 600 else 502
        if self.status < 400:
            place = mask_url(self.headers.get("location", ""))
            what = f"sends us on to {place!r}; set its base_url to where it is"
            failure = upstream_error(self._endpoint, what).failure
        elif self.is_html:
            failure = structs.replace(self.html_error().failure, status=status)
        else:
            failure = get_wire(self._endpoint.wire).decode_failure(status, _read(said))
            if failure.kind == "context_length":
                failure = structs.replace(failure, message=f"{failure.message} {_TOO_LONG}")
        asked = retry_after(self.headers)
        headers = {} if asked is None else {"retry-after": str(ceil(asked))}
        return self.error_for(failure, headers)

    def error_for(
        self, failure: Failure, headers: Mapping[str, str] | None = None
    ) -> UpstreamError:
        """What to raise for a failure that the upstream tells."""
        return UpstreamError(self.mask_failure(failure), headers)

    def mask_failure(self, failure: Failure) -> Failure:
        """A failure without what nobody but the upstream may know, should it repeat that."""
        return mask_failure(failure, self._endpoint)

    def html_error(self) -> UpstreamError:
        """What to raise for a web page."""
        what = "sent a web page in place of a reply; is its base_url right?"
        return upstream_error(self._endpoint, what)

    def unreadable_error(self, problem: Exception) -> UpstreamError:
        """What to raise for a reply that cannot be read."""
        return upstream_error(self._endpoint, f"sent a reply that cannot be read: {problem}")

    async def _read_error_body(self) -> bytes:
        """As much of the body as there is to an error."""
        self._set_deadline(_ERROR_BODY_TIMEOUT, perf_counter())
        parts: list[bytes] = []
        try:
            while self._size - self._sense < _MAX_ERROR_BODY and (data := await self.read_chunk()):
                parts.append(data)
        except UpstreamError:
            pass
        return b"".join(parts)


def _read(said: bytes) -> Any:
    """What an error says: a value, or words."""
    try:
        return decode_json(said)
    except WireError:
        return said.decode("utf-8", "replace")[:_SHOWN]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How long an upstream asks to wait."""
    if milliseconds := headers.get("retry-after-ms"):
        headers = {"retry-after": str(_number(milliseconds, 0.0) / 1000)}
    given = headers.get("retry-after", "")
    if not given:
        return None
    try:
        seconds = float(given)
        return max(0.0, seconds) if isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise


@lru_cache(maxsize=64)
def _kind(given: str) -> str:
    """What a content type names, without what may stand behind it."""
    return given.partition(";")[0].strip().lower()
