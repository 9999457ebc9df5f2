"""Rendered calls parse to the same calls; `Unrepresentable` names the path of all others."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support import Rows, list_calls
from toolspeak import DIALECTS, Tool, ToolCall, Unrepresentable, render_calls
from toolspeak.calls.placeholders import find_placeholder
from toolspeak.testing import parse, split_into_chunks

SCHEMAS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "real": {"type": "number"},
    "flag": {"type": "boolean"},
    "maybe": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "choice": {"enum": ["on", "off"]},
    "words": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "table": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "point": {
        "type": "object",
        "properties": {"x": {"type": "number"}, "label": {"type": "string"}},
    },
    "free": {"type": "object"},
    "items": {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}}},
    },
}
TOOLS = [
    Tool(name="do", parameters={"type": "object", "properties": SCHEMAS}),
    Tool(name="other-tool", parameters={"type": "object", "properties": {}}),
]
MARKERS = sorted(
    {m for d in DIALECTS.values() for f in d.forms for m in (f.opener, *f.all_closers)}
)
PIECES = st.one_of(
    st.text(max_size=8),
    st.sampled_from([*MARKERS, "</parameter>", "</arg_value>", "<parameter=whole>", "<escape>"]),
    st.sampled_from(['"', "'", "\\", "\n", "{", "}", "[", "]", '<|"|>', "```", "~~~", "]]>", " "]),
)
TEXT = st.lists(PIECES, max_size=5).map("".join)
INTEGER = st.integers(-(10**30), 10**30)
REAL = st.floats(allow_nan=False, allow_infinity=False)
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXT,
        "whole": INTEGER,
        "real": REAL,
        "flag": st.booleans(),
        "maybe": st.one_of(st.none(), TEXT),
        "either": st.one_of(st.none(), INTEGER),
        "choice": st.sampled_from(["on", "off"]),
        "words": st.lists(TEXT, max_size=3),
        "numbers": st.lists(INTEGER, max_size=3),
        "table": st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2),
        "point": st.fixed_dictionaries({}, optional={"x": REAL, "label": TEXT}),
        "free": st.dictionaries(st.sampled_from("abc"), ANY, max_size=2),
        "items": st.lists(st.fixed_dictionaries({"id": TEXT}), max_size=2),
        "undeclared": ANY,
    },
)
CALLS = st.lists(
    st.one_of(
        ARGUMENTS.map(lambda arguments: ToolCall(id="c", name="do", arguments=arguments)),
        st.just(ToolCall(id="c", name="other-tool", arguments={})),
    ),
    min_size=1,
    max_size=3,
).map(lambda calls: [structs.replace(call, id=f"c{at}") for at, call in enumerate(calls)])
PATH = re.compile(r"\$\[\d\](\.(name|arguments(\..+)?))?", re.S)


def try_to_render(dialect: str, calls: list[ToolCall], tools: list[Tool]) -> str | Unrepresentable:
    try:
        return render_calls(dialect, calls, tools)
    except Unrepresentable as error:
        return error


GROUPS = [list(DIALECTS)[start::5] for start in range(5)]
"""The dialects of a group share the examples, which take longer to generate than to read."""


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
@settings(max_examples=120)
@given(calls=CALLS, size=st.integers(1, 40))
def test_rendered_calls_read_back(group: list[str], calls: list[ToolCall], size: int) -> None:
    assume(not any(find_placeholder(call.arguments) for call in calls))
    for dialect in group:
        text = try_to_render(dialect, calls, TOOLS)
        if isinstance(text, Unrepresentable):
            assert PATH.fullmatch(text.path), (dialect, text.path)
            continue
        reply = parse(split_into_chunks(text, size), dialect=dialect, tools=TOOLS)
        written = [(call.name, call.arguments) for call in calls]
        assert list_calls(reply) == written, (dialect, text)
        assert not reply.text.strip(), dialect
        assert not reply.rejected, dialect


ORDINARY_TEXTS = [
    "plain",
    "two\nlines",
    "\nedges\n",
    "  spaces  ",
    "",
    "quotes \" and ' and \\",
    "Ærø 東京 🎉",
    "{braces} [brackets] (parens)",
    "123",
    "true",
    "null",
    "a < b && c > d",
    "- item\n- item",
    "key: value",
]
NAMES = [
    "a",
    "a_b",
    "a-b",
    "a.b",
    "ns.a.b",
    "mcp__x__y",
    "a/b",
    "a:1",
    "a:b",
    "Ünï",
    "a b",
    "5",
    "",
    "_x",
    "all",
    "functions.a",
    "a'b",
    'a"b',
    "a&b",
    "<a>",
    "item",
    "json",
    "null",
    "true",
    "tool_call",
    "A.call",
]


@pytest.mark.parametrize("value", ORDINARY_TEXTS)
def test_ordinary_text_reads_back_in_every_dialect(value: str) -> None:
    rows = Rows()
    call = ToolCall(id="c", name="do", arguments={"text": value})
    for dialect in DIALECTS:
        with rows.row(dialect):
            text = render_calls(dialect, [call], TOOLS)
            assert list_calls(parse([text], dialect=dialect, tools=TOOLS)) == [
                ("do", {"text": value})
            ]
    rows.assert_passed()


@pytest.mark.parametrize("name", NAMES)
def test_tool_name_reads_back_or_is_rejected_in_every_dialect(name: str) -> None:
    rows = Rows()
    tools = [Tool(name=name, parameters={"properties": {"text": {"type": "string"}}})]
    call = ToolCall(id="c", name=name, arguments={"text": "x"})
    for dialect in DIALECTS:
        with rows.row(dialect):
            text = try_to_render(dialect, [call], tools)
            if isinstance(text, Unrepresentable):
                assert text.path == "$[0].name"
                is_plain = re.fullmatch(r"[a-z_]+", name)
                assert not is_plain or name in DIALECTS[dialect].reserved_names
            else:
                reply = parse([text], dialect=dialect, tools=tools)
                assert list_calls(reply) == [(name, {"text": "x"})]
    rows.assert_passed()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_text_and_reasoning_around_calls_are_kept(dialect: str) -> None:
    spec = DIALECTS[dialect]
    block, other = (
        render_calls(dialect, [ToolCall(id=id_, name="do", arguments={"text": "x"})], TOOLS)
        for id_ in ("functions.do:0", "functions.do:1")
    )
    opener, closer = next((pair for pair in spec.reasoning_tags if pair[0]), ("", ""))
    thought = f"{opener}hm, well{closer}" if opener else ""
    text = f"{thought}Before.\n{block}\nBetween.\n{other}\nAfter."
    reply = parse(split_into_chunks(text, 7), dialect=dialect, tools=TOOLS)
    assert list_calls(reply) == [("do", {"text": "x"})] * 2
    assert reply.text.split() == ["Before.", "Between.", "After."]
    assert reply.reasoning == ("hm, well" if opener else "")
