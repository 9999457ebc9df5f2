"""What agents say that people use, and what they have to hear to go on."""

from __future__ import annotations

from typing import Any

import httpx

from tests.gateway.support import behind, running
from toolspeak import Finish, Started, TextDelta
from toolspeak.testing import ScriptedServer

HELLO = (Started(), TextDelta("Hello."), Finish("stop"))


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
        assert response.headers["x-toolspeak-notes"] == "rephrased"
    [body] = server.bodies
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "You are a coding agent.\n\nYou may write files."),
        ("user", "<environment_context>bash</environment_context>\n\nSay hello."),
    ]
