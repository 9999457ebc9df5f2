"""`toolspeak explain`, and how programs of the same user find a gateway that runs."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import ASKED, HTTP, environment, serving, settings_for
from toolspeak import Finish, TextDelta
from toolspeak.cli import main
from toolspeak.config.running_instances import (
    RunningInstance,
    list_instances,
    list_responding,
    register_instance,
)
from toolspeak.errors import UsageError
from toolspeak.observe.inspector.client import InspectorClient
from toolspeak.testing import ScriptedServer

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]markup[/]"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_a_request_is_explained(tmp_path: Path, explain: Explain) -> None:
    turn: list[Any] = [TextDelta(f"{HOSTILE} {CALL}"), Finish("stop")]
    with ScriptedServer(turn) as model:
        (tmp_path / "toolspeak.toml").write_text(
            settings_for(model.url) + 'tools = "prompt"\ndialect = "hermes"\n'
        )
        with serving(tmp_path) as gateway:
            got = HTTP.post(
                f"{gateway.url}/v1/chat/completions",
                json={**ASKED, "tools": TOOLS, "stream": True},
            )
            identity = got.headers["x-request-id"]
            listed = explain()
            assert identity in listed
            assert "get_weather" in listed
            shown = explain(identity)
            assert explain("last") == shown
            assert explain(identity, "--url", gateway.url.replace("127.0.0.1", "localhost"))
            value = json.loads(explain(identity, "--json"))
            # Others have no business here.
            with pytest.raises(UsageError, match=r"the request .nothing. is not available"):
                InspectorClient.connect().get("requests/nothing")
            with pytest.raises(UsageError, match="send the token"):
                InspectorClient.connect(key="wrong").get("requests")
    for words in ("client request", "Who are you?", "plan", "prompt, system", "reply"):
        assert words in shown
    for words in ("get_weather(", "client response: 200", "the configuration sets prompt"):
        assert words in shown
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
    assert "[bold red]markup[/]" in shown
    assert value["attempts"][0]["calls"][0]["arguments"] == {"city": "Oslo"}
    assert list_instances() == []


def test_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 2
    assert "toolspeak serve" in capsys.readouterr().err
    assert main(["explain", "--url", "http://127.0.0.1:9"]) == 2
    assert "does not respond" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "file:///etc", "nonsense", "http://["])
def test_no_address(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with register_instance(RunningInstance("http://127.0.0.1:7878", os.getpid(), "token")):
        for command in (["explain"], ["explain", "last"]):
            assert main([*command, "--url", url]) == 2
            assert "Expected a URL such as" in capsys.readouterr().err


PWN = "m\x1b]0;pwn\x07\x1b[2J"
SUMMARY = {
    **dict.fromkeys(
        ("id", "key", "wire", "user_message", "model", "mode", "upstream", "failure"), PWN
    ),
    "started_at": 1.0,
    "calls": [PWN],
    "retries": 1,
    "ms": 1.0,
    "status": 200,
}
BAD = {"problem": PWN, "code": PWN, "path": PWN}
NOTE = {"code": PWN, "message": PWN, "where": PWN}
MADE = {"name": PWN, "arguments": {PWN: PWN}}
TURN = {
    **dict.fromkeys(("reason", "reason_text", "model", "upstream", "address", "path", "text"), PWN),
    "plan": {"mode": PWN, "dialect": PWN, "reasons": [PWN]},
    "first_byte_ms": 1.0,
    "end_ms": 1.0,
    "outcome_text": PWN,
    "failure": {"message": PWN},
    "prompt": [{"role": PWN, "text": PWN}],
    "calls": [MADE],
    "rejected": [BAD],
    "notes": [NOTE],
    "highlights": [{"start": 1, "end": 3, "kind": "call"}],
}
SHOWN = {
    "summary": SUMMARY,
    "request": {"method": PWN, "target": PWN, "body": PWN},
    "response": {"status": PWN, "body": PWN},
    "attempts": [TURN],
    "calls": [MADE],
    "notes": [NOTE],
    "masked_secrets": 1,
}


def test_nothing_that_is_shown_reaches_the_terminal_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def got(_: InspectorClient, path: str) -> Any:
        return {"requests": [SUMMARY]} if path == "requests" else SHOWN

    monkeypatch.setattr(InspectorClient, "get", got)
    for command in (["explain"], ["explain", "last"], ["explain", "last", "--full"]):
        assert main([*command, "--url", "http://127.0.0.1:9"]) == 0
        said = capsys.readouterr().out
        assert "\\x1b" in said
        assert not {"\x1b", "\x07"} & {*said}


def test_nor_what_a_gateway_says_of_its_models(tmp_path: Path) -> None:
    upstream = 'wire = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"'
    model = '[models."m\\u001b[2J"]\nupstream = "far"'
    config = tmp_path / "toolspeak.toml"
    config.write_text(f"embedded = false\n[upstreams.far]\n{upstream}\n{model}\n")
    with subprocess.Popen(
        [sys.executable, "-m", "toolspeak", "serve", "--port", "0", "--config", str(config)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(PYTHONUNBUFFERED="1"),
    ) as serving:
        assert serving.stdout
        said = [serving.stdout.readline() for _ in range(2)]
        serving.terminate()
    assert said[1] == "  m\\x1b[2J\n"


def test_what_a_server_complains_of_neither(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise UsageError(PWN)

    monkeypatch.setattr(InspectorClient, "get", fails)
    assert main(["explain", "--url", "http://127.0.0.1:9"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_something_else_that_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def got(*_: Any) -> Any:
        return {"ok": True}

    monkeypatch.setattr(InspectorClient, "get", got)
    for command in (["explain"], ["explain", "last"]):
        assert main([*command, "--url", "http://127.0.0.1:9"]) == 2
        assert "is not a Toolspeak gateway" in capsys.readouterr().err


def test_only_its_user_reads_where_a_gateway_is(state: Path) -> None:
    here = RunningInstance("http://127.0.0.1:7878", os.getpid(), "secret-token")
    with register_instance(here):
        (path,) = (state / "toolspeak" / "gateways").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert list_instances() == [here]
        assert "secret-token" not in repr(here)
        with register_instance(here):
            assert list_instances() == [here]
    assert list_instances() == []


def test_those_that_were_killed_are_forgotten(state: Path) -> None:
    folder = state / "toolspeak" / "gateways"
    folder.mkdir(parents=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder / "1.json").write_text(f'{{"url": "http://127.0.0.1:1", "process": {dead.pid}}}')
    (folder / "2.json").write_text("no JSON")
    assert list_instances() == []
    assert [path.name for path in folder.iterdir()] == ["2.json"]


def test_the_newest_comes_first(state: Path) -> None:
    folder = state / "toolspeak" / "gateways"
    folder.mkdir(parents=True)
    for age, name in enumerate(("new", "old")):
        path = folder / f"{name}.json"
        path.write_text(f'{{"url": "http://{name}", "process": {os.getpid()}}}')
        os.utime(path, (1000 - age, 1000 - age))
    assert [one.url for one in list_instances()] == ["http://new", "http://old"]


def test_without_a_home_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with register_instance(RunningInstance("http://127.0.0.1:7878", os.getpid())):
        assert list_instances() == []


def test_a_number_that_is_anothers_by_now(capsys: pytest.CaptureFixture[str]) -> None:
    with register_instance(RunningInstance("http://127.0.0.1:9", os.getpid(), "token")):
        assert len(list_instances()) == 1
        assert [*list_responding()] == []
        assert main(["explain"]) == 2
    assert "no gateway of yours runs" in capsys.readouterr().err


def test_one_that_is_busy_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = RunningInstance(f"http://127.0.0.1:{listener.getsockname()[1]}", os.getpid())
        with register_instance(here):
            assert [*list_responding()] == [here]
