"""Agents with tools of MCP servers, which the tests start and kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
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


def toys(**options: Any) -> McpServer:
    return McpServer.stdio("toys", sys.executable, [SDK], startup_timeout=LONG, **options)


def raw(**options: Any) -> McpServer:
    return McpServer.stdio("raw", sys.executable, [RAW], startup_timeout=LONG, **options)


@asynccontextmanager
async def opened(server: McpServer) -> AsyncGenerator[McpServer]:
    await server.open()
    try:
        yield server
    finally:
        await server.close()
        assert len(asyncio.all_tasks()) == 1, "something is left running"


async def tools_of(server: McpServer) -> dict[str, AgentTool]:
    return {tool.name: tool for tool in await server.list_tools()}


async def give(server: McpServer, tool: str, /, **arguments: Any) -> Any:
    """Call a tool, looking it up each time as an agent does."""
    found = (await tools_of(server))[f"{server.name}__{tool}"]
    return await found.handler(arguments)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(LONG):
        while not await holds():
            await asyncio.sleep(0.01)


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
        agent = Agent(script, tools=[toys(), web], approval="full")
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
        ("toys__fail", {"why": "out of ink"}),
        ("toys__die", {}),
        ("toys__add", {"a": 2, "b": 2}),
    )
    agent = Agent(script, tools=[toys()], approval="full")
    agent.run_sync("Try.")
    failed, died, added = script.results()
    assert failed.is_error
    assert failed.text == "`toys__fail` failed: Error executing tool fail: out of ink"
    assert died.is_error
    assert died.text == (
        "`toys__die` failed: MCP server 'toys' was lost during the call. "
        "The call may or may not have been executed. Check before you call it again."
    )
    assert (added.is_error, added.text) == (False, "2 + 2 = 4")


def test_agent_opened_in_one_task_can_be_closed_in_another() -> None:
    async def work() -> None:
        agent = Agent(Script(("raw__pid", {})), tools=[raw()], approval="full")
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
    Agent(script, tools=[raw(trust_hints=trusted)], approval="read_only").run_sync("Which?")
    (result,) = script.results()
    assert result.text.isdecimal() == is_run
    assert result.is_error != is_run


@pytest.mark.parametrize("trusted", [True, False])
def test_hints_count_only_with_trust_hints(trusted: bool) -> None:
    async def work() -> None:
        async with opened(raw(trust_hints=trusted)) as server:
            found = await tools_of(server)
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
        async with opened(toys()) as server:
            (picture,) = await give(server, "picture")
            assert picture == Image(data="iVBORw==", media_type="image/png")
            text, paper, recording = await give(server, "papers")
            assert text == Text("Two things:")
            assert (paper.title, paper.text[:8]) == ("file:///a.txt", "api_key=")
            assert recording == Document(data="AAAA", media_type="audio/wav")
            assert await give(server, "structured") == '{"a":[1,2]}'
            with pytest.raises(ToolError, match="no luck"):
                await give(server, "fail", why="no luck")
            process = await give(server, "pid")
            with pytest.raises(ToolError, match=r"half \? of a letter"):
                await give(server, "fail", why="half \ud800 of a letter")
            deep: list[Any] = []
            for _ in range(5000):
                deep = [deep]
            with pytest.raises(ToolError, match="nested too deeply"):
                await give(server, "fail", why=deep)
            assert await give(server, "pid") == process

    run(work())


def test_misbehaving_server_is_reported() -> None:
    async def work() -> None:
        async with opened(raw()) as server:
            process = await give(server, "pid")
            assert await give(server, "twice") == "twice was called"
            assert await give(server, "link") == "b (file:///b): the rest"
            assert await give(server, "blob") == (Image(data="AAAA", media_type="image/png"),)
            assert await give(server, "mute") == ""
            # The server uses the SDK's code for closed connections.
            with pytest.raises(ToolError, match=r"^the disk is full$"):
                await give(server, "old_code")
            for name in ("promise", "nonsense"):
                with pytest.raises(McpServerError, match="sent an invalid response"):
                    await give(server, name)
            assert await give(server, "noise") == "noisy"
            assert await give(server, "pid") == process

    run(work())


def test_secrets_in_embedded_resources_are_scrubbed() -> None:
    script = Script(("toys__papers", {}))
    Agent(script, tools=[toys()], approval="full").run_sync("Read.")
    (result,) = script.results()
    assert "sk-abcdefghijklmnop1234" not in result.text
    assert "api_key=" in result.text


# The list of tools.


def test_all_pages_are_listed_with_valid_names() -> None:
    async def work() -> None:
        async with opened(raw()) as server:
            names = list(await tools_of(server))
            assert len(names) == len(set(names)) == 17
            assert names[:3] == ["raw__a_b_02310318", "raw__a_b", "raw__a_b_a050a8b4"]
            assert await give(server, names[0].removeprefix("raw__")) == "a.b was called"

    run(work())


def test_changed_tool_list_is_read_again() -> None:
    async def work() -> None:
        with http_server() as running:
            web = McpServer.http("web", running.url, startup_timeout=LONG)
            for server, change in ((toys(), "grow"), (web, "grow"), (raw(), "change")):
                async with opened(server):
                    name = "fresh" if change == "grow" else "late"
                    assert f"{server.name}__{name}" not in await tools_of(server)
                    await give(server, change, **({"name": name} if change == "grow" else {}))

                    async def is_there() -> bool:
                        return f"{server.name}__{name}" in await tools_of(server)  # noqa: B023

                    await until(is_there)
                    assert await give(server, name)

    run(work())


# Several at once, and too long.


def test_calls_run_in_parallel() -> None:
    async def work() -> None:
        async with opened(toys()) as server:
            began = time.monotonic()
            waits = [give(server, "wait", seconds=0.4 + i / 100) for i in range(5)]
            assert await asyncio.gather(*waits) == [f"waited {0.4 + i / 100:g}" for i in range(5)]
            assert time.monotonic() - began < 1.9

    run(work())


def test_cancelled_call_does_not_affect_others() -> None:
    async def work() -> None:
        async with opened(toys()) as server:
            process = await give(server, "pid")
            other = asyncio.create_task(give(server, "wait", seconds=0.3))
            given_up = asyncio.create_task(give(server, "wait", seconds=600))
            await asyncio.sleep(0.1)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert await other == "waited 0.3"
            assert await give(server, "pid") == process

    run(work())


def test_server_timeout_is_reported() -> None:
    script = Script(("toys__wait", {"seconds": 600}), ("toys__add", {"a": 1, "b": 1}))
    Agent(script, tools=[toys(timeout=0.3)], approval="full").run_sync("Wait.")
    waited, added = script.results()
    assert waited.is_error
    assert "MCP server 'toys' did not answer within 0.3 s." in waited.text
    assert added.text == "1 + 1 = 2"


def test_agent_timeout_is_reported() -> None:
    script = Script(("toys__wait", {"seconds": 600}), ("toys__add", {"a": 1, "b": 1}))
    Agent(script, tools=[toys()], approval="full", timeout=0.3).run_sync("Wait.")
    waited, added = script.results()
    assert waited.text == "`toys__wait` did not finish within 0.3 s."
    assert added.text == "1 + 1 = 2"


def test_stuck_server_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_CHECK_TIMEOUT", 0.3)

    async def work() -> None:
        async with opened(raw(timeout=0.3)) as server:
            process = await give(server, "pid")
            with pytest.raises(McpServerError, match=r"did not answer within 0\.3 s"):
                await give(server, "deaf")
            server._timeout = None  # pyright: ignore[reportPrivateUsage]
            assert await give(server, "pid") != process
            assert not is_running(int(process))

    run(work())


# Servers that die.


def test_server_killed_between_calls_is_restarted() -> None:
    async def work() -> None:
        async with opened(raw()) as server:
            for _ in range(2):
                process = int(await give(server, "pid"))
                os.kill(process, signal.SIGKILL)

                async def is_noticed() -> bool:
                    return not (server._session and server._session.is_alive)  # pyright: ignore

                await until(is_noticed)
                assert int(await give(server, "pid")) != process

    run(work())


def test_server_killed_during_calls_fails_them() -> None:
    async def work() -> None:
        async with opened(toys()) as server:
            process = int(await give(server, "pid"))
            calls = [asyncio.create_task(give(server, "wait", seconds=600)) for _ in range(3)]
            await asyncio.sleep(0.2)
            os.kill(process, signal.SIGKILL)
            for problem in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(problem, McpServerError)
                assert "was lost during the call" in str(problem)
            again = await asyncio.gather(*(give(server, "pid") for _ in range(3)))
            assert len(set(again)) == 1
            assert again[0] != str(process)

    run(work())


def test_http_server_restarted_is_used_again() -> None:
    async def work() -> None:
        with http_server() as running:
            async with opened(McpServer.http("web", running.url, startup_timeout=LONG)) as server:
                call = asyncio.create_task(give(server, "wait", seconds=600))
                await asyncio.sleep(0.3)
                running.kill()
                with pytest.raises(McpServerError, match="'web' was lost during the call"):
                    await call
                with pytest.raises(McpServerError, match="'web' cannot be reached"):
                    await give(server, "pid")
                assert "web__pid" in await tools_of(server)
                running.start()
                assert int(await give(server, "pid"))
                running.kill()
                running.start()
                assert int(await give(server, "pid"))

    run(work())


def test_call_that_was_sent_is_not_repeated() -> None:
    """One call is running when another finds the server unreachable."""

    async def work() -> None:
        with raw_http() as running:
            async with opened(McpServer.http("raw", running.url)) as server:
                running.gate = threading.Event()
                sent = asyncio.create_task(give(server, "slow"))
                while not running.raw.called:
                    await asyncio.sleep(0.01)
                running.refuse()
                with pytest.raises(McpServerError, match="cannot be reached"):
                    await give(server, "twice")
                with pytest.raises(McpServerError, match="was lost during the call"):
                    await sent
                running.gate.set()
            assert running.raw.called == ["slow"]

    run(work())


@pytest.mark.parametrize("unknown", [(404, -32600), (404, -32001), (400, -32600), (400, -32000)])
def test_forgotten_session_is_started_again(unknown: tuple[int, int]) -> None:
    async def work() -> None:
        with raw_http() as running:
            running.unknown = unknown
            async with opened(McpServer.http("raw", running.url)) as server:
                assert await give(server, "twice") == "twice was called"
                running.sessions.clear()
                assert await give(server, "twice") == "twice was called"
                assert running.opened == 2

    run(work())


def test_http_errors_are_reported() -> None:
    async def work() -> None:
        with raw_http() as running:
            headers = {"authorization": "Bearer abc"}
            async with opened(McpServer.http("raw", running.url, headers=headers)) as server:
                for status in (503, 500, 401):
                    running.status = status
                    with pytest.raises(McpServerError, match=f"'raw' failed with HTTP {status}"):
                        await give(server, "twice")
                running.status = 0
                assert await give(server, "twice") == "twice was called"
                assert {one["authorization"] for one in running.asked} == {"Bearer abc"}

    run(work())


def test_failing_server_is_backed_off(tmp_path: Path) -> None:
    """The program works once and never again."""
    flag = tmp_path / "started"
    code = f"import os, runpy; os.mkdir({str(flag)!r}); runpy.run_path({SDK!r}, None, '__main__')"
    server = McpServer.stdio("once", sys.executable, ["-c", code], startup_timeout=LONG)

    async def work() -> None:
        async with opened(server):
            for wanted in ("was lost", "cannot be started", "cannot be started"):
                with pytest.raises(McpServerError, match=wanted) as caught:
                    await give(server, "die")
                # The model does not see details of this machine.
                assert sys.executable not in str(caught.value)
            backoff = server._backoff  # pyright: ignore[reportPrivateUsage]
            assert 0 < backoff.seconds_left <= 2
            for _ in range(4):
                backoff.record_failure()
            with pytest.raises(McpServerError, match=r"tried again in \d+ s"):
                await give(server, "die")

    run(work())


# Servers that do not start.


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
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
    command: str, arguments: list[str], told: list[str]
) -> None:
    seconds = 0.3 if "0.3" in told[0] else LONG
    server = McpServer.stdio("bad", command, arguments, startup_timeout=seconds)

    async def work() -> None:
        with pytest.raises(McpServerError) as caught:
            await server.open()
        assert str(caught.value).startswith("MCP server 'bad' cannot be started: `")
        for text in told:
            assert text in str(caught.value)
        assert len(asyncio.all_tasks()) == 1

    run(work())


@pytest.mark.parametrize(
    ("status", "told"),
    [(503, "HTTP 503"), (401, "HTTP 401 .*check its headers"), (404, "HTTP 404")],
)
def test_unreachable_url_is_reported(status: int, told: str) -> None:
    async def work() -> None:
        with raw_http() as running:
            running.status = status
            with pytest.raises(McpServerError, match=f"'web' cannot be reached: http.*{told}"):
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
    assert Agent(script, tools=[missing, raw()], approval="full").run_sync("Which?").text
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("MCP server 'missing' cannot be started: `no-such-program`")
    assert warning.endswith("The agent continues without it.")


def test_required_server_that_fails_raises() -> None:
    missing = McpServer.stdio("missing", "no-such-program")
    with pytest.raises(McpServerError, match="missing"):
        Agent(Script(), tools=[raw(), missing], approval="full").run_sync("Add.")


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


# What programs get, and leave behind.


def test_server_does_not_inherit_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def work() -> None:
        async with opened(raw(env={"MINE": "yes"}, cwd=tmp_path)) as server:
            assert await give(server, "variable", name="OPENAI_API_KEY") == (
                f"(not set) in {tmp_path}"
            )
            assert (await give(server, "variable", name="MINE")).startswith("yes")
            assert "(not set)" not in await give(server, "variable", name="PATH")

    run(work())


def test_interrupted_agent_leaves_nothing_running() -> None:
    async def work() -> None:
        server = toys()
        agent = Agent(Script(("toys__wait", {"seconds": 600})), tools=[server], approval="full")
        running = asyncio.create_task(agent.run("Wait."))

        async def is_waiting() -> bool:
            session = server._session  # pyright: ignore[reportPrivateUsage]
            return bool(session and session._open_calls)  # pyright: ignore[reportPrivateUsage]

        await until(is_waiting)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    run(work())


def test_closed_server_is_not_used() -> None:
    async def work() -> None:
        server = raw()
        async with opened(server):
            tool = (await tools_of(server))["raw__pid"]
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
        asyncio.run(toys().open())
