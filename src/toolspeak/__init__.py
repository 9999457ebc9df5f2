"""Toolspeak: reliable tool calling for any chat model, for any client.

import toolspeak as ts

ts.extract(reply, tools=tools).calls

parser = ts.Parser(tools=tools)
for event in parser.events(stream):
    ...
"""

from .dialects import (
    DIALECTS,
    Dialect,
    Parser,
    for_model,
    render_calls,
    render_results,
    render_tools,
)
from .errors import ExtractionProblem, ToolspeakError, UnknownDialect, Unrepresentable, UsageError
from .events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    Reclassify,
    TextDelta,
    fold,
)
from .extract import Extraction, extract
from .prompts import augment_system_prompt
from .providers import format_tool_result, format_tools, parse_tool_calls
from .tools import as_tools
from .types import (
    Capabilities,
    Document,
    Image,
    Message,
    Note,
    Part,
    Plan,
    Reasoning,
    Rejection,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)

__version__ = "0.1.0"

__all__ = [
    "DIALECTS",
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
    "Finish",
    "Image",
    "Message",
    "Note",
    "Parser",
    "Part",
    "Plan",
    "Reasoning",
    "ReasoningDelta",
    "Reclassify",
    "Rejection",
    "Reply",
    "Request",
    "Text",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "ToolspeakError",
    "UnknownDialect",
    "Unrepresentable",
    "Usage",
    "UsageError",
    "as_tools",
    "augment_system_prompt",
    "extract",
    "fold",
    "for_model",
    "format_tool_result",
    "format_tools",
    "parse_tool_calls",
    "render_calls",
    "render_results",
    "render_tools",
]
