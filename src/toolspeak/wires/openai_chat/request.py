"""Chat Completions requests: decoded from a client, encoded for an upstream.

{"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "function": {…}}]}
{"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from ..._util import memoize_by_identity
from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Note,
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..calls import CallHistory
from ..content import (
    REFUSAL,
    as_plain_text,
    decode_tool,
    decode_tools,
    encode_media_url,
    is_refusal,
    merge_assistant_messages,
    take_response_format,
)
from ..encoding import (
    CACHE_CONTROL,
    OPENAI_NAMES,
    EncodedRequest,
    LossLog,
    as_object_schema,
    build_name_mapper,
    choose_effort,
    convert_freeform_tool,
    omit_none,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, PRIVATE, Fields, Json, nest
from ..framing import decode_json
from ..openai import (
    OpenAIRequestEncoder,
    decode_part,
    decode_tool_choice,
    is_hosted,
    list_chosen_tools,
    take_metadata,
)

NAME = "openai_chat"
_SAMPLING = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_SAMPLING_EXTENSIONS = ("top_k", "min_p", "repetition_penalty")
"""Settings that many servers accept, and OpenAI's own does not."""
_NEWER_LIMIT = "max_completion_tokens"
REASONING_DETAILS = "reasoning_details"
_REASONING_TEXTS = ("reasoning_content", "reasoning", "thinking")
REASONING_FIELDS = frozenset({*_REASONING_TEXTS, REASONING_DETAILS})
_NUMBERS = frozenset((*_SAMPLING, *_SAMPLING_EXTENSIONS))
_SETTINGS = _NUMBERS | {
    *("metadata", "user", "max_tokens", _NEWER_LIMIT, "stop", "reasoning_effort"),
    *("response_format", "tool_choice", "function_call", "parallel_tool_calls", "stream_options"),
}
_CALL_FIELDS = frozenset({"tool_calls", "function_call"})
_PACKED_FIELDS = {"content", "tool_calls", "tool_call_id", "reasoning_content"}
"""Fields of a message that some clients store as JSON in the content of another."""
_PACKED_START = re.compile(r'\s*\{\s*"(?:content|tool_call)')
# Keys of an `extra` by which a request to the same API is restored exactly.
_LIMIT_FIELD = f"{PRIVATE}limit"
_OWN_REASONING_DETAILS = f"{PRIVATE}{REASONING_DETAILS}"
_HOSTED_CHOICE = "tool_choice"
"""A tool choice with hosted tools. Other APIs drop them with a note."""
_RESULT_NAME = f"{PRIVATE}name"
_OUTSIDE_FUNCTION = f"{PRIVATE}outer"
_INPUT_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user"}
_DEFAULT_THINKING = Thinking()


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = Fields(body)
    notes: list[Note] = []
    extra: Json = {}
    settings = _decode_settings(fields, extra) if fields.has_any(_SETTINGS) else {}
    tools, hosted = decode_tools(fields, _decode_tool, "tools", "functions")
    is_streamed = fields.take("stream", bool)
    model = fields.take_text("model") or model
    messages = _decode_messages(fields.take("messages", list) or (), notes)
    if fields.has_rest():
        extra = {**fields.rest(), **extra}
    if hosted:
        extra[HOSTED_TOOLS] = hosted
    return Request(
        model=model,
        messages=messages,
        tools=tools,
        stream=bool(is_streamed if stream is None else stream),
        wire=NAME,
        notes=tuple(notes),
        extra=extra,
        **settings,
    )


