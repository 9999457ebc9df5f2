"""A wire: the code for one API. It decodes and encodes its requests and replies.

    decode_request   a client's body      -> Request   encode_request   Request -> EncodedRequest
    frame_decoder    an upstream's frames -> events    stream_encoder   events  -> bytes

`StreamDecoder` splits an upstream's bytes into frames and feeds them to the frame decoder.
A wire is pure: it reads no clock and opens no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Literal

from msgspec import Struct

from ..calls.resolution import new_call_id
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
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from .calls import CallAssembler
from .content import part_type
from .encoding import API_NAMES, NO_TOOL_NAMES, EncodedRequest, RequestEncoder, ToolNames
from .errors import UNKNOWN_STATUS, decode_failure
from .fields import ARGUMENTS_TEXT, PRIVATE, Json
from .framing import Frame, Framing, ServerSentEvents, decode_json

ReplyFeature = Literal["signatures", "images", "order", "refusals"]
_PART_MARKS = frozenset({"type", ARGUMENTS_TEXT})
"""Keys of a part's `extra` that every API expresses in its own way."""
_MAX_DONE_LENGTH = 64
_UNUSUAL_STOPS = frozenset({"refusal", "filter", "error", "pause"})
_PART_ORDER: dict[type[Part], int] = {Reasoning: 0, Text: 1, ToolCall: 2}


class Envelope(Struct, frozen=True):
    """The values that an encoded reply needs beside the events."""

    request: Request
    id: str = ""
    created: int = 0
    """Seconds since 1970."""


class FrameDecoder:
    """Base of the APIs' frame decoders. A whole reply is a single frame."""

    stop_reasons: ClassVar[Mapping[str, StopReason]] = {}
    """By the API's own names."""

    def __init__(self, calls: CallAssembler) -> None:
        self._calls = calls
        self._is_started = self._is_refused = False
        self._usage: Usage | None = None
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._dropped: dict[str, None] = {}
        """Fields of the reply that are not passed on, in order."""

    @property
    def is_complete(self) -> bool:
        """The reply has reached the end that its API defines."""
        return self._raw_stop is not None

    def feed(self, frame: Any) -> Iterable[Event]:
        raise NotImplementedError

    def finish(self) -> Iterator[Event]:
        """Yield the last events, once there are no more frames."""
        reason = self._find_stop_reason()
        yield from self._calls.finish(reason)
        for key in self._dropped:
            yield Note("unsupported", f"`{key}` of the reply is not passed on.", key)
        reason = self._calls.adjust_stop_reason(reason)
        reason = "refusal" if reason == "stop" and self._is_refused else reason
        yield Finish(reason, self._raw_stop or None, self._usage, self._extra or None)

    def _find_stop_reason(self) -> StopReason:
        return self.stop_reasons.get(self._raw_stop or "", "stop")


