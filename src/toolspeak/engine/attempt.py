"""One request to one upstream: what is sent, and what is needed to read its reply.

    attempt = prepare_attempt(request, profile, plan)
    POST attempt.outgoing.path, attempt.data
    reader = ReplyReader(attempt)                        see reply_reader.py

`prompt` writes the conversation for a model without native tools, `constrained` the schema that
admits only valid calls, `roles` orders the messages for strict chat templates, and the upstream's
wire encodes the result. Then the provider's quirks are applied: fields that it rejects are renamed
or dropped.

Ollama and others silently truncate a prompt that does not fit the context, and with it the tools.
So an attempt asks for a context window that holds the prompt, and the number of tokens that the
upstream says it read shows whether the prompt was truncated.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs, to_builtins

from .._util import encode_json
from ..calls.json_values import iter_strings
from ..calls.resolution import new_call_id
from ..dialects import Dialect
from ..dialects.markers import get_dialect
from ..errors import Unrepresentable
from ..notes import NOTES
from ..security.escaping import NO_ESCAPER, Escaper, choose_escaper
from ..types import Message, Note, Plan, Quirks, Request, ToolChoice, Usage
from ..wires import EncodedRequest, Wire, get_wire
from ..wires.fields import Json
from . import constrained
from .plan import (
    DEFAULT_DIALECT,
    ModelProfile,
    OfferedTools,
    involves_tools,
    plan_request,
    plan_with_default_dialect,
)
from .prompt import PromptWriter, foreign_texts
from .roles import adapt_roles

FALLBACK = "fallback"
"""The reason for an attempt with another upstream: the previous one has failed."""
TOOLS_REJECTED = "tools rejected"
"""The reason for an attempt without native tools: the upstream rejected them."""
FIELD_REJECTED = "field rejected"
"""The reason for an attempt without some field: the upstream rejected it by name."""
UNSELECTED_TOOL = "unselected tool"
"""The reason for an attempt with all tools: the model called one that was not selected."""
PREPARATION = "tool selection"
"""The reason for a side question: the model selects the tools that it needs."""
DECISION = "decision"
"""The reason for a side question: a small model makes one decision on the way to its calls."""

_LETTERS = string.ascii_letters + string.digits
_MIN_CHARACTERS_PER_TOKEN = 3
"""Used to choose a window: too large is safer than too small."""
_MAX_CHARACTERS_PER_TOKEN = 8
"""Used to detect truncation: hardly any text has more characters per token."""
_DEFAULT_WINDOW, _REPLY_TOKENS = 4096, 2048
_MIN_READ_TOKENS = 1024
_LONGEST_WORD = 200
"""A longer string without a space is an image or another file."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One request to one upstream, made according to one plan."""

    request: Request
    """The client's request, with the corrections of earlier attempts."""
    profile: ModelProfile
    plan: Plan
    offered: OfferedTools
    model_request: Request
    """The request as the model gets it: in prompt mode, plain chat."""
    outgoing: EncodedRequest
    """The same, encoded for the upstream's API."""
    data: bytes
    """The body to send."""
    escaper: Escaper
    context: tuple[Message, ...]
    """The client's own messages. Calls in their tool results and documents are untrusted."""
    prefix: str
    """The beginning of a truncated call that this reply is to continue."""
    new_id: Callable[[], str]
    reason: str = ""
    """Why the model is asked again; "" for the first attempt."""
    is_side_question: bool = False
    """The reply prepares the request; the client never sees it."""
    is_decided: bool = False
    """The calls are known already, so the attempt is not sent."""

    @property
    def wire(self) -> Wire:
        return get_wire(self.profile.wire)

    @property
    def dialect(self) -> Dialect | None:
        """The dialect in which the model is expected to write calls."""
        return _dialect_of(self.plan)

    @property
    def read_dialects(self) -> tuple[Dialect, ...]:
        """All dialects in which the model may write calls, the expected one first."""
        names = () if self.profile.trust == "strict" else self.plan.other_dialects
        expected = (self.dialect,) if self.dialect else ()
        return (*expected, *map(get_dialect, names))

    @property
    def is_forwardable(self) -> bool:
        """True if client and upstream share API and model name, and no tools are involved."""
        request, profile = self.request, self.profile
        if self.plan.mode != "native" or involves_tools(request):
            return False
        return (request.wire, request.model) == (profile.wire, profile.model)

    def may_forward_frame(self, frame: Any) -> bool:
        """Return True if the client asked for this frame of a forwarded reply."""
        return self.wire.is_frame_wanted(frame, self.request)


