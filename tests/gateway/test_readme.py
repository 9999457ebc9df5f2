"""The commands in the README work with the embedded model."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^curl .*?'$", (ROOT / "README.md").read_text(), re.M | re.S)

TOKEN_COUNT = re.compile(
    r'"(?:(?:completion|output)_tokens|eval_count|candidatesTokenCount)":[1-9]'
)
"""The number of generated tokens in the usage of any API, unless it is 0."""


def run_command(command: str, url: str) -> str:
    """Run a command of the README against this gateway, and return its output."""
    words = shlex.split(command.replace("http://127.0.0.1:7878", url))
    return subprocess.run(words, capture_output=True, check=True, timeout=300, text=True).stdout


def make_streaming(command: str) -> str:
    """Return the command with a request for a stream."""
    if "generateContent" in command:
        return command.replace(":generateContent", ":streamGenerateContent?alt=sse")
    plain = command.replace('"stream": false, ', "")
    return plain.replace('"model": "any"', '"model": "any", "stream": true')


def test_readme_has_a_command_for_each_api() -> None:
    paths = [command.split()[2].partition(":7878")[2] for command in COMMANDS]
    assert paths == [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/chat",
        "/v1beta/models/any:generateContent",
    ]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[2])
def test_readme_command_returns_a_call(command: str, embedded_gateway: dict[str, Any]) -> None:
    for variant in (command, make_streaming(command)):
        output = run_command(variant, embedded_gateway["url"])
        assert "get_weather" in output
        assert "Oslo" in output
        if variant == command:
            assert TOKEN_COUNT.search(output), "the call is not from the model"


def test_client_lines_name_the_gateway_and_a_model(embedded_gateway: dict[str, Any]) -> None:
    assert embedded_gateway["default"] in embedded_gateway["models"]
    texts: dict[str, str] = {}
    for name, line in embedded_gateway["clients"].items():
        client = name.removesuffix(", once")
        texts[client] = texts.get(client, "") + line["text"]
    for text in texts.values():
        assert embedded_gateway["url"] in text
    assert set(embedded_gateway["clients"]) >= {"Claude Code", "Codex", "Gemini CLI", "OpenCode"}
