"""Parts, tool choices, formats and errors of OpenAI's two APIs. Chat Completions nests objects that
are flat in Responses:

{"type": "image_url", "image_url": {"url": "https://…"}}   {"type": "input_image", "image_url": "…"}
{"type": "function", "function": {"name": "f"}}            {"type": "function", "name": "f"}
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from ..errors import WireError
from ..types import Document, Failure, Image, Other, Part, Text, ToolChoice
from .content import (
    REFUSAL,
    ContentPart,
    as_plain_text,
    decode_image_url,
    describe_part,
    encode_media_url,
    render_document,
    split_data_url,
)
from .encoding import OPENAI_NAMES, RequestEncoder, omit_none, short_hash
from .errors import ERROR_TYPES, write_context_message
from .fields import Fields, Json, nest

_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}
_AUDIO_FORMATS = {"wav": "wav", "x-wav": "wav", "wave": "wav", "mp3": "mp3", "mpeg": "mp3"}
"""The accepted audio formats, by the subtypes of their media types."""
_MAX_USER_ID = 64
_ERROR_TYPES = ERROR_TYPES | {"upstream": "upstream_error", "internal": "server_error"}
_CONTEXT_MARK = "maximum context length is {limit} tokens"
_CONTEXT_SENTENCE = (
    f"This model's {_CONTEXT_MARK}. However, your messages resulted in {{prompt}} tokens."
)


# Parts.


def decode_part(
    item: Any, path: str, take_rest: Callable[[Fields], Json] = Fields.rest
) -> ContentPart:
    """Decode a part; `take_rest` returns those of its other fields that are to be carried."""
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match fields.take_text("type") or "text":
        case "text" | "input_text" | "output_text":
            return Text(fields.take_text("text"), take_rest(fields))
        case "refusal":
            return Text(fields.take_text("refusal"), REFUSAL)
        case "image_url" | "input_image" if fields.has("image_url"):
            return _decode_image(fields, take_rest)
        case "input_audio":
            audio = Fields(fields.take_any("input_audio"), fields.path_of("input_audio"))
            media_type = f"audio/{audio.take_text('format') or 'wav'}"
            data = audio.take_text("data")
            extra = take_rest(fields) | nest("input_audio", audio.rest())
            return Document(data=data, media_type=media_type, extra=extra)
        case "file" | "input_file":
            return _decode_file(fields, take_rest) or Other(dict(item))
        case _:
            return Other(dict(item))


def _decode_image(fields: Fields, take_rest: Callable[[Fields], Json]) -> Image:
    given, path = fields.take_any("image_url"), fields.path_of("image_url")
    image = Fields({"url": given} if isinstance(given, str) else given, path)
    url, detail = image.require("url", str), image.take_text("detail") or fields.take_text("detail")
    extra = take_rest(fields) | nest("image_url", image.rest())
    return decode_image_url(url, detail=None if detail in ("", "auto") else detail, extra=extra)


def _decode_file(fields: Fields, take_rest: Callable[[Fields], Json]) -> Document | None:
    """Decode a file; None for one in the API's own file store."""
    nested = fields.take_object("file")
    file = nested or fields
    given, url = file.take_text("file_data"), file.take("file_url", str)
    if not given and url is None:
        return None
    media_type, data = split_data_url(given)
    return Document(
        title=file.take_text("filename"),
        url=url,
        data=data or given or None,
        media_type=media_type or "application/pdf",
        extra=take_rest(fields) | nest("file", nested.rest() if nested else {}),
    )


