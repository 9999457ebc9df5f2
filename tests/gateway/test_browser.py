"""Web pages in Chromium reach the gateway only if their origin is allowed."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.gateway.gateway_process import (
    HTTP,
    GatewayProcess,
    PausingUpstream,
    format_settings,
    start_gateway,
)
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
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
CHROMIUM_CHECKS = ("LocalNetworkAccessChecks", "LocalNetworkAccessChecksWebSockets")
PAGE = (Path(__file__).parent / "attack_page.html").read_bytes()
EVIL = "evil.example"
"""A name that the browser resolves to this machine, as an attacker's name server could."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    # Other browsers lack these checks of Chromium for servers on loopback.
    options = ["--no-sandbox", f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"]
    options += [f"--disable-features={','.join(CHROMIUM_CHECKS)}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server for the page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Keep the output of tests short."""

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
def open_page(browser: Browser, url: str) -> Generator[Page, None, None]:
    page = browser.new_page()
    try:
        page.goto(url)
        yield page
    finally:
        page.close()


@contextmanager
def serve_origins(
    folder: Path, settings: str, *origins: str
) -> Generator[GatewayProcess, None, None]:
    """Start a gateway that allows these origins."""
    allowed = json.dumps(origins)
    (folder / "toolspeak.toml").write_text(f"{settings}\n[server]\nallowed_origins = {allowed}\n")
    with start_gateway(folder) as gateway:
        yield gateway
        assert gateway.log == ""


def count_rejections(gateway: GatewayProcess) -> int:
    """Return the number of requests that the gateway has rejected."""
    text = HTTP.get(f"{gateway.url}/metrics").text
    return sum(map(int, re.findall(r'status="40[35]"} (\d+)', text)))


def check_nothing_was_reached(results: dict[str, tuple[str, str]], model: ScriptedServer) -> None:
    assert len(results) == 30
    assert {name: text for name, (_, text) in results.items() if text} == {}
    readable = {"200", "reads", "message", "opens"}
    assert {name: outcome for name, (outcome, _) in results.items() if outcome in readable} == {}
    assert (model.requests, model.paths) == ([], [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", EVIL])
def test_page_without_permission_reaches_nothing(
    browser: Browser, port: int, model: ScriptedServer, tmp_path: Path, host: str
) -> None:
    with (
        serve_origins(tmp_path, format_settings(model.url)) as gateway,
        open_page(browser, f"http://{host}:{port}/?gateway={gateway.url}") as page,
    ):
        check_nothing_was_reached(page.evaluate("runAll()"), model)
        # It was the gateway that rejected them, and not the browser.
        assert count_rejections(gateway) >= 20


def test_page_with_rebound_name_reaches_nothing(
    browser: Browser, model: ScriptedServer, tmp_path: Path
) -> None:
    """With DNS rebinding, the browser takes the gateway for the server of the page."""
    with serve_origins(tmp_path, format_settings(model.url)) as gateway:
        origin = gateway.url.replace("127.0.0.1", EVIL)
        page = browser.new_page()
        page.route(f"{origin}/page", lambda route: route.fulfill(body=PAGE.decode()))
        page.goto(f"{origin}/page")
        results = page.evaluate("runAll()")
        page.close()
        assert count_rejections(gateway) >= 20
    message = f"the Host header names '{EVIL}', which is not this machine"
    rejected = {name: text for name, (outcome, text) in results.items() if outcome == "403"}
    assert len(rejected) > 10
    assert all(message in text for text in rejected.values())
    others = {name: text for name, (_, text) in results.items() if text and message not in text}
    assert others == {}
    assert (model.requests, model.paths) == ([], [])


def post_with_head(url: str, head: str) -> bytes:
    """Send a request with headers that no browser lets a page set, and return the response."""
    host, port = url.removeprefix("http://").split(":")
    body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    lines = head.replace("OWN", f"{host}:{port}").replace("\n", "\r\n")
    with socket.create_connection((host, int(port)), 60) as client:
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
def test_request_is_admitted_by_host_and_origin(
    model: ScriptedServer, head: str, status: int
) -> None:
    with run_gateway(make_config(model.url)) as gateway:
        response = post_with_head(gateway.url, head)
    assert response.startswith(f"HTTP/1.1 {status} ".encode()), response
    assert len(model.requests) == (status == 200)


# Allowed pages.


def test_page_of_allowed_origin_reaches_the_gateway(
    browser: Browser, port: int, model: ScriptedServer, tmp_path: Path
) -> None:
    origin = f"http://127.0.0.1:{port}"
    with (
        serve_origins(tmp_path, format_settings(model.url), origin) as gateway,
        open_page(browser, f"{origin}/?gateway={gateway.url}") as page,
    ):
        results = page.evaluate("runAll()")
    for name in ("fetch JSON", "request JSON"):
        outcome, text = results[name]
        assert (outcome, "Secret." in text) == ("200", True)
    assert results["fetch models"][0] == "200"
    # It needs the right content type as well, and requests with cookies are not allowed.
    assert results["fetch text"][0] == "415"
    assert results["fetch JSON, with cookies"][0] == "TypeError"
    assert len(model.requests) == 2


def test_page_of_allowed_origin_reads_a_stream_in_pieces(
    browser: Browser, port: int, tmp_path: Path
) -> None:
    origin = f"http://{EVIL}:{port}"

    with (
        PausingUpstream("upstream") as upstream,
        serve_origins(tmp_path, upstream.toml, origin) as gateway,
        open_page(browser, f"{origin}/?gateway={gateway.url}") as page,
    ):
        page.expose_function("onPiece", upstream.resume.set)
        result = page.evaluate("readStream()")
    assert (result["status"], result["mode"]) == (200, "none")
    assert len(result["pieces"]) >= 2
    assert "I am upstream." in result["pieces"][0]
    assert "Goodbye." not in result["pieces"][0]
    assert result["pieces"][-1].endswith("data: [DONE]\n\n")


def test_page_of_other_origin_reaches_nothing(
    browser: Browser, port: int, model: ScriptedServer, tmp_path: Path
) -> None:
    with (
        serve_origins(tmp_path, format_settings(model.url), f"http://localhost:{port}") as gateway,
        open_page(browser, f"http://127.0.0.1:{port}/?gateway={gateway.url}") as page,
    ):
        check_nothing_was_reached(page.evaluate("runAll()"), model)


def test_preflight_lists_allowed_methods_and_headers(port: int, model: ScriptedServer) -> None:
    origin = f"http://127.0.0.1:{port}"

    def preflight(gateway: RunningGateway, origin: str) -> tuple[int, dict[str, str]]:
        headers = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        response = HTTP.options(f"{gateway.url}/v1/chat/completions", headers=headers)
        allowed = {
            name.removeprefix("access-control-allow-"): value
            for name, value in response.headers.items()
            if name.startswith("access-control-allow-")
        }
        return response.status_code, allowed

    config = structs.replace(
        make_config(model.url), server=ServerSettings(allowed_origins=(origin,))
    )
    with run_gateway(config) as gateway:
        status, allowed = preflight(gateway, origin)
        assert status == 204
        assert allowed["origin"] == origin
        assert allowed["headers"] == "authorization,content-type"
        assert "POST" in allowed["methods"]
        assert preflight(gateway, "http://elsewhere.example") == (403, {})
