"""A small model, led through a request: held to a schema for decisions, else left to answer.

What to ask is `guided`'s to know; here it becomes requests, and what comes of them calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from ..calls.resolution import new_call_id
from ..events import ArgumentsDelta, CallEnd, CallStart, Event
from ..security.escaping import NO_ESCAPER
from ..security.message_origin import last_user_text
from ..types import Message, Plan, Request, ResponseFormat, Text, ToolCall, ToolChoice, ToolResult
from .attempt import DECISION, Attempt, prepare_attempt
from .guided import Guide, Step
from .plan import ModelProfile, OfferedTools, plan_request
from .reply_reader import CallExtractor

_ONE_DECISION = "a small model is led to its calls: one decision at a time"
_NO_CALL = "a small model is led to its calls, and none of the tools fits what was asked"
_CLEAR = "a small model is led to its calls, and all that they need stands in the question"
_DECIDED = "a small model is led to its calls, and has made all decisions that they need"
_RESULTS = "a small model is led: it has results to tell of, and is asked for words only"
_MOST_STEPS = 16
"""How many times a model is asked for one request; after that, the calls so far are all."""
_USE_RESULTS = "Answer the question with it."
_MOST_TOKENS = 600
"""How long the answer to one of those may be."""


class Led:
    """One request to a small model."""

    def __init__(self, request: Request, target: ModelProfile) -> None:
        self._request = request
        self._target = target
        self._offered = OfferedTools(request)
        self._steps = 0
        self._guide = self._begun()

    @property
    def is_asking(self) -> bool:
        """Whether the model has another decision to make, before it is known what it calls."""
        return self._step is not None

    @property
    def was_asked(self) -> bool:
        """Whether the model has made any decision."""
        return self._steps > 0

    @property
    def _step(self) -> Step | None:
        return self._guide.step if self._guide and self._steps < _MOST_STEPS else None

    def prepare_next(self) -> Attempt:
        """Return the attempt for the next decision; else for an answer; if the calls are known, an
        attempt that is not sent."""
        step = self._step
        if step is None:
            answer = self._answer()
            if self.calls():
                plan = Plan("constrained", reasons=(_DECIDED if self._steps else _CLEAR,))
                reason = "decided" if self._steps else "known"
                return structs.replace(answer, plan=plan, reason=reason, is_decided=True)
            return answer
        schema = ResponseFormat(step.schema, "arguments", strict=True)
        request = Request(
            model=self._request.model,
            messages=self._turns(step),
            response_format=schema,
            max_tokens=_MOST_TOKENS,
            sampling={"temperature": 0.0},
        )
        plan = Plan("native", reasons=(_ONE_DECISION,))
        return prepare_attempt(request, self._target, plan, reason=DECISION, is_side_question=True)

    def hear(self, text: str) -> bool:
        """What the model has decided; False if that cannot be used."""
        said = _object_in(text)
        wanted = self._step.schema["properties"] if self._step else {}
        if self._guide is None or not wanted.keys() <= said.keys():
            return False
        self._steps += 1
        self._guide.hear(said)
        return True

    def calls(self) -> list[Event]:
        """The calls that the model makes, as far as they fit, when all is decided; none, if it is
        to answer."""
        if self.is_asking:
            return []
        understanding = CallExtractor(self._request, self._offered, NO_ESCAPER, None, new_call_id)
        events: list[Event] = []
        for at, (tool, arguments) in enumerate(self._guide.calls if self._guide else ()):
            written = ToolCall(id=new_call_id(), name=tool.name, arguments=arguments)
            call = self._offered.to_client_call(written)
            start = CallStart(at, call.id, call.name, "constrained", call.namespace, call.freeform)
            events += understanding.feed((start, ArgumentsDelta(at, call.input), CallEnd(at, call)))
        return events if understanding.count else []

    def _begun(self) -> Guide | None:
        """Results are there to be told of, unless a call is required."""
        request = self._request
        must = request.tool_choice.mode == "required"
        if not self._offered.allowed or (_brings_results(request.messages) and not must):
            return None
        return Guide(last_user_text(request.messages), self._offered.allowed, must=must)

    def _answer(self) -> Attempt:
        """The request without its tools, of which nothing comes but words."""
        request = structs.replace(self._request, tools=None, tool_choice=ToolChoice())
        why = _NO_CALL
        if _brings_results(request.messages):
            why = _RESULTS
            # What was found is to be told, and not to be made up.
            sampling = {"temperature": 0.0, **request.sampling}
            messages = _in_words(request.messages)
            request = structs.replace(request, messages=messages, sampling=sampling)
        by_prompt = structs.replace(self._target, mode="prompt", learned_mode=None)
        plan = plan_request(request, by_prompt)
        plan = structs.replace(plan, reasons=(why, *plan.reasons))
        return prepare_attempt(request, self._target, plan)

    def _turns(self, step: Step) -> tuple[Message, ...]:
        if self._target.capabilities.system_role is False:
            return (Message("user", (Text(f"{step.system}\n\n{step.user}"),)),)
        return (Message("system", (Text(step.system),)), Message("user", (Text(step.user),)))


def _brings_results(messages: Sequence[Message]) -> bool:
    last = messages[-1].parts if messages else ()
    return any(isinstance(part, ToolResult) for part in last)


def _in_words(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The conversation with its last question and what tools have given for it in one turn: calls
    and results in any notation are more than such a model understands."""
    question = last_user_text(messages)
    asking = [at for at, one in enumerate(messages) if one.role == "user" and _text_of(one)]
    if not asking:
        return messages
    given = (part for message in messages[asking[-1] :] for part in message.parts)
    told = [_told(part) for part in given if isinstance(part, ToolResult)]
    turn = "\n\n".join((question, *told, _USE_RESULTS))
    return (*messages[: asking[-1]], Message("user", (Text(turn),)))


def _text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _told(result: ToolResult) -> str:
    gave = "has failed" if result.is_error else "gave this result"
    return f"{result.name} {gave}:\n{result.text}"


def _object_in(text: str) -> dict[str, Any]:
    """The object that a model was held to; nothing if its reply was cut off in it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
