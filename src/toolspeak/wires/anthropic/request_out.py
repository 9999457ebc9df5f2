"""A Messages request to an upstream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from ..common import (
    as_function,
    choice_names,
    effort_of,
    names_of,
    narrowed,
    object_schema,
    sampling_out,
)
from ..fields import HOSTED, Json, Unsaid, present
from ..names import NameRule, Names
from ..wire import Outgoing
from .words import EFFORTS, NAME, REDACTED, SAMPLING

_NAMES = NameRule(r"a-zA-Z0-9_\-", 128)
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_\-]")
_MAX_TOKENS = 8192
"""The API wants a limit; this one is sent where the client gave none."""
_LEAST_BUDGET = 1024


def encode_request(request: Request) -> Outgoing:
    """The request in this API's words."""
    unsaid = Unsaid(NAME, request.wire)
    names = names_of(request, _NAMES)
    extra = dict(unsaid.carried(request.extra, "$"))
    system, messages = _apart(request.messages, unsaid)
    body: Json = {
        "model": request.model,
        "max_tokens": _max_tokens(request, unsaid),
        "messages": list(_messages(messages, names, unsaid)),
    }
    if system:
        blocks = [block for part in system for block in _block(part, "$.system", names, unsaid)]
        body["system"] = system[0].text if _is_plain(system) else blocks
    body |= _tools(request, names, unsaid, extra.pop(HOSTED, []))
    body |= _thinking(request, unsaid, extra)
    body |= present(stop_sequences=list(request.stop) or None)
    body |= sampling_out(request, SAMPLING, unsaid)
    body |= _metadata(request, unsaid)
    if request.stream:
        body["stream"] = True
    return Outgoing("/v1/messages", body | extra, names, (*unsaid.notes(), *names.notes()))


def _max_tokens(request: Request, unsaid: Unsaid) -> int:
    if request.max_tokens is None:
        unsaid.change(f"{NAME} wants a limit: max_tokens is {_MAX_TOKENS}", "$.max_tokens")
    return request.max_tokens or _MAX_TOKENS


def _metadata(request: Request, unsaid: Unsaid) -> Json:
    for key in request.metadata.keys() - {"user_id"}:
        unsaid.drop(f"metadata.{key}", f"$.metadata.{key}")
    user = request.metadata.get("user_id")
    return {"metadata": {"user_id": user}} if user else {}


# Messages.


def _apart(
    messages: tuple[Message, ...], unsaid: Unsaid
) -> tuple[list[Text], list[tuple[Message, str]]]:
    """The system prompt, and the messages with their paths. Where the client speaks another API,
    instructions in the midst of the conversation go to its start."""
    system: list[Text] = []
    rest: list[tuple[Message, str]] = []
    for index, message in enumerate(messages):
        path = f"$.messages[{index}]"
        if message.role not in ("system", "developer") or (unsaid.same and rest):
            rest.append((message, path))
            continue
        if rest:
            unsaid.change("instructions within the conversation go to its start", path)
        if message.role == "developer":
            unsaid.change("a developer's message is part of the system prompt", path)
        system += [part for part in message.parts if isinstance(part, Text) and part.text]
        unsaid.carried(message.extra, path)
    return system, rest


def _is_plain(parts: list[Text]) -> bool:
    return len(parts) == 1 and not parts[0].extra


def _messages(
    messages: Iterable[tuple[Message, str]], names: Names, unsaid: Unsaid
) -> Iterator[Json]:
    """Messages in turns: results and what the user says after them are one."""
    turn: Json = {}
    for message, path in messages:
        role = "user" if message.role == "tool" else message.role
        extra = unsaid.carried(message.extra, path)
        blocks = [block for part in message.parts for block in _block(part, path, names, unsaid)]
        if not blocks:
            unsaid.drop("an empty message", path)
        elif turn and turn["role"] == role and role == "user" and not extra:
            turn["content"] += blocks
        else:
            if turn:
                yield _short(turn)
            turn = {"role": role, "content": blocks, **extra}
    if turn:
        yield _short(turn)


def _short(turn: Json) -> Json:
    """A turn that is one plain text, as text."""
    match turn["content"]:
        case [{"type": "text", "text": text, **rest}] if not rest:
            return {**turn, "content": text}
        case _:
            return turn


def _block(part: Part, path: str, names: Names, unsaid: Unsaid) -> Iterator[Json]:
    """The block for a part; none for what may not be empty, or cannot be said."""
    match part:
        case Text():
            if part.text:
                yield {"type": "text", "text": part.text, **unsaid.carried(part.extra, path)}
        case Reasoning():
            yield from _thought(part, path, unsaid)
        case Image() | Document():
            yield _media(part, path, unsaid)
        case ToolCall():
            name = names.write(part.name, part.namespace)
            call = {"id": _identity(part.id), "name": name, "input": part.arguments}
            yield {"type": "tool_use", **call, **unsaid.carried(part.extra, path)}
        case ToolResult():
            yield _result(part, path, names, unsaid)
        case Other():
            if unsaid.same:
                yield part.data
            else:
                unsaid.drop(f"a part of the kind {part.data.get('type', 'other')!r}", path)


