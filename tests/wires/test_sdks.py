"""The vendors' own SDKs against a server that answers with our encoders."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import ollama
import openai
import pytest
from google import genai

from tests.wires.scenarios import OSLO, SCENARIOS, Scenario, answer, called
from toolspeak import Failure, Finish, TextDelta, fold
from toolspeak.testing import ScriptedServer

Heard = dict[str, Any]
"""What an SDK made of a reply: text, thoughts, calls and the reason to stop."""

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PROMPT = "Weather in Oslo?"


def expected(scenario: Scenario) -> Heard:
    reply = fold(scenario.reply)
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "calls": [(call.name, dict(call.arguments)) for call in reply.calls],
    }


# OpenAI chat.


def chat_client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def chat_request() -> dict[str, Any]:
    function = {"name": "get_weather", "parameters": SCHEMA}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": function}],
    }


def chat_heard(message: Any) -> Heard:
    return {
        "text": message.content or "",
        "reasoning": getattr(message, "reasoning_content", None) or "",
        "calls": [
            (call.function.name, json.loads(call.function.arguments))
            for call in message.tool_calls or ()
        ],
    }


def chat_whole(url: str) -> Heard:
    with chat_client(url) as client:
        reply = client.chat.completions.create(**chat_request())
    assert reply.usage.total_tokens == 137
    return chat_heard(reply.choices[0].message)


def chat_stream(url: str) -> Heard:
    """The SDK's own accumulator checks the order of what it gets."""
    options = {"stream_options": {"include_usage": True}}
    reasoning: list[str] = []
    try:
        with (
            chat_client(url) as client,
            client.chat.completions.stream(**chat_request(), **options) as stream,
        ):
            for event in stream:
                if event.type == "chunk" and event.chunk.choices:
                    delta = event.chunk.choices[0].delta
                    reasoning.append(getattr(delta, "reasoning_content", None) or "")
            reply = stream.get_final_completion()
    except openai.LengthFinishReasonError as cut_off:
        reply: Any = cut_off.completion
    assert reply.usage.total_tokens == 137
    return chat_heard(reply.choices[0].message) | {"reasoning": "".join(reasoning)}


# Anthropic.


def messages_client(url: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def messages_request() -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
    }


def messages_heard(message: Any) -> Heard:
    assert message.usage.input_tokens == 120
    assert message.usage.output_tokens == 17
    blocks: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": []}
    for block in message.content:
        blocks[block.type].append(block)
    return {
        "text": "".join(block.text for block in blocks["text"]),
        "reasoning": "".join(block.thinking for block in blocks["thinking"]),
        "calls": [(block.name, block.input) for block in blocks["tool_use"]],
    }


def messages_whole(url: str) -> Heard:
    with messages_client(url) as client:
        return messages_heard(client.messages.create(**messages_request()))


def messages_stream(url: str) -> Heard:
    with messages_client(url) as client, client.messages.stream(**messages_request()) as stream:
        return messages_heard(stream.get_final_message())


# OpenAI responses.


def responses_request() -> dict[str, Any]:
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    return {"model": "m", "input": PROMPT, "tools": [tool]}


def responses_heard(reply: Any) -> Heard:
    assert reply.usage.total_tokens == 137
    items = {kind: [item for item in reply.output if item.type == kind] for kind in ITEMS}
    assert sum(map(len, items.values())) == len(reply.output)
    return {
        "text": reply.output_text,
        "reasoning": "".join(part.text for item in items["reasoning"] for part in item.summary),
        "calls": [(item.name, json.loads(item.arguments)) for item in items["function_call"]],
    }


ITEMS = ("message", "reasoning", "function_call")


def responses_whole(url: str) -> Heard:
    with chat_client(url) as client:
        return responses_heard(client.responses.create(**responses_request()))


def responses_stream(url: str) -> Heard:
    last: Any = None
    with chat_client(url) as client, client.responses.stream(**responses_request()) as stream:
        for number, event in enumerate(stream):
            assert event.sequence_number == number
            last = event
    assert last.type in ("response.completed", "response.incomplete")
    return responses_heard(last.response)


# Ollama.


def ollama_request() -> dict[str, Any]:
    function = {"name": "get_weather", "parameters": SCHEMA}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": function}],
    }


def ollama_heard(*replies: Any) -> Heard:
    assert (replies[-1].prompt_eval_count, replies[-1].eval_count) == (120, 17)
    assert [reply.done for reply in replies] == [False] * (len(replies) - 1) + [True]
    messages = [reply.message for reply in replies]
    return {
        "text": "".join(message.content or "" for message in messages),
        "reasoning": "".join(message.thinking or "" for message in messages),
        "calls": [
            (call.function.name, dict(call.function.arguments))
            for message in messages
            for call in message.tool_calls or ()
        ],
    }


