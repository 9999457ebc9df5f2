"""Trials: each finds out one capability of a model, with one request or a few.

A trial receives the findings of those before it. Facts about roles and reasoning take effect at
once: if a model rejects system messages, later trials send instructions as user messages.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from ...types import Capabilities, Message, Reply, Request, ResponseFormat, Text
from ...wires.gemini.request import encode_model_path
from .asking import ModelProber, describe_failure, locate_reasoning
from .questions import (
    AFTER_RESULT,
    CALL_QUESTIONS,
    GREETING,
    build_chat_request,
    build_tool_request,
    user_message,
)


class Finding(Struct, frozen=True):
    """One capability of a model or its upstream."""

    value: bool | int | str | None
    """None: unknown."""
    evidence: str


Findings = Mapping[str, Finding]
Trial = Callable[[ModelProber, Findings], Awaitable[Finding]]
_WORD = "teal"
_NO_TOOLS = Finding(None, "not tried: the API rejects tools")
_POEM = "Write a short poem about the sea."
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": [_WORD]}, "loud": {"type": "boolean"}},
    "required": ["colour", "loud"],
    "additionalProperties": False,
}
"""No model would answer a request for a poem like this unless the schema is enforced."""


async def try_reasoning(prober: ModelProber, found: Findings) -> Finding:
    place, is_open = locate_reasoning(await prober.send_greeting())
    if is_open:
        _set_capabilities(prober, reasoning_open=True)
        return Finding("open", "in the text from its start: the prompt opens it")
    evidence = {"field": "in a field of the reply", "text": "in the text, between tags"}
    return Finding(place or False, evidence.get(place, "none seen"))


async def try_system_role(prober: ModelProber, found: Findings) -> Finding:
    system = Message("system", (Text(f"Whatever you are asked, answer only: {_WORD}"),))
    question = user_message("What is the capital of France?")
    reply = await prober.send_unchanged(build_chat_request(system, question))
    if reply.failure:
        _set_capabilities(prober, system_role=False)
        reason = describe_failure(reply.failure)
        return Finding(False, f"rejected ({reason}); sent as a user message instead")
    is_obeyed = _WORD in reply.text.lower()
    return Finding(True, "accepted and obeyed" if is_obeyed else "accepted, but not obeyed")


async def try_alternation(prober: ModelProber, found: Findings) -> Finding:
    """Find out if the roles user and assistant must alternate."""
    messages = user_message("My name is Ada."), user_message("What is my name?")
    reply = await prober.send_unchanged(build_chat_request(*messages))
    if reply.failure:
        reason = describe_failure(reply.failure)
        return Finding(True, f"two user messages in a row are rejected ({reason})")
    return Finding(False, "two user messages in a row are accepted")


async def try_native_tools(prober: ModelProber, found: Findings) -> Finding:
    """Find out if the model calls tools given through the API, and in what form."""
    replies: list[Reply] = []
    for question in CALL_QUESTIONS:
        reply = await prober.ask(question, "native")
        if reply.failure:
            return _rejected(reply)
        replies.append(reply)
    total = len(CALL_QUESTIONS)
    if structured := _count_with_calls(replies, in_text=False):
        return Finding(True, f"structured calls in {structured} of {total} replies")
    if in_text := _count_with_calls(replies, in_text=True):
        dialect = prober.text_call_dialects[0]
        return Finding("text", f"calls as text in {in_text} of {total} replies, dialect {dialect}")
    return Finding("ignored", "tools are accepted, but none was called")


def _count_with_calls(replies: list[Reply], *, in_text: bool) -> int:
    return sum(any(bool(call.raw) == in_text for call in reply.calls) for reply in replies)


async def try_required_choice(prober: ModelProber, found: Findings) -> Finding:
    """Find out if `tool_choice: required` forces a call where none makes sense."""
    if found["native_tools"].value is False:
        return _NO_TOOLS
    reply = await prober.send_unchanged(build_tool_request(GREETING, "required"))
    if reply.failure:
        return _rejected(reply)
    if not reply.calls:
        return Finding(False, "ignored: a greeting was answered without a call")
    form = ", as text" if reply.calls[0].raw else ""
    return Finding(True, f"obeyed: even a greeting was answered with a call{form}")


async def try_tool_role(prober: ModelProber, found: Findings) -> Finding:
    """Find out if the API accepts a call and its result as messages of their own."""
    if found["native_tools"].value is False:
        reply = await prober.send_unchanged(build_chat_request(*AFTER_RESULT.messages))
    else:
        reply = await prober.ask(AFTER_RESULT, "native")
    if reply.failure:
        reason = describe_failure(reply.failure)
        return Finding(False, f"a call and its result are rejected ({reason})")
    if AFTER_RESULT.is_correct_reply(reply):
        return Finding(True, "a call and its result are accepted and used in the answer")
    return Finding(True, "a call and its result are accepted, but not used in the answer")


async def try_json_schema(prober: ModelProber, found: Findings) -> Finding:
    """Find out if the upstream enforces a JSON schema on the reply."""
    response_format = ResponseFormat(_SCHEMA, "reply", strict=True)
    request = build_chat_request(user_message(_POEM), response_format=response_format)
    reply = await prober.send_unchanged(request)
    is_enforced = not reply.failure and _follows_schema(reply.text)
    _set_capabilities(prober, constrained=is_enforced)
    return _rejected(reply) if reply.failure else _enforced(is_enforced)


def _follows_schema(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    has_keys = isinstance(value, dict) and set(value) == {"colour", "loud"}
    return has_keys and value["colour"] == _WORD and isinstance(value["loud"], bool)


async def try_grammar(prober: ModelProber, found: Findings) -> Finding:
    """Find out if llama.cpp enforces a grammar on the reply."""
    props = None
    if prober.endpoint.wire == "openai_chat":
        props = await prober.fetch_json("/props", at_root=True)
    if not isinstance(props, dict) or "default_generation_settings" not in props:
        return Finding(None, "not tried: the upstream is not llama.cpp")
    request: Request = build_chat_request(user_message(_POEM))
    reply = await prober.send_unchanged(request, grammar=f'root ::= "{_WORD}"')
    return _rejected(reply) if reply.failure else _enforced(reply.text.strip() == _WORD)


def _rejected(reply: Reply) -> Finding:
    assert reply.failure
    return Finding(False, f"rejected ({describe_failure(reply.failure)})")


def _enforced(is_enforced: bool) -> Finding:
    return Finding(is_enforced, "enforced" if is_enforced else "accepted, but not enforced")


def _set_capabilities(prober: ModelProber, **facts: bool) -> None:
    """Apply facts to all requests from now on."""
    known: Capabilities = structs.replace(prober.target.capabilities, **facts)
    prober.target = structs.replace(prober.target, capabilities=known)


# The size of the context, which each server tells in its own way.

_ContextSize = tuple[int, str] | None
"""Tokens, and the evidence."""
_CONTEXT_FIELDS = (
    *("loaded_context_length", "max_model_len", "context_window", "context_length"),
    *("max_context_length", "max_input_tokens", "inputTokenLimit"),
)
"""Names for it in model lists: LM Studio, vLLM, Groq, OpenRouter, Anthropic, Gemini."""


async def find_context(prober: ModelProber, found: Findings) -> Finding:
    """Return the first size that the upstream reports, or else the configured one."""
    for source in _CONTEXT_SOURCES.get(prober.endpoint.wire, ()):
        if size := await source(prober):
            return Finding(*size)
    if prober.configured_context:
        return Finding(prober.configured_context, "configured; the upstream does not report it")
    return Finding(None, "the upstream does not report it")


async def _read_llama_props(prober: ModelProber) -> _ContextSize:
    props = await prober.fetch_json("/props", at_root=True)
    settings = props.get("default_generation_settings") if isinstance(props, dict) else None
    size = _find_number(settings, ("n_ctx",))
    return (size, "tokens per request, reported by llama.cpp") if size else None


async def _read_ollama_loaded(prober: ModelProber) -> _ContextSize:
    listing = await prober.fetch_json("/api/ps", at_root=True)
    return _find_in_list(prober, listing, "tokens, as the model is loaded now")


async def _read_ollama_details(prober: ModelProber) -> _ContextSize:
    details = await prober.fetch_json("/api/show", {"model": prober.target.model}, at_root=True)
    info = details.get("model_info") if isinstance(details, dict) else None
    names = tuple(key for key in info or () if key.endswith(".context_length"))
    size = _find_number(info, names)
    return (size, "tokens at most; Ollama's num_ctx sets the real size") if size else None


async def _read_lm_studio(prober: ModelProber) -> _ContextSize:
    listing = await prober.fetch_json("/api/v0/models", at_root=True)
    return _find_in_list(prober, listing, "tokens, reported by LM Studio")


async def _read_model_list(prober: ModelProber) -> _ContextSize:
    listing = await prober.fetch_json("/models")
    return _find_in_list(prober, listing, "tokens, from the list of models")


async def _read_anthropic(prober: ModelProber) -> _ContextSize:
    details = await prober.fetch_json(f"/v1/models/{prober.target.model}")
    size = _find_number(details, _CONTEXT_FIELDS)
    return (size, "tokens, reported by the upstream") if size else None


async def _read_gemini(prober: ModelProber) -> _ContextSize:
    details = await prober.fetch_json(f"/{encode_model_path(prober.target.model)}")
    size = _find_number(details, _CONTEXT_FIELDS)
    return (size, "tokens, reported by the upstream") if size else None


_CONTEXT_SOURCES: dict[str, tuple[Callable[[ModelProber], Awaitable[_ContextSize]], ...]] = {
    "openai_chat": (_read_llama_props, _read_model_list, _read_ollama_loaded, _read_lm_studio),
    "openai_responses": (_read_model_list,),
    "ollama": (_read_ollama_loaded, _read_ollama_details),
    "anthropic": (_read_anthropic,),
    "gemini": (_read_gemini,),
}
"""By the upstream's wire, in the order in which they are read."""


def _find_in_list(prober: ModelProber, listing: Any, evidence: str) -> _ContextSize:
    for row in _list_rows(listing):
        names = (row.get(key) for key in ("id", "name", "model"))
        size = _find_number(row, _CONTEXT_FIELDS)
        if size and prober.target.model in names:
            return size, evidence
    return None


def _list_rows(listing: Any) -> Iterator[dict[str, Any]]:
    lists = (listing.get("data"), listing.get("models")) if isinstance(listing, dict) else ()
    for rows in lists:
        if isinstance(rows, list):
            yield from (row for row in rows if isinstance(row, dict))


def _find_number(values: Any, names: tuple[str, ...]) -> int | None:
    found = (values.get(name) for name in names) if isinstance(values, dict) else ()
    return next((number for number in found if type(number) is int and number > 0), None)


TRIALS: dict[str, Trial] = {
    "reasoning": try_reasoning,
    "system_role": try_system_role,
    "alternation": try_alternation,
    "native_tools": try_native_tools,
    "required_choice": try_required_choice,
    "tool_role": try_tool_role,
    "json_schema": try_json_schema,
    "grammar": try_grammar,
    "context": find_context,
}
"""In the order in which they run. The first one must be answered, or there is nothing to probe."""
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
