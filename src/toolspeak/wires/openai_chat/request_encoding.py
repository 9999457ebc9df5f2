"""Encodes a Chat Completions request for an upstream."""

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
    EncodedRequest,
    LossLog,
    RequestEncoder,
    as_object_schema,
    choose_effort,
    convert_freeform_tool,
    map_tool_names,
    omit_none,
    shorten_id,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, Json
from .parts import (
    LIMIT_FIELD,
    NAME,
    OUTSIDE_FUNCTION,
    OWN_REASONING_DETAILS,
    REASONING_DETAILS,
    RESULT_NAME,
    encode_reasoning,
    is_refusal,
)
from .request_decoding import SAMPLING, SAMPLING_EXTENSIONS

_MAX_ID = 40
_DEFAULT_THINKING = Thinking()
_INPUT_ROLES = frozenset({"system", "developer", "user"})
_AUDIO_FORMATS = {"wav": "wav", "x-wav": "wav", "wave": "wav", "mp3": "mp3", "mpeg": "mp3"}
"""The accepted audio formats, by the subtypes of their media types."""


def encode_request(request: Request) -> EncodedRequest:
    return ChatRequestEncoder(request).encode()


class ChatRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = OPENAI_NAMES

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
        the turn: only users may send images, and nothing may stand between results."""
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
        return {"role": role, "content": self._encode_content(parts, path), **extra}

    def _encode_assistant(self, parts: Sequence[Part], extra: Json, path: str) -> Json | None:
        """Encode an assistant's message; None if nothing of it is supported."""
        calls = [part for part in parts if isinstance(part, ToolCall)]
        spoken = [part for part in parts if not isinstance(part, (ToolCall, Reasoning))]
        content = self._encode_content(
            [part for part in spoken if self._is_allowed_for_assistant(part, path)], path
        )
        out: Json = {"role": "assistant", "content": content or None}
        out |= encode_reasoning([part for part in parts if isinstance(part, Reasoning)])
        out |= omit_none(**{REASONING_DETAILS: extra.pop(OWN_REASONING_DETAILS, None)})
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
        self.losses.drop("images and documents of the assistant", path)
        return False

    def _encode_content(self, parts: Sequence[Part], path: str) -> str | list[Json]:
        text = as_plain_text(parts)
        if text is not None:
            return text
        encoded = (self._encode_part(part, path) for part in parts)
        return [part for part in encoded if part]

    def _encode_part(self, part: Part, path: str) -> Json:
        match part:
            case Text():
                if is_refusal(part):
                    return {"type": "refusal", "refusal": part.text}
                return {"type": "text", "text": part.text, **self.losses.carry(part.extra, path)}
            case Image():
                extra = dict(self.losses.carry(part.extra, path))
                image = {"url": encode_media_url(part), **omit_none(detail=part.detail)}
                inner = extra.pop("image_url", {})
                return {"type": "image_url", "image_url": image | inner, **extra}
            case Document():
                return self._encode_document(part, path)
            case Other() if self.is_same_wire:
                return part.data
            case _:
                kind = part_type(part) if isinstance(part, Other) else type(part).__name__
                self.losses.drop(f"the part type `{kind}`", path)
                return {}

    def _encode_document(self, part: Document, path: str) -> Json:
        extra = dict(self.losses.carry(part.extra, path))
        kind, _, subtype = part.media_type.partition("/")
        is_known = subtype in _AUDIO_FORMATS or self.is_same_wire
        if kind == "audio" and part.data is not None and is_known:
            audio = {"data": part.data, "format": _AUDIO_FORMATS.get(subtype, subtype)}
            audio |= extra.pop("input_audio", {})
            return {"type": "input_audio", "input_audio": audio, **extra}
        if kind in ("audio", "video"):
            self.losses.drop(f"documents of type `{part.media_type}`", path)
            return {}
        if part.data is not None or "file" in extra:
            data = encode_media_url(part) if part.data is not None else None
            file = omit_none(filename=part.title or None, file_data=data)
            return {"type": "file", "file": file | extra.pop("file", {}), **extra}
        self.losses.change("A document is sent as text.", path)
        return {"type": "text", "text": render_document(part)}

    def _encode_call(self, call: ToolCall, path: str) -> Json:
        name = self.names.to_wire(call.name, call.namespace)
        extra = dict(self.losses.carry(call.extra, path))
        identity = self._encode_id(call.id)
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
            content = self._encode_content(parts, path) or ""
        if result.is_error:
            self.losses.drop("the error flag of results", path)
        extra = dict(self.losses.carry(result.extra, path))
        name = omit_none(name=extra.pop(RESULT_NAME, None))
        call_id = self._encode_id(result.call_id)
        return {"role": "tool", "tool_call_id": call_id, **name, "content": content, **extra}

    def _encode_result_media(self, result: ToolResult, path: str) -> list[Json]:
        if self.is_same_wire or isinstance(result.content, str):
            return []
        media = [part for part in result.content if _is_media(part)]
        if media:
            self.losses.change("Images in results are sent as a user message.", path)
        return [encoded for part in media if (encoded := self._encode_part(part, path))]

    def _encode_id(self, identity: str) -> str:
        return identity if self.is_same_wire else shorten_id(identity, _MAX_ID)

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
        choice, tools = self.request.tool_choice, self.request.tools or ()
        if choice.validated:
            self.losses.drop("schema validation of optional calls", "$.tool_choice")
        if not choice.names:
            return None if choice.mode == "auto" else choice.mode
        custom = {tool.name for tool in tools if tool.freeform and self.is_same_wire}
        kinds = ["custom" if name in custom else "function" for name in choice.names]
        names = self.encode_choice_names()
        chosen = [
            {"type": kind, kind: {"name": name}} for kind, name in zip(kinds, names, strict=True)
        ]
        if len(chosen) == 1 and choice.mode == "required":
            return chosen[0]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": chosen}}

    def _encode_settings(self) -> Json:
        request, out = self.request, Json()
        limit_field = self.extra.pop(LIMIT_FIELD, "max_tokens")
        if request.response_format:
            out["response_format"] = _encode_response_format(request.response_format)
        if request.thinking != _DEFAULT_THINKING:
            out |= omit_none(reasoning_effort=choose_effort(request.thinking, self.losses) or None)
        if request.stop:
            out["stop"] = list(request.stop)
        if request.metadata and (user := self.encode_user_id()):
            out["user"] = user
        if request.max_tokens is not None:
            out[limit_field] = request.max_tokens
        if request.sampling:
            out |= self.encode_sampling(SAMPLING, SAMPLING_EXTENSIONS)
        metadata = {key: value for key, value in request.metadata.items() if key != "user_id"}
        return {**out, "metadata": metadata} if metadata else out


