"""Transcripts: what is on disk when, and how a conversation is continued."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.agent.scripted import (
    DirectModel,
    RecordingTool,
    Script,
    get_results,
    make_agent,
    make_call,
    make_tool,
    run_in_fork,
)
from toolspeak import (
    Failure,
    Message,
    Reasoning,
    Request,
    Started,
    Text,
    TextDelta,
    ToolResult,
    UsageError,
)
from toolspeak.agent import (
    ModelFailed,
    Transcript,
)
from toolspeak.testing import ScriptedServer


def add_user_text(transcript: Transcript, text: str) -> None:
    transcript.add(Message("user", (Text(text),)))


def test_saved_transcript_equals_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    script = Script([Reasoning("hm"), Text("Look."), make_call("count", x=[1, "é\u2028"])], "Done.")
    run = make_agent(script, make_tool("count", RecordingTool())).run_sync("Go.", transcript=path)
    assert Transcript.load(path).messages == run.messages
    assert path.stat().st_mode & 0o077 == 0


def test_transcript_file_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    make_agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    script = Script("Still here.")
    run = make_agent(script).run_sync("And now?", transcript=path)
    assert [part.text for m in run.messages for part in m.parts if isinstance(part, Text)] == [
        "Hi.",
        "Hello.",
        "And now?",
        "Still here.",
    ]
    assert len(script.requests[0].messages) == 3


def test_answered_transcript_without_prompt_returns_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    make_agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    run = make_agent(Script()).run_sync(transcript=path)
    assert (run.text, run.stop, run.turns) == ("Hello.", "answer", 0)


@pytest.mark.parametrize(
    ("dies_in", "writes", "idempotent", "executed", "expected"),
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
    executed: list[str],
    expected: list[str],
) -> None:
    talk, log = tmp_path / "talk.jsonl", tmp_path / "log"

    def step(arguments: dict[str, Any]) -> str:
        name = arguments["name"]
        with log.open("a") as file:
            file.write(name + "\n")
        if name == dies_in and is_first_run:
            os._exit(9)
        return f"{name} is done"

    def model(request: Request) -> Any:
        if len(request.messages) > 1 and dies_in == "model":
            os._exit(9)
        return [make_call("step", f"call_{name}", name=name) for name in ("first", "second")]

    tool = make_tool("step", step, writes=writes, idempotent=idempotent)
    is_first_run = True
    assert run_in_fork(lambda: make_agent(model, tool).run_sync("Go.", transcript=talk)) == 9
    is_first_run = False
    script = Script("All done.")
    run = make_agent(script, tool).run_sync(transcript=talk)
    assert run.text == "All done."
    assert log.read_text().split() == executed
    for text, beginning in zip(get_results(script.requests[0]), expected, strict=True):
        assert text.startswith(beginning)


@pytest.mark.parametrize("cut", [1, 5, 30, 120])
def test_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "talk.jsonl"
    transcript = Transcript.load(path)
    add_user_text(transcript, "One, " + "very " * 40 + "long.")
    add_user_text(transcript, "Two, " + "very " * 40 + "long.")
    path.write_bytes(path.read_bytes()[:-cut])
    again = Transcript.load(path)
    kept = 2 if cut == 1 else 1
    assert len(again.messages) == kept
    add_user_text(again, "Three.")
    assert len(Transcript.load(path).messages) == kept + 1


def test_file_without_transcript_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\nit rained\n")
    with pytest.raises(UsageError, match=r"notes\.txt:1 is not a transcript line"):
        Transcript.load(path)
    assert path.read_text().startswith("dear diary")


def test_results_follow_the_order_of_their_calls(tmp_path: Path) -> None:
    transcript = Transcript.load(tmp_path / "talk.jsonl")
    add_user_text(transcript, "Go.")
    transcript.add(
        Message("assistant", (make_call("f", "a"), make_call("f", "b"), make_call("f", "c")))
    )
    for identity in "cab":
        transcript.add_result(ToolResult(call_id=identity, name="f", content=identity))
    for one in (transcript, Transcript.load(transcript.path)):
        ids = [p.call_id for m in one.messages for p in m.parts if isinstance(p, ToolResult)]
        assert ids == ["a", "b", "c"]
        assert one.pending_calls == []


def test_each_line_is_written_before_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    seen: list[list[str]] = []

    def look(arguments: dict[str, Any]) -> str:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        seen.append([line["message"]["role"] if "message" in line else "running" for line in lines])
        return "ok"

    make_agent(Script([make_call("look")], "Done."), make_tool("look", look)).run_sync(
        "Go.", transcript=path
    )
    assert seen == [["user", "assistant", "running"]]


def test_device_is_rejected() -> None:
    with pytest.raises(UsageError, match="/dev/null is not a file"):
        Transcript.load("/dev/null")


@pytest.mark.parametrize("where", [None, "talk.jsonl"])
def test_lone_surrogates_are_replaced(where: str | None, tmp_path: Path) -> None:
    """From a file name in another encoding, and from a model that splits an emoji."""
    path = tmp_path / where if where else None
    model = DirectModel([Text("so \ud83d"), make_call("f", x="\ud800")], "Done.")
    run = make_agent(model, make_tool("f", lambda _: "caf\udce9")).run_sync(
        "Go \udcff.", transcript=path
    )
    assert get_results(model.requests[1]) == ["caf?"]
    assert run.text == "Done."
    if path:
        assert Transcript.load(path).messages == run.messages


def test_full_disk_leaves_the_transcript_intact(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    transcript = Transcript.load(path)
    add_user_text(transcript, "one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            add_user_text(transcript, "x" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    add_user_text(transcript, "three")
    assert len(transcript.messages) == 2
    assert Transcript.load(path).messages == transcript.messages


def test_interrupted_answer_is_generated_again(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    broken = [Started(), TextDelta("Let me check the "), Failure("overloaded", "busy", 529)]
    with ScriptedServer(broken) as server, pytest.raises(ModelFailed):
        make_agent(f"{server.url}/v1#m").run_sync("Hi.", transcript=path)
    assert Transcript.load(path).needs_reply
    script = Script("All is well.")
    run = make_agent(script).run_sync(transcript=path)
    assert run.text == "All is well."
    assert [message.role for message in script.requests[0].messages] == ["user"]
    assert [message.role for message in Transcript.load(path).messages] == ["user", "assistant"]


def test_interrupted_answer_is_kept_before_a_new_prompt(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    transcript = Transcript.load(path)
    add_user_text(transcript, "Hi.")
    transcript.add(Message("assistant", (Text("Let me "),)), is_partial=True)
    script = Script("Sure.")
    make_agent(script).run_sync("Stop that.", transcript=path)
    roles = [message.role for message in script.requests[0].messages]
    assert roles == ["user", "assistant", "user"]


def test_late_results_are_moved_behind_their_calls() -> None:
    counted = RecordingTool()
    earlier = (
        Message("user", (Text("One."),)),
        Message("assistant", (make_call("f", "a"),)),
        Message("user", (Text("Two."),)),
        Message("assistant", (Text("Hm."), make_call("f", "b"))),
    )
    script = Script("Done.")
    make_agent(script, make_tool("f", counted)).run_sync("Three.", messages=earlier)
    kinds = [
        [type(part).__name__ for part in message.parts] for message in script.requests[0].messages
    ]
    assert kinds == [
        *(["Text"], ["ToolCall"], ["ToolResult"], ["Text"]),
        *(["Text", "ToolCall"], ["ToolResult"], ["Text"]),
    ]
    assert len(counted.calls) == 1  # Only the latest call runs.


def test_second_run_on_the_same_conversation_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"

    async def twice(first: Any, second: Any) -> None:
        async def slow(request: Request) -> str:
            await asyncio.sleep(0.2)
            return "Hello."

        await asyncio.gather(
            make_agent(slow).run("a", transcript=first),
            make_agent(slow).run("b", transcript=second),
        )

    same = Transcript()
    for first, second in [(path, path), (same, same)]:
        with pytest.raises(UsageError, match=r"in use by another (run|program)"):
            asyncio.run(twice(first, second))


def test_transcript_changed_by_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    before = Transcript.load(path)
    make_agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    with pytest.raises(UsageError, match="changed by another program"):
        make_agent(Script()).run_sync("More.", transcript=before)
    assert make_agent(Script("Yes.")).run_sync("More.", transcript=path).text == "Yes."


def test_messages_beside_nonempty_transcript_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    run = make_agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    with pytest.raises(UsageError, match="not both"):
        make_agent(Script()).run_sync("More.", messages=run.messages, transcript=path)
