"""Formats that prompts ask for, from the systems this project grew out of."""

from __future__ import annotations

from ..template import Dialect, Keys

_CONTINUE = (
    "Based on the tool result above, continue with the next appropriate action using the "
    "structured format, or give the final answer."
)
_XML = ("tool_call", "toolcall", "tool-call", "invoke")

DIALECTS = (
    Dialect(
        name="tagged",
        call=("~~~tool_call\n$object\n~~~",),
        own_line=True,
        keys=Keys("name", "arguments", "id"),
        foreign=(("~~~tool_result\n", "\n~~~"),),
        result="~~~tool_result\n$content\n~~~",
        about="for prompts: fences of tildes, on lines of their own",
    ),
    Dialect(
        name="action",
        call=("```json action\n$object\n```",),
        keys=Keys("tool", "parameters"),
        result="Tool result for $id:\n$content",
        results=f"$results\n\n{_CONTINUE}",
        about="for prompts: a fence that says it is an action",
    ),
    Dialect(
        name="xml",
        call=(
            *(f"<{tag}>\n$object\n</{tag}>" for tag in _XML),
            "<tool_call>$python</tool_call>",
            "<tool_call><$name>$elements</$name></tool_call>",
            "<tool_call><$name>$arguments</$name></tool_call>",
            "<tool_call>$name $attributes</tool_call>",
        ),
        also_closes=tuple(f"</{tag}>" for tag in _XML),
        noisy=True,
        foreign=tuple(
            (f"{heading}<tool_result", "</tool_result>") for heading in ("", "[Tool results]\n")
        ),
        last=("<eom>",),
        result='<tool_result name="$name">\n$content\n</tool_result>',
        results="[Tool results]\n$results",
        about="for prompts: JSON in a tag; closers may be mixed up",
    ),
    Dialect(
        name="xml",
        call=("<tools>$canonical</tools>",),
        also_closes=tuple(f"</{tag}>" for tag in _XML),
        inert=(("<tools>", "</tools>"),),
        about="the tag that prompts list tools in; a call only if it is nothing else",
    ),
    Dialect(
        name="xml",
        call=("[TOOL_CALL]\n$perl\n[/TOOL_CALL]", "TOOL_CALL\n$perl\n/TOOL_CALL"),
        own_line=True,
        about="a habit of several models: a map with arrows, and arguments as a shell has them",
    ),
    Dialect(
        name="fence",
        call=(
            *(f"```{word}\n$object\n```" for word in _XML),
            "```tool $name\n$arguments\n```",
        ),
        also_closes=tuple(f"</{tag}>" for tag in _XML),
        about="for prompts: a fence named like what it holds",
    ),
    Dialect(
        name="glm-line",
        call=(
            "$name/$line",
            "<tool_call>$name>\n$yaml</tool_call>",
            "<tool_call>$name>$input</tool_call>",
        ),
        also_closes=("</invoke>",),
        evidence="prose",
        about="GLM's short form: tool/parameter>value, for declared tools only",
    ),
    Dialect(
        name="content-with-tool_calls",
        call=("$content",),
        keys=Keys("name", "arguments", "id"),
        evidence="whole",
        about="history as JSON: the text and the calls in one object",
    ),
)
