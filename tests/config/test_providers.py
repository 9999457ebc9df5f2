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

TOOLS = [{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}]
PROVIDERS = ("openai", "openrouter", "anthropic", "ollama", "gemini")


@pytest.mark.parametrize("provider", PROVIDERS)
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
