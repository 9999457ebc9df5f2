"""A chat completion request to an upstream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..._util import memoize_by_identity
from ...types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from ..content import (
    as_plain_text,
    encode_media_url,
    merge_assistant_messages,
    part_type,
    render_document,
)
from ..encoding import (
    OPENAI_NAMES,
    LossLog,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    encode_choice_names,
    encode_sampling,
    encode_user_id,
    map_tool_names,
    name_tools,
    omit_none,
    shorten_id,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, Json
from ..names import ToolNames
from ..wire import EncodedRequest
from .parts import DETAILS, EXTENSIONS, NAME, OWN_DETAILS, OWN_LIMIT, OWN_NAME, OWN_OUTER, SAMPLING

_LONGEST_ID = 40
_AS_IT_LIKES = Thinking()
_PEOPLE = frozenset({"system", "developer", "user"})
"""Those who speak to a model."""
_AUDIO = {"wav": "wav", "x-wav": "wav", "wave": "wav", "mp3": "mp3", "mpeg": "mp3"}
"""The kinds of recordings that are taken, by what they are called elsewhere."""


def encode_request(request: Request) -> EncodedRequest:
    """The request in this API's words."""
    unsaid = LossLog(NAME, request.wire)
    names = name_tools(request, OPENAI_NAMES)
    extra = dict(unsaid.carry(request.extra, "$"))
    conversation = request.messages if unsaid.is_same_wire else merge_assistant_messages(request)
    body: Json = {
        "model": request.model,
        "messages": list(_messages(conversation, names, unsaid)),
        **_tools(request, names, unsaid, extra.pop(HOSTED_TOOLS, [])),
        **_settings(request, unsaid, extra.pop(OWN_LIMIT, "max_tokens")),
    }
    options = extra.pop("stream_options", {})
    if request.stream:
        body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    notes = (*unsaid.notes(), *names.notes)
    return EncodedRequest("/chat/completions", body | extra, names, notes)


# Messages.


def _messages(messages: Iterable[Message], names: ToolNames, unsaid: LossLog) -> Iterator[Json]:
    """All messages. The pictures in results, which only users may show, come after the last of
    them: nothing may stand between the results of one turn."""
    shown: list[Json] = []
    for index, message in enumerate(messages):
        rest: Sequence[Part] = message.parts
        if not shown and message.role in _PEOPLE and not message.extra and len(rest) == 1:
            (part,) = rest
            if isinstance(part, Text) and not part.extra:
                # As most are.
                yield {"role": message.role, "content": part.text}
                continue
        path = f"$.messages[{index}]"
        results = [part for part in rest if isinstance(part, ToolResult)]
        if results:
            rest = [part for part in rest if not isinstance(part, ToolResult)]
        for result in results:
            yield _result(result, path, unsaid)
            shown += _pictures(result, path, unsaid)
        if rest or not results:
            if shown:
                yield {"role": "user", "content": shown}
                shown = []
            if out := _message(message, rest, path, names, unsaid):
                yield out
    if shown:
        yield {"role": "user", "content": shown}


def _message(
    message: Message, parts: Sequence[Part], path: str, names: ToolNames, unsaid: LossLog
) -> Json | None:
    """A message; None if all that it says is of a kind that cannot be said here."""
    extra = dict(unsaid.carry(message.extra, path))
    if message.role != "assistant":
        role = "user" if message.role == "tool" else message.role
        return {"role": role, "content": _content(parts, path, unsaid), **extra}
    calls = [part for part in parts if isinstance(part, ToolCall)]
    said = [part for part in parts if not isinstance(part, (ToolCall, Reasoning))]
    content = _content([part for part in said if _may_say(part, path, unsaid)], path, unsaid)
    out = {"role": "assistant", "content": content or None}
    out |= reasoning_out([part for part in parts if isinstance(part, Reasoning)])
    out |= omit_none(**{DETAILS: extra.pop(OWN_DETAILS, None)})
    if calls:
        out["tool_calls"] = [_call(call, names, path, unsaid) for call in calls]
    elif not content and parts and not extra and len(out) == 2:
        return None
    return {**out, "content": out["content"] if calls or content else ""} | extra


