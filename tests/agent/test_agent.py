"""Agents: their arguments, and the opening and closing of their resources."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
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
)
from toolspeak import (
    Reply,
    Request,
    Text,
    UsageError,
)
from toolspeak.agent import (
    Agent,
    AgentTool,
    Approvals,
    tool,
)
from toolspeak.events import unfold
from toolspeak.testing import ScriptedServer


@pytest.mark.parametrize(
    "wrong",
    [
        {"scrub": "modle"},
        {"scrub": True},
        {"restore": "fetch"},
        {"max_iterations": 0},
        {"tools": make_tool("f", RecordingTool()).handler},
        {"tools": "f"},
    ],
)
def test_invalid_agent_argument_is_rejected_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"`{next(iter(wrong))}` must be"):
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
    script = Script([make_call("shell", command="ls")], "Done.")
    make_agent(script, partial(shell, folder="/"), approval=approvals).run_sync("Go.")
    assert asked == ["shell"]


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
        own = make_tool(f"tool_{self._name}", RecordingTool())
        return (own, make_tool("same", lambda _: self._name))

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        self._log.append(f"close {self._name}")
        if self._fails == "close":
            raise OSError(f"{self._name} does not close")


def test_failed_open_closes_only_opened_sources(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    model = DirectModel("Hello.")
    sources = [Source(log, "a", "close"), Source(log, "b", "open"), Source(log, "c")]
    with pytest.raises(OSError, match="b does not open"):
        make_agent(model, *sources).run_sync("Hi.")
    assert log == ["open a", "close a"]
    assert model.is_closed == 1
    assert "cannot close" in caplog.text


def test_concurrent_runs_share_open_sources() -> None:
    log: list[str] = []

    async def model(request: Request) -> str:
        await asyncio.sleep(0.05)
        return "Hello."

    async def both() -> None:
        one = make_agent(model, Source(log, "a"))
        await asyncio.gather(one.run("x"), one.run("y"))
        await one.run("z")

    asyncio.run(both())
    assert log == ["open a", "close a"] * 2


def test_source_that_fails_to_list_is_skipped() -> None:
    log: list[str] = []
    script = Script([make_call("same")], "Done.")
    sources = [Source(log, "a", "tools"), Source(log, "b"), Source(log, "c")]
    make_agent(script, *sources).run_sync("Hi.")
    offered = {tool.name for tool in script.requests[0].tools or ()}
    assert offered == {"tool_b", "tool_c", "same"}
    assert get_results(script.requests[1]) == ["b"]


def test_agent_runs_in_many_threads() -> None:
    with ScriptedServer(list(unfold(Reply(parts=(Text("Hello."),))))) as server:
        one = make_agent(f"{server.url}/v1#m")
        texts: list[str] = []
        threads = [
            threading.Thread(target=lambda: texts.append(one.run_sync("Hi.").text))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert texts == ["Hello."] * 4


def test_agent_can_be_a_tool_of_another_agent() -> None:
    with ScriptedServer(list(unfold(Reply(parts=(Text("Forty-two."),))))) as server:
        inner = make_agent(f"{server.url}/v1#m")

        @tool(writes=False)
        def ask(question: str) -> str:
            """Ask somebody who knows."""
            return inner.run_sync(question).text

        calls = [make_call("ask", f"call_{number}", question="?") for number in range(3)]
        script = Script(calls, "Done.")
        make_agent(script, ask).run_sync("Go.")
    assert get_results(script.requests[1]) == ["Forty-two."] * 3


def test_finished_run_leaves_no_tasks() -> None:
    async def slow(request: Request) -> str:
        await asyncio.sleep(30)
        return "never"

    async def run() -> set[Any]:
        events = make_agent(slow).stream("Go.")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await events.aclose()
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(run()) == set()


def test_blocking_tools_each_have_a_thread() -> None:
    gate = threading.Barrier(9, timeout=20)

    def wait(arguments: dict[str, Any]) -> str:
        gate.wait()
        return "ok"

    script = Script([make_call("f", f"call_{number}") for number in range(9)], "Done.")
    make_agent(script, make_tool("f", wait, writes=False), timeout=15).run_sync("Go.")
    assert get_results(script.requests[1]) == ["ok"] * 9
