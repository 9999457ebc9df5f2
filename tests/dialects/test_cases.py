"""Every row of every dialect's table: whole, in all chunks, cut off everywhere, by `auto`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import CASES, TOOLBOX, cases, comparable, said
from toolspeak import DIALECTS, CallEnd, Event, Note, ReasoningDelta, TextDelta, ToolCall, fold
from toolspeak.dialects.catalog import ALL_DIALECTS
from toolspeak.testing import chunks, events, parse, split_at


def options_of(dialect: str, case: dict[str, Any]) -> dict[str, Any]:
    tools = None if case.get("tools") == "unknown" else TOOLBOX
    return {"dialect": dialect, "tools": tools, "reasoning_open": case.get("reasoning_open")}


def expected(case: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(call["name"], call["arguments"]) for call in case["calls"]]


def test_every_dialect_has_a_table() -> None:
    assert {path.stem for path in CASES.glob("*.toml")} == set(DIALECTS)


@pytest.mark.parametrize(("dialect", "case"), cases())
def test_case(dialect: str, case: dict[str, Any]) -> None:
    reply = parse([case["text"]], **options_of(dialect, case))
    assert said(reply) == expected(case)
    assert reply.text == case.get("content", "")
    assert reply.reasoning == case.get("reasoning", "")
    if "notes" in case:
        assert [note.code for note in reply.notes] == case["notes"]


@pytest.mark.parametrize("arguments", ["validated", "incremental"])
@pytest.mark.parametrize(("dialect", "case"), cases())
def test_every_chunk_size(dialect: str, case: dict[str, Any], arguments: str) -> None:
    options = options_of(dialect, case) | {"arguments": arguments}
    for choice in (options, options | {"dialect": "auto"}):
        whole = comparable(parse([case["text"]], **choice))
        for size in range(1, 17):
            assert comparable(parse(chunks(case["text"], size), **choice)) == whole, size


@pytest.mark.parametrize(("dialect", "case"), cases())
@settings(max_examples=25)
@given(data=st.data())
def test_random_splits(dialect: str, case: dict[str, Any], data: st.DataObject) -> None:
    text, options = case["text"], options_of(dialect, case)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    assert comparable(parse(split_at(text, places), **options)) == comparable(
        parse([text], **options)
    )


@pytest.mark.parametrize(("dialect", "case"), cases())
def test_cut_off_anywhere(dialect: str, case: dict[str, Any]) -> None:
    text, options = case["text"], options_of(dialect, case)
    complete = expected(case)
    for end in range(len(text) + 1):
        found = events([text[:end]], **options)
        reply = fold(found)
        if "cut_off_may_differ" not in case:
            assert said(reply) == complete[: len(reply.calls)], text[:end]
        assert comparable(parse(chunks(text[:end], 3), **options)) == comparable(reply)
        assert nothing_lost(text[:end], found, dialect), (text[:end], found)


def nothing_lost(text: str, found: Iterable[Event], name: str) -> bool:
    """Whether a text consists of what the events say and of the dialect's own markers."""
    between = gap_pattern(name)
    pattern = between
    if name == "content-with-tool_calls":
        return True  # Its text stands inside the call's own JSON.
    for event in found:
        match event:
            case TextDelta(piece) | ReasoningDelta(piece) | CallEnd(_, ToolCall(raw=piece)):
                pattern += re.escape(piece) + between
            case Note(code="no-call" | "repaired-extra-closer", where=piece):
                pattern += re.escape(piece) + between
            case _:
                pass
    return re.fullmatch(pattern, text) is not None or ends_in_a_marker(text, pattern, name)


def gap_pattern(name: str) -> str:
    dialect = DIALECTS[name]
    markers = markers_of(name)
    choices = [re.escape(marker) for marker in sorted(markers, key=len, reverse=True)]
    if dialect.message_frame:
        choices.append(r"(?:<\|start\|>assistant)?(?:<\|channel\|>|\s*to=)[^\n]*?<\|message\|>")
    return rf"(?:{'|'.join(choices)}|\s)*?"


def markers_of(name: str) -> set[str]:
    markers: set[str] = set()
    for dialect in (spelling for spelling in ALL_DIALECTS if spelling.name == name):
        markers |= {*dialect.control_tokens, *dialect.initial_tokens}
        markers |= {m for pair in dialect.reasoning_tags for m in pair}
        markers |= {m for form in dialect.forms for m in (form.opener, *form.all_closers)}
    return {marker for marker in (*markers, "```", "]") if marker}


def ends_in_a_marker(text: str, pattern: str, name: str) -> bool:
    """Whether only the beginning of a closing marker is missing."""
    return any(
        text.endswith(marker[:size]) and re.fullmatch(pattern, text[: len(text) - size])
        for marker in markers_of(name)
        for size in range(1, len(marker))
    )


@pytest.mark.parametrize(("dialect", "case"), cases())
def test_auto_reads_it_too(dialect: str, case: dict[str, Any]) -> None:
    if DIALECTS[dialect].evidence == "prose" or case.get("auto") is False:
        return
    reply = parse([case["text"]], **(options_of(dialect, case) | {"dialect": "auto"}))
    around = case.get("content") and not case.get("content_is_inside")
    if DIALECTS[dialect].evidence == "whole" and around and not case.get("auto"):
        assert not reply.calls, "a call in prose is not the whole message"
    else:
        assert said(reply) == expected(case)
