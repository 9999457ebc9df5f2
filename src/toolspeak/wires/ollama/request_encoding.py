"""A request to an upstream's /api/chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from ..call_history import ORIGINAL_ID
from ..content import part_type, render_document
from ..encoding import (
    LossLog,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    encode_sampling,
    name_tools,
    omit_none,
    select_allowed_tools,
)
from ..fields import HOSTED_TOOLS, Json
from ..names import ANY_NAME, ToolNames
from ..wire import EncodedRequest
from .parts import GENERATE, NAME, PROMPTING, SAMPLING, call_out

_EFFORTS = ("low", "medium", "high")
_HAS_EFFORTS = "gpt-oss"
"""Other models can only think or not."""


def encode_request(request: Request) -> EncodedRequest:
    """The request in this API's words."""
    unsaid = LossLog(NAME, request.wire)
    names = name_tools(request, ANY_NAME)
    extra = dict(unsaid.carry(request.extra, "$"))
    if extra.pop(GENERATE, None):
        _leave_out_prompting(extra, unsaid)
    body: Json = {
        "model": request.model,
        "messages": list(_Writer(names, unsaid).messages(request.messages)),
        **_tools(request, names, unsaid, extra.pop(HOSTED_TOOLS, [])),
    }
    options = encode_sampling(request, SAMPLING, unsaid)
    options |= omit_none(num_predict=request.max_tokens, stop=list(request.stop) or None)
    options |= extra.pop("options", {})
    body |= omit_none(
        format=_format(request.response_format),
        options=options or None,
        think=_think(request.thinking, request.model, unsaid),
    )
    for key in request.metadata:
        unsaid.drop(f"metadata.{key}", f"$.metadata.{key}")
    body["stream"] = request.stream
    return EncodedRequest("/api/chat", body | extra, names, (*unsaid.notes(), *names.notes))


def set_context_window(body: Json, tokens: int) -> Json:
    """The request with a window of so many tokens, unless it has one."""
    return body | {"options": {"num_ctx": tokens, **body.get("options", {})}}


def _leave_out_prompting(extra: Json, unsaid: LossLog) -> None:
    for key in PROMPTING:
        if extra.pop(key, None):
            unsaid.drop(f"the {key} of a prompt", f"$.{key}")


# Messages.


class _Writer:
    """Writes the messages of a conversation."""

    def __init__(self, names: ToolNames, unsaid: LossLog) -> None:
        self._names = names
        self._unsaid = unsaid
        self._written: dict[str, str] = {}
        """The names of the calls, by their ids."""
        self._order: dict[str, int] = {}
        """Where each call stands among all of them."""

    def messages(self, messages: tuple[Message, ...]) -> Iterator[Json]:
        """The messages. What comes after calls is one turn, unless it came by this API."""
        turn: list[tuple[Message, str]] = []
        for index, message in enumerate(messages):
            if message.role == "assistant" or self._unsaid.is_same_wire or not self._order:
                yield from self._turn(turn)
                turn = []
            turn.append((message, f"$.messages[{index}]"))
            if message.role == "assistant":
                yield from self._turn(turn)
                turn = []
        yield from self._turn(turn)

    def _turn(self, turn: list[tuple[Message, str]]) -> Iterator[Json]:
        """What is said in a turn, after its results. These stand in the order of their calls: to
        most models nothing else tells which is whose, if they are of the same tool."""
        results: list[tuple[ToolResult, str]] = []
        pictures: list[str] = []
        said: list[tuple[Message, Sequence[Part], str]] = []
        for message, path in turn:
            found = [part for part in message.parts if isinstance(part, ToolResult)]
            if found and said:
                self._unsaid.change("results come before what is said between them", path)
            results += [(result, path) for result in found]
            parts = [part for part in message.parts if not isinstance(part, ToolResult)]
            if parts or not found:
                said.append((message, parts, path))
        results.sort(key=lambda result: self._order.get(result[0].call_id, len(self._order)))
        for result, path in results:
            written, shown = self._result(result, path)
            yield written
            pictures += shown
        if pictures:
            yield {"role": "user", "content": "", "images": pictures}
        for message, parts, path in said:
            yield from self._message(message, parts, path)

    def _message(self, message: Message, parts: Sequence[Part], path: str) -> Iterator[Json]:
        extra = self._unsaid.carry(message.extra, path)
        if message.role == "assistant":
            yield self._assistant(parts, path) | extra
            return
        role = "user" if message.role == "tool" else message.role
        if role == "developer":
            self._unsaid.change("a developer's message is the system's instructions", path)
            role = "system"
        *others, last = self._said(role, parts, path)
        yield from others
        yield last | extra

    def _said(self, role: str, parts: Sequence[Part], path: str) -> Iterator[Json]:
        """A message for each text, which Ollama puts together; pictures go with the one before."""
        out: Json = {"role": role, "content": ""}
        for part in parts:
            text, pictures = self._content(part, path)
            if text and len(out) + len(out["content"]) > 2:
                yield out
                out = {"role": role, "content": ""}
            out["content"] += text
            if pictures:
                out["images"] = [*out.get("images", ()), *pictures]
        yield out

    def _assistant(self, parts: Sequence[Part], path: str) -> Json:
        thoughts = [part for part in parts if isinstance(part, Reasoning)]
        if any(thought.signature for thought in thoughts):
            self._unsaid.drop("the signature of reasoning", path)
        for thought in thoughts:
            self._unsaid.carry(thought.extra, path)
        calls = [self._call(part, path) for part in parts if isinstance(part, ToolCall)]
        said = [self._content(part, path) for part in parts if _is_content(part)]
        texts = [text for text, _ in said if text]
        if len(texts) > 1:
            self._unsaid.change("several texts of an assistant are one", path)
        return {
            "role": "assistant",
            "content": "\n".join(texts),
            **omit_none(
                thinking="".join(thought.text for thought in thoughts) or None,
                images=[picture for _, pictures in said for picture in pictures] or None,
                tool_calls=calls or None,
            ),
        }

    def _content(self, part: Part, path: str) -> tuple[str, list[str]]:
        """The text and the picture that a part is: one of them, or none."""
        if not isinstance(part, Other):
            self._unsaid.carry(part.extra, path)
        match part:
            case Text():
                return part.text, []
            case Image(data=str(data)):
                if part.detail not in (None, "auto"):
                    self._unsaid.drop("how closely to look at a picture", path)
                return "", [data]
            case Image():
                self._unsaid.drop("a picture by its address", path)
            case Document(data=None):
                self._unsaid.change("a document is written as text", path)
                return render_document(part), []
            case Document():
                self._unsaid.drop(f"a document by value ({part.media_type})", path)
            case Other():
                self._unsaid.drop(f"a part of the kind {part_type(part)!r}", path)
            case _:
                pass
        return "", []

    def _call(self, call: ToolCall, path: str) -> Json:
        extra = self._unsaid.carry(call.extra, path)
        name = self._written[call.id] = self._names.to_wire(call.name, call.namespace)
        self._order[call.id] = len(self._order)
        return call_out(call, name, extra if self._unsaid.is_same_wire else None)

    def _result(self, result: ToolResult, path: str) -> tuple[Json, list[str]]:
        """A result, and the pictures in it that somebody else has to show."""
        if result.is_error:
            self._unsaid.drop("a result's error flag", path)
        text, pictures = self._given(result, path)
        name = self._written.get(result.call_id) or self._names.to_wire(result.name)
        out: Json = {"role": "tool", "tool_name": name, "content": text}
        extra = dict(self._unsaid.carry(result.extra, path))
        if self._unsaid.is_same_wire:
            identity = extra.pop(ORIGINAL_ID, result.call_id) or None
            return out | omit_none(tool_call_id=identity, images=pictures or None) | extra, []
        if pictures:
            self._unsaid.change("pictures in a result are shown by the user", path)
        return out, pictures

    def _given(self, result: ToolResult, path: str) -> tuple[str, list[str]]:
        """The text of a result, and its pictures."""
        if isinstance(result.content, str):
            return result.content, []
        texts: list[str] = []
        pictures: list[str] = []
        for part in result.content:
            if isinstance(part, Document) and part.text:
                texts.append(part.text)
                continue
            text, shown = self._content(part, path)
            texts += [text] if text else []
            pictures += shown
        return "\n".join(texts), pictures


