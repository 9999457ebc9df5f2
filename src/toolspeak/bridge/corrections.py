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
        "That call was not made. {problems}\nMake it again, with arguments that fit:\n{schemas}",
        "The call still does not fit. {problems}",
    ),
    "unknown-tool": (
        "{problems} The tools are: {tools}.\nMake the call again with one of these.",
        "Only these tools exist: {tools}.",
    ),
    "missing-call": (
        "You have to make a call now, of one of these: {tools}.",
        "There is no other way to go on than a call of {tools}.",
    ),
    "false-refusal": (
        "You do have tools, they work, and they do what you need: {tools}. Their results come from "
        "outside, so you need no access of your own.\nChoose one of them, and make the call.",
        "Use {tools}.",
    ),
    "truncated-call": (
        "Your call was cut off before its end, and not made.\nMake it again, with shorter values.",
        "The call was cut off again.",
    ),
    "repeated-call": (
        "You have made that call again and again, and its result does not change. Do not make it "
        "any more.\nUse the result that you have, try something else, or answer the user.",
        "Do not make that call again. Answer the user with what you know.",
    ),
    "empty": (
        "You have said nothing.\nMake a call, or answer the user.",
        "Answer the user.",
    ),
}
"""By what a reply comes to: the first and the second time."""
CONTINUE = "Go on exactly where you stopped. Repeat nothing, and explain nothing."
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
