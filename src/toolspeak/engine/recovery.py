"""Recovery: what the model is asked next when its reply, or its upstream, has failed.

    outcome of the reply     ->  the first step of RECOVERY_STEPS that is possible, then the next
    upstream rejects a field ->  the same request once more, without that field
    upstream rejects tools   ->  the same request once more, with the tools in the prompt

Each step changes the request or the plan of the next attempt. A correction tells the model what was
wrong; the second one is shorter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import structs

from .._util import format_json
from ..calls.schema import get_properties, get_required
from ..dialects import Dialect, render_calls
from ..errors import Unrepresentable, UpstreamError
from ..types import (
    Failure,
    Message,
    Note,
    Plan,
    Rejection,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
)
from .attempt import (
    FIELD_REJECTED,
    TOOLS_REJECTED,
    UNSELECTED_TOOL,
    Attempt,
    prepare_attempt,
)
from .holdback import SentState
from .outcome import OUTCOMES, Outcome, OutcomeKind
from .plan import ModelProfile, OfferedTools, involves_tools, plan_with_mode
from .rejected_fields import FieldChange, find_rejected_field

Step = Literal["correct", "continue", "constrain", "prompt", "reformat"]
STEPS: dict[Step, str] = {
    "correct": "tells the model what was wrong",
    "continue": "asks the model to continue where it stopped",
    "constrain": "constrains the reply to a JSON schema for its calls",
    "prompt": "describes the tools in the prompt, not through the API",
    "reformat": "asks for the answer again, in the requested format and without tools",
}
"""Descriptions of the steps; each completes "the next attempt …"."""
RECOVERY_STEPS: dict[OutcomeKind, tuple[Step, ...]] = {
    "invalid-call": ("correct", "constrain", "prompt", "correct"),
    "unknown-tool": ("correct", "constrain", "prompt", "correct"),
    "missing-call": ("constrain", "prompt", "correct", "correct"),
    "false-refusal": ("correct", "constrain", "prompt", "correct"),
    "truncated-call": ("continue", "correct", "prompt", "correct"),
    "near-call": ("correct", "prompt"),
    "repeated-call": ("correct", "correct"),
    "wrong-format": ("reformat",),
    "empty": ("correct", "prompt", "correct"),
}
"""The steps for each outcome that is a fault, in order. Other outcomes need no recovery."""
_MAX_FIELD_CHANGES = 8
"""Upstreams name one field at a time, and agents send many."""
_IGNORES_TOOLS = frozenset[OutcomeKind](
    kind for kind, steps in RECOVERY_STEPS.items() if "prompt" in steps
)
"""Outcomes of a native model that seems not to have seen its tools, unless it has called one."""


class Recovery:
    """The attempts with one model: the plan, the outcomes so far, and what to ask next."""

    def __init__(self, request: Request, profile: ModelProfile, plan: Plan, reason: str) -> None:
        self.request = request
        """The client's request, with the tools that were selected for it."""
        self._declared_tools = request.tools or ()
        self.profile = profile
        self.plan = plan
        self.outcomes: list[Outcome] = []
        self.is_reformatting = False
        self.tools_error: UpstreamError | None = None
        """The upstream's error when it rejected native tools."""
        self.has_structured_calls = False
        """A reply had calls that came through the API, even if they were rejected."""
        self.has_left_native = False
        """The model ignored its native tools, so later attempts use another mode."""
        self.field_changes: list[FieldChange] = []
        """The fields that the upstream rejected, each of which was dropped or renamed."""
        self._reason = reason
        self._next_request = request
        self._prefix = ""
        self._next_steps: dict[OutcomeKind, int] = {}
        """For each outcome, the index of the step to try next."""

    def prepare_next(self) -> Attempt:
        """Return the next attempt."""
        return prepare_attempt(
            self._next_request,
            self.profile,
            self.plan,
            # Without the corrections, which quote the model.
            context=self.request.messages,
            prefix=self._prefix,
            reason=self._reason,
        )

    def use_request(self, request: Request, reason: str | None = None) -> None:
        """Ask with another selection of tools; earlier corrections are dropped."""
        self.request = self._next_request = request
        self._prefix = ""
        if reason is not None:
            self._reason = reason

    # After a reply.

    def plan_retry(
        self, outcome: Outcome, reply: Reply, attempt: Attempt, sent: SentState
    ) -> Note | None:
        """Choose a step for the next attempt and return a note about it; None if none is left."""
        self.outcomes.append(outcome)
        step = self._choose_step(outcome, attempt, sent)
        if step is None:
            return None
        self._reason, self._prefix = outcome.kind, ""
        self._take_step(step, outcome, reply, attempt)
        message = f"{OUTCOMES[outcome.kind]}: the next attempt {STEPS[step]}"
        return Note("retried", message, outcome.kind)

    def _choose_step(self, outcome: Outcome, attempt: Attempt, sent: SentState) -> Step | None:
        is_exhausted = len(self.outcomes) > self.profile.retries
        needs_tools = outcome.kind != "wrong-format"
        has_tools = bool(attempt.offered.allowed)
        if is_exhausted or sent.has_signed_reasoning or (needs_tools and not has_tools):
            return None
        steps = RECOVERY_STEPS.get(outcome.kind, ())
        for index in range(self._next_steps.get(outcome.kind, 0), len(steps)):
            if self._can_take(steps[index], outcome, sent):
                self._next_steps[outcome.kind] = index + 1
                return steps[index]
        return None

    def _can_take(self, step: Step, outcome: Outcome, sent: SentState) -> bool:
        match step:
            case "correct":
                return True
            case "continue":
                return self.plan.mode != "native" and bool(outcome.rejected)
            case "constrain":
                can = self.profile.capabilities.constrained is True
                return can and self.plan.mode != "constrained"
            case "prompt":
                return self.plan.mode == "native" and not self.has_structured_calls
            case "reformat":
                return not sent.has_text

    def _take_step(self, step: Step, outcome: Outcome, reply: Reply, attempt: Attempt) -> None:
        match step:
            case "reformat":
                self.is_reformatting = True
                self._add_turn(reply, REFORMAT)
                self._next_request = structs.replace(
                    self._next_request, tools=None, tool_choice=ToolChoice()
                )
            case "constrain" | "prompt":
                is_native = self.plan.mode == "native"
                ignores_tools = outcome.kind in _IGNORES_TOOLS and not self.has_structured_calls
                self.has_left_native |= is_native and ignores_tools
                mode = "constrained" if step == "constrain" else "prompt"
                self.plan = plan_with_mode(self.profile, mode, OUTCOMES[outcome.kind])
                self._next_request = self.request
            case "continue":
                self._prefix = outcome.rejected[-1].raw
                self._add_turn(reply, CONTINUE)
            case "correct":
                taken = RECOVERY_STEPS[outcome.kind][: self._next_steps[outcome.kind] - 1]
                dialect = None if self.plan.mode == "native" else attempt.dialect
                is_second = "correct" in taken
                self._add_turn(
                    reply, write_correction(outcome, attempt.offered, dialect, is_second=is_second)
                )

    def _add_turn(self, reply: Reply, correction: str) -> None:
        """Append the model's reply and a message about it to the conversation."""
        turn = (
            Message("assistant", (Text(reply.text.strip() or "…"),)),
            Message("user", (Text(correction),)),
        )
        messages = (*self.request.messages, *turn)
        self._next_request = structs.replace(self.request, messages=messages)

    def plan_with_all_tools(self, outcome: Outcome, sent: SentState) -> bool:
        """Offer all tools again if the model called one that exists but was not selected. Return
        True if it did."""
        selected, declared = self.request.tools or (), self._declared_tools
        if outcome.kind != "unknown-tool" or sent.has_text or len(selected) == len(declared):
            return False
        if not any(one.name == tool.name for one in outcome.rejected for tool in declared):
            return False
        self.use_request(structs.replace(self.request, tools=declared), UNSELECTED_TOOL)
        return True

    # After a failure of the upstream.

    def plan_without_field(self, attempt: Attempt, problem: UpstreamError) -> Note | None:
        """Drop or rename the field that the upstream rejected by name; return a note if so."""
        change = find_rejected_field(problem.failure, attempt.outgoing.body)
        known = {one.name for one in self.field_changes}
        if change is None or len(known) >= _MAX_FIELD_CHANGES:
            return None
        if {change.name, change.replacement} & known:
            # The upstream takes neither of its names.
            return None
        self.field_changes.append(change)
        self.profile = structs.replace(self.profile, quirks=change.apply(self.profile.quirks))
        self._reason = FIELD_REJECTED
        return Note("field-rejected", change.describe(), f"$.{change.name}")

    def plan_without_native_tools(self, attempt: Attempt, problem: UpstreamError) -> bool:
        """Move the tools into the prompt if the upstream rejected them; once. Return True if so."""
        is_first = self.tools_error is None and self.profile.mode == "auto"
        if not is_first or not is_tool_rejection(attempt, problem.failure):
            return False
        # Without the traceback, which refers to this object.
        self.tools_error = UpstreamError(problem.failure, problem.headers)
        self._reason = TOOLS_REJECTED
        self.plan = plan_with_mode(self.profile, "prompt", "the upstream rejected native tools")
        return True


