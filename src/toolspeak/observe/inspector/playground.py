"""What would be made of a text that somebody has pasted."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, to_builtins

from ...calls.tools import as_tools
from ...dialects import DIALECTS, Parser, render_calls
from ...events import CallStart, fold
from ...types import ToolCall
from .highlights import HighlightFinder, encode_highlights
from .request_view import explain_note

_SAMPLE_CALL = ToolCall(id="a1b2c3d4e", name="get_weather", arguments={"city": "Oslo", "days": 3})


class PlaygroundInput(Struct, frozen=True, kw_only=True):
    """A text, and how it is to be read."""

    text: str
    tools: Any = None
    trust: Literal["strict", "standard", "lenient"] = "standard"
    dialect: str = "auto"


def parse_text(pasted: PlaygroundInput) -> dict[str, Any]:
    """Calls, notes, and where in the text each of them stands."""
    parser = Parser(
        dialect=pasted.dialect, tools=as_tools(pasted.tools) or None, trust=pasted.trust
    )
    events = [*parser.feed(pasted.text), *parser.finish()]
    reply = fold(events)
    spoken = {event.id: event.dialect for event in events if isinstance(event, CallStart)}
    places = HighlightFinder(pasted.text)
    places.add_reasoning(reply)
    places.add_calls((call.name, call.raw) for call in reply.calls)
    places.add_rejections(reply.rejected)
    places.add_notes(reply.notes)
    spans = encode_highlights(places.nested(), pasted.text)
    where = {(one["kind"], one["index"]): one for one in spans}

    def place(kind: str, index: int) -> dict[str, int | None]:
        span = where.get((kind, index), {})
        return {"start": span.get("start"), "end": span.get("end")}

    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "dialect": reply.dialect,
        "calls": [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "dialect": spoken.get(call.id),
                **place("call", index),
            }
            for index, call in enumerate(reply.calls)
        ],
        "rejected": [
            {**to_builtins(one), **place("rejected", index)}
            for index, one in enumerate(reply.rejected)
        ],
        "notes": [explain_note(to_builtins(note)) for note in reply.notes],
        "highlights": spans,
    }


def list_dialects() -> list[dict[str, str]]:
    """What can be chosen, each with a sample."""
    tools = as_tools([SAMPLE_TOOLS[0]["tool"]])
    return [
        {
            "name": dialect.name,
            "models": dialect.description,
            "example": render_calls(dialect, [_SAMPLE_CALL], tools=tools),
        }
        for dialect in DIALECTS.values()
    ]


def _sample_tool(
    name: str, about: str, properties: dict[str, Any], required: list[str], result: str
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"tool": {"type": "function", "function": function}, "result": result}


_DAYS = {"type": "integer", "description": "How many days ahead."}
_CURRENCY = {"type": "string", "enum": ["EUR", "NOK", "USD"]}
SAMPLE_TOOLS = [
    _sample_tool(
        "get_weather",
        "The weather in a city.",
        {"city": {"type": "string"}, "days": _DAYS},
        ["city"],
        '{"temperature": -5, "sky": "light snow"}',
    ),
    _sample_tool(
        "search_files",
        "Find files whose content matches a word.",
        {"word": {"type": "string"}, "folder": {"type": "string", "default": "."}},
        ["word"],
        '["docs/walk.md", "README.md"]',
    ),
    _sample_tool(
        "convert_currency",
        "Convert an amount of money.",
        {"amount": {"type": "number"}, "from": _CURRENCY, "to": _CURRENCY},
        ["amount", "from", "to"],
        '{"amount": 11.6}',
    ),
]
"""Tools to try, and what they would give back."""