def _may_say(part: Part, path: str, unsaid: LossLog) -> bool:
    """Whether an assistant may have said this: pictures and files are for users."""
    if unsaid.is_same_wire or not isinstance(part, (Image, Document)):
        return True
    unsaid.drop("a picture or document of an assistant", path)
    return False


def _result(result: ToolResult, path: str, unsaid: LossLog) -> Json:
    content: Any = result.content
    if not isinstance(content, str):
        kept = [part for part in content if unsaid.is_same_wire or not _is_shown(part)]
        content = _content(kept, path, unsaid) or ""
    if result.is_error:
        unsaid.drop("a result's error flag", path)
    extra = dict(unsaid.carry(result.extra, path))
    named = omit_none(name=extra.pop(OWN_NAME, None))
    answers = _identity(result.call_id, unsaid)
    return {"role": "tool", "tool_call_id": answers, **named, "content": content, **extra}


def _pictures(result: ToolResult, path: str, unsaid: LossLog) -> list[Json]:
    if unsaid.is_same_wire or isinstance(result.content, str):
        return []
    shown = [part for part in result.content if _is_shown(part)]
    if shown:
        unsaid.change("pictures in a result are shown by the user", path)
    return [out for part in shown if (out := _part(part, path, unsaid))]


def _is_shown(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Document) and part.data is not None)


def _identity(identity: str, unsaid: LossLog) -> str:
    return identity if unsaid.is_same_wire else shorten_id(identity, _LONGEST_ID)


def _content(parts: Sequence[Part], path: str, unsaid: LossLog) -> str | list[Json]:
    text = as_plain_text(parts)
    if text is not None:
        return text
    written = (_part(part, path, unsaid) for part in parts)
    return [part for part in written if part]


def _part(part: Part, path: str, unsaid: LossLog) -> Json:
    match part:
        case Text():
            if part.extra.get("type") == "refusal":
                return {"type": "refusal", "refusal": part.text}
            return {"type": "text", "text": part.text, **unsaid.carry(part.extra, path)}
        case Image():
            extra = dict(unsaid.carry(part.extra, path))
            picture = {"url": encode_media_url(part), **omit_none(detail=part.detail)}
            inner = extra.pop("image_url", {})
            return {"type": "image_url", "image_url": picture | inner, **extra}
        case Document():
            return _document(part, path, unsaid)
        case Other() if unsaid.is_same_wire:
            return part.data
        case _:
            kind = part_type(part) if isinstance(part, Other) else type(part).__name__
            unsaid.drop(f"a part of the kind {kind!r}", path)
            return {}


def _document(part: Document, path: str, unsaid: LossLog) -> Json:
    extra = dict(unsaid.carry(part.extra, path))
    kind, _, form = part.media_type.partition("/")
    if kind == "audio" and part.data is not None and (form in _AUDIO or unsaid.is_same_wire):
        audio = {"data": part.data, "format": _AUDIO.get(form, form)}
        return {"type": "input_audio", "input_audio": audio | extra.pop("input_audio", {}), **extra}
    if kind in ("audio", "video"):
        unsaid.drop(f"a document of the kind {part.media_type!r}", path)
        return {}
    if part.data is not None or "file" in extra:
        data = encode_media_url(part) if part.data is not None else None
        file = omit_none(filename=part.title or None, file_data=data)
        return {"type": "file", "file": file | extra.pop("file", {}), **extra}
    unsaid.change("a document is written as text", path)
    return {"type": "text", "text": render_document(part)}


def reasoning_out(thoughts: list[Reasoning]) -> Json:
    """What an assistant thought, with the signatures as OpenRouter has them."""
    if not thoughts:
        return {}
    out: Json = {"reasoning_content": "".join(thought.text for thought in thoughts)}
    if any(thought.signature for thought in thoughts):
        out[DETAILS] = [_detail(thought) for thought in thoughts]
    return out


def _detail(thought: Reasoning) -> Json:
    if not thought.text:
        return {"type": "reasoning.encrypted", "data": thought.signature}
    return {"type": "reasoning.text", "text": thought.text} | omit_none(signature=thought.signature)