# Upstreams that reject tools.

_ABOUT_TOOLS = re.compile(
    r"(?:\b|_)(?:tool|function(?!al))|roles must alternate|roles? (?:is|are) (?:not )?supported",
    re.I,
)
"""Error texts about tools, or about the roles that only calls and results need."""
_ABOUT_THESE_TOOLS = re.compile(
    r"schema|preced|be followed|match|pattern|maximum|too (?:many|long)|duplicate|unique|_id\b",
    re.I,
)
"""Error texts about the tools or calls of one request: others may be accepted."""
_ABOUT_A_FIELD = re.compile(r"parallel_tool_calls|tool_choice|tools?[\[.][\w\].]*strict", re.I)
"""Names of fields next to the tools. An error about such a field says nothing about tools."""
REJECTION_STATUSES = frozenset({400, 404, 405, 415, 422, 500, 501})
"""Statuses that may mean that the upstream does not support the request; others never do."""


def is_tool_rejection(attempt: Attempt, failure: Failure) -> bool:
    """Return True if the upstream rejected an attempt because of its native tools."""
    has_tools = attempt.plan.mode == "native" and involves_tools(attempt.request)
    return has_tools and rejects_tools(failure)


def rejects_tools(failure: Failure) -> bool:
    """Return True if a failure is about tools. Too many tokens say nothing about tools as such."""
    return _may_reject(failure) and _ABOUT_TOOLS.search(_error_text(failure)) is not None


