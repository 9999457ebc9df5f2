"""The tools of a request, decoded and cached: an agent sends the same ones with each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ..types import Tool
from .fields import Fields, Json

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
