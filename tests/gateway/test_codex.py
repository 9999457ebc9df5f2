"""Requests as Codex sends them, and the errors that it expects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak import Event, Failure, Finish, Started, TextDelta
from toolspeak.testing import ScriptedServer

HELLO = (Started(), TextDelta("Hello."), Finish("stop"))
LONG = Failure("context_length", "This model's maximum context length is 8192 tokens.", 400)


def make_message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


CODEX: dict[str, Any] = {
    "model": "m",
    "instructions": "You are a coding agent.",
    "input": [
        make_message("developer", "You may write files."),
        make_message("user", "<environment_context>bash</environment_context>"),
        make_message("user", "Say hello."),
    ],
    "tools": [{"type": "function", "name": "shell", "parameters": {"type": "object"}}],
    "stream": True,
}
"""The first request of a conversation."""


def ask(url: str, body: Any, path: str = "/v1/responses") -> httpx.Response:
    return httpx.post(url + path, json=body, trust_env=False, timeout=60)


def test_messages_of_codex_are_merged_for_strict_templates() -> None:
    with ScriptedServer(HELLO) as server, run_gateway(make_config(server.url)) as gateway:
        response = ask(gateway.url, CODEX)
        assert response.status_code == 200
        assert response.headers["x-toolspeak-notes"] == "converted"
    [body] = server.bodies
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "You are a coding agent.\n\nYou may write files."),
        ("user", "<environment_context>bash</environment_context>\n\nSay hello."),
    ]


@pytest.mark.parametrize("mode", ["native", "prompt", "constrained"])
def test_hosted_tool_is_skipped_with_a_note(mode: str) -> None:
    body = {**CODEX, "tools": [*CODEX["tools"], {"type": "web_search"}]}
    with (
        ScriptedServer(HELLO) as server,
        run_gateway(make_config(server.url, tools=mode)) as gateway,
    ):
        response = ask(gateway.url, body)
    assert response.headers["x-toolspeak-mode"] == mode
    assert "skipped-tool" in response.headers["x-toolspeak-notes"].split(",")


@pytest.mark.parametrize("turn", [[LONG], [Started(), LONG]], ids=["as response", "in stream"])
def test_context_length_error_is_part_of_the_stream(turn: Sequence[Event]) -> None:
    """Codex compacts a conversation only for this event; status 400 would end it."""
    with ScriptedServer(turn) as server, run_gateway(make_config(server.url)) as gateway:
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


def test_context_length_error_is_raised_by_openai_sdk() -> None:
    with ScriptedServer([LONG]) as server, run_gateway(make_config(server.url)) as gateway:
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
def test_context_length_error_of_other_requests_has_status_400(path: str, body: Any) -> None:
    with ScriptedServer([LONG]) as server, run_gateway(make_config(server.url)) as gateway:
        assert ask(gateway.url, {"model": "m", **body}, path).status_code == 400


def test_other_error_of_a_stream_has_its_status() -> None:
    failure = Failure("unauthorized", "no such key", 401)
    with ScriptedServer([failure]) as server, run_gateway(make_config(server.url)) as gateway:
        assert ask(gateway.url, CODEX).status_code == 401
