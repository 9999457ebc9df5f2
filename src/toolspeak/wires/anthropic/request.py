"""Decodes a client's Messages request; encodes one for an upstream.

{"model": "m", "max_tokens": 1024, "system": "Be brief.",
 "messages": [{"role": "user", "content": [{"type": "text", "text": "Oslo?"}]}],
 "tools": [{"name": "get_weather", "input_schema": {…}}], "tool_choice": {"type": "auto"}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..calls import CallHistory
from ..content import (
    as_plain_text,
    as_result_content,
    decode_tool,
    decode_tools,
    merge_assistant_messages,
    part_type,
    split_result_messages,
    take_response_format,
)
from ..encoding import (
    CACHE_CONTROL,
    EncodedRequest,
    LocatedMessage,
    NameRule,
    RequestEncoder,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    omit_none,
    short_hash,
)
from ..fields import HOSTED_TOOLS, PRIVATE, Fields, Json, nest
from ..openai_chat.request import unpack_messages

NAME = "anthropic"
REDACTED = "redacted_thinking:"
"""Begins the signature of reasoning that the API hides, so that it is recognised when a client of
another API sends it back."""
_ORIGINAL_BLOCK = f"{PRIVATE}block"
"""In the `extra` of a text: the block that it replaces, which only this API has."""
_SAMPLING = ("temperature", "top_p", "top_k")
_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_MIN_BUDGET = 1024
_DEFAULT_MAX_TOKENS = 8192
"""The API requires a limit; this one is sent if the client gave none."""
_FORBIDDEN_IN_IDS = re.compile(r"[^a-zA-Z0-9_\-]")


# Decoding.


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = Fields(body)
    _reject_threads(fields)
    history = CallHistory()
    messages = list(_decode_system(fields))
    for item, path in fields.take_items("messages"):
        messages += _decode_message(Fields(item, path), history)
    unpacked = unpack_messages(messages, history.notes)
    tools, hosted = decode_tools(fields, _decode_tool, "tools")
    choice, parallel = _decode_tool_choice(fields)
    streamed = fields.take("stream", bool)
    config = fields.take_object("output_config") or Fields({})
    form = take_response_format(config, "format") or take_response_format(fields, "output_format")
    thinking, extra = _decode_thinking(fields, config.take("effort", str))
    extra |= nest("output_config", config.rest()) | nest(HOSTED_TOOLS, hosted)
    return Request(
        model=fields.take_text("model") or model,
        messages=unpacked,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=form,
        thinking=thinking,
        stream=bool(streamed if stream is None else stream),
        max_tokens=fields.take("max_tokens", int),
        stop=fields.take_texts("stop_sequences"),
        sampling=fields.take_numbers(_SAMPLING),
        metadata=fields.take("metadata", dict) or {},
        wire=NAME,
        notes=tuple(history.notes),
        extra=fields.rest() | extra,
    )


def _reject_threads(fields: Fields) -> None:
    # With this error code, clients send the whole conversation instead of a thread on the server.
    if fields.has("thread"):
        raise WireError(
            "Message threads are not supported; send the whole conversation.",
            fields.path_of("thread"),
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )


def _decode_system(fields: Fields) -> Iterator[Message]:
    parts = tuple(_decode_blocks(fields, "system", CallHistory()))
    if parts:
        yield Message("system", parts)


def _decode_message(fields: Fields, history: CallHistory) -> Iterator[Message]:
    role = fields.require("role", str)
    if role not in ("user", "assistant", "system"):
        expected = "`user`, `assistant` or `system`"
        raise WireError(f"Expected {expected}, got `{role}`", fields.path_of("role"))
    parts = list(_decode_blocks(fields, "content", history))
    yield from split_result_messages(role, parts, fields.rest())


def _decode_blocks(fields: Fields, key: str, history: CallHistory) -> Iterator[Part]:
    return fields.take_content(key, lambda item, path: _decode_block(item, path, history))


def _decode_block(item: Any, path: str, history: CallHistory) -> Part:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match kind := fields.require("type", str):
        case "text":
            return Text(fields.take_text("text"), fields.rest())
        case "image" | "document":
            return _decode_media(fields, kind) or Other(dict(item))
        case "thinking":
            text, signature = fields.take_text("thinking"), fields.take_text("signature")
            return Reasoning(text, signature or None, fields.rest())
        case "redacted_thinking":
            return Reasoning("", REDACTED + fields.take_text("data"))
        case "tool_use":
            identity, name = fields.take_text("id"), fields.require("name", str)
            arguments = fields.take("input", dict)
            return history.decode_call(identity, name, arguments, path, extra=fields.rest())
        case "tool_result":
            return _decode_result(fields, history)
        case "tool_reference":
            text = f"The tool {fields.take_text('tool_name')!r} can be called now."
            return Text(text, {_ORIGINAL_BLOCK: dict(item)})
        case _:
            return Other(dict(item))


def _decode_media(fields: Fields, block: str) -> Image | Document | None:
    """Decode an image or document; None for one in the API's own file store."""
    source = Fields(fields.take_any("source"), fields.path_of("source"))
    kind, media_type = source.take_text("type"), source.take_text("media_type")
    title = fields.take_text("title")
    data, url = source.take_text("data"), source.take_text("url")
    if kind not in ("base64", "url", "text"):
        return None
    if block == "image":
        known = {"media_type": media_type} if media_type else {}
        return Image(url=url or None, data=data or None, extra=fields.rest(), **known)
    if kind == "text":
        return Document(data, title, extra=fields.rest())
    media_type = media_type or "application/pdf"
    return Document("", title, url or None, data or None, media_type, fields.rest())


