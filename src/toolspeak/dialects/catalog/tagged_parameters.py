"""Parameters in tags of their own, with values as bare text.

<tool_call><function=get_weather><parameter=city>Oslo</parameter></function></tool_call>
"""

from __future__ import annotations

from ..template import CHATML_TOKENS, THINK_TAGS, Dialect, MessageFrame

_QWEN_PARAM = "<parameter=$key>\n$value\n</parameter>\n"
_GLM_PARAM = "<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>\n"
_XML_PARAM = '<parameter name="$key">$value</parameter>\n'
_XML_CALL = '<invoke name="$name">\n$params</invoke>\n'
_DSML_CALL = '<｜DSML｜invoke name="$name">\n$params</｜DSML｜invoke>\n'
_DSML_JSON = '<｜DSML｜invoke name="$name">$arguments</｜DSML｜invoke>\n'
_DSML_PARAM = '<｜DSML｜parameter name="$key" string="$string">$value</｜DSML｜parameter>\n'
_M3 = "]<]minimax[>["
_ANTML = "antml:"
_ATEM_CALL = '<atem:invoke name="$name">\n$params</atem:invoke>\n'
_ATEM_BLOCK = f"<atem:function_calls>\n{_ATEM_CALL}</atem:function_calls>"

DIALECTS = (
    Dialect(
        name="qwen3_coder",
        call_templates=(
            "<tool_call>\n<function=$name>\n$params</function>\n</tool_call>",
            "<function=$name>\n$params</function>\n</tool_call>",
            "<tool_call>\n<function=$name>\n$arguments</function>\n</tool_call>",
            "<tool_call>\n<function $name>\n$params</function>\n</tool_call>",
        ),
        parameter_template=_QWEN_PARAM,
        control_tokens=CHATML_TOKENS,
        model_fragments=(
            "qwen3-coder",
            "qwen3.5",
            "qwen3.6",
            "qwen3.8",
            "nemotron-3",
            "mimo",
            "step-3.5",
            "k-exaone-2",
        ),
        description="Qwen3-Coder, Qwen 3.5 and later, Nemotron 3, MiMo, Step 3.5",
    ),
    Dialect(
        name="qwen3_coder",
        call_templates=(
            '<tool_call>\n<function name="$name">\n$params</function>\n</tool_call>',
            '<function name="$name">\n$params</function>\n</tool_call>',
        ),
        parameter_template=_XML_PARAM,
        description="The same with attributes, as small models write it",
    ),
    Dialect(
        name="seed_oss",
        call_templates=(
            "<seed:tool_call>\n<function=$name>\n$params</function>\n</seed:tool_call>",
            "<function=$name>\n$params</function>\n</seed:tool_call>",
        ),
        parameter_template="<parameter=$key>$value</parameter>\n",
        reasoning_tags=(("<seed:think>", "</seed:think>"),),
        result_template="$content",
        model_fragments=("seed-oss",),
        description="Seed-OSS 36B",
    ),
    Dialect(
        name="minicpm5",
        call_templates=('<function name="$name">$params</function>',),
        parameter_template='<param name="$key">$value</param>',
        allows_cdata=True,
        model_fragments=("minicpm5", "minicpm-5"),
        description="MiniCPM5",
    ),
    Dialect(
        name="glm45",
        call_templates=(
            "<tool_call>$name\n$params</tool_call>",
            "<tool_call>$name\n$arguments</tool_call>",
        ),
        parameter_template=_GLM_PARAM,
        results_template="<|observation|>\n$results",
        model_fragments=("glm-4.5", "glm-4.6"),
        description="GLM 4.5 and 4.6",
    ),
    Dialect(
        name="glm47",
        call_templates=("<tool_call>$name$params</tool_call>",),
        separator="",
        parameter_template="<arg_key>$key</arg_key><arg_value>$value</arg_value>",
        result_template="<tool_response>$content</tool_response>",
        results_template="<|observation|>$results",
        model_fragments=("glm-4.7", "glm-5", "ling-3"),
        description="GLM 4.7 and 5, Ling 3",
    ),
    Dialect(
        name="poolside_v1",
        call_templates=("<tool_call>$name\n$params</tool_call>",),
        parameter_template=_GLM_PARAM,
        model_fragments=("laguna", "poolside"),
        description="Poolside Laguna",
    ),
    Dialect(
        name="hy_v3",
        call_templates=("<tool_call>$name<tool_sep>\n$params</tool_call>\n",),
        wrapper_template="<tool_calls>\n$calls</tool_calls>",
        parameter_template=_GLM_PARAM,
        result_template="<tool_response>$content</tool_response>",
        results_template="<tool_responses>$results</tool_responses>",
        model_fragments=("hy3", "hunyuan-v3", "hy-v3"),
        description="Tencent Hy3",
    ),
    Dialect(
        name="hy_v3",
        call_templates=(
            "<tool_call:opensource>$name<tool_sep:opensource>\n$params</tool_call:opensource>\n",
        ),
        wrapper_template="<tool_calls:opensource>\n$calls</tool_calls:opensource>",
        parameter_template="<arg_key:opensource>$key</arg_key:opensource>\n"
        "<arg_value:opensource>$value</arg_value:opensource>\n",
        reasoning_tags=(("<think:opensource>", "</think:opensource>"),),
        description="The same with the suffix of the published tokenizer",
    ),
    Dialect(
        name="minimax_m2",
        call_templates=(_XML_CALL,),
        wrapper_template="<minimax:tool_call>\n$calls</minimax:tool_call>",
        parameter_template=_XML_PARAM,
        result_template="<response>$content</response>",
        model_fragments=("minimax-m2",),
        description="MiniMax-M2",
    ),
    Dialect(
        name="minimax_m3",
        call_templates=(f'{_M3}<invoke name="$name">$elements{_M3}</invoke>',),
        wrapper_template=f"{_M3}<tool_call>$calls{_M3}</tool_call>",
        tag_prefix=_M3,
        reasoning_tags=(("<mm:think>", "</mm:think>"),),
        result_template="<response>$content</response>",
        model_fragments=("minimax-m3",),
        description="MiniMax-M3; nested elements",
    ),
    Dialect(
        name="deepseek_v32",
        call_templates=(_DSML_CALL, _DSML_JSON),
        wrapper_template="<｜DSML｜function_calls>\n$calls</｜DSML｜function_calls>",
        control_tokens=("<｜end▁of▁sentence｜>",),
        parameter_template=_DSML_PARAM,
        result_template="<result>$content</result>",
        results_template="<function_results>\n$results\n</function_results>",
        model_fragments=("deepseek-v3.2",),
        description="DeepSeek V3.2",
    ),
    Dialect(
        name="deepseek_v4",
        call_templates=(_DSML_CALL, _DSML_JSON),
        wrapper_template="<｜DSML｜tool_calls>\n$calls</｜DSML｜tool_calls>",
        control_tokens=("<｜end▁of▁sentence｜>",),
        parameter_template=_DSML_PARAM,
        result_template="<tool_result>$content</tool_result>",
        model_fragments=("deepseek-v4",),
        description="DeepSeek V4",
    ),
    Dialect(
        name="deepseek_v4",
        call_templates=(_DSML_CALL.replace("｜", "｜｜"), _DSML_JSON.replace("｜", "｜｜")),
        wrapper_template="<｜｜DSML｜｜tool_calls>\n$calls</｜｜DSML｜｜tool_calls>",
        parameter_template=_DSML_PARAM.replace("｜", "｜｜"),
        description="The same with doubled bars, as models often write it",
    ),
    Dialect(
        name="deepseek_v4",
        call_templates=('<invoke name="$name">\n$params</｜DSML｜invoke>\n',),
        wrapper_template="<｜DSML｜tool_calls>\n$calls</｜DSML｜tool_calls>",
        parameter_template='<parameter name="$key" string="$string">$value</｜DSML｜parameter>\n',
        description="The same with plain opening tags",
    ),
    Dialect(
        name="step3",
        call_templates=(
            "<｜tool_call_begin｜>function<｜tool_sep｜>"
            '<steptml:invoke name="$name">$params</steptml:invoke><｜tool_call_end｜>',
        ),
        wrapper_template="<｜tool_calls_begin｜>$calls<｜tool_calls_end｜>",
        parameter_template='<steptml:parameter name="$key">$value</steptml:parameter>',
        result_template="$content",
        model_fragments=("step3", "step-3"),
        description="Step-3",
    ),
    Dialect(
        name="kimi_k3",
        call_templates=(
            '<|open|>call tool="$name" index="$index"<|sep|>$params<|close|>call<|sep|>',
        ),
        wrapper_template="<|open|>tools<|sep|>$calls<|close|>tools<|sep|>",
        parameter_template=(
            '<|open|>argument key="$key" type="$type"<|sep|>$value<|close|>argument<|sep|>'
        ),
        reasoning_tags=(("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
        control_tokens=tuple(
            f"<|{edge}|>{space}{name}{space}<|sep|>"
            for edge in ("open", "close")
            for name in ("response", "message")
            for space in ("", " ")
        ),
        answer_spans=tuple(
            (f"<|open|>{space}response{space}<|sep|>", f"<|close|>{space}response{space}<|sep|>")
            for space in ("", " ")
        ),
        trailing_tokens=("<|open|>", "<|close|>"),
        result_template=(
            '<|open|>result tool="$name" index="$number"<|sep|>$content<|close|>result<|sep|>'
        ),
        model_fragments=("kimi-k3", "kimi_k3"),
        description="Kimi K3; every argument states its type",
    ),
    Dialect(
        name="muse_glimmer",
        call_templates=(
            f"<|start|>assistant to=$name<|message|>{_ATEM_BLOCK}<|eom|>",
            _ATEM_BLOCK,
            _ATEM_CALL,
        ),
        separator="",
        parameter_template='<atem:parameter name="$key">$value</atem:parameter>\n',
        infers_json_values=True,
        reasoning_tags=(),
        message_frame=MessageFrame(
            openers=("<|start|>assistant to=",),
            first_opener="to=",
            header_pattern=r"^(?:(?!<\|channel\|>).)*$",
            header_end="<|message|>",
            message_ends=("<|eom|>", "<|eot|>"),
            recipient_pattern=r"to=(\S+)",
            reasoning_pattern=r"to=self\b",
        ),
        control_tokens=("<|eom|>", "<|eot|>"),
        result_template='<tool_output name="$name">$content</tool_output>',
        model_fragments=("glimmer",),
        description="Muse Glimmer; every message names its recipient",
    ),
    Dialect(
        name="anthropic_legacy",
        call_templates=(
            _XML_CALL,
            '<invoke name="$name">$arguments</invoke>\n',
            "<invoke>\n<tool_name>$name</tool_name>\n<parameters>\n$elements</parameters>\n</invoke>\n",
        ),
        wrapper_template="<function_calls>\n$calls</function_calls>",
        parameter_template=_XML_PARAM,
        reasoning_tags=(*THINK_TAGS, ("<thinking>", "</thinking>")),
        result_template="<result>\n<tool_name>$name</tool_name>\n<stdout>\n$content\n</stdout>\n</result>",
        results_template="<function_results>\n$results\n</function_results>",
        model_fragments=("claude-2", "claude-instant"),
        description="Claude 2 and 3 prompts, and models trained on their output",
    ),
    Dialect(
        name="anthropic_legacy",
        call_templates=(f'<{_ANTML}invoke name="$name">\n$params</{_ANTML}invoke>\n',),
        wrapper_template=f"<{_ANTML}function_calls>\n$calls</{_ANTML}function_calls>",
        parameter_template=f'<{_ANTML}parameter name="$key">$value</{_ANTML}parameter>\n',
        description="The same with a prefix, as models trained on Claude's output write it",
    ),
    Dialect(
        name="bfcl_xml",
        call_templates=('<function name="$name"><params>$params</params></function>',),
        wrapper_template="<functions>$calls</functions>",
        parameter_template='<param name="$key" value="$value" type="$type"/>',
        result_template="$content",
        description="The Berkeley leaderboard's XML prompts",
    ),
    Dialect(
        name="bfcl_xml",
        call_templates=('<function name="$name"><params>$params</params></function>',),
        wrapper_template="<functions>$calls</functions>",
        parameter_template='<param name="$key" type="$type">$value</param>',
        description="The concise form of the same",
    ),
    Dialect(
        name="bfcl_xml",
        call_templates=('<function name="$name"><params>$params</params></function>',),
        wrapper_template="<TOOLCALL><functions>$calls</functions></TOOLCALL>",
        parameter_template='<param name="$key" value="$value" type="$type"/>',
        description="The same inside `<TOOLCALL>`",
    ),
    Dialect(
        name="tool_named_xml",
        call_templates=("<$name>$elements</$name>", "<$name/>", "<$name />"),
        evidence="prose",
        allows_cdata=True,
        description="Prompted models; an element named after the tool; for declared tools only",
    ),
    Dialect(
        name="yaml_xml",
        call_templates=("<$name>\n$yaml</$name>",),
        evidence="prose",
        description="Prompted models; YAML inside an element named after the tool",
    ),
)
