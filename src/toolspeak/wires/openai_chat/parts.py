"""The parts of Chat Completions messages, decoded and encoded, in requests and replies.

{"type": "image_url", "image_url": {"url": "data:image/png;base64,…", "detail": "low"}}
{"role": "assistant", "content": "Sunny.", "reasoning_content": "The user asks …"}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...types import Document, Image, Other, Part, Reasoning, Text
from ..content import (
    REFUSAL,
    decode_image_url,
    describe_part,
    encode_media_url,
    is_refusal,
    render_document,
    split_data_url,
)
from ..encoding import LossLog, omit_none
from ..fields import Fields, Json, nest

REASONING_DETAILS = "reasoning_details"
_REASONING_TEXTS = ("reasoning_content", "reasoning", "thinking")
REASONING_FIELDS = frozenset({*_REASONING_TEXTS, REASONING_DETAILS})
_AUDIO_FORMATS = {"wav": "wav", "x-wav": "wav", "wave": "wav", "mp3": "mp3", "mpeg": "mp3"}
"""The accepted audio formats, by the subtypes of their media types."""


def decode_part(item: Any, path: str) -> Text | Image | Document | Other:
    if isinstance(item, str):
        return Text(item)
    fields = Fields(item, path)
    match fields.take_text("type") or "text":
        case "text" | "input_text" | "output_text":
            return Text(fields.take_text("text"), fields.rest())
        case "refusal":
            return Text(fields.take_text("refusal"), REFUSAL)
        case "image_url":
            given = fields.take_any("image_url")
            image = Fields({"url": given} if isinstance(given, str) else given, path)
            url, detail = image.require("url", str), image.take("detail", str)
            extra = fields.rest() | nest("image_url", image.rest())
            return decode_image_url(url, detail=detail, extra=extra)
        case "input_audio":
            audio = Fields(fields.take_any("input_audio"), path)
            media_type = f"audio/{audio.take_text('format') or 'wav'}"
            data = audio.take_text("data")
            extra = fields.rest() | nest("input_audio", audio.rest())
            return Document(data=data, media_type=media_type, extra=extra)
        case "file":
            return _decode_file(fields, Fields(fields.take_any("file"), path))
        case _:
            return Other(dict(item))


def _decode_file(fields: Fields, file: Fields) -> Document:
    media_type, data = split_data_url(given := file.take_text("file_data"))
    return Document(
        title=file.take_text("filename"),
        data=data or given or None,
        media_type=media_type or "application/pdf",
        extra=fields.rest() | nest("file", file.rest()),
    )


def encode_part(part: Part, losses: LossLog, path: str) -> Json:
    """Encode a part for a request; {} if the API does not support it."""
    match part:
        case Text():
            if is_refusal(part):
                return {"type": "refusal", "refusal": part.text}
            return {"type": "text", "text": part.text, **losses.carry(part.extra, path)}
        case Image():
            extra = dict(losses.carry(part.extra, path))
            image = {"url": encode_media_url(part), **omit_none(detail=part.detail)}
            inner = extra.pop("image_url", {})
            return {"type": "image_url", "image_url": image | inner, **extra}
        case Document():
            return _encode_document(part, losses, path)
        case Other() if losses.is_same_wire:
            return part.data
        case _:
            losses.drop(describe_part(part), path)
            return {}


def _encode_document(part: Document, losses: LossLog, path: str) -> Json:
    extra = dict(losses.carry(part.extra, path))
    kind, _, subtype = part.media_type.partition("/")
    is_known = subtype in _AUDIO_FORMATS or losses.is_same_wire
    if kind == "audio" and part.data is not None and is_known:
        audio = {"data": part.data, "format": _AUDIO_FORMATS.get(subtype, subtype)}
        audio |= extra.pop("input_audio", {})
        return {"type": "input_audio", "input_audio": audio, **extra}
    if kind in ("audio", "video"):
        losses.drop(f"documents of type `{part.media_type}`", path)
        return {}
    if part.data is not None or "file" in extra:
        data = encode_media_url(part) if part.data is not None else None
        file = omit_none(filename=part.title or None, file_data=data)
        return {"type": "file", "file": file | extra.pop("file", {}), **extra}
    losses.change("A document is sent as text.", path)
    return {"type": "text", "text": render_document(part)}


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
