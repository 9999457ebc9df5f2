"""MCP servers: tools of other programs, over stdio or HTTP.

    files = McpServer.stdio("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."])
    search = McpServer.http("search", "https://example.org/mcp", headers={"authorization": …})
    Agent("ollama/qwen3:8b", tools=[files, search])

`client.py` is the source of tools, `session.py` one connection, `transports.py` the streams below
it, `config.py` the file that lists servers. `export.py` is the other direction: it serves tools of
this program. The SDK is imported when the first server is opened.
"""

from .client import McpServer
from .config import load_servers
from .transports import McpServerError

__all__ = ["McpServer", "McpServerError", "load_servers"]
