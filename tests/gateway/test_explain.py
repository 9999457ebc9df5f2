"""`toolspeak explain`, and how programs of the same user find a gateway that runs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.served import ASKED, HTTP, serving, settings_for
from toolspeak import Finish, TextDelta
from toolspeak.cli import main
from toolspeak.errors import UsageError
from toolspeak.gateway.inspector.client import Inspector
from toolspeak.gateway.whereabouts import Whereabouts, noted, running
from toolspeak.testing import ScriptedServer

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]markup[/]"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def explained(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "toolspeak", "explain", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_request_is_explained(tmp_path: Path) -> None:
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
            listed = explained()
            assert identity in listed
            assert "get_weather" in listed
            shown = explained(identity)
            assert explained("last") == shown
            assert explained(identity, "--url", gateway.url.replace("127.0.0.1", "localhost"))
            value = json.loads(explained(identity, "--json"))
            # Others have no business here.
            with pytest.raises(UsageError, match="there is no request"):
                Inspector.at().get("requests/nothing")
            with pytest.raises(UsageError, match="needs the token"):
                Inspector.at(key="wrong").get("requests")
    for words in ("the client sent", "Who are you?", "plan", "prompt, system", "the model wrote"):
        assert words in shown
    for words in ("get_weather(", "the client received: 200", "the configuration says prompt"):
        assert words in shown
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
    assert "[bold red]markup[/]" in shown
    assert value["turns"][0]["calls"][0]["arguments"] == {"city": "Oslo"}
    assert running() == []


def test_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 2
    assert "toolspeak serve" in capsys.readouterr().err
    assert main(["explain", "--url", "http://127.0.0.1:9"]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_only_its_user_reads_where_a_gateway_is(state: Path) -> None:
    here = Whereabouts("http://127.0.0.1:7878", os.getpid(), "secret-token")
    with noted(here):
        (path,) = (state / "toolspeak" / "gateways").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert running() == [here]
        assert "secret-token" not in repr(here)
        with noted(here):
            assert running() == [here]
    assert running() == []


def test_those_that_were_killed_are_forgotten(state: Path) -> None:
    folder = state / "toolspeak" / "gateways"
    folder.mkdir(parents=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder / "1.json").write_text(f'{{"url": "http://127.0.0.1:1", "process": {dead.pid}}}')
    (folder / "2.json").write_text("no JSON")
    assert running() == []
    assert [path.name for path in folder.iterdir()] == ["2.json"]


def test_the_newest_comes_first(state: Path) -> None:
    folder = state / "toolspeak" / "gateways"
    folder.mkdir(parents=True)
    for age, name in enumerate(("new", "old")):
        path = folder / f"{name}.json"
        path.write_text(f'{{"url": "http://{name}", "process": {os.getpid()}}}')
        os.utime(path, (1000 - age, 1000 - age))
    assert [one.url for one in running()] == ["http://new", "http://old"]
