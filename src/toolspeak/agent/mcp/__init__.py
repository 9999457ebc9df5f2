"""MCP servers: tools that other programs have, over stdio or HTTP.

    files = McpServer.stdio("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."])
    search = McpServer.http("search", "https://example.org/mcp", headers={"authorization": …})
    Agent("ollama/qwen3:8b", tools=[files, search])

`server.py` is the source of tools, `session.py` a connection in its own task, `transports.py` the
way there and `journeys.py` what is known of requests on it, `listing.py` what tools there are,
`naming.py` and `results.py` what becomes of names and results. `config.py` reads lists of servers.
`serving.py` is the other way round. The SDK is imported when the first server is opened.
"""

from .client import McpServer
from .config import load_servers
from .endpoints import McpServerError

__all__ = ["McpServer", "McpServerError", "load_servers"]
