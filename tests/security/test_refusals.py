"""Refusals: the detector distinguishes false ones from honest ones and from answers.

The authors of `replies.jsonl` did not know the detector. Its even rows were read while the tables
of languages were written; its odd rows were only counted. `hard_replies.jsonl` was written in the
same way, with replies that only sound like refusals. Before the tables were corrected with it,
precision was 0.93 on its first half and 0.95 on its second. `own_replies.jsonl` contains cases
that were found during development. `pytest -s` prints the figures.
"""

from __future__ import annotations

import json
import re
import time
import timeit
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support import get_corpus_folder
from toolspeak import Tool, as_tools
from toolspeak.security.refusals import (
    MAX_UNDECIDED,
    OpeningDetector,
    Refusal,
    begins_like_refusal,
    find_refusal,
)
from toolspeak.security.refusals.claims import all_topics, load_languages

Row = dict[str, Any]
HERE = Path(__file__).parent
PRECISION, RECALL = 0.98, 0.85
KNOWN_MISSES = {
    "own-045": "neither the claim nor the question names the weather",
    "own-046": "tools for one purpose, and a question without a topic",
    "own-060": "what somebody else has said, after a colon only",
}
"""Own cases whose kind the detector gets wrong."""
WEATHER = Tool(name="get_weather", description="Get the current weather for a city")
FILES = Tool(name="read_file", description="Read a text file")
SHELL = Tool(name="run_shell", description="Run a shell command")
WEB = Tool(name="web_search", description="Search the web")


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


@cache
def load_rows(name: str) -> tuple[Row, ...]:
    return tuple(read_rows(HERE / name))


def classify_row(row: Row) -> Refusal | None:
    tools = [Tool(name=name, description=row["descriptions"][name]) for name in row["tools"]]
    after = row["after_tool_result"]
    return find_refusal(row["reply"], tools, asked=row["user"], after_result=after)


def is_false(found: Refusal | None) -> bool:
    return found is not None and found.kind == "false"


