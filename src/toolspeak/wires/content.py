"""Content, tools and formats that the APIs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

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
    Tool,
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


# Tools. They are cached: an agent sends the same ones with each request.

ToolDecoder = Callable[[Any, str], Iterable[Tool | Json]]
"""Yields the tools of one item: a `Tool`, or the JSON of one that only its own API can run."""
DeclaredTools = tuple[tuple[Tool, ...] | None, list[Json]]
"""The tools that any model can be offered, or None if the request declares none; and those that
only their own API can run."""
_CACHE_SIZE = 64
_MAX_CACHED_BYTES = 2**18
_cache: dict[tuple[ToolDecoder, bytes], DeclaredTools] = {}


def decode_tools(fields: Fields, decode: ToolDecoder, *keys: str) -> DeclaredTools:
    """Take and decode the tools in these fields."""
    values = [fields.peek(key) for key in keys]
    if not any(value is not None for value in values):
        return None, []
    cache_key = (decode, _encode_key(values))
    found = _cache.get(cache_key)
    if found is None:
        items = [item for key in keys for item in fields.take_one_or_more(key)]
        decoded = [tool for item, path in items for tool in decode(item, path)]
        tools = tuple(tool for tool in decoded if isinstance(tool, Tool))
        found = tools, [tool for tool in decoded if not isinstance(tool, Tool)]
        if 0 < len(cache_key[1]) <= _MAX_CACHED_BYTES:
            _cache[cache_key] = found
        # Other threads may remove entries at the same time.
        for oldest in list(_cache)[:-_CACHE_SIZE]:
            _cache.pop(oldest, None)
    fields.discard(*keys)
    return found


def _encode_key(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (ValueError, RecursionError):
        return b""


def decode_tool(
    fields: Fields, schema: str = "parameters", extra: Json | None = None, **known: Any
) -> Tool:
    """Decode a tool whose parameters are in the field `schema`; `extra` adds to what remains."""
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=fields.take(schema, dict) or {},
        strict=fields.take("strict", bool),
        extra=fields.rest() | (extra or {}),
        **known,
    )
