"""Agents with tools of MCP servers, which the tests start and kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.servers.running import RAW, SDK, http_server, raw_http
from toolspeak import Document, Image, Request, Text, ToolCall, UsageError
from toolspeak.agent import Agent, AgentTool, McpServer, McpServerError, ToolError
from toolspeak.agent.mcp import session as sessions
from toolspeak.types import ToolResult

LONG = 60.0
"""Seconds for what should be immediate, on a busy machine."""


def create_sdk_server(**options: Any) -> McpServer:
    return McpServer.stdio("toys", sys.executable, [SDK], startup_timeout=LONG, **options)


def create_raw_server(**options: Any) -> McpServer:
    return McpServer.stdio("raw", sys.executable, [RAW], startup_timeout=LONG, **options)


@asynccontextmanager
async def open_server(server: McpServer) -> AsyncGenerator[McpServer]:
    await server.open()
    try:
        yield server
    finally:
        await server.close()
        assert len(asyncio.all_tasks()) == 1, "something is left running"


async def list_tools(server: McpServer) -> dict[str, AgentTool]:
    return {tool.name: tool for tool in await server.list_tools()}


async def call_tool(server: McpServer, tool: str, /, **arguments: Any) -> Any:
    """Call a tool, looking it up each time as an agent does."""
    found = (await list_tools(server))[f"{server.name}__{tool}"]
    return await found.handler(arguments)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(LONG):
        while not holds():
            await asyncio.sleep(0.01)


async def until_calls_are_open(server: McpServer, count: int) -> None:
    """Wait until the server's session has this many calls that are not answered yet."""

    def is_open() -> bool:
        session = server._session  # pyright: ignore[reportPrivateUsage]
        return session is not None and session._open_calls == count  # pyright: ignore[reportPrivateUsage]

    await until(is_open)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def run(work: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * LONG):
            await work

    asyncio.run(limited())


