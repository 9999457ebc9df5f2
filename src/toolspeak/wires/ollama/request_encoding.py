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
from ..common import (
    GIVEN_ID,
    as_function,
    document_as_text,
    effort_of,
    kind_of,
    names_of,
    narrowed,
    object_schema,
    sampling_out,
)
from ..fields import HOSTED, Json, Unsaid, present
from ..names import ANY_NAME, Names
from ..wire import Outgoing
from .parts import GENERATE, NAME, PROMPTING, SAMPLING, call_out

_EFFORTS = ("low", "medium", "high")
_HAS_EFFORTS = "gpt-oss"
"""Other models can only think or not."""


def encode_request(request: Request) -> Outgoing:
    """The request in this API's words."""
    unsaid = Unsaid(NAME, request.wire)
    names = names_of(request, ANY_NAME)
    extra = dict(unsaid.carried(request.extra, "$"))
    if extra.pop(GENERATE, None):
        _leave_out_prompting(extra, unsaid)
    body: Json = {
        "model": request.model,
        "messages": list(_Writer(names, unsaid).messages(request.messages)),
        **_tools(request, names, unsaid, extra.pop(HOSTED, [])),
    }
    options = sampling_out(request, SAMPLING, unsaid)
    options |= present(num_predict=request.max_tokens, stop=list(request.stop) or None)
    options |= extra.pop("options", {})
    body |= present(
        format=_format(request.response_format),
        options=options or None,
        think=_think(request.thinking, request.model, unsaid),
    )
    for key in request.metadata:
        unsaid.drop(f"metadata.{key}", f"$.metadata.{key}")
    body["stream"] = request.stream
    return Outgoing("/api/chat", body | extra, names, (*unsaid.notes(), *names.notes))


def with_window(body: Json, tokens: int) -> Json:
    """The request with a window of so many tokens, unless it has one."""
    return body | {"options": {"num_ctx": tokens, **body.get("options", {})}}


def _leave_out_prompting(extra: Json, unsaid: Unsaid) -> None:
    for key in PROMPTING:
        if extra.pop(key, None):
            unsaid.drop(f"the {key} of a prompt", f"$.{key}")


# Messages.


class _Writer:
    """Writes the messages of a conversation."""

    def __init__(self, names: Names, unsaid: Unsaid) -> None:
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
            if message.role == "assistant" or self._unsaid.same or not self._order:
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
        extra = self._unsaid.carried(message.extra, path)
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
            self._unsaid.carried(thought.extra, path)
        calls = [self._call(part, path) for part in parts if isinstance(part, ToolCall)]
        said = [self._content(part, path) for part in parts if _is_content(part)]
        texts = [text for text, _ in said if text]
        if len(texts) > 1:
            self._unsaid.change("several texts of an assistant are one", path)
        return {
            "role": "assistant",
            "content": "\n".join(texts),
            **present(
                thinking="".join(thought.text for thought in thoughts) or None,
                images=[picture for _, pictures in said for picture in pictures] or None,
                tool_calls=calls or None,
            ),
        }

    def _content(self, part: Part, path: str) -> tuple[str, list[str]]:
        """The text and the picture that a part is: one of them, or none."""
        if not isinstance(part, Other):
            self._unsaid.carried(part.extra, path)
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
                return document_as_text(part), []
            case Document():
                self._unsaid.drop(f"a document by value ({part.media_type})", path)
            case Other():
                self._unsaid.drop(f"a part of the kind {kind_of(part)!r}", path)
            case _:
                pass
        return "", []

    def _call(self, call: ToolCall, path: str) -> Json:
        extra = self._unsaid.carried(call.extra, path)
        name = self._written[call.id] = self._names.write(call.name, call.namespace)
        self._order[call.id] = len(self._order)
        return call_out(call, name, extra if self._unsaid.same else None)

    def _result(self, result: ToolResult, path: str) -> tuple[Json, list[str]]:
        """A result, and the pictures in it that somebody else has to show."""
        if result.is_error:
            self._unsaid.drop("a result's error flag", path)
        text, pictures = self._given(result, path)
        name = self._written.get(result.call_id) or self._names.write(result.name)
        out: Json = {"role": "tool", "tool_name": name, "content": text}
        extra = dict(self._unsaid.carried(result.extra, path))
        if self._unsaid.same:
            identity = extra.pop(GIVEN_ID, result.call_id) or None
            return out | present(tool_call_id=identity, images=pictures or None) | extra, []
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


def _tools(request: Request, names: Names, unsaid: Unsaid, hosted: list[Any]) -> Json:
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
    tools = [_tool(tool, names, unsaid) for tool in narrowed(request, unsaid)] + hosted
    return {"tools": tools} if tools else {}


def _tool(tool: Tool, names: Names, unsaid: Unsaid) -> Json:
    path = f"$.tools[{tool.name!r}]"
    function = as_function(tool, unsaid, path)
    if function.strict:
        unsaid.drop("strict tools", path)
    out = {
        "name": names.write(tool.name, tool.namespace),
        "description": function.description,
        "parameters": object_schema(function.parameters),
    }
    return {"type": "function", "function": out | unsaid.carried(function.extra, path)}


def _format(form: ResponseFormat | None) -> Any:
    if form is None:
        return None
    return "json" if form.schema is None else form.schema


def _think(thinking: Thinking, model: str, unsaid: Unsaid) -> bool | str | None:
    """Whether to think. Not to is a wish that any model takes. The wish to do so is one that a
    model which cannot refuses, and one that can does not need: it thinks if nothing is said."""
    if thinking.shown is False:
        unsaid.drop("reasoning that is not shown", "$.thinking")
    if thinking.enabled is False or thinking.effort == "none":
        return False
    if unsaid.same:
        return thinking.effort or thinking.enabled
    if thinking.effort is None and thinking.budget is None:
        return None
    if _HAS_EFFORTS in model.lower():
        return effort_of(thinking, unsaid, _EFFORTS)
    unsaid.change("how hard to think, an effort or a budget, is left to the model", "$.thinking")
    return None
