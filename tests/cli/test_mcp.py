"""`toolspeak mcp`, used by clients of the official SDK."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import TextContent

from tests.config.config_files import isolate_settings
from tests.engine.models import prompted
from toolspeak.agent import Agent, McpServer
from toolspeak.agent.mcp.export import create_server
from toolspeak.cli import main, mcp
from toolspeak.cli.terminal import ConfigSource, open_status_console
from toolspeak.testing import ScriptedServer
from toolspeak.types import Request, ToolCall

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
COMMAND = ["-m", "toolspeak", "mcp", "--no-embedded"]
Call = Callable[..., Coroutine[Any, Any, tuple[bool, Any]]]


def environment() -> dict[str, str]:
    """Return the variables that the program needs, without the user's own keys."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}


def read_results(client: Client) -> Call:
    async def call(name: str, /, **arguments: Any) -> tuple[bool, Any]:
        """Return True if it is an error, and the content; JSON is decoded."""
        result = await client.call_tool(name, arguments)
        (part,) = result.content
        assert isinstance(part, TextContent)
        try:
            return result.is_error, json.loads(part.text)
        except ValueError:
            return result.is_error, part.text

    return call


@pytest.fixture
def call_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a tool in this process: its result is the same over every transport."""
    isolate_settings(tmp_path, monkeypatch)

    async def call(name: str, /, **arguments: Any) -> tuple[bool, Any]:
        async with Client(create_test_server()) as client:
            return await read_results(client)(name, **arguments)

    return call


def create_test_server() -> Any:
    options = Namespace(config=None, gguf=None, embedded=False)
    settings = ConfigSource(options, open_status_console())
    return create_server("test", "", mcp._list_tools(settings))  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def set_source_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make programs that start in another folder use the same sources."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(one).absolute()) for one in paths))


def test_tools_do_what_the_commands_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_settings(tmp_path, monkeypatch)

    async def use_tools(client: Client) -> None:
        call = read_results(client)
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["parse", "convert", "render", "dialects", "probe"]
        hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
        assert [hint.read_only_hint for hint in hints.values()] == [True] * 4 + [False]
        assert [hint.open_world_hint for hint in hints.values()] == [False] * 4 + [True]
        assert tools["parse"].input_schema["required"] == ["text"]

        failed, result = await call("parse", text=f"Hi {CALL}")
        assert not failed
        assert (result["text"], result["dialect"]) == ("Hi ", "hermes")
        assert result["calls"][0]["arguments"] == {"a": 1}
        _, result = await call("parse", text=CALL, tools=[{"name": "g"}])
        assert result["rejected"][0]["code"] == "unknown-tool"
        _, result = await call("parse", text=CALL, tools='[{"name": "f"}]')
        assert result["calls"], "a list in a string is a list"

        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        _, result = await call("convert", value=body, source="openai_chat", target="anthropic")
        assert result["value"]["messages"] == [{"role": "user", "content": "Hi"}]
        assert result["notes"][0]["where"] == "$.max_tokens"
        tools_given = [{"name": "f", "input_schema": {}}]
        where = {"source": "anthropic", "target": "openai_chat", "kind": "tools"}
        _, result = await call("convert", value=tools_given, **where)
        assert result["value"][0]["function"]["name"] == "f"
        stream = 'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\n'
        _, result = await call("convert", value=stream, source="openai_chat", target="gemini")
        assert '"text":"Hi"' in result["value"]

        calls = [{"name": "f", "arguments": {"a": 1}}]
        _, text = await call("render", value=calls, dialect="hermes")
        assert CALL[11:-12] in text
        _, result = await call("dialects", model="qwen3-8b")
        assert [one["name"] for one in result] == ["hermes"]

    async def connect() -> None:
        async with Client(create_test_server()) as client:
            await use_tools(client)

    asyncio.run(connect())


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("parse", {}, 'not run: "text" is a required property'),
        ("parse", {"text": "x", "dialect": "klingon"}, "there is no dialect 'klingon'"),
        ("parse", {"text": "x", "trust": "blind"}, "not run: trust: "),
        ("parse", {"text": "x", "tools": [5]}, "Expected a tool, got `int` - at `$[0]`"),
        ("parse", {"text": "x", "context": [5]}, "at `$.context[0]`"),
        ("convert", {"value": 5, "source": "gemini", "target": "gemini"}, "Expected a JSON object"),
        ("convert", {"value": {}, "source": "smtp", "target": "gemini"}, "no API 'smtp'"),
        ("convert", {"value": "{", "source": "gemini", "target": "gemini"}, "JSON"),
        ("render", {"value": 5, "dialect": "hermes"}, "render"),
        ("dialects", {"names": ["klingon"]}, "there is no dialect 'klingon'"),
        ("probe", {"model": "nobody"}, "is not available"),
        ("fly", {}, "There is no tool 'fly'. Available tools include"),
    ],
)
def test_bad_input_is_an_error_that_names_it(
    name: str, arguments: dict[str, Any], message: str, call_tool: Call
) -> None:
    failed, text = asyncio.run(call_tool(name, **arguments))
    assert failed
    assert message in str(text)


def test_lone_surrogate_is_parsed(call_tool: Call) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>'
    failed, result = asyncio.run(call_tool("parse", text=text))
    assert not failed
    assert result["calls"][0]["name"] == "f"


def test_probe_returns_the_report(tmp_path: Path, call_tool: Call) -> None:
    with ScriptedServer(prompted("hermes", "<tool_call>")) as server:
        settings = f'[upstreams.m]\nwire = "openai_chat"\nbase_url = "{server.url}/v1"\n'
        (tmp_path / "toolspeak.toml").write_text(f'{settings}\n[models.m]\nupstream = "m"\n')
        failed, result = asyncio.run(call_tool("probe", model="m"))
    assert not failed, result
    assert (result["model"], result["saved"]) == ("m", None)
    assert result["mode"] in ("prompt", "native", "constrained")
    assert result["findings"]["native_tools"]


def test_agent_calls_a_tool_over_stdio(tmp_path: Path) -> None:
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


def test_missing_package_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "toolspeak.agent.mcp.export", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    assert main(["mcp"]) == 2
    assert "pip install 'toolspeak[agent]'" in capsys.readouterr().err
