"""Message content in requests and replies: text, images and documents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ..types import Document, Image, Message, Other, Part, Request, Text
from .fields import PRIVATE


def decode_image_url(url: str, **fields: Any) -> Image:
    """A picture by its address; a `data:` address holds it."""
    media_type, data = split_data_url(url)
    if data is None:
        return Image(url=url, **fields)
    return Image(data=data, media_type=media_type or "image/png", **fields)


def split_data_url(url: str) -> tuple[str, str | None]:
    """The kind of media and the base64 data of a `data:` address; ("", None) for any other."""
    if not url.startswith("data:"):
        return "", None
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return "", None
    return head.partition(";")[0], data


def encode_media_url(part: Image | Document) -> str:
    """The address of a picture or file, which holds the data where it came by value."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{part.data}"
    return part.url or ""


def render_document(document: Document) -> str:
    """A text from elsewhere, marked as such, for an API that has no documents."""
    title = f' title="{document.title}"' if document.title else ""
    return f"<document{title}>\n{document.text or document.url or ''}\n</document>"


def part_type(part: Other) -> str:
    """What its API calls a part that only it can say."""
    return str(part.data.get("type") or next(iter(part.data), "other"))


def merge_assistant_messages(request: Request) -> tuple[Message, ...]:
    """The conversation in turns, where it came by an API that is read in another way: what an
    assistant says in several messages is one, as its results follow the whole of it."""
    turns: list[Message] = []
    for role, run in groupby(request.messages, lambda message: message.role):
        if role != "assistant":
            turns += run
            continue
        messages = list(run)
        parts = tuple(part for message in messages for part in message.parts)
        extra = {key: value for message in messages for key, value in message.extra.items()}
        if parts:
            turns.append(Message("assistant", parts, extra))
    return tuple(turns)


def as_plain_text(parts: Sequence[Part]) -> str | None:
    """What is said by parts that are nothing but one plain text."""
    if len(parts) > 1:
        return None
    for part in parts:
        is_text = isinstance(part, Text)
        if is_text and (not part.extra or all(key.startswith(PRIVATE) for key in part.extra)):
            return part.text
        return None
    return ""
