"""What agents say that people use, and what they have to hear to go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.running_gateway import behind, running
from toolspeak import Event, Failure, Finish, Started, TextDelta
from toolspeak.testing import ScriptedServer

HELLO = (Started(), TextDelta("Hello."), Finish("stop"))
LONG = Failure("context_length", "This model's maximum context length is 8192 tokens.", 400)


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


CODEX: dict[str, Any] = {
    "model": "m",
    "instructions": "You are a coding agent.",
    "input": [
        said("developer", "You may write files."),
        said("user", "<environment_context>bash</environment_context>"),
        said("user", "Say hello."),
    ],
    "tools": [{"type": "function", "name": "shell", "parameters": {"type": "object"}}],
    "stream": True,
}
"""A first turn of Codex."""


def ask(url: str, body: Any, path: str = "/v1/responses") -> httpx.Response:
    return httpx.post(url + path, json=body, trust_env=False, timeout=30)


def test_a_strict_template_can_take_what_codex_says() -> None:
    with ScriptedServer(HELLO) as server, running(behind(server.url)) as gateway:
        response = ask(gateway.url, CODEX)
        assert response.status_code == 200
        assert response.headers["x-toolspeak-notes"] == "converted"
    [body] = server.bodies
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "You are a coding agent.\n\nYou may write files."),
        ("user", "<environment_context>bash</environment_context>\n\nSay hello."),
    ]


@pytest.mark.parametrize("mode", ["native", "prompt", "constrained"])
def test_tools_that_only_openai_can_run_are_noted(mode: str) -> None:
    body = {**CODEX, "tools": [*CODEX["tools"], {"type": "web_search"}]}
    with ScriptedServer(HELLO) as server, running(behind(server.url, tools=mode)) as gateway:
        response = ask(gateway.url, body)
    assert response.headers["x-toolspeak-mode"] == mode
    assert "skipped-tool" in response.headers["x-toolspeak-notes"].split(",")


@pytest.mark.parametrize("turn", [[LONG], [Started(), LONG]], ids=["at once", "in its stream"])
def test_codex_is_told_in_the_stream_that_a_conversation_is_too_long(turn: Sequence[Event]) -> None:
    """It compacts for this event alone: a status of 400 is shown to the user, and that was it."""
    with ScriptedServer(turn) as server, running(behind(server.url)) as gateway:
        response = ask(gateway.url, CODEX)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line[:6] == "data: "]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "error",
        "response.failed",
    ]
    assert events[-1]["response"]["status"] == "failed"
    error = events[-1]["response"]["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith(LONG.message)


def test_openais_sdk_raises_what_is_told_in_the_stream() -> None:
    with ScriptedServer([LONG]) as server, running(behind(server.url)) as gateway:
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.APIError, match="8192") as problem:
            list(client.responses.create(model="m", input="Hello", stream=True))
        assert problem.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError, match="8192") as problem:
            client.responses.create(model="m", input="Hello")
        assert problem.value.code == "context_length_exceeded"
        client.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {**CODEX, "stream": False}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "stream": True}),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "a"}], "stream": True, "max_tokens": 9},
        ),
    ],
)
def test_others_are_told_by_the_status(path: str, body: Any) -> None:
    with ScriptedServer([LONG]) as server, running(behind(server.url)) as gateway:
        assert ask(gateway.url, {"model": "m", **body}, path).status_code == 400


def test_other_failures_of_a_stream_have_their_status() -> None:
    failure = Failure("unauthorized", "no such key", 401)
    with ScriptedServer([failure]) as server, running(behind(server.url)) as gateway:
        assert ask(gateway.url, CODEX).status_code == 401
