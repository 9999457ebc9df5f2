"""Toolspeak: reliable tool calling for any chat model and any client.

import toolspeak as ts

ts.extract(reply, tools=tools).calls

parser = ts.Parser(tools=tools)
for event in parser.events(stream):
    ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .calls.tools import as_tools
from .dialects import (
    DIALECTS,
    Dialect,
    Parser,
    dialects_for_model,
    render_calls,
    render_results,
    render_tools,
)
from .engine.prompt import augment_system_prompt
from .errors import (
    ExtractionProblem,
    ToolspeakError,
    UnknownDialect,
    Unrepresentable,
    UsageError,
    WireError,
)
from .events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    PartAdded,
    ReasoningDelta,
    Reclassify,
    Started,
    TextDelta,
    fold,
    use_reasoning_as_text,
)
from .extract import Extraction, extract
from .provider_formats import format_tool_result, format_tools, parse_tool_calls
from .types import (
    Capabilities,
    Document,
    Failure,
    Image,
    Message,
    Note,
    Other,
    Part,
    Plan,
    Reasoning,
    Rejection,
    Reply,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)

if TYPE_CHECKING:
    from .agent import Agent
    from .security.scrubbing import scrub

__version__ = "0.1.0"

__all__ = [
    "DIALECTS",
    "Agent",
    "ArgumentsDelta",
    "CallEnd",
    "CallRejected",
    "CallStart",
    "Capabilities",
    "Dialect",
    "Document",
    "Event",
    "Extraction",
    "ExtractionProblem",
    "Failure",
    "Finish",
    "Image",
    "Message",
    "Note",
    "Other",
    "Parser",
    "Part",
    "PartAdded",
    "Plan",
    "Reasoning",
    "ReasoningDelta",
    "Reclassify",
    "Rejection",
    "Reply",
    "Request",
    "ResponseFormat",
    "Started",
    "Text",
    "TextDelta",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "ToolspeakError",
    "UnknownDialect",
    "Unrepresentable",
    "Usage",
    "UsageError",
    "WireError",
    "as_tools",
    "augment_system_prompt",
    "dialects_for_model",
    "extract",
    "fold",
    "format_tool_result",
    "format_tools",
    "parse_tool_calls",
    "render_calls",
    "render_results",
    "render_tools",
    "scrub",
    "use_reasoning_as_text",
]

_IMPORTED_ON_USE = {"Agent": ".agent", "scrub": ".security.scrubbing"}
"""Names that most programs do not need, and their modules."""


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_IMPORTED_ON_USE[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
