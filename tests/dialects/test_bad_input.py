"""No text raises an exception, takes more than linear time, or is held back without limit."""

from __future__ import annotations

import json
import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import TOOLBOX, list_calls, to_comparable
from toolspeak import (
    DIALECTS,
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Parser,
    TextDelta,
)
from toolspeak.testing import parse, parse_to_events, split_at, split_into_chunks
from toolspeak.types import Trust

MARKERS = sorted(
    {
        marker
        for dialect in DIALECTS.values()
        for marker in (
            *(m for form in dialect.forms for m in (form.opener, *form.all_closers)),
            *(m for pair in dialect.reasoning_tags for m in pair),
            *dialect.control_tokens,
            *(dialect.message_frame.openers if dialect.message_frame else ()),
        )
        if marker
    }
)
PIECES = [
    *MARKERS,
    '{"name": "t", "arguments": {"a": 1}}',
    '{"name": "now", "arguments": {}}',
    '{"name": "t", "arguments": {"a": ',
    '{"city": "Oslo"}',
    '"get_weather"',
    "t(a=1)",
    "[t(a=1), u()]",
    "get_weather",
    "functions.t:0",
    "<parameter=a>",
    "</parameter>",
    "<arg_key>a</arg_key>",
    "<arg_value>",
    '<parameter name="a">',
    "{a:1}",
    '<|"|>',
    "<|message|>",
    "<|channel|>commentary to=functions.t<|message|>",
    "<|start|>assistant to=self<|message|>",
    "<|channel|>analysis<|message|>",
    " to=user<|message|>",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "\\",
    "\n",
    " ",
    ":",
    ",",
    "1",
    "x",
    "Hello there. ",
    "\x00",
    "\ud800",
    "é",
]
SOUP = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.sampled_from(MARKERS).flatmap(
            lambda marker: st.integers(1, len(marker)).map(lambda size: marker[:size])
        ),
    ),
    max_size=14,
).map("".join)
OPTIONS = st.fixed_dictionaries(
    {
        "dialect": st.sampled_from(["auto", "auto", "auto", *DIALECTS]),
        "tools": st.sampled_from([None, TOOLBOX]),
        "reasoning_open": st.sampled_from([None, True, False]),
        "trust": st.sampled_from(["standard", "strict", "lenient"]),
        "arguments": st.sampled_from(["validated", "incremental"]),
        "max_call": st.sampled_from([8_000_000, 40]),
    }
)


@settings(max_examples=2500)
@given(text=SOUP, options=OPTIONS, data=st.data())
def test_soup_of_markers_in_any_chunks_is_read_alike(
    text: str, options: dict[str, object], data: st.DataObject
) -> None:
    whole = to_comparable(parse([text], **options))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    assert to_comparable(parse(split_at(text, places), **options)) == whole
    assert to_comparable(parse(split_into_chunks(text, 1), **options)) == whole
    if options["arguments"] == "incremental":
        assert_deltas_are_the_arguments(parse_to_events(split_into_chunks(text, 3), **options))
        validated = parse([text], **(options | {"arguments": "validated"}))
        assert [call[1:] for call in whole[2]] == [call[1:] for call in to_comparable(validated)[2]]


def assert_deltas_are_the_arguments(found: list[Event]) -> None:
    open_calls: dict[int, list[str]] = {}
    for event in found:
        match event:
            case CallStart():
                assert event.index not in open_calls
                open_calls[event.index] = []
            case ArgumentsDelta():
                open_calls[event.index].append(event.json)
            case CallRejected(index=int(index)):
                del open_calls[index]
            case CallEnd():
                assert json.loads("".join(open_calls.pop(event.index))) == event.call.arguments
            case _:
                pass
    assert not open_calls


@pytest.mark.parametrize("arguments", ["validated", "incremental"])
def test_junk_is_text(arguments: str) -> None:
    noise = random.Random(7)
    binary = "".join(map(chr, noise.choices(range(0x110000), k=50_000)))
    for text in (binary, "\x00" * 10_000, "\ud800\udc00\ud83d" * 5_000, "<" * 100_000, ""):
        reply = parse(split_into_chunks(text, 997), arguments=arguments)
        assert reply.text == text
        assert not reply.calls