def ollama_whole(url: str) -> Heard:
    with ollama.Client(host=url) as client:
        return ollama_heard(client.chat(**ollama_request()))


def ollama_stream(url: str) -> Heard:
    with ollama.Client(host=url) as client:
        return ollama_heard(*client.chat(**ollama_request(), stream=True))


# Gemini.


def gemini_client(url: str) -> Any:
    return genai.Client(api_key="none", http_options={"base_url": url})


def gemini_request() -> dict[str, Any]:
    function = {"name": "get_weather", "parameters_json_schema": SCHEMA}
    config = {
        "tools": [{"function_declarations": [function]}],
        "automatic_function_calling": {"disable": True},
    }
    return {"model": "m", "contents": PROMPT, "config": config}


def gemini_heard(*replies: Any) -> Heard:
    usage = replies[-1].usage_metadata
    assert (usage.prompt_token_count, usage.total_token_count) == (120, 137)
    parts = [part for reply in replies for part in reply.candidates[0].content.parts or ()]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "reasoning": "".join(part.text or "" for part in parts if part.thought),
        "calls": [
            (part.function_call.name, part.function_call.args or {})
            for part in parts
            if part.function_call
        ],
    }


def gemini_whole(url: str) -> Heard:
    with gemini_client(url) as client:
        return gemini_heard(client.models.generate_content(**gemini_request()))


def gemini_stream(url: str) -> Heard:
    with gemini_client(url) as client:
        return gemini_heard(*client.models.generate_content_stream(**gemini_request()))


SPEAKERS: dict[str, Callable[[str], Heard]] = {
    "openai chat": chat_whole,
    "openai chat, streamed": chat_stream,
    "openai responses": responses_whole,
    "openai responses, streamed": responses_stream,
    "anthropic": messages_whole,
    "anthropic, streamed": messages_stream,
    "ollama": ollama_whole,
    "ollama, streamed": ollama_stream,
    "google-genai": gemini_whole,
    "google-genai, streamed": gemini_stream,
}
PROBLEMS: dict[str, type[Exception]] = {
    "openai": openai.APIError,
    "anthropic": anthropic.APIError,
    "ollama": ollama.ResponseError,
    "google-genai": genai.errors.APIError,
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_an_sdk_hears_what_was_said(speaker: str, scenario: Scenario) -> None:
    with ScriptedServer(scenario.reply, chunk_size=11) as server:
        assert SPEAKERS[speaker](server.url) == expected(scenario)
    [asked] = server.requests
    assert [(tool.name, tool.parameters) for tool in asked.tools or ()] == [("get_weather", SCHEMA)]


FAILURE = Failure("overloaded", "the model is busy", 529)


def problem_of(speaker: str) -> type[Exception]:
    return next(problem for name, problem in PROBLEMS.items() if speaker.startswith(name))


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_a_failure_is_one_to_an_sdk(speaker: str) -> None:
    with (
        ScriptedServer([FAILURE]) as server,
        pytest.raises(problem_of(speaker), match="the model is busy"),
    ):
        SPEAKERS[speaker](server.url)


@pytest.mark.parametrize("speaker", [name for name in SPEAKERS if name.endswith("streamed")])
def test_a_stream_that_fails_is_no_answer(speaker: str) -> None:
    with (
        ScriptedServer([TextDelta("Half of an ans"), FAILURE]) as server,
        pytest.raises(problem_of(speaker), match="the model is busy"),
    ):
        SPEAKERS[speaker](server.url)


@pytest.mark.parametrize("threads", [True, False])
def test_anthropics_tool_runner_goes_on_without_threads(threads: bool) -> None:
    asked: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str, days: int = 1) -> str:
        """The weather in a city.

        Args:
            city: Which city.
            days: For how many days.
        """
        asked.append(f"{city} for {days} days")
        return "Sunny"

    turns = [answer(*called(0, OSLO), reason="calls"), answer(TextDelta("It is sunny."))]
    options: dict[str, Any] = {} if threads else {"thread": False}
    with ScriptedServer(*turns) as server, messages_client(server.url) as client:
        runner = client.beta.messages.tool_runner(
            model="m",
            max_tokens=100,
            tools=[get_weather],
            messages=[{"role": "user", "content": PROMPT}],
            **options,
        )
        last = runner.until_done()
    assert last.content[0].text == "It is sunny."
    assert asked == ["Oslo for 3 days"]
    assert len(server.requests) == 2
    assert [message.role for message in server.requests[1].messages] == [
        "user",
        "assistant",
        "tool",
    ]


def test_finish_without_events_is_an_empty_answer() -> None:
    with ScriptedServer([Finish("stop")]) as server, chat_client(server.url) as client:
        reply = client.chat.completions.create(model="m", messages=[])
    assert reply.choices[0].message.content == ""
