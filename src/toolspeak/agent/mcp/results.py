"""What a server is given for a call, and what it gives, as the result that a model is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import mcp_types as sdk

from ..._util import encode_json
from ...types import Document, Image, Text
from ..tools import ToolFailed

Given = str | tuple[Text | Image | Document, ...]
_NO_REASON = "the server gave no reason"


def sendable(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without what has no form in which it could be sent: a model may write half of
    a surrogate pair, and the SDK would give up the whole connection at that."""
    try:
        text = json.dumps(arguments, ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace"))
    except RecursionError:
        raise ToolFailed("the arguments are nested too deeply to be sent") from None


def content_of(result: sdk.CallToolResult) -> Given:
    """The content of a result: plain text where it is nothing but that. What the server calls an
    error is raised in the server's own words."""
    parts = tuple(_part(block) for block in result.content)
    if result.is_error:
        raise ToolFailed(_text(parts) or _structured(result.structured_content) or _NO_REASON)
    if not parts:
        return _structured(result.structured_content)
    return parts if any(not isinstance(part, Text) for part in parts) else _text(parts)


def _structured(value: Any) -> str:
    return "" if value is None else encode_json(value)


def _text(parts: Sequence[Text | Image | Document]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, (Text, Document)))


def _part(block: sdk.ContentBlock) -> Text | Image | Document:
    match block:
        case sdk.TextContent():
            return Text(block.text)
        case sdk.ImageContent():
            return Image(data=block.data, media_type=block.mime_type)
        case sdk.AudioContent():
            return Document(data=block.data, media_type=block.mime_type)
        case sdk.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return Text(f"{block.title or block.name} ({block.uri}){about}")
        case sdk.EmbeddedResource():
            return _embedded(block.resource)


def _embedded(resource: sdk.TextResourceContents | sdk.BlobResourceContents) -> Image | Document:
    title, kind = resource.uri, resource.mime_type
    if isinstance(resource, sdk.TextResourceContents):
        return Document(text=resource.text, title=title, media_type=kind or "text/plain")
    if kind and kind.startswith("image/"):
        return Image(data=resource.blob, media_type=kind)
    return Document(data=resource.blob, title=title, media_type=kind or "application/octet-stream")