class Script:
    """A model that makes the given calls and then repeats the results."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self._calls = list(calls)
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        if self._calls:
            name, arguments = self._calls.pop(0)
            return [ToolCall(id=f"call_{len(self.requests)}", name=name, arguments=arguments)]
        return " | ".join(result.text for result in self.results())

    def results(self) -> list[ToolResult]:
        parts = (part for message in self.requests[-1].messages for part in message.parts)
        return [part for part in parts if isinstance(part, ToolResult)]


# Agents.


def test_agent_uses_tools_over_stdio_and_http() -> None:
    with http_server() as running:
        script = Script(("toys__add", {"a": 1, "b": 2}), ("web__add", {"a": 3, "b": 4}))
        web = McpServer.http("web", running.url, startup_timeout=LONG)
        agent = Agent(script, tools=[create_sdk_server(), web], approval="full")
        assert agent.run_sync("Add.").text == "1 + 2 = 3 | 3 + 4 = 7"
        first = script.requests[0].tools or ()
        described = {tool.name: tool for tool in first}
        assert described["toys__add"].description == "Add two numbers."
        assert described["web__add"].parameters["required"] == ["a", "b"]
        assert sum(tool.name.startswith("web__") for tool in first) == len(first) / 2
        # The same agent works again in another event loop.
        assert agent.run_sync("Again.").stop == "answer"


def test_agent_continues_after_tool_or_server_failure() -> None:
    script = Script(
        ("raw__fail", {"why": "out of ink"}),
        ("raw__die", {}),
        ("raw__add", {"a": 2, "b": 2}),
    )
    agent = Agent(script, tools=[create_raw_server()], approval="full")
    agent.run_sync("Try.")
    failed, died, added = script.results()
    assert failed.is_error
    assert failed.text == "`raw__fail` failed: out of ink"
    assert died.is_error
    assert died.text == (
        "`raw__die` failed: MCP server 'raw' disconnected during the call. "
        "The call may or may not have run. Check before you call it again."
    )
    assert (added.is_error, added.text) == (False, "2 + 2 = 4")


def test_agent_opened_in_one_task_can_be_closed_in_another() -> None:
    async def work() -> None:
        agent = Agent(Script(("raw__pid", {})), tools=[create_raw_server()], approval="full")
        await asyncio.create_task(agent.__aenter__())
        answer = await asyncio.create_task(agent.run("Which?"))
        assert is_running(int(answer.text))
        await asyncio.create_task(agent.__aexit__())
        assert not is_running(int(answer.text))
        assert len(asyncio.all_tasks()) == 1

    run(work())


@pytest.mark.parametrize(("trusted", "is_run"), [(True, True), (False, False)])
def test_read_only_agent_runs_trusted_reading_tools(trusted: bool, is_run: bool) -> None:
    script = Script(("raw__pid", {}))
    Agent(script, tools=[create_raw_server(trust_hints=trusted)], approval="read_only").run_sync(
        "Which?"
    )
    (result,) = script.results()
    assert result.text.isdecimal() == is_run
    assert result.is_error != is_run


@pytest.mark.parametrize("trusted", [True, False])
def test_hints_count_only_with_trust_hints(trusted: bool) -> None:
    async def work() -> None:
        async with open_server(create_raw_server(trust_hints=trusted)) as server:
            found = await list_tools(server)
            options = [found[f"raw__{name}"].options for name in ("pid", "link", "blob", "mute")]
            assert [one.writes for one in options] == (
                [False, False, True, True] if trusted else [True] * 4
            )
            assert [one.idempotent for one in options] == (
                [True, False, True, False] if trusted else [False] * 4
            )

    run(work())


# Results.


def test_result_content_is_converted() -> None:
    async def work() -> None:
        async with open_server(create_sdk_server()) as server:
            (picture,) = await call_tool(server, "picture")
            assert picture == Image(data="iVBORw==", media_type="image/png")
            text, paper, recording = await call_tool(server, "papers")
            assert text == Text("Two things:")
            assert (paper.title, paper.text[:8]) == ("file:///a.txt", "api_key=")
            assert recording == Document(data="AAAA", media_type="audio/wav")
            assert await call_tool(server, "structured") == '{"a":[1,2]}'
            with pytest.raises(ToolError, match="no luck"):
                await call_tool(server, "fail", why="no luck")
            process = await call_tool(server, "pid")
            with pytest.raises(ToolError, match=r"half \? of a letter"):
                await call_tool(server, "fail", why="half \ud800 of a letter")
            deep: list[Any] = []
            for _ in range(5000):
                deep = [deep]
            with pytest.raises(ToolError, match="nested too deeply"):
                await call_tool(server, "fail", why=deep)
            assert await call_tool(server, "pid") == process

    run(work())


def test_misbehaving_server_is_reported() -> None:
    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            process = await call_tool(server, "pid")
            assert await call_tool(server, "twice") == "twice was called"
            assert await call_tool(server, "link") == "b (file:///b): the rest"
            assert await call_tool(server, "blob") == (Image(data="AAAA", media_type="image/png"),)
            assert await call_tool(server, "mute") == ""
            # The server uses the SDK's code for closed connections.
            with pytest.raises(ToolError, match=r"^the disk is full$"):
                await call_tool(server, "old_code")
            for name in ("promise", "nonsense"):
                with pytest.raises(McpServerError, match="sent an invalid response"):
                    await call_tool(server, name)
            assert await call_tool(server, "noise") == "noisy"
            assert await call_tool(server, "pid") == process

    run(work())


def test_secrets_in_embedded_resources_are_scrubbed() -> None:
    script = Script(("raw__papers", {}))
    Agent(script, tools=[create_raw_server()], approval="full").run_sync("Read.")
    (result,) = script.results()
    assert "sk-abcdefghijklmnop1234" not in result.text
    assert "api_key=" in result.text


# The list of tools.


def test_all_pages_are_listed_with_valid_names() -> None:
    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            names = list(await list_tools(server))
            assert len(names) == len(set(names)) == 23
            assert names[:3] == ["raw__a_b_02310318", "raw__a_b", "raw__a_b_a050a8b4"]
            assert await call_tool(server, names[0].removeprefix("raw__")) == "a.b was called"

    run(work())


def test_changed_tool_list_is_read_again() -> None:
    async def work() -> None:
        with http_server() as running:
            web = McpServer.http("web", running.url, startup_timeout=LONG)
            for server, change in (
                (create_sdk_server(), "grow"),
                (web, "grow"),
                (create_raw_server(), "change"),
            ):
                async with open_server(server):
                    name = "fresh" if change == "grow" else "late"
                    assert f"{server.name}__{name}" not in await list_tools(server)
                    await call_tool(server, change, **({"name": name} if change == "grow" else {}))

                    async with asyncio.timeout(LONG):
                        while f"{server.name}__{name}" not in await list_tools(server):
                            await asyncio.sleep(0.01)
                    assert await call_tool(server, name)

    run(work())


# Parallel, cancelled and slow calls.


def test_calls_run_in_parallel() -> None:
    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            # Each call returns once five of them are running.
            assert (
                await asyncio.gather(*(call_tool(server, "meet") for _ in range(5))) == ["met"] * 5
            )

    run(work())


def test_cancelled_call_does_not_affect_others() -> None:
    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            process = await call_tool(server, "pid")
            other = asyncio.create_task(call_tool(server, "wait", seconds=0.3))
            cancelled = asyncio.create_task(call_tool(server, "wait", seconds=600))
            await until_calls_are_open(server, 2)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert await other == "waited 0.3"
            assert await call_tool(server, "pid") == process

    run(work())


def test_server_timeout_is_reported() -> None:
    script = Script(("raw__wait", {"seconds": 600}), ("raw__add", {"a": 1, "b": 1}))
    Agent(script, tools=[create_raw_server(timeout=1)], approval="full").run_sync("Wait.")
    waited, added = script.results()
    assert waited.is_error
    assert "MCP server 'raw' did not answer within 1 s." in waited.text
    assert added.text == "1 + 1 = 2"


def test_agent_timeout_is_reported() -> None:
    script = Script(("raw__wait", {"seconds": 600}), ("raw__add", {"a": 1, "b": 1}))
    Agent(script, tools=[create_raw_server()], approval="full", timeout=1).run_sync("Wait.")
    waited, added = script.results()
    assert waited.text == "`raw__wait` did not finish within 1 s."
    assert added.text == "1 + 1 = 2"


def test_stuck_server_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_CHECK_TIMEOUT", 0.3)

    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            process = await call_tool(server, "pid")
            server._timeout = 0.3  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(McpServerError, match=r"did not answer within 0\.3 s"):
                await call_tool(server, "deaf")
            server._timeout = None  # pyright: ignore[reportPrivateUsage]
            assert await call_tool(server, "pid") != process
            assert not is_running(int(process))

    run(work())


# Servers that die.


def test_server_killed_between_calls_is_restarted() -> None:
    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            for _ in range(2):
                process = int(await call_tool(server, "pid"))
                os.kill(process, signal.SIGKILL)

                await until(lambda: not (server._session and server._session._live_client))  # pyright: ignore
                assert int(await call_tool(server, "pid")) != process

    run(work())


def test_server_killed_during_calls_fails_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_server(create_raw_server()) as server:
            process = int(await call_tool(server, "pid"))
            flags = [tmp_path / name for name in "abc"]
            calls = [
                asyncio.create_task(call_tool(server, "wait", seconds=600, begun=str(flag)))
                for flag in flags
            ]
            await until(lambda: all(flag.exists() for flag in flags))
            os.kill(process, signal.SIGKILL)
            for problem in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(problem, McpServerError)
                assert "disconnected during the call" in str(problem)
            again = await asyncio.gather(*(call_tool(server, "pid") for _ in range(3)))
            assert len(set(again)) == 1
            assert again[0] != str(process)

    run(work())


def test_http_server_restarted_is_used_again(tmp_path: Path) -> None:
    async def work() -> None:
        with http_server() as running:
            async with open_server(
                McpServer.http("web", running.url, startup_timeout=LONG)
            ) as server:
                begun = tmp_path / "begun"
                wait = call_tool(server, "wait", seconds=600, begun=str(begun))
                call = asyncio.create_task(wait)
                await until(begun.exists)
                running.kill()
                with pytest.raises(McpServerError, match="'web' disconnected during the call"):
                    await call
                with pytest.raises(McpServerError, match="'web' cannot be reached"):
                    await call_tool(server, "pid")
                assert "web__pid" in await list_tools(server)
                running.start()
                assert int(await call_tool(server, "pid"))
                running.kill()
                running.start()
                assert int(await call_tool(server, "pid"))

    run(work())


def test_call_that_was_sent_is_not_repeated() -> None:
    """One call is running when another finds the server unreachable."""

    async def work() -> None:
        with raw_http() as running:
            async with open_server(McpServer.http("raw", running.url)) as server:
                running.gate = threading.Event()
                sent = asyncio.create_task(call_tool(server, "slow"))
                while not running.raw.called:
                    await asyncio.sleep(0.01)
                running.refuse()
                with pytest.raises(McpServerError, match="cannot be reached"):
                    await call_tool(server, "twice")
                with pytest.raises(McpServerError, match="disconnected during the call"):
                    await sent
                running.gate.set()
            assert running.raw.called == ["slow"]

    run(work())


@pytest.mark.parametrize("unknown", [(404, -32600), (404, -32001), (400, -32600), (400, -32000)])
def test_forgotten_session_is_started_again(unknown: tuple[int, int]) -> None:
    async def work() -> None:
        with raw_http() as running:
            running.unknown = unknown
            async with open_server(McpServer.http("raw", running.url)) as server:
                assert await call_tool(server, "twice") == "twice was called"
                running.sessions.clear()
                assert await call_tool(server, "twice") == "twice was called"
                assert running.opened == 2

    run(work())


def test_http_errors_are_reported() -> None:
    async def work() -> None:
        with raw_http() as running:
            headers = {"authorization": "Bearer abc"}
            async with open_server(McpServer.http("raw", running.url, headers=headers)) as server:
                for status in (503, 500, 401):
                    running.status = status
                    with pytest.raises(McpServerError, match=f"'raw' failed with HTTP {status}"):
                        await call_tool(server, "twice")
                running.status = 0
                assert await call_tool(server, "twice") == "twice was called"
                assert {one["authorization"] for one in running.headers} == {"Bearer abc"}

    run(work())


def test_server_that_cannot_be_restarted_is_reported(tmp_path: Path) -> None:
    """The program works once and never again."""
    flag = tmp_path / "started"
    code = f"import os, runpy; os.mkdir({str(flag)!r}); runpy.run_path({RAW!r}, None, '__main__')"
    server = McpServer.stdio("once", sys.executable, ["-c", code], startup_timeout=LONG)

    async def work() -> None:
        async with open_server(server):
            for problem in ("disconnected", "cannot be started", "cannot be started"):
                with pytest.raises(McpServerError, match=problem) as caught:
                    await call_tool(server, "die")
                # The model does not see details of this machine.
                assert sys.executable not in str(caught.value)

    run(work())


# Servers that do not start.


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("no-such-program", [], ["`no-such-program`", "No such file"]),
        (
            sys.executable,
            ["-c", "import sys; sys.exit('no key\\nset one')"],
            ["it ended before it answered", "Its last output:\n    no key\n    set one"],
        ),
        (sys.executable, ["-c", "print('hello')"], ["it ended before it answered"]),
        (sys.executable, ["-c", "import time; time.sleep(60)"], ["did not answer within 0.3 s"]),
        ("x", ["--token=ghp_abcdefghijklmnopqrstuvwxyz0123456789"], ["ghp_", "REDACTED"]),
    ],
)
def test_server_that_does_not_start_is_reported(
    command: str, arguments: list[str], expected: list[str]
) -> None:
    seconds = 0.3 if "0.3" in expected[0] else LONG
    server = McpServer.stdio("bad", command, arguments, startup_timeout=seconds)

    async def work() -> None:
        with pytest.raises(McpServerError) as caught:
            await server.open()
        assert str(caught.value).startswith("MCP server 'bad' cannot be started: `")
        for text in expected:
            assert text in str(caught.value)
        assert len(asyncio.all_tasks()) == 1

    run(work())


@pytest.mark.parametrize(
    ("status", "expected"),
    [(503, "HTTP 503"), (401, "HTTP 401 .*check its headers"), (404, "HTTP 404")],
)
def test_unreachable_url_is_reported(status: int, expected: str) -> None:
    async def work() -> None:
        with raw_http() as running:
            running.status = status
            with pytest.raises(McpServerError, match=f"'web' cannot be reached: http.*{expected}"):
                await McpServer.http("web", f"{running.url}?key=secret").open()
        with pytest.raises(
            McpServerError, match=r"'web' cannot be reached: http.*failed"
        ) as caught:
            await McpServer.http("web", f"{running.url}?key=secret").open()
        assert "secret" not in str(caught.value)

    run(work())


def test_optional_server_that_fails_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = McpServer.stdio("missing", "no-such-program", required=False)
    script = Script(("raw__pid", {}))
    assert (
        Agent(script, tools=[missing, create_raw_server()], approval="full").run_sync("Which?").text
    )
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("MCP server 'missing' cannot be started: `no-such-program`")
    assert warning.endswith("The agent continues without it.")


def test_required_server_that_fails_raises() -> None:
    missing = McpServer.stdio("missing", "no-such-program")
    with pytest.raises(McpServerError, match="missing"):
        Agent(Script(), tools=[create_raw_server(), missing], approval="full").run_sync("Add.")


def test_invalid_headers_are_rejected() -> None:
    for headers in ({"a b": "c"}, {"k": "sécret"}, {"k": "sec\nret"}):
        with pytest.raises(UsageError) as caught:
            McpServer.http("web", "http://127.0.0.1/mcp", headers=headers)
        assert "cret" not in str(caught.value)
    server = McpServer.http("web", "http://127.0.0.1/mcp", headers={"k": "secret\n"})
    assert "secret" not in repr(server)


def test_server_cancelled_during_start_is_stopped() -> None:
    async def work() -> None:
        server = McpServer.stdio("slow", sys.executable, ["-c", "import time; time.sleep(600)"])
        opening = asyncio.create_task(server.open())
        await asyncio.sleep(0.2)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert len(asyncio.all_tasks()) == 1

    run(work())


# The environment and the end of programs.


def test_server_does_not_inherit_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def work() -> None:
        async with open_server(create_raw_server(env={"MINE": "yes"}, cwd=tmp_path)) as server:
            assert await call_tool(server, "variable", name="OPENAI_API_KEY") == (
                f"(not set) in {tmp_path}"
            )
            assert (await call_tool(server, "variable", name="MINE")).startswith("yes")
            assert "(not set)" not in await call_tool(server, "variable", name="PATH")

    run(work())


def test_interrupted_agent_leaves_nothing_running() -> None:
    async def work() -> None:
        server = create_raw_server()
        agent = Agent(Script(("raw__wait", {"seconds": 600})), tools=[server], approval="full")
        running = asyncio.create_task(agent.run("Wait."))
        await until_calls_are_open(server, 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    run(work())


def test_closed_server_is_not_used() -> None:
    async def work() -> None:
        server = create_raw_server()
        async with open_server(server):
            tool = (await list_tools(server))["raw__pid"]
        with pytest.raises(McpServerError, match="'raw' is not open"):
            await tool.handler({})
        await server.close()

    run(work())


def test_missing_sdk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "toolspeak.agent.mcp.session")
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(Exception, match=r"MCP servers need mcp.*pip install 'toolspeak\[agent\]'"):
        asyncio.run(create_sdk_server().open())
