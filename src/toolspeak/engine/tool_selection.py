"""Tool selection: with very many tools, the model first names those that it may need.

    List the tools that an assistant may need for its next reply. …
    - get_weather: The weather in a city.          ->   get_weather, get_tides

Names with short descriptions cost a tenth of the schemas, and a model cannot confuse tools that it
does not see.
The selection holds for one reply: the next one may need others.
"""

from __future__ import annotations

import re

from msgspec import structs

from .._util import format_json
from ..security.message_origin import last_user_text
from ..types import Message, Plan, Request, ResponseFormat, Text, Tool, ToolCall
from .attempt import PREPARATION, Attempt, prepare_attempt
from .plan import ModelProfile

_CHARACTERS_PER_TOKEN = 4
_MAX_TOKENS = 200
_MAX_DESCRIPTION = 120
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_INSTRUCTIONS = "List the tools that an assistant may need for its next reply."
_FORM = " Write only their names, separated by commas. If it needs none, write: none"


def needs_tool_selection(request: Request, profile: ModelProfile) -> bool:
    """Return True if the tools are larger than the profile's limit, and none is forced."""
    limit, choice = profile.select_tools_above, request.tool_choice
    if limit is None or choice.names or choice.mode == "none":
        return False
    texts = (
        f"{tool.name}{tool.description}{format_json(tool.parameters)}"
        for tool in request.tools or ()
    )
    return sum(map(len, texts)) > limit * _CHARACTERS_PER_TOKEN


def prepare_tool_selection(request: Request, profile: ModelProfile) -> Attempt:
    """Return the attempt that asks the model which tools it needs."""
    tools = request.tools or ()
    names = "\n".join(f"- {tool.name}: {_shorten_description(tool)}" for tool in tools)
    question = f"Tools:\n{names}\n\nThe user says:\n{last_user_text(request.messages)}"
    can_constrain = profile.capabilities.constrained is True
    instructions = _INSTRUCTIONS if can_constrain else _INSTRUCTIONS + _FORM
    selection = Request(
        model=request.model,
        messages=(Message("system", (Text(instructions),)), Message("user", (Text(question),))),
        response_format=_names_schema(tools) if can_constrain else None,
        max_tokens=_MAX_TOKENS,
        sampling={"temperature": 0.0},
    )
    plan = Plan("native", reasons=("the model selects its tools",))
    return prepare_attempt(selection, profile, plan, reason=PREPARATION, is_side_question=True)


def select_tools(request: Request, reply_text: str) -> Request:
    """Return the request with the tools that the reply names; with all, if it names none.

    Tools that were called before stay.
    """
    tools = request.tools or ()
    named = set(re.findall(r"[\w./:\-]+", reply_text))
    if not any(tool.name in named for tool in tools):
        return request
    used = {
        part.name
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }
    selected = tuple(tool for tool in tools if tool.name in named | used)
    return structs.replace(request, tools=selected)


def _names_schema(tools: tuple[Tool, ...]) -> ResponseFormat:
    names = {"type": "array", "items": {"enum": [tool.name for tool in tools]}}
    schema = {
        "type": "object",
        "properties": {"tools": names},
        "required": ["tools"],
        "additionalProperties": False,
    }
    return ResponseFormat(schema, "tools", strict=True)


def _shorten_description(tool: Tool) -> str:
    description = " ".join(tool.description.split())
    return _SENTENCE_END.split(description)[0][:_MAX_DESCRIPTION]
