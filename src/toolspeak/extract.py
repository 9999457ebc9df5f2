"""Extract the calls from a whole reply: a text, or the response of an API.

    extract(text, tools=tools)       ->   Reply(text, reasoning, calls, rejected, notes, dialect)
    extract(response, tools=tools)

A text goes through a `Parser`. A response is decoded by the wire of its API, which is detected by
its shape. If it has structured calls, the `CallResolver` checks them; if not, its text goes through
a `Parser`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Literal, TypeGuard

from msgspec import structs

from .calls.drafts import ID_KEYS, read_drafts
from .calls.lenient_json import MAX_DEPTH
from .calls.resolution import CallResolver, new_call_id
from .calls.tools import Toolset, as_tools
from .dialects import Dialect, Parser
from .dialects.call_sink import MAX_EXCERPT
from .dialects.markers import AUTO
from .dialects.template import COMMON_REASONING_TAGS
from .errors import ExtractionProblem, UsageError
from .events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    TextDelta,
    fold,
    use_reasoning_as_text,
)
from .types import COMPLETE_STOP_REASONS, Capabilities, Failure, Note, Reply, Text, Trust
from .wires import WIRES

Extraction = Reply
"""The result of `extract`."""
Json = dict[str, Any]


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
    new_id: Callable[[], str] = new_call_id,
) -> Reply:
    """Return the text, reasoning and calls of a reply: a text, or an API's response.

    Text is searched for calls only if the response has no structured ones. With `types_only`, calls
    to undeclared tools are accepted too, and so are arguments that do not match the schema.
    `context` is the conversation: a call that repeats one from a tool result or document is
    rejected.
    """
    declared = as_tools(tools)
    decoded = [] if isinstance(reply, str) else decode_response(reply, new_id)
    if any(isinstance(event, (CallEnd, CallRejected)) for event in decoded):
        resolver = CallResolver(Toolset(declared), types_only=types_only, new_id=new_id)
        result = fold(_check_calls(decoded, resolver))
    else:
        if reasoning_open is None and capabilities:
            reasoning_open = capabilities.reasoning_open
        parser = Parser(
            dialect=dialect,
            tools=declared,
            types_only=types_only,
            trust=trust,
            context=context,
            reasoning_open=reasoning_open,
            reads_reasoning=not _has_reasoning(decoded),
            new_id=new_id,
        )
        is_text = isinstance(reply, str)
        result = fold(parser.events([reply]) if is_text else _read_calls(decoded, parser))
    if _has_reasoning(decoded):
        result = _answer_with_reasoning(result)
    if on_problem == "raise" and result.rejected:
        raise ExtractionProblem(result.rejected[0])
    return result


def extract_structured(response: Any) -> Reply:
    """Return a response with its structured calls; its text is not searched for calls."""
    return fold(_check_calls(decode_response(response, new_call_id), CallResolver(Toolset(None))))


def _has_reasoning(events: Iterable[Event]) -> bool:
    return any(isinstance(event, ReasoningDelta) and not event.is_empty for event in events)


def _is_complete(events: Iterable[Event]) -> bool:
    """Return False if the reply was cut off."""
    return all(
        not isinstance(event, Failure)
        and (not isinstance(event, Finish) or event.stop_reason in COMPLETE_STOP_REASONS)
        for event in events
    )


def _read_calls(decoded: list[Event], parser: Parser) -> list[Event]:
    """Return the events of a response without structured calls, with the calls in its text; or, if
    these may be accepted, with those in its reasoning."""
    is_complete = _is_complete(decoded)
    events = list(_replace_text(decoded, partial(parser.events, is_complete=is_complete)))
    if is_complete and not any(isinstance(event, CallEnd) for event in events):
        thought = "".join(event.text for event in decoded if isinstance(event, ReasoningDelta))
        events += parser.find_calls_in_reasoning(thought)
    return events


def _answer_with_reasoning(reply: Reply) -> Reply:
    """Return a response with its reasoning as its text, if it has no other answer: no text, or only
    a thought in tags."""
    thought = reply.text
    if not thought or fold(_separate_reasoning([thought])).text.strip():
        return use_reasoning_as_text(reply)
    message = "the text was only reasoning in tags; it was dropped"
    note = Note("reasoning-as-text", message, thought[:MAX_EXCERPT])
    parts = tuple(part for part in reply.parts if not isinstance(part, Text))
    empty = structs.replace(reply, parts=parts, notes=(*reply.notes, note))
    answered = use_reasoning_as_text(empty)
    return answered if answered.text else reply


def _is_plain_text(event: Event) -> bool:
    return isinstance(event, TextDelta) and not event.extra


def _replace_text(
    events: list[Event], parse: Callable[[list[str]], Iterable[Event]]
) -> Iterator[Event]:
    """Yield the events, with those that `parse` yields for all the text in place of the first
    text."""
    texts = [event.text for event in events if isinstance(event, TextDelta) and not event.extra]
    for event in events:
        if not _is_plain_text(event):
            yield event
        elif texts:
            yield from parse(["".join(texts)])
            texts.clear()


def _separate_reasoning(texts: list[str]) -> Iterator[Event]:
    """Parse a text for reasoning only; calls in it stay text."""
    if not any(opener in texts[0] for opener, _ in COMMON_REASONING_TAGS):
        return iter([TextDelta(texts[0])])
    parsed = Parser(tools=(), trust="strict", reasoning_open=False).events(texts)
    return (event for event in parsed if isinstance(event, (TextDelta, ReasoningDelta)))


def _check_calls(decoded: list[Event], resolver: CallResolver) -> Iterator[Event]:
    """Yield the events of a response, with its structured calls accepted or rejected."""
    count = 0
    arguments: list[str] = []
    is_separated = _has_reasoning(decoded)
    for event in decoded if is_separated else _replace_text(decoded, _separate_reasoning):
        match event:
            case CallStart():
                arguments = []
            case ArgumentsDelta():
                arguments.append(event.json)
            case CallEnd():
                for one in resolver.resolve_structured(event.call, "".join(arguments)):
                    if one.rejection:
                        yield CallRejected(one.rejection)
                    yield from one.notes
                    if call := one.call:
                        yield CallStart(count, call.id, call.name, "native")
                        yield CallEnd(count, call)
                        count += 1
            case _:
                yield event


# Responses of APIs.


def decode_response(response: Any, new_id: Callable[[], str]) -> list[Event]:
    """Decode a response, the message in it, or an SDK's object of either."""
    plain = _to_plain(response)
    if not isinstance(plain, dict):
        kind = type(response).__name__
        raise UsageError(f"Expected text or the response of an API, got `{kind}` - at `$`")
    wire, body = _find_wire(plain)
    events = WIRES[wire].decode_reply(body, new_id=new_id)
    # Fields that the gateway cannot pass on do not matter to a caller who has the response.
    return [
        event for event in events if not (isinstance(event, Note) and event.code == "unsupported")
    ]


