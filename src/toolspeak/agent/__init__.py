"""Agents: a model, its tools, and the loop between them.

from toolspeak.agent import Agent, tool

@tool(writes=False)
def get_weather(city: str) -> str:
    "The weather in a city."
    return "-5 °C"

Agent("embedded", tools=[get_weather], approval="full").run_sync("Is it cold in Oslo?").text
"""

from .agent import Agent
from .approvals import Answer, Approvals, Approver, Decision, Policy, Question, Record, answer_of
from .events import AgentEvent, ApprovalAsked, CallMade, Done, ResultGiven, Run
from .inspector_approver import in_inspector
from .mcp import McpServer, ServerFailed, load_servers
from .models import FunctionModel, LiveModel, Model, ModelFailed
from .resources import ToolSource
from .tools import AgentTool, Fatal, Options, ToolFailed, tool
from .transcript import Transcript

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentTool",
    "Answer",
    "ApprovalAsked",
    "Approvals",
    "Approver",
    "CallMade",
    "Decision",
    "Done",
    "Fatal",
    "FunctionModel",
    "LiveModel",
    "McpServer",
    "Model",
    "ModelFailed",
    "Options",
    "Policy",
    "Question",
    "Record",
    "ResultGiven",
    "Run",
    "ServerFailed",
    "ToolFailed",
    "ToolSource",
    "Transcript",
    "answer_of",
    "in_inspector",
    "load_servers",
    "tool",
]
