"""The walk of one request: what is sent to the upstream, and what its reply means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from ..calls.drafts import new_call_id
from ..dialects import Dialect, Parser
from ..dialects.registry import AUTO, get_dialect
from ..errors import Unrepresentable
from ..events import ArgumentsDelta, CallStart, Event, PartAdded, ReasoningDelta, TextDelta
from ..security.escaping import NO_ESCAPER, choose_escaper
from ..types import Failure, Message, Note, Plan, Request, ToolChoice
from ..wires import EncodedRequest, StreamDecoder, Wire, get_wire
from ..wires.framing import encode_json
from . import constrained
from .context_window import choose_context_window
from .plan import DEFAULT_DIALECT, ModelProfile, involves_tools, plan_request
from .prompt import Prompting, foreign_texts
from .quirks import apply_quirks
from .reply_reader import CallExtractor, TextReader
from .roles import adapt_roles
from .tool_names import OfferedTools

_WORDS = frozenset({TextDelta, ReasoningDelta, CallStart, ArgumentsDelta, PartAdded})
"""What a model says, as it comes."""


class Attempt:
    """One request to one model, by one plan."""

    def __init__(
        self,
        request: Request,
        target: ModelProfile,
        plan: Plan | None = None,
        new_id: Callable[[], str] = new_call_id,
        begun: str = "",
        context: tuple[Message, ...] | None = None,
    ) -> None:
        self.request = request
        self._context = request.messages if context is None else context
        """What was said by others: a call that stands there is nobody's wish."""
        self._begun = begun
        """What an earlier reply has said of a call that this one is to go on with."""
        self.profile = target
        self.plan = plan or plan_request(request, target)
        self.offered = OfferedTools(request)
        self.escaping = NO_ESCAPER
        self.new_id = new_id
        self.wire: Wire = get_wire(target.wire)
        self._notes: tuple[Note, ...] = ()
        """What was changed before the wire had it."""
        self.model_request = self._for_model()
        """The request as the upstream gets it."""
        if self.model_request.model != target.model:
            self.model_request = structs.replace(self.model_request, model=target.model)
        self.outgoing = self._outgoing()
        self.data = encode_json(self.outgoing.body)
        """The body of what is sent."""

    @property
    def is_transparent(self) -> bool:
        """Whether the client may get the reply as it is: there is nothing to read in it, and it
        knows the API and the model by the same names."""
        request, target = self.request, self.profile
        same = (request.wire, request.model) == (target.wire, target.model)
        return same and not involves_tools(request)

    def passes(self, frame: Any) -> bool:
        """Whether the client may get a frame of such a reply: it asked for it itself."""
        return self.wire.is_frame_wanted(frame, self.request)

    def reader(self) -> ReplyReader:
        """For reading one reply."""
        return ReplyReader(self)

    def _outgoing(self) -> EncodedRequest:
        written = self.wire.encode_request(self.model_request)
        body, lost = apply_quirks(written.body, self.profile.quirks)
        if self.wire.set_context_window:
            context = self.profile.capabilities.context
            tokens = choose_context_window(body, self.model_request.max_tokens, context)
            body = self.wire.set_context_window(body, tokens) if tokens else body
        notes = (*self.request.notes, *self._notes, *written.notes, *lost)
        if body is written.body and notes == written.notes:
            return written
        return structs.replace(written, body=body, notes=notes)

    def _for_model(self) -> Request:
        if self.plan.mode == "native":
            return self._for_native()
        self.escaping = choose_escaper(self.request, foreign_texts(self.request))
        if self.plan.mode == "constrained":
            wanted = constrained.response_format(self.request, self.offered)
            # What is chosen among the tools and an answer should be likely, and no surprise.
            sampling = {"temperature": 0.0, **self.request.sampling}
            return structs.replace(self._as_chat(), response_format=wanted, sampling=sampling)
        try:
            return self._as_chat()
        except Unrepresentable as problem:
            reasons = (*self.plan.reasons, str(problem))
            self.plan = structs.replace(self.plan, dialect=DEFAULT_DIALECT, reasons=reasons)
            return self._as_chat()

    def _as_chat(self) -> Request:
        dialect = self.dialect or get_dialect(DEFAULT_DIALECT)
        prompting = Prompting(self.request, self.offered, dialect, self.escaping)
        self._notes = prompting.notes()
        return prompting.request(self.profile, examples=self.plan.mode == "prompt")

    def _for_native(self) -> Request:
        """In turns that the model's template takes. A choice that cannot be forced on a model while
        it thinks is enforced afterwards."""
        request = self.request
        messages, self._notes = adapt_roles(request.messages, self.profile)
        if self._notes:
            request = structs.replace(request, messages=messages)
        thinks = request.thinking.enabled and self.profile.wire == "anthropic"
        if thinks and request.tool_choice.mode == "required":
            return structs.replace(request, tool_choice=ToolChoice(names=request.tool_choice.names))
        return request

    @property
    def dialect(self) -> Dialect | None:
        """What the model is expected to write calls in."""
        if self.plan.mode == "constrained":
            return constrained.DIALECT
        return get_dialect(self.plan.dialect) if self.plan.dialect else None

    def text_reader(self) -> TextReader:
        """What finds the calls in the model's text."""
        parser = Parser(
            dialect=self.dialect or AUTO,
            tools=self.offered.tools,
            trust=self.profile.trust,
            context=self._context,
            reasoning_open=self.plan.reasoning_open,
            new_id=self.new_id,
        )
        # It goes on in the first text of the reply, if at all.
        begun, self._begun = self._begun, ""
        if begun:
            parser.feed(begun)
        is_constrained = self.plan.mode == "constrained"
        return constrained.ConstrainedReader(parser) if is_constrained else parser


