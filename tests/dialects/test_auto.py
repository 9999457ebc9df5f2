"""What `auto` takes for a call, and what it does not."""

from __future__ import annotations

import pytest

from tests.support import TOOLBOX, list_calls
from toolspeak import Parser, TextDelta
from toolspeak.testing import parse, split_into_chunks

CALL = '{"name": "t", "arguments": {"a": 1}}'
MADE = [("t", {"a": 1})]
ROWS = [
    # The whole message, reasoning removed and a fence stripped, is nothing but calls.
    (CALL, MADE),
    (f"  {CALL}\n", MADE),
    (f"<think>hm</think>\n{CALL}", MADE),
    (f"hm</think>{CALL}", MADE),
    (f"```json\n{CALL}\n```", MADE),
    (f"[{CALL}, {CALL}]", MADE * 2),
    (f"{CALL}; {CALL}", MADE * 2),
    ("[t(a=1)]", MADE),
    ("t(a=1)", MADE),
    ('t\n{"a": 1}', MADE),
    ('{"tool_calls": [{"function": {"name": "t", "arguments": "{\\"a\\": 1}"}}]}', MADE),
    # Anything else in it makes it text.
    (f"Like this: {CALL}", []),
    (f"{CALL} is how.", []),
    (f"For example: <think>x</think>{CALL}", []),
    (f"```json\n{CALL}\n```\nThat is it.", []),
    ("t(a=1) is a call.", []),
    ("[t(a=1)] and so on", []),
    ('{"a": 1}', []),
    ('{"name": "t"}', []),
    ('{"name": "Bob", "arguments": {}}', []),
    ('print("hello")', []),
    ('[{"name": "t", "parameters": {"type": "object", "properties": {}}}]', []),
    # Markers count anywhere, and several families in one reply.
    (f'So <tool_call>{CALL}</tool_call> and [TOOL_CALLS]t[ARGS]{{"a": 1}}', MADE * 2),
    (f"<|python_tag|>{CALL}", MADE),
]


@pytest.mark.parametrize(("text", "calls"), ROWS)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_row(text: str, calls: list[object], size: int) -> None:
    reply = parse(split_into_chunks(text, size), tools=TOOLBOX)
    assert list_calls(reply) == calls


@pytest.mark.parametrize(
    "text", [text for text, calls in ROWS if not calls and "<think>" not in text]
)
def test_what_is_no_call_is_text_to_the_letter(text: str) -> None:
    assert parse(split_into_chunks(text, 3), tools=TOOLBOX).text == text


def test_a_word_that_can_be_no_tool_leaves_at_once() -> None:
    assert Parser(tools=TOOLBOX).feed("Sometimes") == [TextDelta("Sometimes")]
    assert Parser(tools=TOOLBOX).feed("get_wea") == []
    assert Parser().feed("weather(in Oslo") == [TextDelta("weather(in Oslo")]


def test_reasoning_is_told_from_text_in_every_dialect() -> None:
    for dialect in ("auto", "hermes", "mistral_args", "seed_oss", "pythonic"):
        for opener, closer in (("<think>", "</think>"), ("[THINK]", "[/THINK]")):
            reply = parse([f"{opener}hm{closer}yes"], dialect=dialect)
            assert (reply.reasoning, reply.text) == ("hm", "yes")


def test_the_dialect_is_the_one_that_was_spoken() -> None:
    assert parse([f"<tool_call>\n{CALL}\n</tool_call>"]).dialect == "hermes"
    assert parse([f"```json action\n{CALL}\n```"]).dialect == "action"
    assert parse([CALL]).dialect == "raw-json"


def test_without_tools_an_answer_in_json_is_an_answer() -> None:
    assert parse(['{"result": {"a": 1}}']).text == '{"result": {"a": 1}}'


def test_a_second_close_tag_is_text() -> None:
    for text in ("</think>answer</think>more", "r</think>answer</think>more"):
        for reasoning_open in (True, None):
            assert parse([text], reasoning_open=reasoning_open).text == "answer</think>more"
