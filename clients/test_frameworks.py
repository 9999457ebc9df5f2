"""Agent frameworks that run a tool against a server which answers with our encoders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolspeak import (
    CallEnd,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)
from toolspeak.testing import ScriptedServer

HERE = Path(__file__).parent
QUESTION = "Weather in Oslo?"
CALL = ToolCall(id="call_a", name="get_weather", arguments={"city": "Oslo", "days": 3})
TURNS: list[list[Event]] = [
    [
        Started(),
        ReasoningDelta("The weather."),
        ReasoningDelta("", "c2ln"),
        CallStart(0, CALL.id, CALL.name),
        CallEnd(0, CALL),
        Finish("calls", usage=Usage(9, 9)),
    ],
    [Started(), TextDelta("It is "), TextDelta("sunny."), Finish("stop", usage=Usage(9, 9))],
]

Asked = list[tuple[str, int | None]]


def pydantic_ai(wire: str, url: str, *, stream: bool) -> tuple[str, Asked]:
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.google import GoogleProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    openai = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    models: dict[str, Callable[[], Any]] = {
        "openai_chat": lambda: OpenAIChatModel("m", provider=openai),
        "openai_responses": lambda: OpenAIResponsesModel("m", provider=openai),
        "anthropic": lambda: AnthropicModel(
            "m", provider=AnthropicProvider(base_url=url, api_key="none")
        ),
        "gemini": lambda: GoogleModel("m", provider=GoogleProvider(base_url=url, api_key="none")),
    }
    asked: Asked = []
    agent: Any = Agent(models[wire]())

    @agent.tool_plain
    def get_weather(city: str, days: int | None = None) -> str:
        asked.append((city, days))
        return "Sunny"

    if not stream:
        return agent.run_sync(QUESTION).output, asked
    result = agent.run_stream_sync(QUESTION)
    return result.get_output(), asked


def langchain(wire: str, url: str, *, stream: bool) -> tuple[str, Asked]:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    asked: Asked = []

    @tool
    def get_weather(city: str, days: int | None = None) -> str:
        """The weather in a city."""
        asked.append((city, days))
        return "Sunny"

    openai: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "none", "model": "m"}
    models: dict[str, Callable[[], Any]] = {
        "openai_chat": lambda: ChatOpenAI(**openai),
        "openai_responses": lambda: ChatOpenAI(**openai, use_responses_api=True),
        "anthropic": lambda: ChatAnthropic(
            model_name="m", base_url=url, api_key="none", timeout=None, stop=None
        ),
    }
    model = models[wire]().bind_tools([get_weather])

    def ask(messages: list[Any]) -> Any:
        if not stream:
            return model.invoke(messages)
        first, *rest = list(model.stream(messages))
        return sum(rest, start=first)

    messages: list[Any] = [HumanMessage(QUESTION)]
    reply = ask(messages)
    messages.append(reply)
    for call in reply.tool_calls:
        result = get_weather.invoke(call["args"])
        messages.append(ToolMessage(result, tool_call_id=call["id"]))
    return ask(messages).text, asked


def vercel(wire: str, url: str, *, stream: bool) -> tuple[str, Asked]:
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules").exists():
        pytest.skip("Vercel's `ai` needs Node 20 or newer, and `npm install` in clients/")
    mode = "stream" if stream else "whole"
    command = [node, str(HERE / "vercel.mjs"), wire, url, mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return said["text"], [(city, days) for city, days in said["asked"]]


FOUR = ("openai_chat", "openai_responses", "anthropic", "gemini")
RUNS = [
    *((pydantic_ai, wire) for wire in FOUR),
    *((langchain, wire) for wire in FOUR[:3]),
    *((vercel, wire) for wire in FOUR),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "wire"), RUNS, ids=[f"{c.__name__} {w}" for c, w in RUNS])
def test_a_framework_runs_a_tool(client: Callable[..., Any], wire: str, stream: bool) -> None:
    with ScriptedServer(*TURNS) as server:
        text, asked = client(wire, server.url, stream=stream)
    assert asked == [("Oslo", 3)]
    assert text == "It is sunny."
    assert [request.stream for request in server.requests] == [stream, stream]
    results = [message for message in server.requests[1].messages if message.role == "tool"]
    assert len(results) == 1
    assert "Sunny" in results[0].parts[0].text


def page(name: str, language: str, url: str) -> str:
    """The code of a page of docs/clients/, for that server."""
    text = (HERE.parent / "docs" / "clients" / f"{name}.md").read_text("utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return "\n".join(blocks).replace("http://127.0.0.1:7878", url)


@pytest.mark.parametrize(
    ("name", "said"), [("langchain", "get_weather"), ("pydantic-ai", "It is sunny.")]
)
def test_the_page_of_a_framework(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(*TURNS) as server:
        exec(page(name, "python", server.url), {})
    assert said in capsys.readouterr().out
    assert [tool.name for tool in server.requests[0].tools] == ["get_weather"]


def test_the_page_of_vercels_sdk() -> None:
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules").exists():
        pytest.skip("Vercel's `ai` needs Node 20 or newer, and `npm install` in clients/")
    with ScriptedServer(*TURNS) as server:
        command = [node, "--input-type=module", "-e", page("vercel-ai-sdk", "js", server.url)]
        done = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It is sunny.\n"
