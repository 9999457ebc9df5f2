"""Offer parse, convert, render, dialects and probe over MCP."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from ..calls.tools import as_tools
from ..errors import UsageError
from ..events import fold
from ..wires import WIRES
from . import convert as converting
from . import dialects as listing
from . import parse as parsing
from . import probe as probing
from .render import rendered
from .serve import Settings, add_sources

if TYPE_CHECKING:
    from ..agent.mcp.export import Offer

_INSTRUCTIONS = (
    "Toolspeak reads tool calls out of what models write, in any dialect (parse, dialects, "
    "render), turns requests, replies, messages and tools of one model API into those of another "
    "(convert), and finds out what a live model can do (probe)."
)
_READS = {"read_only_hint": True, "open_world_hint": False}
_ASKS = {
    "read_only_hint": False,  # It spends tokens, and tells gateways that share a store.
    "destructive_hint": False,
    "idempotent_hint": True,
    "open_world_hint": True,
}
_Wire = Annotated[str, f"An API: {', '.join(WIRES)}."]
_Tools = Annotated[list[Any] | None, "Tools in any API's shape."]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="listen there, in place of stdio; beyond this machine only with client keys",
    )


def run(options: argparse.Namespace) -> int:
    if options.http:
        options.host, options.port = _place(options.http)
    settings = Settings(options, Console(stderr=True, highlight=False))
    try:
        from ..agent.mcp.export import serve_http, serve_stdio
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"an MCP server needs {missing.name}: pip install 'toolspeak[agent]'"
        ) from None
    server = _offer(settings).server("toolspeak", _INSTRUCTIONS)
    if options.http:
        serve_http(server, settings.read(), lambda url: print(url, flush=True))
    else:
        asyncio.run(serve_stdio(server))
    return 0


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"Expected HOST:PORT, such as 127.0.0.1:7879, got {text!r} - at `--http`")
    return host.strip("[]"), int(port)


def _offer(settings: Settings) -> Offer:
    from ..agent import tool
    from ..agent.mcp.export import Offer
    from ..agent.tools import as_agent_tools

    async def probe(model: Annotated[str, "As clients name it; the default if empty."] = "") -> Any:
        """Ask a live model 20 to 40 small questions, to find out what it can do and which way of
        giving it tools works best. It takes about a minute, and its provider may charge for it."""
        return await _probed(model, settings)

    reads: Mapping[Callable[..., Any], Mapping[str, bool]] = {
        **dict.fromkeys((parse, convert, render, dialects), _READS),
        probe: _ASKS,
    }
    made = as_agent_tools(tool(writes=hints is _ASKS)(one) for one, hints in reads.items())
    return Offer(zip(made, reads.values(), strict=True))


# The tools: each does what the command of its name does.


def parse(
    text: Annotated[str, "What the model wrote."],
    tools: _Tools = None,
    dialect: Annotated[str, "A dialect's name, or auto."] = "auto",
    model: Annotated[str, "Try the dialects of this model first."] = "",
    trust: Literal["strict", "standard", "lenient"] = "standard",
    context: Annotated[list[Any] | None, "The messages so far, to find echoes."] = None,
) -> Any:
    """Read the tool calls out of a model's text, in whatever dialect it writes them. Gives text,
    reasoning, calls, rejected blocks with the reason, notes on what was repaired, and the dialect.
    If tools are given, calls are checked against their schemas."""
    parser = parsing.parser_for(
        model, dialect, tools=as_tools(tools), trust=trust, context=context or ()
    )
    return parsing.described(fold([*parser.feed(text), *parser.finish()]))


def convert(
    value: Annotated[Any, "What to convert; a stream, or lines of JSON, as one string."],
    source: _Wire,
    target: _Wire,
    kind: Literal["auto", "request", "reply", "message", "tools"] = "auto",
) -> Any:
    """Convert requests, replies, messages, streams or tools from one model API to another. Gives
    the value, and notes on what was rephrased or lost."""
    conversion = converting.Conversion(source, target, kind)
    if isinstance(value, str):
        lines = value.encode("utf-8", "replace").splitlines(keepends=True)
        made = b"".join(conversion.all(lines)).decode("utf-8", "replace")
    else:
        made = conversion.value(value)
    return {"value": made, "notes": list(conversion.notes)}


def render(
    value: Annotated[Any, "Calls, results or tools."],
    dialect: Annotated[str, "The dialect's name."],
    what: Literal["calls", "results", "tools"] = "calls",
    tools: _Tools = None,
) -> str:
    """Write calls, results or a list of tools in a dialect, as a model would or should read it."""
    return rendered(value, what, dialect, tools)


def dialects(
    names: Annotated[list[str] | None, "Only these."] = None,
    model: Annotated[str, "Only those that this model is known to speak."] = "",
) -> Any:
    """List the text formats in which models write tool calls, with a sample of each."""
    return [listing.describe(dialect) for dialect in listing.choose(names or (), model)]


async def _probed(model: str, settings: Settings) -> Any:
    try:
        from ..evaluation.probe import advice
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"a probe needs {missing.name}: pip install 'toolspeak[gateway,local]'"
        ) from None
    loaded = settings.loaded()
    report, served, shared = await probing.probed(model, loaded, lambda _: None)
    return probing.described(report, advice(report, served, loaded), shared=shared)
