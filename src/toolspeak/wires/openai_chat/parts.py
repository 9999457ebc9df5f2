"""Chat Completions: message parts and names that requests and replies share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...types import Document, Image, Other, Reasoning, Text
from ..content import decode_image_url, split_data_url
from ..encoding import omit_none
from ..fields import PRIVATE, Fields, Json, nest

NAME = "openai_chat"
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
REASONING_DETAILS = "reasoning_details"
ALL_REASONING_FIELDS = frozenset({*REASONING_FIELDS, REASONING_DETAILS})
REFUSAL: Json = {"type": "refusal"}
"""The `extra` of a text that stands in the field for refusals."""
# Keys of an `extra` by which a request to the same API is restored exactly.
LIMIT_FIELD = f"{PRIVATE}limit"
OWN_REASONING_DETAILS = f"{PRIVATE}{REASONING_DETAILS}"
RESULT_NAME = f"{PRIVATE}name"
OUTSIDE_FUNCTION = f"{PRIVATE}outer"


def is_refusal(text: Text) -> bool:
    return text.extra.get("type") == "refusal"


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
            media_type, data = (
                f"audio/{audio.take_text('format') or 'wav'}",
                audio.take_text("data"),
            )
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


def decode_reasoning(fields: Fields) -> Iterator[Reasoning]:
    """Decode an assistant's reasoning, with the signatures that some upstreams put beside it."""
    text = fields.take_text(*REASONING_FIELDS)
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
