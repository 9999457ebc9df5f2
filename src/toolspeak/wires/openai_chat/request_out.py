"""A chat completion request to an upstream."""

from __future__ import annotations

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
    ResponseFormat,
    Text,
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
    names_of,
    only_texts,
    sampling_out,
    url_of,
)
from ..fields import HOSTED, WRITTEN, Json, Unsaid, present
from ..names import Names
from ..wire import Outgoing
from .words import EXTENSIONS, NAME, SAMPLING


def encode_request(request: Request) -> Outgoing:
    """The request in this API's words."""
    unsaid = Unsaid(NAME, request.wire)
    names = names_of(request, OPENAI_NAMES)
    extra = dict(unsaid.carried(request.extra, "$"))
    body: Json = {
        "model": request.model,
        "messages": [
            out
            for index, message in enumerate(request.messages)
            for out in _message_out(message, f"$.messages[{index}]", names, unsaid)
        ],
    }
    tools = [_tool_out(tool, names, unsaid) for tool in request.tools or ()]
    tools += extra.pop(HOSTED, ())
    if tools:
        body["tools"] = tools
        body |= present(tool_choice=_choice_out(request, names))
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    elif request.tools is not None and unsaid.same:
        body["tools"] = []
    body |= present(
        response_format=_format_out(request.response_format),
        reasoning_effort=effort_of(request.thinking, unsaid),
        max_tokens=request.max_tokens,
        stop=list(request.stop) or None,
    )
    body |= sampling_out(request, SAMPLING, unsaid, extensions=EXTENSIONS)
    metadata = dict(request.metadata)
    body |= present(user=metadata.pop("user_id", None), metadata=metadata or None)
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {
            **(extra.pop("stream_options", None) or {}),
            "include_usage": True,
        }
    notes = (*unsaid.notes(), *names.notes())
    return Outgoing("/chat/completions", body | extra, names, notes)


def _message_out(message: Message, path: str, names: Names, unsaid: Unsaid) -> Iterator[Json]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    for result in results:
        yield from _result_out(result, path, unsaid)
    parts = [part for part in message.parts if not isinstance(part, ToolResult)]
    if results and not parts:
        return
    extra = unsaid.carried(message.extra, path)
    if message.role != "assistant":
        role = "user" if message.role == "tool" else message.role
        yield {"role": role, "content": _content_out(parts, path, unsaid), **extra}
        return
    calls = [part for part in parts if isinstance(part, ToolCall)]
    said = [part for part in parts if not isinstance(part, (ToolCall, Reasoning))]
    out: Json = {"role": "assistant", "content": _content_out(said, path, unsaid) or None}
    out |= reasoning_out([part for part in parts if isinstance(part, Reasoning)])
    if calls:
        out["tool_calls"] = [_call_out(call, names, path, unsaid) for call in calls]
    elif out["content"] is None:
        out["content"] = ""
    yield out | extra


def _result_out(result: ToolResult, path: str, unsaid: Unsaid) -> Iterator[Json]:
    """A result, and the pictures in it, which only users may show."""
    content: Any = result.content
    pictures: list[Part] = []
    if not isinstance(content, str):
        pictures = [part for part in content if isinstance(part, Image) or _is_file(part)]
        content = _content_out([part for part in content if part not in pictures], path, unsaid)
    if result.is_error:
        unsaid.drop("a result's error flag", path)
    unsaid.carried(result.extra, path)
    yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
    if pictures:
        unsaid.change("pictures in a result are shown by the user", path)
        yield {"role": "user", "content": [_part_out(part, path, unsaid) for part in pictures]}


def _is_file(part: Part) -> bool:
    return isinstance(part, Document) and part.data is not None


def _content_out(parts: Iterable[Part], path: str, unsaid: Unsaid) -> str | list[Json]:
    message = Message("user", tuple(parts))
    text = only_texts(message)
    if text is not None:
        return text
    written = (_part_out(part, path, unsaid) for part in message.parts)
    return [part for part in written if part]


