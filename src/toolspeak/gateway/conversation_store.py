"""Responses that clients go on from: `previous_response_id`, and GET by id.

What is kept is the conversation up to the response, for whoever has the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from ..calls.drafts import call_key
from ..errors import WireError
from ..types import Message, Note, Reply, Request, Text, Tool, ToolCall, ToolResult
from ..upstream.memory import Memory
from ..wires import Envelope, get_wire
from ..wires.call_history import ORIGINAL_ID
from ..wires.framing import encode_json
from ..wires.openai_responses.parts import CONTINUED, INSTRUCTIONS

WIRE = "openai_responses"
_PREVIOUS = "previous_response_id"


class _StoredResponse(Struct, frozen=True):
    """A response, and what was said up to it."""

    messages: tuple[Message, ...]
    body: bytes


_DECODER = msgspec.json.Decoder(_StoredResponse)


def _is_instruction(message: Message) -> bool:
    """Instructions are those of each request, and not inherited."""
    return bool(message.extra.get(INSTRUCTIONS))


class ResponseStore:
    """Keeps responses, where clients ask for it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def is_continuation(self, request: Request) -> bool:
        """Whether a request goes on from a response."""
        previous = request.extra.get(_PREVIOUS) if request.wire == WIRE else None
        return isinstance(previous, str) and bool(previous)

    async def prepend_history(self, request: Request, client: str, upstream_wire: str) -> Request:
        """A request with all that was said before it; an upstream of the same API may know more
        than is kept here."""
        previous: str = request.extra[_PREVIOUS]
        kept = await self._read(client, previous)
        if kept is None and upstream_wire == WIRE:
            return request
        if kept is None:
            problem = f"there is no response {previous!r}; it was not stored, or is too old"
            raise WireError(problem, f"$.{_PREVIOUS}", code="previous_response_not_found")
        extra = {key: value for key, value in request.extra.items() if key != _PREVIOUS}
        extra[CONTINUED] = previous
        told = tuple(filter(_is_instruction, request.messages))
        said = (message for message in request.messages if not _is_instruction(message))
        return structs.replace(request, messages=(*told, *kept.messages, *said), extra=extra)

    def should_store(self, request: Request) -> bool:
        """Whether the response to a request is kept."""
        return request.wire == WIRE and request.extra.get("store") is not False

    async def store(self, reply: Reply, envelope: Envelope, client: str) -> None:
        """Keep a response whose request wants that."""
        request = envelope.request
        if reply.failure:
            return
        reply = structs.replace(reply, id=_shown_id(reply, envelope))
        said = (message for message in request.messages if not _is_instruction(message))
        shown = Envelope(request, reply.id, envelope.created)
        body = encode_json(get_wire(WIRE).encode_reply(reply, shown))
        kept = _StoredResponse((*said, Message("assistant", reply.parts)), body)
        try:
            data = msgspec.json.encode(kept)
        except (ValueError, TypeError, RecursionError):
            return  # Half a surrogate pair, say, which is no text but does come.
        await self._memory.put_response(client, reply.id, data)

    async def read_body(self, client: str, identity: str) -> bytes | None:
        """A response as it was given."""
        kept = await self._read(client, identity)
        return kept.body if kept else None

    async def delete(self, client: str, identity: str) -> None:
        """Keep it no longer."""
        await self._memory.delete_response(client, identity)

    async def _read(self, client: str, identity: str) -> _StoredResponse | None:
        data: Any = await self._memory.get_response(client, identity)
        if data is None:
            return None
        try:
            return _DECODER.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            return None


def _shown_id(reply: Reply, envelope: Envelope) -> str:
    """What the client knows a response by."""
    is_known = reply.id and (reply.wire == WIRE or reply.id.startswith("resp_"))
    return reply.id if is_known else f"resp_{envelope.id}"


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


async def restore_tools(request: Request, memory: Memory, client: str, model: str) -> Request:
    """The request with the tools that it leaves out and needs; only for one that `goes_on`."""
    calls = list(_calls(request.messages))
    if not calls:
        return request
    handles = [handle for said, call in calls for handle in _handles(said, call)]
    known = await memory.find_tools(client, model, handles)
    if known:
        return structs.replace(request, tools=known)
    note = Note("tools-rebuilt", "the request has no tools; they were rebuilt from its history")
    rebuilt = _rebuilt(call for _, call in calls)
    return structs.replace(request, tools=rebuilt, notes=(*request.notes, note))


def omits_tools(request: Request) -> bool:
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
    return [said + what] if call.extra.get(ORIGINAL_ID) == "" else [call.id + what, said + what]


def _is_known_by_id(call: ToolCall) -> bool:
    """Whether a call's id is its own, and was not made up because it had none."""
    return len(call.id) >= _TELLING and call.extra.get(ORIGINAL_ID) != ""


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
