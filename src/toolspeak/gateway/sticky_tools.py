"""Clients that send their tools only once: a later turn gets those of the turn before.

Only a turn that brings results goes on with tools. One without tools on purpose (`[]`, a title, a
choice of none) stays without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from ..calls.drafts import call_key
from ..types import Message, Note, Reply, Request, Text, Tool, ToolCall, ToolResult
from ..upstream.memory import Memory
from ..wires.common import GIVEN_ID

_WITHOUT_IDS = frozenset({"ollama", "gemini"})
"""APIs whose clients may not tell which call it is that a result is of."""
_TELLING = 12
"""An id of so many letters is no other call's."""


async def remember_tools(
    request: Request, reply: Reply, memory: Memory, client: str, model: str
) -> None:
    """Remember the tools with which the calls of a reply were made."""
    if request.tools and (calls := reply.calls):
        said: str | None = None
        if request.wire in _WITHOUT_IDS or not all(map(_is_known_by_id, calls)):
            said = next(_said(reversed(request.messages)), "")
        handles = [handle for call in calls for handle in _handles(said, call)]
        await memory.remember_tools(client, model, handles, request.tools)


async def with_tools(request: Request, memory: Memory, client: str, model: str) -> Request:
    """The request with the tools that it leaves out and needs; only for one that `goes_on`."""
    calls = list(_calls(request.messages))
    if not calls:
        return request
    handles = [handle for said, call in calls for handle in _handles(said, call)]
    known = await memory.tools_for(client, model, handles)
    if known:
        return structs.replace(request, tools=known)
    note = Note("tools-rebuilt", "the request has no tools; they were rebuilt from its history")
    rebuilt = _rebuilt(call for _, call in calls)
    return structs.replace(request, tools=rebuilt, notes=(*request.notes, note))


def goes_on(request: Request) -> bool:
    """Whether a request without tools continues a turn that had some."""
    if request.tools is not None or request.tool_choice.mode == "none" or not request.messages:
        return False
    return any(isinstance(part, ToolResult) for part in request.messages[-1].parts)


def _calls(messages: Iterable[Message]) -> Iterator[tuple[str, ToolCall]]:
    """The calls of a conversation, with what the user said before each."""
    said = ""
    for message in messages:
        for text in _said([message]):
            said = text
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield said, part


def _said(messages: Iterable[Message]) -> Iterator[str]:
    """What the user says in each of these messages."""
    for message in messages:
        if message.role == "user":
            text = "".join([part.text for part in message.parts if isinstance(part, Text)])
            if text:
                yield text


def _handles(said: str | None, call: ToolCall) -> list[str]:
    """What a call is remembered by, the best last. Not all have ids, and an id such as `call_1` is
    that of many; but what the user said may be written in another way the next time. None if the
    id is enough."""
    name, arguments = call_key(call.name, call.arguments)
    what = f"\0{name}\0{arguments}"
    if said is None:
        return [call.id + what]
    return [said + what] if call.extra.get(GIVEN_ID) == "" else [call.id + what, said + what]


def _is_known_by_id(call: ToolCall) -> bool:
    """Whether a call's id is its own, and was not made up because it had none."""
    return len(call.id) >= _TELLING and call.extra.get(GIVEN_ID) != ""


def _rebuilt(calls: Iterable[ToolCall]) -> tuple[Tool, ...]:
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
