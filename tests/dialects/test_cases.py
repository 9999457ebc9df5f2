"""Every row of every dialect's table: whole, in all chunks, cut off everywhere, by `auto`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from tests.support import CASES, TOOLBOX, Rows, list_calls, load_dialect_cases, to_comparable
from toolspeak import (
    DIALECTS,
    CallEnd,
    Event,
    Note,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    fold,
)
from toolspeak.dialects.catalog import ALL_DIALECTS
from toolspeak.testing import parse, parse_to_events, split_at, split_into_chunks

Table = list[dict[str, Any]]


def build_options(dialect: str, case: dict[str, Any]) -> dict[str, Any]:
    tools = None if case.get("tools") == "unknown" else TOOLBOX
    return {"dialect": dialect, "tools": tools, "reasoning_open": case.get("reasoning_open")}


def expected_calls(case: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(call["name"], call["arguments"]) for call in case["calls"]]


def test_every_dialect_has_a_table() -> None:
    assert {path.stem for path in CASES.glob("*.toml")} == set(DIALECTS)


@pytest.mark.parametrize(("dialect", "table"), load_dialect_cases())
def test_row_is_read_as_the_table_says(dialect: str, table: Table) -> None:
    rows = Rows()
    for case in table:
        with rows.row(case["name"]):
            reply = parse([case["text"]], **build_options(dialect, case))
            assert list_calls(reply) == expected_calls(case)
            assert reply.text == case.get("content", "")
            assert reply.reasoning == case.get("reasoning", "")
            if "notes" in case:
                assert [note.code for note in reply.notes] == case["notes"]
    rows.assert_passed()


@pytest.mark.parametrize(("dialect", "table"), load_dialect_cases())
def test_row_in_chunks_of_any_size_is_read_alike(dialect: str, table: Table) -> None:
    rows = Rows()
    for case in table:
        for arguments in ("validated", "incremental"):
            options = build_options(dialect, case) | {"arguments": arguments}
            for choice in (options, options | {"dialect": "auto"}):
                whole = to_comparable(parse([case["text"]], **choice))
                for size in range(1, 17):
                    with rows.row((case["name"], arguments, choice["dialect"], size)):
                        assert (
                            to_comparable(parse(split_into_chunks(case["text"], size), **choice))
                            == whole
                        )
    rows.assert_passed()


@pytest.mark.parametrize(("dialect", "table"), load_dialect_cases())
def test_row_split_at_random_places_is_read_alike(dialect: str, table: Table) -> None:
    rows = Rows()
    for case in table:
        text, options = case["text"], build_options(dialect, case)
        whole = to_comparable(parse([text], **options))
        chance = random.Random(f"{dialect}: {case['name']}")
        for _ in range(25):
            places = [chance.randint(0, len(text)) for _ in range(chance.randint(0, 12))]
            with rows.row((case["name"], sorted(places))):
                assert to_comparable(parse(split_at(text, places), **options)) == whole
    rows.assert_passed()


@pytest.mark.parametrize(("dialect", "table"), load_dialect_cases())
def test_row_cut_off_anywhere_loses_nothing(dialect: str, table: Table) -> None:
    rows = Rows()
    # Rows share many beginnings: each one is parsed only once.
    replies: dict[object, dict[str, Reply]] = {}
    for case in table:
        text, options = case["text"], build_options(dialect, case)
        complete = expected_calls(case)
        checked = replies.setdefault((options["tools"] is None, options["reasoning_open"]), {})
        for end in range(len(text) + 1):
            with rows.row((case["name"], text[:end])):
                reply = checked.get(text[:end])
                if reply is None:
                    found = parse_to_events([text[:end]], **options)
                    reply = checked[text[:end]] = fold(found)
                    in_chunks = parse(split_into_chunks(text[:end], 3), **options)
                    assert to_comparable(in_chunks) == to_comparable(reply)
                    assert is_nothing_lost(text[:end], found, dialect), found
                if "cut_off_may_differ" not in case:
                    assert list_calls(reply) == complete[: len(reply.calls)]
    rows.assert_passed()


def is_nothing_lost(text: str, found: Iterable[Event], name: str) -> bool:
    """Return True if a text consists of the events' texts and of the dialect's own markers.

    A closing marker at the end may be cut off.
    """
    if name == "content-with-tool_calls":
        return True  # Its text is inside the call's own JSON.
    ends = skip_markers(text, {0}, name)
    for event in found:
        match event:
            case TextDelta(piece) | ReasoningDelta(piece) | CallEnd(_, ToolCall(raw=piece)):
                pass
            case Note(code="no-call" | "repaired-extra-closer", where=piece):
                pass
            case Note(code="control-token", where=tag):
                behind = {end + len(tag) for end in ends if text.startswith(tag, end)}
                ends |= skip_markers(text, behind, name)
                continue
            case _:
                continue
        behind = {end + len(piece) for end in ends if text.startswith(piece, end)}
        ends = skip_markers(text, behind, name)
    return len(text) in ends or any(
        len(text) - size in ends and text.endswith(marker[:size])
        for marker in list_markers(name)
        for size in range(1, len(marker))
    )


FRAME = re.compile(r"(?:<\|start\|>assistant)?(?:<\|channel\|>|\s*to=)[^\n]*?<\|message\|>")


def skip_markers(text: str, starts: set[int], name: str) -> set[int]:
    """Return all places that markers and spaces lead to from these."""
    places, new = set(starts), list(starts)
    while new:
        at = new.pop()
        ends = {at + len(marker) for marker in list_markers(name) if text.startswith(marker, at)}
        if text[at : at + 1].isspace():
            ends.add(at + 1)
        if DIALECTS[name].message_frame and (frame := FRAME.match(text, at)):
            ends.add(frame.end())
        new += ends - places
        places |= ends
    return places


@cache
def list_markers(name: str) -> set[str]:
    markers: set[str] = set()
    for dialect in (spelling for spelling in ALL_DIALECTS if spelling.name == name):
        markers |= {*dialect.control_tokens, *dialect.initial_tokens, *dialect.trailing_tokens}
        markers |= {m for pair in dialect.reasoning_tags for m in pair}
        markers |= {m for form in dialect.forms for m in (form.opener, *form.all_closers)}
    return {marker for marker in (*markers, "```", "]") if marker}


@pytest.mark.parametrize(("dialect", "table"), load_dialect_cases())
def test_row_is_read_by_auto_too(dialect: str, table: Table) -> None:
    if DIALECTS[dialect].evidence == "prose":
        return
    rows = Rows()
    for case in table:
        with rows.row(case["name"]):
            if case.get("auto") is False:
                continue
            reply = parse([case["text"]], **(build_options(dialect, case) | {"dialect": "auto"}))
            around = case.get("content") and not case.get("content_is_inside")
            if DIALECTS[dialect].evidence == "whole" and around and not case.get("auto"):
                assert not reply.calls, "a call in prose is not the whole message"
            else:
                assert list_calls(reply) == expected_calls(case)
    rows.assert_passed()
