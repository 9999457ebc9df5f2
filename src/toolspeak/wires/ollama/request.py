"""Decodes a client's request to /api/chat or /api/generate; encodes one to an upstream's /api/chat.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}],
 "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {…}}}],
 "options": {"num_predict": 100}, "think": true}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Note,
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
from ..calls import ORIGINAL_ID, CallHistory
from ..content import (
    as_result_content,
    decode_image_url,
    decode_tool,
    decode_tools,
    part_type,
    render_document,
)
from ..encoding import (
    ANY_NAME,
    EncodedRequest,
    LocatedMessage,
    RequestEncoder,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    omit_none,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, PRIVATE, Fields, Json, json_type, nest
from ..openai_chat.request import unpack_messages

NAME = "ollama"
IS_GENERATE = f"{PRIVATE}generate"
"""In the `extra` of a request: it came to /api/generate, whose replies have another shape."""
_GENERATE_FIELDS = ("suffix", "raw", "template", "context")
"""Fields that only /api/generate has: how a prompt becomes the model's input."""
_CALL_INDEX, _CALL_TYPE = f"{PRIVATE}index", f"{PRIVATE}type"
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
_EFFORTS = ("low", "medium", "high")
_MODELS_WITH_EFFORTS = "gpt-oss"
"""For other models, reasoning is on or off."""
_MEDIA_TYPES = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}
"""By the first characters of the base64 data."""


# Decoding.


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """Decode a request. Unlike in other APIs, the reply is streamed by default."""
    fields = Fields(body)
    notes: list[Note] = []
    streamed = fields.take("stream", bool)
    is_generate = fields.has("prompt") and not fields.has("messages")
    decoded = _decode_prompt(fields) if is_generate else _decode_messages(fields, notes)
    messages = unpack_messages(decoded, notes)
    if fields.peek("tools") == []:
        # The SDK sends an empty list where its user passes no tools.
        fields.discard("tools")
    tools, hosted = decode_tools(fields, _decode_tool, "tools")
    options = fields.take_object("options") or Fields({})
    extra: Json = {IS_GENERATE: True} if is_generate else {}
    return Request(
        model=fields.take_text("model") or model,
        messages=messages,
        tools=tools,
        response_format=_decode_response_format(fields),
        thinking=_decode_thinking(fields),
        stream=stream is not False if streamed is None else streamed,
        max_tokens=_decode_max_tokens(options),
        stop=tuple(filter(None, options.take_texts("stop"))),
        sampling=options.take_numbers(_SAMPLING),
        wire=NAME,
        notes=tuple(notes),
        extra=fields.rest() | extra | nest(HOSTED_TOOLS, hosted) | nest("options", options.rest()),
    )


def _decode_prompt(fields: Fields) -> Iterator[Message]:
    """Decode the prompt of /api/generate as a conversation."""
    if system := fields.take_text("system"):
        yield Message("system", (Text(system),))
    prompt = fields.take_text("prompt")
    parts = (*([Text(prompt)] if prompt else []), *_decode_images(fields))
    if parts:
        yield Message("user", parts)


def _decode_messages(fields: Fields, notes: list[Note]) -> Iterator[Message]:
    history = CallHistory(notes)
    for item, path in fields.take_items("messages"):
        yield _decode_message(Fields(item, path), history)


def _decode_message(fields: Fields, history: CallHistory) -> Message:
    role = fields.require("role", str).lower()
    text = fields.take_text("content")
    parts: list[Part] = [Text(text)] if text else []
    match role:
        case "system" | "developer" | "user":
            parts += _decode_images(fields)
        case "assistant":
            if reasoning := fields.take_text("thinking"):
                parts.insert(0, Reasoning(reasoning))
            parts += [*_decode_images(fields), *_decode_calls(fields, history)]
        case "tool":
            return Message("tool", (_decode_result(fields, parts, history),))
        case _:
            expected = "`system`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))
    return Message(role, tuple(parts), fields.rest())


def _decode_images(fields: Fields) -> Iterator[Image]:
    for item, path in fields.take_items("images"):
        if not isinstance(item, str):
            raise WireError(f"Expected `string`, got `{json_type(item)}`", path)
        yield decode_image(item)


