"""The vendors' own SDKs read the replies that our encoders write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import ollama
import openai
import pytest
from google import genai

from tests.wires.scenarios import OSLO, SCENARIOS, Scenario, call_events, reply_events
from toolspeak import Failure, Finish, TextDelta, fold
from toolspeak.testing import ScriptedServer

SdkReply = dict[str, Any]
"""The text, reasoning and calls that an SDK has read."""

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PROMPT = "Weather in Oslo?"


def expected_reply(scenario: Scenario) -> SdkReply:
    reply = fold(scenario.reply)
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "calls": [(call.name, dict(call.arguments)) for call in reply.calls],
    }


# OpenAI chat.


def open_openai(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def chat_request() -> dict[str, Any]:
    function = {"name": "get_weather", "parameters": SCHEMA}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": function}],
    }


def read_chat(message: Any) -> SdkReply:
    return {
        "text": message.content or "",
        "reasoning": getattr(message, "reasoning_content", None) or "",
        "calls": [
            (call.function.name, json.loads(call.function.arguments))
            for call in message.tool_calls or ()
        ],
    }


def ask_chat(url: str) -> SdkReply:
    with open_openai(url) as client:
        reply = client.chat.completions.create(**chat_request())
    assert reply.usage.total_tokens == 137
    return read_chat(reply.choices[0].message)


def stream_chat(url: str) -> SdkReply:
    """The SDK's own accumulator checks the order of what it gets."""
    options = {"stream_options": {"include_usage": True}}
    reasoning: list[str] = []
    try:
        with (
            open_openai(url) as client,
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
    return read_chat(reply.choices[0].message) | {"reasoning": "".join(reasoning)}


# Anthropic.


def open_anthropic(url: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def messages_request() -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
    }


def read_message(message: Any) -> SdkReply:
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


def ask_messages(url: str) -> SdkReply:
    with open_anthropic(url) as client:
        return read_message(client.messages.create(**messages_request()))


def stream_messages(url: str) -> SdkReply:
    with open_anthropic(url) as client, client.messages.stream(**messages_request()) as stream:
        return read_message(stream.get_final_message())


# OpenAI responses.


def responses_request() -> dict[str, Any]:
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    return {"model": "m", "input": PROMPT, "tools": [tool]}


def read_response(reply: Any) -> SdkReply:
    assert reply.usage.total_tokens == 137
    items = {kind: [item for item in reply.output if item.type == kind] for kind in ITEMS}
    assert sum(map(len, items.values())) == len(reply.output)
    return {
        "text": reply.output_text,
        "reasoning": "".join(part.text for item in items["reasoning"] for part in item.summary),
        "calls": [(item.name, json.loads(item.arguments)) for item in items["function_call"]],
    }


ITEMS = ("message", "reasoning", "function_call")


def ask_responses(url: str) -> SdkReply:
    with open_openai(url) as client:
        return read_response(client.responses.create(**responses_request()))


def stream_responses(url: str) -> SdkReply:
    last: Any = None
    with open_openai(url) as client, client.responses.stream(**responses_request()) as stream:
        for number, event in enumerate(stream):
            assert event.sequence_number == number
            last = event
    assert last.type in ("response.completed", "response.incomplete")
    return read_response(last.response)


# Ollama.


def ollama_request() -> dict[str, Any]:
    function = {"name": "get_weather", "parameters": SCHEMA}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": function}],
    }


def read_ollama(*replies: Any) -> SdkReply:
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


def ask_ollama(url: str) -> SdkReply:
    with ollama.Client(host=url) as client:
        return read_ollama(client.chat(**ollama_request()))


def stream_ollama(url: str) -> SdkReply:
    with ollama.Client(host=url) as client:
        return read_ollama(*client.chat(**ollama_request(), stream=True))


# Gemini.


def open_gemini(url: str) -> Any:
    return genai.Client(api_key="none", http_options={"base_url": url})


def gemini_request() -> dict[str, Any]:
    function = {"name": "get_weather", "parameters_json_schema": SCHEMA}
    config = {
        "tools": [{"function_declarations": [function]}],
        "automatic_function_calling": {"disable": True},
    }
    return {"model": "m", "contents": PROMPT, "config": config}


def read_gemini(*replies: Any) -> SdkReply:
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


def ask_gemini(url: str) -> SdkReply:
    with open_gemini(url) as client:
        return read_gemini(client.models.generate_content(**gemini_request()))


def stream_gemini(url: str) -> SdkReply:
    with open_gemini(url) as client:
        return read_gemini(*client.models.generate_content_stream(**gemini_request()))


SDK_CALLS: dict[str, Callable[[str], SdkReply]] = {
    "openai chat": ask_chat,
    "openai chat, streamed": stream_chat,
    "openai responses": ask_responses,
    "openai responses, streamed": stream_responses,
    "anthropic": ask_messages,
    "anthropic, streamed": stream_messages,
    "ollama": ask_ollama,
    "ollama, streamed": stream_ollama,
    "google-genai": ask_gemini,
    "google-genai, streamed": stream_gemini,
}
SDK_ERRORS: dict[str, type[Exception]] = {
    "openai": openai.APIError,
    "anthropic": anthropic.APIError,
    "ollama": ollama.ResponseError,
    "google-genai": genai.errors.APIError,
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("speaker", SDK_CALLS)
def test_sdk_reads_the_reply_of_each_scenario(speaker: str, scenario: Scenario) -> None:
    with ScriptedServer(scenario.reply, chunk_size=11) as server:
        assert SDK_CALLS[speaker](server.url) == expected_reply(scenario)
    [asked] = server.requests
    assert [(tool.name, tool.parameters) for tool in asked.tools or ()] == [("get_weather", SCHEMA)]


FAILURE = Failure("overloaded", "the model is busy", 529)


def error_of(speaker: str) -> type[Exception]:
    return next(problem for name, problem in SDK_ERRORS.items() if speaker.startswith(name))


@pytest.mark.parametrize("speaker", SDK_CALLS)
def test_sdk_raises_on_a_failure(speaker: str) -> None:
    with (
        ScriptedServer([FAILURE]) as server,
        pytest.raises(error_of(speaker), match="the model is busy"),
    ):
        SDK_CALLS[speaker](server.url)


@pytest.mark.parametrize("speaker", [name for name in SDK_CALLS if name.endswith("streamed")])
def test_sdk_raises_on_a_failure_within_a_stream(speaker: str) -> None:
    with (
        ScriptedServer([TextDelta("Half of an ans"), FAILURE]) as server,
        pytest.raises(error_of(speaker), match="the model is busy"),
    ):
        SDK_CALLS[speaker](server.url)


@pytest.mark.parametrize("threads", [True, False])
def test_anthropic_tool_runner_calls_tools_until_the_answer(threads: bool) -> None:
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

    turns = [
        reply_events(*call_events(0, OSLO), reason="calls"),
        reply_events(TextDelta("It is sunny.")),
    ]
    options: dict[str, Any] = {} if threads else {"thread": False}
    with ScriptedServer(*turns) as server, open_anthropic(server.url) as client:
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


def test_reply_without_events_is_an_empty_answer() -> None:
    with ScriptedServer([Finish("stop")]) as server, open_openai(server.url) as client:
        reply = client.chat.completions.create(model="m", messages=[])
    assert reply.choices[0].message.content == ""