def prepare_attempt(
    request: Request,
    profile: ModelProfile,
    plan: Plan | None = None,
    *,
    context: tuple[Message, ...] | None = None,
    prefix: str = "",
    reason: str = "",
    is_side_question: bool = False,
    new_id: Callable[[], str] = new_call_id,
) -> Attempt:
    """Write `request` for a model and encode it for its upstream."""
    plan = plan or plan_request(request, profile)
    tools = OfferedTools(request, profile.tool_aliases)
    escaper = NO_ESCAPER
    if plan.mode == "native":
        model_request, notes = _write_native(request, profile)
    else:
        escaper = choose_escaper(request, foreign_texts(request))
        try:
            model_request, notes = _write_chat(request, profile, plan, tools, escaper)
        except Unrepresentable as problem:
            changed = Note("dialect-changed", f"{NOTES['dialect-changed']} {problem}", problem.path)
            plan = plan_with_default_dialect(plan, str(problem))
            model_request, notes = _write_chat(request, profile, plan, tools, escaper)
            notes = (*notes, changed)
    if model_request.model != profile.model:
        model_request = structs.replace(model_request, model=profile.model)
    outgoing = _encode(model_request, profile, (*request.notes, *notes))
    return Attempt(
        request=request,
        profile=profile,
        plan=plan,
        offered=tools,
        model_request=model_request,
        outgoing=outgoing,
        data=encode_json(outgoing.body),
        escaper=escaper,
        context=request.messages if context is None else context,
        prefix=prefix,
        new_id=new_id,
        reason=reason,
        is_side_question=is_side_question,
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
        # Anthropic rejects a forced choice while the model thinks; the reply is checked instead.
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
    writer = PromptWriter(
        request, tools, dialect, escaper, keeps_cache_control=profile.has_cache_control
    )
    chat = writer.write_request(profile, examples=plan.mode == "prompt")
    if plan.mode == "constrained":
        # The choice between tools and an answer should be the likeliest one, not a random one.
        sampling = {"temperature": 0.0, **request.sampling}
        wanted = constrained.build_response_format(request, tools)
        chat = structs.replace(chat, response_format=wanted, sampling=sampling)
    return chat, writer.notes()


def _encode(request: Request, profile: ModelProfile, notes: tuple[Note, ...]) -> EncodedRequest:
    wire = get_wire(profile.wire)
    encoded = wire.encode_request(request, has_cache_control=profile.has_cache_control)
    body, dropped = apply_quirks(encoded.body, profile.quirks)
    if wire.set_context_window:
        window = choose_context_window(
            body, request.max_tokens, profile.capabilities.context_window
        )
        body = wire.set_context_window(body, window) if window else body
    notes = (*notes, *encoded.notes, *dropped)
    if body is encoded.body and notes == encoded.notes:
        return encoded
    return structs.replace(encoded, body=body, notes=notes)


# The provider's quirks.


def apply_quirks(body: Json, quirks: Quirks) -> tuple[Json, tuple[Note, ...]]:
    """Return the request as the provider accepts it, with a note for every dropped field."""
    if not (
        quirks.rename
        or quirks.replace
        or quirks.drop
        or quirks.drop_in_tools
        or _changes_messages(quirks)
    ):
        return body, ()
    out: Json = {}
    for key, value in body.items():
        if key not in quirks.drop:
            known = quirks.replace.get(key, {})
            changed = known.get(value, value) if isinstance(value, str) else value
            out[quirks.rename.get(key, key)] = changed
    messages, tools = body.get("messages"), body.get("tools")
    lost = [key for key in quirks.drop if key in body]
    if isinstance(messages, list) and _changes_messages(quirks):
        out["messages"] = [_adapt_message(message, quirks) for message in messages]
        lost += _find_lost(messages, quirks.drop_in_messages, "messages")
    if isinstance(tools, list) and quirks.drop_in_tools:
        out["tools"] = [_drop_in_tool(tool, quirks.drop_in_tools) for tool in tools]
        functions = (tool.get("function") or {} for tool in tools)
        lost += _find_lost([*tools, *functions], quirks.drop_in_tools, "tools")
    notes = (
        Note("unsupported", f"this provider does not support `{key}`; dropped", f"$.{key}")
        for key in lost
    )
    return out, tuple(notes)


def _find_lost(objects: list[Json], keys: tuple[str, ...], field: str) -> list[str]:
    return [f"{field}[].{key}" for key in keys if any(key in one for one in objects)]


def _drop_in_tool(tool: Json, keys: tuple[str, ...]) -> Json:
    out = {key: value for key, value in tool.items() if key not in keys}
    if isinstance(function := out.get("function"), dict):
        out["function"] = {key: value for key, value in function.items() if key not in keys}
    return out


def _changes_messages(quirks: Quirks) -> bool:
    return bool(quirks.drop_in_messages or quirks.call_id_length or quirks.think_tags)


def _adapt_message(message: Json, quirks: Quirks) -> Json:
    if quirks.think_tags and message.get("reasoning_content"):
        message = _move_reasoning_to_content(message)
    out = {key: value for key, value in message.items() if key not in quirks.drop_in_messages}
    return _fit_call_ids(out, quirks.call_id_length) if quirks.call_id_length else out


def _move_reasoning_to_content(message: Json) -> Json:
    out = dict(message)
    text = f"<think>\n{out.pop('reasoning_content')}\n</think>\n\n"
    content = out.get("content")
    if isinstance(content, list):
        out["content"] = [{"type": "text", "text": text}, *content]
    else:
        out["content"] = text + (content or "")
    return out


def _fit_call_ids(message: Json, length: int) -> Json:
    """Give the calls of a message ids of this length; a call and its result get the same id."""
    out = dict(message)
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [{**call, "id": _fit_id(call["id"], length)} for call in calls]
    if answered := message.get("tool_call_id"):
        out["tool_call_id"] = _fit_id(answered, length)
    return out


def _fit_id(identity: str, length: int) -> str:
    if len(identity) == length and set(identity) <= set(_LETTERS):
        return identity
    digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=32).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)[:length]


