"""`toolspeak eval`: reading questions, grading, going on after a stop, and what is told."""

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

from tests.gateway.running_gateway import behind, running
from tests.support import get_corpus_folder
from toolspeak import ToolCall
from toolspeak.cli import eval as command
from toolspeak.cli import main
from toolspeak.errors import UsageError
from toolspeak.evaluation.answers import AnswerFile, GradedAnswer
from toolspeak.evaluation.questions import (
    EvalQuestion,
    is_correct,
    read_questions,
    select_questions,
)
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
def test_arguments(arguments: dict[str, Any], right: bool) -> None:
    asked = question(truth={"get_weather": ACCEPTED})
    assert is_correct(asked, [call("get_weather", **arguments)]) is right


def test_names_and_numbers_of_calls() -> None:
    asked = question(truth={"get_weather": ACCEPTED})
    one = call("get_weather", city="NYC")
    assert not is_correct(asked, [])
    assert not is_correct(asked, [one, one])
    assert not is_correct(asked, [call("trip.plan")])
    # Some truths leave out the namespace.
    assert is_correct(question(truth={"plan": {"stops": [""]}}), [call("trip.plan")])
    assert not is_correct(question(truth={"fly": {}}), [call("fly")])
    assert not is_correct(question(truth={"trip.plan": ["broken"]}), [call("trip.plan")])


def test_calls_come_in_any_order() -> None:
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


def test_values_inside_of_others() -> None:
    truth = {
        "trip.plan": {"stops": [["Oslo", "Rome"]], "by": [{"train": [True], "class": ["", 1]}]}
    }
    asked = question(truth=truth)
    assert is_correct(asked, [call("trip.plan", stops=["oslo", "rome"], by={"train": True})])
    assert not is_correct(asked, [call("trip.plan", stops=["Rome", "Oslo"], by={"train": True})])
    assert not is_correct(asked, [call("trip.plan", stops=["Oslo", "Rome"], by={"class": 1})])


def test_where_no_tool_fits() -> None:
    assert is_correct(question("relevance"), [])
    assert not is_correct(question("relevance"), [call("get_weather", city="Oslo")])


# Questions.


def written(folder: Path, *rows: Any) -> Path:
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
def test_what_is_no_question(tmp_path: Path, bad: Any, problem: str) -> None:
    path = written(tmp_path, row(id="first"), "", bad)
    with pytest.raises(UsageError) as raised:
        read_questions(path)
    assert str(raised.value) == f"{path}, line 3: {problem}"


def test_a_file_without_questions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no questions"):
        read_questions(written(tmp_path, ""))


def test_questions_without_ids_have_their_own(tmp_path: Path) -> None:
    path = written(tmp_path, row(id=...), row(id=..., question="Oslo?"))
    first, second = read_questions(path)
    assert first.id == first.digest != second.id == second.digest


def test_the_shipped_questions() -> None:
    questions = read_questions()
    kinds = Counter(one.category for one in questions)
    assert kinds.keys() == {"simple", "multiple", "parallel", "parallel_multiple", "relevance"}
    assert kinds["relevance"] >= 10
    assert len(questions) >= 40
    for one in questions:
        assert is_correct(one, [*truthful(one)]), one.id


def truthful(asked: EvalQuestion) -> Iterator[ToolCall]:
    """The calls that a question asks for, with the first value that is accepted of each."""
    assert not isinstance(asked.truth, list)
    names = {tool["name"] for tool in asked.tools}
    for key, accepted in (asked.truth or {}).items():
        name = key if key in names else key.rpartition("_")[0]
        given = {one: values[0] for one, values in accepted.items() if "" not in values}
        yield call(name, **{one: first_of(value) for one, value in given.items()})


def first_of(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: first_of(values[0]) for key, values in value.items()}


