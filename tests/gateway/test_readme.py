"""What the README tells a newcomer to type works, with the model in the box."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^curl .*?'$", (ROOT / "README.md").read_text(), re.M | re.S)

WROTE = re.compile(r'"(?:(?:completion|output)_tokens|eval_count|candidatesTokenCount)":[1-9]')
"""How many tokens came from the model, by whichever API."""


def typed(command: str, url: str) -> str:
    """The answer to a command of the README."""
    words = shlex.split(command.replace("http://127.0.0.1:7878", url))
    return subprocess.run(words, capture_output=True, check=True, timeout=60, text=True).stdout


def streamed(command: str) -> str:
    """The same command for a stream."""
    if "generateContent" in command:
        return command.replace(":generateContent", ":streamGenerateContent?alt=sse")
    plain = command.replace('"stream": false, ', "")
    return plain.replace('"model": "any"', '"model": "any", "stream": true')


def test_there_is_one_for_each_api() -> None:
    paths = [command.split()[2].partition(":7878")[2] for command in COMMANDS]
    assert paths == [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/chat",
        "/v1beta/models/any:generateContent",
    ]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[2])
def test_a_command_makes_a_call(command: str, embedded_gateway: dict[str, Any]) -> None:
    for variant in (command, streamed(command)):
        answer = typed(variant, embedded_gateway["url"])
        assert "get_weather" in answer
        assert "Oslo" in answer
        if variant == command:
            assert WROTE.search(answer), "the model was not asked"


def test_the_lines_to_paste_name_the_gateway_and_a_model(embedded_gateway: dict[str, Any]) -> None:
    assert embedded_gateway["default"] in embedded_gateway["models"]
    pasted: dict[str, str] = {}
    for name, one in embedded_gateway["clients"].items():
        client = name.removesuffix(", once")
        pasted[client] = pasted.get(client, "") + one["text"]
    for text in pasted.values():
        assert embedded_gateway["url"] in text
    assert set(embedded_gateway["clients"]) >= {"Claude Code", "Codex", "Gemini CLI", "OpenCode"}
