"""Writes the pages of this folder that are generated: `make docs`.

dialects.md   every dialect, with a sample
limits.md     the values that each dialect cannot represent
notes.md      every note
wires.md      the features that each API supports
errors.md     the kinds of errors

observability.md, reliability.md, scrubbing.md and clients/ are written by hand, except for parts
between `<!-- begin NAME -->` and `<!-- end NAME -->`; reliability.svg and architecture.svg are drawn.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docs import (
    architecture_picture,
    client_parts,
    errors_page,
    observability_tables,
    scrubbing_tables,
)
from docs.recovery_picture import picture
from docs.recovery_tables import tables
from toolspeak import (
    DIALECTS,
    Dialect,
    Document,
    Image,
    Message,
    Note,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Unrepresentable,
    render_calls,
)
from toolspeak.cli.dialects import render_sample
from toolspeak.notes import NOTES
from toolspeak.testing import parse
from toolspeak.wires import WIRES
from toolspeak.wires.encoding import CACHE_CONTROL

HERE = Path(__file__).parent
TOOL = Tool(
    name="do",
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "maybe": {"type": ["string", "null"]},
            "list": {"type": "array", "items": {"type": "string"}},
            "object": {"type": "object"},
        },
    },
)
CLOSERS = (
    "</tool_call></parameter></param></function></invoke></arg_value>"
    "</text></do><|close|>argument<|sep|>]<]minimax[>[</text>"
    "</｜DSML｜parameter></steptml:parameter></atem:parameter>"
)
PROBES: dict[str, list[dict[str, object]]] = {
    "several calls": [{"text": "a"}, {"text": "b"}],
    "closing tags in a text": [{"text": CLOSERS}],
    "the dialect's string delimiter in a text": [{"text": 'a <escape> b <|"|> c'}],
    "the text `null` where null is also allowed": [{"maybe": "null"}],
    "a number without a schema": [{"undeclared": 1}],
    "an object without a schema": [{"undeclared": {"a": 1}}],
    "a parameter name with a dash": [{"a-b": "x"}],
    "a parameter name with a space": [{"a b": "x"}],
}


def main() -> None:
    """Write every page."""
    for name, text in pages().items():
        (HERE / name).write_text(text)


def pages() -> dict[str, str]:
    """The generated pages, by file name."""
    return {
        **{name: filled((HERE / name).read_text(), parts) for name, parts in client_parts.parts()},
        "dialects.md": dialects_page(),
        "errors.md": errors_page.page(),
        "limits.md": limits_page(),
        "notes.md": notes_page(),
        "observability.md": filled(
            (HERE / "observability.md").read_text(), observability_tables.tables()
        ),
        "reliability.md": filled((HERE / "reliability.md").read_text(), tables()),
        "reliability.svg": picture(),
        "scrubbing.md": filled((HERE / "scrubbing.md").read_text(), scrubbing_tables.tables()),
        "architecture.svg": architecture_picture.picture(),
        "wires.md": wires_page(),
    }


def filled(page: str, parts: dict[str, str]) -> str:
    """A page with its generated parts as they are now."""
    for name, text in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        pattern = re.compile(f"{begin}.*?{end}", re.DOTALL)
        new = f"{begin}\n\n{text}\n\n{end}"
        page, times = pattern.subn(lambda _, new=new: new, page)
        assert times == 1, f"the page has no place for {name}, or several"
    return page


def asks(*messages: Message, **fields: Any) -> Request:
    """A request that every API can express, except for the given fields."""
    return Request(model="m", messages=messages, max_tokens=100, **fields)


def _requests() -> dict[str, Request]:
    """Return one request for each feature."""
    tools = (Tool(name="a"), Tool(name="b"), Tool(name="c"))
    call = ToolCall(id="call_1", name="a", arguments={})
    user = Message("user", (Text("Hi"),))

    def offered(**fields: Any) -> Request:
        return asks(user, tools=tools, **fields)

    def answered(**fields: Any) -> Request:
        result = ToolResult(call_id="call_1", name="a", **fields)
        return asks(user, Message("assistant", (call,)), Message("tool", (result,)), tools=tools)

    settings = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
    return {
        "calls are forbidden": offered(tool_choice=ToolChoice("none")),
        "a tool must be called": offered(tool_choice=ToolChoice("required")),
        "one given tool must be called": offered(tool_choice=ToolChoice("required", ("a",))),
        "one of two tools must be called": offered(tool_choice=ToolChoice("required", ("a", "b"))),
        "two of three tools may be called": offered(tool_choice=ToolChoice("auto", ("a", "b"))),
        "one call at a time": offered(parallel_tool_calls=False),
        "strict tools": asks(user, tools=(Tool(name="a", strict=True),)),
        "freeform tools": asks(user, tools=(Tool(name="a", freeform=True),)),
        "tools in namespaces": asks(user, tools=(Tool(name="a", namespace="n"),)),
        "a name like `files.read`": asks(user, tools=(Tool(name="files.read"),)),
        "a result that is an error": answered(content="no", is_error=True),
        "an image in a result": answered(content=(Image(data="AA=="),)),
        "an image by URL": asks(Message("user", (Image(url="https://example.org/a.png"),))),
        "a PDF": asks(Message("user", (Document(data="AA==", media_type="application/pdf"),))),
        "a text document": asks(Message("user", (Document("text", "title"),))),
        "signed reasoning in the history": asks(
            user, Message("assistant", (Reasoning("a", "c2ln"),))
        ),
        "unsigned reasoning in the history": asks(
            user, Message("assistant", (Reasoning("a"), call))
        ),
        "a developer message": asks(Message("developer", (Text("a"),)), user),
        "instructions within the conversation": asks(user, Message("system", (Text("a"),)), user),
        "structured output with a schema": asks(
            user, response_format=ResponseFormat({"type": "object"})
        ),
        "any JSON as output": asks(user, response_format=ResponseFormat()),
        "reasoning effort": asks(user, thinking=Thinking(effort="low")),
        "reasoning budget": asks(user, thinking=Thinking(enabled=True, budget=50)),
        "`cache_control` (Chat Completions: only for OpenRouter)": asks(
            Message("user", (Text("Hi", {CACHE_CONTROL: {"type": "ephemeral"}}),))
        ),
        "stop sequences": asks(user, stop=("END",)),
        "user id": asks(user, metadata={"user_id": "u"}),
        **{f"`{key}`": asks(user, sampling={key: 1}) for key in settings},
    }


def wires_page() -> str:
    """Return the table of the features that each API supports."""
    lines = [
        "# What each API supports",
        "",
        "Generated by `make docs`, which encodes a request with each feature for each API. A cell is **yes** if nothing",
        "is lost; otherwise it has the notes on what was dropped or expressed in another way. [Add a wire](add-a-wire.md)",
        "explains the conversion.",
        "",
        f"| | {' | '.join(wire.title for wire in WIRES.values())} |",
        "|---" * (len(WIRES) + 1) + "|",
    ]
    for feature, request in _requests().items():
        encoded = [
            wire.encode_request(request, has_cache_control=wire.name == "openai_chat")
            for wire in WIRES.values()
        ]
        cells = [_remarks(one.notes) for one in encoded]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _remarks(notes: tuple[Note, ...]) -> str:
    return " ".join(note.message.replace("|", "\\|") for note in notes) or "**yes**"


def notes_page() -> str:
    """Every note, with what it means."""
    rows = [f"| `{code}` | {meaning} |" for code, meaning in NOTES.items()]
    lines = [
        "# Notes",
        "",
        "Generated by `make docs`. Every repair, coercion, rename, guess, drop, retry and rejection is recorded as a",
        "`Note(code, message, where)`. The codes are stable. A rejected call is also in the reply's `rejected`,",
        "with the same code; if it was text, it stays in the text.",
        "",
        "| code | meaning |",
        "|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def dialects_page() -> str:
    """Every dialect, with a sample."""
    lines = [
        "# Dialects",
        "",
        'Generated by `make docs`. The sample is `get_weather(city="Oslo", days=3)` as `render_calls` '
        "writes it.",
        "",
        '**Evidence** states when a call is accepted if no dialect is specified (`dialect="auto"`): `marker` '
        "(wherever the dialect's markers occur in a reply), `whole` (only if the reply consists of nothing but calls) or "
        "`prose` (never). In the column *used by*, prompted models are those that are told in the prompt how to write calls.",
        "",
        "| dialect | used by | evidence | several calls |",
        "|---|---|---|---|",
    ]
    for dialect in DIALECTS.values():
        several = "yes" if dialect.parallel else "no"
        link = f"[{dialect.name}](#{dialect.name.lower()})"
        lines.append(f"| {link} | {dialect.description} | {dialect.evidence} | {several} |")
    for dialect in DIALECTS.values():
        lines += ["", f"## {dialect.name}", "", f"{dialect.description}.", ""]
        if dialect.model_fragments:
            lines += [
                "Used for model ids that contain "
                + ", ".join(f"`{m}`" for m in dialect.model_fragments)
                + ".",
                "",
            ]
        lines += ["````text", render_sample(dialect), "````"]
    return "\n".join(lines) + "\n"


def limits_page() -> str:
    """Return the table of the values that each dialect cannot represent."""
    names = list(PROBES)
    lines = [
        "# Values that a dialect cannot represent",
        "",
        "Generated by `make docs`; every cell is tested. Where a cell says **no**, `render_calls` raises "
        "`Unrepresentable` with the path of the value. Everything else parses back to the same value if the "
        "parser knows the tool's schema. The last four columns are about parameters that the schema does not declare. "
        "Every dialect can represent ordinary text, numbers, lists, objects, line breaks, quotes and Unicode. None can represent a number that JSON cannot express (NaN, infinity).",
        "",
        "| dialect | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for dialect in DIALECTS.values():
        cells = ["yes" if carries(dialect, probe) else "**no**" for probe in PROBES.values()]
        lines.append(f"| {dialect.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def carries(dialect: Dialect, arguments: list[dict[str, object]]) -> bool:
    """Whether calls with these arguments can be written, and read back."""
    calls = [ToolCall(id="c", name="do", arguments=one) for one in arguments]
    try:
        text = render_calls(dialect, calls, [TOOL])
    except Unrepresentable:
        return False
    reply = parse([text], dialect=dialect, tools=[TOOL])
    assert [call.arguments for call in reply.calls] == arguments, (dialect.name, text)
    return True


if __name__ == "__main__":
    main()