def test_the_questions_of_the_leaderboard() -> None:
    questions = read_questions(get_corpus_folder() / "bfcl-replay" / "questions.jsonl")
    assert len(questions) == 1240
    assert sum(one.category == "relevance" for one in questions) == 240


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, "abcdefg"),
        ({"limit": 2}, "ab"),
        ({"every": 3}, "adg"),
        ({"every": 3, "start": 2}, "be"),
        ({"every": 2, "start": 3, "limit": 2}, "ce"),
    ],
)
def test_slices(options: dict[str, int], ids: str) -> None:
    questions = [question(id=name) for name in "abcdefg"]
    assert "".join(one.id for one in select_questions(questions, **options)) == ids


def test_an_empty_slice() -> None:
    with pytest.raises(UsageError, match="no questions selected: there are 1, and --start is 9"):
        select_questions([question()], start=9)


# Answers.


def answer(name: str, *, error: str = "", asked: EvalQuestion | None = None) -> GradedAnswer:
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
    )


def kept(path: Path, *answers: GradedAnswer) -> bytes:
    file = AnswerFile(path, "m")
    for one in answers:
        file.add(one)
    file.close()
    return path.read_bytes()


def left(path: Path, *names: str) -> list[str]:
    """What is still to be asked by the answers of a file."""
    file = AnswerFile(path, "m")
    work = [
        one.id for _, one in file.find_unanswered(["prompt"], [question(id=name) for name in names])
    ]
    file.close()
    return work


def test_a_file_that_is_cut_off_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    data = kept(path, answer("a"), answer("b"))
    for length in range(len(data)):
        path.write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        assert left(path, "a", "b", "c") == ["a", "b", "c"][whole:]
        assert path.read_bytes() == b"".join(data.splitlines(keepends=True)[:whole])


def test_what_failed_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    kept(path, answer("a", error="HTTP 500"), answer("b"))
    assert left(path, "a", "b") == ["a"]
    kept(path, answer("a"))
    assert left(path, "a", "b") == []


def test_another_question_of_the_same_id_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    kept(path, answer("a", asked=question("relevance", id="a")))
    assert left(path, "a") == ["a"]


