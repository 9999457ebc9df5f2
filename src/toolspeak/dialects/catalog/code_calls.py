"""Calls in Python's syntax, or as maps with unquoted keys.

[get_weather(city="Oslo", days=3), now()]
<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>
"""

from __future__ import annotations

from ..template import LLAMA_END_TOKENS, THINK_TAGS, Dialect

DIALECTS = (
    Dialect(
        name="llama4_pythonic",
        control_tokens=LLAMA_END_TOKENS,
        call_templates=("<|python_start|>$python<|python_end|>", "$python"),
        result_template="$content",
        model_fragments=("llama-4", "llama4"),
        description="Llama 4",
    ),
    Dialect(
        name="olmo3",
        call_templates=("<function_calls>\n$statements\n</function_calls>",),
        result_template="$content",
        model_fragments=("olmo-3", "olmo3"),
        description="Olmo 3; one call per line",
    ),
    Dialect(
        name="lfm2",
        control_tokens=("<|im_end|>",),
        call_templates=(
            "<|tool_call_start|>$python<|tool_call_end|>",
            "<|tool_call_start|>$list<|tool_call_end|>",
        ),
        separator="",
        result_template="<|tool_response_start|>$content<|tool_response_end|>",
        model_fragments=("lfm2",),
        description="LFM2 and 2.5",
    ),
    Dialect(
        name="minicpm3_py",
        call_templates=("<|tool_call_start|>\n```python\n$statements\n```\n<|tool_call_end|>",),
        reasoning_tags=(*THINK_TAGS, ("<|thought_start|>", "<|thought_end|>")),
        result_template="$content",
        model_fragments=("minicpm3",),
        description="MiniCPM3",
    ),
    Dialect(
        name="functiongemma",
        extra_closers=("<start_function_response>",),
        call_templates=("<start_function_call>call:$name$braces<end_function_call>",),
        separator="",
        string_quote="<escape>",
        result_template="<start_function_response>response:$name{value:<escape>$content<escape>}"
        "<end_function_response>",
        model_fragments=("functiongemma",),
        description="FunctionGemma 270M",
    ),
    Dialect(
        name="gemma4",
        call_templates=(
            "<|tool_call>call:$name$braces<tool_call|>",
            "<|tool_call>:$name$braces<tool_call|>",
            "<|tool_call>$name$braces<tool_call|>",
        ),
        separator="",
        string_quote='<|"|>',
        trailing_tokens=("<turn|>", "<tool_call|>"),
        reasoning_tags=(
            ("<|channel>thought\n", "<channel|>"),
            ("<|channel>thought", "<channel|>"),
            ("<|channel>", "<channel|>"),
        ),
        result_template='<|tool_response>response:$name{value:<|"|>$content<|"|>}<tool_response|>',
        model_fragments=("gemma-4", "gemma4"),
        description="Gemma 4",
    ),
    Dialect(
        name="llama3_builtin",
        control_tokens=LLAMA_END_TOKENS,
        call_templates=("<|python_tag|>$builtin<|eom_id|>",),
        parallel=False,
        result_template="$content",
        description="Llama 3.1's built-in tools",
    ),
    Dialect(
        name="pythonic",
        control_tokens=LLAMA_END_TOKENS,
        call_templates=("$python", "<|python_tag|>$python", "```python\n$python\n```"),
        evidence="whole",
        result_template="$content",
        model_fragments=("llama-3.2", "toolace", "watt-tool", "gemma-3"),
        description="Llama 3.2, ToolACE and others; the whole reply is a list of calls",
    ),
    Dialect(
        name="nexusraven",
        call_templates=("Call: $semicolons<bot_end>",),
        no_call_names=("out_of_domain",),
        evidence="prose",
        result_template="$content",
        model_fragments=("nexusraven", "nexus-raven"),
        description="NexusRaven v2",
    ),
    Dialect(
        name="gorilla",
        call_templates=("<<function>>$single", "$single"),
        separator="",
        result_template="$content",
        model_fragments=("gorilla",),
        description="Gorilla OpenFunctions v2",
    ),
)
