"""The names and results of an MCP server's tools.

    files, read_file            -> files__read_file
    my server, read/file        -> my_server__read_file

A name is one that every model API accepts, and no two tools share one. This module does not import
the SDK until a result is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..._util import encode_json
from ...types import Document, Image, Text
from ..tools import ToolError

if TYPE_CHECKING:
    import mcp_types as sdk

MAX_NAME_LENGTH = 64
_INVALID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_DIGITS = 8
McpContent = str | tuple[Text | Image | Document, ...]


def name_prefix(server: str) -> str:
    """Return the server's part of its tools' names.

    It contains no double underscore, so the first one in a tool's name ends the prefix and two
    servers never produce the same name."""
    return re.sub(r"__+", "_", _INVALID_CHARACTER.sub("_", server)).strip("_") or "mcp"


def assign_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Map the server's own tool names to names for the model.

    A tool keeps its name where that is valid; names that would clash get a hash."""
    plain = {tool: f"{name_prefix(server)}__{_INVALID_CHARACTER.sub('_', tool)}" for tool in tools}
    counts = Counter(plain.values())
    names = {tool: name for tool, name in plain.items() if _is_usable(name, tool, counts[name])}
    taken = {*names.values()}
    for tool in sorted(plain.keys() - names.keys()):
        names[tool] = _add_hash(plain[tool], f"{server}\0{tool}", taken)
        taken.add(names[tool])
    return names


def _is_usable(name: str, tool: str, count: int) -> bool:
    return len(name) <= MAX_NAME_LENGTH and (count == 1 or name.endswith(f"__{tool}"))


def _add_hash(name: str, key: str, taken: Container[str]) -> str:
    """Shorten `name` and append a hash of `key`; rehash while the result is taken."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:_HASH_DIGITS]
    hashed = f"{name[: MAX_NAME_LENGTH - _HASH_DIGITS - 1]}_{digest}"
    return hashed if hashed not in taken else _add_hash(name, digest + key, taken)


def make_sendable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace lone surrogates in the arguments: the SDK would drop the whole connection on them."""
    try:
        text = json.dumps(arguments, ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace"))
    except RecursionError:
        raise ToolError("The arguments are nested too deeply to be sent.") from None


def read_content(result: sdk.CallToolResult) -> McpContent:
    """Return the content of a result, as plain text where it is only text.

    An error reported by the server is raised as `ToolError` with the server's own text."""
    parts = tuple(_read_block(block) for block in result.content)
    if result.is_error:
        structured = _read_structured(result.structured_content)
        raise ToolError(_join_text(parts) or structured or "The server gave no reason.")
    if not parts:
        return _read_structured(result.structured_content)
    return parts if any(not isinstance(part, Text) for part in parts) else _join_text(parts)


def _read_structured(value: Any) -> str:
    return "" if value is None else encode_json(value)


def _join_text(parts: Sequence[Text | Image | Document]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, (Text, Document)))


def _read_block(block: sdk.ContentBlock) -> Text | Image | Document:
    import mcp_types as sdk

    match block:
        case sdk.TextContent():
            return Text(block.text)
        case sdk.ImageContent():
            return Image(data=block.data, media_type=block.mime_type)
        case sdk.AudioContent():
            return Document(data=block.data, media_type=block.mime_type)
        case sdk.ResourceLink():
            description = f": {block.description}" if block.description else ""
            return Text(f"{block.title or block.name} ({block.uri}){description}")
        case sdk.EmbeddedResource():
            return _read_resource(block.resource)


def _read_resource(
    resource: sdk.TextResourceContents | sdk.BlobResourceContents,
) -> Image | Document:
    import mcp_types as sdk

    title, media_type = resource.uri, resource.mime_type
    if isinstance(resource, sdk.TextResourceContents):
        return Document(text=resource.text, title=title, media_type=media_type or "text/plain")
    if media_type and media_type.startswith("image/"):
        return Image(data=resource.blob, media_type=media_type)
    media_type = media_type or "application/octet-stream"
    return Document(data=resource.blob, title=title, media_type=media_type)
