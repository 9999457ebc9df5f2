"""Calls in reasoning without an end, and in messages to the user, are drafts or examples."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.support import Rows, list_calls, to_comparable
from toolspeak import DIALECTS, Parser, Reply, Tool, ToolCall, extract, fold, render_calls
from toolspeak.dialects.catalog import ALL_DIALECTS
from toolspeak.dialects.template import COMMON_REASONING_TAGS
from toolspeak.testing import parse, split_into_chunks
from toolspeak.types import COMPLETE_STOP_REASONS, Trust

TOOLS = [
    Tool(name="delete", parameters={"type": "object", "properties": {"path": {"type": "string"}}})
]
DELETE = ToolCall(id="call_1", name="delete", arguments={"path": "/x"})
CALL = '<tool_call>{"name": "delete", "arguments": {"path": "/x"}}</tool_call>'
MADE = [("delete", {"path": "/x"})]
TRUSTS: tuple[Trust, ...] = ("strict", "standard", "lenient")
MODES = ("named", "auto")
FRAMED = [name for name, dialect in DIALECTS.items() if dialect.message_frame]
THOUGHT = {
    "harmony": "<|channel|>analysis<|message|>",
    "muse_glimmer": "<|start|>assistant to=self<|message|>",
}
ANSWER = {
    "harmony": "<|start|>assistant<|channel|>final<|message|>",
    "muse_glimmer": "<|start|>assistant to=user<|message|>",
}
END = {"harmony": "<|end|>", "muse_glimmer": "<|eom|>"}


def list_reasoning_openers(name: str) -> list[str]:
    """Return what begins reasoning in a dialect; "" is reasoning that the prompt has opened."""
    same = [dialect for dialect in ALL_DIALECTS if dialect.name == name]
    tags = [*COMMON_REASONING_TAGS, *(tag for one in same for tag in one.reasoning_tags)]
    frame = [THOUGHT[name]] if name in THOUGHT else []
    return ["", *dict.fromkeys(opener for opener, _ in tags if opener), *frame]


def read(text: str, *, size: int = 10**9, is_complete: bool = True, **options: Any) -> Reply:
    parser = Parser(tools=TOOLS, new_id=lambda: "id", **options)
    chunks = split_into_chunks(text, size)
    return fold(parser.events(chunks, is_complete=is_complete))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DIALECTS)
def test_call_in_reasoning_that_is_cut_off_is_never_made(name: str, mode: str) -> None:
    rows = Rows()
    dialect = name if mode == "named" else "auto"
    texts = [CALL, render_calls(name, [DELETE], TOOLS)]
    for opener, call, rest, trust in product(
        list_reasoning_openers(name), texts, ("", "\n", " but first"), TRUSTS
    ):
        text = f"{opener}I could do this:\n{call}{rest}"
        for is_open in (True,) if not opener else (None, True):
            if opener and is_open and name in FRAMED:
                continue  # The prompt has no header there.
            for size in (10**9, 1):
                options: dict[str, Any] = {"dialect": dialect, "trust": trust}
                with rows.row((opener, call, rest, trust, is_open, size)):
                    reply = read(
                        text, size=size, is_complete=False, reasoning_open=is_open, **options
                    )
                    assert not reply.calls
    rows.assert_passed()


@pytest.mark.parametrize(("opener", "closer"), COMMON_REASONING_TAGS)
def test_call_at_the_end_of_complete_reasoning_is_made_unless_strict(
    opener: str, closer: str
) -> None:
    drafts = f"{opener}Maybe {CALL}? No, rather\n{CALL}"
    for size in (10**9, 1, 7):
        for trust in TRUSTS:
            expected = [] if trust == "strict" else MADE
            reply = read(drafts, size=size, trust=trust)
            assert list_calls(reply) == expected
            assert not reply.text
            assert CALL in reply.reasoning
            for rest in (" and so on.", f"\n{opener}Hm.", "</tool_call> no", CALL[:30]):
                assert not read(drafts + rest, size=size, trust=trust).calls
            assert list_calls(read(f"{drafts}{closer}{CALL}", trust=trust)) == MADE


def test_call_of_another_dialect_at_the_end_of_reasoning_is_not_made() -> None:
    text = f"<think>Let me see.\n{CALL}"
    assert not read(text, dialect="qwen3_coder").calls
    assert list_calls(read(text, dialect="hermes")) == MADE


def test_only_drafts_of_a_complete_reply_are_made_if_lenient() -> None:
    text = f"<think>I could {CALL}</think>"
    assert list_calls(read(text, trust="lenient")) == MADE
    assert not read(text, trust="lenient", is_complete=False).calls


STOPS = {"stop": True, "length": False, "content_filter": False}


@pytest.mark.parametrize("stop", STOPS)
def test_draft_in_a_response_is_made_only_if_it_ended_by_itself(stop: str) -> None:
    message = {"role": "assistant", "content": f"<think>I could\n{CALL}"}
    response = {"choices": [{"message": message, "finish_reason": stop}]}
    assert bool(extract(response, tools=TOOLS).calls) == STOPS[stop]
    assert not extract(response, tools=TOOLS, trust="strict").calls


def test_reasons_of_complete_replies_are_few() -> None:
    assert {"stop", "calls", "stop_sequence", None} == COMPLETE_STOP_REASONS


# Messages with headers.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FRAMED)
def test_call_in_a_message_to_the_user_is_never_made(name: str, mode: str) -> None:
    rows = Rows()
    dialect = name if mode == "named" else "auto"
    texts = [CALL, render_calls(name, [DELETE], TOOLS), *_spellings_without_header(name)]
    for call, rest, trust in product(texts, (" like this.", END[name], f".{END[name]}"), TRUSTS):
        for opener in (ANSWER[name], ANSWER[name].removeprefix("<|start|>assistant").lstrip()):
            if rest == END[name] and call.endswith(("<|call|>", "<|eom|>")):
                continue  # The very last thing of the reply: it may be meant.
            text = f"{opener}Write\n{call}{rest}"
            for size in (10**9, 1):
                with rows.row((call, rest, trust, opener, size)):
                    reply = read(text, size=size, dialect=dialect, trust=trust)
                    assert not reply.calls
                    assert "delete" in reply.text
    rows.assert_passed()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FRAMED)
def test_call_in_an_unfinished_thought_with_a_header_is_not_made(name: str, mode: str) -> None:
    dialect = name if mode == "named" else "auto"
    for call in (render_calls(name, [DELETE], TOOLS), *_spellings_without_header(name), CALL):
        for trust, size in product(TRUSTS, (10**9, 1)):
            text = f"{THOUGHT[name]}I could write\n{call} but"
            assert not read(text, size=size, dialect=dialect, trust=trust).calls


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FRAMED)
def test_message_to_a_tool_after_other_messages_is_a_call(name: str, mode: str) -> None:
    dialect = name if mode == "named" else "auto"
    call = render_calls(name, [DELETE], TOOLS)
    for trust, size in product(TRUSTS, (10**9, 1, 5)):
        for before in (THOUGHT[name], ANSWER[name]):
            text = f"{before}Hm.{END[name]}{call}"
            assert list_calls(read(text, size=size, dialect=dialect, trust=trust)) == MADE
            forgotten = read(f"{before}Hm.{call}", size=size, dialect=dialect, trust=trust)
            assert list_calls(forgotten) == ([] if trust == "strict" else MADE)


def _spellings_without_header(name: str) -> list[str]:
    """Return the call as the dialect writes it inside a message, if it does."""
    if name != "muse_glimmer":
        return []
    call = render_calls(name, [DELETE], TOOLS)
    return [call[call.index("<atem:") : call.rindex("<|eom|>")]]


@pytest.mark.parametrize("name", FRAMED)
def test_quoted_header_in_any_chunks_is_read_alike(name: str) -> None:
    call = render_calls(name, [DELETE], TOOLS)
    for text in (
        f"{ANSWER[name]}Write {call} so.{END[name]}{call}",
        f"{THOUGHT[name]}Write {call} so.{END[name]}{call}",
        f"{THOUGHT[name]}Write <|start|> or <|channel|> so.{END[name]}{call}",
    ):
        for trust in TRUSTS:
            options = {"dialect": name, "trust": trust, "tools": TOOLS}
            whole = parse([text], **options)
            assert list_calls(whole) == MADE
            for size in range(1, 12):
                in_chunks = parse(split_into_chunks(text, size), **options)
                assert to_comparable(in_chunks) == to_comparable(whole)
