"""A loopback server that speaks every API and replies by a script.

    with ScriptedServer([TextDelta("Hello."), Finish("stop")]) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        ...
    server.requests     the decoded requests

Each turn answers one request; the last one also answers all later requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from .._util import encode_json
from ..errors import WireError
from ..events import Event, fold
from ..types import Failure, Request
from ..wires import Envelope, Wire, gemini, get_wire
from ..wires.framing import decode_json
from ..wires.routes import Route, match_route

Turn = Sequence[Event] | Callable[[Request], Iterable[Event]]
_CREATED = 1_700_000_000


class ScriptedServer:
    """Answers each request with the next turn, in the API that the request used."""

    def __init__(
        self,
        *turns: Turn,
        chunk_size: int | None = None,
        pause: float = 0.0,
        pages: Mapping[str, Any] | None = None,
    ) -> None:
        self.turns = list(turns)
        self.pages = dict(pages or {})
        """JSON to return at other paths, for any method."""
        self.chunk_size = chunk_size
        """Size of a stream's chunks in bytes; None sends one chunk for each event."""
        self.pause = pause
        """Seconds between two chunks."""
        self.requests: list[Request] = []
        self.bodies: list[Any] = []
        """The requests' JSON, not decoded."""
        self.paths: list[str] = []
        self.problems: list[Exception] = []
        """Exceptions that turns raised; the client gets an error instead."""
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"script": self})
        )
        # With the default poll interval, each shutdown would take half a second.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take_turn(self, request: Request) -> list[Event]:
        """Record a request and return the events that answer it."""
        turn = self.turns[min(len(self.requests), len(self.turns) - 1)]
        self.requests.append(request)
        return list(turn(request) if callable(turn) else turn)


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for `script`, which is set in a subclass for each server."""

    script: ClassVar[ScriptedServer]
    protocol_version = "HTTP/1.1"
    # Small bodies would wait until the headers are acknowledged.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.script.paths.append(self.path)
        if self.path in self.script.pages:
            self.do_GET()
            return
        route = match_route(self.path)
        if route is None:
            self._send(404, encode_json({"error": f"no API has the path {self.path}"}))
            return
        wire = get_wire(route.wire)
        try:
            decoded = decode_json(body)
            self.script.bodies.append(decoded)
            request = wire.decode_request(decoded, model=route.model, stream=route.stream)
        except WireError as error:
            self._fail(wire, error.failure)
            return
        try:
            events = self.script.take_turn(request)
        except Exception as problem:
            self.script.problems.append(problem)
            self._fail(wire, Failure("internal", f"the script raised {problem!r}", 500))
            return
        self._answer(wire, route, request, events)

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        if self.path in self.script.pages:
            self._send(200, encode_json(self.script.pages[self.path]))
        else:
            self._send(404, encode_json({"error": f"not found: {self.path}"}))

    def _answer(self, wire: Wire, route: Route, request: Request, events: list[Event]) -> None:
        failure = next((event for event in events if isinstance(event, Failure)), None)
        if failure and (not request.stream or events[0] is failure):
            self._fail(wire, failure)
            return
        envelope = Envelope(request, f"id_{len(self.script.requests)}", _CREATED)
        if not request.stream:
            self._send(200, encode_json(wire.encode_reply(fold(events), envelope)))
            return
        encoder = (
            gemini.GeminiStreamEncoder(envelope, array=True)
            if route.is_array
            else wire.stream_encoder(envelope)
        )
        self._stream(wire, map(encoder.feed, events), is_array=route.is_array)

    def _stream(self, wire: Wire, encoded: Iterable[bytes], *, is_array: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_array else wire.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(ConnectionError):  # The client may have disconnected.
            for data in _split(encoded, self.script.chunk_size):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.wfile.flush()
                time.sleep(self.script.pause)
            self.wfile.write(b"0\r\n\r\n")

    def _fail(self, wire: Wire, failure: Failure) -> None:
        self._send(failure.status, encode_json(wire.encode_failure(failure)))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """Log nothing: tests check `requests` and `problems`."""


def _split(encoded: Iterable[bytes], chunk_size: int | None) -> Iterator[bytes]:
    for data in encoded:
        size = chunk_size or len(data) or 1
        yield from (data[at : at + size] for at in range(0, len(data), size))