class StreamEncoder:
    """Base of the APIs' encoders of replies, as streams or whole."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.is_same_wire = False
        """The reply came through this very API."""

    def feed(self, event: Event) -> bytes:
        """Return the bytes to send; none for some events."""
        raise NotImplementedError

    def encode_whole(self, reply: Reply) -> Json:
        raise NotImplementedError

    def carry(self, extra: Json | None) -> Json:
        """Return `extra` if it belongs to this API, otherwise {}."""
        return (extra or {}) if self.is_same_wire else {}

    def find_own_stop_reason(self, finish: Finish, known: Mapping[str, StopReason]) -> str:
        """Return the stop reason of an upstream with this API if it is still true, otherwise ""."""
        expected = "stop" if finish.stop_reason in ("calls", None) else finish.stop_reason
        raw = finish.raw_stop_reason if self.is_same_wire else None
        return raw if raw and known.get(raw, "stop") == expected else ""


class Wire(Struct, frozen=True, kw_only=True):
    """The functions and facts of one API."""

    name: str
    decode_request: Callable[..., Request]
    request_encoder: Callable[..., RequestEncoder]
    frame_decoder: Callable[[CallAssembler], FrameDecoder]
    stream_encoder: Callable[[Envelope], StreamEncoder]
    encode_failure: Callable[[Failure], Json]
    decode_failure: Callable[[int, Any], Failure] = decode_failure
    framing: Callable[[], Framing] = ServerSentEvents
    content_type: str = "text/event-stream"
    key_header: str = "authorization"
    unsupported_in_replies: frozenset[ReplyFeature] = frozenset()
    messages_field: str = "messages"
    """The field of a request that holds the conversation."""
    tool_choice_field: str = "tool_choice"
    has_system_field: bool = False
    """Instructions have a field of their own, and need at least one message beside them."""
    model_load_reply: Json | None = None
    """Fields of the reply to an empty request, which loads the model; None where an empty request
    is an error."""
    parse_reply_body: Callable[[bytes], Any] = decode_json
    """Parse the body of a whole reply into what the frame decoder takes."""
    read_text_chunk: Callable[[bytes], str | None] | None = None
    """Return the text of a frame that holds nothing else; None for any other frame. A fast path
    for most of a stream, once a reply has started."""
    is_frame_wanted: Callable[[Any, Request], bool] = lambda value, request: True
    """Returns False for a frame that only the gateway asked for, not the client."""
    can_forward: Callable[[Any, Reply], bool] = lambda value, reply: False
    """Returns True if the upstream's reply can be forwarded unchanged."""
    set_context_window: Callable[[Json, int], Json] | None = None
    """Add a context window of that many tokens to a request; only for APIs whose servers truncate
    longer prompts silently."""
    streamed_failures: frozenset[FailureKind] = frozenset()
    """Failures that clients of a stream look for only in the stream, not in the HTTP status."""

    @property
    def title(self) -> str:
        return API_NAMES[self.name]

    def has_input(self, request: Request) -> bool:
        """Return True if the request contains anything to reply to."""
        if self.has_system_field:
            return any(message.role not in ("system", "developer") for message in request.messages)
        return bool(request.messages) or bool(request.extra.get("previous_response_id"))

    def encode_request(
        self, request: Request, *, has_cache_control: bool = False
    ) -> EncodedRequest:
        """Encode a request. `has_cache_control`: the provider has it, even if its API does not."""
        return self.request_encoder(request, has_cache_control=has_cache_control).encode()

    def encode_reply(self, reply: Reply, envelope: Envelope) -> Json:
        return self.stream_encoder(envelope).encode_whole(reply)

    def auth_headers(self, key: str) -> dict[str, str]:
        if not key:
            return {}
        return {self.key_header: f"Bearer {key}" if self.key_header == "authorization" else key}

    def find_losses(self, reply: Reply) -> tuple[Note, ...]:
        """Return notes on what a reply loses when it is encoded for this API."""
        unsupported, parts = self.unsupported_in_replies, reply.parts
        lost: list[tuple[str, str]] = []
        if "signatures" in unsupported and any(map(_is_signed, parts)):
            lost.append(("reasoning signatures", "$.parts"))
        if "images" in unsupported and any(isinstance(part, Image) for part in parts):
            lost.append(("images in replies", "$.parts"))
        if "order" in unsupported and _is_mixed(parts):
            lost.append(("this order of reasoning, text and calls", "$.parts"))
        if "refusals" in unsupported and reply.stop_reason in _UNUSUAL_STOPS:
            lost.append((f"the stop reason `{reply.stop_reason}`", "$.stop_reason"))
        if reply.wire != self.name:
            lost += _find_foreign_fields(reply)
        return tuple(
            Note("unsupported", f"{self.title} does not support {feature}; dropped.", path)
            for feature, path in dict.fromkeys(lost)
        )

    def decode_reply(
        self,
        body: Any,
        names: ToolNames = NO_TOOL_NAMES,
        new_id: Callable[[], str] = new_call_id,
    ) -> Iterator[Event]:
        """Decode a whole reply."""
        yield from StreamDecoder(self, names, new_id=new_id).feed_whole(body)


def _is_signed(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.signature)


def _is_mixed(parts: tuple[Part, ...]) -> bool:
    """Return True if the order is not reasoning, text, calls."""
    ranks = [_PART_ORDER[type(part)] for part in parts if type(part) in _PART_ORDER]
    return ranks != sorted(ranks)


def _find_foreign_fields(reply: Reply) -> Iterator[tuple[str, str]]:
    """Yield the fields that only the API of the reply supports."""
    for part in reply.parts:
        if isinstance(part, Other):
            yield f"the part type `{part_type(part)}`", "$.parts"
        elif not isinstance(part, ToolResult):
            for key in part.extra:
                if key not in _PART_MARKS and not key.startswith(PRIVATE):
                    yield f"`{key}`", f"$.parts.{key}"
    for key in (*reply.extra, *(reply.usage.extra if reply.usage else ())):
        if not key.startswith(PRIVATE):
            yield f"`{key}`", f"$.{key}"


