"""What a model that has never heard of tools is told about them.

augment_system_prompt("Be helpful.", tools, dialect="tagged", compact="auto", examples=True)

The text is the same for the same tools: prompts can be cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

from .._util import encode_json
from ..calls.tools import as_tools, get_first_sentence, shorten_text
from ..dialects import Dialect, render_calls, render_results, render_tools
from ..dialects.registry import get_dialect
from ..dialects.render import MAX_DESCRIPTION_LENGTH, sample_call, tools_for_examples
from ..types import Tool, ToolResult

COMPACT_FROM = 1_000
"""Tokens of a full list from which `compact="auto"` gives the short one: weak models lose their way
in long prompts."""
_SHARE = 8
"""Where the context is known, a full list may take one part of so many of it."""
_CHARACTERS_A_TOKEN = 4


def augment_system_prompt(
    base: str | None,
    tools: Iterable[Any],
    dialect: str | Dialect = "tagged",
    *,
    compact: bool | Literal["auto"] = False,
    examples: bool = False,
    budget: int = COMPACT_FROM,
) -> str:
    """The system prompt with the tools, and with how to call them in this dialect.

    `compact` gives each tool one line instead of its schema; "auto" does so where the full list
    would take more than `budget` tokens. `examples` shows two conversations with the tools.
    """
    spoken = get_dialect(dialect) if isinstance(dialect, str) else dialect
    declared = as_tools(tools) or ()
    about = tuple(
        (tool.name, tool.description, tool.parameters, tool.freeform) for tool in declared
    )
    told = _told(encode_json(about), spoken, compact, examples, budget)
    parts = ((base or "").strip() and base, told)
    return "\n\n".join(part for part in parts if part)


def tool_list_budget(context: int | None) -> int:
    """The tokens that a full list may take, of a context of so many."""
    return context // _SHARE if context else COMPACT_FROM


@lru_cache(maxsize=128)
def _told(
    about: str, dialect: Dialect, compact: bool | Literal["auto"], examples: bool, budget: int
) -> str:
    """What is said of the tools: the same in every turn, and so not written anew in each."""
    tools = [
        Tool(name=name, description=description, parameters=parameters, freeform=freeform)
        for name, description, parameters, freeform in json.loads(about)
    ]
    instructions = render_tools(dialect, tools, compact=compact is True)
    if compact == "auto" and len(instructions) > budget * _CHARACTERS_A_TOKEN:
        instructions = render_tools(dialect, tools, compact=True)
    shown = _conversations(dialect, tools) if examples and tools else ""
    return "\n\n".join(part for part in (instructions, shown) if part)


def _conversations(dialect: Dialect, tools: Sequence[Tool]) -> str:
    """One short conversation and one of two steps."""
    shown = tools_for_examples(tools)
    first, second = shown[0], shown[1 % len(shown)]
    return "\n\n".join(
        (
            "For example:",
            _conversation(dialect, tools, [first]),
            "And where one call depends on another:",
            _conversation(dialect, tools, [first, second]),
        )
    )


def _conversation(dialect: Dialect, tools: Sequence[Tool], steps: Sequence[Tool]) -> str:
    turns = [f"User: Please {', and then '.join(_wish(tool) for tool in steps)}."]
    for number, tool in enumerate(steps, 1):
        call = sample_call(tool, f"call_{number}")
        result = ToolResult(call_id=call.id, name=tool.name, content="ok")
        turns.append(f"Assistant: {render_calls(dialect, [call], tools)}")
        turns.append(f"Result: {render_results(dialect, [result])}")
    return "\n".join((*turns, "Assistant: It is done."))


def _wish(tool: Tool) -> str:
    """What somebody may say who wants this tool to be used."""
    about = shorten_text(get_first_sentence(tool.description), MAX_DESCRIPTION_LENGTH)
    return f"use {tool.name} ({about.rstrip('.!?')})" if about else f"use {tool.name}"