class ChatRequestEncoder(OpenAIRequestEncoder):
    wire = NAME
    max_id = 40
    is_nested = True

    def encode(self) -> EncodedRequest:
        request, extra = self.request, self.extra
        messages = request.messages if self.is_same_wire else merge_assistant_messages(request)
        body: Json = {
            "model": request.model,
            "messages": list(self._encode_messages(messages)),
            **self._encode_tools(extra.pop(HOSTED_TOOLS, [])),
            **self._encode_settings(),
        }
        options = extra.pop("stream_options", {})
        if request.stream:
            body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
        return self.finish("/chat/completions", body | extra)

    # Messages.

    def _encode_messages(self, messages: Iterable[Message]) -> Iterator[Json]:
        """Encode all messages. Images in results become a user's message after the last result of
        the turn: only users may send images, and nothing may come between results."""
        shown: list[Json] = []
        for index, message in enumerate(messages):
            rest: Sequence[Part] = message.parts
            if not shown and message.role in _INPUT_ROLES and not message.extra and len(rest) == 1:
                (part,) = rest
                if isinstance(part, Text) and not part.extra:
                    # A fast path for most messages.
                    yield {"role": message.role, "content": part.text}
                    continue
            path = f"$.messages[{index}]"
            results = [part for part in rest if isinstance(part, ToolResult)]
            if results:
                rest = [part for part in rest if not isinstance(part, ToolResult)]
            for result in results:
                yield self._encode_result(result, path)
                shown += self._encode_result_media(result, path)
            if rest or not results:
                if shown:
                    yield {"role": "user", "content": shown}
                    shown = []
                if encoded := self._encode_message(message, rest, path):
                    yield encoded
        if shown:
            yield {"role": "user", "content": shown}

    def _encode_message(self, message: Message, parts: Sequence[Part], path: str) -> Json | None:
        extra = dict(self.losses.carry(message.extra, path))
        if message.role == "assistant":
            return self._encode_assistant(parts, extra, path)
        role = "user" if message.role == "tool" else message.role
        return {"role": role, "content": self.encode_content(parts, path), **extra}

    def _encode_assistant(self, parts: Sequence[Part], extra: Json, path: str) -> Json | None:
        """Encode an assistant's message; None if nothing of it is supported."""
        calls = [part for part in parts if isinstance(part, ToolCall)]
        spoken = [part for part in parts if not isinstance(part, (ToolCall, Reasoning))]
        content = self.encode_content(
            [part for part in spoken if self._is_allowed_for_assistant(part, path)], path
        )
        out: Json = {"role": "assistant", "content": content or None}
        out |= encode_reasoning([part for part in parts if isinstance(part, Reasoning)])
        out |= omit_none(**{REASONING_DETAILS: extra.pop(_OWN_REASONING_DETAILS, None)})
        if calls:
            out["tool_calls"] = [self._encode_call(call, path) for call in calls]
        elif not content:
            if parts and not extra and len(out) == 2:
                return None
            out["content"] = ""
        return out | extra

    def _is_allowed_for_assistant(self, part: Part, path: str) -> bool:
        if self.is_same_wire or not isinstance(part, (Image, Document)):
            return True
        self.losses.drop("images and documents in assistant messages", path)
        return False

    def encode_text(self, text: Text, path: str) -> Json:
        if is_refusal(text):
            return {"type": "refusal", "refusal": text.text}
        return {"type": "text", "text": text.text, **self.losses.carry(text.extra, path)}

    def encode_image(self, image: Image, extra: Json) -> Json:
        inner = {"url": encode_media_url(image), **omit_none(detail=image.detail)}
        inner |= extra.pop("image_url", {})
        return {"type": "image_url", "image_url": inner, **extra}

    def _encode_call(self, call: ToolCall, path: str) -> Json:
        name = self.names.to_wire(call.name, call.namespace)
        extra = dict(self.losses.carry(call.extra, path))
        if not self.is_same_wire and extra.pop(CACHE_CONTROL, None):
            self.losses.drop(f"`{CACHE_CONTROL}` of a call", path)
        identity = self.encode_id(call.id)
        arguments = extra.pop(ARGUMENTS_TEXT, None) or call.arguments_json
        if call.freeform and self.is_same_wire:
            custom = {"name": name, "input": call.input}
            return {"id": identity, "type": "custom", "custom": custom, **extra}
        function = {"name": name, "arguments": arguments, **extra.pop("function", {})}
        return {"id": identity, "type": "function", "function": function, **extra}

    def _encode_result(self, result: ToolResult, path: str) -> Json:
        content: Any = result.content
        if not isinstance(content, str):
            parts = [part for part in content if self.is_same_wire or not _is_media(part)]
            content = self.encode_content(parts, path) or ""
        if result.is_error:
            self.losses.drop("the error flag on results", path)
        extra = dict(self.losses.carry(result.extra, path))
        if not self.is_same_wire and CACHE_CONTROL in extra:
            content = _mark_cached(content, extra.pop(CACHE_CONTROL))
        name = omit_none(name=extra.pop(_RESULT_NAME, None))
        call_id = self.encode_id(result.call_id)
        return {"role": "tool", "tool_call_id": call_id, **name, "content": content, **extra}

    def _encode_result_media(self, result: ToolResult, path: str) -> list[Json]:
        if self.is_same_wire or isinstance(result.content, str):
            return []
        media = [part for part in result.content if _is_media(part)]
        if media:
            self.losses.change("Images in results were sent as a user message.", path)
        return [encoded for part in media if (encoded := self.encode_part(part, path))]

    # Tools and settings.

    def _encode_tools(self, hosted: list[Json]) -> Json:
        request = self.request
        declared = request.tools or ()
        if self.is_same_wire:
            tools = _encode_own_tools(declared) + hosted
        else:
            tools = [_encode_tool(tool, self.encode_name(tool), self.losses) for tool in declared]
            tools += hosted
        if not tools:
            return {"tools": []} if request.tools is not None and self.is_same_wire else {}
        out: Json = {"tools": tools}
        if (choice := self._encode_tool_choice()) is not None:
            out["tool_choice"] = choice
        if not request.parallel_tool_calls:
            out["parallel_tool_calls"] = False
        return out

    def _encode_tool_choice(self) -> Any:
        choice, original = self.request.tool_choice, self.extra.pop(_HOSTED_CHOICE, None)
        if original is not None and decode_tool_choice(original, "$.tool_choice") == choice:
            return original
        if choice.validated:
            self.losses.drop("the tool choice `validated`", "$.tool_choice")
        return self.encode_tool_choice()

    def _encode_settings(self) -> Json:
        request, out = self.request, self.encode_metadata()
        limit_field = self.extra.pop(_LIMIT_FIELD, "max_tokens")
        if request.response_format:
            out["response_format"] = self.encode_response_format()
        if request.thinking != _DEFAULT_THINKING:
            out |= omit_none(reasoning_effort=choose_effort(request.thinking, self.losses) or None)
        if request.stop:
            out["stop"] = list(request.stop)
        if request.max_tokens is not None:
            out[limit_field] = request.max_tokens
        if request.sampling:
            out |= self.encode_sampling(_SAMPLING, _SAMPLING_EXTENSIONS)
        return out


