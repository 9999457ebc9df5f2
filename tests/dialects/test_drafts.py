"""Calls in reasoning without an end, and in messages to the user, are drafts or examples."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

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


class Messages(NamedTuple):
    """What begins and ends thoughts and messages to the user; "" if the dialect has none."""

    answer: str
    answer_end: str
    thought: str = ""
    thought_end: str = ""


_COHERE = Messages(
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_THINKING|>", "<|END_THINKING|>"
)
MESSAGES = {
    "harmony": Messages(
        "<|start|>assistant<|channel|>final<|message|>",
        "<|end|>",
        "<|channel|>analysis<|message|>",
        "<|end|>",
    ),
    "muse_glimmer": Messages(
        "<|start|>assistant to=user<|message|>",
        "<|eom|>",
        "<|start|>assistant to=self<|message|>",
        "<|eom|>",
    ),
    "inkling": Messages(
        "<|message_model|><|content_text|>",
        "<|end_message|>",
        "<|content_thinking|>",
        "<|end_message|>",
    ),
    "kimi_k3": Messages(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
    ),
    "solar_open": Messages("<|begin|>assistant<|content|>", "<|end|>", "<|think|>", "<|end|>"),
    "cohere_command3": _COHERE,
    "cohere_command4": _COHERE._replace(answer="<|START_TEXT|>", answer_end="<|END_TEXT|>"),
    "functionary_v2": Messages("<|from|>assistant\n<|recipient|>all\n<|content|>", ""),
    "functionary_v3_2": Messages(">>>all\n", ""),
}


def list_openings(name: str) -> list[str]:
    """Return what begins a message to the user, also if the prompt has begun it."""
    answer = MESSAGES[name].answer
    headers = (
        "<|start|>assistant",
        "<|message_model|>",
        "<|begin|>assistant",
        "<|from|>assistant\n",
    )
    without_header = answer
    for header in headers:
        without_header = without_header.removeprefix(header)
    initial = [text for text in DIALECTS[name].initial_tokens if answer.endswith(text)]
    return list(dict.fromkeys((answer, without_header.lstrip(), *initial)))


def list_modes(name: str, opener: str = "") -> tuple[str, ...]:
    """Return the dialects that a parser may expect: only the right one, if what begins or ends a
    message means something else in others."""
    is_certain = MESSAGES[name].answer_end and opener != "<|content|>"
    return (name, "auto") if is_certain else (name,)


def list_reasoning_openers(name: str) -> list[str]:
    """Return what begins reasoning in a dialect; "" is reasoning that the prompt has opened."""
    same = [dialect for dialect in ALL_DIALECTS if dialect.name == name]
    tags = [*COMMON_REASONING_TAGS, *(tag for one in same for tag in one.reasoning_tags)]
    frame = [MESSAGES[name].thought] if name in FRAMED else []
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


def test_every_dialect_with_messages_to_the_user_is_in_the_table() -> None:
    spans = {dialect.name for dialect in ALL_DIALECTS if dialect.answer_spans}
    assert {*FRAMED, *spans} == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_call_in_a_message_to_the_user_is_never_made(name: str) -> None:
    rows = Rows()
    own, end = render_calls(name, [DELETE], TOOLS), MESSAGES[name].answer_end
    calls = [CALL, own, *_spellings_without_header(name)]
    for opener, call in product(list_openings(name), calls):
        # An end that may be the call's own shows nothing: the call may be meant.
        may_be_meant = call == own and (name in FRAMED or own.endswith(end))
        for rest in (" like this.", f".{end}", *(() if may_be_meant else (end,))):
            text = f"{opener}Write\n{call}{rest}"
            modes = list_modes(name, opener)
            for dialect, trust, size in product(modes, TRUSTS, (10**9, 1)):
                with rows.row((opener, call, rest, dialect, trust, size)):
                    reply = read(text, size=size, dialect=dialect, trust=trust)
                    assert not reply.calls
                    assert "delete" in reply.text
    rows.assert_passed()


@pytest.mark.parametrize("name", MESSAGES)
def test_call_in_an_unfinished_thought_is_not_made(name: str) -> None:
    opener = MESSAGES[name].thought
    calls = (render_calls(name, [DELETE], TOOLS), *_spellings_without_header(name), CALL)
    trusts = TRUSTS if name in FRAMED else ("strict", "standard")
    for call, mode, trust, size in product(calls if opener else (), MODES, trusts, (10**9, 1)):
        dialect = name if mode == "named" else "auto"
        text = f"{opener}I could write\n{call} but"
        assert not read(text, size=size, dialect=dialect, trust=trust).calls


@pytest.mark.parametrize("name", MESSAGES)
def test_call_after_other_messages_is_made(name: str) -> None:
    call, messages = render_calls(name, [DELETE], TOOLS), MESSAGES[name]
    befores = [
        (messages.answer, messages.answer_end),
        (messages.thought, messages.thought_end),
    ]
    for dialect, trust, size in product(list_modes(name), TRUSTS, (10**9, 1, 5)):
        for opener, end in befores if messages.thought else befores[:1]:
            text = f"{opener}Hm.{end}{call}"
            assert list_calls(read(text, size=size, dialect=dialect, trust=trust)) == MADE


@pytest.mark.parametrize("name", MESSAGES)
def test_call_after_a_message_without_its_end_is_made_unless_strict(name: str) -> None:
    call, messages = render_calls(name, [DELETE], TOOLS), MESSAGES[name]
    openers = (messages.answer, messages.thought) if name in FRAMED else (messages.answer,)
    for opener, dialect, trust, size in product(openers, list_modes(name), TRUSTS, (10**9, 1, 5)):
        reply = read(f"{opener}Hm.{call}", size=size, dialect=dialect, trust=trust)
        is_made = trust != "strict" or not messages.answer_end
        assert list_calls(reply) == (MADE if is_made else [])


def _spellings_without_header(name: str) -> list[str]:
    """Return the call as the dialect writes it inside a message, if it does."""
    if name != "muse_glimmer":
        return []
    call = render_calls(name, [DELETE], TOOLS)
    return [call[call.index("<atem:") : call.rindex("<|eom|>")]]


@pytest.mark.parametrize("name", MESSAGES)
def test_quoted_call_in_any_chunks_is_read_alike(name: str) -> None:
    call, messages = render_calls(name, [DELETE], TOOLS), MESSAGES[name]
    texts = [f"{messages.answer}Write {call} so.{messages.answer_end}{call}"]
    if messages.thought:
        texts.append(f"{messages.thought}Write {call} so.{messages.thought_end}{call}")
    if name in FRAMED:
        texts.append(f"{messages.thought}<|start|> or <|channel|>.{messages.thought_end}{call}")
    for text, dialect, trust in product(texts, list_modes(name), TRUSTS):
        options = {"dialect": dialect, "trust": trust, "tools": TOOLS}
        whole = parse([text], **options)
        assert list_calls(whole) == MADE
        for size in range(1, 12):
            in_chunks = parse(split_into_chunks(text, size), **options)
            assert to_comparable(in_chunks) == to_comparable(whole)
