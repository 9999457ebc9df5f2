"""Serve parse, convert, render, dialects and probe over MCP."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from .._util import encode_json
from ..calls.tools import as_tools
from ..config.settings import Config
from ..errors import UsageError
from ..events import fold
from ..wires import WIRES
from . import convert as converting
from . import dialects as listing
from . import parse as parsing
from . import probe as probing
from .arguments import CommandParser
from .render import render_value
from .terminal import ConfigSource, open_status_console

if TYPE_CHECKING:
    from ..agent import AgentTool
    from ..agent.mcp.export import AsgiApp, AsgiReceive, AsgiScope, AsgiSend
    from ..gateway.http import Refused

_INSTRUCTIONS = (
    "Toolspeak parses tool calls from model text in any dialect (parse, dialects, render), "
    "converts requests, replies, messages and tools between model APIs (convert), and measures "
    "what a live model can do (probe)."
)
_READ_ONLY = {"read_only_hint": True, "open_world_hint": False}
_ASKS_MODEL = {
    "read_only_hint": False,  # It spends tokens and updates the store that gateways share.
    "destructive_hint": False,
    "idempotent_hint": True,
    "open_world_hint": True,
}
_Wire = Annotated[str, f"An API: {', '.join(WIRES)}."]
_Tools = Annotated[list[Any] | None, "Tools in any API's format."]


def add_arguments(parser: CommandParser) -> None:
    parser.add_config()
    parser.add(
        "--http",
        "serve on this address, not on stdio; clients on other machines need a key",
        metavar="HOST:PORT",
    )


def run(options: argparse.Namespace) -> int:
    from ..agent.mcp.export import create_server, serve_http, serve_stdio

    if options.http:
        options.host, options.port = _parse_address(options.http)
    settings = ConfigSource(options, open_status_console())
    server = create_server("toolspeak", _INSTRUCTIONS, _list_tools(settings))
    if not options.http:
        asyncio.run(serve_stdio(server))
        return 0
    config = settings.read_config()
    serve_http(
        server,
        config.server.host,
        config.server.port,
        protect=lambda app: _protect(app, config),
        announce=lambda url: print(url, flush=True),
    )
    return 0


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--http: expected HOST:PORT, such as 127.0.0.1:7879, got {text!r}")
    return host.strip("[]"), int(port)


def _protect(app: AsgiApp, config: Config) -> AsgiApp:
    """Let only those clients reach `app` that the gateway would admit."""
    from ..gateway.auth import AccessControl
    from ..gateway.http import Refused, RequestHead

    guard = AccessControl(config)

    async def protected(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] == "http":
            try:
                guard.authorize(RequestHead(scope))
            except Refused as refused:
                await _send_refusal(refused, send)
                return
        await app(scope, receive, send)

    return protected


async def _send_refusal(refused: Refused, send: AsgiSend) -> None:
    body = encode_json({"error": {"message": refused.failure.message}})
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= refused.headers
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    status = refused.failure.status
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _list_tools(settings: ConfigSource) -> Iterable[tuple[AgentTool, Mapping[str, bool]]]:
    """Return the tools to serve, each with its annotations."""
    from ..agent import tool
    from ..agent.tools import build_agent_tools

    async def probe(
        model: Annotated[str, "The model as clients name it."] = "",
    ) -> Any:
        """Ask a live model 20 to 40 short questions to find out what it can do and which tool mode
        works best. Takes about a minute; the provider may charge for it."""
        return probing.describe_report(*await probing.probe_by_name(model, settings.load()))

    hints: Mapping[Callable[..., Any], Mapping[str, bool]] = {
        **dict.fromkeys((parse, convert, render, dialects), _READ_ONLY),
        probe: _ASKS_MODEL,
    }
    tools = build_agent_tools(tool(writes=hint is _ASKS_MODEL)(one) for one, hint in hints.items())
    return zip(tools, hints.values(), strict=True)


# Each tool does what the command of the same name does.


def parse(
    text: Annotated[str, "The model's text."],
    tools: _Tools = None,
    dialect: Annotated[str, "A dialect's name, or auto."] = "auto",
    model: Annotated[str, "Try the dialects of this model first."] = "",
    trust: Literal["strict", "standard", "lenient"] = "standard",
    context: Annotated[
        list[Any] | None, "The messages so far: a call copied from a result is rejected."
    ] = None,
) -> Any:
    """Parse the tool calls in a model's text, in any dialect. Returns text, reasoning, calls,
    rejected blocks with the reason, notes on repairs, and the dialect. With `tools`, calls are
    validated against their schemas."""
    parser = parsing.build_text_parser(
        model, dialect, tools=as_tools(tools), trust=trust, context=context or ()
    )
    return parsing.describe_reply(fold([*parser.feed(text), *parser.finish()]))


def convert(
    value: Annotated[Any, "The value to convert; a stream or JSON lines as one string."],
    source: _Wire,
    target: _Wire,
    kind: Literal["auto", "request", "reply", "message", "tools"] = "auto",
) -> Any:
    """Convert requests, replies, messages, streams or tools from one model API to another. Returns
    the value, and notes on what was rewritten or dropped."""
    conversion = converting.Converter(source, target, kind)
    if isinstance(value, str):
        lines = value.encode("utf-8", "replace").splitlines(keepends=True)
        converted = b"".join(conversion.convert_lines(lines)).decode("utf-8", "replace")
    else:
        converted = conversion.convert_value(value)
    return {"value": converted, "notes": list(conversion.notes)}


def render(
    value: Annotated[Any, "Calls, results or tools."],
    dialect: Annotated[str, "The dialect's name."],
    what: Literal["calls", "results", "tools"] = "calls",
    tools: _Tools = None,
) -> str:
    """Render calls, results or a list of tools in a dialect."""
    return render_value(value, what, dialect, tools)


def dialects(
    names: Annotated[list[str] | None, "Only dialects with these names."] = None,
    model: Annotated[str, "Only dialects that this model is known to write."] = "",
) -> Any:
    """List the text formats in which models write tool calls, with a sample of each."""
    return [
        listing.describe_dialect(dialect) for dialect in listing.choose_dialects(names or (), model)
    ]
