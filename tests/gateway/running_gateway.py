"""A gateway that runs in a thread, on a free port of this machine."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from typing import Any

from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.server import GatewayServer

_START_SECONDS = 60
"""Generous: a busy machine may take long to start or stop a gateway."""


class RunningGateway:
    """A gateway, its URL, and the event loop it runs on."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._server = GatewayServer(gateway)
        # Without the protocol, asyncio does not set TCP_NODELAY, and each stream takes 40 ms more.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(512)
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.loop = asyncio.new_event_loop()
        self._has_started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._has_started.wait(_START_SECONDS), "the gateway did not start"

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(_START_SECONDS)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def list_tasks(self) -> set[str]:
        """Return the names of all running tasks besides the server's own."""

        async def list_names() -> set[str]:
            current = asyncio.current_task()
            return {
                task.get_coro().__qualname__  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
                for task in asyncio.all_tasks()
                if task is not current
            } - {"GatewayServer.serve"}

        return asyncio.run_coroutine_threadsafe(list_names(), self.loop).result(_START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._server.serve(self._listener, self._has_started.set))
        finally:
            self.loop.close()


class AsgiExchange:
    """One request to an ASGI application, without a server between."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> None:
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self.sent: list[MutableMapping[str, Any]] = []
        self._body: bytes | None = body

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the whole body; after that, wait for ever: the client stays."""
        body, self._body = self._body, None
        if body is None:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]


@contextmanager
def run_gateway(config: Config, **options: Any) -> Generator[RunningGateway, None, None]:
    gateway = RunningGateway(Gateway(config, environ={}, **options))
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def make_config(url: str, wire: str = "openai_chat", provider: str = "", **model: Any) -> Config:
    """Return a configuration with one model, `m`, at this URL."""
    base = f"{url}/v1" if wire.startswith("openai") else url
    base = f"{url}/v1beta" if wire == "gemini" else base
    upstream = UpstreamSettings(wire=wire, base_url=base, provider=provider, retries=0)
    return Config(
        default="m",
        upstreams={"scripted": upstream},
        models={"m": ModelSettings("scripted", **model)},
    )