REPEATED = (
    "<",
    "<tool_call>",
    "<invoke a=aa" + "=aa" * 40 + " ! >",
    "<tool_call>\n<function=t>\n<parameter=city>\nx" + " " * 900 + "y</parameter>",
    "<tool_call>t<arg_key>a</arg_key>" + "\\n \n" * 300,
    "Action:",
    "<tool_call>{",
    '<tool_call>{"',
    '<tool_call>{"a":"',
    "<tool_call>{'a':",
    '<tool_call>{"name":"t","arguments":"x"}</tool_call>',
    '<tool_call>{"name":"t","arguments":{}}',
    "<tool_call>t<arg_key>a</arg_key><arg_value>",
    "<tool_call>```json\n",
    "<function=t>",
    "<function=t><parameter=a>",
    '<invoke name="t">',
    '<function name="t"><param name="a">',
    "<think>",
    "</think>",
    "<think><tool_call>",
    "```json\n",
    "[TOOL_CALLS]t",
    "<|tool_call>call:t{",
    '<|tool_call>call:t{a:<|"|>',
    "<|tool_call_start|>[t(",
    "<|python_tag|>t('",
    "<|channel|>",
    "<|start|>assistant to=",
    '<|channel|>x to=functions.t<|message|>{"a',
    "<|start|>assistant to=self<|message|>",
    "functools[{",
    ">>>t\n{",
    "~~~tool_call\n{",
    "<function_calls>\nt(",
    "{",
    '{"a":',
    '{"a": [',
    "[",
    "[t(a=1), ",
    '[{"name":"t","arguments":{}},',
    '{"tool_calls":[',
    '"',
    "\\",
    "\n",
    " " * 40,
    "1",
    "x<",
    "<get_weather>",
    "<get_weather><city>",
    "get_weather/",
    "get_weather\n",
    "Action: t\n",
    "Call: t(",
    '<|open|>call tool="',
    "<|message_model|>t",
    '<tool_call>{"name":"t","arguments":{"a":1}}</tool_call><tool_call>x ',
    "then t(a=1) ",
)


FREE = 0.05
"""Seconds that need no comparison. Text that is read in vain costs up to this at any length."""


def measure_seconds(text: str, size: int, dialect: str, trust: Trust = "standard") -> float:
    parser = Parser(dialect=dialect, tools=TOOLBOX, trust=trust)
    start = time.process_time()
    for piece in split_into_chunks(text, size):
        parser.feed(piece)
    parser.finish()
    return time.process_time() - start