def _thought(part: Reasoning, path: str, unsaid: Unsaid) -> Iterator[Json]:
    """A thought. One that nobody has signed is refused, so it is left out."""
    if part.extra.get("type") == REDACTED:
        yield {"type": REDACTED, "data": part.signature or ""}
    elif part.signature is None and not unsaid.same:
        unsaid.drop("reasoning that is not signed", path)
    else:
        extra = unsaid.carried(part.extra, path)
        thought = {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        yield thought | extra


def _media(part: Image | Document, path: str, unsaid: Unsaid) -> Json:
    kind = "image" if isinstance(part, Image) else "document"
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        text = part.text if isinstance(part, Document) else ""
        source = {"type": "text", "media_type": "text/plain", "data": text}
    title = part.title if isinstance(part, Document) else ""
    if isinstance(part, Image) and part.detail:
        unsaid.drop("how closely to look at a picture", path)
    named = {"title": title} if title else {}
    return {"type": kind, "source": source, **named, **unsaid.carried(part.extra, path)}


def _result(result: ToolResult, path: str, names: Names, unsaid: Unsaid) -> Json:
    content: Any = result.content
    if not isinstance(content, str):
        content = [block for part in content for block in _block(part, path, names, unsaid)]
    out: Json = {"type": "tool_result", "tool_use_id": _identity(result.call_id)}
    if content:
        out["content"] = content
    if result.is_error:
        out["is_error"] = True
    return out | unsaid.carried(result.extra, path)


def _identity(identity: str) -> str:
    """An id in the letters that are allowed. A call and its result get the same."""
    return _NOT_IN_IDS.sub("_", identity)


# Tools and settings.


def _tools(request: Request, names: Names, unsaid: Unsaid, hosted: list[Json]) -> Json:
    choice = request.tool_choice
    one = choice.mode == "required" and len(choice.names) == 1
    tools = request.tools if one or not choice.names else narrowed(request, unsaid)
    out: Json = {}
    if tools or hosted or (request.tools is not None and unsaid.same):
        out["tools"] = [_tool(tool, names, unsaid) for tool in tools or ()] + hosted
    if tools:
        out |= present(tool_choice=_choice(request, names))
    if choice.validated:
        unsaid.drop("calls that are held to the schema", "$.tool_choice")
    return out


def _tool(tool: Tool, names: Names, unsaid: Unsaid) -> Json:
    path = f"$.tools[{tool.name!r}]"
    function = as_function(tool, unsaid, path)
    out: Json = {"name": names.write(tool.name, tool.namespace)}
    if function.description:
        out["description"] = function.description
    out["input_schema"] = object_schema(function.parameters)
    return out | present(strict=function.strict) | unsaid.carried(function.extra, path)


def _choice(request: Request, names: Names) -> Json | None:
    choice = request.tool_choice
    alone = {} if request.parallel_tool_calls else {"disable_parallel_tool_use": True}
    match choice.mode:
        case "none":
            return {"type": "none"}
        case "auto":
            return {"type": "auto", **alone} if alone else None
        case "required":
            named = choice_names(choice, names, request.tools or ())
            if len(named) == 1:
                return {"type": "tool", "name": named[0], **alone}
            return {"type": "any", **alone}


def _thinking(request: Request, unsaid: Unsaid, extra: Json) -> Json:
    """How much to think, and in what form to answer."""
    thinking, form = request.thinking, request.response_format
    config: Json = extra.pop("output_config", {})
    left: Json = extra.pop("thinking", {})
    out: Json = {}
    budget = _budget(request, unsaid)
    if thinking.enabled is False or thinking.effort == "none":
        out["thinking"] = {"type": "disabled"}
    elif budget is not None:
        out["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif thinking.enabled or (thinking.effort and not unsaid.same):
        out["thinking"] = {"type": "adaptive"}
    if "thinking" in out:
        shown = None if thinking.shown is None else "summarized" if thinking.shown else "omitted"
        out["thinking"] |= present(display=shown) | left
    effort = thinking.effort if thinking.effort != "none" else None
    if effort:
        config = {"effort": effort_of(thinking, unsaid, EFFORTS), **config}
    if form is not None and form.schema is not None:
        config = {**config, "format": {"type": "json_schema", "schema": form.schema}}
    elif form is not None:
        unsaid.drop("JSON without a schema", "$.response_format")
    return out | ({"output_config": config} if config else {})


def _budget(request: Request, unsaid: Unsaid) -> int | None:
    """The tokens to think with, which have to leave some for the answer."""
    budget, limit = request.thinking.budget, request.max_tokens or _MAX_TOKENS
    if budget is None or budget < limit:
        return budget
    if limit <= _LEAST_BUDGET:
        unsaid.drop(f"a budget of {budget} tokens out of {limit}", "$.thinking")
        return None
    lowered = limit - 1
    unsaid.change(f"a budget of {budget} tokens is {lowered}: max_tokens is {limit}", "$.thinking")
    return lowered
