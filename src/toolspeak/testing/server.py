"""A server on loopback that speaks every API and says what it is told.

    with ScriptedServer([TextDelta("Hello."), Finish("stop")]) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        ...
    server.requests     what was asked, as `Request`s

Each turn answers one request; the last one answers all that follow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from ..errors import WireError
from ..events import Event, fold
from ..types import Failure, Request
from ..wires import Envelope, Wire, gemini, get_wire
from ..wires.framing import decode_json, encode_json
from ..wires.routes import Route, match_route

Turn = Sequence[Event] | Callable[[Request], Iterable[Event]]
_CREATED = 1_700_000_000


class ScriptedServer:
    """Answers each request with the next turn, in the API that it came by."""

    def __init__(
        self,
        *turns: Turn,
        piece: int | None = None,
        pause: float = 0.0,
        pages: Mapping[str, Any] | None = None,
    ) -> None:
        self.turns = list(turns)
        self.pages = dict(pages or {})
        """What it tells at other paths, whoever asks."""
        self.piece = piece
        """How many bytes of a stream are sent at a time; None sends what an event makes."""
        self.pause = pause
        """How many seconds pass between them."""
        self.requests: list[Request] = []
        self.bodies: list[Any] = []
        """What was asked, as it came."""
        self.paths: list[str] = []
        self.problems: list[Exception] = []
        """What turns have raised, which the client only hears of."""
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"script": self})
        )
        # It looks so often whether it is to end: a test shall not wait half a second for that.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_turn(self, request: Request) -> list[Event]:
        """What to say to a request."""
        turn = self.turns[min(len(self.requests), len(self.turns) - 1)]
        self.requests.append(request)
        return list(turn(request) if callable(turn) else turn)


class _Handler(BaseHTTPRequestHandler):
    """Answers for a script, which the class is made with."""

    script: ClassVar[ScriptedServer]
    protocol_version = "HTTP/1.1"
    # Small answers would wait for an acknowledgement of their heads.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.script.paths.append(self.path)
        if self.path in self.script.pages:
            self.do_GET()
            return
        where = match_route(self.path)
        if where is None:
            self._send(404, encode_json({"error": f"no wire has the path {self.path}"}))
            return
        wire = get_wire(where.wire)
        try:
            decoded = decode_json(body)
            self.script.bodies.append(decoded)
            request = wire.decode_request(decoded, model=where.model, stream=where.stream)
        except WireError as error:
            self._fail(wire, error.failure)
            return
        try:
            events = self.script.next_turn(request)
        except Exception as problem:
            self.script.problems.append(problem)
            self._fail(wire, Failure("internal", f"the script says: {problem!r}", 500))
            return
        self._answer(wire, where, request, events)

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        if self.path in self.script.pages:
            self._send(200, encode_json(self.script.pages[self.path]))
        else:
            self._send(404, encode_json({"error": f"there is nothing at {self.path}"}))

    def _answer(self, wire: Wire, where: Route, request: Request, events: list[Event]) -> None:
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
            if where.is_array
            else wire.stream_encoder(envelope)
        )
        self._stream(wire, map(encoder.feed, events), array=where.is_array)

    def _stream(self, wire: Wire, written: Iterable[bytes], *, array: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if array else wire.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(ConnectionError):  # Whoever asked may have gone.
            for data in _cut(written, self.script.piece):
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

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name for it
        """A test has its own ways to say what happened."""


def _cut(written: Iterable[bytes], piece: int | None) -> Iterator[bytes]:
    for data in written:
        size = piece or len(data) or 1
        yield from (data[at : at + size] for at in range(0, len(data), size))