def _decode_calls(fields: Fields, history: CallHistory) -> Iterator[ToolCall]:
    for item, path in fields.take_items("tool_calls"):
        identity, name, arguments, extra = decode_call(item, path)
        at = f"{path}.function.arguments"
        yield history.decode_call(identity, name, arguments, at, extra=extra)


def _decode_result(fields: Fields, parts: list[Part], history: CallHistory) -> ToolResult:
    identity, tool_name = fields.take_text("tool_call_id"), fields.take_text("tool_name", "name")
    call_id, name, extra = history.match_result(identity, tool_name, fields.path)
    content = as_result_content([*parts, *_decode_images(fields)])
    return ToolResult(call_id=call_id, name=name, content=content, extra=fields.rest() | extra)


def _decode_tool(item: Any, path: str) -> Iterator[Tool | Json]:
    outer = Fields(item, path)
    if outer.take_text("type") not in ("", "function"):
        yield item
    elif function := outer.take_object("function"):
        yield decode_tool(function, extra=outer.rest())
    else:
        yield decode_tool(outer)


def _decode_max_tokens(options: Fields) -> int | None:
    # Values below one are special: unlimited, or until the context is full. They stay in `options`.
    value = options.peek("num_predict")
    is_special = isinstance(value, (int, float)) and value < 1
    return None if is_special else options.take("num_predict", int)


def _decode_response_format(fields: Fields) -> ResponseFormat | None:
    value = fields.take_any("format")
    if value is None or value == "":
        return None
    if value == "json":
        return ResponseFormat()
    if isinstance(value, dict):
        return ResponseFormat(value)
    raise WireError(f"Expected `json` or a schema, got `{value}`", fields.path_of("format"))


def _decode_thinking(fields: Fields) -> Thinking:
    value = fields.take_any("think")
    if value is None or isinstance(value, bool):
        return Thinking(enabled=value)
    if isinstance(value, str):
        return Thinking(effort=value)
    kind = json_type(value)
    raise WireError(f"Expected `boolean` or `string`, got `{kind}`", fields.path_of("think"))


# Encoding.


def set_context_window(body: Json, tokens: int) -> Json:
    """Return the request with a context window of this size, unless it sets one."""
    return body | {"options": {"num_ctx": tokens, **body.get("options", {})}}


class OllamaRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = ANY_NAME

    def __init__(self, request: Request, *, has_cache_control: bool = False) -> None:
        super().__init__(request, has_cache_control=has_cache_control)
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
        options = self.encode_sampling(_SAMPLING)
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
        came through this API."""
        located = [(message, f"$.messages[{index}]") for index, message in enumerate(messages)]
        for is_own, run in groupby(located, lambda pair: pair[0].role == "assistant"):
            if is_own or self.is_same_wire or not self._call_names:
                for pair in run:
                    yield from self._encode_turn([pair])
            else:
                yield from self._encode_turn(list(run))

    def _encode_turn(self, turn: list[LocatedMessage]) -> Iterator[Json]:
        """Encode a turn, its results first and in the order of their calls: for most models
        nothing else tells which result of the same tool belongs to which call."""
        results: list[tuple[ToolResult, str]] = []
        messages: list[tuple[Message, Sequence[Part], str]] = []
        for message, path in turn:
            found = [part for part in message.parts if isinstance(part, ToolResult)]
            if found and messages:
                self.losses.change("Messages between results were moved after them.", path)
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
            self.losses.change("A developer message was sent as a system message.", path)
            role = "system"
        *others, last = self._encode_texts(role, parts, path)
        yield from others
        yield last | extra

    def _encode_texts(self, role: str, parts: Sequence[Part], path: str) -> Iterator[Json]:
        """Yield a message for each text, which Ollama joins; images go with the text before."""
        out: Json = {"role": role, "content": ""}
        for part in parts:
            text, images = self._encode_part(part, path)
            if text and (out["content"] or "images" in out):
                yield out
                out = {"role": role, "content": ""}
            out["content"] += text
            if images:
                out["images"] = [*out.get("images", ()), *images]
        yield out

    def _encode_assistant(self, parts: Sequence[Part], path: str) -> Json:
        reasoning = [part for part in parts if isinstance(part, Reasoning)]
        if any(part.signature for part in reasoning):
            self.losses.drop("reasoning signatures", path)
        for part in reasoning:
            self.losses.carry(part.extra, path)
        calls = [self._encode_call(part, path) for part in parts if isinstance(part, ToolCall)]
        content = [part for part in parts if not isinstance(part, (Reasoning, ToolCall))]
        texts, images = self._encode_parts(content, path)
        if len(texts) > 1:
            self.losses.change("Several texts of an assistant message were joined.", path)
        return {
            "role": "assistant",
            "content": "\n".join(texts),
            **omit_none(
                thinking="".join(part.text for part in reasoning) or None,
                images=images or None,
                tool_calls=calls or None,
            ),
        }

    def _encode_parts(self, parts: Iterable[Part], path: str) -> tuple[list[str], list[str]]:
        """Return the texts and the images of parts."""
        encoded = [self._encode_part(part, path) for part in parts]
        texts = [text for text, _ in encoded if text]
        return texts, [image for _, images in encoded for image in images]

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
                self.losses.change("A document was sent as text.", path)
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
            self.losses.drop("the error flag on results", path)
        text, images = self._encode_result_content(result, path)
        name = self._call_names.get(result.call_id) or self.names.to_wire(result.name)
        out: Json = {"role": "tool", "tool_name": name, "content": text}
        extra = dict(self.losses.carry(result.extra, path))
        if self.is_same_wire:
            identity = extra.pop(ORIGINAL_ID, result.call_id) or None
            return out | omit_none(tool_call_id=identity, images=images or None) | extra, []
        if images:
            self.losses.change("Images in results were sent as a user message.", path)
        return out, images

    def _encode_result_content(self, result: ToolResult, path: str) -> tuple[str, list[str]]:
        if isinstance(result.content, str):
            return result.content, []
        texts, images = self._encode_parts(
            (
                Text(part.text) if isinstance(part, Document) and part.text else part
                for part in result.content
            ),
            path,
        )
        return "\n".join(texts), images

    # Tools and settings.

    def _encode_tools(self, hosted: list[Any]) -> Json:
        request, choice = self.request, self.request.tool_choice
        if choice.mode == "none" and request.tools:
            message = "Ollama cannot forbid calls; the tools were not sent."
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
        message = "The reasoning effort or budget was left to the model."
        self.losses.change(message, "$.thinking")
        return None


def _encode_response_format(form: ResponseFormat | None) -> Any:
    if form is None:
        return None
    return "json" if form.schema is None else form.schema


# Images and calls, in requests and replies.


def decode_image(data: str) -> Image:
    if data.startswith("data:"):
        return decode_image_url(data)
    kinds = (kind for prefix, kind in _MEDIA_TYPES.items() if data.startswith(prefix))
    return Image(data=data, media_type=next(kinds, "image/png"))


def decode_call(item: Any, path: str) -> tuple[str, str, Any, Json]:
    """Return a call's id or "", its name, its arguments and its `extra`."""
    call = Fields(item, path)
    identity, kind = call.take_text("id"), call.take_any("type")
    function = call.take_object("function")
    if function is None:
        raise WireError("Expected a call with a `function`", path)
    index = function.take_any("index")
    name, arguments = function.require("name", str), function.take_any("arguments")
    private = {ORIGINAL_ID: None if identity else "", _CALL_INDEX: index, _CALL_TYPE: kind}
    extra = call.rest() | omit_none(**private, function=function.rest() or None)
    return identity, name, arguments, extra


def encode_call(call: ToolCall, name: str, extra: Json | None) -> Json:
    """Encode a call; with its `extra` if it came through this very API."""
    function = {"name": name, "arguments": call.arguments}
    if extra is None:
        return {"function": function}
    rest = {key: value for key, value in extra.items() if key != ARGUMENTS_TEXT}
    identity = rest.pop(ORIGINAL_ID, call.id) or None
    head = omit_none(id=identity, type=rest.pop(_CALL_TYPE, None))
    index = omit_none(index=rest.pop(_CALL_INDEX, None))
    return {**head, "function": {**index, **function, **rest.pop("function", {})}, **rest}
