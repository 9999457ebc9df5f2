"""Corrections: the messages that tell a model what was wrong with its reply.

The first correction gives the reason; the second only says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._util import encode_json
from ..calls.schema import get_properties, get_required
from ..dialects import Dialect, render_calls
from ..errors import Unrepresentable
from ..types import Rejection, Tool, ToolCall
from .outcome import Outcome, OutcomeKind
from .tool_names import OfferedTools

CORRECTIONS: dict[OutcomeKind, tuple[str, str]] = {
    "invalid-call": (
        "Your call was not executed. {problems}\nCall the tool again with valid "
        "arguments.{schemas}",
        "Your call is still invalid. {problems}",
    ),
    "unknown-tool": (
        "Your call was not executed. {problems} The available tools are: {tools}.\nCall one of "
        "these tools.",
        "Only these tools exist: {tools}.",
    ),
    "missing-call": (
        "You must call one of these tools now: {tools}.",
        "Do not answer in text. Call one of these tools: {tools}.",
    ),
    "false-refusal": (
        "You have working tools for this task: {tools}. They run outside this conversation, so "
        "you need no access of your own.\nChoose one and call it now.",
        "Call one of these tools: {tools}.",
    ),
    "truncated-call": (
        "Your call was cut off and not executed.\nCall the tool again with shorter values.",
        "Your call was cut off again.",
    ),
    "repeated-call": (
        "You have already made this call several times, and its result has not changed. Do not "
        "repeat it.\nUse the result you have, try something else, or answer the user.",
        "Do not repeat that call. Answer the user with what you know.",
    ),
    "empty": (
        "Your reply was empty.\nCall a tool or answer the user.",
        "Answer the user.",
    ),
}
"""The first and the second correction for each kind of outcome."""
CONTINUE = "Continue exactly where you stopped. Do not repeat or explain anything."
_NO_PROSE = "Do not explain anything."
_CALL_ONLY = "Write only the call."
_CALL_FORM = "Write only the call, in this form, with your own values:\n{form}"
_ANSWER_ALLOWED = frozenset[OutcomeKind]({"repeated-call", "empty"})
"""Outcomes after which the model may also answer in text."""
_MAX_PROBLEMS = 5
_MAX_SCHEMA_LENGTH = 1500


def write_correction(
    outcome: Outcome, offered: OfferedTools, dialect: Dialect | None, *, again: bool
) -> str:
    """Return the correction for `outcome`.

    It shows the form of a call in `dialect`; None means that the API has structured calls. `again`
    selects the second correction.
    """
    rejected_tools = _find_rejected_tools(outcome.rejected, offered.tools)
    message = CORRECTIONS[outcome.kind][again].format(
        problems=" ".join(_list_problems(outcome.rejected)),
        tools=", ".join(tool.name for tool in offered.tools),
        schemas=_list_schemas(rejected_tools),
    )
    if outcome.kind in _ANSWER_ALLOWED:
        return message
    lines = [message, _NO_PROSE] if again else [message]
    if dialect:
        tool = rejected_tools[0] if rejected_tools else None
        lines.append(_CALL_FORM.format(form=_render_form(tool, offered.tools, dialect)))
    elif again:
        lines.append(_CALL_ONLY)
    return "\n".join(lines)


def _find_rejected_tools(rejected: Sequence[Rejection], tools: Sequence[Tool]) -> list[Tool]:
    names = {rejection.name for rejection in rejected}
    return [tool for tool in tools if tool.name in names]


def _list_problems(rejected: Iterable[Rejection]) -> list[str]:
    problems = (f"{one.name or 'It'}: {one.problem.rstrip('.')}." for one in rejected)
    return list(dict.fromkeys(problems))[:_MAX_PROBLEMS]


def _list_schemas(tools: Sequence[Tool]) -> str:
    if not tools:
        return ""
    schemas = [
        f"{tool.name}: {encode_json(tool.parameters)[:_MAX_SCHEMA_LENGTH]}" for tool in tools
    ]
    return "\n".join(("\nParameters:", *schemas))


def _render_form(tool: Tool | None, tools: Sequence[Tool], dialect: Dialect) -> str:
    """Return a sample call to `tool`. Its values are dots, so that no model copies them."""
    shown = tool or tools[0]
    parameters = get_required(shown.parameters) or list(get_properties(shown.parameters))[:1]
    name = shown.name if tool or len(tools) == 1 else "NAME"
    call = ToolCall(id="call_1", name=name, arguments=dict.fromkeys(parameters, "..."))
    try:
        return render_calls(dialect, [call], tools)
    except Unrepresentable:
        return f"a call to {name}"
