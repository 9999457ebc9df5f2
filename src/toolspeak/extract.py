"""What a model meant: the calls in a whole reply, be they structured or written out.

extract(text, tools=tools)   ->   Reply(text, reasoning, calls, rejected, notes, dialect)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from .calls import drafts as calls
from .calls.native import Native, native
from .calls.resolution import CallResolver
from .calls.tools import as_tools
from .calls.toolset import Toolset
from .dialects import Dialect, Parser
from .dialects.registry import AUTO
from .dialects.template import COMMON_REASONING_TAGS
from .errors import ExtractionProblem
from .events import CallEnd, CallRejected, CallStart, Event, ReasoningDelta, TextDelta, fold
from .types import Capabilities, Reply, Trust

Extraction = Reply
"""What `extract` gives back: the same as `fold`."""


def extract(
    reply: Any,
    *,
    tools: Iterable[Any] | None = None,
    types_only: bool = False,
    dialect: str | Dialect | Sequence[Dialect] = AUTO,
    trust: Trust = "standard",
    capabilities: Capabilities | None = None,
    context: Any = (),
    reasoning_open: bool | None = None,
    on_problem: Literal["note", "raise"] = "note",
    new_id: Callable[[], str] = calls.new_call_id,
) -> Reply:
    """The calls in a reply: its text, or an API's whole answer.

    Structured calls count before anything that stands in the text. With `types_only`, a call that
    is of no declared tool, or does not fit its schema, is made all the same. `context` is the
    conversation so far: a call that only repeats one from a tool result or a document is not made.
    """
    taken = Native(reply) if isinstance(reply, str) else native(reply)
    declared = as_tools(tools)
    if taken.drafts:
        result = fold(_structured(taken, declared, new_id, types_only=types_only))
    else:
        if reasoning_open is None and capabilities:
            reasoning_open = capabilities.reasoning_open
        parser = Parser(
            dialect=dialect,
            tools=declared,
            types_only=types_only,
            trust=trust,
            context=context,
            reasoning_open=False if taken.reasoning else reasoning_open,
            new_id=new_id,
        )
        thoughts = [ReasoningDelta(taken.reasoning)] if taken.reasoning else []
        result = fold([*thoughts, *parser.events([taken.text])])
    if on_problem == "raise" and result.rejected:
        raise ExtractionProblem(result.rejected[0])
    return result


def _apart(text: str) -> tuple[str, str]:
    """Text and reasoning, where an API has left both in one; calls in it stay text."""
    if not any(opener in text for opener, _ in COMMON_REASONING_TAGS):
        return text, ""
    reply = fold(Parser(tools=(), trust="strict", reasoning_open=False).events([text]))
    return reply.text, reply.reasoning


def _structured(
    taken: Native, tools: Sequence[Any] | None, new_id: Callable[[], str], *, types_only: bool
) -> Iterator[Event]:
    """Calls that came as structures: names and arguments are checked, nothing else."""
    toolset = None if tools is None else Toolset(tools)
    resolver = CallResolver(toolset, types_only=types_only, new_id=new_id)
    count = 0
    text, thought = _apart(taken.text)
    if taken.reasoning or thought:
        yield ReasoningDelta(taken.reasoning + thought)
    if text:
        yield TextDelta(text)
    for draft in taken.drafts:
        source = draft.arguments if isinstance(draft.arguments, str) else ""
        resolution = resolver.resolve(draft, source, source or str(draft.arguments or ""))
        if resolution.rejection:
            yield CallRejected(resolution.rejection)
        yield from resolution.notes
        if call := resolution.call:
            yield CallStart(count, call.id, call.name, "native")
            yield CallEnd(count, call)
            count += 1
