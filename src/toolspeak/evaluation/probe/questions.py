"""The probe's questions, so simple that a wrong answer does not come from lack of intelligence."""

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


def _declare_tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


TOOLS: tuple[Tool, ...] = tuple(
    as_tools(
        (
            _declare_tool("get_weather", "Tells the weather in a city.", _CITY),
            _declare_tool("add", "Adds two numbers.", _NUMBERS),
            _declare_tool("set_timer", "Starts a timer.", _MINUTES),
        )
    )
    or ()
)


class ProbeQuestion(Struct, frozen=True):
    """A question asked with tools on offer, and the reply that is correct."""

    title: str
    messages: tuple[Message, ...]
    tool_name: str = ""
    """The tool to call; empty if the correct reply has no call."""
    arguments: dict[str, Any] = {}
    expected_words: tuple[str, ...] = ()
    """A correct answer contains one of them."""

    def is_correct_reply(self, reply: Reply) -> bool:
        """Check for the one expected call, or for an answer without any call."""
        if reply.failure or reply.rejected:
            return False
        if self.tool_name:
            return len(reply.calls) == 1 and self._is_expected_call(reply.calls[0])
        text = reply.text.lower()
        has_words = not self.expected_words or any(word in text for word in self.expected_words)
        return not reply.calls and bool(text.strip()) and has_words

    def _is_expected_call(self, call: ToolCall) -> bool:
        return call.name == self.tool_name and all(
            _match_value(expected, call.arguments.get(key))
            for key, expected in self.arguments.items()
        )


def _match_value(expected: Any, value: Any) -> bool:
    """Compare two values; `Paris, France` is accepted for `Paris`."""
    if isinstance(expected, str):
        return expected.lower() in str(value).lower()
    return expected == value


def user_message(text: str) -> Message:
    return Message("user", (Text(text),))


# A city that no example in our prompts names: a model might just repeat the example.
_WEATHER = user_message("What is the weather in Paris?")
_CALL = ToolCall(id="call_a1b2c3d4e", name="get_weather", arguments={"city": "Paris"})
_RESULT = ToolResult(call_id=_CALL.id, name=_CALL.name, content="Rain, 9 degrees.")

CALL_QUESTIONS = (
    ProbeQuestion("weather", (_WEATHER,), "get_weather", {"city": "Paris"}),
    ProbeQuestion(
        "sum", (user_message("Use the tool to add 17 and 25."),), "add", {"a": 17, "b": 25}
    ),
    ProbeQuestion(
        "timer", (user_message("Start a timer of 5 minutes."),), "set_timer", {"minutes": 5}
    ),
)
GREETING = ProbeQuestion("greeting", (user_message("Hello! How are you?"),))
AFTER_RESULT = ProbeQuestion(
    "result",
    (_WEATHER, Message("assistant", (_CALL,)), Message("tool", (_RESULT,))),
    expected_words=("rain", "9", "nine"),
)
QUESTIONS = (*CALL_QUESTIONS, GREETING, AFTER_RESULT)


def build_tool_request(
    question: ProbeQuestion, choice: Literal["auto", "required"] = "auto"
) -> Request:
    return Request(
        model="", messages=question.messages, tools=TOOLS, tool_choice=ToolChoice(choice)
    )


def build_chat_request(
    *messages: Message, response_format: ResponseFormat | None = None
) -> Request:
    return Request(model="", messages=messages, response_format=response_format)
