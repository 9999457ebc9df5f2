"""`toolspeak mcp`, as clients of the official SDK meet it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.engine.models import prompted
from toolspeak.agent import Agent, McpServer
from toolspeak.testing import ScriptedServer
from toolspeak.types import Request, ToolCall

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
COMMAND = ["-m", "toolspeak", "mcp", "--no-embedded"]
KEYS = {"TOOLSPEAK_KEYS": "a-key-for-tests"}
_PATIENCE = 60
Call = Callable[..., Coroutine[Any, Any, tuple[bool, Any]]]


def environment(**more: str) -> dict[str, str]:
    """What the program needs here, and no keys of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, **more}


def over_stdio(
    work: Callable[[Client, Call], Awaitable[None]], folder: Path, *options: str
) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=[*COMMAND, *options], env=environment(), cwd=folder
    )

    async def limited() -> None:
        async with asyncio.timeout(_PATIENCE), Client(parameters) as client:
            await work(client, caller(client))

    asyncio.run(limited())


def caller(client: Client) -> Call:
    async def call(name: str, /, **arguments: Any) -> tuple[bool, Any]:
        """Whether it is an error, and what it says; JSON as a value."""
        result = await client.call_tool(name, arguments)
        (part,) = result.content
        assert isinstance(part, TextContent)
        try:
            return result.is_error, json.loads(part.text)
        except ValueError:
            return result.is_error, part.text

    return call


@pytest.fixture(autouse=True)
def source_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are started in another folder use the same sources."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(one).absolute()) for one in paths))


def test_the_tools_over_stdio(tmp_path: Path) -> None:
    async def work(client: Client, call: Call) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["parse", "convert", "render", "dialects", "probe"]
        hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
        assert [hint.read_only_hint for hint in hints.values()] == [True] * 4 + [False]
        assert [hint.open_world_hint for hint in hints.values()] == [False] * 4 + [True]
        assert tools["parse"].input_schema["required"] == ["text"]

        failed, told = await call("parse", text=f"Hi {CALL}")
        assert not failed
        assert (told["text"], told["dialect"]) == ("Hi ", "hermes")
        assert told["calls"][0]["arguments"] == {"a": 1}
        _, told = await call("parse", text=CALL, tools=[{"name": "g"}])
        assert told["rejected"][0]["code"] == "unknown-tool"
        _, told = await call("parse", text=CALL, tools='[{"name": "f"}]')
        assert told["calls"], "a list in a string is a list"

        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        _, told = await call("convert", value=body, source="openai_chat", target="anthropic")
        assert told["value"]["messages"] == [{"role": "user", "content": "Hi"}]
        assert told["notes"][0]["where"] == "$.max_tokens"
        tools_given = [{"name": "f", "input_schema": {}}]
        where = {"source": "anthropic", "target": "openai_chat", "kind": "tools"}
        _, told = await call("convert", value=tools_given, **where)
        assert told["value"][0]["function"]["name"] == "f"
        stream = 'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\n'
        _, told = await call("convert", value=stream, source="openai_chat", target="gemini")
        assert '"text":"Hi"' in told["value"]

        calls = [{"name": "f", "arguments": {"a": 1}}]
        _, text = await call("render", value=calls, dialect="hermes")
        assert CALL[11:-12] in text
        _, told = await call("dialects", model="qwen3-8b")
        assert [one["name"] for one in told] == ["hermes"]

    over_stdio(work, tmp_path)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("parse", {}, '"text" is a required property - at `$`'),
        ("parse", {"text": "x", "dialect": "klingon"}, "there is no dialect 'klingon'"),
        ("parse", {"text": "x", "trust": "blind"}, "at `$.trust`"),
        ("parse", {"text": "x", "tools": [5]}, "Expected a tool, got `int` - at `$[0]`"),
        ("parse", {"text": "x", "context": [5]}, "at `$.context[0]`"),
        ("convert", {"value": 5, "source": "gemini", "target": "gemini"}, "Expected a JSON object"),
        ("convert", {"value": {}, "source": "smtp", "target": "gemini"}, "no wire 'smtp'"),
        ("convert", {"value": "{", "source": "gemini", "target": "gemini"}, "JSON"),
        ("render", {"value": 5, "dialect": "hermes"}, "render"),
        ("dialects", {"names": ["klingon"]}, "there is no dialect 'klingon'"),
        ("probe", {"model": "nobody"}, "is not available"),
        ("fly", {}, "There is no tool 'fly'. Similar tools"),
    ],
)
def test_bad_input_is_told(name: str, arguments: dict[str, Any], told: str, bad: Call) -> None:
    failed, text = asyncio.run(bad(name, **arguments))
    assert failed
    assert told in str(text)


