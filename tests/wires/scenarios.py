"""Conversations that every pair of wires has to carry, and what they mean, whatever the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Document,
    Event,
    Finish,
    Image,
    Message,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Request,
    ResponseFormat,
    Started,
    Text,
    TextDelta,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}},
        "required": ["city"],
    },
)
NOW = Tool(name="now", description="The time.", parameters={"type": "object", "properties": {}})
TOOLS = (WEATHER, NOW)
USAGE = Usage(120, 17)


class Scenario(Struct, frozen=True):
    name: str
    request: Request
    reply: tuple[Event, ...]


def said(text: str) -> Message:
    return Message("user", (Text(text),))


def call(identity: str, name: str = "get_weather", **arguments: Any) -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=arguments)


def answer(*events: Event, reason: Any = "stop") -> tuple[Event, ...]:
    return (Started("", "m"), *events, Finish(reason, None, USAGE))


def called(index: int, made: ToolCall, size: int = 5) -> Iterable[Event]:
    """A call whose arguments come in pieces, or in none."""
    yield CallStart(index, made.id, made.name, "native")
    text = made.arguments_json if made.arguments else ""
    for at in range(0, len(text), size):
        yield ArgumentsDelta(index, text[at : at + size])
    yield CallEnd(index, made)


def asks(*messages: Message, **fields: Any) -> Request:
    given: dict[str, Any] = {"tools": TOOLS, "stream": True, **fields}
    return Request(model="m", messages=messages, max_tokens=500, **given)


OSLO, PARIS, CLOCK = (
    call("call_a", city="Oslo", days=3),
    call("call_b", city="Paris"),
    call("call_c", "now"),
)
HELLO = answer(TextDelta("Hel"), TextDelta("lo."))

SCENARIOS = [
    Scenario(
        "no tools", asks(Message("system", (Text("Be brief."),)), said("Hi"), tools=None), HELLO
    ),
    Scenario("one call", asks(said("Weather in Oslo?")), answer(*called(0, OSLO), reason="calls")),
    Scenario(
        "parallel calls",
        asks(said("Oslo and Paris?")),
        answer(*called(0, OSLO), *called(1, PARIS), *called(2, CLOCK), reason="calls"),
    ),
    Scenario(
        "call and text",
        asks(said("Weather?")),
        answer(TextDelta("Let me "), TextDelta("look."), *called(0, OSLO), reason="calls"),
    ),
    Scenario(
        "results",
        asks(
            said("Oslo, Paris, and the time?"),
            Message("assistant", (Text("Looking."), OSLO, PARIS, CLOCK)),
            Message(
                "tool",
                (
                    ToolResult(call_id="call_a", name="get_weather", content="Sunny, 20°"),
                    ToolResult(
                        call_id="call_b", name="get_weather", content="no such city", is_error=True
                    ),
                    ToolResult(
                        call_id="call_c",
                        name="now",
                        content=(Text("a clock"), Image(data=PIXEL, media_type="image/png")),
                    ),
                ),
            ),
        ),
        HELLO,
    ),
    Scenario(
        "reasoning",
        asks(
            said("Weather?"),
            Message("assistant", (Reasoning("The user asks.", "c2ln"), OSLO)),
            Message("tool", (ToolResult(call_id="call_a", name="get_weather", content="Sunny"),)),
            thinking=Thinking(enabled=True, effort="high"),
        ),
        answer(
            ReasoningDelta("It is "),
            ReasoningDelta("sunny."),
            ReasoningDelta("", "bW9yZQ=="),
            TextDelta("Sunny."),
        ),
    ),
    Scenario(
        "forced choice",
        asks(said("Weather?"), tool_choice=ToolChoice("required", ("get_weather",))),
        answer(*called(0, OSLO), reason="calls"),
    ),
    Scenario(
        "any tool, one at a time",
        asks(said("Weather?"), tool_choice=ToolChoice("required"), parallel_tool_calls=False),
        answer(*called(0, OSLO), reason="calls"),
    ),
    Scenario("no tool", asks(said("Weather?"), tool_choice=ToolChoice("none")), HELLO),
    Scenario(
        "one of two tools",
        asks(
            said("Weather?"),
            tools=(*TOOLS, Tool(name="other", description="Another.", parameters=NOW.parameters)),
            tool_choice=ToolChoice("required", ("get_weather", "now")),
        ),
        answer(*called(0, CLOCK), reason="calls"),
    ),
    Scenario(
        "structured output",
        asks(
            said("Weather, as JSON."),
            tools=None,
            response_format=ResponseFormat(
                {
                    "type": "object",
                    "properties": {"sky": {"type": "string"}},
                    "required": ["sky"],
                    "additionalProperties": False,
                },
                "weather",
                strict=True,
            ),
        ),
        answer(TextDelta('{"sky": '), TextDelta('"blue"}')),
    ),
    Scenario(
        "unicode",
        asks(said("Das Wetter in Ø? 天气 \U0001f326\u2028")),
        answer(
            TextDelta("\U0001f326 天"),
            TextDelta('气 \u2028"\\\n'),
            *called(0, call("call_u", city='Tromsø \U0001f30d\n"x"'), size=3),
            reason="calls",
        ),
    ),
    Scenario("empty arguments", asks(said("Time?")), answer(*called(0, CLOCK), reason="calls")),
    Scenario(
        "many turns",
        asks(
            Message("system", (Text("Be brief."),)),
            said("Oslo?"),
            Message("assistant", (OSLO,)),
            Message("tool", (ToolResult(call_id="call_a", name="get_weather", content="Sunny"),)),
            Message("assistant", (Text("Sunny."),)),
            said("And Paris?"),
            Message("assistant", (Text("One moment."), PARIS)),
            Message("tool", (ToolResult(call_id="call_b", name="get_weather", content="Rain"),)),
            said("Thanks, in one word?"),
        ),
        answer(TextDelta("Rain.")),
    ),
    Scenario(
        "pictures and papers",
        asks(
            Message(
                "user",
                (
                    Text("What is this?"),
                    Image(data=PIXEL, media_type="image/png"),
                    Image(url="https://example.org/a.png"),
                    Document(data="JVBERi0=", media_type="application/pdf", title="a.pdf"),
                ),
            ),
            tools=None,
        ),
        HELLO,
    ),
    Scenario(
        "settings",
        asks(
            said("Hi"),
            tools=None,
            stop=("END", "STOP"),
            sampling={
                "temperature": 0.5,
                "top_p": 0.9,
                "top_k": 40,
                "seed": 7,
                "presence_penalty": 0.1,
                "frequency_penalty": 0.2,
            },
            metadata={"user_id": "u1"},
            stream=False,
        ),
        answer(TextDelta("Hello."), reason="length"),
    ),
    Scenario(
        "a developer's word in between",
        asks(
            Message("system", (Text("Be brief."),)),
            said("Hi"),
            Message("assistant", (Text("Hello."),)),
            Message("developer", (Text("Speak French."),)),
            said("Again"),
        ),
        answer(TextDelta("Bonjour.")),
    ),
    Scenario(
        "strict tools",
        asks(
            said("Weather?"),
            tools=(Tool(name="get_weather", parameters=WEATHER.parameters, strict=True),),
        ),
        HELLO,
    ),
]


# What a conversation means, whatever the wire.


def facets(request: Request) -> dict[str, Any]:
    """What a request asks for, in pieces that can be compared one by one."""
    identities: dict[str, int] = {}
    found: dict[str, Any] = {
        "model": request.model,
        "tools": [(tool.name, tool.description, tool.parameters) for tool in request.tools or ()],
        "strict": {tool.name for tool in request.tools or () if tool.strict},
        "choice": (request.tool_choice.mode, request.tool_choice.names),
        "parallel": request.parallel_tool_calls or request.tool_choice.mode == "none",
        "schema": request.response_format and request.response_format.schema,
        "effort": "none" if request.thinking.enabled is False else request.thinking.effort,
        "stream": request.stream,
        "max_tokens": request.max_tokens,
        "stop": request.stop,
        "user": request.metadata.get("user_id"),
        **request.sampling,
    }
    turns: list[tuple[str, list[Any]]] = []
    system: list[str] = []
    for message in request.messages:
        for part in message.parts:
            if message.role in ("system", "developer"):
                system.append(part.text if isinstance(part, Text) else repr(part))
                continue
            kind, meaning = _meaning(part, identities)
            role = "tool" if isinstance(part, ToolResult) else message.role
            if kind != "said":
                found.setdefault(kind, []).append(meaning)
            elif not turns or turns[-1][0] != role:
                turns.append((role, [meaning]))
            else:
                turns[-1][1].append(meaning)
    return found | {"system": system, "turns": turns}


def _meaning(part: Part, identities: dict[str, int]) -> tuple[str, Any]:
    match part:
        case Text():
            return "said", part.text
        case Reasoning():
            return "reasoning", (part.text, part.signature)
        case Image():
            return "pictures", (part.url, part.data)
        case Document():
            return "papers", (part.data, part.media_type, part.text)
        case ToolCall():
            number = identities.setdefault(part.id, len(identities))
            return "said", (number, part.name, part.arguments)
        case ToolResult():
            number = identities.setdefault(part.call_id, len(identities))
            pictures = [] if isinstance(part.content, str) else part.content
            shown = tuple(one.data for one in pictures if isinstance(one, Image))
            return "said", (number, part.name, part.text, part.is_error, shown)
        case _:
            return "other", part


def meaning(reply: Reply) -> dict[str, Any]:
    """What a reply says."""
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "signatures": [part.signature for part in reply.parts if isinstance(part, Reasoning)],
        "calls": [(made.name, made.arguments) for made in reply.calls],
        "order": [type(part).__name__ for part in reply.parts],
        "stop": reply.stop_reason,
        "usage": reply.usage and (reply.usage.input, reply.usage.output),
        "failure": reply.failure,
    }
