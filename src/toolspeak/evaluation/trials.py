"""Trials: each finds out one capability of a model, with one request or a few.

What a trial finds out takes effect at once: if a model rejects system messages, later trials send
instructions as user messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from ..engine.outcome import match_format
from ..types import Failure, Message, ResponseFormat, Text
from ..wires.gemini.request import encode_model_path
from .prober import (
    AFTER_RESULT,
    CALL_QUESTIONS,
    ModelProber,
    build_chat_request,
    locate_reasoning,
    user_message,
)


class Finding(Struct, frozen=True):
    """One capability of a model or its upstream."""

    value: bool | int | str | None
    """None: unknown."""
    evidence: str


Findings = Mapping[str, Finding]
Trial = Callable[[ModelProber], Awaitable[Finding]]
_REASONING_PLACES = {
    "field": "in a field of the reply",
    "text": "in the text, between tags",
    "open": "in the text, without an opening tag: the prompt contains it",
    "": "none seen",
}
_MAX_MESSAGE_LENGTH = 100
_WORD = "teal"
_POEM = "Write a short poem about the sea."
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": [_WORD]}, "loud": {"type": "boolean"}},
    "required": ["colour", "loud"],
    "additionalProperties": False,
}
"""No model would answer a request for a poem like this unless the schema is enforced."""


async def try_reasoning(prober: ModelProber) -> Finding:
    place = locate_reasoning(await prober.ask_first_question())
    if place == "open":
        prober.set_capabilities(reasoning_open=True)
    return Finding(place or False, _REASONING_PLACES[place])


async def try_system_role(prober: ModelProber) -> Finding:
    system = Message("system", (Text(f"Whatever you are asked, answer only: {_WORD}"),))
    question = user_message("What is the capital of France?")
    reply = await prober.send_unchanged(build_chat_request(system, question))
    if reply.failure:
        prober.set_capabilities(system_role=False)
        return _describe_rejection(reply.failure, "rejected, so it is sent as a user message")
    is_obeyed = _WORD in reply.text.lower()
    return Finding(True, "accepted and obeyed" if is_obeyed else "accepted, but not obeyed")


async def try_alternation(prober: ModelProber) -> Finding:
    """Find out if the roles user and assistant must alternate."""
    messages = user_message("My name is Ada."), user_message("What is my name?")
    reply = await prober.send_unchanged(build_chat_request(*messages))
    if reply.failure:
        return _describe_rejection(
            reply.failure, "two user messages in a row are rejected", value=True
        )
    return Finding(False, "two user messages in a row are accepted")


async def try_native_tools(prober: ModelProber) -> Finding:
    """Find out if the model calls tools given through the API, and in what form."""
    structured = in_text = 0
    for question in CALL_QUESTIONS:
        reply = await prober.ask(question, "native")
        if reply.failure:
            prober.set_capabilities(native_tools=False)
            return _describe_rejection(reply.failure)
        in_text += any(call.dialect for call in reply.calls)
        structured += any(not call.dialect for call in reply.calls)
    prober.set_capabilities(native_tools=True)
    replies = f"of {len(CALL_QUESTIONS)} replies"
    if structured:
        return Finding(True, f"structured calls in {structured} {replies}")
    if in_text:
        dialect = prober.text_call_dialects[0]
        return Finding("text", f"calls as text in {in_text} {replies}, dialect {dialect}")
    return Finding("ignored", "tools are accepted, but none was called")


async def try_tool_role(prober: ModelProber) -> Finding:
    """Find out if the API accepts a call and its result as messages of their own."""
    if prober.profile.capabilities.native_tools is False:
        reply = await prober.send_unchanged(build_chat_request(*AFTER_RESULT.messages))
    else:
        reply = await prober.ask(AFTER_RESULT, "native")
    if reply.failure:
        return _describe_rejection(reply.failure, "a call and its result are rejected")
    if AFTER_RESULT.is_correct_reply(reply):
        return Finding(True, "a call and its result are accepted and used in the answer")
    return Finding(True, "a call and its result are accepted, but not used in the answer")


async def try_json_schema(prober: ModelProber) -> Finding:
    """Find out if the upstream enforces a JSON schema on the reply."""
    response_format = ResponseFormat(_SCHEMA, "reply", strict=True)
    request = build_chat_request(user_message(_POEM))
    reply = await prober.send_unchanged(structs.replace(request, response_format=response_format))
    is_enforced = not reply.failure and match_format(reply.text, response_format) is not None
    prober.set_capabilities(constrained=is_enforced)
    if reply.failure:
        return _describe_rejection(reply.failure)
    return Finding(is_enforced, "enforced" if is_enforced else "accepted, but not enforced")


def _describe_rejection(
    failure: Failure, evidence: str = "rejected", *, value: bool = False
) -> Finding:
    """Return a finding with the status and the beginning of the message as evidence."""
    message = " ".join(failure.message.split())
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = f"{message[:_MAX_MESSAGE_LENGTH]}…"
    return Finding(value, f"{evidence} ({failure.status}: {message})")


# The size of the context window, which each server reports in its own way.

_OLLAMA_LOADED = {"/api/ps": "tokens, as the model is loaded now"}
_MODEL_LIST = {"models": "tokens, from the list of models"}
_REPORTED = "tokens, reported by the upstream"
_CONTEXT_PATHS: dict[str, dict[str, str]] = {
    "openai_chat": {
        "/props": "tokens per request, reported by llama.cpp",
        **_MODEL_LIST,
        **_OLLAMA_LOADED,
        "/api/v0/models": "tokens, reported by LM Studio",
    },
    "openai_responses": _MODEL_LIST,
    "ollama": {
        **_OLLAMA_LOADED,
        "/api/show": "tokens at most; Ollama's num_ctx sets the real size",
    },
    "anthropic": {"v1/models/{model}": _REPORTED},
    "gemini": {"{path}": _REPORTED},
}
"""Paths that may report the size, with the evidence; by the upstream's wire, in order."""
_POST_PATH = "/api/show"
_CONTEXT_FIELDS = (
    *("n_ctx", "loaded_context_length", "max_model_len", "context_window", "context_length"),
    *("max_context_length", "max_input_tokens", "inputTokenLimit"),
)
"""Of llama.cpp, LM Studio, vLLM, Groq, OpenRouter, Anthropic, Gemini."""


