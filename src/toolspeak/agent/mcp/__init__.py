"""MCP servers: tools that other programs have, over stdio or HTTP.

    files = McpServer.stdio("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."])
    search = McpServer.http("search", "https://example.org/mcp", headers={"authorization": …})
    Agent("ollama/qwen3:8b", tools=[files, search])

`server.py` is the source of tools, `session.py` a connection in its own task, `transports.py` the
way there, `naming.py` and `results.py` what becomes of names and results. Only the middle two need
the SDK, and it is imported when a server is opened.
"""

from .config import load_servers
from .failures import ServerFailed
from .server import McpServer

__all__ = ["McpServer", "ServerFailed", "load_servers"]
