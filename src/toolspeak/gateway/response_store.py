"""Responses that clients go on from: `previous_response_id`, and GET by id.

What is kept is the conversation up to the response, for whoever has the same key.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from ..errors import WireError
from ..types import Message, Reply, Request
from ..upstream.memory import Memory
from ..wires import Envelope, wire_of
from ..wires.framing import encode_json
from ..wires.openai_responses.parts import CONTINUED, INSTRUCTIONS

WIRE = "openai_responses"
_PREVIOUS = "previous_response_id"


class _Kept(Struct, frozen=True):
    """A response, and what was said up to it."""

    messages: tuple[Message, ...]
    body: bytes


_DECODER = msgspec.json.Decoder(_Kept)


def _is_instruction(message: Message) -> bool:
    """Instructions are those of each request, and not inherited."""
    return bool(message.extra.get(INSTRUCTIONS))


class KeptResponses:
    """Keeps responses, where clients ask for it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def continues(self, request: Request) -> bool:
        """Whether a request goes on from a response."""
        previous = request.extra.get(_PREVIOUS) if request.wire == WIRE else None
        return isinstance(previous, str) and bool(previous)

    async def continued(self, request: Request, client: str, upstream_wire: str) -> Request:
        """A request with all that was said before it; an upstream of the same API may know more
        than is kept here."""
        previous: str = request.extra[_PREVIOUS]
        kept = await self._kept(client, previous)
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

    def keeps(self, request: Request) -> bool:
        """Whether the response to a request is kept."""
        return request.wire == WIRE and request.extra.get("store") is not False

    async def keep(self, reply: Reply, envelope: Envelope, client: str) -> None:
        """Keep a response whose request wants that."""
        request = envelope.request
        if reply.failure:
            return
        reply = structs.replace(reply, id=_shown_id(reply, envelope))
        said = (message for message in request.messages if not _is_instruction(message))
        shown = Envelope(request, reply.id, envelope.created)
        body = encode_json(wire_of(WIRE).encode_reply(reply, shown))
        kept = _Kept((*said, Message("assistant", reply.parts)), body)
        try:
            data = msgspec.json.encode(kept)
        except (ValueError, TypeError, RecursionError):
            return  # Half a surrogate pair, say, which is no text but does come.
        await self._memory.keep_response(client, reply.id, data)

    async def body(self, client: str, identity: str) -> bytes | None:
        """A response as it was given."""
        kept = await self._kept(client, identity)
        return kept.body if kept else None

    async def forget(self, client: str, identity: str) -> None:
        """Keep it no longer."""
        await self._memory.forget_response(client, identity)

    async def _kept(self, client: str, identity: str) -> _Kept | None:
        data: Any = await self._memory.response(client, identity)
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
