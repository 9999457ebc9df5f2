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
from ..content import as_plain_text, merge_assistant_messages, part_type
from ..encoding import (
    LossLog,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    encode_choice_names,
    encode_sampling,
    name_tools,
    omit_none,
    select_allowed_tools,
    short_hash,
)
from ..fields import HOSTED_TOOLS, Json
from ..names import NameRule, ToolNames
from ..wire import EncodedRequest
from .parts import EFFORTS, NAME, OWN_BLOCK, REDACTED, SAMPLING

_NAMES = NameRule(r"a-zA-Z0-9_\-", 128)
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_\-]")
_MAX_TOKENS = 8192
"""The API wants a limit; this one is sent where the client gave none."""
_LEAST_BUDGET = 1024


def encode_request(request: Request) -> EncodedRequest:
    """The request in this API's words."""
    unsaid = LossLog(NAME, request.wire)
    names = name_tools(request, _NAMES)
    extra = dict(unsaid.carry(request.extra, "$"))
    conversation = request.messages if unsaid.is_same_wire else merge_assistant_messages(request)
    system, messages = _apart(conversation, unsaid)
    thinking = _thinking(request, unsaid, extra)
    thinks = thinking.get("thinking", {}).get("type") in ("enabled", "adaptive")
    body: Json = {
        "model": request.model,
        "max_tokens": _max_tokens(request, thinking, unsaid),
        "messages": list(_messages(messages, names, unsaid)),
        **_system(system, names, unsaid),
        **_tools(request, names, unsaid, extra.pop(HOSTED_TOOLS, []), thinks=thinks),
        **thinking,
        **omit_none(stop_sequences=_stops(request, unsaid) or None),
        **_sampling(request, unsaid, thinks=thinks),
        **_metadata(request, unsaid),
        **({"stream": True} if request.stream else {}),
    }
    return EncodedRequest("/v1/messages", body | extra, names, (*unsaid.notes(), *names.notes))


# Messages.


def _apart(
    messages: tuple[Message, ...], unsaid: LossLog
) -> tuple[list[Text], list[tuple[Message, str]]]:
    """The system prompt, and the messages with their paths. Where the client speaks another API,
    instructions in the midst of the conversation go to its start."""
    system: list[Text] = []
    rest: list[tuple[Message, str]] = []
    for index, message in enumerate(messages):
        path = f"$.messages[{index}]"
        if message.role not in ("system", "developer") or (unsaid.is_same_wire and rest):
            rest.append((message, path))
            continue
        if rest:
            unsaid.change("instructions within the conversation go to its start", path)
        if message.role == "developer":
            unsaid.change("a developer's message is part of the system prompt", path)
        system += [part for part in message.parts if isinstance(part, Text) and part.text]
        unsaid.carry(message.extra, path)
    if system and not rest and not unsaid.is_same_wire:
        unsaid.change("instructions alone are what the user says", "$.messages")
        return [], [(Message("user", tuple(system)), "$.messages")]
    return system, rest


def _system(system: list[Text], names: ToolNames, unsaid: LossLog) -> Json:
    if not system:
        return {}
    text = as_plain_text(system)
    blocks = [block for part in system for block in _block(part, "$.system", names, unsaid)]
    return {"system": blocks if text is None else text}


def _messages(
    messages: Iterable[tuple[Message, str]], names: ToolNames, unsaid: LossLog
) -> Iterator[Json]:
    """Messages in turns: results and what the user says after them are one."""
    turn: Json = {}
    for message, path in messages:
        role = "user" if message.role == "tool" else message.role
        extra = unsaid.carry(message.extra, path)
        parts = [part for part in message.parts if _may_say(role, part, path, unsaid)]
        blocks = [block for part in parts for block in _block(part, path, names, unsaid)]
        if not blocks:
            unsaid.drop("an empty message", path)
        elif turn and turn["role"] == role == "user" and not extra:
            turn["content"] += blocks
        else:
            if turn:
                yield _tidy(turn)
            turn = {"role": role, "content": blocks, **extra}
    if turn:
        yield _tidy(turn)