@pytest.mark.parametrize("repeated", REPEATED)
@pytest.mark.parametrize("dialect", ["auto", "own"])
def test_time_of_repeated_markers_is_linear(repeated: str, dialect: str) -> None:
    own = [name for name in DIALECTS if has_opener_in(name, repeated)]
    text = repeated * (2_000 // len(repeated) + 1)
    for name in ["auto"] if dialect == "auto" else own:
        for size in (10**9, 5):
            assert is_linear(text, text * 6, size, name), (name, size)


def is_linear(text: str, long: str, size: int, dialect: str, trust: Trust = "standard") -> bool:
    """Return True if six times the text takes at most ten times as long.

    A short time passes without comparison. The comparison is repeated, because a garbage collection
    may happen at any time.
    """
    for _ in range(3):
        seconds = measure_seconds(long, size, dialect, trust)
        if seconds < FREE or seconds < 10 * measure_seconds(text, size, dialect, trust) + FREE:
            return True
    return False


@pytest.mark.parametrize("repeated", [*REPEATED, "then t(a={n}) ", '{{"name": "t", "n": {n}}}'])
def test_time_of_repeated_markers_in_lenient_prose_is_linear(repeated: str) -> None:
    text = "".join(repeated.replace("{n}", str(n)) for n in range(18_000 // len(repeated) + 1))
    assert is_linear(text[: len(text) // 6], text, 10**9, "auto", "lenient")


def has_opener_in(name: str, text: str) -> bool:
    forms = DIALECTS[name].forms
    return any(not form.opener or text.startswith(form.opener) for form in forms)


def test_time_of_many_angle_brackets_is_linear() -> None:
    def seconds(size: int) -> float:
        start, parser = time.process_time(), Parser()
        found = [*parser.feed("<" * size), *parser.finish()]
        assert sum(len(event.text) for event in found if isinstance(event, TextDelta)) == size
        return time.process_time() - start

    few = seconds(500_000)
    assert seconds(5_000_000) < 25 * few


def test_deeply_nested_call_is_text() -> None:
    for opener in ("{", '{"a":', "[", "[[{", "t(", "[t(a=["):
        text = "<tool_call>" + opener * 10_000
        assert parse([text]).text == text
        assert parse(split_into_chunks(text, 13)).text == text


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('<tool_call>{"name":"t","arguments":{"city":"C:\\Users"}}</tool_call>', {}),
        ('{"a":"\\d+"}', {}),
        ('<tool_call>{"name":"t","arguments":{"a":1\u0663}}</tool_call>', {}),
        ("[t(a=1_)]", {}),
        ("<|tool_call>call:t{a:1__2}<tool_call|>", {}),
        ('<tool_call>{"name":"t\x01","arguments":{}}</tool_call>', {"arguments": "incremental"}),
        ('<tool_call>{"name":"t","arguments":{"a":1e999}}</tool_call>', {}),
        (
            "<search><q>" + "<a>" * 600 + "</a>" * 600 + "</q></search>",
            {"dialect": "tool_named_xml"},
        ),
        ('<search>\nq: "\\UFFFFFFFF"\n</search>', {"dialect": "yaml_xml"}),
        (
            '<function name="t"><params><param name="a" value="&#' + "9" * 5000 + ';"/></params>'
            "</function>",
            {},
        ),
        ("<|channel|>analysis<|message|>hm<|end|>", {"dialect": "harmony", "reasoning_open": True}),
    ],
)
def test_hard_text_in_any_chunks_is_read_alike(text: str, options: dict[str, object]) -> None:
    options = {"tools": TOOLBOX} | options
    assert to_comparable(parse([text], **options)) == to_comparable(
        parse(split_into_chunks(text, 1), **options)
    )


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_call_over_the_limit_is_text(size: int) -> None:
    long = '<tool_call>{"name": "t", "arguments": {"a": "' + "x" * 5_000 + '"}}</tool_call>'
    short = '<tool_call>{"name": "t", "arguments": {"a": 1}}</tool_call>'
    reply = parse(split_into_chunks(long + short, size), max_call=1_000)
    assert list_calls(reply) == [("t", {"a": 1})]
    assert reply.text == long
    assert "too-long" in [note.code for note in reply.notes]


def test_memory_of_an_endless_call_is_bounded() -> None:
    parser = Parser(max_call=20_000)
    parser.feed('<tool_call>{"name": "t", "arguments": {"a": "')
    tracemalloc.start()
    for _ in range(2_000):
        parser.feed("x" * 1_000)
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 200_000


def test_number_of_notes_is_bounded() -> None:
    assert len(parse(["<tool_call>x " * 10_000]).notes) <= 200
    # Notes on calls that count only if the whole message is calls.
    assert len(parse(["[" + "{'name': 't', 'arguments': {}}, " * 300 + "]"]).notes) <= 200


@pytest.mark.parametrize("dialect", ["auto", "hermes", "qwen3_coder", "pythonic"])
def test_prose_is_sent_at_once(dialect: str) -> None:
    parser = Parser(dialect=dialect, tools=TOOLBOX)
    parser.feed("First, ")
    for word in ("a word ", "and then ", "x < 3 is ", "another. "):
        (event,) = parser.feed(word)
        assert event == TextDelta(word)


def test_only_text_that_may_become_a_marker_is_held_back() -> None:
    parser = Parser()
    assert parser.feed("Look: <tool") == [TextDelta("Look: ")]
    assert parser.feed("box> ") == [TextDelta("<toolbox> ")]
    assert parser.feed("<tool_call") == []
    (text, *_) = parser.finish()
    assert text == TextDelta("<tool_call")


def test_incremental_arguments_are_sent_as_they_arrive() -> None:
    text = 'Now <tool_call>{"name": "t", "arguments": {"a": "' + "long " * 20 + '"}}</tool_call>'
    found = parse_to_events(split_into_chunks(text, 8), arguments="incremental")
    deltas = [event for event in found if type(event).__name__ == "ArgumentsDelta"]
    assert len(deltas) > 8


def test_id_after_streamed_arguments_is_replaced() -> None:
    text = '<tool_call>{"name": "t", "arguments": {"a": 1}, "id": "own"}</tool_call>'
    assert [call.id for call in parse([text]).calls] == ["own"]
    streamed = parse(split_into_chunks(text, 3), arguments="incremental")
    assert [note.code for note in streamed.notes] == ["id-replaced"]
    twice = parse([text + text.replace("1", "2")], arguments="incremental")
    assert [note.code for note in twice.notes] == ["id-replaced"] * 2


@pytest.mark.parametrize("unit", ['````toolcall\\```tool_call{"name":"t"', "\\``<tool_call>`x"])
def test_time_of_unpaired_backticks_is_linear(unit: str) -> None:
    """Eight times the text may take twenty times as long; quadratic time is sixty-four times."""
    text = unit * (6_000 // len(unit))
    assert any(
        measure_seconds(text * 8, 10**9, "auto") < 20 * measure_seconds(text, 10**9, "auto")
        for _ in range(3)
    )
