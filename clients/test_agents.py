"""Coding agents that finish a task with a model without tools that answers badly at first.

Each agent is started by `toolspeak run` against a gateway in a process of its own. The model behind
it is a script: plain chat that writes a call only in the form that it was taught in the prompt.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toolspeak import Event, Finish, Request, TextDelta, render_calls
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure, ToolCall

PROGRAMS = Path(__file__).parent / "node_modules" / ".bin"
TASK = "Use your shell tool to create the file marker.txt in this folder, then say Finished."
COMMAND = "touch marker.txt"
SECONDS = 150


class CodingAgent(NamedTuple):
    """How a client runs one task without questions, and its shell tool."""

    arguments: list[str]
    tool: str
    parameters: dict[str, Any]
    env: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default is shared by design


AGENTS = {
    "claude": CodingAgent(
        ["-p", TASK, "--dangerously-skip-permissions"],
        "Bash",
        {"command": COMMAND, "description": "Create the file"},
        {"IS_SANDBOX": "1"},
    ),
    "codex": CodingAgent(
        [
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            TASK,
        ],
        "exec_command",
        {"cmd": COMMAND},
    ),
    "gemini": CodingAgent(
        ["-p", TASK, "--yolo", "--skip-trust"], "run_shell_command", {"command": COMMAND}
    ),
    "opencode": CodingAgent(
        ["run", TASK],
        "bash",
        {"command": COMMAND, "description": "Create the file"},
    ),
    "qwen": CodingAgent(
        ["-p", TASK, "--yolo"], "run_shell_command", {"command": COMMAND, "is_background": False}
    ),
}


class UnreliableModel:
    """Plain chat whose first answer to the task is bad.

    `tools` says what its server does with the `tools` of a request: "refuse" or "ignore".
    """

    def __init__(self, agent: CodingAgent, fault: str, tools: str, marker: Path) -> None:
        self._agent = agent
        self._fault = fault
        self._tools = tools
        self._marker = marker
        self.asked: list[str] = []
        """How the model was offered its tools in each request about the task."""

    def answer(self, request: Request) -> Iterable[Event]:
        if request.tools and self._tools == "refuse":
            return [Failure("bad_request", "this model does not support tools", 400)]
        text = "\n".join(_read_texts(request))
        is_taught = "~~~tool_call" in text
        if not (request.tools or is_taught) or TASK not in text:
            return [TextDelta("A file"), Finish("stop")]
        self.asked.append("native" if request.tools else "prompt")
        if self._marker.exists():
            return [TextDelta("Finished."), Finish("stop")]
        if len(self.asked) == 1 or (self._fault == "refusal" and not is_taught):
            return self._answer_badly()
        return [TextDelta(self._write_call(self._agent.parameters)), Finish("stop")]

    def _write_call(self, arguments: dict[str, Any]) -> str:
        call = ToolCall(id="call_1", name=self._agent.tool, arguments=arguments)
        return render_calls("tagged", [call])

    def _answer_badly(self) -> list[Event]:
        call = self._write_call(self._agent.parameters)
        match self._fault:
            case "refusal":
                text = "I'm sorry, but I don't have access to any tools."
            case "malformed":
                text = re.sub(r'"(command|cmd)": ?"[^"]*"', r'"\1": ', call)
                assert text != call
            case "wrong-type":
                main = next(iter(self._agent.parameters))
                text = self._write_call({**self._agent.parameters, main: {"run": [COMMAND]}})
            case "cut-off":
                return [TextDelta(call[: call.index(COMMAND) + 5]), Finish("length")]
            case _:
                raise AssertionError(self._fault)
        return [TextDelta(text), Finish("stop")]


def _read_texts(request: Request) -> Iterable[str]:
    for message in request.messages:
        for part in message.parts:
            yield getattr(part, "text", "")


@contextmanager
def run_gateway(folder: Path, upstream: str, mode: str) -> Generator[str, None, None]:
    """Run `toolspeak serve` with one model, and yield its URL."""
    settings = f"""
        [upstreams.plain]
        wire = "openai_chat"
        base_url = "{upstream}/v1"
        [models.plain-model]
        upstream = "plain"
        tools = "{mode}"
        context_window = 200000
    """
    (folder / "toolspeak.toml").write_text(settings.replace("\n        ", "\n"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", str(port)]
    with (
        (folder / "gateway.log").open("w") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url, process)
            yield url
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "the gateway ended"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the gateway did not start")


def run_agent(name: str, agent: CodingAgent, url: str, home: Path, folder: Path) -> str:
    """Run a client on the task and return what it prints."""
    kept = ("LANG", "SSL_CERT_FILE", "TERM")
    env = {key: os.environ[key] for key in kept if key in os.environ} | agent.env
    env |= {"HOME": str(home), "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    env |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    command = [sys.executable, "-m", "toolspeak", "run", name, "--url", url, "--model"]
    command += ["plain-model", "--", *agent.arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


FAULTS = ("refusal", "malformed", "wrong-type", "cut-off")
UPSTREAMS = {
    "prompt": ("prompt", "refuse"),
    "refuses": ("auto", "refuse"),
    "ignores": ("auto", "ignore"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("name", AGENTS)
def test_agent_finishes_its_task_after_a_bad_first_answer(
    name: str, upstream: str, fault: str, tmp_path: Path
) -> None:
    if not (PROGRAMS / name).exists():
        pytest.skip(f"{name} is not installed: `npm install` in clients/")
    home, folder, gateway = (tmp_path / part for part in ("home", "work", "gateway"))
    for path in (home, folder, gateway):
        path.mkdir()
    mode, tools = UPSTREAMS[upstream]
    agent = AGENTS[name]
    model = UnreliableModel(agent, fault, tools, folder / "marker.txt")
    with ScriptedServer(model.answer) as server, run_gateway(gateway, server.url, mode) as url:
        printed = run_agent(name, agent, url, home, folder)
    assert not server.problems
    assert (folder / "marker.txt").exists(), printed
    assert "Finished" in printed
    assert len(model.asked) <= 5, model.asked
