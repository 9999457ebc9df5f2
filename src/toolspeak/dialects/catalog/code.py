"""Calls written like code: Python's syntax, or maps without quotes around their keys."""

from __future__ import annotations

from ..template import LLAMA_TURN, THINK, Dialect

DIALECTS = (
    Dialect(
        name="llama4_pythonic",
        silent=LLAMA_TURN,
        call=("<|python_start|>$python<|python_end|>", "$python"),
        result="$content",
        models=("llama-4", "llama4"),
        about="Llama 4",
    ),
    Dialect(
        name="olmo3",
        call=("<function_calls>\n$statements\n</function_calls>",),
        result="$content",
        models=("olmo-3", "olmo3"),
        about="Olmo 3; one call on each line",
    ),
    Dialect(
        name="lfm2",
        silent=("<|im_end|>",),
        call=(
            "<|tool_call_start|>$python<|tool_call_end|>",
            "<|tool_call_start|>$list<|tool_call_end|>",
        ),
        between="",
        result="<|tool_response_start|>$content<|tool_response_end|>",
        models=("lfm2",),
        about="LFM2 and 2.5",
    ),
    Dialect(
        name="minicpm3_py",
        call=("<|tool_call_start|>\n```python\n$statements\n```\n<|tool_call_end|>",),
        reasoning=(*THINK, ("<|thought_start|>", "<|thought_end|>")),
        result="$content",
        models=("minicpm3",),
        about="MiniCPM3",
    ),
    Dialect(
        name="functiongemma",
        also_closes=("<start_function_response>",),
        call=("<start_function_call>call:$name$braces<end_function_call>",),
        between="",
        quote="<escape>",
        result="<start_function_response>response:$name{value:<escape>$content<escape>}"
        "<end_function_response>",
        models=("functiongemma",),
        about="FunctionGemma 270M",
    ),
    Dialect(
        name="gemma4",
        call=(
            "<|tool_call>call:$name$braces<tool_call|>",
            "<|tool_call>:$name$braces<tool_call|>",
            "<|tool_call>$name$braces<tool_call|>",
        ),
        between="",
        quote='<|"|>',
        reasoning=(
            ("<|channel>thought\n", "<channel|>"),
            ("<|channel>thought", "<channel|>"),
            ("<|channel>", "<channel|>"),
        ),
        result='<|tool_response>response:$name{value:<|"|>$content<|"|>}<tool_response|>',
        models=("gemma-4", "gemma4"),
        about="Gemma 4",
    ),
    Dialect(
        name="llama3_builtin",
        silent=LLAMA_TURN,
        call=("<|python_tag|>$builtin<|eom_id|>",),
        parallel=False,
        result="$content",
        models=(),
        about="Llama 3.1's own tools",
    ),
    Dialect(
        name="pythonic",
        silent=LLAMA_TURN,
        call=("$python", "<|python_tag|>$python", "```python\n$python\n```"),
        evidence="whole",
        result="$content",
        models=("llama-3.2", "toolace", "watt-tool", "gemma-3"),
        about="Llama 3.2, ToolACE and others; the whole message is a list of calls",
    ),
    Dialect(
        name="nexusraven",
        call=("Call: $semicolons<bot_end>",),
        nothing=("out_of_domain",),
        evidence="prose",
        result="$content",
        models=("nexusraven", "nexus-raven"),
        about="NexusRaven v2",
    ),
    Dialect(
        name="gorilla",
        call=("<<function>>$single", "$single"),
        between="",
        result="$content",
        models=("gorilla",),
        about="Gorilla OpenFunctions v2",
    ),
)