# Messages.


def _decode_messages(items: Iterable[Any], notes: list[Note]) -> tuple[Message, ...]:
    history = CallHistory(notes)
    messages: list[Message] = []
    for item in items:
        if type(item) is dict and len(item) == 2:
            # A fast path for most messages: a role and a text.
            role, text = item.get("role"), item.get("content")
            input_role = _INPUT_ROLES.get(role) if type(role) is str else None
            if input_role and type(text) is str and text:
                messages.append(Message(input_role, (Text(text),)))
                continue
        messages.append(_decode_message(Fields(item, f"$.messages[{len(messages)}]"), history))
    return tuple(messages)


def _decode_message(fields: Fields, history: CallHistory) -> Message:
    role = fields.require("role", str)
    match role:
        case "system" | "developer" | "user":
            parts = tuple(fields.take_content("content", decode_part))
            return Message(role, parts, fields.rest())
        case "assistant":
            _unpack_content(fields, "tool_calls", history.notes)
            return _decode_assistant(fields, history)
        case "tool" | "function":
            _unpack_content(fields, "tool_call_id", history.notes)
            return Message("tool", (_decode_result(fields, history),))
        case _:
            expected = "`system`, `developer`, `user`, `assistant` or `tool`"
            raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))


def _decode_assistant(fields: Fields, history: CallHistory) -> Message:
    details = fields.peek(REASONING_DETAILS)
    parts: list[Part] = []
    if fields.has_any(REASONING_FIELDS):
        parts += decode_reasoning(fields)
    parts += fields.take_content("content", decode_part)
    if refusal := fields.take_text("refusal"):
        parts.append(Text(refusal, REFUSAL))
    if fields.has_any(_CALL_FIELDS):
        parts += _decode_calls(fields, history)
    extra = fields.rest() | ({_OWN_REASONING_DETAILS: details} if details else {})
    return Message("assistant", tuple(parts), extra)


def _unpack_content(fields: Fields, key: str, notes: list[Note]) -> None:
    """Read calls or a result that a client stored as JSON in the content, unless the message has
    them itself."""
    content = fields.peek("content")
    if fields.has(key) or not isinstance(content, str) or not content.lstrip().startswith("{"):
        return
    try:
        packed = decode_json(content)
    except WireError:
        return
    if isinstance(packed, dict) and packed.keys() <= _PACKED_FIELDS:
        value = packed.get(key)
        if _are_calls(value) if key == "tool_calls" else isinstance(value, str) and value:
            message = f"The content is a whole message as JSON; its `{key}` was read."
            notes.append(Note("converted", message, fields.path))
            fields.update(packed)


