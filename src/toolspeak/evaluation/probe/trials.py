"""The trials: each finds out one thing about a model, by one request or a few.

Each is given what those before it have found. What they tell of the model's turns is known to those
that follow: a model that takes no system message is told everything by the user.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from ...types import Capabilities, Message, Reply, ResponseFormat, Text
from .asking import Asker, thoughts, why
from .context import context
from .findings import Finding, Findings
from .questions import AFTER_RESULT, CALLS, GREETING, chat, request_for, user

Trial = Callable[[Asker, Findings], Awaitable[Finding]]
_WORD = "teal"
_NO_TOOLS = Finding(None, "not asked: it takes no tools")
_POEM = "Write a short poem about the sea."
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": [_WORD]}, "loud": {"type": "boolean"}},
    "required": ["colour", "loud"],
    "additionalProperties": False,
}
"""Nobody would write a poem like that who is not held to it."""


async def system_role(asker: Asker, found: Findings) -> Finding:
    """Whether instructions are taken, and whether they are followed."""
    told = Message("system", (Text(f"Whatever you are asked, answer only: {_WORD}"),))
    reply = await asker.plain(chat(told, user("What is the capital of France?")))
    if reply.failure:
        _know(asker, system_role=False)
        return Finding(False, f"refused ({why(reply.failure)}); the user says it instead")
    is_obeyed = _WORD in reply.text.lower()
    return Finding(True, "accepted and obeyed" if is_obeyed else "accepted, but not obeyed")


async def alternation(asker: Asker, found: Findings) -> Finding:
    """Whether user and assistant have to take turns."""
    reply = await asker.plain(chat(user("My name is Ada."), user("What is my name?")))
    if reply.failure:
        return Finding(True, f"two user messages in a row are refused ({why(reply.failure)})")
    return Finding(False, "two user messages in a row are accepted")


async def native_tools(asker: Asker, found: Findings) -> Finding:
    """Whether tools that are given by the API are called, and how."""
    replies: list[Reply] = []
    for question in CALLS:
        reply = await asker.question(question, "native")
        if reply.failure:
            return Finding(False, f"refused ({why(reply.failure)})")
        replies.append(reply)
    structured, written = _with_calls(replies, in_text=False), _with_calls(replies, in_text=True)
    if structured:
        return Finding(True, f"structured calls to {structured} of {len(CALLS)} questions")
    if written:
        where = f"in the dialect {asker.written[0]}; they are found there"
        return Finding("text", f"calls as text to {written} of {len(CALLS)} questions, {where}")
    return Finding("ignored", "tools are accepted, but none of them was called")


def _with_calls(replies: list[Reply], *, in_text: bool) -> int:
    """How many replies have calls of that kind."""
    return sum(any(bool(call.raw) == in_text for call in reply.calls) for reply in replies)


async def required_choice(asker: Asker, found: Findings) -> Finding:
    """Whether a model calls a tool where it has to, though nobody would."""
    if found["native_tools"].value is False:
        return _NO_TOOLS
    asked = request_for(GREETING, "required")
    reply = await asker.plain(asked)
    if reply.failure:
        return Finding(False, f"refused ({why(reply.failure)})")
    if not reply.calls:
        return Finding(False, "ignored: a greeting was answered without a call")
    where = ", as text" if reply.calls[0].raw else ""
    return Finding(True, f"obeyed: a call was made even for a greeting{where}")


async def tool_role(asker: Asker, found: Findings) -> Finding:
    """Whether a call and its result may be told in the API's own way."""
    if found["native_tools"].value is False:
        reply = await asker.plain(chat(*AFTER_RESULT.messages))
    else:
        reply = await asker.question(AFTER_RESULT, "native")
    if reply.failure:
        return Finding(False, f"a call and its result are refused ({why(reply.failure)})")
    if AFTER_RESULT.is_answered_by(reply):
        return Finding(True, "a call and its result are accepted, and the answer tells of it")
    return Finding(True, "a call and its result are accepted, but not made use of")


async def json_schema(asker: Asker, found: Findings) -> Finding:
    """Whether an answer is held to a schema that it would not have by itself."""
    wanted = ResponseFormat(_SCHEMA, "reply", strict=True)
    reply = await asker.plain(chat(user(_POEM), held_to=wanted))
    holds = not reply.failure and _fits(reply.text)
    _know(asker, constrained=holds)
    if reply.failure:
        return Finding(False, f"refused ({why(reply.failure)})")
    return Finding(holds, "the answer is held to it" if holds else "the answer does not fit it")


def _fits(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    held = isinstance(value, dict) and set(value) == {"colour", "loud"}
    return held and value["colour"] == _WORD and isinstance(value["loud"], bool)


async def grammar(asker: Asker, found: Findings) -> Finding:
    """Whether llama.cpp's own grammars hold, where it is llama.cpp that is asked."""
    about = await asker.look_up("/props", at_root=True) if _may_be_llama(asker) else None
    if not isinstance(about, dict) or "default_generation_settings" not in about:
        return Finding(None, "not asked: this is no llama.cpp")
    reply = await asker.plain(chat(user(_POEM)), grammar=f'root ::= "{_WORD}"')
    if reply.failure:
        return Finding(False, f"refused ({why(reply.failure)})")
    holds = reply.text.strip() == _WORD
    return Finding(holds, "the answer is held to it" if holds else "the answer does not fit it")


def _may_be_llama(asker: Asker) -> bool:
    return asker.endpoint.wire == "openai_chat"


async def reasoning(asker: Asker, found: Findings) -> Finding:
    """Where the model's thoughts stand, if it has any."""
    where, is_open = thoughts(await asker.greet())
    if is_open:
        _know(asker, reasoning_open=True)
        return Finding("open", "in the text, from its beginning: the prompt opens them")
    seen = {"field": "in a field of the reply", "text": "in the text, between tags"}
    return Finding(where or False, seen.get(where, "none seen"))


def _know(asker: Asker, **facts: bool) -> None:
    """Use a fact from now on."""
    known: Capabilities = structs.replace(asker.target.capabilities, **facts)
    asker.target = structs.replace(asker.target, capabilities=known)


TRIALS: dict[str, Trial] = {
    "reasoning": reasoning,
    "system_role": system_role,
    "alternation": alternation,
    "native_tools": native_tools,
    "required_choice": required_choice,
    "tool_role": tool_role,
    "json_schema": json_schema,
    "grammar": grammar,
    "context": context,
}
"""In this order. The first has to be answered."""
TITLES = {
    "reasoning": "reasoning",
    "system_role": "system role",
    "alternation": "must alternate",
    "native_tools": "native tools",
    "required_choice": "required choice",
    "tool_role": "tool role",
    "json_schema": "JSON schema",
    "grammar": "grammar",
    "context": "context",
    "dialect": "best dialect",
}