def _call(call: ToolCall, names: ToolNames, path: str, unsaid: LossLog) -> Json:
    name = names.to_wire(call.name, call.namespace)
    extra = dict(unsaid.carry(call.extra, path))
    identity = _identity(call.id, unsaid)
    written = extra.pop(ARGUMENTS_TEXT, None)
    if call.freeform and unsaid.is_same_wire:
        custom = {"name": name, "input": call.input}
        return {"id": identity, "type": "custom", "custom": custom, **extra}
    arguments = written or call.arguments_json
    function = {"name": name, "arguments": arguments, **extra.pop("function", {})}
    return {"id": identity, "type": "function", "function": function, **extra}


# Tools and settings.


def _tools(request: Request, names: ToolNames, unsaid: LossLog, hosted: list[Json]) -> Json:
    offered = request.tools or ()
    own = (
        _own_tools(offered)
        if unsaid.is_same_wire
        else [_tool(tool, names, unsaid) for tool in offered]
    )
    tools = own + hosted
    if not tools:
        return {"tools": []} if request.tools is not None and unsaid.is_same_wire else {}
    out: Json = {"tools": tools}
    if (choice := _choice(request, names, unsaid)) is not None:
        out["tool_choice"] = choice
    if not request.parallel_tool_calls:
        out["parallel_tool_calls"] = False
    return out


@memoize_by_identity
def _own_tools(tools: tuple[Tool, ...]) -> list[Json]:
    """Tools that came by this very API, which has words for all of them."""
    names, unsaid = map_tool_names(tools, OPENAI_NAMES), LossLog(NAME, NAME)
    return [_tool(tool, names, unsaid) for tool in tools]


def _tool(tool: Tool, names: ToolNames, unsaid: LossLog) -> Json:
    path = f"$.tools[{tool.name!r}]"
    name = names.to_wire(tool.name, tool.namespace)
    kind = "custom" if tool.freeform and unsaid.is_same_wire else "function"
    offered = tool if kind == "custom" else convert_freeform_tool(tool, unsaid, path)
    extra = dict(unsaid.carry(offered.extra, path))
    outer = extra.pop(OWN_OUTER, {})
    inner: Json = {"name": name}
    if offered.description:
        inner["description"] = offered.description
    if kind == "function":
        schema = offered.parameters if unsaid.is_same_wire else as_object_schema(offered.parameters)
        inner |= omit_none(parameters=schema or None, strict=offered.strict)
    return {"type": kind, kind: inner | extra, **outer}


def _choice(request: Request, names: ToolNames, unsaid: LossLog) -> Any:
    choice = request.tool_choice
    tools = request.tools or ()
    if choice.validated:
        unsaid.drop("a choice that is held to the schema", "$.tool_choice")
    if not choice.names:
        return None if choice.mode == "auto" else choice.mode
    custom = {tool.name for tool in tools if tool.freeform and unsaid.is_same_wire}
    written = zip(choice.names, encode_choice_names(choice, names, tools), strict=True)
    named = [_named("custom" if name in custom else "function", out) for name, out in written]
    if len(named) == 1 and choice.mode == "required":
        return named[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": named}}


def _named(kind: str, name: str) -> Json:
    return {"type": kind, kind: {"name": name}}


def _settings(request: Request, unsaid: LossLog, limit: str) -> Json:
    """How the model is to answer. Most requests say little of that."""
    out: Json = {}
    if request.response_format:
        out["response_format"] = _format_out(request.response_format)
    if request.thinking != _AS_IT_LIKES and (effort := choose_effort(request.thinking, unsaid)):
        out["reasoning_effort"] = effort
    if request.stop:
        out["stop"] = list(request.stop)
    if request.metadata and (user := encode_user_id(request, unsaid)):
        out["user"] = user
    if request.max_tokens is not None:
        out[limit] = request.max_tokens
    if request.sampling:
        out |= encode_sampling(request, SAMPLING, unsaid, extensions=EXTENSIONS)
    if metadata := {key: value for key, value in request.metadata.items() if key != "user_id"}:
        out["metadata"] = metadata
    return out


def _format_out(form: ResponseFormat) -> Json:
    if form.schema is None:
        return {"type": "json_object"}
    inner = omit_none(
        name=form.name or "answer",
        schema=form.schema,
        description=form.description or None,
        strict=form.strict,
    )
    return {"type": "json_schema", "json_schema": inner}
