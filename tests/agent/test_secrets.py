"""Secrets in tool results: masking, and restoring them for tools on an allowlist."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.agent.scripted import (
    Script,
    get_results,
    make_agent,
    make_call,
    make_tool,
    raise_in_tool,
    run_tool_call,
)
from toolspeak import (
    Document,
    Request,
)
from toolspeak.agent import (
    Approvals,
    ToolCallFinished,
)
from toolspeak.agent import secrets as agent_secrets

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


class SecretScenario:
    """A model that reads a secret and sends on its placeholder."""

    def __init__(self, answers: list[str], restore: list[str], **options: Any) -> None:
        self.sent: list[Any] = []
        self.questions: list[str] = []
        self._answers = answers
        self.script = Script([make_call("read")], self._send, "Done.")
        self.agent = make_agent(
            self.script,
            make_tool("read", lambda _: f"GITHUB_TOKEN={TOKEN}", writes=False),
            make_tool("send", lambda arguments: self.sent.append(arguments["key"])),
            restore=restore,
            approval=Approvals(options.pop("policy", "full"), self._ask),
            **options,
        )

    def _ask(self, question: Any) -> str:
        self.questions += [use.question(question.tool) for use in question.secrets]
        return self._answers.pop(0)

    def _send(self, request: Request) -> Any:
        return [make_call("send", key=get_results(request)[0].removeprefix("GITHUB_TOKEN="))]


def test_secret_is_not_restored_for_unlisted_tool() -> None:
    one = SecretScenario([], [])
    one.agent.run_sync("Go.")
    assert get_results(one.script.requests[1]) == ["GITHUB_TOKEN=ghp_*[REDACTED]"]
    assert one.sent == ["ghp_*[REDACTED]"]


def test_each_secret_use_is_asked_about() -> None:
    """Even under full; neither the model nor the transcript contains it."""
    one = SecretScenario(["yes"], ["send"])
    run = one.agent.run_sync("Go.")
    assert one.sent == [TOKEN]
    [asked] = one.questions
    assert all(word in asked for word in ("GITHUB_TOKEN", "read", "send", "$.key"))
    assert TOKEN not in str(run.messages)


@pytest.mark.parametrize("policy", ["full", "ask"])
def test_denied_secret_is_not_sent(policy: str) -> None:
    one = SecretScenario(["yes", "no"] if policy == "ask" else ["no"], ["send"], policy=policy)
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
    script = Script([make_call("read")], "Done.")
    one = make_agent(script, make_tool("read", lambda _: f"GITHUB_TOKEN={TOKEN}"), scrub=scrub)

    async def shown() -> list[str]:
        return [
            event.display_text
            async for event in one.stream("Go.")
            if isinstance(event, ToolCallFinished)
        ]

    [seen] = asyncio.run(shown())
    assert (TOKEN in get_results(script.requests[1])[0], TOKEN in seen) == (model, display)


def test_error_results_are_scrubbed() -> None:
    assert TOKEN not in run_tool_call(
        raise_in_tool(ValueError(f"cannot log in with token={TOKEN}"))
    )


def _send_on(request: Request) -> Any:
    return [make_call("send", key=get_results(request)[0].removeprefix("DB_PASSWORD="))]


def test_restored_secret_in_result_is_masked() -> None:
    """Even one without a recognizable format, from any tool, and in errors."""
    secret = "correcthorsebattery"
    script = Script(
        [make_call("read")],
        _send_on,
        [make_call("log")],
        "Done.",
    )
    one = make_agent(
        script,
        make_tool("read", lambda _: f"DB_PASSWORD={secret}", writes=False),
        make_tool("send", lambda arguments: f"cannot log in with {arguments['key']}"),
        make_tool("log", raise_in_tool(ValueError(f"bad login: {secret}"))),
        restore=["send"],
        approval=Approvals("full", lambda _: "yes"),
    )
    run = one.run_sync("Go.")
    assert secret not in str(run.messages)
    assert "cannot log in with" in get_results(script.requests[2])[1]


def test_document_titles_are_scrubbed() -> None:
    page = Document("text", title=f"https://h/?access_token={TOKEN}")
    run = make_agent(Script([make_call("f")], "Done."), make_tool("f", lambda _: page)).run_sync(
        "Go."
    )
    assert TOKEN not in str(run.messages)


def test_result_is_scrubbed_before_it_is_shortened() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "abcdefgh" * 200 + "\n-----END RSA PRIVATE KEY-----"
    assert "abcdefgh" not in run_tool_call(lambda _: f"before\n{key}\nafter", result_limit=60)


def test_long_result_is_scrubbed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop is not blocked meanwhile."""
    threads: list[int] = []

    def scrub(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.get_ident())
        return real_scrub(*arguments, **named)

    real_scrub = agent_secrets.scrub
    monkeypatch.setattr(agent_secrets, "scrub", scrub)
    script = Script([make_call("f", "a", size=1), make_call("f", "b", size=20_000)], "Done.")
    tool = make_tool("f", lambda arguments: "token: " * arguments["size"])
    make_agent(script, tool, approval=Approvals("full", audit=None)).run_sync("Go.")
    results_of_tool = threads[-2:]
    assert results_of_tool[0] != results_of_tool[1]
