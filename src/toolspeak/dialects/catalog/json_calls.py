"""A marker, then calls as JSON objects or lists of them.

<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>
"""

from __future__ import annotations

from msgspec import structs

from ...calls.drafts import RESERVED_KEYS
from ..template import CHATML_TOKENS, NAME_IS_KEY, THINK_TAGS, Dialect, JsonKeys

_COHERE_TURN = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
)
_COHERE_CITATION = ("<co", "</co")
_COMMAND3 = Dialect(
    name="cohere_command3",
    call_templates=("<|START_ACTION|>$list<|END_ACTION|>",),
    json_keys=JsonKeys("tool_name", "parameters", "tool_call_id"),
    reasoning_tags=(("<|START_THINKING|>", "<|END_THINKING|>"),),
    control_tokens=_COHERE_TURN,
    citation_tags=_COHERE_CITATION,
    answer_spans=(
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        ("<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    result_template=(
        '{"tool_call_id": $id_json, "results": {"0": $content_json}, "is_error": $error}'
    ),
    results_template="<|START_TOOL_RESULT|>[$results]<|END_TOOL_RESULT|>",
    model_fragments=("command-r7b", "command-a", "c4ai-command-r7b"),
    description="Command R7B, Command A",
)
_APRIEL15 = Dialect(
    name="apriel15",
    call_templates=("<tool_calls>$list</tool_calls>",),
    reasoning_tags=(*THINK_TAGS, ("", "[BEGIN FINAL RESPONSE]")),
    control_tokens=("[END FINAL RESPONSE]", "<|end|>"),
    result_template="<|tool_result|>$content",
    model_fragments=("apriel-1.5", "apriel"),
    description="Apriel 1.5",
)

DIALECTS = (
    Dialect(
        name="hermes",
        call_templates=("<tool_call>\n$object\n</tool_call>",),
        control_tokens=CHATML_TOKENS,
        reasoning_tags=(
            *THINK_TAGS,
            ("<thinking>", "</thinking>"),
            ("<reasoning>", "</reasoning>"),
        ),
        model_fragments=(
            "hermes",
            "qwen2.5",
            "qwen-2.5",
            "qwen3",
            "qwq",
            "granite-4",
            "granite4",
            "mimo-vl",
            "falcon",
            "arch-function",
            "nanbeige",
            "trinity",
            "reka-edge",
            "exaone",
            "smollm3",
        ),
        description="Hermes 2 Pro and later, Qwen 2.5 and 3, Granite 4, and many fine-tunes",
    ),
    Dialect(
        name="longcat",
        call_templates=("<longcat_tool_call>$object</longcat_tool_call>",),
        reasoning_tags=(*THINK_TAGS, ("<longcat_think>", "</longcat_think>")),
        model_fragments=("longcat",),
        description="LongCat-Flash",
    ),
    Dialect(
        name="ernie45",
        call_templates=("<tool_call>\n$object\n</tool_call>",),
        control_tokens=("<response>", "</response>"),
        model_fragments=("ernie-4.5", "ernie4.5", "ernie45"),
        description="ERNIE 4.5 thinking; plain answers are wrapped in `<response>`",
    ),
    Dialect(
        name="granite_20b_fc",
        call_templates=("<function_call> $object",),
        no_call_names=("no_function",),
        separator=" ",
        model_fragments=("granite-20b-functioncalling", "granite-20b-fc"),
        description="granite-20b-functioncalling; calls have no closing marker",
    ),
    Dialect(
        name="gigachat3",
        call_templates=(
            "<|message_sep|>\n\nfunction call<|role_sep|>\n$object</s>",
            "function call<|role_sep|>\n$object</s>",
            "<|function_call|>$object</s>",
        ),
        parallel=False,
        control_tokens=("<|message_sep|>",),
        result_template="function result<|role_sep|>\n$content<|message_sep|>\n\n",
        model_fragments=("gigachat3", "gigachat-3", "gigachat"),
        description="GigaChat 3 and 3.1; one call per reply",
    ),
    Dialect(
        name="bielik",
        call_templates=("<tool_call>\n$object\n</tool_call>",),
        result_template="<|function_output|>$content",
        model_fragments=("bielik",),
        description="Bielik 11B v3",
    ),
    Dialect(
        name="internlm2",
        call_templates=("<|action_start|><|plugin|>$object<|action_end|>",),
        json_keys=JsonKeys("name", "parameters"),
        result_template="$content",
        model_fragments=("internlm", "intern-s1"),
        description="InternLM 2 and 2.5, Intern-S1",
    ),
    Dialect(
        name="jamba",
        call_templates=("<tool_calls>$list</tool_calls>",),
        result_template="<tool>\n$content\n</tool>",
        model_fragments=("jamba",),
        description="AI21 Jamba 1.5 and later",
    ),
    Dialect(
        name="hunyuan_a13b",
        call_templates=("<tool_calls>$list</tool_calls>",),
        control_tokens=("<answer>", "</answer>"),
        model_fragments=("hunyuan-a13b",),
        description="Hunyuan-A13B; plain answers are wrapped in `<answer>`",
    ),
    Dialect(
        name="minimax_m1",
        call_templates=("<tool_calls>\n$lines\n</tool_calls>",),
        result_template="tool result: $content",
        model_fragments=("minimax-m1", "minimax-text"),
        description="MiniMax-M1; one object per line",
    ),
    _APRIEL15,
    structs.replace(
        _APRIEL15, name="apriel16", model_fragments=("apriel-1.6",), description="Apriel 1.6"
    ),
    Dialect(
        name="nemotron_nano_v2",
        call_templates=("<TOOLCALL>$list</TOOLCALL>", "<TOOLCALL>$python</TOOLCALL>"),
        result_template="$content_json",
        results_template="<TOOL_RESPONSE>[$results]</TOOL_RESPONSE>",
        model_fragments=(
            "nemotron-nano",
            "llama-nemotron",
            "llama-3.1-nemotron",
            "llama-3.3-nemotron",
        ),
        description="Nemotron Nano v2, Llama-Nemotron",
    ),
    Dialect(
        name="granite3",
        call_templates=("<|tool_call|>$list", "<tool_call>$list"),
        extra_closers=("<|/tool_call|>",),
        control_tokens=("<response>", "</response>"),
        result_template="$content",
        model_fragments=("granite-3", "granite3"),
        description="Granite 3.0 to 3.3; the list has no closing marker",
    ),
    Dialect(
        name="apertus",
        call_templates=("<|tools_prefix|>$list<|tools_suffix|>",),
        json_keys=NAME_IS_KEY,
        reserved_names=RESERVED_KEYS,
        reasoning_tags=(("<|inner_prefix|>", "<|inner_suffix|>"),),
        result_template="$content_json",
        results_template="[$results]",
        model_fragments=("apertus",),
        description="Apertus; the tool's name is the key",
    ),
    _COMMAND3,
    structs.replace(
        _COMMAND3,
        name="cohere_command4",
        model_fragments=("command-4", "cohere2"),
        description="Cohere2-MoE, Command 4",
    ),
    Dialect(
        name="command_r_plus",
        call_templates=("Action:\n```json\n$list\n```",),
        json_keys=JsonKeys("tool_name", "parameters"),
        no_call_names=("directly_answer", "directly-answer"),
        control_tokens=_COHERE_TURN,
        citation_tags=_COHERE_CITATION,
        result_template="Document: $index\n$content",
        results_template="<results>\n$results\n</results>",
        model_fragments=("command-r-plus", "command-r"),
        description="Command R and R+ of 2024",
    ),
    Dialect(
        name="firefunction_v2",
        call_templates=("functools$list",),
        model_fragments=("firefunction",),
        description="FireFunction v2",
    ),
    Dialect(
        name="phi4_mini",
        call_templates=("functools$list", "<|tool_call|>$list<|/tool_call|>"),
        result_template="<|tool_response|>$content",
        model_fragments=("phi-4-mini", "phi-3.5", "phi4-mini"),
        description="Phi-4-mini",
    ),
    Dialect(
        name="mistral_json",
        call_templates=("[TOOL_CALLS] $list[/TOOL_CALLS]",),
        extra_closers=("</s>",),
        json_keys=JsonKeys("name", "arguments", "id"),
        reasoning_tags=(("[THINK]", "[/THINK]"),),
        result_template=(
            '[TOOL_RESULTS]{"content": $content_json, "call_id": $id_json}[/TOOL_RESULTS]'
        ),
        model_fragments=("mistral", "mixtral"),
        description="Mistral 7B v0.3, Nemo, Large 2407",
    ),
    Dialect(
        name="dots",
        call_templates=(
            '<invoke name="$name">\n$params</invoke>\n',
            "<dots_function_call>$object</dots_function_call>",
        ),
        wrapper_template="<dots_function_call>\n$calls</dots_function_call>",
        parameter_template='<parameter name="$key">$value</parameter>\n',
        model_fragments=("dots.llm", "dots1"),
        description="dots.llm",
    ),
)
