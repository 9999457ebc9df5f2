"""Serve parse, convert, render, dialects and probe over MCP."""

from __future__ import annotations

import argparse
import asyncio
from typing import Annotated, Any, Literal

from ..agent.tools import AgentTool, build_agent_tools, tool
from ..calls.tools import as_tools
from ..events import fold
from ..wires import WIRES
from . import convert as converting
from . import dialects as listing
from . import parse as parsing
from . import probe as probing
from .arguments import CommandParser
from .render import render_value
from .terminal import ConfigSource, open_status_console

_INSTRUCTIONS = (
    "Toolspeak parses tool calls from model text in any dialect (parse, dialects, render), "
    "converts requests, replies, messages and tools between model APIs (convert), and measures "
    "what a live model can do (probe)."
)
_Wire = Annotated[str, f"An API: {', '.join(WIRES)}."]
_Tools = Annotated[list[Any] | None, "Tools in any API's format."]


def add_arguments(parser: CommandParser) -> None:
    parser.add_config()


def run(options: argparse.Namespace) -> int:
    from ..agent.mcp.export import create_server, serve_stdio

    settings = ConfigSource(options, open_status_console())
    server = create_server("toolspeak", _INSTRUCTIONS, _list_tools(settings))
    asyncio.run(serve_stdio(server))
    return 0


def _list_tools(settings: ConfigSource) -> tuple[AgentTool, ...]:
    # It spends tokens, and updates the store that gateways share.
    @tool(writes=True, idempotent=True)
    async def probe(model: Annotated[str, "The model's name, as clients send it."] = "") -> Any:
        """Ask a live model 20 to 40 short questions to find out what it can do and which tool mode
        works best. Takes about a minute; the provider may charge for it."""
        return probing.describe_report(*await probing.probe_by_name(model, settings.load()))

    return build_agent_tools([parse, convert, render, dialects, probe])


# Each tool does what the command of the same name does.


@tool(writes=False)
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


@tool(writes=False)
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


@tool(writes=False)
def render(
    value: Annotated[Any, "The calls, results or tools to render; `what` says which."],
    dialect: Annotated[str, "The dialect's name."],
    what: Literal["calls", "results", "tools"] = "calls",
    tools: _Tools = None,
) -> str:
    """Render calls, results or a list of tools in a dialect."""
    return render_value(value, what, dialect, tools)


@tool(writes=False)
def dialects(
    names: Annotated[list[str] | None, "Only dialects with these names."] = None,
    model: Annotated[str, "Only dialects that this model is known to write."] = "",
) -> Any:
    """List the text formats in which models write tool calls, with a sample of each."""
    return [
        listing.describe_dialect(dialect) for dialect in listing.choose_dialects(names or (), model)
    ]
