"""Structured calls, in whatever shape an API gives its replies.

A reply may be an API's whole answer, the message in it, or an SDK's object of either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..errors import UsageError
from .drafts import CallDraft, read_drafts
from .json_values import nesting_depth
from .lenient_json import MAX_DEPTH


class Native(Struct, frozen=True):
    """What an API's reply says, taken apart."""

    text: str = ""
    reasoning: str = ""
    drafts: tuple[CallDraft, ...] = ()


def native(response: Any) -> Native:
    """Text, reasoning and structured calls of a reply."""
    text: list[str] = []
    reasoning: list[str] = []
    drafts: list[CallDraft] = []
    for part in _parts(_plain(response, "$")):
        match part:
            case CallDraft():
                drafts.append(part)
            case ("reasoning", thought):
                reasoning.append(thought)
            case (_, said):
                text.append(said)
    return Native("".join(text), "".join(reasoning), tuple(drafts))


Part = CallDraft | tuple[str, str]


def _plain(value: Any, path: str) -> Mapping[str, Any]:
    for method in ("model_dump", "to_dict", "dict"):
        if not isinstance(value, Mapping) and callable(getattr(value, method, None)):
            value = getattr(value, method)()
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise UsageError(f"Expected text or an API's reply, got `{kind}` - at `{path}`")
    return value


def _parts(reply: Mapping[str, Any]) -> Iterator[Part]:
    """Whichever API it is: each has a key of its own for what is inside."""
    if _is_list(reply.get("choices")):  # OpenAI chat completions
        for choice in _mappings(reply["choices"][:1]):
            yield from _message(choice.get("message") or choice.get("delta") or choice)
    elif _is_list(reply.get("candidates")):  # Gemini
        for candidate in _mappings(reply["candidates"][:1]):
            yield from _blocks((candidate.get("content") or {}).get("parts"))
    elif _is_list(reply.get("output")):  # OpenAI responses
        yield from _blocks(reply["output"])
    elif isinstance(reply.get("message"), Mapping):  # Ollama
        yield from _message(reply["message"])
    elif isinstance(reply.get("response"), str):  # Ollama's generate
        yield "text", reply["response"]
    elif isinstance(reply.get("output_text"), str):  # The short form of OpenAI responses
        yield "text", reply["output_text"]
    else:
        yield from _message(reply)


def _message(message: Mapping[str, Any]) -> Iterator[Part]:
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(message.get(key), str):
            yield "reasoning", message[key]
            break
    for key in ("content", "text", "parts", "refusal"):
        said = message.get(key)
        if isinstance(said, str):
            yield "text", said
        elif _is_list(said):
            yield from _blocks(said)
    given = message.get("tool_calls") or ()
    for call in given if _is_list(given) else (given,):
        yield from _calls(call)
    if isinstance(message.get("function_call"), Mapping):
        yield from _calls({"function": message["function_call"]})


def _blocks(blocks: Any) -> Iterator[Part]:
    """The parts of a message, in the words of Anthropic, of Gemini or of OpenAI."""
    for block in blocks or ():
        if not isinstance(block, Mapping):
            continue
        kind = block.get("type")
        if kind in ("tool_use", "function_call", "custom_tool_call"):
            yield from _calls(block)
        elif isinstance(block.get("functionCall", block.get("function_call")), Mapping):
            yield from _calls(block.get("functionCall") or block["function_call"])
        elif kind in ("thinking", "reasoning"):
            thought = block.get("thinking") or block.get("text") or ""
            parts = (_joined(block.get(key)) for key in ("summary", "content"))
            yield "reasoning", str(thought) or "\n".join(filter(None, parts))
        elif kind == "message":
            yield from _blocks(block.get("content"))
        elif isinstance(block.get("text"), str):
            yield "reasoning" if block.get("thought") is True else "text", block["text"]


def _joined(blocks: Any) -> str:
    return "".join(str(block.get("text", "")) for block in blocks) if _is_list(blocks) else ""


def _calls(given: Any) -> Iterator[CallDraft]:
    """The calls in one structure: one, as a rule."""
    if isinstance(given, Mapping) and isinstance(given.get("call_id"), str):
        given = {**given, "id": given["call_id"]}  # A response's item has an id of its own.
    if isinstance(given, Mapping) and given.get("type") == "custom_tool_call":
        # Text, even where it looks like an object.
        given = {**given, "input": {"input": given.get("input", "")}}
    if isinstance(given, (dict, list)) and nesting_depth(given) > MAX_DEPTH:
        return iter((CallDraft(problem="the call is nested too deeply"),))
    return read_drafts(dict(given) if isinstance(given, Mapping) else given)


def _mappings(values: Any) -> Iterator[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, Mapping))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