def _is_content(part: Part) -> bool:
    return not isinstance(part, (Reasoning, ToolCall))


# Tools and settings.


def _tools(request: Request, names: ToolNames, unsaid: LossLog, hosted: list[Any]) -> Json:
    choice = request.tool_choice
    if choice.mode == "none" and request.tools:
        unsaid.change("there is no choice of no tools; none of the tools is sent", "$.tool_choice")
        return {}
    if choice.mode == "required":
        unsaid.drop("the choice of a tool, which has to be called", "$.tool_choice")
    elif choice.names or choice.validated:
        unsaid.drop("the choice among tools", "$.tool_choice")
    if not request.parallel_tool_calls and request.tools:
        unsaid.drop("calls one at a time", "$.parallel_tool_calls")
    tools = [_tool(tool, names, unsaid) for tool in select_allowed_tools(request, unsaid)] + hosted
    return {"tools": tools} if tools else {}


def _tool(tool: Tool, names: ToolNames, unsaid: LossLog) -> Json:
    path = f"$.tools[{tool.name!r}]"
    function = convert_freeform_tool(tool, unsaid, path)
    if function.strict:
        unsaid.drop("strict tools", path)
    out = {
        "name": names.to_wire(tool.name, tool.namespace),
        "description": function.description,
        "parameters": as_object_schema(function.parameters),
    }
    return {"type": "function", "function": out | unsaid.carry(function.extra, path)}


def _format(form: ResponseFormat | None) -> Any:
    if form is None:
        return None
    return "json" if form.schema is None else form.schema


def _think(thinking: Thinking, model: str, unsaid: LossLog) -> bool | str | None:
    """Whether to think. Not to is a wish that any model takes. The wish to do so is one that a
    model which cannot refuses, and one that can does not need: it thinks if nothing is said."""
    if thinking.shown is False:
        unsaid.drop("reasoning that is not shown", "$.thinking")
    if thinking.enabled is False or thinking.effort == "none":
        return False
    if unsaid.is_same_wire:
        return thinking.effort or thinking.enabled
    if thinking.effort is None and thinking.budget is None:
        return None
    if _HAS_EFFORTS in model.lower():
        return choose_effort(thinking, unsaid, _EFFORTS)
    unsaid.change("how hard to think, an effort or a budget, is left to the model", "$.thinking")
    return None
