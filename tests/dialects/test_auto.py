"""The texts that `auto` reads as calls, and the ones that it does not."""

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
def test_auto_reads_the_calls_of_the_table(text: str, calls: list[object], size: int) -> None:
    reply = parse(split_into_chunks(text, size), tools=TOOLBOX)
    assert list_calls(reply) == calls


@pytest.mark.parametrize(
    "text", [text for text, calls in ROWS if not calls and "<think>" not in text]
)
def test_text_without_calls_is_unchanged(text: str) -> None:
    assert parse(split_into_chunks(text, 3), tools=TOOLBOX).text == text


def test_word_that_begins_no_tool_name_is_sent_at_once() -> None:
    assert Parser(tools=TOOLBOX).feed("Sometimes") == [TextDelta("Sometimes")]
    assert Parser(tools=TOOLBOX).feed("get_wea") == []
    assert Parser().feed("weather(in Oslo") == [TextDelta("weather(in Oslo")]


def test_reasoning_tags_are_read_in_every_dialect() -> None:
    for dialect in ("auto", "hermes", "mistral_args", "seed_oss", "pythonic"):
        for opener, closer in (("<think>", "</think>"), ("[THINK]", "[/THINK]")):
            reply = parse([f"{opener}hm{closer}yes"], dialect=dialect)
            assert (reply.reasoning, reply.text) == ("hm", "yes")


def test_reply_names_the_dialect_of_its_calls() -> None:
    assert parse([f"<tool_call>\n{CALL}\n</tool_call>"]).dialect == "hermes"
    assert parse([f"```json action\n{CALL}\n```"]).dialect == "action"
    assert parse([CALL]).dialect == "raw-json"


def test_json_answer_without_tools_is_text() -> None:
    assert parse(['{"result": {"a": 1}}']).text == '{"result": {"a": 1}}'


def test_second_closing_tag_of_reasoning_is_text() -> None:
    for text in ("</think>answer</think>more", "r</think>answer</think>more"):
        for reasoning_open in (True, None):
            assert parse([text], reasoning_open=reasoning_open).text == "answer</think>more"