async def find_context_window(prober: ModelProber) -> Finding:
    """Return the first size that the upstream reports, or else the configured one."""
    model = prober.profile.model
    for path, evidence in _CONTEXT_PATHS.get(prober.endpoint.wire, {}).items():
        body = {"model": model} if path == _POST_PATH else None
        path = path.format(model=model, path=encode_model_path(model))
        value = await prober.fetch_json(path, body)
        sizes = (_find_size(table) for table in _list_tables(value, model))
        if size := next(filter(None, sizes), None):
            return Finding(size, evidence)
    configured = prober.profile.capabilities.context_window
    reason = "the upstream does not report it"
    return Finding(configured, f"configured; {reason}" if configured else reason)


def _list_tables(value: Any, model: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that may have the size: the value, parts of it, or the model's row."""
    if not isinstance(value, dict):
        return
    for table in (value, value.get("default_generation_settings"), value.get("model_info")):
        if isinstance(table, dict):
            yield table
    for rows in (value.get("data"), value.get("models")):
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and model in (row.get(key) for key in ("id", "name", "model")):
                yield row


def _find_size(table: dict[str, Any]) -> int | None:
    # Ollama's field begins with the model's architecture.
    names = (*_CONTEXT_FIELDS, *(name for name in table if name.endswith(".context_length")))
    sizes = (table.get(name) for name in names)
    return next((size for size in sizes if type(size) is int and size > 0), None)


TRIALS: dict[str, tuple[str, Trial]] = {
    "reasoning": ("reasoning", try_reasoning),
    "system_role": ("system role", try_system_role),
    "alternation": ("must alternate", try_alternation),
    "native_tools": ("native tools", try_native_tools),
    "tool_role": ("tool role", try_tool_role),
    "json_schema": ("JSON schema", try_json_schema),
    "context_window": ("context window", find_context_window),
}
"""Each with its title, in order. The first one must be answered, or there is nothing to probe."""
