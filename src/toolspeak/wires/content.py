"""Content and formats that the APIs share: text, images, documents and answers in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..events import TextDelta
from ..types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Request,
    ResponseFormat,
    Role,
    Text,
    ToolResult,
)
from .fields import PRIVATE, Fields, Json

ContentPart = Text | Image | Document | Other
"""A part that a tool result may contain."""
REFUSAL: Json = {"type": "refusal"}
"""The `extra` of a text that is a refusal."""


def is_refusal(text: Text | TextDelta) -> bool:
    return bool(text.extra) and text.extra.get("type") == "refusal"


def decode_image_url(url: str, **fields: Any) -> Image:
    media_type, data = split_data_url(url)
    if data is None:
        return Image(url=url, **fields)
    return Image(data=data, media_type=media_type or "image/png", **fields)


def split_data_url(url: str) -> tuple[str, str | None]:
    """Return the media type and base64 data of a `data:` URL; ("", None) for any other."""
    if not url.startswith("data:"):
        return "", None
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return "", None
    return head.partition(";")[0], data


def encode_media_url(part: Image | Document) -> str:
    """Return the URL of an image or file; a `data:` URL if it came by value."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{part.data}"
    return part.url or ""


def render_document(document: Document) -> str:
    """Return a document as marked text, for an API without documents."""
    title = f' title="{document.title}"' if document.title else ""
    return f"<document{title}>\n{document.text or document.url or ''}\n</document>"


def part_type(part: Other) -> str:
    """Return the name that the part's own API has for it."""
    return str(part.data.get("type") or next(iter(part.data), "other"))


def describe_part(part: Part) -> str:
    """Return the name of a part for a note."""
    return f"the part type `{part_type(part) if isinstance(part, Other) else type(part).__name__}`"


def as_plain_text(parts: Sequence[Part]) -> str | None:
    """Return the text if it is the only part, and plain; "" for no parts; otherwise None."""
    if len(parts) > 1:
        return None
    for part in parts:
        is_text = isinstance(part, Text)
        if is_text and (not part.extra or all(key.startswith(PRIVATE) for key in part.extra)):
            return part.text
        return None
    return ""


def as_result_content(parts: Iterable[Part]) -> str | tuple[ContentPart, ...]:
    """Return the content of a result: a string if it is only text."""
    content = tuple(part for part in parts if isinstance(part, (Text, Image, Document, Other)))
    match content:
        case ():
            return ""
        case (Text(text, extra),) if not extra:
            return text
        case _:
            return content


def split_result_messages(role: Role, parts: Sequence[Part], extra: Json) -> Iterator[Message]:
    """Yield a message; the results in a user's message become messages of their own."""
    if role != "user" or not parts:
        yield Message(role, tuple(parts), extra)
        return
    for is_result, run in groupby(parts, lambda part: isinstance(part, ToolResult)):
        yield Message("tool" if is_result else "user", tuple(run), extra)
        extra = {}


def merge_assistant_messages(request: Request) -> tuple[Message, ...]:
    """Return the conversation with consecutive assistant messages merged into one, as APIs expect
    in which the results follow all of a turn's calls."""
    merged: list[Message] = []
    for role, run in groupby(request.messages, lambda message: message.role):
        if role != "assistant":
            merged += run
            continue
        messages = list(run)
        parts = tuple(part for message in messages for part in message.parts)
        extra = {key: value for message in messages for key, value in message.extra.items()}
        if parts:
            merged.append(Message("assistant", parts, extra))
    return tuple(merged)


def take_response_format(fields: Fields, key: str) -> ResponseFormat | None:
    """Take the response format; one that only this API supports stays in `fields`."""
    given = fields.peek(key)
    kind = given.get("type") if isinstance(given, dict) else None
    if kind not in (None, "text", "json_object", "json_schema"):
        return None
    form = fields.take_object(key)
    if form is None or kind in (None, "text"):
        return None
    schema = form.take_object("json_schema") or form
    return ResponseFormat(
        schema.take("schema", dict),
        schema.take_text("name"),
        schema.take_text("description"),
        schema.take("strict", bool),
    )
