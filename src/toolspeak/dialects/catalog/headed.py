"""The name between markers, then the arguments as a JSON object."""

from __future__ import annotations

from ..template import LLAMA_TURN, THINK, Dialect

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
        call=(
            "<function=$name>$arguments</function>",
            "<function=$name$arguments</function>",
            "<function=$name=$arguments</function>",
            "<|python_tag|>$code<|eom_id|>",
        ),
        also_closes=LLAMA_TURN,
        between="",
        result="$content",
        models=("functionary-v3.1", "functionary-small-v3.1", "functionary-medium-v3.1"),
        about="Functionary v3.1, and Llama 3.1 with its custom-tool prompt",
    ),
    Dialect(
        name="functionary_v3_2",
        call=(
            ">>>$name\n$arguments",
            "$name\n$arguments",
            ">>>$name\n$code<|eot_id|>",
            "$name\n$code<|eot_id|>",
        ),
        also_closes=LLAMA_TURN,
        between="\n",
        silent=(">>>all\n",),
        start=("all\n",),
        reserved=("all",),
        result="$content",
        models=("functionary-v3.2", "functionary-small-v3.2", "functionary-medium-v3.2"),
        about="Functionary v3.2; >>>all begins text",
    ),
    Dialect(
        name="functionary_v2",
        call=(
            "<|from|>assistant\n<|recipient|>$name\n<|content|>$arguments<|stop|>",
            "<|recipient|>$name\n<|content|>$arguments<|stop|>",
            "$name\n<|content|>$arguments<|stop|>",
        ),
        start=("all\n<|content|>",),
        reserved=("all",),
        silent=(
            "<|from|>assistant\n<|recipient|>all\n<|content|>",
            "<|recipient|>all\n<|content|>",
        ),
        result="<|from|>$name\n<|recipient|>all\n<|content|>$content",
        models=("functionary-7b-v2", "functionary-small-v2", "functionary-medium-v2"),
        about="Functionary v2",
    ),
    Dialect(
        name="mistral_args",
        call=(
            "[TOOL_CALLS]$name[CALL_ID]$id[ARGS]$arguments",
            "[TOOL_CALLS]$name[ARGS]$arguments",
            "[TOOL_CALLS]$name$arguments",
        ),
        between="",
        reasoning=_MISTRAL_THINK,
        also_closes=("</s>",),
        result="[TOOL_RESULTS]$id[TOOL_CONTENT]$content[/TOOL_RESULTS]",
        models=("mistral-small-3", "mistral-medium", "devstral", "magistral", "ministral-3"),
        about="Mistral Small 3.1 and after, Devstral, Magistral",
    ),
    Dialect(
        name="deepseek_v3",
        call=(
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
        wrap=_DEEPSEEK_WRAP,
        silent=(
            *_DEEPSEEK_SILENT,
            "<|tool▁calls▁begin|>",
            "<|tool▁calls▁end|>",
            "<｜tool calls begin｜>",
            "<｜tool calls end｜>",
            "<|tool_calls_begin|>",
            "<|tool_calls_end|>",
        ),
        result=_DEEPSEEK_RESULT,
        results=_DEEPSEEK_RESULTS,
        foreign=(("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),),
        models=("deepseek-v3", "deepseek-r1", "deepseek-chat", "deepseek-reasoner", "cogito"),
        about="DeepSeek V3 and R1, Cogito v2",
    ),
    Dialect(
        name="deepseek_v31",
        call=(
            "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
            "<｜tool▁calls▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
        ),
        wrap=_DEEPSEEK_WRAP,
        between="",
        silent=_DEEPSEEK_SILENT,
        result=_DEEPSEEK_RESULT,
        models=("deepseek-v3.1",),
        about="DeepSeek V3.1",
    ),
    Dialect(
        name="kimi_k2",
        call=("<|tool_call_begin|>$header<|tool_call_argument_begin|>$arguments<|tool_call_end|>",),
        wrap="<|tool_calls_section_begin|>$calls<|tool_calls_section_end|>",
        between="",
        header=(
            r"(?:functions\.)?(.*?)(?:[:.]\d+)?",
            r"(?:functions[._]?)?(.*?)(?:[:._]\d+)?",
            r"(?:functions[._]?)?(.*?)[:._]?\d*",
            r"(?:call_?)?(\d+)",
        ),
        write_header="functions.$name:$index",
        result="## Return of $id\n$content",
        models=("kimi-k2", "kimi_k2"),
        about="Kimi K2; the header is the call's id",
    ),
    Dialect(
        name="solar_open",
        call=(
            "<|tool_call:begin|>$id<|tool_call:name|>$name<|tool_call:args|>$arguments<|tool_call:end|>",
        ),
        wrap="<|begin|>assistant<|tool_calls|>$calls<|calls|>",
        between="",
        reasoning=(*THINK, ("<|think|>", "<|end|>")),
        silent=("<|begin|>assistant", "<|content|>", "<|end|>", "<|calls|>"),
        result="<|tool_response:begin|>$id<|tool_response:name|>$name"
        "<|tool_response:result|>$content<|tool_response:end|>",
        results="<|begin|>tool<|tool_response|>$results",
        models=("solar-open",),
        about="Solar-Open 100B",
    ),
    Dialect(
        name="glm4_line",
        call=("$name\n$arguments", "<|assistant|>$name\n$arguments"),
        also_closes=("<|observation|>",),
        silent=("<|assistant|>", "<|observation|>"),
        evidence="whole",
        parallel=False,
        result="<|observation|>\n$content",
        models=("glm-4-9b", "glm-4-0414", "glm-4-32b"),
        about="GLM-4 9B; the name on the first line, for declared tools only",
    ),
)
