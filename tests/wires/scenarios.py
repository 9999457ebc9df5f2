"""Conversations that every pair of wires must carry, and functions to compare them across APIs."""

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


def user_message(text: str) -> Message:
    return Message("user", (Text(text),))


def make_call(identity: str, name: str = "get_weather", **arguments: Any) -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=arguments)


def reply_events(*events: Event, reason: Any = "stop") -> tuple[Event, ...]:
    return (Started("", "m"), *events, Finish(reason, None, USAGE))


def call_events(index: int, made: ToolCall, size: int = 5) -> Iterable[Event]:
    """Return a call with its arguments in pieces, or without any if it has none."""
    yield CallStart(index, made.id, made.name, "native")
    text = made.arguments_json if made.arguments else ""
    for at in range(0, len(text), size):
        yield ArgumentsDelta(index, text[at : at + size])
    yield CallEnd(index, made)


def make_request(*messages: Message, **fields: Any) -> Request:
    given: dict[str, Any] = {"tools": TOOLS, "stream": True, **fields}
    return Request(model="m", messages=messages, max_tokens=500, **given)


OSLO, PARIS, CLOCK = (
    make_call("call_a", city="Oslo", days=3),
    make_call("call_b", city="Paris"),
    make_call("call_c", "now"),
)
HELLO = reply_events(TextDelta("Hel"), TextDelta("lo."))

SCENARIOS = [
    Scenario(
        "no tools",
        make_request(Message("system", (Text("Be brief."),)), user_message("Hi"), tools=None),
        HELLO,
    ),
    Scenario(
        "one call",
        make_request(user_message("Weather in Oslo?")),
        reply_events(*call_events(0, OSLO), reason="calls"),
    ),
    Scenario(
        "parallel calls",
        make_request(user_message("Oslo and Paris?")),
        reply_events(
            *call_events(0, OSLO), *call_events(1, PARIS), *call_events(2, CLOCK), reason="calls"
        ),
    ),
    Scenario(
        "call and text",
        make_request(user_message("Weather?")),
        reply_events(
            TextDelta("Let me "), TextDelta("look."), *call_events(0, OSLO), reason="calls"
        ),
    ),
    Scenario(
        "results",
        make_request(
            user_message("Oslo, Paris, and the time?"),
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
        make_request(
            user_message("Weather?"),
            Message("assistant", (Reasoning("The user asks.", "c2ln"), OSLO)),
            Message("tool", (ToolResult(call_id="call_a", name="get_weather", content="Sunny"),)),
            thinking=Thinking(enabled=True, effort="high"),
        ),
        reply_events(
            ReasoningDelta("It is "),
            ReasoningDelta("sunny."),
            ReasoningDelta("", "bW9yZQ=="),
            TextDelta("Sunny."),
        ),
    ),
    Scenario(
        "forced choice",
        make_request(
            user_message("Weather?"), tool_choice=ToolChoice("required", ("get_weather",))
        ),
        reply_events(*call_events(0, OSLO), reason="calls"),
    ),
    Scenario(
        "any tool, one at a time",
        make_request(
            user_message("Weather?"), tool_choice=ToolChoice("required"), parallel_tool_calls=False
        ),
        reply_events(*call_events(0, OSLO), reason="calls"),
    ),
    Scenario(
        "no tool", make_request(user_message("Weather?"), tool_choice=ToolChoice("none")), HELLO
    ),
    Scenario(
        "one of two tools",
        make_request(
            user_message("Weather?"),
            tools=(*TOOLS, Tool(name="other", description="Another.", parameters=NOW.parameters)),
            tool_choice=ToolChoice("required", ("get_weather", "now")),
        ),
        reply_events(*call_events(0, CLOCK), reason="calls"),
    ),
    Scenario(
        "structured output",
        make_request(
            user_message("Weather, as JSON."),
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
        reply_events(TextDelta('{"sky": '), TextDelta('"blue"}')),
    ),
    Scenario(
        "unicode",
        make_request(user_message("Das Wetter in Ø? 天气 \U0001f326\u2028")),
        reply_events(
            TextDelta("\U0001f326 天"),
            TextDelta('气 \u2028"\\\n'),
            *call_events(0, make_call("call_u", city='Tromsø \U0001f30d\n"x"'), size=3),
            reason="calls",
        ),
    ),
    Scenario(
        "empty arguments",
        make_request(user_message("Time?")),
        reply_events(*call_events(0, CLOCK), reason="calls"),
    ),
    Scenario(
        "many turns",
        make_request(
            Message("system", (Text("Be brief."),)),
            user_message("Oslo?"),
            Message("assistant", (OSLO,)),
            Message("tool", (ToolResult(call_id="call_a", name="get_weather", content="Sunny"),)),
            Message("assistant", (Text("Sunny."),)),
            user_message("And Paris?"),
            Message("assistant", (Text("One moment."), PARIS)),
            Message("tool", (ToolResult(call_id="call_b", name="get_weather", content="Rain"),)),
            user_message("Thanks, in one word?"),
        ),
        reply_events(TextDelta("Rain.")),
    ),
    Scenario(
        "pictures and papers",
        make_request(
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
        make_request(
            user_message("Hi"),
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
        reply_events(TextDelta("Hello."), reason="length"),
    ),
    Scenario(
        "a developer's word in between",
        make_request(
            Message("system", (Text("Be brief."),)),
            user_message("Hi"),
            Message("assistant", (Text("Hello."),)),
            Message("developer", (Text("Speak French."),)),
            user_message("Again"),
        ),
        reply_events(TextDelta("Bonjour.")),
    ),
    Scenario(
        "strict tools",
        make_request(
            user_message("Weather?"),
            tools=(Tool(name="get_weather", parameters=WEATHER.parameters, strict=True),),
        ),
        HELLO,
    ),
]


# Comparing across APIs.


def describe_request(request: Request) -> dict[str, Any]:
    """Return the features of a request by name, independent of its API."""
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
            kind, described = _describe_part(part, identities)
            role = "tool" if isinstance(part, ToolResult) else message.role
            if kind != "turn":
                found.setdefault(kind, []).append(described)
            elif not turns or turns[-1][0] != role:
                turns.append((role, [described]))
            else:
                turns[-1][1].append(described)
    return found | {"system": system, "turns": turns}


def _describe_part(part: Part, identities: dict[str, int]) -> tuple[str, Any]:
    match part:
        case Text():
            return "turn", part.text
        case Reasoning():
            return "reasoning", (part.text, part.signature)
        case Image():
            return "images", (part.url, part.data)
        case Document():
            return "documents", (part.data, part.media_type, part.text)
        case ToolCall():
            number = identities.setdefault(part.id, len(identities))
            return "turn", (number, part.name, part.arguments)
        case ToolResult():
            number = identities.setdefault(part.call_id, len(identities))
            images = [] if isinstance(part.content, str) else part.content
            shown = tuple(one.data for one in images if isinstance(one, Image))
            return "turn", (number, part.name, part.text, part.is_error, shown)
        case _:
            return "other", part


def describe_reply(reply: Reply) -> dict[str, Any]:
    """Return the content of a reply, independent of its API."""
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
