"""The outcome of a reply: calls, an answer, or a fault that the model may be asked to correct."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from ..calls.json_values import strip_code_fence
from ..calls.resolution import CallKey, call_key
from ..calls.schema import get_validator
from ..dialects.parser import ParserOptions, find_near_call
from ..security.message_origin import last_user_text
from ..security.refusals import begins_like_refusal, find_refusal
from ..types import (
    COMPLETE_STOP_REASONS,
    Message,
    Reasoning,
    Rejection,
    Reply,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from .plan import OfferedTools

OutcomeKind = Literal[
    "calls",
    "answer",
    "refusal",
    "invalid-call",
    "unknown-tool",
    "missing-call",
    "false-refusal",
    "truncated-call",
    "near-call",
    "repeated-call",
    "wrong-format",
    "empty",
]
OUTCOMES: dict[OutcomeKind, str] = {
    "calls": "valid calls",
    "answer": "an answer",
    "refusal": "an honest refusal: for safety, or because something is missing",
    "invalid-call": "a call that cannot be parsed, or whose arguments are invalid",
    "unknown-tool": "a call to a tool that was not offered",
    "missing-call": "no call, although one is required",
    "false-refusal": "a claim that tools are missing, although a suitable one was offered",
    "truncated-call": "a truncated call",
    "near-call": "a call in a form that is not accepted",
    "repeated-call": "a call that was already made several times with the same result",
    "wrong-format": "an answer that is not in the requested format",
    "empty": "an empty reply",
}
_REJECTION_OUTCOMES: dict[str, OutcomeKind] = {
    "unknown-tool": "unknown-tool",
    "invalid-arguments": "invalid-call",
    "undecodable-arguments": "invalid-call",
    "malformed": "invalid-call",
    "too-long": "invalid-call",
    "truncated": "truncated-call",
    "near-call": "near-call",
}
"""The outcomes of rejected blocks that were meant as calls. Other rejections are examples, echoes
and the like. The first of these codes that occurs in a reply determines its outcome."""
_MAX_REFUSAL = 100_000
"""The characters of a reply that may be a refusal; a longer one is an answer."""
_COMPARED_CHARACTERS = 60


class Outcome(Struct, frozen=True):
    """The outcome of one reply."""

    kind: OutcomeKind
    rejected: tuple[Rejection, ...] = ()
    """The rejected blocks that decided the outcome; if there are valid calls, all rejected blocks
    that were meant as calls."""


def classify_reply(
    reply: Reply,
    request: Request,
    offered: OfferedTools,
    repeated_call: CallKey | None = None,
    *,
    checks_format: bool = False,
) -> Outcome:
    """Return the outcome of a reply. `repeated_call` is a call that must not be made again;
    `checks_format`: an answer's format is checked even if the request has no tools."""
    if calls := reply.calls:
        is_repeated = repeated_call and all(
            call_key(call.name, call.arguments) == repeated_call for call in calls
        )
        rejected = tuple(one for one in reply.rejected if one.code in _REJECTION_OUTCOMES)
        return Outcome("repeated-call" if is_repeated else "calls", rejected)
    if reply.stop_reason == "refusal":
        return Outcome("refusal")
    if any(not isinstance(part, (Text, Reasoning)) for part in reply.parts):
        # An image, or an item of a hosted tool, whose work counts as a call.
        return Outcome("calls" if offered.has_hosted_tools else "answer")
    if offered.allowed:
        if outcome := _classify_blocks(reply):
            return outcome
        if near_call := _find_call_in_reasoning(reply, request, offered.allowed):
            return Outcome("near-call", (near_call,))
        if request.tool_choice.mode == "required":
            return Outcome("missing-call")
    if not reply.text.strip():
        return Outcome("answer" if _is_complete_without_text(reply) else "empty")
    wanted = request.response_format if request.tools or checks_format else None
    return Outcome(_classify_text(reply, request, offered.allowed, wanted))


