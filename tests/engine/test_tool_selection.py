"""Tool selection: with very many tools, the model first names those it needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.gateway_support import (
    CHAT,
    MANY_TOOLS,
    OSLO,
    call_reply,
    read_call_arguments,
    text_reply,
)
from tests.engine.support import PipelineRun, build_request
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak import (
    Event,
    Finish,
    Message,
    Request,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    fold,
)
from toolspeak.engine import ModelProfile, Pipeline
from toolspeak.testing import ScriptedServer


class TestManyTools:
    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_model_gets_only_the_selected_tools(self, client: Client) -> None:
        replies = (text_reply("tool_7, tool_12"), call_reply("tool_7", **OSLO))
        with ScriptedServer(*replies) as server:
            with run_gateway(
                make_config(server.url, tools="native", select_tools_above=100)
            ) as gateway:
                response = ask(gateway.url, client, client.body("Hi", tools=MANY_TOOLS))
            assert read_call_arguments(client, response.raw) == [OSLO]
            choice, request = server.requests
        assert choice.tools is None
        assert "tool_39" in str(choice.messages)
        assert [tool.name for tool in request.tools or ()] == ["tool_7", "tool_12"]

    @pytest.mark.parametrize("said", ["none", "I don't know.", ""])
    def test_selection_without_names_keeps_all_tools(self, said: str) -> None:
        with ScriptedServer(text_reply(said), text_reply("Hello.")) as server:
            with run_gateway(
                make_config(server.url, tools="native", select_tools_above=100)
            ) as gateway:
                response = ask(gateway.url, CHAT, CHAT.body("Hi", tools=MANY_TOOLS))
            assert response.text == "Hello."
            assert len(server.requests[-1].tools or ()) == len(MANY_TOOLS)
            assert response.headers["x-toolspeak-retries"] == "0"

    @pytest.mark.parametrize(
        "settings", [{}, {"select_tools_above": 10_000}], ids=["not wished", "few"]
    )
    def test_few_tools_need_no_selection(self, settings: dict[str, Any]) -> None:
        with ScriptedServer(text_reply("Hello.")) as server:
            with run_gateway(make_config(server.url, tools="native", **settings)) as gateway:
                ask(gateway.url, CHAT, CHAT.body("Hi", tools=MANY_TOOLS))
            assert len(server.requests) == 1

    def test_selection_is_constrained_to_the_names(self) -> None:
        with ScriptedServer(
            text_reply('{"functions": ["tool_3"]}'), text_reply("Hello.")
        ) as server:
            config = make_config(
                server.url, provider="llamacpp", tools="native", select_tools_above=100
            )
            with run_gateway(config) as gateway:
                ask(gateway.url, CHAT, CHAT.body("Hi", tools=MANY_TOOLS))
            choice, request = server.requests
        assert choice.response_format
        assert [tool.name for tool in request.tools or ()] == ["tool_3"]


def test_selection_keeps_tools_used_before() -> None:
    """The choice among many leaves no tool out that the conversation has used."""
    from toolspeak.engine.tool_selection import select_tools

    tools = tuple(Tool(name=f"tool_{n}", description="x" * 50) for n in range(20))
    used = ToolCall(id="c", name="tool_3", arguments={})
    turns = (
        Message("user", (Text("Hi"),)),
        Message("assistant", (used,)),
        Message("tool", (ToolResult(call_id="c", name="tool_3", content="1"),)),
    )
    request = Request(model="m", messages=turns, tools=tools)
    chosen = select_tools(request, "tool_5")
    assert [tool.name for tool in chosen.tools or ()] == ["tool_3", "tool_5"]


def test_call_of_an_unselected_tool_restarts_with_all_tools() -> None:
    replies = (text_reply("tool_7"), call_reply("tool_3", **OSLO), call_reply("tool_3", **OSLO))
    with ScriptedServer(*replies) as server:
        with run_gateway(
            make_config(server.url, tools="native", select_tools_above=100)
        ) as gateway:
            response = ask(gateway.url, CHAT, CHAT.body("Hi", tools=MANY_TOOLS))
        assert read_call_arguments(CHAT, response.raw) == [OSLO]
        assert len(server.requests) == 3
        assert response.headers["x-toolspeak-retries"] == "1"


def test_call_of_an_unselected_tool_after_a_continuation_is_read_anew() -> None:
    begin = '<tool_call>{"name": "get_weather", "arguments": {"ci'
    end = 'ty": "Oslo"}}</tool_call>'
    tools = tuple(Tool(name=name, description="x" * 900) for name in ("get_weather", "now"))
    profile = ModelProfile(model="m", mode="prompt", dialect="hermes", select_tools_above=100)
    run = PipelineRun(Pipeline(build_request(tools=tools), [profile], is_streaming=False))
    replies = ["now", begin, end.replace("Oslo", "Rome"), f"{begin}{end}"]
    rest: list[Event] | None = None
    for text in replies:
        run.feed(run.pipeline.reader.read_events([TextDelta(text), Finish("stop")]))
        rest = run.end()
    calls = fold(rest or []).calls
    assert [call.arguments for call in calls] == [{"city": "Oslo"}]
    assert run.attempt.reason == "unselected tool"
