"""No page in a browser reaches the gateway, unless it is named: with Chromium, for real."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.gateway.gateway_process import HTTP, Held, Serving, serving, settings_for, until
from tests.gateway.running_gateway import Running, behind, running
from toolspeak import Finish, TextDelta
from toolspeak.config.settings import ServerSettings
from toolspeak.testing import ScriptedServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(
        find_spec("playwright") is None, reason="the package playwright is not installed"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="the program chromium is not installed"),
]
OWN_CHECKS = ("LocalNetworkAccessChecks", "LocalNetworkAccessChecksWebSockets")
PAGE = (Path(__file__).parent / "intruder.html").read_bytes()
EVIL = "evil.example"
"""A name that the browser finds on this machine, as an attacker's name server would have it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    # Without what Chromium itself does for servers on loopback: other browsers do not.
    options = ["--no-sandbox", f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"]
    options += [f"--disable-features={','.join(OWN_CHECKS)}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the page is served, by whichever name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name for it
            """A test has its own ways to say what happened."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta("Secret."), Finish("stop")]) as server:
        yield server


@contextmanager
def opened(browser: Browser, url: str) -> Generator[Page, None, None]:
    page = browser.new_page()
    try:
        page.goto(url)
        yield page
    finally:
        page.close()


@contextmanager
def gateway_for(folder: Path, settings: str, *origins: str) -> Generator[Serving, None, None]:
    """A gateway as users have it, for pages from there."""
    named = json.dumps(origins)
    (folder / "toolspeak.toml").write_text(f"{settings}\n[server]\nallowed_origins = {named}\n")
    with serving(folder) as gateway:
        yield gateway
        assert gateway.log == ""


def refusals(gateway: Serving) -> int:
    """How often the gateway has refused to answer."""
    text = HTTP.get(f"{gateway.url}/metrics").text
    return sum(map(int, re.findall(r'status="40[35]"} (\d+)', text)))


def assert_nothing_was_reached(results: dict[str, tuple[str, str]], model: ScriptedServer) -> None:
    assert len(results) == 30
    assert {name: text for name, (_, text) in results.items() if text} == {}
    readable = {"200", "reads", "message", "opens"}
    assert {name: how for name, (how, _) in results.items() if how in readable} == {}
    assert (model.requests, model.paths) == ([], [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", EVIL])
def test_a_page_reaches_nothing(
    browser: Browser, port: int, model: ScriptedServer, tmp_path: Path, host: str
) -> None:
    with (
        gateway_for(tmp_path, settings_for(model.url)) as gateway,
        opened(browser, f"http://{host}:{port}/?gateway={gateway.url}") as page,
    ):
        assert_nothing_was_reached(page.evaluate("run()"), model)
        # It was the gateway that refused, and not the browser.
        assert refusals(gateway) >= 20


def test_a_name_that_turns_into_this_machine_reaches_nothing(
    browser: Browser, model: ScriptedServer, tmp_path: Path
) -> None:
    """DNS rebinding: to the browser the gateway is the very server that the page came from."""
    with gateway_for(tmp_path, settings_for(model.url)) as gateway:
        origin = gateway.url.replace("127.0.0.1", EVIL)
        page = browser.new_page()
        page.route(f"{origin}/page", lambda route: route.fulfill(body=PAGE.decode()))
        page.goto(f"{origin}/page")
        results = page.evaluate("run()")
        page.close()
        assert refusals(gateway) >= 20
    refused = f"the Host '{EVIL}' is not this machine"
    answered = {name: text for name, (how, text) in results.items() if how == "403"}
    assert len(answered) > 10
    assert all(refused in text for text in answered.values())
    told = {name: text for name, (_, text) in results.items() if text and refused not in text}
    assert told == {}
    assert (model.requests, model.paths) == ([], [])


def raw(url: str, head: str) -> bytes:
    """What comes back to a few lines that no browser would let a page write."""
    host, port = url.removeprefix("http://").split(":")
    body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    lines = head.replace("OWN", f"{host}:{port}").replace("\n", "\r\n")
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\n{lines}\r\ncontent-length: {len(body)}\r\n"
            "content-type: application/json\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        received = b""
        while data := client.recv(65536):
            received += data
    return received


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("host: OWN", 200),
        ("host: localhost", 200),
        ("host: OWN\nsec-fetch-site: none", 200),
        ("host: OWN\nsec-fetch-site: same-origin", 200),
        (f"host: {EVIL}", 403),
        ("host: 127.0.0.1.evil.example", 403),
        ("host: localhost.evil.example:7878", 403),
        ("host:", 403),
        (f"host: OWN\nhost: {EVIL}", 400),
        (f"host: OWN\norigin: http://{EVIL}", 403),
        ("host: OWN\norigin: null", 403),
        ("host: OWN\norigin: http://127.0.0.1:1", 403),
        ("host: OWN\nsec-fetch-site: cross-site", 403),
        ("host: OWN\nsec-fetch-site: same-site", 403),
    ],
)
def test_who_may_ask(model: ScriptedServer, head: str, status: int) -> None:
    with running(behind(model.url)) as gateway:
        answer = raw(gateway.url, head)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert len(model.requests) == (status == 200)


# Pages that may.


def test_a_page_that_is_named_may_ask(
    browser: Browser, port: int, model: ScriptedServer, tmp_path: Path
) -> None:
    origin = f"http://127.0.0.1:{port}"
    with (
        gateway_for(tmp_path, settings_for(model.url), origin) as gateway,
        opened(browser, f"{origin}/?gateway={gateway.url}") as page,
    ):
        results = page.evaluate("run()")
    for name in ("fetch JSON", "request JSON"):
        outcome, text = results[name]
        assert (outcome, "Secret." in text) == ("200", True)
    assert results["fetch models"][0] == "200"
    # It has to say what it sends all the same, and cookies are nothing to the gateway.
    assert results["fetch text"][0] == "415"
    assert results["fetch JSON, with cookies"][0] == "TypeError"
    assert len(model.requests) == 2


def test_a_page_that_is_named_reads_a_stream_as_it_comes(
    browser: Browser, port: int, tmp_path: Path
) -> None:
    origin = f"http://{EVIL}:{port}"

    def let_go(upstream: Held) -> None:
        until(lambda: upstream.asked)
        time.sleep(0.5)
        upstream.goes.set()

    with (
        Held("upstream") as upstream,
        gateway_for(tmp_path, upstream.toml, origin) as gateway,
        opened(browser, f"{origin}/?gateway={gateway.url}") as page,
    ):
        threading.Thread(target=let_go, args=(upstream,)).start()
        told = page.evaluate("streamed()")
    assert (told["status"], told["mode"]) == (200, "native")
    assert len(told["pieces"]) >= 2
    assert "I am upstream." in told["pieces"][0]
    assert "Goodbye." not in told["pieces"][0]
    assert told["pieces"][-1].endswith("data: [DONE]\n\n")


def test_another_page_still_may_not(
    browser: Browser, port: int, model: ScriptedServer, tmp_path: Path
) -> None:
    with (
        gateway_for(tmp_path, settings_for(model.url), f"http://localhost:{port}") as gateway,
        opened(browser, f"http://127.0.0.1:{port}/?gateway={gateway.url}") as page,
    ):
        assert_nothing_was_reached(page.evaluate("run()"), model)


def test_a_preflight_says_what_is_allowed(port: int, model: ScriptedServer) -> None:
    origin = f"http://127.0.0.1:{port}"

    def preflight(gateway: Running, origin: str) -> tuple[int, dict[str, str]]:
        headers = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        answer = HTTP.options(f"{gateway.url}/v1/chat/completions", headers=headers)
        allowed = {
            name.removeprefix("access-control-allow-"): value
            for name, value in answer.headers.items()
            if name.startswith("access-control-allow-")
        }
        return answer.status_code, allowed

    config = structs.replace(behind(model.url), server=ServerSettings(allowed_origins=(origin,)))
    with running(config) as gateway:
        status, allowed = preflight(gateway, origin)
        assert status == 204
        assert allowed["origin"] == origin
        assert allowed["headers"] == "authorization,content-type"
        assert "POST" in allowed["methods"]
        assert preflight(gateway, "http://elsewhere.example") == (403, {})
