"""Many tools: the model first says which it may need, and then has only those before it.

    Which of these functions are needed for the next reply?
    - get_weather: The weather in a city.          ->   get_weather, get_tides

A list of names costs a tenth of the schemas, and a model that does not see the others cannot mix
them up. It is asked for the next reply only: later ones may need others.
"""

from __future__ import annotations

import re

from msgspec import structs

from .._util import encode_json
from ..security.message_origin import last_user_text
from ..types import Message, Plan, Request, ResponseFormat, Text, Tool, ToolCall
from .attempt import Attempt
from .plan import ModelProfile

_LETTERS_A_TOKEN = 4
_MOST_TOKENS = 200
_LONGEST = 120
_SENTENCE = re.compile(r"(?<=[.!?])\s")
_SYSTEM = (
    "You choose functions for an assistant. Reply with the names of all functions that it may need "
    "for its next reply, separated by commas, and nothing else. If it needs none, reply: none"
)


class Selecting:
    """The choice of tools for one request."""

    def __init__(self, request: Request, target: ModelProfile) -> None:
        self._request = request
        self._target = target
        self.is_asking = _is_wanted(request, target)

    def exchange(self) -> Attempt:
        """What the model is asked."""
        tools = self._request.tools or ()
        listed = "\n".join(f"- {tool.name}: {_first_sentence(tool)}" for tool in tools)
        told = f"Functions:\n{listed}\n\nThe user says:\n{last_user_text(self._request.messages)}"
        held = self._target.capabilities.constrained is True
        request = Request(
            model=self._request.model,
            messages=(Message("system", (Text(_SYSTEM),)), Message("user", (Text(told),))),
            response_format=_schema(tools) if held else None,
            max_tokens=_MOST_TOKENS,
            sampling={"temperature": 0.0},
        )
        return Attempt(request, self._target, Plan("native", reasons=("a choice of tools",)))

    def hear(self, text: str) -> Request:
        """The request with the tools that the model has named; with all, if it has named none."""
        self.is_asking = False
        used = {
            part.name
            for message in self._request.messages
            for part in message.parts
            if isinstance(part, ToolCall)
        }
        named = set(re.findall(r"[\w./:\-]+", text))
        tools = self._request.tools or ()
        chosen = [tool for tool in tools if tool.name in named]
        if not chosen:
            return self._request
        kept = tuple(tool for tool in tools if tool.name in named | used)
        return structs.replace(self._request, tools=kept)


def _is_wanted(request: Request, target: ModelProfile) -> bool:
    """Whether there are so many tools that it is worth another request. A tool that has to be
    called needs no choice."""
    tools = request.tools or ()
    if (
        target.select_tools_above is None
        or request.tool_choice.names
        or request.tool_choice.mode == "none"
    ):
        return False
    told = (f"{tool.name}{tool.description}{encode_json(tool.parameters)}" for tool in tools)
    return sum(map(len, told)) > target.select_tools_above * _LETTERS_A_TOKEN


def _schema(tools: tuple[Tool, ...]) -> ResponseFormat:
    names = {"type": "array", "items": {"enum": [tool.name for tool in tools]}}
    schema = {
        "type": "object",
        "properties": {"functions": names},
        "required": ["functions"],
        "additionalProperties": False,
    }
    return ResponseFormat(schema, "functions", strict=True)


def _first_sentence(tool: Tool) -> str:
    said = " ".join(tool.description.split())
    return _SENTENCE.split(said)[0][:_LONGEST]
