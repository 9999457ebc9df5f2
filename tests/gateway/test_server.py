"""The socket that the gateway listens on."""

from __future__ import annotations

import asyncio
import socket

from toolspeak.config.settings import Config, ServerSettings
from toolspeak.gateway.server import _bind  # pyright: ignore[reportPrivateUsage]


def test_connection_without_uvloop_sends_small_writes_at_once() -> None:
    """With Nagle's algorithm, each small write of a stream could wait 40 ms for an ACK."""

    async def is_without_delay() -> bool:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class Recorder(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connection: socket.socket = transport.get_extra_info("socket")
                option = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                accepted.set_result(option)

        listener = _bind(Config(server=ServerSettings(port=0)))
        server = await asyncio.get_running_loop().create_server(Recorder, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(*listener.getsockname())
            option = await accepted
            writer.close()
            await writer.wait_closed()
        return option != 0

    assert asyncio.run(is_without_delay())
