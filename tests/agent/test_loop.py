"""The loop: which calls run, what the model receives, and when a run ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.agent.scripted import (
    DirectModel,
    RecordingTool,
    Script,
    get_results,
    make_agent,
    make_call,
    make_tool,
    summarize_events,
)
from tests.gateway.running_gateway import make_config
from toolspeak import (
    Message,
    Reasoning,
    Reply,
    Request,
    Text,
    UsageError,
)
from toolspeak.agent import (
    Agent,
    AgentEvent,
    FatalToolError,
    FunctionModel,
    ToolCallRequested,
    Transcript,
    tool,
)
from toolspeak.agent.agent import LAST_TURN_INSTRUCTIONS
from toolspeak.events import unfold
from toolspeak.testing import ScriptedServer
from toolspeak.wires import WIRES


@tool(writes=False)
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"-5 °C in {city}"


# Calls and results.


def test_run_with_one_tool_call_ends_with_answer() -> None:
    model = Script([make_call("get_weather", city="Oslo")], "It is -5 °C.")
    run = make_agent(model, get_weather, instructions="Be short.").run_sync("Is it cold?")
    assert (run.text, run.stop, run.turns) == ("It is -5 °C.", "answer", 2)
    assert [message.role for message in run.messages] == ["user", "assistant", "tool", "assistant"]
    assert get_results(model.requests[1]) == ["-5 °C in Oslo"]
    assert model.requests[0].messages[0] == Message("system", (Text("Be short."),))


def test_call_in_text_is_run() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    model = Script(text, "Cold.")
    run = make_agent(model, get_weather).run_sync("Is it cold?")
    assert get_results(model.requests[1]) == ["-5 °C in Oslo"]
    assert run.text == "Cold."


def test_call_in_text_beside_native_call_stays_text() -> None:
    """Text beside a native call stays text, even if it looks like a call."""
    shown = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'
    model = Script([Text(shown), make_call("get_weather", city="Oslo")], "Cold.")
    make_agent(model, get_weather).run_sync("Is it cold?")
    assert get_results(model.requests[1]) == ["-5 °C in Oslo"]


def test_dependent_calls_run_in_successive_turns() -> None:
    lookup = RecordingTool(lambda given: {"a": "b", "b": "c", "c": "42"}[given["key"]])

    def next_step(request: Request) -> Any:
        found = get_results(request)[-1]
        return (
            f"It is {found}."
            if found == "42"
            else [make_call("lookup", f"call_{found}", key=found)]
        )

    model = Script([make_call("lookup", key="a")], next_step, next_step, next_step)
    run = make_agent(model, make_tool("lookup", lookup, "key")).run_sync("Follow a.")
    assert run.text == "It is 42."
    assert [given["key"] for given in lookup.calls] == ["a", "b", "c"]


def test_reading_tools_run_in_parallel_with_results_in_call_order() -> None:
    gate = threading.Barrier(3, timeout=20)

    def wait(key: str) -> str:
        gate.wait()
        time.sleep({"a": 0.06, "b": 0.03, "c": 0.0}[key])
        return key

    tools = make_tool("wait", lambda arguments: wait(**arguments), "key", writes=False)
    model = Script([make_call("wait", key, key=key) for key in "abc"], "Done.")
    run = make_agent(model, tools).run_sync("Go.")
    assert get_results(model.requests[1]) == ["a", "b", "c"]
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

    model = Script([make_call("write", key, key=key) for key in "ab"], "Done.")
    make_agent(model, make_tool("write", write, "key")).run_sync("Go.")
    assert seen == [["a"], ["b"]]


def test_unknown_tool_is_reported_with_similar_names() -> None:
    model = FunctionModel(Script([make_call("get_wether", city="Oslo")], "Sorry."), retries=0)
    script = model._function  # pyright: ignore[reportPrivateUsage]
    run = make_agent(model, get_weather).run_sync("Is it cold?")
    text = script.requests[1].messages[-1].parts[0].text  # pyright: ignore
    assert "get_weather" in text
    assert "get_wether" in text
    assert run.text == "Sorry."


def test_invalid_arguments_are_reported_with_their_path() -> None:
    script = Script([make_call("get_weather", town=3)], "Sorry.")
    make_agent(FunctionModel(script, retries=0), get_weather).run_sync("Is it cold?")
    assert "city" in script.requests[1].messages[-1].parts[0].text  # pyright: ignore


# Repetition and the turn limit.


@pytest.mark.parametrize(("idempotent", "runs"), [(True, 1), (False, 2)])
def test_equal_calls_of_a_turn_run_once_if_idempotent(idempotent: bool, runs: int) -> None:
    counted = RecordingTool()
    one = make_tool("count", counted, idempotent=idempotent)
    script = Script([make_call("count", "a"), make_call("count", "b")], "Done.")
    make_agent(script, one).run_sync("Go.")
    assert len(counted.calls) == runs
    assert get_results(script.requests[1]) == ["done", "done"]


def test_three_equal_rounds_end_the_run() -> None:
    counted = RecordingTool()
    rounds = [[make_call("count", str(number))] for number in range(3)]
    model = FunctionModel(Script(*rounds, "I give up."), retries=0)
    run = make_agent(model, make_tool("count", counted)).run_sync("Go.")
    assert (run.stop, run.text, len(counted.calls)) == ("repeated", "I give up.", 3)


def test_polling_tool_may_repeat_equal_calls() -> None:
    given = iter(["wait", "wait", "wait", "wait", "ready"])
    rounds = [[make_call("poll", str(number))] for number in range(5)]
    run = make_agent(
        Script(*rounds, "Ready."), make_tool("poll", lambda _: next(given), polling=True)
    ).run_sync("Go.")
    assert (run.stop, run.turns) == ("answer", 6)


def test_equal_calls_with_different_results_continue() -> None:
    counter = iter(range(9))
    rounds = [[make_call("count", str(number))] for number in range(5)]
    run = make_agent(
        Script(*rounds, "Done."), make_tool("count", lambda _: next(counter))
    ).run_sync("Go.")
    assert run.stop == "answer"


def test_turn_limit_gives_one_last_turn_without_tools() -> None:
    counter = iter(range(9))
    rounds = [[make_call("count", str(number))] for number in range(3)]
    script = Script(*rounds, "That is all I know.")
    run = make_agent(
        script, make_tool("count", lambda _: next(counter)), max_iterations=3, instructions="Count."
    ).run_sync("Go.")
    assert (run.stop, run.text, run.turns) == ("limit", "That is all I know.", 4)
    last = script.requests[-1]
    assert (last.tool_choice.mode, last.tools) == ("none", None)
    assert last.messages[0].parts == (Text(f"Count.\n\n{LAST_TURN_INSTRUCTIONS}"),)
    assert "turn limit" in run.stop_message


def test_calls_in_the_last_turn_are_not_run() -> None:
    counted = RecordingTool()
    script = Script([make_call("count", "a")], [Text("Well."), make_call("count", "b")])
    model = FunctionModel(script, retries=0)
    run = make_agent(model, make_tool("count", counted), max_iterations=1).run_sync("Go.")
    assert (run.stop, len(counted.calls)) == ("limit", 1)
    assert run.text == "Well."


COUNT_CALL = make_call("count", "b", up="to 3")
COUNT_BLOCK = '<tool_call>{"name": "count", "arguments": {"up": "to 3"}}</tool_call>'


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ([COUNT_CALL], ""),
        ([Text("Well."), COUNT_CALL], "Well."),
        ([COUNT_CALL, COUNT_CALL], ""),
        (f"Well. {COUNT_BLOCK}", "Well."),
        (f"{COUNT_BLOCK}\n{COUNT_BLOCK}", ""),
        ("count(1) is how I count.", "count(1) is how I count."),
    ],
)
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_calls_in_the_last_turn_are_not_the_answer(reply: Any, text: str, mode: Any) -> None:
    tool = make_tool("count", RecordingTool(), "up")
    script = Script([make_call("count", "a", up="to 2")], reply)
    run = make_agent(FunctionModel(script, tools=mode), tool, max_iterations=1).run_sync("Go.")
    assert (run.stop, run.text) == ("limit", text)
    has_dropped = any(note.code == "forbidden-call" for note in run.notes)
    assert has_dropped == (text != reply)
    assert ("gave no answer" in run.stop_message) == (not text)


@pytest.mark.parametrize("wire", WIRES)
def test_calls_in_the_last_turn_of_an_upstream_are_not_the_answer(wire: str) -> None:
    tool = make_tool("count", RecordingTool(), "up")
    turns = [[make_call("count", "a", up="to 2")], [Text("Well."), COUNT_CALL]]
    replies = [[*unfold(Reply(parts=tuple(parts), stop_reason="calls"))] for parts in turns]
    with ScriptedServer(*replies) as server:
        config = make_config(server.url, wire, tools="native")
        run = make_agent("m", tool, max_iterations=1, config=config).run_sync("Go.")
    assert (run.stop, run.text) == ("limit", "Well.")


def test_invalid_call_beside_valid_one_is_reported() -> None:
    counted = RecordingTool()
    script = Script([make_call("f", "a"), make_call("g", "b")], "Done.")
    model = FunctionModel(script, retries=0)
    make_agent(model, make_tool("f", counted)).run_sync("Go.")
    assert len(counted.calls) == 1
    [text] = script.requests[1].messages[-1].parts
    assert isinstance(text, Text)
    assert "g" in text.text


def test_calls_of_a_last_turn_are_never_run() -> None:
    counted = RecordingTool()
    one = make_agent(
        DirectModel([make_call("f")], [Text("So."), make_call("f", "b")], "Fine."),
        make_tool("f", counted),
    )
    one.max_iterations = 1
    first = one.run_sync("Go.")
    assert (first.stop, first.text) == ("limit", "So.")
    one.run_sync("And?", messages=first.messages)
    assert len(counted.calls) == 1


def test_repeated_call_id_is_replaced() -> None:
    counted = RecordingTool()
    model = DirectModel(
        [make_call("f", "x", n=1), make_call("f", "x", n=2)], [make_call("f", "x", n=3)], "Done."
    )
    run = make_agent(model, make_tool("f", counted)).run_sync("Go.")
    assert [given["n"] for given in counted.calls] == [1, 2, 3]
    assert len({made.id for made in run.calls}) == 3


def test_arguments_are_coerced_to_the_schema() -> None:
    seen: list[Any] = []

    @tool(writes=False)
    def f(n: int) -> str:
        seen.append(n)
        return "ok"

    make_agent(DirectModel([make_call("f", n="3")], "Done."), f).run_sync("Go.")
    assert seen == [3]


def test_arguments_that_are_not_json_are_reported() -> None:
    with pytest.raises(UsageError, match="JSON"):
        make_agent(
            DirectModel([make_call("f", x=object())]), make_tool("f", RecordingTool())
        ).run_sync("Go.")


def test_deeply_nested_arguments_are_reported() -> None:
    deep: dict[str, Any] = {}
    for _ in range(600):
        deep = {"a": deep}
    run = make_agent(
        DirectModel([make_call("f", x=deep)], "Done."), make_tool("f", RecordingTool())
    ).run_sync("Go.")
    assert run.text == "Done."


# The end of a run.


def test_fatal_tool_error_ends_the_run() -> None:
    def broken(arguments: dict[str, Any]) -> str:
        raise FatalToolError("the disk is gone")

    counted = RecordingTool()
    model = Script([make_call("broken"), make_call("count")])
    run = make_agent(model, make_tool("broken", broken), make_tool("count", counted)).run_sync(
        "Go."
    )
    assert counted.calls == []
    assert (run.stop, run.error, run.text) == ("fatal", "the disk is gone", "")
    assert "the disk is gone" in run.stop_message
    assert len([m for m in run.messages if m.role == "tool"]) == 2


def test_run_with_messages_continues_the_conversation() -> None:
    model = Script([make_call("get_weather", city="Oslo")], "Cold.", "Yes, still.")
    one = make_agent(model, get_weather)
    first = one.run_sync("Is it cold?")
    second = one.run_sync("And now?", messages=first.messages)
    assert second.text == "Yes, still."
    assert len(second.messages) == len(first.messages) + 2


def test_reasoning_is_emitted_and_stored() -> None:
    events: list[AgentEvent] = []

    async def collect() -> None:
        model = Script([Reasoning("hm"), Text("Hello.")])
        events.extend([event async for event in make_agent(model).stream("Hi.")])

    asyncio.run(collect())
    assert summarize_events(events) == ["ReasoningDelta", "TextDelta", "answer"]


def test_run_without_prompt_or_messages_is_rejected() -> None:
    with pytest.raises(UsageError, match="pass a prompt"):
        make_agent(Script()).run_sync()


def test_run_sync_in_running_loop_is_rejected() -> None:
    async def inside() -> None:
        make_agent(Script("x")).run_sync("Go.")

    with pytest.raises(UsageError, match=r"await agent\.run"):
        asyncio.run(inside())


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([3], r"got `int` - at `\$\.tools\[0\]`"),
        ([get_weather, get_weather], "two tools named 'get_weather'"),
        ([lambda: 1], "function with a name"),
    ],
)
def test_invalid_tools_are_rejected(tools: list[Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Agent(Script(), tools)


def test_stop_message_tells_a_truncated_reply() -> None:
    def cut_off(request: Request) -> Reply:
        return Reply(parts=(Text("It is"),), stop_reason="length")

    run = make_agent(cut_off).run_sync("Hi.")
    assert (run.stop, run.model_stop_reason) == ("answer", "length")
    assert "truncated" in run.stop_message


# Streams.


def test_events_arrive_in_order() -> None:
    events: list[AgentEvent] = []

    async def collect() -> None:
        model = Script([Text("Let me see."), make_call("get_weather", city="Oslo")], "Cold.")
        events.extend([event async for event in make_agent(model, get_weather).stream("Cold?")])

    asyncio.run(collect())
    wanted = ["TextDelta", "call get_weather", "result get_weather", "TextDelta", "answer"]
    assert summarize_events(events) == wanted


def test_stream_closed_at_a_call_does_not_run_it() -> None:
    counted = RecordingTool()

    async def stop() -> None:
        events = make_agent(Script([make_call("count")]), make_tool("count", counted)).stream("Go.")
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
        script = Script([make_call("slow")], "I see.")
        one = make_agent(script, make_tool("slow", slow))
        transcript = Transcript()
        task = asyncio.create_task(one.run("Go.", transcript=transcript))
        while not transcript.was_started(make_call("slow")):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await one.run("What now?", transcript=transcript)
        return get_results(script.requests[1])

    assert asyncio.run(run()) == ["`slow` was interrupted. It may have done part of its work."]
    assert cancelled == ["slow"]
