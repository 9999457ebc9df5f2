"""What a wire is: one API in four directions.

    decode_request   a client's body      -> Request          encode_request   Request -> Outgoing
    decoder          an upstream's frames -> events           encoder          events  -> bytes

A wire is pure. It reads no clock and opens no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, Literal, Protocol

from msgspec import Struct

from ..calls.drafts import new_call_id
from ..errors import WireError
from ..events import Event, Finish, Started, TextDelta
from ..types import (
    Failure,
    FailureKind,
    Image,
    Note,
    Other,
    Part,
    Reasoning,
    Reply,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from .call_assembly import CallAssembler
from .content import part_type
from .fields import ARGUMENTS_TEXT, PRIVATE, Json
from .framing import Frame, Framing, decode_json
from .names import NO_TOOL_NAMES, ToolNames

ReplyFeature = Literal["signatures", "images", "order", "refusals"]
_MARKS = frozenset({"type", ARGUMENTS_TEXT})
"""What an `extra` says of the part it stands at, and is no word of the API's."""


class EncodedRequest(Struct, frozen=True):
    """A request, ready to be sent to an upstream."""

    path: str
    """Below the upstream's base URL."""
    body: Json
    names: ToolNames = NO_TOOL_NAMES
    """For reading the reply: what its names mean."""
    notes: tuple[Note, ...] = ()


class Envelope(Struct, frozen=True):
    """What a reply says beside the model's words."""

    request: Request
    """The one that it answers."""
    id: str = ""
    created: int = 0
    """Seconds since 1970."""


class ReplyDecoder(Protocol):
    """Tells what the frames of a reply say. A reply that comes whole is one frame."""

    @property
    def is_complete(self) -> bool:
        """Whether the reply has come to the end that its API gives it."""
        ...

    def feed(self, frame: Any) -> Iterable[Event]:
        """What one frame says."""
        ...

    def finish(self) -> Iterator[Event]:
        """There are no more frames."""
        ...


class StreamEncoder(Protocol):
    """Writes a stream for what happens."""

    def feed(self, event: Event) -> bytes:
        """What to send; nothing, for some events."""
        ...


def _always(value: Any, request: Request) -> bool:
    return True


def _never(value: Any, reply: Reply) -> bool:
    return False


class Wire(Struct, frozen=True, kw_only=True):
    """One API."""

    name: str
    title: str
    decode_request: Callable[..., Request]
    encode_request: Callable[[Request], EncodedRequest]
    reply_decoder: Callable[[CallAssembler], ReplyDecoder]
    stream_encoder: Callable[[Envelope], StreamEncoder]
    encode_reply: Callable[[Reply, Envelope], Json]
    decode_failure: Callable[[int, Any], Failure]
    encode_failure: Callable[[Failure], Json]
    framing: Callable[[], Framing]
    content_type: str = "text/event-stream"
    key_header: str = "authorization"
    """The header in which a key is shown."""
    unsupported_in_replies: frozenset[ReplyFeature] = frozenset()
    """What a reply cannot hold."""
    messages_field: str = "messages"
    """The field of a request that holds the conversation."""
    has_system_field: bool = False
    """Instructions stand in a field of their own, and are no conversation by themselves."""
    model_load_reply: Json | None = None
    """What a reply says beside nothing to a client that asks nothing, to load a model by that; None
    where to ask nothing is an error."""
    parse_reply_body: Callable[[bytes], Any] = decode_json
    """What the body of a whole reply holds, as the decoder takes it."""
    read_text_chunk: Callable[[str | bytes], str | None] | None = None
    """The text of a frame that holds nothing else, as nearly all of a stream do, once a reply has
    begun; None for any other."""
    is_frame_wanted: Callable[[Any, Request], bool] = _always
    """Whether a request's own client has asked for a frame, and not only we."""
    can_forward: Callable[[Any, Reply], bool] = _never
    """Whether what came is written as we would write that reply, so that it can leave as it is."""
    set_context_window: Callable[[Json, int], Json] | None = None
    """Asks in a request for a window of so many tokens, where the upstream's own may be too small
    for it and the upstream would not tell."""
    streamed_failures: frozenset[FailureKind] = frozenset()
    """What clients of a stream look for in it alone, even if that is all that it tells."""

    def has_input(self, request: Request) -> bool:
        """Whether there is something to answer in a request of this API."""
        if self.has_system_field:
            return any(message.role not in ("system", "developer") for message in request.messages)
        return bool(request.messages) or bool(request.extra.get("previous_response_id"))

    def auth_headers(self, key: str) -> dict[str, str]:
        """The header that shows a key."""
        if not key:
            return {}
        return {self.key_header: f"Bearer {key}" if self.key_header == "authorization" else key}

    def find_losses(self, reply: Reply) -> tuple[Note, ...]:
        """What is lost of a reply when it is written in this API's words."""
        lost: list[tuple[str, str]] = []
        parts = reply.parts
        if "signatures" in self.unsupported_in_replies and any(_signature(part) for part in parts):
            lost.append(("the signature of a thought", "$.parts"))
        if "images" in self.unsupported_in_replies and any(
            isinstance(part, Image) for part in parts
        ):
            lost.append(("a picture", "$.parts"))
        if "order" in self.unsupported_in_replies and _is_mixed(parts):
            lost.append(("the order of thoughts, words and calls", "$.parts"))
        if "refusals" in self.unsupported_in_replies and reply.stop_reason in _UNUSUAL:
            lost.append((f"why the reply stops: {reply.stop_reason}", "$.stop_reason"))
        if reply.wire != self.name:
            lost += _of_another_api(reply)
        return tuple(
            Note("unsupported", f"{self.name} has no words for {what}; it is left out", path)
            for what, path in dict.fromkeys(lost)
            if not what.startswith(PRIVATE)
        )

    def decode_reply(
        self, body: Any, names: ToolNames = NO_TOOL_NAMES, new_id: Callable[[], str] = new_call_id
    ) -> Iterator[Event]:
        """The events of a whole reply."""
        yield from StreamDecoder(self, names, new_id=new_id).feed_whole(body)


