"""Clients that send their tools only once: a later turn gets those of the turn before.

Only a turn that brings results goes on with tools. One without tools on purpose (`[]`, a title, a
choice of none) stays without.
"""

from __future__ import annotations

from msgspec import structs

from ..types import Note, Request, Tool, ToolCall, ToolResult
from .memory import Memory


async def with_tools(request: Request, memory: Memory, client: str, model: str) -> Request:
    """The request with the tools that it leaves out and needs."""
    if not _goes_on(request):
        return request
    calls = [
        part for message in request.messages for part in message.parts if isinstance(part, ToolCall)
    ]
    if not calls:
        return request
    known = await memory.tools_for(client, model, [call.id for call in calls])
    if known:
        return structs.replace(request, tools=known)
    note = Note("tools-rebuilt", "the request has no tools; they were rebuilt from its history")
    return structs.replace(request, tools=_rebuilt(calls), notes=(*request.notes, note))


def _goes_on(request: Request) -> bool:
    """Whether a request without tools continues a turn that had some."""
    if request.tools is not None or request.tool_choice.mode == "none" or not request.messages:
        return False
    return any(isinstance(part, ToolResult) for part in request.messages[-1].parts)


def _rebuilt(calls: list[ToolCall]) -> tuple[Tool, ...]:
    """Tools as far as earlier calls tell what they are."""
    found: dict[tuple[str | None, str], dict[str, None]] = {}
    freeform: set[tuple[str | None, str]] = set()
    for call in calls:
        key = (call.namespace, call.name)
        found.setdefault(key, {}).update(dict.fromkeys(call.arguments))
        if call.freeform:
            freeform.add(key)
    return tuple(
        Tool(
            name=name,
            namespace=namespace,
            parameters={"type": "object", "properties": {one: {} for one in arguments}},
            freeform=(namespace, name) in freeform,
        )
        for (namespace, name), arguments in found.items()
    )