class ReplyReader:
    """Reads the reply to an exchange: bytes in any pieces, or one value."""

    def __init__(self, exchange: Attempt) -> None:
        self._decoder = StreamDecoder(
            exchange.wire,
            exchange.outgoing.names,
            new_id=exchange.new_id,
            can_forward=exchange.passes if exchange.is_transparent else None,
        )
        reads_text = bool(exchange.offered.tools) or exchange.plan.mode != "native"
        self.understanding = CallExtractor(
            exchange.request,
            exchange.offered,
            exchange.escaping,
            exchange.text_reader if reads_text else None,
            exchange.new_id,
        )
        self.parse_body = exchange.wire.parse_reply_body
        """What the body of a whole reply holds."""
        self.decoded: list[Event] = []
        """What a whole reply says, or the last piece of one, before it is understood."""
        self.frames = 0
        """How many frames of a stream have come. Comments and white space are none."""
        self.is_complete = False
        """Whether a reply that is streamed is all there, even if its stream goes on."""

    @property
    def in_call(self) -> bool:
        """Whether a call has begun that is not over."""
        return self._decoder.is_in_call or self.understanding.in_call

    @property
    def has_content(self) -> bool:
        """Whether the model says something in the last piece, known or not what."""
        return not _WORDS.isdisjoint(map(type, self.decoded))

    def feed(self, data: bytes) -> list[Event]:
        """What more of a stream means."""
        decoder = self._decoder
        self.decoded = said = decoder.feed(data)
        self.frames, self.is_complete = decoder.frame_count, decoder.is_complete
        return self.read_events(said)

    def finish(self) -> list[Event]:
        """The stream is over."""
        self.decoded = said = self._decoder.finish()
        self.frames, self.is_complete = self._decoder.frame_count, self._decoder.is_complete
        return self.read_events(said)

    def take_unchanged(self) -> bytes:
        """What the client may get as it came."""
        passed, self._decoder.forwarded = self._decoder.forwarded, []
        return b"".join(passed)

    def fail(self, failure: Failure) -> list[Event]:
        """The stream has broken off."""
        return self.read_events([failure])

    def read_whole(self, body: Any) -> list[Event]:
        """What a reply means that came in one piece, as its API's `read` gives it."""
        self.decoded = self._decoder.feed_whole(body)
        return self.read_events(self.decoded)

    def read_events(self, events: Iterable[Event]) -> list[Event]:
        """What these events mean, by whatever way they came."""
        return self.understanding.feed(events)