def _classify_blocks(reply: Reply) -> Outcome | None:
    """Return the outcome of the blocks that were meant as calls and rejected."""
    blocks = [one for one in reply.rejected if not _is_quoted_data(one, reply.text)]
    for code, kind in _REJECTION_OUTCOMES.items():
        if rejected := tuple(one for one in blocks if one.code == code):
            return Outcome(kind, rejected)
    return None


def _find_call_in_reasoning(
    reply: Reply, request: Request, tools: tuple[Tool, ...]
) -> Rejection | None:
    """Return a call in the reasoning of a complete reply that has nothing else, or None."""
    is_complete = reply.stop_reason in COMPLETE_STOP_REASONS
    if reply.text.strip() or not is_complete or len(reply.reasoning) > _MAX_REFUSAL:
        return None
    return find_near_call(ParserOptions(tools=tools, context=request.messages), reply.reasoning)


def _is_complete_without_text(reply: Reply) -> bool:
    """Return True if a reply without text is not a fault: it has reasoning, was cut off or
    filtered, or contains something that could not be decoded."""
    if reply.reasoning.strip() or reply.stop_reason in ("length", "filter"):
        return True
    return any(note.code == "unsupported" for note in reply.notes)


def _classify_text(
    reply: Reply, request: Request, tools: tuple[Tool, ...], wanted: ResponseFormat | None
) -> OutcomeKind:
    kind: OutcomeKind = "answer"
    if tools and len(reply.text) <= _MAX_REFUSAL:
        kind = _classify_refusal(reply.text, request, tools)
    if wanted and reply.stop_reason != "length":
        is_refusal = kind != "answer" or begins_like_refusal(reply.text)
        if not is_refusal and match_format(reply.text, wanted) is None:
            return "wrong-format"
    return kind


def _is_quoted_data(rejection: Rejection, text: str) -> bool:
    """Return True if a malformed block names no tool and follows other text."""
    begins = text.lstrip().startswith(rejection.raw.strip()[:_COMPARED_CHARACTERS])
    return rejection.code == "malformed" and not rejection.name and not begins


def _classify_refusal(text: str, request: Request, tools: tuple[Tool, ...]) -> OutcomeKind:
    last = request.messages[-1].parts if request.messages else ()
    found = find_refusal(
        text,
        tools,
        asked=last_user_text(request.messages)[:_MAX_REFUSAL],
        after_result=any(isinstance(part, ToolResult) for part in last),
    )
    if found is None:
        return "answer"
    return "false-refusal" if found.kind == "false" else "refusal"


def match_format(text: str, wanted: ResponseFormat) -> str | None:
    """Return the answer without its code fence, or None if it is not in the requested format."""
    inside = strip_code_fence(text).strip()
    try:
        value = json.loads(inside)
        if wanted.schema is None:
            return inside if isinstance(value, dict) else None
        return inside if get_validator(wanted.schema).is_valid(value) else None
    except (ValueError, RecursionError):
        # Not JSON, or too large or too deep to be checked.
        return None


def find_repeated_call(
    messages: Sequence[Message], max_repeats: int, polling_tools: Iterable[str] = ()
) -> CallKey | None:
    """Return the last call if it was made `max_repeats` times in a row with the same result.

    Calls to `polling_tools` may repeat, and a message from the user starts the count anew.
    """
    if not messages or _ends_with_user_text(messages[-1]):
        return None
    calls: dict[str, CallKey] = {}
    last: tuple[CallKey, object] | None = None
    count = 0
    is_counted = False  # The same call twice in one turn counts once.
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = call_key(part.name, part.arguments)
                is_counted = False
            elif isinstance(part, ToolResult) and part.call_id in calls:
                this = (calls[part.call_id], part.content)
                if this != last:
                    count, last = 1, this
                elif not is_counted:
                    count += 1
                is_counted = True
            elif isinstance(part, Text) and message.role == "user" and part.text.strip():
                count, last = 0, None
    if last is None or count < max_repeats:
        return None
    return None if any(fnmatchcase(last[0][0], name) for name in polling_tools) else last[0]


def _ends_with_user_text(message: Message) -> bool:
    last = message.parts[-1] if message.role == "user" and message.parts else None
    return isinstance(last, Text) and bool(last.text.strip())
