"""A gateway with its page, and a page in a browser that is watched while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx
from msgspec import structs

from tests.gateway.running_gateway import Running, behind, running
from toolspeak.config.settings import InspectorSettings
from toolspeak.testing import ScriptedServer
from toolspeak.testing.scripted_server import Turn
from toolspeak.types import Failure, Note, Reply, ToolCall
from toolspeak.upstream.record import CaptureBudget, RequestCapture, RequestRecord

from .talk import body

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

HTTP = httpx.Client(trust_env=False, timeout=30)
TOKEN = "token"


@contextmanager
def gateway_behind(
    *turns: Turn, pause: float = 0.002, keeps: int = 1000, **model: Any
) -> Generator[Running, None, None]:
    """A gateway whose model says this, and whose inspector is open to the token."""
    with ScriptedServer(*turns, pause=pause) as server:
        config = behind(server.url, **{"tools": "prompt", "dialect": "hermes", **model})
        config = structs.replace(config, inspector=InspectorSettings(requests=keeps))
        with running(config, token=TOKEN) as gateway:
            yield gateway
            gateway.gateway.is_stopping = True


def ask(gateway: Running, wire: str = "openai_chat", question: str = "", **headers: str) -> str:
    """What a client gets."""
    path, asked = body(wire, question) if question else body(wire)
    return HTTP.post(gateway.url + path, json=asked, headers=headers).text


def record(gateway: Running, *requests: RequestRecord) -> None:
    """As if these requests had been served."""
    recorder = gateway.gateway.recorder
    assert recorder

    async def kept() -> None:
        for one in requests:
            recorder.end(one)

    asyncio.run_coroutine_threadsafe(kept(), gateway.loop).result(20)


def made_up(number: int, asked: str = "") -> RequestRecord:
    """A request that nobody has made."""
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
            user_message=asked or f"Question {number}",
            changed_at=at,
        ),
    )


class Opened:
    """A page that is open. In the end it says what the page should not have done."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        where: str,
        token: str,
        *,
        width: int = 1440,
        **options: Any,
    ) -> None:
        self.url = url
        self._context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        self._context.route(lambda asked: not asked.startswith(url), lambda route: route.abort())
        self.problems: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(8000)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(f"raised {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"asked {dialog.message}"))
        self.page.on("request", self._asked)
        self.page.goto(
            f"{url}/{where}{'&' if where else '#'}token={token}" if token else f"{url}/{where}"
        )

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"said {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"asked for {request.url}")

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ran = self.page.evaluate("window.ran ?? null")
        self._context.close()
        if kind is None:
            assert (ran, self.problems) == (None, [])

    # What the tests ask of every view.

    def go(self, where: str) -> None:
        self.page.evaluate("where => { location.hash = where }", where)

    def sees(self, selector: str, text: str = "") -> None:
        """Wait until that is there, with this text in it."""
        found = self.page.locator(selector)
        (found.filter(has_text=text) if text else found).first.wait_for()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def watch_tasks(self) -> None:
        """From here on, what holds up the page is measured."""
        self.page.evaluate(
            "() => { window.tasks = [0]; new PerformanceObserver(list => tasks.push("
            "...list.getEntries().map(entry => entry.duration))).observe({type: 'longtask'}) }"
        )

    def longest_task(self) -> float:
        """In milliseconds."""
        return self.page.evaluate("Math.max(...tasks)")

    def until(self, script: str, value: Any = None) -> None:
        """Wait until that is true in the page."""
        self.page.wait_for_function(script, arg=value, polling=50)