def unpack_messages(
    messages: Iterable[Message], notes: list[Note], path: str = "$.messages"
) -> tuple[Message, ...]:
    """Read the calls and results that a client of another API stored as JSON in the text of
    messages. A user's text is a result only if it answers such a call."""
    history = CallHistory(notes)
    call_ids: set[str] = set()
    unpacked: list[Message] = []
    for message in messages:
        found = _unpack_message(message, path, history, call_ids) or message
        if found is not message:
            call_ids.update(part.id for part in found.parts if isinstance(part, ToolCall))
        unpacked.append(found)
    return tuple(unpacked)


def _unpack_message(
    message: Message, path: str, history: CallHistory, call_ids: set[str]
) -> Message | None:
    match message.role, message.parts:
        case "assistant", (Text(text=text),):
            role, key = "assistant", "tool_calls"
        case "user" | "tool", (Text(text=text) | ToolResult(content=str(text)),):
            role, key = "tool", "tool_call_id"
        case _:
            return None
    if not _PACKED_START.match(text):
        return None
    fields = Fields({"role": role, "content": text}, path)
    notes: list[Note] = []
    _unpack_content(fields, key, notes)
    if not notes or (message.role == "user" and fields.peek(key) not in call_ids):
        return None
    try:
        unpacked = _decode_message(fields, history)
    except WireError:
        return None  # What it contains is not a message.
    history.notes += notes
    return structs.replace(unpacked, extra=message.extra)


def _are_calls(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict) and (isinstance(item.get("function"), dict) or _is_flat(item))
            for item in value
        )
    )


def _is_flat(call: Json) -> bool:
    """Return True if a call has its name beside its id, as some clients write it."""
    return isinstance(call.get("name"), str) and "function" not in call


def _decode_calls(fields: Fields, history: CallHistory) -> Iterator[ToolCall]:
    for item, path in fields.take_items("tool_calls"):
        yield _decode_call(Fields(item, path), history)
    if legacy := fields.take_object("function_call"):
        name, arguments = legacy.require("name", str), legacy.take_any("arguments")
        yield history.decode_call("", name, arguments, legacy.path_of("arguments"))


def _decode_call(fields: Fields, history: CallHistory) -> ToolCall:
    identity = fields.take_text("id") or history.new_id()
    kind = fields.take_text("type") or "function"
    if custom := fields.take_object("custom"):
        name, text = custom.require("name", str), custom.take_text("input")
        path, extra = custom.path_of("input"), fields.rest()
        return history.decode_call(identity, name, text, path, freeform=True, extra=extra)
    function = fields if _is_flat(fields.rest()) else fields.take_object("function")
    if function is None:
        raise WireError(f"Expected a call with a `function`, got a `{kind}`", fields.path)
    name, arguments = function.require("name", str), function.take_any("arguments")
    path = function.path_of("arguments")
    inner = {} if function is fields else function.rest()
    extra = fields.rest() | nest("function", inner)
    return history.decode_call(identity, name, arguments, path, extra=extra)


def _decode_result(fields: Fields, history: CallHistory) -> ToolResult:
    name = fields.take_text("name")
    call_id, call_name = history.find_answered_call(fields.take_text("tool_call_id"), name)
    content = tuple(fields.take_content("content", decode_part))
    text = as_plain_text(content)
    return ToolResult(
        call_id=call_id,
        name=call_name,
        content=content if text is None else text,
        extra=fields.rest() | ({_RESULT_NAME: name} if name else {}),
    )


def _mark_cached(content: Any, cache_control: Any) -> Any:
    """Return the content of a result with its last text marked: only texts can be cached here."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [index for index, part in enumerate(parts) if part.get("type") == "text"]
    if not texts or not parts[texts[-1]]["text"]:
        return content
    parts[texts[-1]] = {CACHE_CONTROL: cache_control, **parts[texts[-1]]}
    return parts


def _is_media(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Document) and part.data is not None)


# Reasoning, in requests and replies.


def decode_reasoning(fields: Fields) -> Iterator[Reasoning]:
    """Decode an assistant's reasoning, with the signatures that some upstreams put beside it."""
    text = fields.take_text(*_REASONING_TEXTS)
    details = [item for item, _ in fields.take_items(REASONING_DETAILS) if isinstance(item, dict)]
    is_signed = any(item.get("signature") or item.get("data") for item in details)
    has_detailed_text = any(item.get("text") for item in details)
    if text and not (is_signed and has_detailed_text):
        yield Reasoning(text)
    for item in details if is_signed else ():
        detail = str(item.get("text") or "")
        signature = item.get("signature") or item.get("data")
        if detail or signature:
            yield Reasoning(detail, str(signature) if signature else None)


