"""`toolspeak explain`: what it prints about the requests of a running gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import (
    CHAT_BODY,
    HTTP,
    format_settings,
    make_environment,
    start_gateway,
)
from toolspeak import Finish, TextDelta
from toolspeak.cli import main
from toolspeak.config.running_instances import RunningInstance, list_instances, register_instance
from toolspeak.errors import UsageError
from toolspeak.observe.inspector.client import InspectorClient
from toolspeak.testing import ScriptedServer

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]markup[/]"


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


Explain = Callable[..., str]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    """Run the command in this process; return what it prints."""

    def run(*arguments: str) -> str:
        assert main(["explain", *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_explain_prints_a_request_of_a_running_gateway(tmp_path: Path, explain: Explain) -> None:
    reply: list[Any] = [TextDelta(f"{HOSTILE} {CALL}"), Finish("stop")]
    with ScriptedServer(reply) as model:
        (tmp_path / "toolspeak.toml").write_text(
            format_settings(model.url) + 'tools = "prompt"\ndialect = "hermes"\n'
        )
        with start_gateway(tmp_path) as gateway:
            response = HTTP.post(
                f"{gateway.url}/v1/chat/completions",
                json={**CHAT_BODY, "tools": TOOLS, "stream": True},
            )
            identity = response.headers["x-request-id"]
            listed = explain()
            assert identity in listed
            assert "get_weather" in listed
            shown = explain(identity)
            assert explain("last") == shown
            assert explain(identity, "--url", gateway.url.replace("127.0.0.1", "localhost"))
            value = json.loads(explain(identity, "--json"))
            with pytest.raises(UsageError, match=r"the request .nothing. is not available"):
                InspectorClient.connect().get("requests/nothing")
            with pytest.raises(UsageError, match="send the token"):
                InspectorClient.connect(key="wrong").get("requests")
    for text in (
        *("client request", "Who are you?", "plan", "prompt, system", "reply"),
        *("get_weather(", "client response: 200", "`tools` is set to prompt"),
    ):
        assert text in shown
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
    assert "[bold red]markup[/]" in shown
    assert value["attempts"][0]["calls"][0]["arguments"] == {"city": "Oslo"}
    assert list_instances() == []


def test_explain_without_a_gateway_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 2
    assert "toolspeak serve" in capsys.readouterr().err
    assert main(["explain", "--url", "http://127.0.0.1:9"]) == 2
    assert "no gateway responds" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "file:///etc", "nonsense", "http://["])
def test_explain_with_an_invalid_url_is_an_error(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with register_instance(RunningInstance("http://127.0.0.1:7878", os.getpid(), "token")):
        for command in (["explain"], ["explain", "last"]):
            assert main([*command, "--url", url]) == 2
            assert "Expected a URL such as" in capsys.readouterr().err


CONTROL_SEQUENCES = "m\x1b]0;pwn\x07\x1b[2J"
SUMMARY = {
    **dict.fromkeys(
        ("id", "key", "wire", "user_message", "model", "mode", "upstream", "failure"),
        CONTROL_SEQUENCES,
    ),
    "started_at": 1.0,
    "calls": [CONTROL_SEQUENCES],
    "retries": 1,
    "ms": 1.0,
    "status": 200,
}
REJECTION = {"problem": CONTROL_SEQUENCES, "code": CONTROL_SEQUENCES, "path": CONTROL_SEQUENCES}
NOTE = {"code": CONTROL_SEQUENCES, "message": CONTROL_SEQUENCES, "where": CONTROL_SEQUENCES}
DECODED_CALL = {"name": CONTROL_SEQUENCES, "arguments": {CONTROL_SEQUENCES: CONTROL_SEQUENCES}}
ATTEMPT = {
    **dict.fromkeys(
        ("reason", "reason_text", "model", "upstream", "address", "path", "text"), CONTROL_SEQUENCES
    ),
    "plan": {
        "mode": CONTROL_SEQUENCES,
        "dialect": CONTROL_SEQUENCES,
        "reasons": [CONTROL_SEQUENCES],
    },
    "first_byte_ms": 1.0,
    "end_ms": 1.0,
    "outcome_text": CONTROL_SEQUENCES,
    "failure": {"message": CONTROL_SEQUENCES},
    "prompt": [{"role": CONTROL_SEQUENCES, "text": CONTROL_SEQUENCES}],
    "calls": [DECODED_CALL],
    "rejected": [REJECTION],
    "notes": [NOTE],
    "highlights": [{"start": 1, "end": 3, "kind": "call"}],
}
RECORD = {
    "summary": SUMMARY,
    "request": {
        "method": CONTROL_SEQUENCES,
        "target": CONTROL_SEQUENCES,
        "body": CONTROL_SEQUENCES,
    },
    "response": {"status": CONTROL_SEQUENCES, "body": CONTROL_SEQUENCES},
    "attempts": [ATTEMPT],
    "calls": [DECODED_CALL],
    "notes": [NOTE],
    "masked_secrets": 1,
}


def test_control_characters_of_any_field_are_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(_: InspectorClient, path: str) -> Any:
        return {"requests": [SUMMARY]} if path == "requests" else RECORD

    monkeypatch.setattr(InspectorClient, "get", read)
    for command in (["explain"], ["explain", "last"], ["explain", "last", "--full"]):
        assert main([*command, "--url", "http://127.0.0.1:9"]) == 0
        output = capsys.readouterr().out
        assert "\\x1b" in output
        assert not {"\x1b", "\x07"} & {*output}


def test_control_characters_in_model_names_are_escaped_by_serve(tmp_path: Path) -> None:
    upstream = 'wire = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"'
    model = '[models."m\\u001b[2J"]\nupstream = "far"'
    config = tmp_path / "toolspeak.toml"
    config.write_text(f"embedded = false\n[upstreams.far]\n{upstream}\n{model}\n")
    with subprocess.Popen(
        [sys.executable, "-m", "toolspeak", "serve", "--port", "0", "--config", str(config)],
        stdout=subprocess.PIPE,
        text=True,
        env=make_environment(PYTHONUNBUFFERED="1"),
    ) as process:
        assert process.stdout
        output = [process.stdout.readline() for _ in range(2)]
        process.terminate()
    assert output[1] == "  m\\x1b[2J\n"


def test_control_characters_in_an_error_are_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise UsageError(CONTROL_SEQUENCES)

    monkeypatch.setattr(InspectorClient, "get", fail)
    assert main(["explain", "--url", "http://127.0.0.1:9"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_explain_of_another_server_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(*_: Any) -> Any:
        return {"ok": True}

    monkeypatch.setattr(InspectorClient, "get", read)
    for command in (["explain"], ["explain", "last"]):
        assert main([*command, "--url", "http://127.0.0.1:9"]) == 2
        assert "is not a Toolspeak gateway" in capsys.readouterr().err