def _to_plain(value: Any, depth: int = 0) -> Any:
    """Convert the objects of an SDK to JSON values.

    Values are cut off below the depth at which a call is rejected.
    """
    for method in ("model_dump", "to_dict", "dict"):
        if not isinstance(value, (Mapping, type)) and callable(getattr(value, method, None)):
            value = getattr(value, method)()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if depth > 2 * MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {key: _to_plain(item, depth + 1) for key, item in value.items()}
    return [_to_plain(item, depth + 1) for item in value]


def _find_wire(response: Json) -> tuple[str, Json]:
    """Return the API that a response or a part of one came from, and the response's whole body."""
    if _is_list_of_objects(choices := response.get("choices")):
        return "openai_chat", {**response, "choices": list(map(_normalize_choice, choices))}
    if _is_list_of_objects(response.get("candidates")):
        return "gemini", response
    if _is_list_of_objects(response.get("output")):
        return "openai_responses", response
    if response.get("error"):
        return "openai_chat", response
    if isinstance(response.get("content"), dict):
        return "gemini", {"candidates": [response]}
    if isinstance(response.get("parts"), list):
        return "gemini", {"candidates": [{"content": response}]}
    if "finish_reason" in response:
        return "openai_chat", {"choices": [_normalize_choice(response)]}
    if isinstance(message := response.get("message"), dict):
        return "ollama", {**response, "message": _normalize_message(message)}
    if isinstance(response.get("response"), str):
        return "ollama", response
    if isinstance(text := response.get("output_text"), str):
        return "openai_responses", _wrap_parts([{"type": "output_text", "text": text}])
    if isinstance(content := response.get("content"), list) and not response.get("tool_calls"):
        return _find_wire_of_blocks(response, [one for one in content if isinstance(one, dict)])
    return "openai_chat", {"choices": [{"message": _normalize_message(response)}]}


def _is_list_of_objects(value: Any) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _find_wire_of_blocks(message: Json, blocks: list[Json]) -> tuple[str, Json]:
    types = {block.get("type") for block in blocks}
    if types & _RESPONSES_ITEM_TYPES:
        return "openai_responses", {"output": blocks}
    if "output_text" in types:
        return "openai_responses", _wrap_parts(blocks)
    return "anthropic", {**message, "content": [{"type": "text", **block} for block in blocks]}


_RESPONSES_ITEM_TYPES = frozenset({"function_call", "custom_tool_call", "message", "reasoning"})


def _wrap_parts(parts: list[Json]) -> Json:
    return {"output": [{"type": "message", "content": parts}]}


def _normalize_choice(choice: Json) -> Json:
    """Return a choice with a `message`; a choice of a legacy completion has only `text`."""
    message = choice.get("message") or choice.get("delta") or {"text": choice.get("text")}
    return {**choice, "delta": None, "message": _normalize_message(message)}


def _normalize_message(message: Json) -> Json:
    """Write the text and the calls of a chat message in the form that the APIs use."""
    calls = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else [calls] if calls else []
    normalized = {key: value for key, value in message.items() if key != "text"}
    normalized["content"] = message.get("content", message.get("text"))
    normalized["tool_calls"] = [one for call in calls for one in _normalize_call(call)]
    return normalized


def _normalize_call(call: Any) -> Iterator[Any]:
    """Write a call in the form of the API. A name that wraps other calls stays: it may be that of a
    tool."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if isinstance(function, dict) and _is_named_call(function):
        given = {**function, **call}
        identity = next((str(given[key]) for key in ID_KEYS if given.get(key)), None)
        yield {**call, "id": identity, "index": None, "function": function}
        return
    for draft in read_drafts(call):
        function = {"name": draft.name, "arguments": draft.arguments}
        yield call if draft.problem else {"id": draft.id or None, "function": function}


def _is_named_call(function: Json) -> bool:
    return isinstance(function.get("name"), str) and "arguments" in function
