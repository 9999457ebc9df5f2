"""`toolspeak eval`: questions, grading, the file of answers, and the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support import get_corpus_folder
from toolspeak import ToolCall
from toolspeak.cli import eval as command
from toolspeak.cli import main
from toolspeak.errors import UsageError
from toolspeak.evaluation.questions import (
    EvalQuestion,
    is_correct,
    read_questions,
)
from toolspeak.evaluation.report import describe_caveats, summarize_mode
from toolspeak.evaluation.runner import GradedAnswer, open_answers
from toolspeak.events import CallEnd, Event, Finish, TextDelta
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure, Request, Text, Usage

CITY = {"type": "string"}
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": CITY, "days": {"type": "number"}, "live": {"type": "boolean"}},
        "required": ["city"],
    },
}
PLAN = {
    "name": "trip.plan",
    "parameters": {
        "type": "object",
        "properties": {"stops": {"type": "array"}, "by": {"type": "object"}},
    },
}
ACCEPTED = {"city": ["New York", "NYC"], "days": ["", 3.0], "live": ["", True]}


def question(category: str = "simple", truth: Any = None, **fields: Any) -> EvalQuestion:
    tools = [WEATHER, PLAN]
    return EvalQuestion(category, "What is the weather?", tools, truth, **fields)


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name=name, arguments=arguments)


# Grading.


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"city": "New York"}, True),
        ({"city": "new-york."}, True),
        ({"city": "NYC", "days": 3}, True),
        ({"city": "NYC", "days": 3.0, "live": True}, True),
        ({"city": "Boston"}, False),
        ({"city": "NYC", "days": "3"}, False),
        ({"city": "NYC", "days": True}, False),
        ({"city": "NYC", "live": 1}, False),
        ({"city": "NYC", "unit": "celsius"}, False),
        ({"days": 3}, False),
    ],
)
def test_call_with_accepted_arguments_is_correct(arguments: dict[str, Any], right: bool) -> None:
    asked = question(truth={"get_weather": ACCEPTED})
    assert is_correct(asked, [call("get_weather", **arguments)]) is right


def test_calls_with_other_name_or_number_are_wrong() -> None:
    asked = question(truth={"get_weather": ACCEPTED})
    one = call("get_weather", city="NYC")
    assert not is_correct(asked, [])
    assert not is_correct(asked, [one, one])
    assert not is_correct(asked, [call("trip.plan")])
    # Some truths leave out the namespace.
    assert is_correct(question(truth={"plan": {"stops": [""]}}), [call("trip.plan")])
    assert not is_correct(question(truth={"fly": {}}), [call("fly")])
    assert not is_correct(question(truth={"trip.plan": ["broken"]}), [call("trip.plan")])


def test_repeated_calls_in_any_order_are_correct() -> None:
    oslo, rome = {"city": ["Oslo"]}, {"city": ["Rome"]}
    for truth in (
        {"get_weather_1": oslo, "get_weather_2": rome},
        {"get_weather 1": oslo, "get_weather 2": rome},
        [{"get_weather": oslo}, {"get_weather": rome}],
    ):
        asked = question("parallel", truth)
        calls = [call("get_weather", city="Rome"), call("get_weather", city="Oslo")]
        assert is_correct(asked, calls)
        assert not is_correct(asked, calls[:1])
        assert not is_correct(asked, [calls[0], calls[0]])


def test_nested_values_are_compared() -> None:
    truth = {
        "trip.plan": {"stops": [["Oslo", "Rome"]], "by": [{"train": [True], "class": ["", 1]}]}
    }
    asked = question(truth=truth)
    assert is_correct(asked, [call("trip.plan", stops=["oslo", "rome"], by={"train": True})])
    assert not is_correct(asked, [call("trip.plan", stops=["Rome", "Oslo"], by={"train": True})])
    assert not is_correct(asked, [call("trip.plan", stops=["Oslo", "Rome"], by={"class": 1})])


def test_relevance_question_expects_no_call() -> None:
    assert is_correct(question("relevance"), [])
    assert not is_correct(question("relevance"), [call("get_weather", city="Oslo")])


# Questions.


def write_questions(folder: Path, *rows: Any) -> Path:
    path = folder / "questions.jsonl"
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("\n".join(lines) + "\n")
    return path


def row(**fields: Any) -> dict[str, Any]:
    whole = {
        "id": "a",
        "category": "simple",
        "question": "The weather in Oslo?",
        "tools": [WEATHER],
        "truth": {"get_weather": {"city": ["Oslo"]}},
    }
    return {key: value for key, value in (whole | fields).items() if value is not ...}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        (row(question=...), "Object missing required field `question`"),
        (row(question=""), "Expected `str` of length >= 1 - at `$.question`"),
        (row(tools="none"), "Expected `array`, got `str` - at `$.tools`"),
        (row(tools=[]), "Expected `array` of length >= 1 - at `$.tools`"),
        (row(tools=[{}]), "Expected the name of a tool - at `$.tools[0].name`"),
        (
            row(tools=[{"name": "f", "parameters": 1}]),
            "Expected a JSON schema - at `$.tools[0].parameters`",
        ),
        (
            row(truth={"get_weather": ["Oslo"]}),
            "Expected the accepted values of each parameter - at `$.truth.get_weather`",
        ),
        (
            row(truth=None),
            "the expected calls are missing; only `relevance` has none - at `$.truth`",
        ),
        (
            row(category="relevance"),
            "the category `relevance` expects no calls - at `$.truth`",
        ),
        (row(id="first"), "the id 'first' is also on line 1"),
    ],
)
def test_bad_question_is_an_error_with_its_line(tmp_path: Path, bad: Any, problem: str) -> None:
    path = write_questions(tmp_path, row(id="first"), "", bad)
    with pytest.raises(UsageError) as raised:
        read_questions(path)
    assert str(raised.value) == f"{path}, line 3: {problem}"


def test_file_without_questions_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no questions"):
        read_questions(write_questions(tmp_path, ""))


def test_question_without_id_gets_its_digest(tmp_path: Path) -> None:
    path = write_questions(tmp_path, row(id=...), row(id=..., question="Oslo?"))
    first, second = read_questions(path)
    assert first.id == first.digest != second.id == second.digest


def test_built_in_questions_are_answerable() -> None:
    questions = read_questions()
    kinds = Counter(one.category for one in questions)
    assert kinds.keys() == {"simple", "multiple", "parallel", "parallel_multiple", "relevance"}
    assert kinds["relevance"] >= 10
    assert len(questions) >= 40
    for one in questions:
        assert is_correct(one, [*make_expected_calls(one)]), one.id


def make_expected_calls(asked: EvalQuestion) -> Iterator[ToolCall]:
    """The calls that a question asks for, with the first value that is accepted of each."""
    assert not isinstance(asked.truth, list)
    names = {tool["name"] for tool in asked.tools}
    for key, accepted in (asked.truth or {}).items():
        name = key if key in names else key.rpartition("_")[0]
        given = {one: values[0] for one, values in accepted.items() if "" not in values}
        yield call(name, **{one: take_first_values(value) for one, value in given.items()})


def take_first_values(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: take_first_values(values[0]) for key, values in value.items()}


def test_leaderboard_questions_are_read() -> None:
    questions = read_questions(get_corpus_folder() / "bfcl-replay" / "questions.jsonl")
    assert len(questions) == 1240
    assert sum(one.category == "relevance" for one in questions) == 240


# Answers.


def answer(
    name: str, *, error: str = "", asked: EvalQuestion | None = None, **fields: Any
) -> GradedAnswer:
    asked = asked or question(id=name)
    return GradedAnswer(
        key=f"prompt {name}",
        model="m",
        mode="prompt",
        id=name,
        digest=asked.digest,
        category="simple",
        correct=not error,
        error=error,
        **fields,
    )


def save_answers(path: Path, *answers: GradedAnswer) -> bytes:
    file = open_answers(path, "m")
    for one in answers:
        file.add(one)
    return path.read_bytes()


def list_unanswered(path: Path, *names: str) -> list[str]:
    """What is still to be asked by the answers of a file."""
    file = open_answers(path, "m")
    return [
        one.id for _, one in file.find_unanswered(["prompt"], [question(id=name) for name in names])
    ]


def test_answer_file_cut_off_anywhere_keeps_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    data = save_answers(path, answer("a"), answer("b"))
    for length in range(len(data)):
        path.write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        assert list_unanswered(path, "a", "b", "c") == ["a", "b", "c"][whole:]
        assert path.read_bytes() == b"".join(data.splitlines(keepends=True)[:whole])


def test_failed_answer_counts_as_unanswered(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    save_answers(path, answer("a", error="HTTP 500"), answer("b"))
    assert list_unanswered(path, "a", "b") == ["a"]
    save_answers(path, answer("a"))
    assert list_unanswered(path, "a", "b") == []


def test_changed_question_counts_as_unanswered(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    save_answers(path, answer("a", asked=question("relevance", id="a")))
    assert list_unanswered(path, "a") == ["a"]


@pytest.mark.parametrize("text", ["shopping list", "milk\nbread\n", '{"key":"a"}\nmilk'])
@pytest.mark.parametrize("fresh", [False, True])
def test_file_of_another_kind_stays_unchanged(tmp_path: Path, text: str, fresh: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not an answers file: choose another with --out"):
        open_answers(path, "m", fresh=fresh)
    assert path.read_text() == text


def test_bad_line_in_answer_file_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(save_answers(path, answer("a")) + b'{"key":1}\n')
    with pytest.raises(UsageError, match=r"answers.jsonl, line 2 is not an answer: Expected `str`"):
        open_answers(path, "m")


def test_answers_of_another_model_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    save_answers(path, answer("a"))
    with pytest.raises(UsageError, match=r"line 1 is an answer of m, not of n: choose another"):
        open_answers(path, "n")
    open_answers(path, "n", fresh=True)
    assert path.read_bytes() == b""


# The command, against a model that is good at some things.

QUESTIONS = (
    row(id="oslo"),
    row(id="rome", question="The weather in Rome?", truth={"get_weather": {"city": ["Rome"]}}),
    row(id="lima", question="The weather in Lima?", truth={"get_weather": {"city": ["Lima"]}}),
    row(id="joke", category="relevance", question="Tell a joke.", truth=None),
)
SPENT = Usage(100, 10)


def find_city(request: Request) -> str:
    said = " ".join(part.text for part in request.messages[-1].parts if isinstance(part, Text))
    return next((city for city in ("Oslo", "Rome", "Lima") if city in said), "")


def call_reply(city: str) -> list[Event]:
    made = ToolCall(id="call_1", name="get_weather", arguments={"city": city})
    return [CallEnd(0, made), Finish("calls", usage=SPENT)]


def text_reply(text: str) -> list[Event]:
    return [TextDelta(text), Finish("stop", usage=SPENT)]


def model(request: Request) -> list[Event]:
    """With its own tools it knows two cities, constrained all, and by a prompt it always calls."""
    city = find_city(request)
    if request.tools:
        return call_reply(city) if city in ("Oslo", "Rome") else text_reply("No idea.")
    if request.response_format:
        written = (
            {"tool": "get_weather", "arguments": {"city": city}} if city else {"answer": "Ha."}
        )
        return text_reply(json.dumps(written))
    if city == "Oslo":
        return [Failure("bad_request", "it is too cold there", 400)]
    city = city or "Paris"
    return text_reply(
        f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}</tool_call>'
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with questions, and nothing of the user's own around it."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TOOLSPEAK_")]:
        monkeypatch.delenv(name)
    write_questions(tmp_path, *QUESTIONS)
    return tmp_path


@pytest.fixture
def upstream(folder: Path) -> Iterator[ScriptedServer]:
    with ScriptedServer(model) as server:
        (folder / "toolspeak.toml").write_text(
            'default = "m"\n[upstreams.box]\nwire = "openai_chat"\nretries = 0\n'
            f'base_url = "{server.url}/v1"\n[models.m]\nupstream = "box"\nmodel = "clever"\n'
            'dialect = "hermes"\nretries = 0\n'
        )
        yield server


@pytest.fixture
def run_eval(
    upstream: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any, str]]:
    """Run the command with `--json`: the exit code, what it tells, and what it says beside."""
    assert upstream.url

    def run(*options: str) -> tuple[int, Any, str]:
        code = main(["eval", "m", "--data", "questions.jsonl", "--json", *options])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def read_answers(folder: Path, name: str = "eval-box-clever.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_eval_compares_the_modes(
    run_eval: Callable[..., Any], upstream: ScriptedServer, folder: Path, concurrency: str
) -> None:
    code, told, _ = run_eval("--concurrency", concurrency)
    native, prompt, constrained = told["modes"]
    assert [one["mode"] for one in told["modes"]] == ["native", "prompt", "constrained"]
    assert [one["accuracy"] for one in told["modes"]] == [2 / 3, 2 / 3, 1.0]
    assert [one["relevance"] for one in told["modes"]] == [1.0, 0.0, 1.0]
    assert native["categories"]["simple"] == {"correct": 2, "total": 3}
    assert [one["calls_per_question"] for one in told["modes"]] == [0.5, 1.0, 0.75]
    assert (constrained["input_tokens"], constrained["output_tokens"]) == (100, 10)
    assert all(0 < one["seconds"] < 5 for one in told["modes"])
    # What fails is wrong, and is told.
    assert (code, native["failed"], prompt["failed"]) == (1, 0, 1)
    assert told["remarks"] == [
        "prompt: 1 question failed (HTTP 400: it is too cold there) and count as wrong"
    ]
    assert (told["model"], told["questions"], told["complete"]) == ("box/clever", 4, True)
    assert len(read_answers(folder)) == 12
    assert {request.sampling["temperature"] for request in upstream.requests} == {0}
    assert {request.model for request in upstream.requests} == {"clever"}


def test_second_run_asks_only_what_is_missing(
    run_eval: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    _, told, _ = run_eval("--modes", "native,constrained", "--out", "a.jsonl")
    path = folder / "a.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    before = len(upstream.requests)
    code, again, _ = run_eval("--modes", "constrained,native", "--out", "a.jsonl")
    assert len(upstream.requests) == before + 1
    assert code == 0
    for key in ("accuracy", "relevance", "calls_per_question"):
        assert [one[key] for one in again["modes"]] == [one[key] for one in told["modes"]]
    assert [one["key"] for one in read_answers(folder, "a.jsonl")] == [
        json.loads(line)["key"] for line in data.splitlines()
    ]
    run_eval("--modes", "native", "--out", "a.jsonl", "--fresh")
    assert len(read_answers(folder, "a.jsonl")) == 4


def test_second_run_asks_failed_questions_again(
    run_eval: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    _, _, err = run_eval("--modes", "prompt")
    assert "1 question failed: run the same command to ask again." in err
    upstream.turns[:] = [text_reply("No idea.")]
    code, told, _ = run_eval("--modes", "prompt")
    assert (code, told["modes"][0]["failed"]) == (0, 0)
    assert [one["id"] for one in read_answers(folder)] == ["oslo", "rome", "lima", "joke", "oslo"]


def test_truncated_answer_is_reported(
    run_eval: Callable[..., Any], upstream: ScriptedServer
) -> None:
    upstream.turns[:] = [[TextDelta("La la"), Finish("length", usage=SPENT)]]
    _, told, _ = run_eval("--modes", "native", "--limit", "1", "--max-tokens", "7")
    assert upstream.requests[0].max_tokens == 7
    assert told["remarks"] == ["native: 1 of 1 answers were truncated; raise --max-tokens"]


def test_lone_surrogate_in_an_answer_is_replaced(
    run_eval: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    upstream.turns[:] = [text_reply("Ha \ud83d!")]
    for _ in range(2):
        code, told, _ = run_eval("--modes", "native", "--limit", "1")
        assert (code, told["modes"][0]["failed"]) == (0, 0)
    assert [one["text"] for one in read_answers(folder)] == ["Ha ?!"]


def test_unreachable_model_fails_every_question(run_eval: Callable[..., Any], folder: Path) -> None:
    config = folder / "toolspeak.toml"
    text = config.read_text()
    config.write_text(text.replace(text.partition('base_url = "')[2].partition('"')[0], DOWN))
    code, told, _ = run_eval("--modes", "native")
    assert (code, told["modes"][0]["failed"], told["modes"][0]["accuracy"]) == (1, 4, 0.0)
    assert told["remarks"][0].startswith("native: 4 questions failed (HTTP")


DOWN = "http://127.0.0.1:9/v1"


def test_eval_prints_tables(upstream: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream.url
    code = main(["eval", "--data", "questions.jsonl", "--every", "3"])
    out, err = capsys.readouterr()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    figures = [row[:3] for row in rows if len(row) == 9]
    assert code == 1
    assert "\x1b" not in out
    assert out.startswith("box/clever: 2 questions of questions.jsonl")
    assert figures == [
        ["native", "100.0% (1/1)", "100.0% (1/1)"],
        ["prompt", "0.0% (0/1)", "0.0% (0/1)"],
        ["constrained", "100.0% (1/1)", "100.0% (1/1)"],
    ]
    assert ["simple", "100.0% (1/1)", "0.0% (0/1)", "100.0% (1/1)"] in rows
    assert "prompt: 1 question failed (HTTP 400" in out
    assert "The answers are in eval-box-clever.jsonl." in err


def test_plot_writes_a_picture(run_eval: Callable[..., Any], folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    run_eval("--plot", "figures.png")
    data = (folder / "figures.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000


def test_retries_in_another_mode_are_a_caveat() -> None:
    served = [answer("a", served_mode="constrained"), answer("b", served_mode="prompt")]
    figures = summarize_mode("prompt", served)
    assert figures.served_modes == {"constrained": 1, "prompt": 1}
    assert list(describe_caveats([figures], served)) == [
        "prompt: 1 of 2 answers were retried in constrained mode"
    ]


def test_failures_beyond_the_fifth_kind_are_counted() -> None:
    failed = [answer(str(number), error=f"error {number}") for number in range(7)]
    remarks = list(describe_caveats([summarize_mode("prompt", failed)], failed))
    assert remarks[0] == "prompt: 1 question failed (error 0) and count as wrong"
    assert remarks[5:] == ["… and 2 more kinds of failures; see the answers file"]


# Messages.


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--data", "none.jsonl"], "none.jsonl: No such file or directory"),
        (["--data", "bad.jsonl"], "bad.jsonl, line 1: Object missing required field `category`"),
        (["--modes", "native,magic"], "unknown mode 'magic': choose from native, prompt, const"),
        (["--plot", "a.txt"], "--plot a.txt: the name must end with .png, .svg or .pdf"),
        (["--plot", "no/a.png"], "--plot no/a.png: the folder no does not exist"),
        (
            ["--data", "questions.jsonl", "--out", "questions.jsonl"],
            "is the questions file: choose another",
        ),
        (["--out", "toolspeak.toml", "--fresh"], "toolspeak.toml is not an answers file"),
        (["--config", "none.toml"], "none.toml cannot be read"),
    ],
)
def test_bad_options_are_an_error_without_requests(
    upstream: ScriptedServer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    problem: str,
) -> None:
    (folder / "bad.jsonl").write_text("{}\n")
    if any("plot" in option for option in options) and find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    assert main(["eval", "m", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("toolspeak: ")
    assert problem in err
    assert not upstream.requests


def test_unknown_model_is_an_error_without_requests(
    upstream: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default model is not measured in its place."""
    assert main(["eval", "mm"]) == 2
    assert (
        "toolspeak: the model 'mm' is not available; the nearest names are: m"
        in capsys.readouterr().err
    )
    assert not upstream.requests