class OpenAIRequestEncoder(RequestEncoder):
    """Base of the request encoders of both APIs."""

    name_rule = OPENAI_NAMES
    max_id: ClassVar[int]
    """The longest id of a call."""
    has_file_urls: ClassVar[bool] = False
    is_nested: ClassVar[bool] = False
    """An object has its fields in another one, which is named like its type."""

    def encode_id(self, identity: str) -> str:
        """Return an id within the API's limit; a call and its result get the same one."""
        if self.is_same_wire or len(identity) <= self.max_id:
            return identity
        return f"{identity[: self.max_id - 7]}_{short_hash(identity)}"

    def encode_content(self, parts: Sequence[Part], path: str) -> str | list[Json]:
        """Encode parts as a string if they are one plain text, else as a list without empty
        parts."""
        text = as_plain_text(parts)
        if text is not None:
            return text
        return [encoded for part in parts if (encoded := self.encode_part(part, path))]

    def encode_part(self, part: Part, path: str) -> Json:
        """Encode a part; {} if the API does not support it."""
        match part:
            case Text():
                return self.encode_text(part, path)
            case Image():
                return self.encode_image(part, dict(self.losses.carry(part.extra, path)))
            case Document():
                return self._encode_document(part, path)
            case Other() if self.is_same_wire:
                return part.data
            case _:
                self.losses.drop(describe_part(part), path)
                return {}

    def encode_text(self, text: Text, path: str) -> Json:
        raise NotImplementedError

    def encode_image(self, image: Image, extra: Json) -> Json:
        raise NotImplementedError

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
        is_url = self.has_file_urls and part.url is not None and not part.text
        if part.data is None and not is_url:
            self.losses.change("A document was sent as text.", path)
            return self.encode_text(Text(render_document(part)), path)
        data = encode_media_url(part) if part.data is not None else None
        file = omit_none(filename=part.title or None, file_data=data, file_url=part.url)
        if self.is_nested:
            return {"type": "file", "file": file | extra.pop("file", {}), **extra}
        return {"type": "input_file", **file, **extra}

    def wrap(self, kind: str, fields: Json) -> Json:
        """Return an object of this type with these fields."""
        return {"type": kind, kind: fields} if self.is_nested else {"type": kind, **fields}

    def encode_tool_choice(self) -> Any:
        choice = self.request.tool_choice
        # Few servers with Chat Completions have freeform tools; the others get functions.
        has_freeform = self.is_same_wire or not self.is_nested
        tools = self.request.tools or ()
        freeform = {tool.name for tool in tools if tool.freeform and has_freeform}
        chosen = [
            self.wrap("custom" if given in freeform else "function", {"name": name})
            for given, name in zip(choice.names, self.encode_choice_names(), strict=True)
        ]
        if not chosen:
            return None if choice.mode == "auto" else choice.mode
        if len(chosen) == 1 and choice.mode == "required":
            return chosen[0]
        return self.wrap("allowed_tools", {"mode": choice.mode, "tools": chosen})

    def encode_response_format(self) -> Json | None:
        form = self.request.response_format
        if form is None:
            return None
        if form.schema is None:
            return {"type": "json_object"}
        about = omit_none(description=form.description or None, strict=form.strict)
        schema = {"name": form.name or "answer", "schema": form.schema, **about}
        return self.wrap("json_schema", schema)

    def encode_metadata(self) -> Json:
        """Return the user's id, and the other metadata."""
        metadata = dict(self.request.metadata)
        user = self._shorten_user_id(metadata.pop("user_id", None)) if metadata else None
        return omit_none(user=user, metadata=metadata or None)

    def _shorten_user_id(self, user: Any) -> str | None:
        """Return a long id as a hash, since many servers limit its length."""
        if not isinstance(user, str) or not user:
            return None
        if self.is_same_wire or len(user) <= _MAX_USER_ID:
            return user
        self.losses.change("The user id is too long; its hash was sent.", "$.metadata.user_id")
        return hashlib.blake2b(user.encode("utf-8", "replace"), digest_size=16).hexdigest()


# Tool choices.


def decode_tool_choice(given: Any, path: str) -> ToolChoice:
    """Decode a tool choice without its hosted tools."""
    if given is None:
        return ToolChoice()
    if isinstance(given, str):
        if given in _MODES:
            return ToolChoice(_MODES[given])
        raise WireError(f"Expected `auto`, `none`, `required` or an object, got `{given}`", path)
    choice = Fields(given, path)
    if choice.take_text("type") == "allowed_tools":
        return _decode_allowed_tools(choice.take_object("allowed_tools") or choice)
    return ToolChoice() if is_hosted(given) else ToolChoice("required", (_take_name(choice),))


def _decode_allowed_tools(fields: Fields) -> ToolChoice:
    mode = fields.take_text("mode")
    tools = [Fields(item, path) for item, path in fields.take_items("tools")]
    names = tuple(_take_name(tool) for tool in tools if not is_hosted(tool.rest()))
    if tools and not names:
        # Only hosted tools are allowed, which no other API has.
        return ToolChoice("none")
    return ToolChoice("required" if mode == "required" else "auto", names)


def _take_name(tool: Fields) -> str:
    inner = tool.take_object("function") or tool.take_object("custom")
    return (inner or tool).require("name", str)


def list_chosen_tools(choice: Any) -> list[Json]:
    """Return the tools that a tool choice names, as they came."""
    if not isinstance(choice, dict):
        return []
    if choice.get("type") != "allowed_tools":
        return [choice]
    return (choice.get("allowed_tools") or choice).get("tools") or []


def is_hosted(tool: Json) -> bool:
    """Return True if only this API can run a tool."""
    return (tool.get("type") or "function") not in ("function", "custom")


# Settings and errors.


def take_metadata(fields: Fields) -> Json:
    user = fields.take_text("user")
    return (fields.take("metadata", dict) or {}) | ({"user_id": user} if user else {})


def encode_failure(failure: Failure) -> Json:
    code = "context_length_exceeded" if failure.kind == "context_length" else failure.code
    error = {
        "message": write_context_message(failure, _CONTEXT_SENTENCE, _CONTEXT_MARK),
        "type": _ERROR_TYPES.get(failure.kind, "invalid_request_error"),
        "param": failure.param,
        "code": code,
    }
    return {"error": error | omit_none(details=failure.details)}