def _is_media(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Document) and part.data is not None)


@memoize_by_identity
def _encode_own_tools(tools: tuple[Tool, ...]) -> list[Json]:
    """Encode tools that came by this very API, which loses nothing of them."""
    names, losses = map_tool_names(tools, OPENAI_NAMES), LossLog(NAME, NAME)
    return [_encode_tool(tool, names.to_wire(tool.name, tool.namespace), losses) for tool in tools]


def _encode_tool(tool: Tool, name: str, losses: LossLog) -> Json:
    path = f"$.tools[{tool.name!r}]"
    kind = "custom" if tool.freeform and losses.is_same_wire else "function"
    sent = tool if kind == "custom" else convert_freeform_tool(tool, losses, path)
    extra = dict(losses.carry(sent.extra, path))
    outer = extra.pop(OUTSIDE_FUNCTION, {})
    inner: Json = {"name": name}
    if sent.description:
        inner["description"] = sent.description
    if kind == "function":
        schema = sent.parameters if losses.is_same_wire else as_object_schema(sent.parameters)
        inner |= omit_none(parameters=schema or None, strict=sent.strict)
    return {"type": kind, kind: inner | extra, **outer}


def _encode_response_format(form: ResponseFormat) -> Json:
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": encode_schema_format(form)}


def encode_schema_format(form: ResponseFormat) -> Json:
    return omit_none(
        name=form.name or "answer",
        schema=form.schema,
        description=form.description or None,
        strict=form.strict,
    )
