"""The questions that a model is asked: so small that a wrong answer is not for lack of wit."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ...calls.tools import as_tools
from ...types import (
    Message,
    Reply,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_CITY = {"city": {"type": "string", "description": "The name of the city."}}
_NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
_MINUTES = {"minutes": {"type": "integer", "description": "How long it runs."}}


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


TOOLS: tuple[Tool, ...] = tuple(
    as_tools(
        (
            _tool("get_weather", "Tells the weather in a city.", _CITY),
            _tool("add", "Adds two numbers.", _NUMBERS),
            _tool("set_timer", "Starts a timer.", _MINUTES),
        )
    )
    or ()
)


class Question(Struct, frozen=True):
    """Something to ask while there are tools, and what the right reply is."""

    title: str
    messages: tuple[Message, ...]
    name: str = ""
    """The tool to call; empty if there is none to be called."""
    arguments: dict[str, Any] = {}
    words: tuple[str, ...] = ()
    """An answer has to have one of them."""

    def is_answered_by(self, reply: Reply) -> bool:
        """Whether a reply is the right one: this one call, or an answer and no call."""
        if reply.failure or reply.rejected:
            return False
        if self.name:
            return len(reply.calls) == 1 and self._is_meant(reply.calls[0])
        said = reply.text.lower()
        return not reply.calls and bool(said.strip()) and (not self.words or _any(self.words, said))

    def _is_meant(self, call: ToolCall) -> bool:
        given = call.arguments
        return call.name == self.name and all(
            _same(value, given.get(key)) for key, value in self.arguments.items()
        )


def _any(words: tuple[str, ...], text: str) -> bool:
    return any(word in text for word in words)


def _same(wanted: Any, given: Any) -> bool:
    """`Paris, France` will do for `Paris`."""
    if isinstance(wanted, str):
        return wanted.lower() in str(given).lower()
    return wanted == given


def user(text: str) -> Message:
    """What the user says."""
    return Message("user", (Text(text),))


# No city that examples in prompts have: it would be right to repeat them.
_WEATHER = user("What is the weather in Paris?")
_CALL = ToolCall(id="call_a1b2c3d4e", name="get_weather", arguments={"city": "Paris"})
_RESULT = ToolResult(call_id=_CALL.id, name=_CALL.name, content="Rain, 9 degrees.")

CALLS = (
    Question("weather", (_WEATHER,), "get_weather", {"city": "Paris"}),
    Question("sum", (user("Use the tool to add 17 and 25."),), "add", {"a": 17, "b": 25}),
    Question("timer", (user("Start a timer of 5 minutes."),), "set_timer", {"minutes": 5}),
)
GREETING = Question("greeting", (user("Hello! How are you?"),))
AFTER_RESULT = Question(
    "result",
    (_WEATHER, Message("assistant", (_CALL,)), Message("tool", (_RESULT,))),
    words=("rain", "9", "nine"),
)
QUESTIONS = (*CALLS, GREETING, AFTER_RESULT)


def request_for(question: Question, choice: Literal["auto", "required"] = "auto") -> Request:
    """A question with the tools, as a client would send it."""
    return Request(
        model="", messages=question.messages, tools=TOOLS, tool_choice=ToolChoice(choice)
    )


def chat(*messages: Message, held_to: ResponseFormat | None = None) -> Request:
    """A conversation without tools."""
    return Request(model="", messages=messages, response_format=held_to)