def _says(event: Event) -> bool:
    """Whether an event is part of what a model said, and not only around it."""
    return not isinstance(event, (Started, Note, Finish))


def _signature(part: Part) -> str | None:
    return part.signature if isinstance(part, Reasoning) else None


_LONGEST_DONE = 64
_UNUSUAL = frozenset({"refusal", "filter", "error", "pause"})
_ORDER: dict[type[Part], int] = {Reasoning: 0, Text: 1, ToolCall: 2}


def _is_mixed(parts: tuple[Part, ...]) -> bool:
    """Whether anything stands elsewhere than thoughts first, words then, and calls last."""
    ranks = [_ORDER[type(part)] for part in parts if type(part) in _ORDER]
    return ranks != sorted(ranks)


def _of_another_api(reply: Reply) -> Iterator[tuple[str, str]]:
    """What only the API can say that a reply came by."""
    for part in reply.parts:
        if isinstance(part, Other):
            yield f"a part of the kind {part_type(part)!r}", "$.parts"
        elif not isinstance(part, ToolResult):
            yield from ((key, f"$.parts.{key}") for key in part.extra if key not in _MARKS)
    for key in (*reply.extra, *(reply.usage.extra if reply.usage else ())):
        yield key, f"$.{key}"


class StreamDecoder:
    """The bytes of an upstream's stream, cut anywhere, to events. It never raises: what cannot be
    read is a `Failure`, and nothing comes after it.

    Arguments are passed on when a call is whole and they are JSON for certain; or as they come, if
    `arguments` is "incremental".
    """

    def __init__(
        self,
        wire: Wire,
        names: ToolNames = NO_TOOL_NAMES,
        *,
        arguments: Literal["validated", "incremental"] = "validated",
        framing: Callable[[], Framing] | None = None,
        new_id: Callable[[], str] = new_call_id,
        can_forward: Callable[[Any], bool] | None = None,
    ) -> None:
        self._wire = wire
        self._can_forward = can_forward
        """Which frames a client gets as they are."""
        self._plain_text = None if can_forward else wire.read_text_chunk
        self.forwarded: list[bytes] = []
        """Those that came and are fine."""
        self._new_framing = framing or wire.framing
        self._calls = CallAssembler(names, new_id, incremental=arguments == "incremental")
        self._decoder = wire.reply_decoder(self._calls)
        self._over = False
        self._said = False
        """Something came of the reply."""
        self.frame_count = 0
        """How many frames have come."""
        self.is_done = False
        """The end of the stream was announced."""
        self.is_complete = False
        """The reply is all there, even if its stream goes on."""

    @cached_property
    def _framing(self) -> Framing:
        """What finds the frames; a reply that comes whole needs none."""
        return self._new_framing()

    @property
    def is_in_call(self) -> bool:
        """Whether a call has begun that is not over."""
        return self._calls.is_open

    def feed(self, data: bytes) -> list[Event]:
        """What more bytes say."""
        frames = self._framing.feed(data)
        if self._plain_text and self._said and type(frames) is tuple and not self._calls.is_open:
            text = self._plain_text(frames[0].data)
            if text and not self._over:
                self.frame_count += 1
                return [TextDelta(text)]
        return self._guarded(self._frames(frames))

    def feed_value(self, frame: Any) -> list[Event]:
        """What a frame says that is decoded already."""
        return self._guarded(self._decoder.feed(frame))

    def feed_whole(self, reply: Any) -> list[Event]:
        """What a reply says that comes in one piece, and is decoded already."""
        self.is_done = self.is_complete = True
        return self._guarded(chain(self._decoder.feed(reply), self._end()))

    def finish(self) -> list[Event]:
        """The connection is closed."""
        said = self._guarded(self._frames(self._framing.finish()))
        return said + self._guarded(self._end())

    def _end(self) -> Iterator[Event]:
        if not self.is_complete:
            yield Failure("upstream", "the upstream's stream broke off before its end", 502)
            return
        last = list(self._decoder.finish())
        if self._decoder.is_complete or self._said or any(map(_says, last)):
            yield from last
        else:
            yield Failure("upstream", "there is no reply in what the upstream sent", 502)

    def _frames(self, frames: Iterable[Frame]) -> Iterator[Event]:
        for frame in frames:
            self.frame_count += 1
            if len(frame.data) < _LONGEST_DONE and frame.data.strip() == b"[DONE]":
                self.is_done, value = True, None
            else:
                value = decode_json(frame.data)
                yield from self._value(frame.event, value)
            # Nobody comes back here for more after a failure.
            if self._can_forward and self._can_forward(value):
                self.forwarded.append(self._framing.write(frame))

    def _value(self, event: str, value: Any) -> Iterable[Event]:
        if event == "error" and not (isinstance(value, dict) and "type" in value):
            return (self._wire.decode_failure(500, value),)
        return self._decoder.feed(value)

    def _guarded(self, events: Iterable[Event]) -> list[Event]:
        said: list[Event] = []
        if self._over:
            return said
        try:
            for event in events:
                said.append(event)
                if isinstance(event, Failure):
                    self._over = True
                    break
                self._said = self._said or _says(event)
        except WireError as error:
            self._over = True
            message = f"the upstream's reply cannot be read: {error}"
            said.append(Failure("upstream", message, 502, param=error.failure.param))
        self.is_complete = self.is_done or self._decoder.is_complete
        return said