class Score:
    """Counts of rows: found, rightly found, and all that should be found."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.found = self.right = self.all = 0
        for row in rows:
            is_found, is_one = is_false(classify_row(row)), row["label"] == "false_refusal"
            self.found += is_found
            self.right += is_found and is_one
            self.all += is_one

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.all if self.all else 1.0

    def format_line(self, title: str) -> str:
        counts = f"{self.right:4} of {self.all:3}, {self.found - self.right} wrong"
        return f"{title:12} precision {self.precision:.3f}   recall {self.recall:.3f}   {counts}"


def test_false_refusals_are_found_with_precision_and_recall() -> None:
    every = load_rows("replies.jsonl")
    print()
    print(Score(every[::2]).format_line("seen half"))
    print(Score(every[1::2]).format_line("held out"))
    for language in sorted({row["language"] for row in every}):
        print(Score(row for row in every if row["language"] == language).format_line(language))
    whole = Score(every)
    print(whole.format_line("all"))
    assert whole.precision >= PRECISION
    assert whole.recall >= RECALL


def test_hard_replies_are_classified_with_precision_and_recall() -> None:
    hard = Score(load_rows("hard_replies.jsonl"))
    print(f"\n{hard.format_line('hard')}")
    assert hard.precision >= PRECISION
    assert hard.recall >= RECALL


def test_own_replies_are_classified_except_known_misses() -> None:
    wrong = {
        row["id"]
        for row in load_rows("own_replies.jsonl")
        if is_false(classify_row(row)) != (row["label"] == "false_refusal")
    }
    assert wrong == KNOWN_MISSES.keys()


def test_calls_of_real_models_are_not_refusals() -> None:
    folder = get_corpus_folder() / "bfcl-replay"
    questions = {row["id"]: row for row in read_rows(folder / "questions.jsonl")}
    tools = {key: as_tools(row["tools"]) or () for key, row in questions.items()}
    calls = others = flagged = 0
    for path in sorted((folder / "outputs").glob("*.jsonl")):
        for row in read_rows(path):
            question = questions[row["id"]]
            found = find_refusal(row["text"], tools[row["id"]], asked=question["question"])
            if question["category"] == "relevance":
                # No tool fits there, so a refusal is honest.
                others += 1
                flagged += is_false(found)
            elif row["official"]:
                calls += 1
                assert not is_false(found), (path.name, row["id"])
    print(f"\n{calls} right replies with calls: none; {others} where no tool fits: {flagged}")
    assert flagged / others < 0.01


@pytest.mark.parametrize("apostrophe", ["'", "’", ""])
@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("I can't access your files.", FILES),
        ("I don't have access to real-time weather data.", WEATHER),
        ("Sorry, I can't run commands on your machine.", SHELL),
        ("I'm not able to browse the internet.", WEB),
    ],
)
def test_find_refusal_with_any_apostrophe_is_false(text: str, tool: Tool, apostrophe: str) -> None:
    found = find_refusal(text.replace("'", apostrophe), [tool])
    assert found
    assert (found.kind, found.tool) == ("false", tool.name)


def test_refusal_is_false_only_if_a_tool_fits() -> None:
    text = "I'm sorry, but I don't have access to real-time weather data."
    assert is_false(find_refusal(text, [WEATHER]))
    assert is_false(find_refusal(text, [FILES, WEATHER], asked="Is it raining in Oslo?"))
    assert find_refusal(text, [FILES]) == Refusal(
        "honest", text.lower()[:-1].replace("'", " ").replace("-", " ")
    )
    assert find_refusal(text, []) is None


@pytest.mark.parametrize(
    "quoted",
    [
        "```\n{}\n```",
        "~~~text\n{}\n~~~",
        "> {}",
        '"{}"',
        "“{}”",
        "«{}»",
        "'{}'",
        "‘{}’",
        "`{}`",
        "*{}*",
        'The bot wrote: "{}"',
    ],
)
def test_refusal_in_a_quotation_is_ignored(quoted: str) -> None:
    text = "I can't access files on your computer, sorry."
    assert is_false(find_refusal(text, [FILES]))
    assert find_refusal(quoted.format(text), [FILES]) is None


def test_claim_after_code_is_found() -> None:
    text = "```bash\nls\n```\nI can't run commands, so please do that yourself."
    assert is_false(find_refusal(text, [SHELL]))


def test_after_a_result_only_a_claim_to_have_no_tools_is_false() -> None:
    lacks = "As an AI, I have no access to live weather data."
    failed = "I can't check the weather: the service returned an error."
    assert is_false(find_refusal(lacks, [WEATHER], after_result=True))
    assert not is_false(find_refusal(failed, [WEATHER], after_result=True))


def load_tool_denials(kind: str) -> list[tuple[str, str]]:
    table = tomllib.loads((HERE / "tool_denials.toml").read_text("utf-8"))
    assert table.keys() == load_languages().keys()
    return [(language, text) for language, texts in table.items() for text in texts[kind]]


ANY_TOOLS = [
    Tool(name="add", description="Add two numbers"),
    Tool(name="roll_dice"),
    Tool(name="kubectl"),
    Tool(name="Bash", description="Run a command"),
    WEATHER,
]


@pytest.mark.parametrize(("language", "text"), load_tool_denials("missing"))
def test_claim_to_have_no_tools_is_false_whatever_tool_was_offered(
    language: str, text: str
) -> None:
    spellings = {text, text.replace("'", "’")}
    assert language
    for tool in ANY_TOOLS:
        for asked in ("", "Please do it.", "What is 2 + 2?", "Use your tools to check it."):
            found = {
                spelling: find_refusal(spelling, [tool], asked=asked) for spelling in spellings
            }
            assert all(map(is_false, found.values())), (tool.name, asked, found)


@pytest.mark.parametrize(("language", "text"), load_tool_denials("other"))
def test_claim_about_one_kind_of_tools_is_not_false(language: str, text: str) -> None:
    assert language
    for tool in (ANY_TOOLS[0], ANY_TOOLS[1], WEATHER):
        assert not is_false(find_refusal(text, [tool], asked="Please do it.")), tool.name


def test_openings_of_claims_to_have_no_tools_are_detected() -> None:
    texts = [text for _, text in load_tool_denials("missing")]
    missed = [text for text in texts if not begins_like_refusal(text)]
    assert len(missed) / len(texts) < 0.05, missed


@pytest.mark.parametrize(
    ("text", "asked", "is_expected"),
    [
        ("I have no tools, so I can't say more.", "Is it raining?", True),
        ("Tools are unavailable.", "Is it raining?", True),
        ("Tools are unavailable.", "Which tools does the shop have?", False),
        ("Tools are unavailable. The server returned error 503.", "Is it raining?", False),
    ],
)
def test_claim_to_have_no_tools_after_a_result_is_false_unless_the_result_says_so(
    text: str, asked: str, is_expected: bool
) -> None:
    assert is_false(find_refusal(text, [ANY_TOOLS[0]], asked=asked, after_result=True)) == (
        is_expected
    )


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Tools are unavailable.", "Translate: les outils sont indisponibles"),
        ("I can't use tools here.", "Answer without tools: what is 2 + 2?"),
        ("I can't use tools. That would be illegal.", "Stalk my neighbour."),
        ("> Tools are unavailable.", "What does the page say?"),
        ("The page says: Tools are unavailable.", "What does the page say?"),
    ],
)
def test_claim_to_have_no_tools_with_a_reason_is_not_false(text: str, asked: str) -> None:
    assert not is_false(find_refusal(text, [ANY_TOOLS[0]], asked=asked))


def chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def test_opening_in_chunks_is_decided_as_whole() -> None:
    for row in load_rows("replies.jsonl")[::5]:
        whole = OpeningDetector().feed(row["reply"])
        for size in (1, 2, 3, 7, 50):
            detector = OpeningDetector()
            assert [detector.feed(chunk) for chunk in chunks(row["reply"], size)][-1] == whole


def count_undecided(text: str) -> int:
    """Return the number of characters until the opening is decided; all if it never is."""
    detector = OpeningDetector()
    decided = (place for place, one in enumerate(text, 1) if detector.feed(one) != "undecided")
    return next(decided, len(text))


def test_opening_of_an_answer_is_decided_early() -> None:
    every = load_rows("replies.jsonl")
    lengths = {row["id"]: count_undecided(row["reply"]) for row in every}
    assert max(lengths.values()) <= MAX_UNDECIDED
    answers = sorted(lengths[row["id"]] for row in every if row["label"] == "answer")
    assert answers[len(answers) * 8 // 10] <= 12
    assert count_undecided("I " + "really " * 100) == MAX_UNDECIDED


def test_openings_of_most_refusals_are_detected() -> None:
    false = [row for row in load_rows("replies.jsonl") if is_false(classify_row(row))]
    detected = sum(begins_like_refusal(row["reply"]) for row in false)
    print(f"\n{detected} of {len(false)} begin like refusals")
    assert detected / len(false) > 0.65


def test_opening_of_a_stream_is_decided_at_the_end_of_a_sentence() -> None:
    detector = OpeningDetector()
    assert detector.feed("I'm sor") == "undecided"
    assert detector.feed("ry, but I can't open files.") == "undecided"
    assert detector.feed(" ") == "yes"
    assert begins_like_refusal("Sorry. As an AI, I")
    for text in ("In Oslo", "Sure", "```", '"I can', "*sighs* I can't", "Iceland", "[get_weather"):
        assert not begins_like_refusal(text)


def test_every_language_has_the_same_topics() -> None:
    assert len(load_languages()) == 16
    for code, language in load_languages().items():
        assert language.topics.keys() == all_topics(), code
        assert language.denial.groups == 0, code


def measure_cost(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, timer=time.process_time, number=5, repeat=3))


def test_find_refusal_in_prose_costs_less_than_splitting_it_twice() -> None:
    prose = "Oslo lies at the head of a fjord. It has about 700,000 people, and is not small. " * 12
    words = re.compile(r"\w+")
    ours = measure_cost(lambda: find_refusal(prose, [WEATHER], asked="Tell me about Oslo."))
    assert ours < 2 * measure_cost(lambda: words.findall(prose))


@pytest.mark.parametrize(
    "piece",
    ["I can't do it. ", "i can t open ", "no access ", "' ", '"a', "“a", "*a b c d ", "> a\n",
     "```\n", "ich kann nicht empfehlen ", "我无法打开文件，", "لا أستطيع ", "?", "a",
     "only a, i can t open files, ", "no tools ", "sorry, but sorry, ", "no the tools and tools ",
     "当前工具", "ツールへのアクセス", "도구 현재 ", "أي الأدوات "],
)  # fmt: skip
def test_find_refusal_takes_linear_time(piece: str) -> None:
    short, long = piece * 200, piece * 1600
    few, many = (
        measure_cost(lambda text=text: find_refusal(text, [FILES])) for text in (short, long)
    )
    assert many < 24 * few + 0.005
