"""What is known of a request on its way over HTTP: whether it has left, and what came back.

Several may be on their way at once, and the end of one ends the connection of all. Only a request
that has not left may be made once more: any other might be carried out twice.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx2

_SENDING = "send_request_headers.started"


class Journey:
    """One request. The SDK sends it in the context of whoever has made it."""

    def __init__(self) -> None:
        self.has_left = False
        self.status: int | None = None
        """The last status that was none of success."""

    @contextmanager
    def begun(self) -> Generator[None]:
        """What is sent within this is this request."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    async def trace(self, event: str, about: dict[str, Any]) -> None:
        """The HTTP client tells each step."""
        self.has_left = self.has_left or event.endswith(_SENDING)


_current: ContextVar[Journey | None] = ContextVar("journey", default=None)


async def on_request(request: httpx2.Request) -> None:
    """Have the steps of a request told."""
    if journey := _current.get():
        request.extensions = {**request.extensions, "trace": journey.trace}


async def on_response(response: httpx2.Response) -> None:
    """Take down what came of a message; other requests only listen."""
    journey = _current.get()
    if journey and response.request.method == "POST":
        journey.status = response.status_code if response.is_error else None