def _tidy(turn: Json) -> Json:
    """A turn that is one plain text, as text; and one with results, which have to come first."""
    match turn["content"]:
        case [{"type": "text", "text": text, **rest}] if not rest:
            return {**turn, "content": text}
        case blocks:
            ordered = sorted(blocks, key=lambda block: block["type"] != "tool_result")
            return {**turn, "content": ordered}


def _may_say(role: str, part: Part, path: str, unsaid: LossLog) -> bool:
    """Whether this may stand in a message of that role."""
    if unsaid.is_same_wire:
        return True
    if role == "assistant" and isinstance(part, (Image, Document)):
        unsaid.drop("a picture or document of an assistant", path)
        return False
    if isinstance(part, Document) and part.media_type.startswith(("audio/", "video/")):
        unsaid.drop(f"a document of the kind {part.media_type!r}", path)
        return False
    # A text has to hold something that can be seen.
    return not isinstance(part, Text) or bool(part.text.strip())


def _block(part: Part, path: str, names: ToolNames, unsaid: LossLog) -> Iterator[Json]:
    """The block for a part; none for what may not be empty, or cannot be said."""
    match part:
        case Text():
            extra = {key: value for key, value in part.extra.items() if key != "type"}
            carried = unsaid.carry(extra, path)
            if OWN_BLOCK in carried:
                yield carried[OWN_BLOCK]
            elif part.text:
                yield {"type": "text", "text": part.text, **carried}
        case Reasoning():
            yield from _thought(part, path, unsaid)
        case Image() | Document():
            yield _media(part, path, unsaid)
        case ToolCall():
            name = names.to_wire(part.name, part.namespace)
            call = {"id": _identity(part.id), "name": name, "input": part.arguments}
            yield {"type": "tool_use", **call, **unsaid.carry(part.extra, path)}
        case ToolResult():
            yield _result(part, path, names, unsaid)
        case Other():
            if unsaid.is_same_wire:
                yield part.data
            else:
                unsaid.drop(f"a part of the kind {part_type(part)!r}", path)


