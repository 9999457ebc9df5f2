"""Formats without markers of their own: the whole message has to be one, or a prompt has to ask."""

from __future__ import annotations

from ..template import LLAMA_TURN, Dialect, Keys

DIALECTS = (
    Dialect(
        name="raw-json",
        call=("$object",),
        evidence="whole",
        about="for prompts: the call alone",
    ),
    Dialect(
        name="xlam",
        call=("$list", "```json\n$list\n```", "[TOOL_CALLS]$list", "<tool_call>$list</tool_call>"),
        evidence="whole",
        result="$content",
        models=("xlam", "hammer", "bitagent"),
        about="xLAM, Hammer",
    ),
    Dialect(
        name="bare_json_array",
        call=("$list",),
        keys=Keys("name", "parameters"),
        evidence="whole",
        result="$content",
        about="any model whose output is held to a schema",
    ),
    Dialect(
        name="llama3_json",
        silent=LLAMA_TURN,
        call=("$lines", "<|python_tag|>$object"),
        between="; ",
        keys=Keys("name", "parameters"),
        evidence="whole",
        result="$content",
        models=("llama-3", "llama3"),
        about="Llama 3.1 to 3.3",
    ),
    Dialect(
        name="openai_json_echo",
        call=("$echo",),
        keys=Keys("name", "arguments", "id"),
        evidence="whole",
        result="$content",
        about="models that repeat the API's own JSON",
    ),
    Dialect(
        name="fenced_json",
        call=(
            "```json\n$object\n```",
            "```\n$object\n```",
            "```tool_code\n$python\n```",
        ),
        evidence="whole",
        about="any prompted model; a fence and nothing else",
    ),
    Dialect(
        name="react",
        call=(
            "Action: $name\nAction Input: $input",
            "**Action:** $name\n**Action Input:** $input",
            "Action: $name\nObservation:",
            "Action:\n```json\n$object\n```",
            "Action:\n```\n$object\n```",
        ),
        evidence="prose",
        also_closes=("Observation:",),
        ends_turn="Observation:",
        answers=("Final Answer:",),
        parallel=False,
        result="Observation: $content",
        about="ReAct prompts",
    ),
    Dialect(
        name="qwen_agent",
        call=("✿FUNCTION✿: $name\n✿ARGS✿: $arguments",),
        also_closes=("✿RESULT✿:", "✿RESULT✿"),
        ends_turn="✿RESULT✿",
        answers=("✿RETURN✿:",),
        silent=("✿RETURN✿:", "✿RETURN✿"),
        result="✿RESULT✿: $content",
        about="Qwen-Agent's own prompts, for Qwen before 2.5",
    ),
)
