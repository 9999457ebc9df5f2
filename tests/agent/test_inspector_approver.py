"""Approvals answered in a gateway's inspector."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.running_gateway import Running, behind, running
from toolspeak.agent import Agent, ApprovalPolicy, Approvals, FunctionModel, ask_in_inspector, tool
from toolspeak.errors import UsageError
from toolspeak.observe.inspector.client import InspectorClient
from toolspeak.types import Request, ToolCall, ToolResult

TOKEN = "the-token-of-this-start"
ran: list[str] = []


@tool
def remove(path: str) -> str:
    "Remove a file."
    ran.append(path)
    return "removed"


def speaks(request: Request) -> Any:
    """A model that removes two files in turn and reports the results."""
    results = [
        part for one in request.messages for part in one.parts if isinstance(part, ToolResult)
    ]
    if len(results) < 2:
        name = f"file-{len(results)}"
        return ToolCall(id=f"call_{name}", name="remove", arguments={"path": name})
    return "; ".join(result.text for result in results)


@pytest.fixture
def gateway() -> Iterator[Running]:
    ran.clear()
    with running(behind("http://127.0.0.1:9"), token=TOKEN) as gateway:
        yield gateway


def agent(gateway: Running, **policy: Any) -> Agent:
    asks = ask_in_inspector(gateway.url, TOKEN, agent="a test")
    return Agent(
        FunctionModel(speaks), tools=[remove], approval=Approvals(ApprovalPolicy(**policy), asks)
    )


class Person(threading.Thread):
    """Answers the questions shown in the inspector."""

    def __init__(self, gateway: Running, *answers: str) -> None:
        super().__init__(daemon=True)
        self._inspector = InspectorClient(gateway.url, TOKEN)
        self._answers = list(answers)
        self.seen: list[Any] = []

    def run(self) -> None:
        while self._answers:
            for one in self._inspector.get("approvals")["approvals"]:
                self.seen.append(one)
                answer = {"answer": self._answers.pop(0)}
                self._inspector.post(f"approvals/{one['id']}", answer)
            time.sleep(0.02)


def test_each_call_is_asked_about(gateway: Running) -> None:
    person = Person(gateway, "yes", "no")
    person.start()
    run = agent(gateway).run_sync("Clean up.")
    assert ran == ["file-0"]
    assert run.text.startswith("removed; ")
    assert "the user denied it" in run.text
    assert [(one["tool"], one["arguments"], one["agent"]) for one in person.seen] == [
        ("remove", {"path": "file-0"}, "a test"),
        ("remove", {"path": "file-1"}, "a test"),
    ]


def test_always_is_asked_about_once(gateway: Running) -> None:
    person = Person(gateway, "always")
    person.start()
    assert agent(gateway).run_sync("Clean up.").text == "removed; removed"
    assert ran == ["file-0", "file-1"]
    assert person.seen[0]["can_always"]


def test_always_on_always_ask_tool_allows_one_call(gateway: Running) -> None:
    person = Person(gateway, "always", "no")
    person.start()
    agent(gateway, always_ask=("remove",)).run_sync("Clean up.")
    assert ran == ["file-0"]


def test_late_answer_denies(gateway: Running) -> None:
    run = agent(gateway, timeout=0.3).run_sync("Clean up.")
    assert ran == []
    assert "there was no answer in time" in run.text


def test_cancelled_run_withdraws_its_question(gateway: Running) -> None:
    inspector = InspectorClient(gateway.url, TOKEN)

    async def interrupted() -> None:
        working = asyncio.create_task(agent(gateway).run("Clean up."))
        while not await asyncio.to_thread(inspector.get, "approvals"):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert inspector.get("approvals")["approvals"]
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(interrupted())
    assert inspector.get("approvals")["approvals"] == []
    assert ran == []


def test_unreachable_gateway_denies(gateway: Running) -> None:
    asks = ask_in_inspector("http://127.0.0.1:9", TOKEN)
    silent = Agent(FunctionModel(speaks), tools=[remove], approval=Approvals("ask", asks))
    assert "asking for it failed" in silent.run_sync("Clean up.").text
    assert ran == []


def test_no_running_gateway_is_rejected(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no gateway of yours"):
        ask_in_inspector()
