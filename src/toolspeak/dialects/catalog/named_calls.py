"""The tool's name in a header, then the arguments as a JSON object.

[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}
<|channel|>commentary to=functions.get_weather<|message|>{"city": "Oslo"}<|call|>
"""

from __future__ import annotations

from ..template import LLAMA_END_TOKENS, THINK_TAGS, Dialect, JsonKeys, MessageFrame

_DEEPSEEK_WRAP = "<｜tool▁calls▁begin｜>$calls<｜tool▁calls▁end｜>"
_DEEPSEEK_RESULTS = "<｜tool▁outputs▁begin｜>$results<｜tool▁outputs▁end｜>"
_DEEPSEEK_RESULT = "<｜tool▁output▁begin｜>$content<｜tool▁output▁end｜>"
_DEEPSEEK_SILENT = (
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜end▁of▁sentence｜>",
)
_MISTRAL_THINK = (("[THINK]", "[/THINK]"),)

DIALECTS = (
    Dialect(
        name="functionary_v3_1",
        call_templates=(
            "<function=$name>$arguments</function>",
            "<function=$name$arguments</function>",
            "<function=$name=$arguments</function>",
            "<|python_tag|>$code<|eom_id|>",
        ),
        extra_closers=LLAMA_END_TOKENS,
        separator="",
        result_template="$content",
        model_fragments=("functionary-v3.1", "functionary-small-v3.1", "functionary-medium-v3.1"),
        description="Functionary v3.1, and Llama 3.1 with its custom-tool prompt",
    ),
    Dialect(
        name="functionary_v3_2",
        call_templates=(
            ">>>$name\n$arguments",
            "$name\n$arguments",
            ">>>$name\n$code<|eot_id|>",
            "$name\n$code<|eot_id|>",
        ),
        extra_closers=LLAMA_END_TOKENS,
        control_tokens=(">>>all\n",),
        answer_spans=((">>>all\n", ""),),
        initial_tokens=("all\n",),
        reserved_names=("all",),
        result_template="$content",
        model_fragments=("functionary-v3.2", "functionary-small-v3.2", "functionary-medium-v3.2"),
        description="Functionary v3.2; `>>>all` begins plain text",
    ),
    Dialect(
        name="functionary_v2",
        call_templates=(
            "<|from|>assistant\n<|recipient|>$name\n<|content|>$arguments<|stop|>",
            "<|recipient|>$name\n<|content|>$arguments<|stop|>",
            "$name\n<|content|>$arguments<|stop|>",
        ),
        initial_tokens=("all\n<|content|>",),
        reserved_names=("all",),
        control_tokens=(
            "<|from|>assistant\n<|recipient|>all\n<|content|>",
            "<|recipient|>all\n<|content|>",
        ),
        answer_spans=(
            ("<|from|>assistant\n<|recipient|>all\n<|content|>", ""),
            ("<|recipient|>all\n<|content|>", ""),
        ),
        result_template="<|from|>$name\n<|recipient|>all\n<|content|>$content",
        model_fragments=("functionary-7b-v2", "functionary-small-v2", "functionary-medium-v2"),
        description="Functionary v2",
    ),
    Dialect(
        name="mistral_args",
        call_templates=(
            "[TOOL_CALLS]$name[CALL_ID]$id[ARGS]$arguments",
            "[TOOL_CALLS]$name[ARGS]$arguments",
            "[TOOL_CALLS]$name$arguments",
        ),
        separator="",
        reasoning_tags=_MISTRAL_THINK,
        extra_closers=("</s>",),
        result_template="[TOOL_RESULTS]$id[TOOL_CONTENT]$content[/TOOL_RESULTS]",
        model_fragments=(
            "mistral-small-3",
            "mistral-medium",
            "devstral",
            "magistral",
            "ministral-3",
        ),
        description="Mistral Small 3.1 and later, Devstral, Magistral",
    ),
    Dialect(
        name="deepseek_v3",
        call_templates=(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n"
            "```json\n$arguments\n```<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n$arguments<｜tool▁call▁end｜>",
            "<|tool▁call▁begin|>function<|tool▁sep|>$name\n"
            "```json\n$arguments\n```<|tool▁call▁end|>",
            "<｜tool call begin｜>function<｜tool sep｜>$name\n"
            "```json\n$arguments\n```<｜tool call end｜>",
            "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>$name\n"
            "```json\n$arguments\n```<｜tool▁call▁end｜>",
            "<|tool_call_begin|>function<|tool_sep|>$name\n"
            "```json\n$arguments\n```<|tool_call_end|>",
        ),
        wrapper_template=_DEEPSEEK_WRAP,
        separator="\n",
        trailing_tokens=("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
        control_tokens=(
            *_DEEPSEEK_SILENT,
            "<|tool▁calls▁begin|>",
            "<|tool▁calls▁end|>",
            "<｜tool calls begin｜>",
            "<｜tool calls end｜>",
            "<|tool_calls_begin|>",
            "<|tool_calls_end|>",
        ),
        result_template=_DEEPSEEK_RESULT,
        results_template=_DEEPSEEK_RESULTS,
        result_spans=(("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),),
        model_fragments=(
            "deepseek-v3",
            "deepseek-r1",
            "deepseek-chat",
            "deepseek-reasoner",
            "cogito",
        ),
        description="DeepSeek V3 and R1, Cogito v2",
    ),
    Dialect(
        name="deepseek_v31",
        call_templates=(
            "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
            "<｜tool▁calls▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
        ),
        wrapper_template=_DEEPSEEK_WRAP,
        control_tokens=_DEEPSEEK_SILENT,
        result_template=_DEEPSEEK_RESULT,
        model_fragments=("deepseek-v3.1",),
        description="DeepSeek V3.1",
    ),
    Dialect(
        name="kimi_k2",
        call_templates=(
            "<|tool_call_begin|>$header<|tool_call_argument_begin|>$arguments<|tool_call_end|>",
        ),
        wrapper_template="<|tool_calls_section_begin|>$calls<|tool_calls_section_end|>",
        header_patterns=(
            r"(?:functions\.)?(.*?)(?:[:.]\d+)?",
            r"(?:functions[._]?)?(.*?)(?:[:._]\d+)?",
            r"(?:functions[._]?)?(.*?)[:._]?\d*",
            r"(?:call_?)?(\d+)",
        ),
        header_template="functions.$name:$index",
        result_template="## Return of $id\n$content",
        model_fragments=("kimi-k2", "kimi_k2"),
        description="Kimi K2; the header is the call's id",
    ),
    Dialect(
        name="solar_open",
        call_templates=(
            "<|tool_call:begin|>$id<|tool_call:name|>$name<|tool_call:args|>$arguments<|tool_call:end|>",
        ),
        wrapper_template="<|begin|>assistant<|tool_calls|>$calls<|calls|>",
        reasoning_tags=(*THINK_TAGS, ("<|think|>", "<|end|>")),
        control_tokens=(
            "<|begin|>assistant",
            "<|begin|>assistant<|content|>",
            "<|content|>",
            "<|end|>",
            "<|calls|>",
        ),
        answer_spans=(
            ("<|begin|>assistant<|content|>", "<|end|>"),
            ("<|content|>", "<|end|>"),
        ),
        result_template="<|tool_response:begin|>$id<|tool_response:name|>$name"
        "<|tool_response:result|>$content<|tool_response:end|>",
        results_template="<|begin|>tool<|tool_response|>$results",
        model_fragments=("solar-open",),
        description="Solar-Open 100B",
    ),
    Dialect(
        name="glm4_line",
        call_templates=("$name\n$arguments", "<|assistant|>$name\n$arguments"),
        extra_closers=("<|observation|>",),
        control_tokens=("<|assistant|>", "<|observation|>"),
        evidence="whole",
        parallel=False,
        result_template="<|observation|>\n$content",
        model_fragments=("glm-4-9b", "glm-4-0414", "glm-4-32b"),
        description="GLM-4 9B; the name is on the first line; for declared tools only",
    ),
)

FRAMED_DIALECTS = (
    Dialect(
        name="harmony",
        call_templates=(
            "<|start|>assistant<|channel|>commentary to=functions.$name <|constrain|>json"
            "<|message|>$arguments<|call|>",
        ),
        separator="",
        reasoning_tags=(),
        message_frame=MessageFrame(
            openers=("<|start|>", "<|channel|>"),
            first_opener="to=",
            header_pattern=r"<\|channel\|>",
            header_end="<|message|>",
            message_ends=("<|call|>", "<|end|>", "<|return|>"),
            recipient_pattern=r"to=([^\s<]+)",
            reasoning_pattern=r".*<\|channel\|>analysis",
            tool_pattern=r"functions\.|(?!(?:assistant|user|all)$)",
        ),
        control_tokens=("<|call|>", "<|end|>", "<|return|>"),
        result_template="<|start|>functions.$name to=assistant<|channel|>commentary"
        "<|message|>$content<|end|>",
        model_fragments=("gpt-oss",),
        description="gpt-oss; separate channels for reasoning, calls and the answer",
    ),
    Dialect(
        name="inkling",
        call_templates=(
            "<|message_model|>$name<|content_invoke_tool_json|>$object<|end_message|>",
            "<|content_invoke_tool_json|>$object<|end_message|>",
            "<|message_model|>$name<|content_invoke_tool_json|>$arguments<|end_message|>",
        ),
        separator="",
        json_keys=JsonKeys("name", "args"),
        reasoning_tags=(("<|content_thinking|>", "<|end_message|>"),),
        control_tokens=(
            "<|message_model|>",
            "<|message_user|>",
            "<|content_text|>",
            "<|content_audio_input|>",
            "<|audio_end|>",
            "<|end_message|>",
        ),
        answer_spans=(("<|content_text|>", "<|end_message|>"),),
        result_template="<|message_tool|>$content<|end_message|>",
        model_fragments=("inkling",),
        description="Inkling",
    ),
)
"""A reply is several messages, each with a header that says who it is for."""
