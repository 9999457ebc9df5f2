"""Formats that a prompt asks for, or that have no marker: bare JSON, code fences, ReAct, XML.

{"name": "get_weather", "arguments": {"city": "Oslo"}}
Action: get_weather
Action Input: {"city": "Oslo"}
"""

from __future__ import annotations

from ..template import LLAMA_END_TOKENS, Dialect, JsonKeys

_XML = ("tool_call", "toolcall", "tool-call", "invoke")

DIALECTS = (
    Dialect(
        name="raw-json",
        call_templates=("$object",),
        evidence="whole",
        description="Prompted models; the call alone, as bare JSON",
    ),
    Dialect(
        name="xlam",
        call_templates=(
            "$list",
            "```json\n$list\n```",
            "[TOOL_CALLS]$list",
            "<tool_call>$list</tool_call>",
        ),
        evidence="whole",
        result_template="$content",
        model_fragments=("xlam", "hammer", "bitagent"),
        description="xLAM, Hammer",
    ),
    Dialect(
        name="bare_json_array",
        call_templates=("$list",),
        trailing_tokens=("</s>",),
        json_keys=JsonKeys("name", "parameters"),
        evidence="whole",
        result_template="$content",
        description="Any model whose output is constrained to a schema",
    ),
    Dialect(
        name="llama3_json",
        control_tokens=LLAMA_END_TOKENS,
        call_templates=("$lines", "<|python_tag|>$object"),
        separator="; ",
        json_keys=JsonKeys("name", "parameters"),
        evidence="whole",
        result_template="$content",
        model_fragments=("llama-3", "llama3"),
        description="Llama 3.1 to 3.3",
    ),
    Dialect(
        name="openai_json_echo",
        call_templates=("$echo",),
        json_keys=JsonKeys("name", "arguments", "id"),
        evidence="whole",
        result_template="$content",
        description="Models that echo the OpenAI API's own JSON",
    ),
    Dialect(
        name="fenced_json",
        call_templates=(
            "```json\n$object\n```",
            "```\n$object\n```",
            "```tool_code\n$python\n```",
        ),
        evidence="whole",
        description="Any prompted model; the whole reply is one code fence",
    ),
    Dialect(
        name="react",
        call_templates=(
            "Action: $name\nAction Input: $input",
            "**Action:** $name\n**Action Input:** $input",
            "Action: $name\nObservation:",
            "Action:\n```json\n$object\n```",
            "Action:\n```\n$object\n```",
        ),
        evidence="prose",
        extra_closers=("Observation:",),
        turn_end_closer="Observation:",
        answer_openers=("Final Answer:",),
        parallel=False,
        result_template="Observation: $content",
        description="ReAct prompts",
    ),
    Dialect(
        name="qwen_agent",
        call_templates=("✿FUNCTION✿: $name\n✿ARGS✿: $arguments",),
        extra_closers=("✿RESULT✿:", "✿RESULT✿"),
        turn_end_closer="✿RESULT✿",
        answer_openers=("✿RETURN✿:",),
        control_tokens=("✿RETURN✿:", "✿RETURN✿"),
        result_template="✿RESULT✿: $content",
        description="Qwen-Agent prompts, for Qwen before 2.5",
    ),
    Dialect(
        name="tagged",
        call_templates=("~~~tool_call\n$object\n~~~",),
        line_start_only=True,
        allows_prose=True,
        json_keys=JsonKeys("name", "arguments", "id"),
        result_spans=(("~~~tool_result\n", "\n~~~"),),
        result_template="~~~tool_result\n$content\n~~~",
        description="Prompted models; a tilde fence on separate lines",
    ),
    Dialect(
        name="action",
        call_templates=("```json action\n$object\n```",),
        allows_prose=True,
        json_keys=JsonKeys("tool", "parameters"),
        result_template="Tool result for $id:\n$content",
        description="Prompted models; a code fence labelled `json action`",
    ),
    Dialect(
        name="xml",
        call_templates=(
            *(f"<{tag}>\n$object\n</{tag}>" for tag in _XML),
            "<tool_call>$python</tool_call>",
            "<tool_call><$name>$elements</$name></tool_call>",
            "<tool_call><$name>$arguments</$name></tool_call>",
            "<tool_call>$name $attributes</tool_call>",
        ),
        extra_closers=tuple(f"</{tag}>" for tag in _XML),
        allows_prose=True,
        result_spans=tuple(
            (f"{heading}<tool_result", "</tool_result>") for heading in ("", "[Tool results]\n")
        ),
        trailing_tokens=("<eom>",),
        result_template='<tool_result name="$name">\n$content\n</tool_result>',
        results_template="[Tool results]\n$results",
        description="Prompted models; JSON in a tag, closed by any of several tags",
    ),
    Dialect(
        name="xml",
        call_templates=("<tools>$canonical</tools>",),
        extra_closers=tuple(f"</{tag}>" for tag in _XML),
        inert_spans=(("<tools>", "</tools>"),),
        description="The tag that prompts list tools in; a call only if it holds exactly one",
    ),
    Dialect(
        name="xml",
        call_templates=("[TOOL_CALL]\n$perl\n[/TOOL_CALL]", "TOOL_CALL\n$perl\n/TOOL_CALL"),
        line_start_only=True,
        description="Several models; a map with arrows, and arguments as on a command line",
    ),
    Dialect(
        name="fence",
        call_templates=(
            *(f"```{word}\n$object\n```" for word in _XML),
            "```tool $name\n$arguments\n```",
        ),
        allows_prose=True,
        extra_closers=tuple(f"</{tag}>" for tag in _XML),
        description="Prompted models; a code fence labelled `tool_call`",
    ),
    Dialect(
        name="glm-line",
        call_templates=(
            "$name/$line",
            "<tool_call>$name>\n$yaml</tool_call>",
            "<tool_call>$name>$input</tool_call>",
        ),
        extra_closers=("</invoke>",),
        evidence="prose",
        model_fragments=("glm",),
        description="GLM's short form `tool/parameter>value`; for declared tools only",
    ),
    Dialect(
        name="content-with-tool_calls",
        call_templates=("$content",),
        json_keys=JsonKeys("name", "arguments", "id"),
        evidence="whole",
        description="Chat history as JSON; the text and the calls in one object",
    ),
)
