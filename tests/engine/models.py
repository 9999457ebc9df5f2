"""Models of a few lines: each answers by what it is asked, and can do some things only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    render_calls,
)
from toolspeak.evaluation.prober import TOOLS
from toolspeak.types import Failure, Request, Text, ToolResult

Simulated = Callable[[Request], list[Event]]
Wish = tuple[str, dict[str, Any]]


def says(text: str) -> list[Event]:
    return [Started("id", "m"), TextDelta(text), Finish("stop")]


def calls(name: str, arguments: dict[str, Any]) -> list[Event]:
    """A call by the API's own means."""
    call = ToolCall(id="c1", name=name, arguments=arguments)
    made = [CallStart(0, "c1", name), ArgumentsDelta(0, json.dumps(arguments)), CallEnd(0, call)]
    return [Started("id", "m"), *made, Finish("calls")]


def refuses(problem: str, status: int = 400) -> list[Event]:
    return [Failure("internal" if status == 500 else "bad_request", problem, status)]


# What they understand.


def heard(request: Request) -> str:
    """What was said to the model last."""
    parts = request.messages[-1].parts
    return "".join(part.text for part in parts if isinstance(part, (Text, ToolResult)))


def told(request: Request) -> str:
    """All that it was told, by whomever."""
    parts = (part for message in request.messages for part in message.parts)
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def wish(request: Request) -> Wish | None:
    """The call that would be right."""
    said = heard(request)
    if "9 degrees" in said:
        return None
    if place := re.search(r"weather in (\w+)\?", said):
        return "get_weather", {"city": place[1]}
    if numbers := re.search(r"add (\d+) and (\d+)", said):
        return "add", {"a": int(numbers[1]), "b": int(numbers[2])}
    if minutes := re.search(r"(\d+) minutes", said):
        return "set_timer", {"minutes": int(minutes[1])}
    return None


def answer(request: Request) -> str:
    """What would be right where no call is."""
    if "9 degrees" in heard(request):
        return "It rains, and it has 9 degrees."
    order = re.search(r"answer only: (\w+)", told(request))
    return order[1] if order else "Seven."


# What they can do.


def honest(request: Request) -> list[Event]:
    """Has tools of its own, and has never heard of others."""
    wanted = wish(request)
    if request.tools and request.tool_choice.mode == "required":
        wanted = wanted or ("set_timer", {"minutes": 1})
    if request.tools and wanted:
        return calls(*wanted)
    return says("I do not know." if wanted else answer(request))


def writes(wanted: Wish, dialect: str) -> list[Event]:
    call = ToolCall(id="c1", name=wanted[0], arguments=wanted[1])
    return says(render_calls(dialect, [call], TOOLS))


def talker(request: Request) -> list[Event]:
    """Takes tools, and writes its calls into its text, whatever it was asked for."""
    wanted = wish(request) if request.tools else None
    return writes(wanted, "hermes") if wanted else says(answer(request))


def prompted(dialect: str, mark: str) -> Simulated:
    """Takes no tools, and understands them by a prompt in one dialect only."""

    def speak(request: Request) -> list[Event]:
        if request.tools:
            return refuses("m does not support tools")
        wanted = wish(request) if mark in told(request) else None
        return writes(wanted, dialect) if wanted else says(answer(request))

    return speak


def held(request: Request) -> list[Event]:
    """Takes tools and forgets them. Only a schema makes it write what is asked for."""
    schema = request.response_format.schema if request.response_format else None
    if schema is None:
        return says("The sea, the sea, the open sea.")
    if "anyOf" not in schema:
        return says(json.dumps({"colour": "teal", "loud": True}))
    wanted = wish(request)
    said = {"tool": wanted[0], "arguments": wanted[1]} if wanted else {"answer": answer(request)}
    return says(json.dumps(said))


def in_turns(model: Simulated) -> Simulated:
    """The same model, with a template in which nobody speaks twice."""

    def speak(request: Request) -> list[Event]:
        roles = [message.role for message in request.messages]
        if any(one == other == "user" for one, other in pairwise(roles)):
            return refuses("Conversation roles must alternate user/assistant", 500)
        return model(request)

    return speak


def without_system(model: Simulated) -> Simulated:
    """The same model, with a template that knows no system."""

    def speak(request: Request) -> list[Event]:
        if any(message.role == "system" for message in request.messages):
            return refuses("System role not supported")
        return model(request)

    return speak


def at_its_temperature(model: Simulated) -> Simulated:
    """The same model, of which nobody chooses the temperature."""

    def speak(request: Request) -> list[Event]:
        is_chosen = "temperature" in request.sampling
        return refuses("Unsupported value: temperature") if is_chosen else model(request)

    return speak


def thinking(model: Simulated, before: str, after: str) -> Simulated:
    """The same model, which thinks in its text."""

    def speak(request: Request) -> list[Event]:
        first, *rest = model(request)
        return [first, TextDelta(f"{before}A week has days.{after}"), *rest]

    return speak


def thinking_apart(request: Request) -> list[Event]:
    first, *rest = honest(request)
    return [first, ReasoningDelta("A week has days."), *rest]
