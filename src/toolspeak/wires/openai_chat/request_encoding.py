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
from ..common import (
    OPENAI_NAMES,
    as_function,
    choice_names,
    document_as_text,
    effort_of,
    joined,
    kind_of,
    names_for,
    names_of,
    object_schema,
    only_text,
    sampling_out,
    short_id,
    url_of,
    user_id,
)
from ..fields import HOSTED, WRITTEN, Json, Unsaid, present
from ..names import Names
from ..wire import Outgoing
from .parts import DETAILS, EXTENSIONS, NAME, OWN_DETAILS, OWN_LIMIT, OWN_NAME, OWN_OUTER, SAMPLING

_LONGEST_ID = 40
_AS_IT_LIKES = Thinking()
_PEOPLE = frozenset({"system", "developer", "user"})
"""Those who speak to a model."""
_AUDIO = {"wav": "wav", "x-wav": "wav", "wave": "wav", "mp3": "mp3", "mpeg": "mp3"}
"""The kinds of recordings that are taken, by what they are called elsewhere."""


def encode_request(request: Request) -> Outgoing:
    """The request in this API's words."""
    unsaid = Unsaid(NAME, request.wire)
    names = names_of(request, OPENAI_NAMES)
    extra = dict(unsaid.carried(request.extra, "$"))
    conversation = request.messages if unsaid.same else joined(request)
    body: Json = {
        "model": request.model,
        "messages": list(_messages(conversation, names, unsaid)),
        **_tools(request, names, unsaid, extra.pop(HOSTED, [])),
        **_settings(request, unsaid, extra.pop(OWN_LIMIT, "max_tokens")),
    }
    options = extra.pop("stream_options", {})
    if request.stream:
        body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    notes = (*unsaid.notes(), *names.notes)
    return Outgoing("/chat/completions", body | extra, names, notes)


# Messages.


def _messages(messages: Iterable[Message], names: Names, unsaid: Unsaid) -> Iterator[Json]:
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
    message: Message, parts: Sequence[Part], path: str, names: Names, unsaid: Unsaid
) -> Json | None:
    """A message; None if all that it says is of a kind that cannot be said here."""
    extra = dict(unsaid.carried(message.extra, path))
    if message.role != "assistant":
        role = "user" if message.role == "tool" else message.role
        return {"role": role, "content": _content(parts, path, unsaid), **extra}
    calls = [part for part in parts if isinstance(part, ToolCall)]
    said = [part for part in parts if not isinstance(part, (ToolCall, Reasoning))]
    content = _content([part for part in said if _may_say(part, path, unsaid)], path, unsaid)
    out = {"role": "assistant", "content": content or None}
    out |= reasoning_out([part for part in parts if isinstance(part, Reasoning)])
    out |= present(**{DETAILS: extra.pop(OWN_DETAILS, None)})
    if calls:
        out["tool_calls"] = [_call(call, names, path, unsaid) for call in calls]
    elif not content and parts and not extra and len(out) == 2:
        return None
    return {**out, "content": out["content"] if calls or content else ""} | extra


def _may_say(part: Part, path: str, unsaid: Unsaid) -> bool:
    """Whether an assistant may have said this: pictures and files are for users."""
    if unsaid.same or not isinstance(part, (Image, Document)):
        return True
    unsaid.drop("a picture or document of an assistant", path)
    return False


def _result(result: ToolResult, path: str, unsaid: Unsaid) -> Json:
    content: Any = result.content
    if not isinstance(content, str):
        kept = [part for part in content if unsaid.same or not _is_shown(part)]
        content = _content(kept, path, unsaid) or ""
    if result.is_error:
        unsaid.drop("a result's error flag", path)
    extra = dict(unsaid.carried(result.extra, path))
    named = present(name=extra.pop(OWN_NAME, None))
    answers = _identity(result.call_id, unsaid)
    return {"role": "tool", "tool_call_id": answers, **named, "content": content, **extra}


def _pictures(result: ToolResult, path: str, unsaid: Unsaid) -> list[Json]:
    if unsaid.same or isinstance(result.content, str):
        return []
    shown = [part for part in result.content if _is_shown(part)]
    if shown:
        unsaid.change("pictures in a result are shown by the user", path)
    return [out for part in shown if (out := _part(part, path, unsaid))]


def _is_shown(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Document) and part.data is not None)


def _identity(identity: str, unsaid: Unsaid) -> str:
    return identity if unsaid.same else short_id(identity, _LONGEST_ID)


def _content(parts: Sequence[Part], path: str, unsaid: Unsaid) -> str | list[Json]:
    text = only_text(parts)
    if text is not None:
        return text
    written = (_part(part, path, unsaid) for part in parts)
    return [part for part in written if part]


def _part(part: Part, path: str, unsaid: Unsaid) -> Json:
    match part:
        case Text():
            if part.extra.get("type") == "refusal":
                return {"type": "refusal", "refusal": part.text}
            return {"type": "text", "text": part.text, **unsaid.carried(part.extra, path)}
        case Image():
            extra = dict(unsaid.carried(part.extra, path))
            picture = {"url": url_of(part), **present(detail=part.detail)}
            inner = extra.pop("image_url", {})
            return {"type": "image_url", "image_url": picture | inner, **extra}
        case Document():
            return _document(part, path, unsaid)
        case Other() if unsaid.same:
            return part.data
        case _:
            kind = kind_of(part) if isinstance(part, Other) else type(part).__name__
            unsaid.drop(f"a part of the kind {kind!r}", path)
            return {}


