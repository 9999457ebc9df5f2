"""A gateway that runs in a thread, on a free port of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn

from toolspeak.gateway.app import Gateway
from toolspeak.gateway.corked import CorkedProtocol
from toolspeak.gateway.settings import Config, Model, Upstream


class Running:
    """A gateway, where it listens, and the loop that it runs on."""

    def __init__(self, gateway: Gateway, **options: Any) -> None:
        self.gateway = gateway
        config = uvicorn.Config(
            gateway,
            http=CorkedProtocol,
            host="127.0.0.1",
            port=0,
            log_config=None,
            access_log=False,
            **options,
        )
        self._server = uvicorn.Server(config)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the gateway did not start")
            threading.Event().wait(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def tasks(self) -> set[str]:
        """What is going on besides the server itself."""

        async def names() -> set[str]:
            here = asyncio.current_task()
            return {
                task.get_coro().__qualname__  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
                for task in asyncio.all_tasks()
                if task is not here
            } - {"Server.serve", "Server._serve", "LifespanOn.main", "Running._serve"}

        return asyncio.run_coroutine_threadsafe(names(), self.loop).result(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._server.serve())
        finally:
            self.loop.close()


@contextmanager
def running(config: Config, **options: Any) -> Generator[Running, None, None]:
    served = Running(Gateway(config, environ={}, **options))
    served.start()
    try:
        yield served
    finally:
        served.stop()


def behind(url: str, wire: str = "openai_chat", provider: str = "", **model: Any) -> Config:
    """A configuration with one model, `m`, at that address."""
    base = f"{url}/v1" if wire.startswith("openai") else url
    base = f"{url}/v1beta" if wire == "gemini" else base
    upstream = Upstream(wire=wire, base_url=base, provider=provider, retries=0)
    return Config(
        default="m", upstreams={"scripted": upstream}, models={"m": Model("scripted", **model)}
    )
