"""Conversations that clients continue without sending all of them again.

- Responses: `previous_response_id`, and GET by id. The conversation up to a response is stored for
  the client with the same key.
- Tools: some clients send their tools only once. A later turn that brings tool results gets the
  tools of the turn before. A turn without tools on purpose (`[]`, a title, a choice of none) stays
  without.
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
from ..wires.calls import ORIGINAL_ID
from ..wires.framing import encode_json
from ..wires.openai_responses.parts import CONTINUED, INSTRUCTIONS

WIRE = "openai_responses"
_PREVIOUS = "previous_response_id"
_WIRES_WITHOUT_IDS = frozenset({"ollama", "gemini"})
"""APIs whose clients need not say which call a result belongs to."""
_UNIQUE_ID_LENGTH = 12
"""Ids of this length are unique; shorter ones such as `call_1` recur."""


# Responses.


class _StoredResponse(Struct, frozen=True):
    """A response as it was sent, and the conversation up to and including it."""

    messages: tuple[Message, ...]
    body: bytes


_DECODER = msgspec.json.Decoder(_StoredResponse)


class ResponseStore:
    """Stores responses for clients that continue from them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def is_continuation(self, request: Request) -> bool:
        previous = request.extra.get(_PREVIOUS) if request.wire == WIRE else None
        return isinstance(previous, str) and bool(previous)

    async def prepend_history(self, request: Request, client: str, upstream_wire: str) -> Request:
        """Return a continuation with the stored conversation before its messages.

        It stays unchanged if the response is not stored here but may be at the upstream.
        """
        previous: str = request.extra[_PREVIOUS]
        stored = await self._read(client, previous)
        if stored is None and upstream_wire == WIRE:
            return request
        if stored is None:
            message = f"the response {previous!r} is not stored, or has expired; send the whole "
            message += "conversation"
            raise WireError(message, f"$.{_PREVIOUS}", code="previous_response_not_found")
        extra = {key: value for key, value in request.extra.items() if key != _PREVIOUS}
        extra[CONTINUED] = previous
        instructions = tuple(filter(_is_instruction, request.messages))
        new = (message for message in request.messages if not _is_instruction(message))
        messages = (*instructions, *stored.messages, *new)
        return structs.replace(request, messages=messages, extra=extra)

    def should_store(self, request: Request) -> bool:
        return request.wire == WIRE and request.extra.get("store") is not False

    async def store(self, reply: Reply, envelope: Envelope, client: str) -> None:
        """Store the response to a request that `should_store`."""
        request = envelope.request
        if reply.failure:
            return
        reply = structs.replace(reply, id=_response_id(reply, envelope))
        body_envelope = Envelope(request, reply.id, envelope.created)
        body = encode_json(get_wire(WIRE).encode_reply(reply, body_envelope))
        history = (message for message in request.messages if not _is_instruction(message))
        stored = _StoredResponse((*history, Message("assistant", reply.parts)), body)
        try:
            data = msgspec.json.encode(stored)
        except (ValueError, TypeError, RecursionError):
            return  # For example half of a surrogate pair, which JSON cannot represent.
        await self._memory.put_response(client, reply.id, data)

    async def read_body(self, client: str, response_id: str) -> bytes | None:
        """Return a response as it was sent, or None."""
        stored = await self._read(client, response_id)
        return stored.body if stored else None

    async def delete(self, client: str, response_id: str) -> None:
        await self._memory.delete_response(client, response_id)

    async def _read(self, client: str, response_id: str) -> _StoredResponse | None:
        data: Any = await self._memory.get_response(client, response_id)
        if data is None:
            return None
        try:
            return _DECODER.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            return None


def _is_instruction(message: Message) -> bool:
    """Return True for `instructions`, which apply to one request and are not inherited."""
    return bool(message.extra.get(INSTRUCTIONS))


def _response_id(reply: Reply, envelope: Envelope) -> str:
    """Return the id by which the client knows a response."""
    has_client_id = reply.id and (reply.wire == WIRE or reply.id.startswith("resp_"))
    return reply.id if has_client_id else f"resp_{envelope.id}"


# Tools.


def omits_tools(request: Request) -> bool:
    """Return True for a request without tools that continues a turn that had some."""
    if request.tools is not None or request.tool_choice.mode == "none" or not request.messages:
        return False
    return any(isinstance(part, ToolResult) for part in request.messages[-1].parts)


async def remember_tools(
    request: Request, reply: Reply, memory: Memory, client: str, model: str
) -> None:
    """Remember the tools that the calls of a reply were made with."""
    if request.tools and (calls := reply.calls):
        user_text: str | None = None
        if request.wire in _WIRES_WITHOUT_IDS or not all(map(_has_unique_id, calls)):
            user_text = next(_user_texts(reversed(request.messages)), "")
        keys = [key for call in calls for key in _memory_keys(user_text, call)]
        await memory.remember_tools(client, model, keys, request.tools)


async def restore_tools(request: Request, memory: Memory, client: str, model: str) -> Request:
    """Return a request that `omits_tools` with the tools of its calls."""
    calls = list(_calls_with_user_text(request.messages))
    if not calls:
        return request
    keys = [key for user_text, call in calls for key in _memory_keys(user_text, call)]
    known = await memory.find_tools(client, model, keys)
    if known:
        return structs.replace(request, tools=known)
    note = Note("tools-rebuilt", "the request has no tools; they were rebuilt from its calls")
    rebuilt = _rebuild_tools(call for _, call in calls)
    return structs.replace(request, tools=rebuilt, notes=(*request.notes, note))


def _calls_with_user_text(messages: Iterable[Message]) -> Iterator[tuple[str, ToolCall]]:
    """Yield the calls of a conversation with the user's last text before each."""
    user_text = ""
    for message in messages:
        for text in _user_texts([message]):
            user_text = text
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield user_text, part


def _user_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the text of each user message that has any."""
    for message in messages:
        if message.role == "user":
            text = "".join([part.text for part in message.parts if isinstance(part, Text)])
            if text:
                yield text


def _memory_keys(user_text: str | None, call: ToolCall) -> list[str]:
    """Return the keys to remember a call by, the best one last.

    Not every call has an id, and short ids recur; on the other hand, a client may send the user's
    text in another form the next time. `user_text` is None if the id is enough.
    """
    name, arguments = call_key(call.name, call.arguments)
    content = f"\0{name}\0{arguments}"
    if user_text is None:
        return [call.id + content]
    by_text = user_text + content
    return [by_text] if call.extra.get(ORIGINAL_ID) == "" else [call.id + content, by_text]


def _has_unique_id(call: ToolCall) -> bool:
    """Return True unless the id is short, or was generated because the call had none."""
    return len(call.id) >= _UNIQUE_ID_LENGTH and call.extra.get(ORIGINAL_ID) != ""


def _rebuild_tools(calls: Iterable[ToolCall]) -> tuple[Tool, ...]:
    """Return tools with the names and parameters that the calls use."""
    parameters: dict[tuple[str | None, str], dict[str, None]] = {}
    freeform: set[tuple[str | None, str]] = set()
    for call in calls:
        key = (call.namespace, call.name)
        parameters.setdefault(key, {}).update(dict.fromkeys(call.arguments))
        if call.freeform:
            freeform.add(key)
    return tuple(
        Tool(
            name=name,
            namespace=namespace,
            parameters={"type": "object", "properties": {one: {} for one in arguments}},
            freeform=(namespace, name) in freeform,
        )
        for (namespace, name), arguments in parameters.items()
    )
