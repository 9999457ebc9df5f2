"""One request to one upstream: what is sent, and what is needed to read its reply.

    attempt = prepare_attempt(request, profile, plan)
    POST attempt.outgoing.path, attempt.data
    reader = ReplyReader(attempt)                        see reply_reader.py

`prompt` writes the conversation for a model without native tools, `constrained` the schema that
admits only valid calls, `roles` orders the messages for strict chat templates, and the upstream's
wire encodes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from ..calls.drafts import new_call_id
from ..dialects import Dialect
from ..dialects.registry import get_dialect
from ..errors import Unrepresentable
from ..security.escaping import NO_ESCAPER, Escaper, choose_escaper
from ..types import Message, Note, Plan, Request, ToolChoice
from ..wires import EncodedRequest, Wire, get_wire
from ..wires.framing import encode_json
from . import constrained
from .plan import (
    DEFAULT_DIALECT,
    ModelProfile,
    involves_tools,
    plan_request,
    plan_with_default_dialect,
)
from .prompt import PromptWriter, foreign_texts
from .roles import adapt_roles
from .tool_names import OfferedTools
from .upstream_limits import apply_quirks, choose_context_window


class Attempt(Struct, frozen=True, kw_only=True):
    """One request to one upstream, by one plan."""

    request: Request
    """The client's request, with the corrections of earlier attempts."""
    profile: ModelProfile
    plan: Plan
    tools: OfferedTools
    model_request: Request
    """The request as the model gets it: in prompt mode, plain chat."""
    outgoing: EncodedRequest
    """The same, encoded for the upstream's API."""
    data: bytes
    """The body to send."""
    escaper: Escaper
    context: tuple[Message, ...]
    """The client's own messages. Calls quoted in their results and documents are untrusted."""
    prefix: str
    """The beginning of a truncated call that this reply is to continue."""
    new_id: Callable[[], str]
    reason: str = ""
    """Why the model is asked again; "" for the first attempt."""
    is_preparation: bool = False
    """The reply prepares the request, and the client never sees it."""
    is_decided: bool = False
    """Nothing is to be sent: the calls are known already."""

    @property
    def wire(self) -> Wire:
        return get_wire(self.profile.wire)

    @property
    def dialect(self) -> Dialect | None:
        """The dialect in which the model is expected to write calls."""
        return _dialect_of(self.plan)

    @property
    def is_transparent(self) -> bool:
        """True if client and upstream share API and model name, and no tools are involved."""
        request, profile = self.request, self.profile
        is_same = (request.wire, request.model) == (profile.wire, profile.model)
        return is_same and not involves_tools(request)

    def may_forward(self, frame: Any) -> bool:
        """Return True if the client asked for this frame of a transparent reply."""
        return self.wire.is_frame_wanted(frame, self.request)


def prepare_attempt(
    request: Request,
    profile: ModelProfile,
    plan: Plan | None = None,
    *,
    context: tuple[Message, ...] | None = None,
    prefix: str = "",
    reason: str = "",
    is_preparation: bool = False,
    new_id: Callable[[], str] = new_call_id,
) -> Attempt:
    """Write `request` for a model and encode it for its upstream."""
    plan = plan or plan_request(request, profile)
    tools = OfferedTools(request)
    escaper = NO_ESCAPER
    if plan.mode == "native":
        model_request, notes = _write_native(request, profile)
    else:
        escaper = choose_escaper(request, foreign_texts(request))
        try:
            model_request, notes = _write_chat(request, profile, plan, tools, escaper)
        except Unrepresentable as problem:
            plan = plan_with_default_dialect(plan, str(problem))
            model_request, notes = _write_chat(request, profile, plan, tools, escaper)
    if model_request.model != profile.model:
        model_request = structs.replace(model_request, model=profile.model)
    outgoing = _encode(model_request, profile, (*request.notes, *notes))
    return Attempt(
        request=request,
        profile=profile,
        plan=plan,
        tools=tools,
        model_request=model_request,
        outgoing=outgoing,
        data=encode_json(outgoing.body),
        escaper=escaper,
        context=request.messages if context is None else context,
        prefix=prefix,
        new_id=new_id,
        reason=reason,
        is_preparation=is_preparation,
    )


def _dialect_of(plan: Plan) -> Dialect | None:
    if plan.mode == "constrained":
        return constrained.DIALECT
    return get_dialect(plan.dialect) if plan.dialect else None


def _write_native(request: Request, profile: ModelProfile) -> tuple[Request, tuple[Note, ...]]:
    messages, notes = adapt_roles(request.messages, profile)
    if notes:
        request = structs.replace(request, messages=messages)
    if profile.wire == "anthropic" and request.thinking.enabled:
        # Anthropic rejects a forced choice while the model thinks; it is enforced on the reply.
        choice = request.tool_choice
        if choice.mode == "required":
            request = structs.replace(request, tool_choice=ToolChoice(names=choice.names))
    return request, notes


def _write_chat(
    request: Request,
    profile: ModelProfile,
    plan: Plan,
    tools: OfferedTools,
    escaper: Escaper,
) -> tuple[Request, tuple[Note, ...]]:
    dialect = _dialect_of(plan) or get_dialect(DEFAULT_DIALECT)
    writer = PromptWriter(request, tools, dialect, escaper)
    chat = writer.write_request(profile, examples=plan.mode == "prompt")
    if plan.mode == "constrained":
        # The choice between tools and an answer should be the likeliest one, not a random one.
        sampling = {"temperature": 0.0, **request.sampling}
        wanted = constrained.build_response_format(request, tools)
        chat = structs.replace(chat, response_format=wanted, sampling=sampling)
    return chat, writer.notes()


def _encode(request: Request, profile: ModelProfile, notes: tuple[Note, ...]) -> EncodedRequest:
    wire = get_wire(profile.wire)
    encoded = wire.encode_request(request)
    body, dropped = apply_quirks(encoded.body, profile.quirks)
    if wire.set_context_window:
        window = choose_context_window(body, request.max_tokens, profile.capabilities.context)
        body = wire.set_context_window(body, window) if window else body
    notes = (*notes, *encoded.notes, *dropped)
    if body is encoded.body and notes == encoded.notes:
        return encoded
    return structs.replace(encoded, body=body, notes=notes)
