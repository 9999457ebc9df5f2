"""Parameters in tags of their own, with values as bare text."""

from __future__ import annotations

from ..template import CHATML_TURN, THINK, Dialect, Frame

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
        call=(
            "<tool_call>\n<function=$name>\n$params</function>\n</tool_call>",
            "<function=$name>\n$params</function>\n</tool_call>",
            "<tool_call>\n<function=$name>\n$arguments</function>\n</tool_call>",
            "<tool_call>\n<function $name>\n$params</function>\n</tool_call>",
        ),
        param=_QWEN_PARAM,
        silent=CHATML_TURN,
        models=(
            "qwen3-coder",
            "qwen3.5",
            "qwen3.6",
            "qwen3.8",
            "nemotron-3",
            "mimo",
            "step-3.5",
            "k-exaone-2",
        ),
        about="Qwen3-Coder, Qwen 3.5 and after, Nemotron 3, MiMo, Step 3.5",
    ),
    Dialect(
        name="qwen3_coder",
        call=(
            '<tool_call>\n<function name="$name">\n$params</function>\n</tool_call>',
            '<function name="$name">\n$params</function>\n</tool_call>',
        ),
        param=_XML_PARAM,
        about="the same with attributes, as small models write it",
    ),
    Dialect(
        name="seed_oss",
        call=(
            "<seed:tool_call>\n<function=$name>\n$params</function>\n</seed:tool_call>",
            "<function=$name>\n$params</function>\n</seed:tool_call>",
        ),
        param="<parameter=$key>$value</parameter>\n",
        reasoning=(("<seed:think>", "</seed:think>"),),
        result="$content",
        models=("seed-oss",),
        about="Seed-OSS 36B",
    ),
    Dialect(
        name="minicpm5",
        call=('<function name="$name">$params</function>',),
        param='<param name="$key">$value</param>',
        cdata=True,
        models=("minicpm5", "minicpm-5"),
        about="MiniCPM5",
    ),
    Dialect(
        name="glm45",
        call=("<tool_call>$name\n$params</tool_call>", "<tool_call>$name\n$arguments</tool_call>"),
        param=_GLM_PARAM,
        results="<|observation|>\n$results",
        models=("glm-4.5", "glm-4.6"),
        about="GLM 4.5 and 4.6",
    ),
    Dialect(
        name="glm47",
        call=("<tool_call>$name$params</tool_call>",),
        between="",
        param="<arg_key>$key</arg_key><arg_value>$value</arg_value>",
        result="<tool_response>$content</tool_response>",
        results="<|observation|>$results",
        models=("glm-4.7", "glm-5", "ling-3"),
        about="GLM 4.7 and 5, Ling 3",
    ),
    Dialect(
        name="poolside_v1",
        call=("<tool_call>$name\n$params</tool_call>",),
        param=_GLM_PARAM,
        models=("laguna", "poolside"),
        about="Poolside Laguna",
    ),
    Dialect(
        name="hy_v3",
        call=("<tool_call>$name<tool_sep>\n$params</tool_call>\n",),
        wrap="<tool_calls>\n$calls</tool_calls>",
        between="",
        param=_GLM_PARAM,
        result="<tool_response>$content</tool_response>",
        results="<tool_responses>$results</tool_responses>",
        models=("hy3", "hunyuan-v3", "hy-v3"),
        about="Tencent Hy3",
    ),
    Dialect(
        name="hy_v3",
        call=(
            "<tool_call:opensource>$name<tool_sep:opensource>\n$params</tool_call:opensource>\n",
        ),
        wrap="<tool_calls:opensource>\n$calls</tool_calls:opensource>",
        between="",
        param="<arg_key:opensource>$key</arg_key:opensource>\n"
        "<arg_value:opensource>$value</arg_value:opensource>\n",
        reasoning=(("<think:opensource>", "</think:opensource>"),),
        about="the same with the suffix of the published tokenizer",
    ),
    Dialect(
        name="minimax_m2",
        call=(_XML_CALL,),
        wrap="<minimax:tool_call>\n$calls</minimax:tool_call>",
        between="",
        param=_XML_PARAM,
        result="<response>$content</response>",
        models=("minimax-m2",),
        about="MiniMax-M2",
    ),
    Dialect(
        name="minimax_m3",
        call=(f'{_M3}<invoke name="$name">$elements{_M3}</invoke>',),
        wrap=f"{_M3}<tool_call>$calls{_M3}</tool_call>",
        between="",
        prefix=_M3,
        reasoning=(("<mm:think>", "</mm:think>"),),
        result="<response>$content</response>",
        models=("minimax-m3",),
        about="MiniMax-M3; nested elements",
    ),
    Dialect(
        name="deepseek_v32",
        call=(_DSML_CALL, _DSML_JSON),
        wrap="<｜DSML｜function_calls>\n$calls</｜DSML｜function_calls>",
        between="",
        silent=("<｜end▁of▁sentence｜>",),
        param=_DSML_PARAM,
        result="<result>$content</result>",
        results="<function_results>\n$results\n</function_results>",
        models=("deepseek-v3.2",),
        about="DeepSeek V3.2",
    ),
    Dialect(
        name="deepseek_v4",
        call=(_DSML_CALL, _DSML_JSON),
        wrap="<｜DSML｜tool_calls>\n$calls</｜DSML｜tool_calls>",
        between="",
        silent=("<｜end▁of▁sentence｜>",),
        param=_DSML_PARAM,
        result="<tool_result>$content</tool_result>",
        models=("deepseek-v4",),
        about="DeepSeek V4",
    ),
    Dialect(
        name="deepseek_v4",
        call=(_DSML_CALL.replace("｜", "｜｜"), _DSML_JSON.replace("｜", "｜｜")),
        wrap="<｜｜DSML｜｜tool_calls>\n$calls</｜｜DSML｜｜tool_calls>",
        between="",
        param=_DSML_PARAM.replace("｜", "｜｜"),
        about="the same with two bars, as it is often seen",
    ),
    Dialect(
        name="deepseek_v4",
        call=('<invoke name="$name">\n$params</｜DSML｜invoke>\n',),
        wrap="<｜DSML｜tool_calls>\n$calls</｜DSML｜tool_calls>",
        between="",
        param='<parameter name="$key" string="$string">$value</｜DSML｜parameter>\n',
        about="the same with plain tags that open",
    ),
    Dialect(
        name="step3",
        call=(
            "<｜tool_call_begin｜>function<｜tool_sep｜>"
            '<steptml:invoke name="$name">$params</steptml:invoke><｜tool_call_end｜>',
        ),
        wrap="<｜tool_calls_begin｜>$calls<｜tool_calls_end｜>",
        between="",
        param='<steptml:parameter name="$key">$value</steptml:parameter>',
        result="$content",
        models=("step3", "step-3"),
        about="Step-3",
    ),
    Dialect(
        name="kimi_k3",
        call=('<|open|>call tool="$name" index="$index"<|sep|>$params<|close|>call<|sep|>',),
        wrap="<|open|>tools<|sep|>$calls<|close|>tools<|sep|>",
        between="",
        param='<|open|>argument key="$key" type="$type"<|sep|>$value<|close|>argument<|sep|>',
        reasoning=(("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
        silent=tuple(
            f"<|{edge}|>{space}{name}{space}<|sep|>"
            for edge in ("open", "close")
            for name in ("response", "message")
            for space in ("", " ")
        ),
        last=("<|open|>", "<|close|>"),
        result='<|open|>result tool="$name" index="$number"<|sep|>$content<|close|>result<|sep|>',
        models=("kimi-k3", "kimi_k3"),
        about="Kimi K3; every argument says its type",
    ),
    Dialect(
        name="muse_glimmer",
        call=(
            f"<|start|>assistant to=$name<|message|>{_ATEM_BLOCK}<|eom|>",
            _ATEM_BLOCK,
            _ATEM_CALL,
        ),
        between="",
        param='<atem:parameter name="$key">$value</atem:parameter>\n',
        json_values=True,
        reasoning=(),
        frame=Frame(
            openers=("<|start|>assistant to=",),
            first="to=",
            header=r"^(?:(?!<\|channel\|>).)*$",
            message="<|message|>",
            ends=("<|eom|>", "<|eot|>"),
            recipient=r"to=(\S+)",
            thought=r"to=self\b",
        ),
        silent=("<|eom|>", "<|eot|>"),
        result='<tool_output name="$name">$content</tool_output>',
        models=("glimmer",),
        about="Muse Glimmer; messages say whom they are for",
    ),
    Dialect(
        name="anthropic_legacy",
        call=(
            _XML_CALL,
            '<invoke name="$name">$arguments</invoke>\n',
            "<invoke>\n<tool_name>$name</tool_name>\n<parameters>\n$elements</parameters>\n</invoke>\n",
        ),
        wrap="<function_calls>\n$calls</function_calls>",
        between="",
        param=_XML_PARAM,
        reasoning=(*THINK, ("<thinking>", "</thinking>")),
        result="<result>\n<tool_name>$name</tool_name>\n<stdout>\n$content\n</stdout>\n</result>",
        results="<function_results>\n$results\n</function_results>",
        models=("claude-2", "claude-instant"),
        about="Claude 2 and 3 prompts, and models trained on their output",
    ),
    Dialect(
        name="anthropic_legacy",
        call=(f'<{_ANTML}invoke name="$name">\n$params</{_ANTML}invoke>\n',),
        wrap=f"<{_ANTML}function_calls>\n$calls</{_ANTML}function_calls>",
        between="",
        param=f'<{_ANTML}parameter name="$key">$value</{_ANTML}parameter>\n',
        about="the same with a prefix, as models trained on Claude's output write it",
    ),
    Dialect(
        name="bfcl_xml",
        call=('<function name="$name"><params>$params</params></function>',),
        wrap="<functions>$calls</functions>",
        between="",
        param='<param name="$key" value="$value" type="$type"/>',
        result="$content",
        about="the Berkeley leaderboard's XML prompts",
    ),
    Dialect(
        name="bfcl_xml",
        call=('<function name="$name"><params>$params</params></function>',),
        wrap="<functions>$calls</functions>",
        between="",
        param='<param name="$key" type="$type">$value</param>',
        about="the concise form of the same",
    ),
    Dialect(
        name="bfcl_xml",
        call=('<function name="$name"><params>$params</params></function>',),
        wrap="<TOOLCALL><functions>$calls</functions></TOOLCALL>",
        between="",
        param='<param name="$key" value="$value" type="$type"/>',
        about="the same between the tags of another prompt",
    ),
    Dialect(
        name="tool_named_xml",
        call=("<$name>$elements</$name>", "<$name/>", "<$name />"),
        evidence="prose",
        cdata=True,
        about="prompted models; the element is the tool, for declared tools only",
    ),
    Dialect(
        name="yaml_xml",
        call=("<$name>\n$yaml</$name>",),
        evidence="prose",
        about="prompted models; YAML inside an element named like the tool",
    ),
)