def _document(part: Document, path: str, unsaid: Unsaid) -> Json:
    extra = dict(unsaid.carried(part.extra, path))
    kind, _, form = part.media_type.partition("/")
    if kind == "audio" and part.data is not None and (form in _AUDIO or unsaid.same):
        audio = {"data": part.data, "format": _AUDIO.get(form, form)}
        return {"type": "input_audio", "input_audio": audio | extra.pop("input_audio", {}), **extra}
    if kind in ("audio", "video"):
        unsaid.drop(f"a document of the kind {part.media_type!r}", path)
        return {}
    if part.data is not None or "file" in extra:
        data = url_of(part) if part.data is not None else None
        file = present(filename=part.title or None, file_data=data)
        return {"type": "file", "file": file | extra.pop("file", {}), **extra}
    unsaid.change("a document is written as text", path)
    return {"type": "text", "text": document_as_text(part)}


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
    return {"type": "reasoning.text", "text": thought.text} | present(signature=thought.signature)


def _call(call: ToolCall, names: Names, path: str, unsaid: Unsaid) -> Json:
    name = names.write(call.name, call.namespace)
    extra = dict(unsaid.carried(call.extra, path))
    identity = _identity(call.id, unsaid)
    written = extra.pop(WRITTEN, None)
    if call.freeform and unsaid.same:
        custom = {"name": name, "input": call.input}
        return {"id": identity, "type": "custom", "custom": custom, **extra}
    arguments = written or call.arguments_json
    function = {"name": name, "arguments": arguments, **extra.pop("function", {})}
    return {"id": identity, "type": "function", "function": function, **extra}


# Tools and settings.


def _tools(request: Request, names: Names, unsaid: Unsaid, hosted: list[Json]) -> Json:
    offered = request.tools or ()
    own = _own_tools(offered) if unsaid.same else [_tool(tool, names, unsaid) for tool in offered]
    tools = own + hosted
    if not tools:
        return {"tools": []} if request.tools is not None and unsaid.same else {}
    out: Json = {"tools": tools}
    if (choice := _choice(request, names, unsaid)) is not None:
        out["tool_choice"] = choice
    if not request.parallel_tool_calls:
        out["parallel_tool_calls"] = False
    return out


@memoize_by_identity
def _own_tools(tools: tuple[Tool, ...]) -> list[Json]:
    """Tools that came by this very API, which has words for all of them."""
    names, unsaid = names_for(tools, OPENAI_NAMES), Unsaid(NAME, NAME)
    return [_tool(tool, names, unsaid) for tool in tools]


def _tool(tool: Tool, names: Names, unsaid: Unsaid) -> Json:
    path = f"$.tools[{tool.name!r}]"
    name = names.write(tool.name, tool.namespace)
    kind = "custom" if tool.freeform and unsaid.same else "function"
    offered = tool if kind == "custom" else as_function(tool, unsaid, path)
    extra = dict(unsaid.carried(offered.extra, path))
    outer = extra.pop(OWN_OUTER, {})
    inner: Json = {"name": name}
    if offered.description:
        inner["description"] = offered.description
    if kind == "function":
        schema = offered.parameters if unsaid.same else object_schema(offered.parameters)
        inner |= present(parameters=schema or None, strict=offered.strict)
    return {"type": kind, kind: inner | extra, **outer}


def _choice(request: Request, names: Names, unsaid: Unsaid) -> Any:
    choice = request.tool_choice
    tools = request.tools or ()
    if choice.validated:
        unsaid.drop("a choice that is held to the schema", "$.tool_choice")
    if not choice.names:
        return None if choice.mode == "auto" else choice.mode
    custom = {tool.name for tool in tools if tool.freeform and unsaid.same}
    written = zip(choice.names, choice_names(choice, names, tools), strict=True)
    named = [_named("custom" if name in custom else "function", out) for name, out in written]
    if len(named) == 1 and choice.mode == "required":
        return named[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": named}}


def _named(kind: str, name: str) -> Json:
    return {"type": kind, kind: {"name": name}}


def _settings(request: Request, unsaid: Unsaid, limit: str) -> Json:
    """How the model is to answer. Most requests say little of that."""
    out: Json = {}
    if request.response_format:
        out["response_format"] = _format_out(request.response_format)
    if request.thinking != _AS_IT_LIKES and (effort := effort_of(request.thinking, unsaid)):
        out["reasoning_effort"] = effort
    if request.stop:
        out["stop"] = list(request.stop)
    if request.metadata and (user := user_id(request, unsaid)):
        out["user"] = user
    if request.max_tokens is not None:
        out[limit] = request.max_tokens
    if request.sampling:
        out |= sampling_out(request, SAMPLING, unsaid, extensions=EXTENSIONS)
    if metadata := {key: value for key, value in request.metadata.items() if key != "user_id"}:
        out["metadata"] = metadata
    return out


def _format_out(form: ResponseFormat) -> Json:
    if form.schema is None:
        return {"type": "json_object"}
    inner = present(
        name=form.name or "answer",
        schema=form.schema,
        description=form.description or None,
        strict=form.strict,
    )
    return {"type": "json_schema", "json_schema": inner}
