"""Remembers what clients leave out when they continue a conversation.

- Responses: `previous_response_id`, and GET by id. The conversation up to a response is stored for
  the client with the same key.
- Tools: some clients send their tools only once. A later turn that brings tool results gets the
  tools of the turn before. A request that deliberately has no tools (`[]`, a request for a title,
  the tool choice `none`) gets none.

All of it is kept for a day, and found only with the key of the client that made it. While the
store is unavailable, a stored response is not missing: the request fails with 503.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from .._util import encode_json, memoize_by_identity
from ..calls.resolution import call_key
from ..errors import WireError
from ..notes import NOTES
from ..store.base import Store, hash_key
from ..types import Failure, Message, Note, Reply, Request, Text, Tool, ToolCall, ToolResult
from ..wires import Envelope, get_wire
from ..wires.calls import ORIGINAL_ID
from ..wires.openai_responses.items import INSTRUCTIONS
from ..wires.openai_responses.request import PREVIOUS_RESPONSE
from .http import Refused

DAY = 24 * 3600.0
WIRE = "openai_responses"
_PREVIOUS = "previous_response_id"
_WIRES_WITHOUT_IDS = frozenset({"ollama", "gemini"})
"""APIs whose clients need not say which call a result belongs to."""
_UNIQUE_ID_LENGTH = 12
"""Ids of this length are unique; shorter ones such as `call_1` recur."""
_RESPONSE_ID = re.compile(r"[\x21-\x7e]{1,1024}")
"""The form of upstream ids. No other id is looked up: it cannot exist."""
_MAX_KEY_LENGTH = 2**16
"""The maximum length of arguments in a lookup key; longer ones are hashed."""
_MAX_LOOKUPS = 16
"""The most calls looked up per request: it may be full of unknown ones."""
_ENCODING_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""Raised for example for half of a surrogate pair, which JSON cannot represent."""
_DECODING_ERRORS = (msgspec.MsgspecError, RecursionError)
"""Raised for entries that another version of the gateway has written."""


class _StoredResponse(Struct, frozen=True):
    """A response as it was sent, and the conversation up to and including it."""

    messages: tuple[Message, ...]
    body: bytes


_RESPONSE_DECODER = msgspec.json.Decoder(_StoredResponse)
_TOOLS_DECODER = msgspec.json.Decoder(tuple[Tool, ...])


