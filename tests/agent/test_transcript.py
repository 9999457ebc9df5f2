"""Transcripts: what is on disk when, and how a conversation is continued."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.scripted import Counted, Script, call, results
from toolspeak import Message, Reasoning, Text, Tool, ToolResult, UsageError
from toolspeak.agent import Agent, AgentTool, ToolOptions, Transcript


def declare(name: str, handler: Any, **options: Any) -> AgentTool:
    return AgentTool(tool=Tool(name=name), handler=handler, options=ToolOptions(**options))


def agent(model: Any, *tools: Any) -> Agent:
    return Agent(model, tools, approval="full")


def test_saved_transcript_equals_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    script = Script([Reasoning("hm"), Text("Look."), call("count", x=[1, "é\u2028"])], "Done.")
    run = agent(script, declare("count", Counted())).run_sync("Go.", transcript=path)
    assert Transcript.load(path).messages == run.messages
    assert path.stat().st_mode & 0o077 == 0


def test_transcript_file_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    script = Script("Still here.")
    run = agent(script).run_sync("And now?", transcript=path)
    assert [part.text for m in run.messages for part in m.parts if isinstance(part, Text)] == [
        "Hi.",
        "Hello.",
        "And now?",
        "Still here.",
    ]
    assert len(script.requests[0].messages) == 3


def test_answered_transcript_without_prompt_returns_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    run = agent(Script()).run_sync(transcript=path)
    assert (run.text, run.stop, run.turns) == ("Hello.", "answer", 0)


CRASH = """
import os, sys
from toolspeak import ToolCall, Text
from toolspeak.agent import Agent, tool

@tool(writes={writes}, idempotent={idempotent})
def step(name: str) -> str:
    with open(sys.argv[2], "a") as file:
        file.write(name + "\\n")
    if name == "{dies_in}":
        os._exit(9)
    return f"{{name}} is done"

def model(request):
    if len(request.messages) > 1 and "{dies_in}" == "model":
        os._exit(9)
    names = ["first", "second"]
    return [ToolCall(id=f"call_{{n}}", name="step", arguments={{"name": n}}) for n in names]

Agent(model, [step], approval="full").run_sync("Go.", transcript=sys.argv[1])
"""


@pytest.mark.parametrize(
    ("dies_in", "writes", "idempotent", "ran", "heard"),
    [
        # Between the results and the next turn: nothing runs again, nothing is lost.
        ("model", True, False, ["first", "second"], ["first is done", "second is done"]),
        # During a tool that writes: its outcome is unknown.
        (
            "second",
            True,
            False,
            ["first", "second"],
            ["first is done", "`step` may or may not have run"],
        ),
        # An idempotent tool runs again.
        ("second", True, True, ["first", "second", "second"], ["first is done", "second is done"]),
        # A call that was not started runs.
        (
            "first",
            True,
            False,
            ["first", "second"],
            ["`step` may or may not have run", "second is done"],
        ),
    ],
)
def test_run_after_crash_repeats_only_safe_calls(
    tmp_path: Path,
    dies_in: str,
    writes: bool,
    idempotent: bool,
    ran: list[str],
    heard: list[str],
) -> None:
    talk, log = tmp_path / "talk.jsonl", tmp_path / "log"
    source = CRASH.format(dies_in=dies_in, writes=writes, idempotent=idempotent)
    died = subprocess.run([sys.executable, "-c", source, str(talk), str(log)], check=False)
    assert died.returncode == 9

    def step(arguments: dict[str, Any]) -> str:
        with log.open("a") as file:
            file.write(arguments["name"] + "\n")
        return f"{arguments['name']} is done"

    script = Script("All done.")
    options = {"writes": writes, "idempotent": idempotent}
    run = agent(script, declare("step", step, **options)).run_sync(transcript=talk)
    assert run.text == "All done."
    assert log.read_text().split() == ran
    for said, wanted in zip(results(script.requests[0]), heard, strict=True):
        assert said.startswith(wanted)


@pytest.mark.parametrize("cut", [1, 5, 30, 120])
def test_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "talk.jsonl"
    transcript = Transcript.load(path)
    transcript.add_user_text("One, " + "very " * 40 + "long.")
    transcript.add_user_text("Two, " + "very " * 40 + "long.")
    path.write_bytes(path.read_bytes()[:-cut])
    again = Transcript.load(path)
    kept = 2 if cut == 1 else 1
    assert len(again.messages) == kept
    again.add_user_text("Three.")
    assert len(Transcript.load(path).messages) == kept + 1


def test_file_without_transcript_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\nit rained\n")
    with pytest.raises(UsageError, match=r"notes\.txt:1 is not a transcript line"):
        Transcript.load(path)
    assert path.read_text().startswith("dear diary")


def test_results_follow_the_order_of_their_calls(tmp_path: Path) -> None:
    transcript = Transcript.load(tmp_path / "talk.jsonl")
    transcript.add_user_text("Go.")
    transcript.add(Message("assistant", (call("f", "a"), call("f", "b"), call("f", "c"))))
    for identity in "cab":
        transcript.add_result(ToolResult(call_id=identity, name="f", content=identity))
    for one in (transcript, Transcript.load(transcript.path)):
        said = [p.call_id for m in one.messages for p in m.parts if isinstance(p, ToolResult)]
        assert said == ["a", "b", "c"]
        assert one.pending_calls == []


def test_each_line_is_written_before_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    seen: list[list[str]] = []

    def look(arguments: dict[str, Any]) -> str:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        seen.append([line["message"]["role"] if "message" in line else "running" for line in lines])
        return "ok"

    agent(Script([call("look")], "Done."), declare("look", look)).run_sync("Go.", transcript=path)
    assert seen == [["user", "assistant", "running"]]


def test_device_is_rejected() -> None:
    with pytest.raises(UsageError, match="/dev/null is not a file"):
        Transcript.load("/dev/null")
