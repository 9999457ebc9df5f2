"""A server of the official SDK: `python sdk.py` over stdio, `python sdk.py fork` over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("toys", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"{a} + {b} = {a + b}"


@server.tool()
async def wait(seconds: float, begun: str) -> str:
    """Create the file `begun`, then wait."""
    Path(begun).touch()
    await asyncio.sleep(seconds)
    return f"waited {seconds:g}"


@server.tool()
def pid() -> int:
    """The number of this process."""
    return os.getpid()


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def papers() -> CallToolResult:
    """A text, an embedded text and a recording."""
    resource = TextResourceContents(uri="file:///a.txt", text="api_key=sk-abcdefghijklmnop1234")
    return CallToolResult(
        content=[
            TextContent(text="Two things:"),
            EmbeddedResource(resource=resource),
            AudioContent(data="AAAA", mime_type="audio/wav"),
        ]
    )


@server.tool()
def structured() -> CallToolResult:
    """Return only structured content."""
    return CallToolResult(content=[], structured_content={"a": [1, 2]})


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool."""
    server.add_tool(lambda: f"I am {name}", name=name, description="A new one.")
    await ctx.notify_tools_changed()
    return f"added {name}"


def serve(port: int) -> None:
    """Serve on a port; print the process id and the port once it is open."""
    listening = socket.create_server(("127.0.0.1", port))
    print(os.getpid(), listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listening])


def fork_servers() -> None:
    """Start a server for each port that is read from stdin. The SDK is imported only once."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            serve(int(line))
            os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["fork"]:
        fork_servers()
    else:
        server.run()