@pytest.mark.parametrize("text", ["shopping list", "milk\nbread\n", '{"key":"a"}\nmilk'])
@pytest.mark.parametrize("fresh", [False, True])
def test_other_files_are_left_alone(tmp_path: Path, text: str, fresh: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a file of answers: choose another with --out"):
        AnswerFile(path, "m", fresh=fresh)
    assert path.read_text() == text


def test_a_bad_line_has_its_number(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(kept(path, answer("a")) + b'{"key":1}\n')
    with pytest.raises(UsageError, match=r"answers.jsonl, line 2 is not an answer: Expected `str`"):
        AnswerFile(path, "m")


def test_answers_of_another_model(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    kept(path, answer("a"))
    with pytest.raises(UsageError, match=r"line 1 is an answer of m, not of n: choose another"):
        AnswerFile(path, "n")
    AnswerFile(path, "n", fresh=True).close()
    assert path.read_bytes() == b""


# The command, against a model that is good at some things.

QUESTIONS = (
    row(id="oslo"),
    row(id="rome", question="The weather in Rome?", truth={"get_weather": {"city": ["Rome"]}}),
    row(id="lima", question="The weather in Lima?", truth={"get_weather": {"city": ["Lima"]}}),
    row(id="joke", category="relevance", question="Tell a joke.", truth=None),
)
SPENT = Usage(100, 10)


def city_in(request: Request) -> str:
    said = " ".join(part.text for part in request.messages[-1].parts if isinstance(part, Text))
    return next((city for city in ("Oslo", "Rome", "Lima") if city in said), "")


def called(city: str) -> list[Event]:
    made = ToolCall(id="call_1", name="get_weather", arguments={"city": city})
    return [CallEnd(0, made), Finish("calls", usage=SPENT)]


def said(text: str) -> list[Event]:
    return [TextDelta(text), Finish("stop", usage=SPENT)]


def model(request: Request) -> list[Event]:
    """With its own tools it knows two cities, constrained all, and by a prompt it always calls."""
    city = city_in(request)
    if request.tools:
        return called(city) if city in ("Oslo", "Rome") else said("No idea.")
    if request.response_format:
        written = (
            {"tool": "get_weather", "arguments": {"city": city}} if city else {"answer": "Ha."}
        )
        return said(json.dumps(written))
    if city == "Oslo":
        return [Failure("bad_request", "it is too cold there", 400)]
    city = city or "Paris"
    return said(
        f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}</tool_call>'
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with questions, and nothing of the user's own around it."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TOOLSPEAK_")]:
        monkeypatch.delenv(name)
    written(tmp_path, *QUESTIONS)
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
def evaluated(
    upstream: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any, str]]:
    """Run the command with `--json`: the exit code, what it tells, and what it says beside."""
    assert upstream.url

    def run(*options: str) -> tuple[int, Any, str]:
        code = main(["eval", "m", "--data", "questions.jsonl", "--json", *options])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def lines(folder: Path, name: str = "eval-box-clever.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_modes_are_compared(
    evaluated: Callable[..., Any], upstream: ScriptedServer, folder: Path, concurrency: str
) -> None:
    code, told, _ = evaluated("--concurrency", concurrency)
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
        "prompt: 1 question failed, counted as wrong: HTTP 400: it is too cold there"
    ]
    assert (told["model"], told["questions"], told["complete"]) == ("box/clever", 4, True)
    assert len(lines(folder)) == 12
    assert {request.sampling["temperature"] for request in upstream.requests} == {0}
    assert {request.model for request in upstream.requests} == {"clever"}


def test_a_run_goes_on(
    evaluated: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    _, told, _ = evaluated("--modes", "native,constrained", "--out", "a.jsonl")
    path = folder / "a.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    before = len(upstream.requests)
    code, again, _ = evaluated("--modes", "constrained,native", "--out", "a.jsonl")
    assert len(upstream.requests) == before + 1
    assert code == 0
    for key in ("accuracy", "relevance", "calls_per_question"):
        assert [one[key] for one in again["modes"]] == [one[key] for one in told["modes"]]
    assert [one["key"] for one in lines(folder, "a.jsonl")] == [
        json.loads(line)["key"] for line in data.splitlines()
    ]
    evaluated("--modes", "native", "--out", "a.jsonl", "--fresh")
    assert len(lines(folder, "a.jsonl")) == 4


def test_what_failed_is_asked_in_the_next_run(
    evaluated: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    _, _, err = evaluated("--modes", "prompt")
    assert "1 question failed: run the same command to ask again." in err
    upstream.turns[:] = [said("No idea.")]
    code, told, _ = evaluated("--modes", "prompt")
    assert (code, told["modes"][0]["failed"]) == (0, 0)
    assert [one["id"] for one in lines(folder)] == ["oslo", "rome", "lima", "joke", "oslo"]


def test_an_answer_that_is_cut_off_is_told(
    evaluated: Callable[..., Any], upstream: ScriptedServer
) -> None:
    upstream.turns[:] = [[TextDelta("La la"), Finish("length", usage=SPENT)]]
    _, told, _ = evaluated("--modes", "native", "--limit", "1", "--max-tokens", "7")
    assert upstream.requests[0].max_tokens == 7
    assert told["remarks"] == ["native: 1 of 1 answers were truncated; raise --max-tokens"]


def test_half_a_character_is_kept_as_a_sign(
    evaluated: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    upstream.turns[:] = [said("Ha \ud83d!")]
    for _ in range(2):
        code, told, _ = evaluated("--modes", "native", "--limit", "1")
        assert (code, told["modes"][0]["failed"]) == (0, 0)
    assert [one["text"] for one in lines(folder)] == ["Ha ?!"]


def test_a_model_that_is_down(evaluated: Callable[..., Any], folder: Path) -> None:
    config = folder / "toolspeak.toml"
    text = config.read_text()
    config.write_text(text.replace(text.partition('base_url = "')[2].partition('"')[0], DOWN))
    code, told, _ = evaluated("--modes", "native")
    assert (code, told["modes"][0]["failed"], told["modes"][0]["accuracy"]) == (1, 4, 0.0)
    assert told["remarks"][0].startswith("native: 4 questions failed, counted as wrong: HTTP")


DOWN = "http://127.0.0.1:9/v1"


def test_the_tables(upstream: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream.url
    code = main(["eval", "--data", "questions.jsonl", "--every", "3", "--start", "1"])
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
    assert "prompt: 1 question failed, counted as wrong: HTTP 400" in out
    assert "The answers are in eval-box-clever.jsonl." in err


def test_the_plot(evaluated: Callable[..., Any], folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    evaluated("--plot", "figures.png")
    data = (folder / "figures.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000


def test_a_running_gateway(
    evaluated: Callable[..., Any], upstream: ScriptedServer, folder: Path
) -> None:
    config = behind(upstream.url, tools="constrained")
    with running(config) as gateway:
        code, told, err = evaluated("--url", f"{gateway.url}/v1")
    (one,) = told["modes"]
    assert code == 0
    assert "chooses the mode itself, so only that mode is measured." in err
    assert (one["mode"], one["accuracy"], one["served_modes"]) == ("auto", 1.0, {"constrained": 4})
    assert told["remarks"] == ["auto: 4 of 4 answers fell back to constrained mode"]
    assert len(lines(folder, "eval-m.jsonl")) == 4


# Messages.


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--data", "none.jsonl"], "No such file or directory: 'none.jsonl'"),
        (["--data", "bad.jsonl"], "bad.jsonl, line 1: Object missing required field `category`"),
        (["--modes", "native,magic"], "unknown mode 'magic': choose from native, prompt, const"),
        (["--start", "99"], "no questions selected: there are 42, and --start is 99"),
        (["--url", DOWN, "--modes", "native"], "omit --modes or --url"),
        (["--url", DOWN, "--retries", "0"], "omit --retries or --url"),
        (["--url", DOWN], "no gateway responds at http://127.0.0.1:9: "),
        (["--plot", "a.txt"], "--plot a.txt: the name must end with .png, .svg, .pdf"),
        (["--plot", "no/a.png"], "--plot no/a.png: the folder no does not exist"),
        (
            ["--data", "questions.jsonl", "--out", "questions.jsonl"],
            "is the file of questions: choose another",
        ),
        (["--out", "toolspeak.toml", "--fresh"], "toolspeak.toml is not a file of answers"),
        (["--config", "none.toml"], "none.toml cannot be read"),
    ],
)
def test_what_cannot_work(
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


def test_a_model_that_nobody_knows(
    upstream: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default model is not measured in its place."""
    assert main(["eval", "mm"]) == 2
    assert "toolspeak: the model 'mm' is not available; available are m" in capsys.readouterr().err
    assert not upstream.requests


def test_a_number_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.is_dir()
    with pytest.raises(SystemExit):
        main(["eval", "--limit", "0"])
    assert "--limit: '0' is not a whole number of at least 1" in capsys.readouterr().err


def test_a_plot_without_matplotlib(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> None:
        assert name == "matplotlib"

    assert folder.is_dir()
    monkeypatch.setattr("toolspeak.evaluation.report.find_spec", nothing)
    assert main(["eval", "--plot", "a.png"]) == 2
    problem = "toolspeak: --plot needs matplotlib: pip install 'toolspeak[plot]'\n"
    assert capsys.readouterr().err == problem


def test_ctrl_c_keeps_what_was_done(upstream: ScriptedServer, folder: Path) -> None:
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
    count = len(lines(folder))
    assert 3 <= count < 8
    assert err.splitlines()[-1] == (
        f"Interrupted after {count} of 8 answers. They are in eval-box-clever.jsonl: "
        "run the same command to continue."
    )
    assert "box/clever: 4 questions" in out
    upstream.turns[:] = [model]
    assert main(["eval", *options]) == 0
    assert len(lines(folder)) == 8
