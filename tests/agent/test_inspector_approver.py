"""Approvals answered in a gateway's inspector."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.agent import Agent, ApprovalPolicy, Approvals, FunctionModel, ask_in_inspector, tool
from toolspeak.errors import UsageError
from toolspeak.observe.inspector.client import InspectorClient
from toolspeak.types import Request, ToolCall, ToolResult

TOKEN = "the-token-of-this-start"
removed: list[str] = []


@tool
def remove(path: str) -> str:
    "Remove a file."
    removed.append(path)
    return "removed"


def model(request: Request) -> Any:
    """A model that removes two files in turn and reports the results."""
    results = [
        part for one in request.messages for part in one.parts if isinstance(part, ToolResult)
    ]
    if len(results) < 2:
        name = f"file-{len(results)}"
        return ToolCall(id=f"call_{name}", name="remove", arguments={"path": name})
    return "; ".join(result.text for result in results)


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    removed.clear()
    with run_gateway(make_config("http://127.0.0.1:9"), token=TOKEN) as gateway:
        yield gateway


def make_agent(gateway: RunningGateway, **policy: Any) -> Agent:
    approver = ask_in_inspector(gateway.url, TOKEN, agent="a test")
    return Agent(
        FunctionModel(model), tools=[remove], approval=Approvals(ApprovalPolicy(**policy), approver)
    )


class InspectorUser(threading.Thread):
    """Answers the questions shown in the inspector."""

    def __init__(self, gateway: RunningGateway, *answers: str) -> None:
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


def test_each_call_is_asked_about(gateway: RunningGateway) -> None:
    user = InspectorUser(gateway, "yes", "no")
    user.start()
    run = make_agent(gateway).run_sync("Clean up.")
    assert removed == ["file-0"]
    assert run.text.startswith("removed; ")
    assert "the user denied it" in run.text
    assert [(one["tool"], one["arguments"], one["agent"]) for one in user.seen] == [
        ("remove", {"path": "file-0"}, "a test"),
        ("remove", {"path": "file-1"}, "a test"),
    ]


def test_always_is_asked_about_once(gateway: RunningGateway) -> None:
    user = InspectorUser(gateway, "always")
    user.start()
    assert make_agent(gateway).run_sync("Clean up.").text == "removed; removed"
    assert removed == ["file-0", "file-1"]
    assert user.seen[0]["can_always"]


def test_always_on_always_ask_tool_allows_one_call(gateway: RunningGateway) -> None:
    user = InspectorUser(gateway, "always", "no")
    user.start()
    make_agent(gateway, always_ask=("remove",)).run_sync("Clean up.")
    assert removed == ["file-0"]


def test_late_answer_denies(gateway: RunningGateway) -> None:
    run = make_agent(gateway, timeout=0.3).run_sync("Clean up.")
    assert removed == []
    assert "there was no answer in time" in run.text


def test_cancelled_run_withdraws_its_question(gateway: RunningGateway) -> None:
    inspector = InspectorClient(gateway.url, TOKEN)

    async def interrupted() -> None:
        working = asyncio.create_task(make_agent(gateway).run("Clean up."))
        while not await asyncio.to_thread(inspector.get, "approvals"):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert inspector.get("approvals")["approvals"]
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(interrupted())
    assert inspector.get("approvals")["approvals"] == []
    assert removed == []


def test_unreachable_gateway_denies(gateway: RunningGateway) -> None:
    approver = ask_in_inspector("http://127.0.0.1:9", TOKEN)
    unreachable = Agent(FunctionModel(model), tools=[remove], approval=Approvals("ask", approver))
    assert "the request for approval failed" in unreachable.run_sync("Clean up.").text
    assert removed == []


def test_no_running_gateway_is_rejected(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no gateway is running"):
        ask_in_inspector()