@pytest.fixture
def bad() -> Call:
    """Calls in this process: what comes of bad input is the same over every transport."""
    from argparse import Namespace

    from rich.console import Console

    from toolspeak.agent.mcp.export import create_server
    from toolspeak.cli import mcp
    from toolspeak.cli.serve import ConfigSource

    options = Namespace(config=None, gguf=None, embedded=False)
    tools = list(mcp._list_tools(ConfigSource(options, Console(stderr=True))))  # pyright: ignore

    async def call(name: str, /, **arguments: Any) -> tuple[bool, Any]:
        async with Client(create_server("test", "", tools)) as client:
            return await caller(client)(name, **arguments)

    return call


def test_half_a_letter_is_no_crash(bad: Call) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>'
    failed, told = asyncio.run(bad("parse", text=text))
    assert not failed
    assert told["calls"][0]["name"] == "f"


def test_a_probe(tmp_path: Path) -> None:
    with ScriptedServer(prompted("hermes", "<tool_call>")) as server:
        settings = f'[upstreams.m]\nwire = "openai_chat"\nbase_url = "{server.url}/v1"\n'
        (tmp_path / "toolspeak.toml").write_text(f'{settings}\n[models.m]\nupstream = "m"\n')

        async def work(client: Client, call: Call) -> None:
            failed, told = await call("probe", model="m")
            assert not failed, told
            assert (told["model"], told["saved"]) == ("m", None)
            assert told["mode"] in ("prompt", "native", "constrained")
            assert told["findings"]["native_tools"]

        over_stdio(work, tmp_path)


def test_an_agent_uses_it(tmp_path: Path) -> None:
    def model(request: Request) -> Any:
        if len(request.messages) == 1:
            return ToolCall(id="call_1", name="toolspeak__parse", arguments={"text": CALL})
        return "Read."

    server = McpServer.stdio(
        "toolspeak", sys.executable, COMMAND, env=environment(), cwd=tmp_path, trust_hints=True
    )
    run = Agent(model, tools=[server], approval="read_only").run_sync("Read it.")
    assert run.text == "Read."
    assert '"name":"f"' in str(run.messages[2].parts[0])


# Over HTTP.


@contextmanager
def served(folder: Path, place: str, **environ: str) -> Generator[str]:
    command = [sys.executable, *COMMAND, "--http", place]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(**environ), cwd=folder
    )
    assert process.stdout
    try:
        yield process.stdout.readline().strip().replace("0.0.0.0", "127.0.0.1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(_PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def over_http(url: str, **headers: str) -> Any:
    async def work() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            _, told = await caller(client)("parse", text=CALL)
            return told["dialect"]

    return asyncio.run(work())


def test_over_http(tmp_path: Path) -> None:
    with served(tmp_path, "127.0.0.1:0") as url:
        assert over_http(url) == "hermes"
        with httpx2.Client(trust_env=False) as client:
            for headers in ({"origin": "https://example.org"}, {"host": "example.org"}):
                assert client.post(url, json={}, headers=headers).status_code == 403


def test_beyond_this_machine_only_with_a_key(tmp_path: Path) -> None:
    everywhere = "0.0.0.0:0"
    command = [sys.executable, *COMMAND, "--http", everywhere]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=_PATIENCE
    )
    assert done.returncode == 2
    assert "so clients need keys" in done.stderr
    with served(tmp_path, everywhere, **KEYS) as url:
        assert over_http(url, authorization="Bearer a-key-for-tests") == "hermes"
        with httpx2.Client(trust_env=False) as client:
            for headers in ({}, {"authorization": "Bearer another-key"}):
                assert client.post(url, json={}, headers=headers).status_code == 401


@pytest.mark.parametrize("place", ["8080", "host:", ":80", "h:99999", "h:x"])
def test_a_place_that_is_none(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    from toolspeak.cli import main

    assert main(["mcp", "--http", place]) == 2
    assert "Expected HOST:PORT" in capsys.readouterr().err


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toolspeak.cli import main

    monkeypatch.delitem(sys.modules, "toolspeak.agent.mcp.export", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    assert main(["mcp"]) == 2
    assert "pip install 'toolspeak[agent]'" in capsys.readouterr().err
