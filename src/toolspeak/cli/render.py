"""Write tool calls, results or tools as text in a dialect."""

from __future__ import annotations

import argparse
from typing import Any

from .._util import format_json
from ..calls.drafts import decode_arguments, read_drafts
from ..calls.resolution import new_call_id
from ..calls.tools import as_tools
from ..dialects import render_calls, render_results, render_tools
from ..errors import UsageError
from ..types import ToolCall, ToolResult
from .arguments import CommandParser
from .terminal import read_json


def add_arguments(parser: CommandParser) -> None:
    parser.add_input("render this JSON file")
    parser.add("--dialect", "the dialect to write", required=True)
    parser.add_file("--tools", "take argument types from the tools in this JSON file")
    parser.add_choice("--what", ("calls", "results", "tools"), "what the file contains")


def run(options: argparse.Namespace) -> int:
    tools = read_json(options.tools) if options.tools else None
    print(render_value(read_json(options.file), options.what, options.dialect, tools))
    return 0


def render_value(value: Any, what: str, dialect: str, tools: Any = None) -> str:
    match what:
        case "calls":
            return render_calls(dialect, _read_calls(value), as_tools(tools))
        case "results":
            return render_results(dialect, _read_results(value))
        case _:
            return render_tools(dialect, as_tools(value) or ())


def _read_calls(value: Any) -> list[ToolCall]:
    if isinstance(value, dict) and isinstance(value.get("calls"), list):
        value = value["calls"]  # The output of `toolspeak parse`.
    calls: list[ToolCall] = []
    for index, draft in enumerate(read_drafts(value)):
        arguments, problem, _ = decode_arguments(draft)
        if draft.problem or arguments is None:
            raise UsageError(f"{draft.problem or problem} - at `$[{index}]`")
        calls.append(ToolCall(id=draft.id or new_call_id(), name=draft.name, arguments=arguments))
    return calls


def _content_text(content: Any) -> str:
    return content if isinstance(content, str) else format_json(content)


def _read_results(value: Any) -> list[ToolResult]:
    results: list[ToolResult] = []
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(item, dict) or "content" not in item:
            raise UsageError(f"Expected a result with `content` - at `$[{index}]`")
        results.append(
            ToolResult(
                call_id=str(item.get("call_id") or item.get("tool_call_id") or ""),
                name=str(item.get("name") or ""),
                content=_content_text(item["content"]),
                is_error=bool(item.get("is_error")),
            )
        )
    return results