def _decode_result(fields: Fields, history: CallHistory) -> ToolResult:
    call_id, name = history.find_answered_call(fields.take_text("tool_use_id"))
    return ToolResult(
        call_id=call_id,
        name=name,
        is_error=bool(fields.take("is_error", bool)),
        content=as_result_content(_decode_blocks(fields, "content", history)),
        extra=fields.rest(),
    )


def _decode_tool(item: Any, path: str) -> Iterator[Tool | Json]:
    fields = Fields(item, path)
    is_hosted = fields.take_text("type") not in ("", "custom", "function")
    yield item if is_hosted else decode_tool(fields, "input_schema")


def _decode_tool_choice(fields: Fields) -> tuple[ToolChoice, bool]:
    """Return the tool choice, and whether several calls at once are allowed."""
    choice = fields.take_object("tool_choice")
    if choice is None:
        return ToolChoice(), True
    parallel = not choice.take("disable_parallel_tool_use", bool)
    kind = choice.require("type", str)
    if kind not in _MODES:
        expected = ", ".join(f"`{name}`" for name in _MODES)
        raise WireError(f"Expected one of {expected}, got `{kind}`", choice.path_of("type"))
    names = (choice.require("name", str),) if kind == "tool" else ()
    return ToolChoice(_MODES[kind], names), parallel


def _decode_thinking(fields: Fields, effort: str | None) -> tuple[Thinking, Json]:
    """Return the reasoning settings, and as `extra` what only this API supports."""
    settings = fields.take_object("thinking")
    if settings is None:
        return Thinking(effort=effort), {}
    kind = settings.take_text("type")
    display = settings.take("display", str)
    thinking = Thinking(
        enabled=kind != "disabled",
        effort=effort,
        budget=settings.take("budget_tokens", int),
        shown=None if display is None else display != "omitted",
    )
    rest = settings.rest() | ({"type": kind} if kind == "between_tools" else {})
    return thinking, nest("thinking", rest)


# Encoding.


class AnthropicRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = NameRule(r"a-zA-Z0-9_\-", 128)
    has_cache_control = True
    _has_reasoning = False
    """The request enables reasoning, beside which the API refuses some settings."""

    def encode(self) -> EncodedRequest:
        request, extra = self.request, self.extra
        messages = request.messages if self.is_same_wire else merge_assistant_messages(request)
        system, rest = self._extract_system(messages)
        thinking = self._encode_thinking()
        self._has_reasoning = thinking.get("thinking", {}).get("type") in ("enabled", "adaptive")
        self.drop_metadata(supported=("user_id",))
        user = request.metadata.get("user_id")
        body: Json = {
            "model": request.model,
            "max_tokens": self._encode_max_tokens(thinking),
            "messages": list(self._encode_messages(rest)),
            **self._encode_system(system),
            **self._encode_tools(extra.pop(HOSTED_TOOLS, [])),
            **thinking,
            **omit_none(stop_sequences=self._encode_stop() or None),
            **self._encode_sampling(),
            **({"metadata": {"user_id": user}} if user else {}),
            **({"stream": True} if request.stream else {}),
        }
        return self.finish("/v1/messages", body | extra)

    # Messages.

    def _extract_system(
        self, messages: Iterable[Message]
    ) -> tuple[list[Text], list[LocatedMessage]]:
        """Return the system prompt and the other messages, of which there must be one."""
        instructions, others = self.split_system(messages, keeps_later=self.is_same_wire)
        system: list[Text] = []
        for message, path in instructions:
            texts = [part for part in message.parts if isinstance(part, Text) and part.text]
            cached = self._carry_cache_control(message, path)
            if cached and texts:
                texts[-1] = Text(texts[-1].text, cached | texts[-1].extra)
            system += texts
        if system and not others and not self.is_same_wire:
            text = "Instructions without a message were sent as a user message."
            self.losses.change(text, "$.messages")
            return [], [(Message("user", tuple(system)), "$.messages")]
        return system, others

    def _encode_system(self, system: list[Text]) -> Json:
        if not system:
            return {}
        text = as_plain_text(system)
        blocks = [block for part in system for block in self._encode_part(part, "$.system")]
        return {"system": blocks if text is None else text}

    def _encode_messages(self, messages: Iterable[LocatedMessage]) -> Iterator[Json]:
        """Encode messages as turns: results and the user's text after them are one turn."""
        turn: Json = {}
        for message, path in messages:
            role = "user" if message.role == "tool" else message.role
            extra = message.extra if self.is_same_wire else {}
            cached = {} if self.is_same_wire else self._carry_cache_control(message, path)
            parts = [part for part in message.parts if self._is_allowed(role, part, path)]
            blocks = [block for part in parts for block in self._encode_part(part, path)]
            if cached and blocks:
                blocks[-1] = cached | blocks[-1]
            if not blocks:
                self.losses.drop("empty messages", path)
            elif turn and turn["role"] == role == "user" and not extra:
                turn["content"] += blocks
            else:
                if turn:
                    yield _simplify_turn(turn)
                turn = {"role": role, "content": blocks, **extra}
        if turn:
            yield _simplify_turn(turn)

    def _carry_cache_control(self, message: Message, path: str) -> Json:
        """Return the `cache_control` of a message, which belongs to the last block here."""
        carried = self.losses.carry(message.extra, path)
        return {key: carried[key] for key in carried if key == CACHE_CONTROL}

    def _is_allowed(self, role: str, part: Part, path: str) -> bool:
        if self.is_same_wire:
            return True
        if role == "assistant" and isinstance(part, (Image, Document)):
            self.losses.drop("images and documents in assistant messages", path)
            return False
        if isinstance(part, Document) and part.media_type.startswith(("audio/", "video/")):
            self.losses.drop(f"documents of type `{part.media_type}`", path)
            return False
        if isinstance(part, Text) and part.text and not part.text.strip():
            self.losses.drop("texts that are only white space", path)
            return False
        return True

    def _encode_part(self, part: Part, path: str) -> Iterator[Json]:
        """Yield the block for a part; none for an empty or unsupported one."""
        match part:
            case Text():
                extra = {key: value for key, value in part.extra.items() if key != "type"}
                carried = self.losses.carry(extra, path)
                if _ORIGINAL_BLOCK in carried:
                    yield carried[_ORIGINAL_BLOCK]
                elif part.text:
                    yield {"type": "text", "text": part.text, **carried}
            case Reasoning():
                yield from self._encode_reasoning(part, path)
            case Image() | Document():
                yield self._encode_media(part, path)
            case ToolCall():
                name = self.names.to_wire(part.name, part.namespace)
                call = encode_call(part, _encode_id(part.id), name)
                yield {**call, **self.losses.carry(part.extra, path)}
            case ToolResult():
                yield self._encode_result(part, path)
            case Other():
                if self.is_same_wire:
                    yield part.data
                else:
                    self.losses.drop(f"the part type `{part_type(part)}`", path)

    def _encode_reasoning(self, part: Reasoning, path: str) -> Iterator[Json]:
        """Encode reasoning. The API refuses unsigned reasoning, so that is dropped."""
        extra = self.losses.carry(part.extra, path)
        if (part.signature or "").startswith(REDACTED):
            yield encode_reasoning(part)
        elif part.signature is None and not self.is_same_wire:
            self.losses.drop("unsigned reasoning", path)
        else:
            yield encode_reasoning(part) | extra

    def _encode_media(self, part: Image | Document, path: str) -> Json:
        kind = "image" if isinstance(part, Image) else "document"
        if part.data is not None:
            source = {"type": "base64", "media_type": part.media_type, "data": part.data}
        elif part.url is not None:
            source = {"type": "url", "url": part.url}
        else:
            text = part.text if isinstance(part, Document) else ""
            source = {"type": "text", "media_type": "text/plain", "data": text}
        if isinstance(part, Image) and part.detail:
            self.losses.drop("`detail` of an image", path)
        title = part.title or None if isinstance(part, Document) else None
        extra = self.losses.carry(part.extra, path)
        return {"type": kind, "source": source, **omit_none(title=title), **extra}

    def _encode_result(self, result: ToolResult, path: str) -> Json:
        content: Any = result.content
        if not isinstance(content, str):
            content = [block for part in content for block in self._encode_part(part, path)]
        out: Json = {"type": "tool_result", "tool_use_id": _encode_id(result.call_id)}
        if content:
            out["content"] = content
        if result.is_error:
            out["is_error"] = True
        return out | self.losses.carry(result.extra, path)

    # Tools and settings.

    def _encode_tools(self, hosted: list[Json]) -> Json:
        request, choice = self.request, self.request.tool_choice
        is_single = choice.mode == "required" and len(choice.names) == 1
        tools = request.tools or () if is_single else self.select_allowed_tools()
        out: Json = {}
        if tools or hosted or (request.tools is not None and self.is_same_wire):
            out["tools"] = [self._encode_tool(tool) for tool in tools] + hosted
        if tools or hosted:
            out |= omit_none(tool_choice=self._encode_tool_choice())
        if choice.validated:
            self.losses.drop("the tool choice `validated`", "$.tool_choice")
        return out

    def _encode_tool(self, tool: Tool) -> Json:
        path = f"$.tools[{tool.name!r}]"
        sent = convert_freeform_tool(tool, self.losses, path)
        out: Json = {"name": self.encode_name(tool)}
        if sent.description:
            out["description"] = sent.description
        out["input_schema"] = as_object_schema(sent.parameters)
        return out | omit_none(strict=sent.strict) | self.losses.carry(sent.extra, path)

    def _encode_tool_choice(self) -> Json | None:
        choice = self.request.tool_choice
        single = {} if self.request.parallel_tool_calls else {"disable_parallel_tool_use": True}
        auto = {"type": "auto", **single} if single else None
        if choice.mode == "none":
            return {"type": "none"}
        if choice.mode == "auto":
            return auto
        if self._has_reasoning and not self.is_same_wire:
            message = (
                "Anthropic cannot require calls while reasoning is enabled; they are optional."
            )
            self.losses.change(message, "$.tool_choice")
            return auto
        names = self.encode_choice_names()
        kind = {"type": "tool", "name": names[0]} if len(names) == 1 else {"type": "any"}
        return kind | single

    def _encode_stop(self) -> list[str]:
        stop = [text for text in self.request.stop if text.strip() or self.is_same_wire]
        if len(stop) < len(self.request.stop):
            self.losses.drop("stop sequences that are only white space", "$.stop")
        return stop

    def _encode_sampling(self) -> Json:
        """Encode sampling. The API refuses some settings together, and a temperature above 1."""
        out = self.encode_sampling(_SAMPLING)
        if self.is_same_wire:
            return out
        if out.get("temperature", 0) > 1:
            self.losses.change("A temperature above 1 was sent as 1.", "$.temperature")
            out["temperature"] = 1
        refused = ("temperature", "top_p", "top_k") if self._has_reasoning else ()
        if not self._has_reasoning and "temperature" in out:
            refused = ("top_p",)
        for key in refused:
            if key in out:
                beside = "reasoning" if self._has_reasoning else "`temperature`"
                self.losses.drop(f"`{key}` together with {beside}", f"$.{key}")
                del out[key]
        return out

    def _encode_max_tokens(self, thinking: Json) -> int:
        if self.request.max_tokens is not None:
            return self.request.max_tokens
        limit = thinking.get("thinking", {}).get("budget_tokens", 0) + _DEFAULT_MAX_TOKENS
        self.losses.change(
            f"Anthropic requires `max_tokens`; it was set to {limit}.", "$.max_tokens"
        )
        return limit

    def _encode_thinking(self) -> Json:
        """Encode `thinking` and `output_config`."""
        thinking, form = self.request.thinking, self.request.response_format
        config: Json = self.extra.pop("output_config", {})
        rest: Json = self.extra.pop("thinking", {})
        out: Json = {}
        budget = self._encode_budget()
        if thinking.enabled is False or thinking.effort == "none":
            out["thinking"] = {"type": "disabled"}
        elif budget is not None:
            out["thinking"] = {"type": "enabled", "budget_tokens": budget}
        elif thinking.enabled or (thinking.effort and not self.is_same_wire):
            out["thinking"] = {"type": "adaptive"}
        if "thinking" in out:
            display = "summarized" if thinking.shown else "omitted"
            shown = {} if thinking.shown is None else {"display": display}
            out["thinking"] |= shown | rest
        if thinking.effort and thinking.effort != "none":
            config = {"effort": choose_effort(thinking, self.losses, _EFFORTS), **config}
        if form is not None and form.schema is not None:
            config = {**config, "format": {"type": "json_schema", "schema": form.schema}}
        elif form is not None:
            self.losses.drop("JSON without a schema", "$.response_format")
        return out | nest("output_config", config)

    def _encode_budget(self) -> int | None:
        """Return the reasoning budget, within the API's minimum and the reply's limit."""
        budget, limit = self.request.thinking.budget, self.request.max_tokens
        if budget is None or self.request.thinking.enabled is False:
            return None
        fitting = budget if self.is_same_wire else max(budget, _MIN_BUDGET)
        if limit is not None and fitting >= limit:
            if limit <= _MIN_BUDGET:
                feature = f"a reasoning budget with `max_tokens: {limit}`"
                self.losses.drop(feature, "$.thinking")
                return None
            fitting = limit - 1
        if fitting != budget:
            message = f"A reasoning budget of {budget} tokens was sent as {fitting}."
            self.losses.change(message, "$.thinking")
        return fitting


def _simplify_turn(turn: Json) -> Json:
    """Return a turn of one plain text as text; in others, results must come first."""
    match turn["content"]:
        case [{"type": "text", "text": text, **rest}] if not rest:
            return {**turn, "content": text}
        case blocks:
            ordered = sorted(blocks, key=lambda block: block["type"] != "tool_result")
            return {**turn, "content": ordered}


def _encode_id(identity: str) -> str:
    """Return an id in the allowed characters; a call and its result get the same one."""
    allowed = _FORBIDDEN_IN_IDS.sub("_", identity)
    return identity if allowed == identity else f"{allowed}_{short_hash(identity)}"


# Blocks of requests and replies.


def encode_reasoning(part: Reasoning) -> Json:
    signature = part.signature or ""
    if signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": part.text, "signature": signature}


def encode_call(call: ToolCall, identity: str, name: str) -> Json:
    return {"type": "tool_use", "id": identity, "name": name, "input": call.arguments}