def test_limit_zero_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.is_dir()
    with pytest.raises(SystemExit):
        main(["eval", "--limit", "0"])
    assert "--limit: expected a whole number of at least 1, got '0'" in capsys.readouterr().err


def test_plot_without_matplotlib_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> None:
        assert name == "matplotlib"

    assert folder.is_dir()
    monkeypatch.setattr("toolspeak.evaluation.report.find_spec", nothing)
    assert main(["eval", "--plot", "a.png"]) == 2
    problem = "toolspeak: --plot needs matplotlib: pip install 'toolspeak[plot]'\n"
    assert capsys.readouterr().err == problem


def test_interrupted_run_continues(upstream: ScriptedServer, folder: Path) -> None:
    is_over = threading.Event()

    def slow(request: Request) -> list[Event]:
        if len(upstream.requests) > 3:
            is_over.wait(30)
        return model(request)

    upstream.turns[:] = [slow]
    options = ["m", "--data", "questions.jsonl", "--modes", "native,constrained"]
    process = subprocess.Popen(
        [sys.executable, "-m", "toolspeak", "eval", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What runs in the background of a shell may have been told not to hear it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    path = folder / "eval-box-clever.jsonl"
    deadline = time.monotonic() + 30
    while not path.exists() or path.read_bytes().count(b"\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    is_over.set()
    assert process.returncode == command.INTERRUPTED
    assert "Traceback" not in err
    count = len(read_answers(folder))
    assert 3 <= count < 8
    assert err.splitlines()[-1] == (
        f"Interrupted after {count} of 8 answers. They are in eval-box-clever.jsonl: "
        "run the same command to continue."
    )
    assert "box/clever: 4 questions" in out
    upstream.turns[:] = [model]
    assert main(["eval", *options]) == 0
    assert len(read_answers(folder)) == 8
