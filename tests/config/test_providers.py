"""Tools, calls and results in each provider's own format."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak import (
    Rejection,
    UsageError,
    as_tools,
    format_tool_result,
    format_tools,
    parse_tool_calls,
)
from toolspeak.config.providers import PROVIDERS, find_provider
from toolspeak.engine.attempt import apply_quirks

TOOLS = [{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}]
FORMATS = ("openai", "openrouter", "anthropic", "ollama", "gemini")


@pytest.mark.parametrize("provider", FORMATS)
def test_format_tools_can_be_decoded_again(provider: str) -> None:
    assert as_tools(format_tools(provider, TOOLS)) == as_tools(TOOLS)


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("openai", {"role": "tool", "tool_call_id": "c", "content": "25"}),
        ("openrouter", {"role": "tool", "tool_call_id": "c", "content": "25"}),
        ("ollama", {"role": "tool", "tool_name": "add", "content": "25"}),
        (
            "anthropic",
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": "25"}],
            },
        ),
        (
            "gemini",
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c", "name": "add", "response": {"result": "25"}}}
                ],
            },
        ),
    ],
)
def test_format_tool_result_of_each_provider_is_its_message(
    provider: str, expected: dict[str, Any]
) -> None:
    assert format_tool_result(provider, "c", "add", "25") == expected


def test_parse_tool_calls_finds_structured_calls() -> None:
    response = {"content": [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}]}
    [call] = parse_tool_calls("anthropic", response)
    assert (call.id, call.name, call.arguments_json) == ("c", "add", '{"a":1}')
    assert parse_tool_calls("openai", {"choices": [{"message": {"content": "hi"}}]}) == ()


def test_parse_tool_calls_with_invalid_call_appends_a_rejection() -> None:
    calls = [
        {"id": "1", "function": {"name": "add", "arguments": "{broken"}},
        {"id": "2", "function": {"name": "add", "arguments": "{}"}},
    ]
    rejected: list[Rejection] = []
    for sent in (calls, calls[:1]):
        response = {"choices": [{"message": {"tool_calls": sent}}]}
        found = parse_tool_calls("openai", response, rejected=rejected)
        assert found == parse_tool_calls("openai", response)
        assert [call.id for call in found] == ["2"][: len(sent) - 1]
    assert [(one.name, one.code, one.raw) for one in rejected] == [
        ("add", "undecodable-arguments", "{broken"),
        ("add", "undecodable-arguments", "{broken"),
    ]


def test_parse_tool_calls_ignores_calls_in_text() -> None:
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call><tool_call>{"name"</tool_call>'
    rejected: list[Rejection] = []
    assert not parse_tool_calls("openai", {"message": {"content": text}}, rejected=rejected)
    assert not rejected


def test_format_tools_for_unknown_provider_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="openrouter"):
        format_tools("nobody", TOOLS)


ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "zai": ("https://api.z.ai/api/paas/v4", ("ZAI_API_KEY", "Z_AI_API_KEY")),
    "zhipu": ("https://open.bigmodel.cn/api/paas/v4", ("ZHIPU_API_KEY", "GLM_API_KEY")),
    "together": ("https://api.together.ai/v1", ("TOGETHER_API_KEY",)),
    "novita": ("https://api.novita.ai/openai/v1", ("NOVITA_API_KEY",)),
}


@pytest.mark.parametrize("provider", ROWS)
def test_key_of_a_provider_is_sent_to_its_own_host(provider: str) -> None:
    row = find_provider(provider)
    assert (row.base_url, row.key_variables) == ROWS[provider]


def test_no_variable_holds_the_key_of_two_providers() -> None:
    variables = [name for row in PROVIDERS.values() for name in row.key_variables]
    assert len(variables) == len(set(variables))


@pytest.mark.parametrize("provider", ["cohere", "mistral"])
def test_stream_options_are_not_sent_to_providers_that_reject_them(provider: str) -> None:
    body: dict[str, Any] = {"stream_options": {}, "stream": True}
    sent, _ = apply_quirks(body, find_provider(provider).quirks)
    assert sent == {"stream": True}


def test_minimax_gets_the_reasoning_of_earlier_replies_in_their_content() -> None:
    turn = {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."}
    sent, _ = apply_quirks({"messages": [turn]}, find_provider("minimax").quirks)
    content = "<think>\nA greeting.\n</think>\n\nHi."
    assert sent == {"messages": [{"role": "assistant", "content": content}]}
