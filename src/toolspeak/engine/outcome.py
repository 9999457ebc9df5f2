"""What a reply comes to, as a value: whether it will do, and if not, what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from ..calls.drafts import CallKey, call_key
from ..dialects import Parser
from ..events import fold
from ..security.message_origin import last_user_text
from ..security.refusals import begins_like_refusal, find_refusal
from ..types import (
    Message,
    Note,
    Reasoning,
    Rejection,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from .response_format import match_format
from .tool_names import OfferedTools

OutcomeKind = Literal[
    "calls",
    "answer",
    "refusal",
    "invalid-call",
    "unknown-tool",
    "missing-call",
    "false-refusal",
    "truncated-call",
    "repeated-call",
    "unformed-answer",
    "empty",
]
OUTCOMES: dict[OutcomeKind, str] = {
    "calls": "calls that can be made",
    "answer": "an answer",
    "refusal": "a refusal that is honest: for safety, or because something is missing",
    "invalid-call": "a call that cannot be read, or whose arguments do not fit",
    "unknown-tool": "a call of a tool that was not offered",
    "missing-call": "no call, though one is required",
    "false-refusal": "a claim that there are no tools, though a fitting one was offered",
    "truncated-call": "a call that is cut off",
    "repeated-call": "a call that has been made again and again, with the same result",
    "unformed-answer": "an answer that is not in the form that was asked for",
    "empty": "nothing",
}
_CODES: dict[str, OutcomeKind] = {
    "unknown-tool": "unknown-tool",
    "invalid-arguments": "invalid-call",
    "undecodable-arguments": "invalid-call",
    "malformed": "invalid-call",
    "too-long": "invalid-call",
    "truncated": "truncated-call",
}
"""What a block comes to that tried to be a call. Others are examples, echoes and the like."""


_SHOWN = 60
_BODY = re.compile(r"[>\])=]\s*[{\[<\"]")
"""The beginning of what stands between a call's markers."""


class Outcome(Struct, frozen=True):
    """What a reply comes to."""

    kind: OutcomeKind
    rejected: tuple[Rejection, ...] = ()
    """The blocks that are why; beside calls, those that were not made."""


def classify_reply(
    reply: Reply, request: Request, offered: OfferedTools, stuck: CallKey | None = None
) -> Outcome:
    """What a reply to a request comes to. `stuck` is a call that may not be made once more."""
    if calls := reply.calls:
        is_stuck = stuck and all(call_key(call.name, call.arguments) == stuck for call in calls)
        rejected = tuple(one for one in reply.rejected if one.code in _CODES)
        return Outcome("repeated-call" if is_stuck else "calls", rejected)
    if reply.stop_reason == "refusal":
        return Outcome("refusal")
    if any(not isinstance(part, (Text, Reasoning)) for part in reply.parts):
        # Pictures, and what an API does by itself: its own tools count as calls.
        return Outcome("calls" if offered.has_hosted_tools else "answer")
    if offered.tools:
        blocks = [one for one in reply.rejected if not _is_aside(one, reply.text)]
        blocks += _unread(reply, offered.tools)
        blocks += _bare(reply.text.strip(), offered.tools)
        for code, kind in _CODES.items():
            if rejected := tuple(one for one in blocks if one.code == code):
                return Outcome(kind, rejected)
        if request.tool_choice.mode == "required":
            return Outcome("missing-call")
    if not reply.text.strip():
        # What a model only thought is what it has to say, or all that it was allowed to; and it
        # may have said something for which there are no words here.
        is_done = reply.reasoning.strip() or reply.stop_reason in ("length", "filter")
        is_done = is_done or any(note.code == "unsupported" for note in reply.notes)
        return Outcome("answer" if is_done else "empty")
    said = _said(reply.text, request, offered.tools) if offered.tools else "answer"
    wanted = request.response_format if request.tools else None
    is_no = said != "answer" or begins_like_refusal(reply.text)
    is_cut_off = reply.stop_reason == "length"
    if wanted and not (is_no or is_cut_off) and match_format(reply.text, wanted) is None:
        return Outcome("unformed-answer")
    return Outcome(said)


def _is_aside(rejection: Rejection, text: str) -> bool:
    """Whether a block only shows some data: it names no tool, and other words come first."""
    begins = text.lstrip().startswith(rejection.raw.strip()[:_SHOWN])
    return rejection.code == "malformed" and not rejection.name and not begins


def _unread(reply: Reply, tools: Sequence[Tool]) -> Iterable[Rejection]:
    """What only looks like a call, if it is meant to be one: the reply begins with it, or ends in
    the midst of it."""
    for note in reply.notes:
        if note.code == "truncated" and note.where and is_cut(note, reply.stop_reason):
            begins = reply.text.rfind(note.where[:_SHOWN])
            raw = reply.text[max(0, begins) :]
            # JSON that is cut off may be anything, if it does not name a tool.
            if raw.lstrip()[:1] not in "{[" or any(tool.name in raw for tool in tools):
                yield Rejection(raw, note.code, note.message)
        elif note.code == "not-a-call" and reply.text.lstrip().startswith(note.where):
            yield Rejection(reply.text, "malformed", note.message)


def _bare(text: str, tools: Sequence[Tool]) -> Iterable[Rejection]:
    """A reply that is nothing but a call in JSON, of a tool that there is, whose arguments do not
    fit. What else is JSON may be what was asked for."""
    if text[:1] not in ("{", "[") or not any(f'"{tool.name}"' in text for tool in tools):
        return ()
    parser = Parser(dialect="raw-json", tools=tools)
    rejected = fold([*parser.feed(text), *parser.finish()]).rejected
    return (one for one in rejected if one.code == "invalid-arguments" and one.raw == text)


def is_cut(note: Note, reason: str | None = None) -> bool:
    """Whether it is a call that a reply ends in, and not a marker that is only spoken of."""
    return reason == "length" or _BODY.search(note.where) is not None


def _said(text: str, request: Request, tools: tuple[Tool, ...]) -> OutcomeKind:
    last = request.messages[-1].parts if request.messages else ()
    found = find_refusal(
        text,
        tools,
        asked=last_user_text(request.messages),
        after_result=any(isinstance(part, ToolResult) for part in last),
    )
    if found is None:
        return "answer"
    return "false-refusal" if found.kind == "false" else "refusal"


def find_repeated_call(
    messages: Sequence[Message], most: int, polling: Iterable[str] = ()
) -> CallKey | None:
    """The call that was made last, if so many times in a row with the same result, and without a
    word of the user. Tools that are `polling` are there for that."""
    if not messages or _are_words(messages[-1]):
        return None
    made: dict[str, CallKey] = {}
    last: tuple[CallKey, object] | None = None
    runs = 0
    is_counted = False
    """Whether the turn's call was: the same one twice in a turn is still one attempt."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                made[part.id] = call_key(part.name, part.arguments)
                is_counted = False
            elif isinstance(part, ToolResult) and part.call_id in made:
                this = (made[part.call_id], part.content)
                if this != last:
                    runs, last = 1, this
                elif not is_counted:
                    runs += 1
                is_counted = True
            elif isinstance(part, Text) and message.role == "user" and part.text.strip():
                runs, last = 0, None
    if last is None or runs < most or any(fnmatchcase(last[0][0], name) for name in polling):
        return None
    return last[0]


def _are_words(message: Message) -> bool:
    """Whether a message ends with something that the user says."""
    last = message.parts[-1] if message.role == "user" and message.parts else None
    return isinstance(last, Text) and bool(last.text.strip())
