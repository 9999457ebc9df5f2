"""Encodes a request to an upstream's /api/chat."""

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
    Tool,
    ToolCall,
    ToolResult,
)
from ..calls import ORIGINAL_ID
from ..content import part_type, render_document
from ..encoding import (
    ANY_NAME,
    EncodedRequest,
    RequestEncoder,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    omit_none,
)
from ..fields import HOSTED_TOOLS, Json
from .parts import IS_GENERATE, NAME, encode_call
from .request_decoding import SAMPLING

_GENERATE_FIELDS = ("suffix", "raw", "template", "context")
"""Fields that only /api/generate has: how a prompt becomes the model's input."""
_EFFORTS = ("low", "medium", "high")
_MODELS_WITH_EFFORTS = "gpt-oss"
"""For other models, reasoning is on or off."""


def encode_request(request: Request) -> EncodedRequest:
    return OllamaRequestEncoder(request).encode()


def set_context_window(body: Json, tokens: int) -> Json:
    """Return the request with a context window of so many tokens, unless it sets one."""
    return body | {"options": {"num_ctx": tokens, **body.get("options", {})}}


class OllamaRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = ANY_NAME

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._call_names: dict[str, str] = {}
        """The names of the calls by their ids, in order."""

    def encode(self) -> EncodedRequest:
        request, extra = self.request, self.extra
        if extra.pop(IS_GENERATE, None):
            for key in _GENERATE_FIELDS:
                if extra.pop(key, None):
                    self.losses.drop(f"`{key}` in /api/chat", f"$.{key}")
        body: Json = {
            "model": request.model,
            "messages": list(self._encode_messages(request.messages)),
            **self._encode_tools(extra.pop(HOSTED_TOOLS, [])),
        }
        options = self.encode_sampling(SAMPLING)
        options |= omit_none(num_predict=request.max_tokens, stop=list(request.stop) or None)
        options |= extra.pop("options", {})
        body |= omit_none(
            format=_encode_response_format(request.response_format),
            options=options or None,
            think=self._encode_thinking(),
        )
        self.drop_metadata()
        body["stream"] = request.stream
        return self.finish("/api/chat", body | extra)

    # Messages.

    def _encode_messages(self, messages: tuple[Message, ...]) -> Iterator[Json]:
        """Encode messages. All that follows an assistant's calls is one turn, unless the request
        came by this API."""
        turn: list[tuple[Message, str]] = []
        for index, message in enumerate(messages):
            if message.role == "assistant" or self.is_same_wire or not self._call_names:
                yield from self._encode_turn(turn)
                turn = []
            turn.append((message, f"$.messages[{index}]"))
            if message.role == "assistant":
                yield from self._encode_turn(turn)
                turn = []
        yield from self._encode_turn(turn)

    def _encode_turn(self, turn: list[tuple[Message, str]]) -> Iterator[Json]:
        """Encode a turn, its results first and in the order of their calls: for most models
        nothing else tells which result of the same tool belongs to which call."""
        results: list[tuple[ToolResult, str]] = []
        messages: list[tuple[Message, Sequence[Part], str]] = []
        for message, path in turn:
            found = [part for part in message.parts if isinstance(part, ToolResult)]
            if found and messages:
                self.losses.change("Results are moved before the messages between them.", path)
            results += [(result, path) for result in found]
            parts = [part for part in message.parts if not isinstance(part, ToolResult)]
            if parts or not found:
                messages.append((message, parts, path))
        yield from self._encode_results(results)
        for message, parts, path in messages:
            yield from self._encode_message(message, parts, path)

    def _encode_results(self, results: list[tuple[ToolResult, str]]) -> Iterator[Json]:
        images: list[str] = []
        if len(results) > 1:
            order = {identity: index for index, identity in enumerate(self._call_names)}
            results.sort(key=lambda result: order.get(result[0].call_id, len(order)))
        for result, path in results:
            encoded, shown = self._encode_result(result, path)
            yield encoded
            images += shown
        if images:
            yield {"role": "user", "content": "", "images": images}

    def _encode_message(self, message: Message, parts: Sequence[Part], path: str) -> Iterator[Json]:
        extra = self.losses.carry(message.extra, path)
        if message.role == "assistant":
            yield self._encode_assistant(parts, path) | extra
            return
        role = "user" if message.role == "tool" else message.role
        if role == "developer":
            self.losses.change("A developer message is sent as a system message.", path)
            role = "system"
        *others, last = self._encode_texts(role, parts, path)
        yield from others
        yield last | extra

    def _encode_texts(self, role: str, parts: Sequence[Part], path: str) -> Iterator[Json]:
        """Yield a message for each text, which Ollama joins; images go with the text before."""
        out: Json = {"role": role, "content": ""}
        for part in parts:
            text, images = self._encode_part(part, path)
            if text and len(out) + len(out["content"]) > 2:
                yield out
                out = {"role": role, "content": ""}
            out["content"] += text
            if images:
                out["images"] = [*out.get("images", ()), *images]
        yield out

    def _encode_assistant(self, parts: Sequence[Part], path: str) -> Json:
        reasoning = [part for part in parts if isinstance(part, Reasoning)]
        if any(part.signature for part in reasoning):
            self.losses.drop("signatures of reasoning", path)
        for part in reasoning:
            self.losses.carry(part.extra, path)
        calls = [self._encode_call(part, path) for part in parts if isinstance(part, ToolCall)]
        content = [part for part in parts if not isinstance(part, (Reasoning, ToolCall))]
        encoded = [self._encode_part(part, path) for part in content]
        texts = [text for text, _ in encoded if text]
        if len(texts) > 1:
            self.losses.change("Several texts of an assistant message are joined.", path)
        return {
            "role": "assistant",
            "content": "\n".join(texts),
            **omit_none(
                thinking="".join(part.text for part in reasoning) or None,
                images=[image for _, images in encoded for image in images] or None,
                tool_calls=calls or None,
            ),
        }

    def _encode_part(self, part: Part, path: str) -> tuple[str, list[str]]:
        """Return a part as text or as an image: one of them is empty, or both."""
        if not isinstance(part, Other):
            self.losses.carry(part.extra, path)
        match part:
            case Text():
                return part.text, []
            case Image(data=str(data)):
                if part.detail not in (None, "auto"):
                    self.losses.drop("`detail` of an image", path)
                return "", [data]
            case Image():
                self.losses.drop("images by URL", path)
            case Document(data=None):
                self.losses.change("A document is sent as text.", path)
                return render_document(part), []
            case Document():
                self.losses.drop(f"documents of type `{part.media_type}`", path)
            case Other():
                self.losses.drop(f"the part type `{part_type(part)}`", path)
            case _:
                pass
        return "", []

    def _encode_call(self, call: ToolCall, path: str) -> Json:
        extra = self.losses.carry(call.extra, path)
        name = self.names.to_wire(call.name, call.namespace)
        self._call_names[call.id] = name
        return encode_call(call, name, extra if self.is_same_wire else None)

    def _encode_result(self, result: ToolResult, path: str) -> tuple[Json, list[str]]:
        """Return a result, and the images in it that a user message must show."""
        if result.is_error:
            self.losses.drop("the error flag of results", path)
        text, images = self._encode_result_content(result, path)
        name = self._call_names.get(result.call_id) or self.names.to_wire(result.name)
        out: Json = {"role": "tool", "tool_name": name, "content": text}
        extra = dict(self.losses.carry(result.extra, path))
        if self.is_same_wire:
            identity = extra.pop(ORIGINAL_ID, result.call_id) or None
            return out | omit_none(tool_call_id=identity, images=images or None) | extra, []
        if images:
            self.losses.change("Images in results are sent as a user message.", path)
        return out, images

    def _encode_result_content(self, result: ToolResult, path: str) -> tuple[str, list[str]]:
        if isinstance(result.content, str):
            return result.content, []
        texts: list[str] = []
        images: list[str] = []
        for part in result.content:
            if isinstance(part, Document) and part.text:
                texts.append(part.text)
                continue
            text, shown = self._encode_part(part, path)
            texts += [text] if text else []
            images += shown
        return "\n".join(texts), images

    # Tools and settings.

    def _encode_tools(self, hosted: list[Any]) -> Json:
        request, choice = self.request, self.request.tool_choice
        if choice.mode == "none" and request.tools:
            message = "Ollama cannot forbid calls; the tools are not sent."
            self.losses.change(message, "$.tool_choice")
            return {}
        if choice.mode == "required":
            self.losses.drop("required calls", "$.tool_choice")
        elif choice.names or choice.validated:
            self.losses.drop("a choice among tools", "$.tool_choice")
        if not request.parallel_tool_calls and request.tools:
            self.losses.drop("`parallel_tool_calls: false`", "$.parallel_tool_calls")
        tools = [self._encode_tool(tool) for tool in self.select_allowed_tools()] + hosted
        return {"tools": tools} if tools else {}

    def _encode_tool(self, tool: Tool) -> Json:
        path = f"$.tools[{tool.name!r}]"
        sent = convert_freeform_tool(tool, self.losses, path)
        if sent.strict:
            self.losses.drop("strict tools", path)
        function = {
            "name": self.encode_name(tool),
            "description": sent.description,
            "parameters": as_object_schema(sent.parameters),
        }
        function |= self.losses.carry(sent.extra, path)
        return {"type": "function", "function": function}

    def _encode_thinking(self) -> bool | str | None:
        """Return the value of `think`. Every model accepts false. A model that cannot reason
        refuses true, and one that can needs none: it reasons by default."""
        thinking = self.request.thinking
        if thinking.shown is False:
            self.losses.drop("hiding reasoning", "$.thinking")
        if thinking.enabled is False or thinking.effort == "none":
            return False
        if self.is_same_wire:
            return thinking.effort or thinking.enabled
        if thinking.effort is None and thinking.budget is None:
            return None
        if _MODELS_WITH_EFFORTS in self.request.model.lower():
            return choose_effort(thinking, self.losses, _EFFORTS)
        message = "The reasoning effort or budget is left to the model."
        self.losses.change(message, "$.thinking")
        return None


def _encode_response_format(form: ResponseFormat | None) -> Any:
    if form is None:
        return None
    return "json" if form.schema is None else form.schema