def _part_out(part: Part, path: str, unsaid: Unsaid) -> Json:
    match part:
        case Text():
            if part.extra.get("type") == "refusal":
                return {"type": "refusal", "refusal": part.text}
            return {"type": "text", "text": part.text, **unsaid.carried(part.extra, path)}
        case Image():
            picture = {"url": url_of(part)} | present(detail=part.detail)
            return {"type": "image_url", "image_url": picture, **unsaid.carried(part.extra, path)}
        case Document() if part.data is not None and part.media_type.startswith("audio/"):
            audio = {"data": part.data, "format": part.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": audio}
        case Document() if part.data is not None or part.extra.get("file_id"):
            data = url_of(part) if part.data is not None else None
            file = present(filename=part.title or None, file_data=data)
            return {"type": "file", "file": file | unsaid.carried(part.extra, path)}
        case Document():
            unsaid.change("a document is written as text", path)
            unsaid.carried(part.extra, path)
            return {"type": "text", "text": document_as_text(part)}
        case Other() if unsaid.same:
            return part.data
        case _:
            kind = part.data.get("type", "part") if isinstance(part, Other) else type(part).__name__
            unsaid.drop(f"a part of the kind {kind!r}", path)
            return {}


def reasoning_out(thoughts: list[Reasoning]) -> Json:
    if not thoughts:
        return {}
    out: Json = {"reasoning_content": "".join(thought.text for thought in thoughts)}
    if any(thought.signature for thought in thoughts):
        out["reasoning_details"] = [_detail(thought) for thought in thoughts]
    return out


def _detail(thought: Reasoning) -> Json:
    """A thought with its signature, as OpenRouter has it."""
    if not thought.text:
        return {"type": "reasoning.encrypted", "data": thought.signature}
    return {"type": "reasoning.text", "text": thought.text} | present(signature=thought.signature)


def _call_out(call: ToolCall, names: Names, path: str, unsaid: Unsaid) -> Json:
    name = names.write(call.name, call.namespace)
    extra = dict(unsaid.carried(call.extra, path))
    if call.freeform and unsaid.same:
        custom = {"name": name, "input": call.input}
        return {"id": call.id, "type": "custom", "custom": custom, **extra}
    arguments = extra.pop(WRITTEN, None) or call.arguments_json
    function = {"name": name, "arguments": arguments, **extra.pop("function", {})}
    return {"id": call.id, "type": "function", "function": function, **extra}


def _tool_out(tool: Tool, names: Names, unsaid: Unsaid) -> Json:
    path = f"$.tools[{tool.name!r}]"
    name = names.write(tool.name, tool.namespace)
    if tool.freeform and unsaid.same:
        custom = {"name": name, "description": tool.description, **tool.extra}
        return {"type": "custom", "custom": custom}
    function = as_function(tool, unsaid, path)
    out = {"name": name, "description": function.description, "parameters": function.parameters}
    out |= present(strict=function.strict)
    return {"type": "function", "function": out | unsaid.carried(function.extra, path)}


def _choice_out(request: Request, names: Names) -> Any:
    choice = request.tool_choice
    named = choice_names(choice, names, request.tools or ())
    if not named:
        return None if choice.mode == "auto" else choice.mode
    functions = [{"type": "function", "function": {"name": name}} for name in named]
    if len(functions) == 1 and choice.mode == "required":
        return functions[0]
    return {
        "type": "allowed_tools",
        "allowed_tools": {"mode": choice.mode, "tools": functions},
    }


def _format_out(form: ResponseFormat | None) -> Json | None:
    if form is None:
        return None
    if form.schema is None:
        return {"type": "json_object"}
    inner = present(
        name=form.name or "answer",
        schema=form.schema,
        description=form.description or None,
        strict=form.strict,
    )
    return {"type": "json_schema", "json_schema": inner}