class StreamDecoder:
    """Decodes an upstream's bytes, cut anywhere, to events.

    It never raises: a reply that cannot be decoded ends with a `Failure`. Arguments are passed on
    when a call is complete and its arguments are known to be JSON; or as they arrive, if
    `arguments` is "incremental".
    """

    def __init__(
        self,
        wire: Wire,
        names: ToolNames = NO_TOOL_NAMES,
        *,
        arguments: Literal["validated", "incremental"] = "validated",
        new_id: Callable[[], str] = new_call_id,
        can_forward: Callable[[Any], bool] | None = None,
    ) -> None:
        self._wire = wire
        self._can_forward = can_forward
        self._read_text_chunk = None if can_forward else wire.read_text_chunk
        self.forwarded: list[bytes] = []
        """The frames that the client gets unchanged."""
        self._calls = CallAssembler(names, new_id, incremental=arguments == "incremental")
        self._decoder = wire.frame_decoder(self._calls)
        self._has_failed = False
        self._has_content = False
        self.frame_count = 0
        self.is_done = False
        """The end of the stream was announced."""
        self.is_complete = False
        """The whole reply has arrived, even if its stream goes on."""

    @cached_property
    def _framing(self) -> Framing:
        # A whole reply needs none.
        return self._wire.framing()

    @property
    def is_in_call(self) -> bool:
        return self._calls.is_open

    def feed(self, data: bytes) -> list[Event]:
        frames = self._framing.feed(data)
        if (
            self._read_text_chunk
            and self._has_content
            and type(frames) is tuple
            and not self._calls.is_open
        ):
            text = self._read_text_chunk(frames[0].data)
            if text and not self._has_failed:
                self.frame_count += 1
                return [TextDelta(text)]
        return self._collect(self._decode_frames(frames))

    def feed_whole(self, reply: Any) -> list[Event]:
        """Decode a whole reply that is parsed already."""
        self.is_done = self.is_complete = True
        return self._collect(chain(self._decoder.feed(reply), self._finish_reply()))

    def finish(self) -> list[Event]:
        """Return the last events, once the connection is closed."""
        events = self._collect(self._decode_frames(self._framing.finish()))
        return events + self._collect(self._finish_reply())

    def _finish_reply(self) -> Iterator[Event]:
        if not self.is_complete:
            yield Failure(
                "upstream", "The upstream's stream ended before its reply was complete.", 502
            )
            return
        last = list(self._decoder.finish())
        if self._decoder.is_complete or self._has_content or any(map(_is_content, last)):
            yield from last
        else:
            yield Failure("upstream", "The upstream's response contains no reply.", 502)

    def _decode_frames(self, frames: Iterable[Frame]) -> Iterator[Event]:
        for frame in frames:
            self.frame_count += 1
            if len(frame.data) < _MAX_DONE_LENGTH and frame.data.strip() == b"[DONE]":
                self.is_done, value = True, None
            else:
                value = decode_json(frame.data)
                yield from self._decode_value(frame.event, value)
            # After a failure, the caller stops iterating before this.
            if self._can_forward and self._can_forward(value):
                self.forwarded.append(self._framing.write(frame))

    def _decode_value(self, event: str, value: Any) -> Iterable[Event]:
        if event == "error" and not (isinstance(value, dict) and "type" in value):
            return (self._wire.decode_failure(UNKNOWN_STATUS, value),)
        return self._decoder.feed(value)

    def _collect(self, events: Iterable[Event]) -> list[Event]:
        """Return the events up to the first failure; an exception becomes one."""
        collected: list[Event] = []
        if self._has_failed:
            return collected
        try:
            for event in events:
                collected.append(event)
                if isinstance(event, Failure):
                    self._has_failed = True
                    break
                self._has_content = self._has_content or _is_content(event)
        except WireError as error:
            self._has_failed = True
            message = f"The upstream's reply cannot be decoded: {error}"
            collected.append(Failure("upstream", message, 502, param=error.failure.param))
        self.is_complete = self.is_done or self._decoder.is_complete
        return collected


def _is_content(event: Event) -> bool:
    return not isinstance(event, (Started, Note, Finish))
