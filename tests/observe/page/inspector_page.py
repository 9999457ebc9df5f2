"""A gateway with an inspector, and the inspector's page in a browser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx
from msgspec import structs

from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.config.settings import InspectorSettings
from toolspeak.testing import ScriptedServer
from toolspeak.testing.scripted_server import Turn
from toolspeak.types import Failure, Note, Reply, ToolCall
from toolspeak.upstream.record import CaptureBudget, RequestCapture, RequestRecord

from .scripted_model import QUESTION, build_request

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

HTTP = httpx.Client(trust_env=False, timeout=60)
TOKEN = "token"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
_TIMEOUT_MS = 30_000


@contextmanager
def run_inspected_gateway(
    *turns: Turn, pause: float = 0.002, max_requests: int = 1000, **model: Any
) -> Generator[RunningGateway, None, None]:
    """Run a gateway whose inspector accepts `TOKEN` and whose model replies with these turns."""
    with ScriptedServer(*turns, pause=pause) as server:
        config = make_config(server.url, **{"tools": "prompt", "dialect": "hermes", **model})
        config = structs.replace(config, inspector=InspectorSettings(requests=max_requests))
        with run_gateway(config, token=TOKEN) as gateway:
            yield gateway
            gateway.gateway.is_stopping = True


def send_request(
    gateway: RunningGateway, wire: str = "openai_chat", question: str = QUESTION
) -> str:
    """Send a request as a client does; return the whole response."""
    path, body = build_request(wire, question)
    return HTTP.post(gateway.url + path, json=body).text


def request_approval(gateway: RunningGateway, **changes: Any) -> str:
    """Request an approval as an agent does; return its id."""
    approval = {
        "tool": "write_file",
        "arguments": {"path": "notes.md", "content": "one\ntwo"},
        "source": "the MCP server files",
        "agent": "an agent",
        "expires_at": time.time() + 100,
        "can_always": True,
        **changes,
    }
    response = HTTP.post(f"{gateway.url}/inspector/api/approvals", json=approval, headers=HEADERS)
    assert response.is_success, response.text
    return response.json()["id"]


def add_records(gateway: RunningGateway, *records: RequestRecord) -> None:
    """Store records as if the gateway had served their requests."""
    recorder = gateway.gateway.recorder
    assert recorder

    async def store() -> None:
        for record in records:
            recorder.end(record)

    asyncio.run_coroutine_threadsafe(store(), gateway.loop).result(60)


def make_record(number: int, question: str = "") -> RequestRecord:
    """Return the record of a request; its number determines all properties."""
    wires = ("openai_chat", "openai_responses", "anthropic", "ollama", "gemini")
    call = ToolCall(id="call_1", name="get_weather", arguments={})
    failure = Failure("rate_limit", "too much", 429) if number % 25 == 0 else None
    at = 1_763_000_000.0 + number
    return RequestRecord(
        id=f"req_{number:05}",
        method="POST",
        wire=wires[number % 5],
        received_at=at,
        started=0.0,
        ended=0.1,
        model=f"model-{number % 7}",
        upstream_model=f"model-{number % 7}",
        mode=("native", "prompt", "constrained")[number % 3],
        retries=["upstream"] if number % 10 == 0 else [],
        has_replied=True,
        replaced_reply=Reply(parts=(call,) if number % 2 else ()),
        notes=(Note("coerced", '"3" became 3', "$.days"),) if number % 4 == 0 else (),
        failure=failure,
        status=429 if failure else 200,
        capture=RequestCapture(
            0.0,
            CaptureBudget(0),
            key=f"req_{number:05}",
            target="/v1/chat/completions",
            user_message=question or f"Question {number}",
            changed_at=at,
        ),
    )


class InspectorPage:
    """An open page. When it is closed, errors and requests to other hosts fail the test."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        location: str,
        token: str,
        *,
        width: int = 1440,
        **options: Any,
    ) -> None:
        self.url = url
        self._context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        self._context.route(lambda target: not target.startswith(url), lambda route: route.abort())
        self.problems: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(_TIMEOUT_MS)
        self.page.on("console", self._check_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._check_request)
        fragment = f"{location}{'&' if location else '#'}token={token}" if token else location
        self.page.goto(f"{url}/{fragment}")

    def _check_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _check_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"request to {request.url}")

    def __enter__(self) -> InspectorPage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        executed = self.page.evaluate("window.executed ?? null")
        self._context.close()
        if kind is None:
            assert (executed, self.problems) == (None, [])

    def ignore_problems(self, status: int) -> None:
        """Forget that the browser reported responses with this status."""
        self.problems = [problem for problem in self.problems if f"{status}" not in problem]

    def navigate(self, location: str) -> None:
        self.page.evaluate("location => { window.location.hash = location }", location)

    def wait_for(self, selector: str, text: str = "") -> None:
        """Wait until an element with this text is visible."""
        elements = self.page.locator(selector)
        (elements.filter(has_text=text) if text else elements).first.wait_for()

    def wait_until(self, script: str, value: Any = None) -> None:
        """Wait until a function in the page returns a true value."""
        self.page.wait_for_function(script, arg=value, polling=50)

    def wait_for_view(self, location: str) -> None:
        """Wait until the view at this location is complete and none of its animations runs."""
        self.wait_for(_COMPLETE[location.split("/")[1], location.count("/")])
        self.wait_until(
            "() => document.getAnimations().every((animation) => animation.playState !== 'running')"
        )

    def read_text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def set_clock(self, milliseconds: float) -> None:
        """Stop the page's monotonic clock at this time."""
        self.page.evaluate("time => { performance.now = () => time }", milliseconds)

    def record_long_tasks(self) -> None:
        """Start recording how long tasks block the page."""
        self.page.evaluate(
            "() => { window.tasks = [0]; new PerformanceObserver(list => tasks.push("
            "...list.getEntries().map(entry => entry.duration))).observe({type: 'longtask'}) }"
        )

    def read_longest_task(self) -> float:
        """Return the duration of the longest task in milliseconds."""
        return self.page.evaluate("Math.max(...tasks)")


_COMPLETE = {
    ("requests", 1): "a.row",
    ("requests", 2): ".detail .columns",
    ("playground", 1): ".playground .card-call",
    ("chat", 1): ".chat-intro",
}
"""An element that each kind of view has when it is complete."""
