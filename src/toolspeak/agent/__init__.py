"""Agents: a model, its tools, and the loop between them.

from toolspeak.agent import Agent, tool

@tool(writes=False)
def get_weather(city: str) -> str:
    "The weather in a city."
    return "-5 °C"

Agent("embedded", tools=[get_weather], approval="full").run_sync("Is it cold in Oslo?").text
"""

from .agent import Agent, ToolSource
from .approvals import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalPolicy,
    ApprovalRequest,
    Approvals,
    Approver,
    AuditRecord,
    ask_in_inspector,
    open_audit_log,
    parse_answer,
)
from .events import (
    AgentEvent,
    ApprovalRequested,
    RunFinished,
    RunResult,
    ToolCallFinished,
    ToolCallRequested,
)
from .mcp import McpServer, McpServerError, load_servers
from .models import FunctionModel, LiveModel, ModelFailed
from .tools import AgentTool, FatalToolError, ToolError, ToolOptions, tool
from .transcript import Transcript

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentTool",
    "ApprovalAnswer",
    "ApprovalDecision",
    "ApprovalPolicy",
    "ApprovalRequest",
    "ApprovalRequested",
    "Approvals",
    "Approver",
    "AuditRecord",
    "FatalToolError",
    "FunctionModel",
    "LiveModel",
    "McpServer",
    "McpServerError",
    "ModelFailed",
    "RunFinished",
    "RunResult",
    "ToolCallFinished",
    "ToolCallRequested",
    "ToolError",
    "ToolOptions",
    "ToolSource",
    "Transcript",
    "ask_in_inspector",
    "load_servers",
    "open_audit_log",
    "parse_answer",
    "tool",
]