def encode_reasoning(reasoning: list[Reasoning]) -> Json:
    """Encode reasoning, with signatures in the form that OpenRouter uses."""
    if not reasoning:
        return {}
    out: Json = {"reasoning_content": "".join(part.text for part in reasoning)}
    if any(part.signature for part in reasoning):
        out[REASONING_DETAILS] = [_encode_detail(part) for part in reasoning]
    return out


def _encode_detail(part: Reasoning) -> Json:
    if not part.text:
        return {"type": "reasoning.encrypted", "data": part.signature}
    return {"type": "reasoning.text", "text": part.text} | omit_none(signature=part.signature)


# Tools and settings.


def _decode_tool(item: Any, path: str) -> Iterator[Tool | Json]:
    outer = Fields(item, path)
    kind = outer.take_text("type") or "function"
    if kind not in ("function", "custom"):
        yield item
        return
    inner = outer.take_object(kind)
    cached = outer.take_any(CACHE_CONTROL) if inner else None
    extra = nest(_OUTSIDE_FUNCTION, outer.rest()) if inner else {}
    extra |= {} if cached is None else {CACHE_CONTROL: cached}
    yield decode_tool(inner or outer, extra=extra, freeform=kind == "custom")


def _decode_tool_choice(fields: Fields, extra: Json) -> ToolChoice:
    """Decode the tool choice; one with hosted tools also goes into `extra`."""
    given = fields.take_any("tool_choice", "function_call")
    choice = decode_tool_choice(given, fields.path_of("tool_choice"))
    if any(map(is_hosted, list_chosen_tools(given))):
        extra[_HOSTED_CHOICE] = given
    return choice


def _decode_settings(fields: Fields, extra: Json) -> Json:
    """Return the settings as arguments of `Request`; what only this API supports goes into
    `extra`."""
    newer, older = fields.take(_NEWER_LIMIT, int), fields.take("max_tokens", int)
    if newer is not None:
        extra[_LIMIT_FIELD] = _NEWER_LIMIT
    options = fields.take("stream_options", dict)
    if options is not None:
        extra["stream_options"] = options
    return {
        "sampling": fields.take_numbers(_NUMBERS),
        "metadata": take_metadata(fields),
        "parallel_tool_calls": fields.take("parallel_tool_calls", bool) is not False,
        "max_tokens": older if newer is None else newer,
        "tool_choice": _decode_tool_choice(fields, extra),
        "stop": fields.take_texts("stop"),
        "thinking": Thinking(effort=fields.take("reasoning_effort", str)),
        "response_format": take_response_format(fields, "response_format"),
    }


@memoize_by_identity
def _encode_own_tools(tools: tuple[Tool, ...]) -> list[Json]:
    """Encode tools that came through this very API; nothing of them is lost."""
    names = build_name_mapper(OPENAI_NAMES)(tools)
    losses = LossLog(NAME, NAME)
    return [_encode_tool(tool, names.to_wire(tool.name, tool.namespace), losses) for tool in tools]


def _encode_tool(tool: Tool, name: str, losses: LossLog) -> Json:
    path = f"$.tools[{tool.name!r}]"
    kind = "custom" if tool.freeform and losses.is_same_wire else "function"
    sent = tool if kind == "custom" else convert_freeform_tool(tool, losses, path)
    extra = dict(losses.carry(sent.extra, path))
    outer = extra.pop(_OUTSIDE_FUNCTION, {})
    if CACHE_CONTROL in extra:
        outer = {**outer, CACHE_CONTROL: extra.pop(CACHE_CONTROL)}
    inner: Json = {"name": name}
    if sent.description:
        inner["description"] = sent.description
    if kind == "function":
        schema = sent.parameters if losses.is_same_wire else as_object_schema(sent.parameters)
        inner |= omit_none(parameters=schema or None, strict=sent.strict)
    return {"type": kind, kind: inner | extra, **outer}
