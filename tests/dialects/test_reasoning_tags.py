"""Where tags of reasoning count: at the start of a line, and where a thought plausibly ends.

In the rows, {o} and {c} stand for the tags that open and close reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.support import Rows, to_comparable
from toolspeak import DIALECTS, Parser, Reply, extract, fold
from toolspeak.dialects.catalog import ALL_DIALECTS
from toolspeak.dialects.template import COMMON_REASONING_TAGS
from toolspeak.testing import split_into_chunks
from toolspeak.types import Trust

TRUSTS: tuple[Trust, ...] = ("strict", "standard", "lenient")
SIZES = (10**9, 1, 3)
MENTIONS = [
    "Models such as R1 emit {o} before the answer. Call me.",
    'Use the regex re.compile(r"{o}(.*?){c}", re.S).',
    'To strip: text.split("{c}")[-1] is enough.',
    "- {o} opens the reasoning\n- {c} closes it",
    "> {o} begins a thought\n> {c} ends it",
    "1. {o} comes first\n2. {c} comes second",
    "| tag | meaning |\n|---|---|\n| {o} | begins |\n| {c} | ends |",
    "|{o}|begins|\n|{c}|ends|",
    "A {o}\nb",
    "Wrap it in {o}…{c} tags.",
    "Everything between {o} and {c} is hidden.",
    'He said: "{o} is odd."',
    "The tag ({c}) ends the thought.",
    "Write {c}, then the answer.",
    "The closing tag is {c}.",
    "Is it {o} or {c}?",
    "The closing tag is {c}\n\nIt comes before the answer.",
    "The model forgot {c}",
    "Das Modell schreibt {o} vor der Antwort und {c} danach.",
    "Nach dem {c}-Tag kommt die Antwort.",
    "„{c}“ beendet den Gedanken.",
    "La balise « {c} » termine le raisonnement.",
    "¿Qué significa {o}? Abre el razonamiento.",
    "A etiqueta {c} fecha o raciocínio.",
    "Il tag {c} chiude il ragionamento.",
    "Model pisze {o} przed odpowiedzią i {c} po niej.",
    "Düşünce {c} ile biter, {o} ile başlar.",
    "Thẻ {c} kết thúc phần suy luận.",
    "模型先输出{o},然后输出{c}再回答。",
    "推理以{c}结束。",
    "模型会在 {c} 之后给出答案。",
    "推論は{o}で始まり、{c}で終わります。",
    "「{c}」で終わります。",
    "추론은 {o}로 시작해서 {c}로 끝납니다.",
    "Модель пишет {o} перед ответом и {c} после него.",
    "«{c}» завершает рассуждение.",
    "Η ετικέτα {c} κλείνει τη σκέψη.",
    "يكتب النموذج {o} قبل الإجابة و {c} بعدها.",
    "המודל כותב {o} לפני התשובה ו {c} אחריה.",
    "मॉडल उत्तर से पहले {o} और बाद में {c} लिखता है।",
    'print(reply.replace("{o}", "").replace("{c}", ""))',
    "const parts = text.split('{c}');",
    "The pattern /{o}[\\s\\S]*?{c}/g matches it.",
    "sed -e 's|{o}.*{c}||' removes it.",
    "x = a if s.endswith({c}) else b",
    'before, _, after = text.partition(f"{c}")',
    '{"stop": ["{c}", "{o}"]}',
    "Set stop={c} and max_tokens=1.",
    "`{o}` opens and {c} closes.",
    "Use `{c}` to close it.",
    "```python\nx = '{c}'\ny = '{o}'\n```\nThat is all.",
    "    x = '{o}'\n",
    "**{o}** opens, **{c}** closes.",
    "*{c}* ends it, _{o}_ begins it.",
    "~~{c}~~ was removed.",
    "[{c}](https://example.com) is documented.",
    "See https://example.com/?tag={o}&end={c} for more.",
    "In HTML, <b>{c}</b> is bold and <p>{o}</p> a paragraph.",
    "# The {c} tag\n\nIt ends a thought.",
    "# {o}\n\nIt begins a thought.",
    "* [ ] strip {c}\n* [ ] strip {o}",
    "title: {o}\nbody: {c}",
    "{c} is the closing tag.",
    "{c}: ends the reasoning.",
    "{c} – the end of a thought",
    "Note that\n{c} is only needed once.",
    "Some models add a closing tag, e.g. {c}\nwhich is dropped.",
    "Two tags: {o}, {c}. A third: none.",
    "“{c}” ends it, ‘{o}’ begins it.",
    "The tokens a{c}, b{c} and c{c} were seen.",
    "It writes its thoughts after {o}\n\nand closes them with {c}\n\nbefore it answers.",
    "What comes after {o}? Its thoughts. And then? A {c} of course.",
]
"""Texts that mention the tags: all of each is text."""
THOUGHTS = [
    ("{o}hm{c}yes", "hm", "yes"),
    ("{o}\nhm\n{c}\n\nyes", "hm", "yes"),
    ("\n\n  {o}hm{c}\nyes", "hm", "yes"),
    ("First.\n{o}hm{c}yes", "hm", "First.\nyes"),
    ("First.\n\n\t{o}\nhm\n{c}\n\nyes", "hm", "First.\n\n\tyes"),
    ("{o}hm{c}\n\nUse {o} to think.", "hm", "Use {o} to think."),
    ("{o}a{c}b{c}c", "a", "b{c}c"),
    ("{o}hm{c}\n{o}hm{c}yes", "hmhm", "yes"),
    ("{o}hm", "hm", ""),
    ("{o}想{c}答案", "想", "答案"),
]
"""Texts with reasoning in tags: the reasoning and the rest."""
ORPHANS = [
    ("hm{c}yes", "hm", "yes"),
    ("…so I answer.{c}\n\nParis.", "…so I answer.", "Paris."),
    ("…so I answer{c}Paris.", "…so I answer", "Paris."),
    ("hm\n{c}\n\nyes", "hm", "yes"),
    ("hm\n{c}yes", "hm", "yes"),
    ("{c}yes", "", "yes"),
    ("{c}\n\nyes", "", "yes"),
    ("Hm.{c} Yes.", "Hm.", "Yes."),
    ("Hm. {c}\n\nYes.", "Hm.", "Yes."),
    ("我想想。{c}答案是42。", "我想想。", "答案是42。"),
    ("I can answer now{c}\n\nParis", "I can answer now", "Paris"),
    (
        "It's the user's 'city', so I'd say Paris.{c}Paris",
        "It's the user's 'city', so I'd say Paris.",
        "Paris",
    ),
    ('They said "Paris" (France).{c}**Paris**', 'They said "Paris" (France).', "**Paris**"),
    ("- a\n- b{c}\n\nyes", "- a\n- b", "yes"),
    ("1. a\n2. b{c}# Title", "1. a\n2. b", "# Title"),
    ("x{c}\n\n| a | b |", "x", "| a | b |"),
    ("done!{c}`code`", "done!", "`code`"),
    ("done?{c}- one\n- two", "done?", "- one\n- two"),
    ("```\nx\n```\n{c}\n\nyes", "```\nx\n```", "yes"),
    ("Hm.{c}", "Hm.", ""),
    ("Hm.\n{c}", "Hm.", ""),
    ("I can't{c}Paris", "I can't", "Paris"),
    ('so I answer "Paris".{c}"Paris"', 'so I answer "Paris".', '"Paris"'),
    ("2 + 2 = 4{c}4", "2 + 2 = 4", "4"),
    (
        "The user asks about {o} tags.\nI explain.{c}\n\nSure.",
        "The user asks about {o} tags.\nI explain.",
        "Sure.",
    ),
]
"""Texts that may begin inside reasoning: the reasoning and the rest."""
MESSAGE_ENDS = ("<|end|>", "<|end_message|>")
"""Closers that end any message, so that they are no evidence of reasoning."""


def list_tags() -> list[tuple[str, str, str]]:
    """Return each pair of tags, with a dialect that has it."""
    found = dict.fromkeys(COMMON_REASONING_TAGS, "auto")
    for dialect in ALL_DIALECTS:
        for tag in dialect.reasoning_tags:
            found.setdefault(tag, dialect.name)
    return [(opener, closer, name) for (opener, closer), name in found.items()]


TAGS = [tag for tag in list_tags() if tag[0] and tag[1] not in MESSAGE_ENDS]


def insert_tags(text: str, opener: str, closer: str) -> str:
    return text.replace("{o}", opener).replace("{c}", closer)


def read(text: str, size: int, **options: Any) -> Reply:
    return fold(Parser(**options).events(split_into_chunks(text, size)))


def list_options(name: str) -> Iterator[dict[str, Any]]:
    for dialect, trust in product(dict.fromkeys((name, "auto", "hermes")), TRUSTS):
        yield {"dialect": dialect, "trust": trust}


@pytest.mark.parametrize(("opener", "closer", "name"), TAGS)
def test_tag_that_a_text_mentions_is_text(opener: str, closer: str, name: str) -> None:
    rows = Rows()
    for row, options, is_open, size in product(MENTIONS, list_options(name), (None, False), SIZES):
        if "regex" in row and "\n" in opener:
            continue  # No regular expression holds this line break.
        text = insert_tags(row, opener, closer)
        with rows.row((row, options, is_open, size)):
            reply = read(text, size, reasoning_open=is_open, **options)
            assert (reply.reasoning, reply.text, reply.calls) == ("", text, ())
            assert "unopened-reasoning" not in {note.code for note in reply.notes}
    rows.assert_passed()


@pytest.mark.parametrize(("opener", "closer", "name"), TAGS)
def test_tag_that_begins_a_line_opens_reasoning(opener: str, closer: str, name: str) -> None:
    rows = Rows()
    for row, options, is_open, size in product(THOUGHTS, list_options(name), (None, False), SIZES):
        text, reasoning, rest = (insert_tags(part, opener, closer) for part in row)
        with rows.row((row, options, is_open, size)):
            reply = read(text, size, reasoning_open=is_open, **options)
            assert (reply.reasoning, reply.text) == (reasoning, rest)
    rows.assert_passed()


@pytest.mark.parametrize(("opener", "closer", "name"), TAGS)
def test_closing_tag_after_a_thought_ends_reasoning_unless_the_prompt_opened_none(
    opener: str, closer: str, name: str
) -> None:
    rows = Rows()
    for row, options, size in product(ORPHANS, list_options(name), SIZES):
        text, reasoning, rest = (insert_tags(part, opener, closer) for part in row)
        with rows.row((row, options, size)):
            reply = read(text, size, reasoning_open=None, **options)
            assert (reply.reasoning, reply.text) == (reasoning, rest)
            assert [note.code for note in reply.notes] == ["unopened-reasoning"]
            reply = read(text, size, reasoning_open=False, **options)
            assert (reply.reasoning, reply.text) == ("", text)
            assert [note.code for note in reply.notes] == ["unopened-reasoning"]
    rows.assert_passed()


@pytest.mark.parametrize("row", [*MENTIONS, *(row[0] for row in (*THOUGHTS, *ORPHANS))])
def test_row_in_chunks_of_any_size_is_read_alike(row: str) -> None:
    rows = Rows()
    for (opener, closer, _), is_open in product(TAGS, (None, True, False)):
        text = insert_tags(row, opener, closer)
        whole = to_comparable(read(text, 10**9, reasoning_open=is_open))
        for size in (1, 2, 3, 5, 8, 13):
            with rows.row((opener, is_open, size)):
                assert to_comparable(read(text, size, reasoning_open=is_open)) == whole
    rows.assert_passed()


@pytest.mark.parametrize("row", [*MENTIONS, *(row[0] for row in (*THOUGHTS, *ORPHANS))])
def test_tags_are_text_if_the_api_has_separated_the_reasoning(row: str) -> None:
    rows = Rows()
    for (opener, closer, _), trust in product(TAGS, TRUSTS):
        text = insert_tags(row, opener, closer)
        with rows.row((opener, trust)):
            for size in SIZES:
                reply = read(text, size, trust=trust, reads_reasoning=False)
                assert (reply.reasoning, reply.text) == ("", text)
            message = {"content": f"Hm. {text}", "reasoning_content": "Let me see."}
            reply = extract({"choices": [{"message": message}]}, trust=trust)
            assert (reply.reasoning, reply.text) == ("Let me see.", f"Hm. {text}")
    rows.assert_passed()


# Messages with headers.

HARMONY = "<|channel|>analysis<|message|>"
MUSE = "<|start|>assistant to=self<|message|>"


@pytest.mark.parametrize("header", [HARMONY, f"<|start|>assistant{HARMONY}", MUSE])
@pytest.mark.parametrize("dialect", ["auto", "hermes", "harmony", "muse_glimmer"])
def test_header_of_reasoning_within_a_line_is_text(header: str, dialect: str) -> None:
    is_own = dialect == ("muse_glimmer" if header == MUSE else "harmony")
    for text in (
        f"gpt-oss writes {header} before it thinks.",
        f'The string "{header}" begins a thought.',
        f"- {header} begins a thought",
    ):
        for trust, size in product(TRUSTS, SIZES):
            reply = read(text, size, dialect=dialect, trust=trust)
            assert not reply.reasoning
            if is_own or dialect == "auto":
                assert reply.text == text
    for text in (f"{header}Hm.", f"First.\n{header}Hm.", f"\n  {header}Hm."):
        if is_own or dialect == "auto":
            assert read(text, 1, dialect=dialect).reasoning == "Hm."


def test_header_is_text_of_its_own_if_the_api_has_separated_the_reasoning() -> None:
    reply = read(f"{HARMONY}Hm.<|end|>Yes.", 3, reads_reasoning=False)
    assert (reply.reasoning, reply.text) == ("", "Hm.Yes.")


# Calls around thoughts.

CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def test_closing_tag_after_a_call_withdraws_it() -> None:
    for text in (f"I could {CALL}</think>No.", f"I could {CALL}\n</think>\n\nNo."):
        for size in SIZES:
            reply = read(text, size, dialect="hermes")
            assert (reply.calls, reply.text) == ((), "No.")
            codes = [note.code for note in reply.notes]
            assert codes == ["unopened-reasoning", "calls-in-reasoning"]


def test_calls_after_a_mentioned_tag_are_made() -> None:
    for dialect in DIALECTS:
        for tag in ("<think>", "</think>", "[THINK]"):
            reply = read(f"I write {tag} first.\n{CALL}", 1, dialect=dialect)
            assert [call.name for call in reply.calls] == ["now"]
            assert tag in reply.text


def test_reasoning_after_text_that_never_closes_is_noted() -> None:
    reply = read("First.\n<think>Hm. And more.", 1)
    assert (reply.text, reply.reasoning) == ("First.\n", "Hm. And more.")
    assert [note.code for note in reply.notes] == ["unclosed-reasoning"]
    assert not read("<think>Hm.", 1).notes
