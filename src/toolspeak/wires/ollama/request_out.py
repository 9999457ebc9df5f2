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
    History,
    as_function,
    document_as_text,
    effort_of,
    names_of,
    narrowed,
    object_schema,
    sampling_out,
)
from ..fields import HOSTED, WRITTEN, Json, Unsaid, present
from ..names import ANY_NAME, Names
from ..wire import Outgoing
from .words import GENERATE, NAME, PROMPTING, SAMPLING

_EFFORTS = ("low", "medium", "high")
_HAS_EFFORTS = "gpt-oss"
"""Other models are only told whether to think."""


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
    return Outgoing("/api/chat", body | extra, names, (*unsaid.notes(), *names.notes()))


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
        self._history = History()
        self._given: set[str] = set()
        """The ids that came from the client, for it need not give any."""
        self._written: dict[str, str] = {}
        """The names of the calls, by their ids."""

    def messages(self, messages: tuple[Message, ...]) -> Iterator[Json]:
        """The messages; the pictures in results come after the last of these."""
        pictures: list[str] = []
        for index, message in enumerate(messages):
            path = f"$.messages[{index}]"
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            for result in results:
                yield self._result(result, path)
                pictures += self._pictures(result, path)
            parts = [part for part in message.parts if not isinstance(part, ToolResult)]
            if parts or not results:
                yield from _shown(pictures)
                pictures = []
                yield from self._message(message, parts, path)
        yield from _shown(pictures)

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
                self._unsaid.drop("a document by value", path)
            case _:
                self._unsaid.drop(f"a part of the kind {type(part).__name__!r}", path)
        return "", []

    def _call(self, call: ToolCall, path: str) -> Json:
        extra = dict(self._unsaid.carried(call.extra, path))
        extra.pop(WRITTEN, None)
        name = self._written[call.id] = self._names.write(call.name, call.namespace)
        out = {"function": {"name": name, "arguments": call.arguments}}
        if self._unsaid.same and call.id != self._history.new_id():
            self._given.add(call.id)
            out = {"id": call.id, **out}
        self._history.made(call)
        out["function"] |= extra.pop("function", {})
        return out | extra

    def _result(self, result: ToolResult, path: str) -> Json:
        if result.is_error:
            self._unsaid.drop("a result's error flag", path)
        name = self._written.get(result.call_id) or self._names.write(result.name)
        out = {"role": "tool", "tool_name": name, "content": result.text}
        if result.call_id in self._given:
            out["tool_call_id"] = result.call_id
        return out | self._unsaid.carried(result.extra, path)

    def _pictures(self, result: ToolResult, path: str) -> list[str]:
        if isinstance(result.content, str):
            return []
        beside = [part for part in result.content if not _is_text(part)]
        pictures = [one for part in beside for one in self._content(part, path)[1]]
        if pictures:
            self._unsaid.change("pictures in a result are shown by the user", path)
        return pictures


def _is_content(part: Part) -> bool:
    return not isinstance(part, (Reasoning, ToolCall))


def _is_text(part: Part) -> bool:
    """Whether a part of a result is in its text already."""
    return isinstance(part, Text) or (isinstance(part, Document) and bool(part.text))


def _shown(pictures: list[str]) -> Iterator[Json]:
    if pictures:
        yield {"role": "user", "content": "", "images": pictures}


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
    return {"tools": tools} if tools or (request.tools is not None and unsaid.same) else {}


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
    if thinking.shown is False:
        unsaid.drop("reasoning that is not shown", "$.thinking")
    if thinking.effort is None and thinking.budget is None:
        return thinking.enabled
    if thinking.enabled is False or thinking.effort == "none":
        return False
    if unsaid.same:
        return thinking.effort
    if _HAS_EFFORTS in model:
        return effort_of(thinking, unsaid, _EFFORTS)
    unsaid.change("an effort or a budget is the wish to think", "$.thinking")
    return True