def rejects_all_tools(failure: Failure) -> bool:
    """Return True if a failure is about tools as such, and not about these ones or one field."""
    if not _may_reject(failure) or _ABOUT_THESE_TOOLS.search(failure.message):
        return False
    return _ABOUT_TOOLS.search(_ABOUT_A_FIELD.sub("", _error_text(failure))) is not None


def _may_reject(failure: Failure) -> bool:
    return failure.kind != "context_length" and failure.status in REJECTION_STATUSES


def _error_text(failure: Failure) -> str:
    return f"{failure.message} {failure.param or ''} {failure.code or ''}"


# Corrections.

CORRECTIONS: dict[OutcomeKind, tuple[str, str]] = {
    "invalid-call": (
        "Your call was not run. {problems}\nCorrect this and call the tool again.{schemas}",
        "Your call is invalid. {problems}\nCorrect this and call again.",
    ),
    "unknown-tool": (
        "Your call was not run. {problems}\nCall one of these tools: {tools}.",
        "Only these tools exist: {tools}.",
    ),
    "missing-call": (
        "You must call one of these tools now: {tools}.",
        "Do not answer in text. Call one of these tools: {tools}.",
    ),
    "false-refusal": (
        "You have tools for this task. They do the work for you.\n"
        "Call one of these tools now: {tools}.",
        "Call one of these tools: {tools}.",
    ),
    "truncated-call": (
        "Your call was cut off and not run.\nCall the tool again with shorter values.",
        "Your call was cut off again. Use shorter values.",
    ),
    "near-call": (
        "Your call was not run: it was not in the form of a tool call.\nCall the tool again.",
        "Your call was not in the form of a tool call. Call the tool again.",
    ),
    "repeated-call": (
        "You made this call several times, and its result has not changed. Do not "
        "repeat it.\nUse the result you have, try something else, or answer the user.",
        "Do not repeat that call. Answer the user with what you know.",
    ),
    "empty": (
        "Your reply was empty.\nCall a tool or answer the user.",
        "Answer the user.",
    ),
}
"""The first and the second correction for each outcome."""
CONTINUE = "Continue exactly where you stopped. Do not repeat or explain anything."
REFORMAT = (
    "Your answer is not in the requested format. Write only the JSON, without any other text."
)
_NO_PROSE = "Do not explain anything."
_CALL_ONLY = "Write only the call."
_CALL_FORM = "Write only the call, in this form, with the tool's name and your values:\n{form}"
_ANSWERABLE_OUTCOMES = frozenset[OutcomeKind]({"repeated-call", "empty"})
"""Outcomes after which the model may also answer in text."""
_MAX_PROBLEMS = 5
_MAX_SCHEMA_LENGTH = 1500