# The context window.


def fits_context_window(request: Request, context_window: int | None) -> bool:
    """Return True if the request certainly fits: no token is shorter than a byte."""
    content = to_builtins((request.messages, request.tools or ()))
    return context_window is None or len(encode_json(content)) <= context_window


def choose_context_window(body: Any, max_tokens: int | None, known: int | None) -> int | None:
    """Return the context window to ask for, in tokens; None if every server's default is enough.

    It is a power of two, because a server reloads its model for each different size.
    """
    if known is not None:
        return known
    reply = min(max_tokens or _REPLY_TOKENS, _REPLY_TOKENS)
    needed = _count_characters(body) // _MIN_CHARACTERS_PER_TOKEN + reply
    window = _DEFAULT_WINDOW
    while window < needed:
        window *= 2
    return window if window > _DEFAULT_WINDOW else None


def note_truncated_prompt(body: Any, data: bytes, usage: Usage | None) -> Note | None:
    """Return a note if the upstream read far fewer tokens than the request has."""
    read = usage.input + usage.cached if usage else 0
    if read < _MIN_READ_TOKENS:
        # Some upstreams count only uncached tokens, which may be next to none.
        return None
    if read >= len(data) // _MAX_CHARACTERS_PER_TOKEN:
        # There are no more characters than bytes, and counting them takes longer.
        return None
    least = _count_characters(body) // _MAX_CHARACTERS_PER_TOKEN
    if read >= least:
        return None
    message = (
        f"The prompt has at least {least} tokens, but the upstream read only {read}, so the "
        "beginning of the prompt was lost. Give the model a larger context window on its server."
    )
    return Note("prompt-truncated", message)


def _count_characters(body: Any) -> int:
    strings = iter_strings(body)
    return sum(len(text) for text in strings if len(text) < _LONGEST_WORD or " " in text)
