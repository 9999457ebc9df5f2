"""What a model is told whose reply will not do: what was wrong with it, and what to write instead.

The first time with a reason, the second time with nothing but what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..dialects import Dialect, render_calls
from ..errors import Unrepresentable
from ..jsonish import dumps
from ..schema import properties, required_of
from ..types import Rejection, Tool, ToolCall
from .offered import Offered
from .outcome import Kind, Outcome

WORDS: dict[Kind, tuple[str, str]] = {
    "invalid-call": (
        "Your call was not executed. {problems}\nCall the tool again with arguments that match "
        "this schema:\n{schemas}",
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
        "You have working tools for this task: {tools}. They fetch the data for you, so you need "
        "no access of your own.\nChoose one and call it now.",
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
"""By what a reply comes to: the first and the second time."""
CONTINUE = "Continue exactly where you stopped. Do not repeat or explain anything."
_ONLY = "Do not explain anything. Write only the call."
_LIKE = "Write only the call, in this form, with your own values:\n{form}"
_FREE = frozenset[Kind]({"repeated-call", "empty"})
"""After these, an answer is as good as a call."""
_MOST = 5
_LONGEST_SCHEMA = 1500


def correction(outcome: Outcome, offered: Offered, dialect: Dialect | None, *, again: bool) -> str:
    """What to say of a reply. `dialect` is what calls are written in; None where the API has a
    place of its own for them."""
    meant = _meant(outcome.rejected, offered.tools)
    words = WORDS[outcome.kind][again].format(
        problems=" ".join(_problems(outcome.rejected)),
        tools=", ".join(tool.name for tool in offered.tools),
        schemas="\n".join(_schemas(meant)),
    )
    if outcome.kind in _FREE:
        return words
    if dialect is None:
        return f"{words}\n{_ONLY}" if again else words
    form = _form(meant[0] if meant else None, offered.tools, dialect)
    return "\n".join((words, *((_ONLY,) if again else ()), _LIKE.format(form=form)))


def _meant(rejected: Sequence[Rejection], tools: Sequence[Tool]) -> list[Tool]:
    """The tools of calls that were not made."""
    names = {one.name for one in rejected}
    return [tool for tool in tools if tool.name in names]


def _problems(rejected: Iterable[Rejection]) -> Iterable[str]:
    seen = dict.fromkeys(f"{one.name or 'It'}: {one.problem.rstrip('.')}." for one in rejected)
    return list(seen)[:_MOST]


def _schemas(tools: Iterable[Tool]) -> Iterable[str]:
    for tool in tools:
        yield f"{tool.name}: {dumps(tool.parameters)[:_LONGEST_SCHEMA]}"


def _form(tool: Tool | None, tools: Sequence[Tool], dialect: Dialect) -> str:
    """What a call looks like. Its values are dots: nobody takes those for an argument."""
    shown = tool or tools[0]
    named = required_of(shown.parameters) or list(properties(shown.parameters))[:1]
    name = shown.name if tool or len(tools) == 1 else "NAME"
    call = ToolCall(id="call_1", name=name, arguments=dict.fromkeys(named, "..."))
    try:
        return render_calls(dialect, [call], tools)
    except Unrepresentable:
        return f"a call of {name}"
