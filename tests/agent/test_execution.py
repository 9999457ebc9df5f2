"""Running tools: what they raise and return, and their time limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from tests.agent.scripted import (
    Script,
    get_results,
    make_agent,
    make_call,
    make_tool,
    raise_in_tool,
    run_tool_call,
)
from toolspeak import (
    Image,
    Text,
    ToolResult,
    UsageError,
)
from toolspeak.agent import (
    FatalToolError,
)
from toolspeak.agent.tools import ToolHandler


def return_from_tool(value: Any) -> ToolHandler:
    return lambda arguments: value


def raise_later_in_tool(problem: BaseException) -> ToolHandler:
    async def handler(arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        raise problem

    return handler


@pytest.mark.parametrize("handled", [raise_in_tool, raise_later_in_tool])
@pytest.mark.parametrize(
    ("problem", "result"),
    [
        (TimeoutError("the socket"), "`f` failed: TimeoutError: the socket"),
        (SystemExit(2), "`f` failed: SystemExit: 2"),
        (asyncio.CancelledError(), "`f` failed: it was cancelled."),
        (UsageError("no such page"), "`f` failed: no such page"),
        (ExceptionGroup("several", [ValueError("a")]), "`f` failed: ExceptionGroup: several"),
        (KeyError("x"), "`f` failed: KeyError: 'x'"),
    ],
)
def test_exception_in_tool_is_reported(handled: Any, problem: BaseException, result: str) -> None:
    assert run_tool_call(handled(problem)).startswith(result)
    assert run_tool_call(handled(problem), timeout=None).startswith(result)


def test_stop_iteration_in_tool_is_reported() -> None:
    assert "StopIteration" in run_tool_call(raise_in_tool(StopIteration("no more")))


def test_fatal_error_in_exception_group_ends_the_run() -> None:
    group = ExceptionGroup("several", [ValueError("a"), FatalToolError("the disk is gone")])
    run = make_agent(Script([make_call("f")]), make_tool("f", raise_in_tool(group))).run_sync("Go.")
    assert (run.stop, run.error) == ("fatal", "the disk is gone")


def test_timeout_none_and_zero_are_different() -> None:
    assert "did not finish within 0 s" in run_tool_call(lambda _: time.sleep(0.2), timeout=0)


class Person(BaseModel):
    name: str


async def _pages(arguments: dict[str, Any]) -> AsyncIterator[str]:
    yield "one"
    yield "two"


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (return_from_tool([Person(name="Ada")]), '[{"name":"Ada"}]'),
        (return_from_tool(Person(name="Ada")), '{"name":"Ada"}'),
        (return_from_tool(n for n in (1, 2)), "[1,2]"),
        (_pages, '["one","two"]'),
    ],
)
def test_unusual_return_value_becomes_result(handler: ToolHandler, result: str) -> None:
    assert run_tool_call(handler) == result


def test_result_limit_counts_all_parts() -> None:
    script = Script([make_call("f")], "Done.")
    parts = [Text("a" * 500), Text("b" * 500)]
    make_agent(script, make_tool("f", lambda _: parts), result_limit=100).run_sync("Go.")
    assert len(get_results(script.requests[1])[0]) < 250
    for limit in (0, 1, 3):
        assert len(run_tool_call(lambda _: "x" * 500, result_limit=limit)) < 60


def test_tool_error_is_reported_and_run_continues() -> None:
    tries: list[int] = []

    def flaky(arguments: dict[str, Any]) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("the line is dead")
        return "fine"

    model = Script([make_call("flaky")], [make_call("flaky", "again")], "Fine.")
    run = make_agent(model, make_tool("flaky", flaky)).run_sync("Go.")
    assert get_results(model.requests[1]) == ["`flaky` failed: ConnectionError: the line is dead"]
    assert get_results(model.requests[2])[-1] == "fine"
    assert run.text == "Fine."


def test_timeout_is_reported() -> None:
    async def slow(arguments: dict[str, Any]) -> str:
        await asyncio.sleep(30)
        return "never"

    script = Script([make_call("slow")], "It took too long.")
    run = make_agent(script, make_tool("slow", slow, timeout=0.05)).run_sync("Go.")
    assert get_results(script.requests[1]) == ["`slow` did not finish within 0.05 s."]
    assert run.stop == "answer"


def test_blocking_tool_after_timeout_is_left_running() -> None:
    ended = threading.Event()

    def slow(arguments: dict[str, Any]) -> str:
        ended.wait(20)
        return "never"

    async def run() -> list[str]:
        script = Script([make_call("slow")], "It took too long.")
        await make_agent(script, make_tool("slow", slow), timeout=0.05).run("Go.")
        ended.set()
        return get_results(script.requests[1])

    assert asyncio.run(run()) == ["`slow` did not finish within 0.05 s. It may still be running."]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", "text"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (3.5, "3.5"),
        (None, "(The tool ran without output.)"),
        ("", "(The tool ran without output.)"),
        (b"bytes", "bytes"),
        ({1: {2}}, '{"1":[2]}'),
        (Text("a part"), "a part"),
    ],
)
def test_return_value_of_any_type_becomes_result(value: Any, result: str) -> None:
    script = Script([make_call("give")], "Done.")
    make_agent(script, make_tool("give", lambda _: value)).run_sync("Go.")
    assert get_results(script.requests[1]) == [result]


def test_returned_image_becomes_result() -> None:
    script = Script([make_call("draw")], "A cat.")
    picture = Image(data="aGk=", media_type="image/png")
    run = make_agent(script, make_tool("draw", lambda _: [Text("here"), picture])).run_sync("Go.")
    [given] = run.messages[2].parts
    assert isinstance(given, ToolResult)
    assert given.content == (Text("here"), picture)


def test_long_result_is_shortened_in_the_middle() -> None:
    script = Script([make_call("give")], "Done.")
    make_agent(
        script, make_tool("give", lambda _: "a" * 500 + "b" * 500), result_limit=100
    ).run_sync("Go.")
    [result] = get_results(script.requests[1])
    assert result.startswith("a" * 75)
    assert result.endswith("b" * 25)
    assert "900 characters omitted" in result