class ConversationStore:
    """Restores what a request leaves out, and remembers what later requests may leave out."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def restore(
        self, request: Request, client: str, model: str, *, may_forward_id: bool
    ) -> Request:
        """Return the request with its history and its tools.

        `may_forward_id` is True if the upstream may be asked for a response that is not stored
        here: it has the same API, and all of its responses belong to this client.
        """
        if _continued_response(request):
            request = await self._prepend_history(request, client, may_forward_id)
        if _omits_tools(request):
            request = await self._restore_tools(request, client, model)
        return request

    async def remember(
        self, reply: Reply, envelope: Envelope, client: str, model: str, lookup_keys: list[str]
    ) -> None:
        """Remember the tools of a reply's calls under the `lookup_keys`, and the reply if the
        client may continue it."""
        request = envelope.request
        if request.tools and lookup_keys:
            await self.remember_tools(client, model, lookup_keys, request.tools)
        if stores_response(request) and not reply.failure:
            await self._store_response(reply, envelope, client)

    # Responses.

    async def _prepend_history(
        self, request: Request, client: str, may_forward_id: bool
    ) -> Request:
        """Return a continuation with the stored conversation before its messages."""
        previous = _continued_response(request)
        try:
            stored = await self._read_response(client, previous)
        except Refused:
            if not may_forward_id:
                raise
            stored = None
        if stored is None and may_forward_id:
            return request
        if stored is None:
            message = f"the response {previous!r} is not stored, has expired, or is another "
            message += "client's; send the whole conversation"
            raise WireError(message, f"$.{_PREVIOUS}", code="previous_response_not_found")
        extra = {key: value for key, value in request.extra.items() if key != _PREVIOUS}
        extra[PREVIOUS_RESPONSE] = previous
        instructions = tuple(filter(_is_instruction, request.messages))
        new = (message for message in request.messages if not _is_instruction(message))
        messages = (*instructions, *stored.messages, *new)
        return structs.replace(request, messages=messages, extra=extra)

    async def _store_response(self, reply: Reply, envelope: Envelope, client: str) -> None:
        request = envelope.request
        reply = structs.replace(reply, id=_response_id(reply, envelope))
        body_envelope = Envelope(request, reply.id, envelope.created)
        body = encode_json(get_wire(WIRE).encode_reply(reply, body_envelope))
        history = (message for message in request.messages if not _is_instruction(message))
        stored = _StoredResponse((*history, Message("assistant", reply.parts)), body)
        try:
            data = msgspec.json.encode(stored)
        except _ENCODING_ERRORS:
            return
        await self._store.put(hash_key("response", client, reply.id), data, DAY)

    async def read_body(self, client: str, response_id: str) -> bytes | None:
        """Return a response as it was sent, or None."""
        stored = await self._read_response(client, response_id)
        return stored.body if stored else None

    async def delete_response(self, client: str, response_id: str) -> None:
        await self._store.delete(hash_key("response", client, response_id))
        self._check_last_operation(response_id)

    async def _read_response(self, client: str, response_id: str) -> _StoredResponse | None:
        """Return a stored response, or None; raise `Refused` if the store is unavailable."""
        if not _RESPONSE_ID.fullmatch(response_id):
            return None
        data = await self._store.get(hash_key("response", client, response_id))
        self._check_last_operation(response_id)
        try:
            return None if data is None else _RESPONSE_DECODER.decode(data)
        except _DECODING_ERRORS:
            return None

    def _check_last_operation(self, response_id: str) -> None:
        if self._store.last_error is not None:
            message = f"the gateway's store is unavailable, so the response {response_id!r} cannot "
            message += "be found; try again later"
            raise Refused(Failure("overloaded", message, 503), {"retry-after": "1"})

    # Tools: each call points at the key of its tools, so that they are stored once.

    async def remember_tools(
        self, client: str, model: str, lookup_keys: Iterable[str], tools: tuple[Tool, ...]
    ) -> None:
        """Remember the tools under the lookup keys of the calls that were made with them."""
        address, data = _encode_tools(tools)
        if data is not None:
            pointer = address.encode()
            entries = {hash_key("call", client, model, key): pointer for key in lookup_keys}
            # The tools are written last, so that they do not expire before their pointers.
            await self._store.put_many({**entries, address: data}, DAY)

    async def find_tools(
        self, client: str, model: str, lookup_keys: Iterable[str]
    ) -> tuple[Tool, ...] | None:
        """Return the tools of the last known call, and keep them for another day."""
        for lookup_key in reversed(list(lookup_keys)[-_MAX_LOOKUPS:]):
            key = hash_key("call", client, model, lookup_key)
            pointer = await self._store.get(key)
            if pointer is not None:
                return await self._load_tools(key, pointer)
        return None

    async def _load_tools(self, key: str, pointer: bytes) -> tuple[Tool, ...] | None:
        address = pointer.decode()
        data = await self._store.get(address)
        try:
            tools = None if data is None else _TOOLS_DECODER.decode(data)
        except _DECODING_ERRORS:
            return None
        if data is not None:
            await self._store.put_many({key: pointer, address: data}, DAY)
        return tools

    async def _restore_tools(self, request: Request, client: str, model: str) -> Request:
        """Return a request with the tools of its calls, rebuilt if they are not known."""
        calls = list(_calls_with_user_text(request.messages))
        if not calls:
            return request
        keys = [key for user_text, call in calls for key in _list_lookup_keys(user_text, call)]
        if known := await self.find_tools(client, model, keys):
            return structs.replace(request, tools=known)
        note = Note("tools-rebuilt", NOTES["tools-rebuilt"])
        rebuilt = _rebuild_tools(call for _, call in calls)
        return structs.replace(request, tools=rebuilt, notes=(*request.notes, note))


def stores_response(request: Request) -> bool:
    """Return True if the client may later continue from the response to this request."""
    return request.wire == WIRE and request.extra.get("store") is not False


def _continued_response(request: Request) -> str:
    """Return the id of the response that a request continues, or ""."""
    previous: Any = request.extra.get(_PREVIOUS) if request.wire == WIRE else None
    if previous is not None and not isinstance(previous, str):
        raise WireError("Expected a string", f"$.{_PREVIOUS}")
    return previous or ""


def _is_instruction(message: Message) -> bool:
    """Return True for `instructions`, which apply to one request and are not inherited."""
    return bool(message.extra.get(INSTRUCTIONS))


def _response_id(reply: Reply, envelope: Envelope) -> str:
    """Return the id by which the client knows a response."""
    has_client_id = reply.id and (reply.wire == WIRE or reply.id.startswith("resp_"))
    return reply.id if has_client_id else f"resp_{envelope.id}"


def _omits_tools(request: Request) -> bool:
    """Return True for a request that continues a turn with tools but declares none."""
    if request.tools is not None or request.tool_choice.mode == "none" or not request.messages:
        return False
    return any(isinstance(part, ToolResult) for part in request.messages[-1].parts)


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


def build_lookup_keys(request: Request, reply: Reply) -> list[str]:
    """Return the keys under which the tools of a reply's calls are stored."""
    calls = reply.calls
    if not calls or not request.tools:
        return []
    user_text: str | None = None
    if request.wire in _WIRES_WITHOUT_IDS or not all(map(_has_unique_id, calls)):
        user_text = next(_user_texts(reversed(request.messages)), "")
    return [key for call in calls for key in _list_lookup_keys(user_text, call)]


def _list_lookup_keys(user_text: str | None, call: ToolCall) -> list[str]:
    """Return the keys under which a call is remembered, the best one last.

    Not every call has an id, and short ids recur; on the other hand, a client may send the user's
    text in another form the next time. `user_text` is None if the id is enough.
    """
    name, arguments = call_key(call.name, call.arguments)
    if len(arguments) > _MAX_KEY_LENGTH:
        arguments = hash_key("arguments", arguments)
    content = f"\0{name}\0{arguments}"
    if user_text is None:
        return [call.id + content]
    by_text = user_text + content
    return [by_text] if call.extra.get(ORIGINAL_ID) == "" else [call.id + content, by_text]


def _has_unique_id(call: ToolCall) -> bool:
    """Return True unless the id is short, or was generated because the call had none."""
    return len(call.id) >= _UNIQUE_ID_LENGTH and call.extra.get(ORIGINAL_ID) != ""


@memoize_by_identity
def _encode_tools(tools: tuple[Tool, ...]) -> tuple[str, bytes | None]:
    """Return the key under which tools are stored, and their bytes; None for the bytes if the
    tools cannot be encoded."""
    try:
        data = msgspec.json.encode(tools)
    except _ENCODING_ERRORS:
        return "", None
    return hash_key("tools", data.decode()), data


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