def write_correction(
    outcome: Outcome, offered: OfferedTools, dialect: Dialect | None, *, is_second: bool
) -> str:
    """Return the correction for `outcome`.

    It shows the form of a call in `dialect`; None means that the API has structured calls.
    """
    rejected_tools = _find_rejected_tools(outcome.rejected, offered.allowed)
    message = CORRECTIONS[outcome.kind][is_second].format(
        problems=" ".join(_list_problems(outcome.rejected)),
        tools=", ".join(tool.name for tool in offered.allowed),
        schemas=_list_schemas(rejected_tools),
    )
    if outcome.kind in _ANSWERABLE_OUTCOMES:
        return message
    lines = [message, _NO_PROSE] if is_second else [message]
    if dialect:
        tool = rejected_tools[0] if rejected_tools else None
        lines.append(_CALL_FORM.format(form=_render_form(tool, offered.allowed, dialect)))
    elif is_second:
        lines.append(_CALL_ONLY)
    return "\n".join(lines)


def _find_rejected_tools(rejected: Sequence[Rejection], tools: Sequence[Tool]) -> list[Tool]:
    names = {rejection.name for rejection in rejected}
    return [tool for tool in tools if tool.name in names]


def _list_problems(rejected: Iterable[Rejection]) -> list[str]:
    problems = (f"{one.name or 'Problem'}: {one.problem.rstrip('.')}." for one in rejected)
    return list(dict.fromkeys(problems))[:_MAX_PROBLEMS]


def _list_schemas(tools: Sequence[Tool]) -> str:
    if not tools:
        return ""
    schemas = [
        f"{tool.name}: {format_json(tool.parameters)[:_MAX_SCHEMA_LENGTH]}" for tool in tools
    ]
    return "\n".join(("\nParameters:", *schemas))


def _render_form(tool: Tool | None, tools: Sequence[Tool], dialect: Dialect) -> str:
    """Return a sample call to `tool`. Its values are dots, so that no model copies them."""
    shown = tool or tools[0]
    parameters = get_required(shown.parameters) or list(get_properties(shown.parameters))[:1]
    name = shown.name if tool or len(tools) == 1 else "NAME"
    call = ToolCall(id="call_1", name=name, arguments=dict.fromkeys(parameters, "..."))
    try:
        return render_calls(dialect, [call], tools)
    except Unrepresentable:
        return f"a call to {name}"
