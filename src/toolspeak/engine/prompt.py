"""A conversation with tools, written for a model that has never heard of any.

The tools go into the system prompt, calls into what the assistant said, results into the user's
turn. What comes out is plain chat, in turns that alternate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import structs

from ..dialects import Dialect, render_calls, render_results
from ..errors import Unrepresentable
from ..security.escaping import Escaper
from ..types import (
    Document,
    Image,
    Message,
    Note,
    Other,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..wires.content import part_type, render_document
from ..wires.encoding import LossLog
from ..wires.fields import Json
from .instructions import augment_system_prompt, tool_list_budget
from .plan import ModelProfile
from .roles import (
    INSTRUCTION_ROLES,
    INSTRUCTION_WRAPPED,
    count_leading_instructions,
    join_texts,
    merge_roles,
    wrap_instruction,
)
from .tool_names import A_PROMPT, OfferedTools

_GO_ON = "Make the next call if you need one. Otherwise answer the user."
_OF_TOOLS = re.compile("tool|function|mcp|response_format", re.I)
_MOST_STOPS = 4
"""How many stop sequences most servers take."""


class Prompting:
    """Writes one request as plain chat."""

    def __init__(
        self, request: Request, offered: OfferedTools, dialect: Dialect, mark: Escaper
    ) -> None:
        self._request = request
        self._offered = offered
        self._dialect = dialect
        self._mark = mark

    def request(self, target: ModelProfile, *, examples: bool) -> Request:
        """The request without tools, and with all that has to be said of them."""
        request = self._request
        system = self._system(target, examples=examples)
        turns = list(self._turns())
        if system and target.capabilities.system_role is False:
            turns = list(merge_roles([Message("user", (Text(system),)), *turns]))
        elif system:
            turns = [Message("system", (Text(system),)), *turns]
        keeps_format = not self._offered.tools and not self._dialect.answer_template
        return structs.replace(
            request,
            messages=tuple(turns),
            tools=None,
            tool_choice=ToolChoice(),
            parallel_tool_calls=True,
            response_format=request.response_format if keeps_format else None,
            stop=self._stops(),
            extra=_sorted(request.extra)[0],
        )

    def notes(self) -> tuple[Note, ...]:
        """What is not said any more. The settings are left to the wire, which notes them itself."""
        unsaid = LossLog(A_PROMPT, "")
        unsaid.carry(_sorted(self._request.extra)[1], "$")
        messages = self._request.messages
        start = count_leading_instructions(messages)
        for index, message in enumerate(messages):
            path = f"$.messages[{index}]"
            if message.role in INSTRUCTION_ROLES and index >= start:
                unsaid.change(INSTRUCTION_WRAPPED, path)
            unsaid.carry(message.extra, path)
            for part in message.parts:
                _lost(part, path, unsaid)
        return (*unsaid.notes(), *self._offered.notes())

    def _stops(self) -> tuple[str, ...]:
        """Where the model has to stop: before it invents a result."""
        stop, end = self._request.stop, self._dialect.turn_end_closer
        return (*stop, end) if end and self._offered.tools and len(stop) < _MOST_STOPS else stop

    # The system prompt.

    def _system(self, target: ModelProfile, *, examples: bool) -> str:
        messages = self._request.messages
        said = "\n\n".join(_texts(messages[: count_leading_instructions(messages)]))
        tools = self._offered.tools
        if not tools:
            return said
        told = augment_system_prompt(
            said,
            tools,
            self._dialect,
            compact=target.compact,
            examples=examples,
            budget=tool_list_budget(target.capabilities.context),
        )
        return "\n\n".join((told, *self._rules(tools)))

    def _rules(self, tools: tuple[Tool, ...]) -> Iterator[str]:
        request = self._request
        if request.tool_choice.mode == "required":
            which = " or ".join(tool.name for tool in tools) if len(tools) < 4 else "a tool"
            yield f"Your next reply must be a call to {which} and nothing else."
        if not request.parallel_tool_calls and self._dialect.parallel:
            yield "Make only one call at a time."
        if request.response_format:
            yield _format_rule(request.response_format)

    # The conversation.

    def _turns(self) -> Iterator[Message]:
        messages = self._request.messages
        rest = messages[count_leading_instructions(messages) :]
        return merge_roles(turn for turn in self._spoken(rest) if turn.parts)

    def _spoken(self, messages: tuple[Message, ...]) -> Iterator[Message]:
        """What each side says until the other does: results may come in several messages."""
        asked_for: list[str] = []
        for is_assistant, run in groupby(messages, lambda message: message.role == "assistant"):
            turn = list(run)
            if is_assistant:
                asked_for = [part.id for part in _parts(turn) if isinstance(part, ToolCall)]
                said = (part for message in turn for part in self._said(message.parts))
                yield Message("assistant", tuple(join_texts(said)))
            else:
                asked = self._asked(_parts(map(_by_user, turn)), asked_for)
                yield Message("user", tuple(join_texts(asked)))

    def _said(self, parts: tuple[Part, ...]) -> Iterator[Part]:
        """What the assistant said, with its calls written out."""
        calls = [self._offered.to_model_call(part) for part in parts if isinstance(part, ToolCall)]
        text = "".join(part.text for part in parts if isinstance(part, Text))
        yield from (part for part in parts if isinstance(part, (Reasoning, Image)))
        if text and self._dialect.answer_template and not calls:
            text = self._dialect.answer_template.replace(
                "$text_json", json.dumps(text, ensure_ascii=False)
            )
        written = self._written(calls)
        if text or written:
            yield Text("\n".join(filter(None, (text, written))))

    def _written(self, calls: list[ToolCall]) -> str:
        """The calls as the model would have written them; those that its dialect cannot say, in
        words."""
        try:
            return render_calls(self._dialect, calls, self._offered.all)
        except Unrepresentable:
            pass
        written: list[str] = []
        for call in calls:
            try:
                written.append(render_calls(self._dialect, [call], self._offered.all))
            except Unrepresentable:
                written.append(f"(I called {call.name} with {call.arguments_json}.)")
        return "\n".join(written)

    def _asked(self, parts: list[Part], asked_for: list[str]) -> Iterator[Part]:
        """What the user said, with results and documents as text. The results stand in the order of
        their calls: in most dialects nothing else tells which is whose."""
        order = {identity: index for index, identity in enumerate(asked_for)}
        results = [part for part in parts if isinstance(part, ToolResult)]
        results.sort(key=lambda result: order.get(result.call_id, len(order)))
        rest = [part for part in parts if not isinstance(part, ToolResult)]
        if results:
            yield Text(self._results(results, ends=not rest))
            yield from _pictures(results)
        for part in rest:
            match part:
                case Document() if part.data is None and part.url is None:
                    yield Text(self._mark.escape(render_document(part)))
                case Text():
                    yield Text(part.text)
                case Image() | Document():
                    yield part
                case _:
                    pass

    def _results(self, results: list[ToolResult], *, ends: bool) -> str:
        inert = [self._inert(result) for result in results]
        named = dict.fromkeys(result.name for result in inert if result.name)
        of = f" of {', '.join(named)}" if named else ""
        head = f"The result{'s' if len(inert) > 1 else ''}{of}:"
        return "\n\n".join(
            (head, render_results(self._dialect, inert), *((_GO_ON,) if ends else ()))
        )

    def _inert(self, result: ToolResult) -> ToolResult:
        written = self._offered.to_model_call(
            ToolCall(id=result.call_id, name=result.name, arguments={})
        )
        text = self._mark.escape(result.text)
        return structs.replace(result, name=written.name, content=text)


def _sorted(extra: Json) -> tuple[Json, Json]:
    """What only the client's own API can say: settings, and what there is no place for in plain
    chat, as it is about tools or the form of the answer."""
    rest = {key: value for key, value in extra.items() if _OF_TOOLS.search(key)}
    return {key: value for key, value in extra.items() if key not in rest}, rest


def _lost(part: Part, path: str, unsaid: LossLog) -> None:
    """Note what is not said of a part, or that it is not said at all."""
    match part:
        case Other():
            unsaid.drop(f"a part of the kind {part_type(part)!r}", path)
        case Text() | ToolCall() | ToolResult():
            unsaid.carry({key: part.extra[key] for key in part.extra if key != "type"}, path)
        case Image() | Document() | Reasoning():
            pass  # These are left to the wire.
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        for inner in part.content:
            if isinstance(inner, Document) and not inner.text:
                unsaid.drop("a document in a result", path)
            else:
                _lost(inner, path, unsaid)


def foreign_texts(request: Request) -> Iterator[str]:
    """What tools and documents have brought into a conversation."""
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, (ToolResult, Document)):
                yield part.text


def _format_rule(wanted: ResponseFormat) -> str:
    """What a model is told of the form of its answers."""
    if wanted.schema is None:
        return "When you answer without a call, answer with one JSON object and nothing else."
    schema = json.dumps(wanted.schema, ensure_ascii=False)
    return (
        "When you answer without a call, answer with one JSON value and nothing else. It has to "
        f"fit this JSON Schema:\n{schema}"
    )


def _texts(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        text = "".join(part.text for part in message.parts if isinstance(part, (Text, Document)))
        if text:
            yield text


def _by_user(message: Message) -> Message:
    return wrap_instruction(message) if message.role in INSTRUCTION_ROLES else message


def _parts(messages: Iterable[Message]) -> list[Part]:
    return [part for message in messages for part in message.parts]


def _pictures(results: list[ToolResult]) -> Iterator[Image]:
    for result in results:
        if not isinstance(result.content, str):
            yield from (part for part in result.content if isinstance(part, Image))