def _thought(part: Reasoning, path: str, unsaid: LossLog) -> Iterator[Json]:
    """A thought. One that nobody has signed is refused, so it is left out."""
    signature = part.signature or ""
    extra = unsaid.carry(part.extra, path)
    if signature.startswith(REDACTED):
        yield {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
    elif part.signature is None and not unsaid.is_same_wire:
        unsaid.drop("reasoning that is not signed", path)
    else:
        yield {"type": "thinking", "thinking": part.text, "signature": signature, **extra}


def _media(part: Image | Document, path: str, unsaid: LossLog) -> Json:
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
    return {"type": kind, "source": source, **named, **unsaid.carry(part.extra, path)}


def _result(result: ToolResult, path: str, names: ToolNames, unsaid: LossLog) -> Json:
    content: Any = result.content
    if not isinstance(content, str):
        content = [block for part in content for block in _block(part, path, names, unsaid)]
    out: Json = {"type": "tool_result", "tool_use_id": _identity(result.call_id)}
    if content:
        out["content"] = content
    if result.is_error:
        out["is_error"] = True
    return out | unsaid.carry(result.extra, path)


def _identity(identity: str) -> str:
    """An id in the letters that are allowed. A call and its result get the same, and no others."""
    allowed = _NOT_IN_IDS.sub("_", identity)
    return identity if allowed == identity else f"{allowed}_{short_hash(identity)}"


# Tools.


def _tools(
    request: Request, names: ToolNames, unsaid: LossLog, hosted: list[Json], *, thinks: bool
) -> Json:
    choice = request.tool_choice
    one = choice.mode == "required" and len(choice.names) == 1
    tools = request.tools if one or not choice.names else select_allowed_tools(request, unsaid)
    out: Json = {}
    if tools or hosted or (request.tools is not None and unsaid.is_same_wire):
        out["tools"] = [_tool(tool, names, unsaid) for tool in tools or ()] + hosted
    if tools or hosted:
        out |= omit_none(tool_choice=_choice(request, names, unsaid, thinks=thinks))
    if choice.validated:
        unsaid.drop("calls that are held to the schema", "$.tool_choice")
    return out


def _tool(tool: Tool, names: ToolNames, unsaid: LossLog) -> Json:
    path = f"$.tools[{tool.name!r}]"
    function = convert_freeform_tool(tool, unsaid, path)
    out: Json = {"name": names.to_wire(tool.name, tool.namespace)}
    if function.description:
        out["description"] = function.description
    out["input_schema"] = as_object_schema(function.parameters)
    return out | omit_none(strict=function.strict) | unsaid.carry(function.extra, path)


def _choice(request: Request, names: ToolNames, unsaid: LossLog, *, thinks: bool) -> Json | None:
    choice = request.tool_choice
    alone = {} if request.parallel_tool_calls else {"disable_parallel_tool_use": True}
    auto = {"type": "auto", **alone} if alone else None
    if choice.mode == "none":
        return {"type": "none"}
    if choice.mode == "auto":
        return auto
    if thinks and not unsaid.is_same_wire:
        unsaid.change("a choice cannot be forced beside thinking; it is free", "$.tool_choice")
        return auto
    named = encode_choice_names(choice, names, request.tools or ())
    kind = {"type": "tool", "name": named[0]} if len(named) == 1 else {"type": "any"}
    return kind | alone


# Settings.


def _stops(request: Request, unsaid: LossLog) -> list[str]:
    kept = [stop for stop in request.stop if stop.strip() or unsaid.is_same_wire]
    if len(kept) < len(request.stop):
        unsaid.drop("a stop sequence of white space", "$.stop")
    return kept


def _sampling(request: Request, unsaid: LossLog, *, thinks: bool) -> Json:
    """The settings. The API refuses some together, and what others call a high temperature."""
    out = encode_sampling(request, SAMPLING, unsaid)
    if unsaid.is_same_wire:
        return out
    if out.get("temperature", 0) > 1:
        unsaid.change("a temperature above 1 is 1", "$.temperature")
        out["temperature"] = 1
    refused = ("temperature", "top_p", "top_k") if thinks else ()
    if not thinks and "temperature" in out:
        refused = ("top_p",)
    for key in refused:
        if key in out:
            unsaid.drop(f"{key} beside {'thinking' if thinks else 'temperature'}", f"$.{key}")
            del out[key]
    return out


def _metadata(request: Request, unsaid: LossLog) -> Json:
    for key in request.metadata.keys() - {"user_id"}:
        unsaid.drop(f"metadata.{key}", f"$.metadata.{key}")
    user = request.metadata.get("user_id")
    return {"metadata": {"user_id": user}} if user else {}


def _max_tokens(request: Request, thinking: Json, unsaid: LossLog) -> int:
    if request.max_tokens is not None:
        return request.max_tokens
    budget = thinking.get("thinking", {}).get("budget_tokens", 0)
    unsaid.change(f"{NAME} wants a limit: max_tokens is {budget + _MAX_TOKENS}", "$.max_tokens")
    return budget + _MAX_TOKENS


def _thinking(request: Request, unsaid: LossLog, extra: Json) -> Json:
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
    elif thinking.enabled or (thinking.effort and not unsaid.is_same_wire):
        out["thinking"] = {"type": "adaptive"}
    if "thinking" in out:
        shown = None if thinking.shown is None else "summarized" if thinking.shown else "omitted"
        out["thinking"] |= omit_none(display=shown) | left
    if thinking.effort and thinking.effort != "none":
        config = {"effort": choose_effort(thinking, unsaid, EFFORTS), **config}
    if form is not None and form.schema is not None:
        config = {**config, "format": {"type": "json_schema", "schema": form.schema}}
    elif form is not None:
        unsaid.drop("JSON without a schema", "$.response_format")
    return out | ({"output_config": config} if config else {})


def _budget(request: Request, unsaid: LossLog) -> int | None:
    """The tokens to think with: not too few, and some have to be left for the answer."""
    budget, limit = request.thinking.budget, request.max_tokens
    if budget is None or request.thinking.enabled is False:
        return None
    fitting = budget if unsaid.is_same_wire else max(budget, _LEAST_BUDGET)
    if limit is not None and fitting >= limit:
        if limit <= _LEAST_BUDGET:
            unsaid.drop(f"a budget of {budget} tokens out of {limit}", "$.thinking")
            return None
        fitting = limit - 1
    if fitting != budget:
        unsaid.change(f"a budget of {budget} tokens is {fitting}", "$.thinking")
    return fitting
