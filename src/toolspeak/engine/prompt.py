"""Writes a conversation with tools for a model that has no native tools.

The tools go into the system prompt, calls into the assistant's turns, results into the user's. The
result is plain chat in which user and assistant alternate.

    augment_system_prompt("Be helpful.", tools, dialect="tagged", compact="auto", examples=True)

The text is the same for the same tools, so upstreams can cache it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, TypeGuard

from msgspec import structs

from .._util import format_json
from ..calls.tools import as_tools
from ..dialects import Dialect, render_calls, render_results, render_tools
from ..dialects.markers import get_dialect
from ..dialects.render import render_result_blocks, sample_call, tools_for_examples
from ..dialects.template import EXAMPLE_ANSWER, EXAMPLE_REQUEST
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
from ..wires.encoding import CACHE_CONTROL, LossLog
from ..wires.fields import Json
from .plan import PROMPT_NAME, ModelProfile, OfferedTools
from .roles import (
    INSTRUCTION_ROLES,
    INSTRUCTION_WRAPPED,
    count_leading_instructions,
    join_texts,
    merge_roles,
    wrap_instruction,
)

COMPACT_FROM = 1_000
"""The size of a full tool list, in tokens, above which `compact="auto"` writes the short one: weak
models get lost in long prompts."""
_CONTEXT_WINDOW_SHARE = 8
"""A full tool list may take one eighth of a known context window."""
_CHARACTERS_PER_TOKEN = 4
_TOOL_FIELDS = re.compile("tool|function|mcp|response_format", re.I)
_MAX_STOPS = 4
"""The number of stop sequences that most servers accept."""


# The system prompt.


def augment_system_prompt(
    base: str | None,
    tools: Iterable[Any],
    dialect: str | Dialect = "tagged",
    *,
    compact: bool | Literal["auto"] = False,
    examples: bool = False,
    budget: int = COMPACT_FROM,
) -> str:
    """Return `base` followed by the tools and how to call them in `dialect`.

    `compact` writes each tool as one line instead of its schema; "auto" does so if the full list
    takes more than `budget` tokens. `examples` adds one or two conversations that use the tools.
    """
    chosen = get_dialect(dialect) if isinstance(dialect, str) else dialect
    declared = as_tools(tools) or ()
    shown = tuple(
        (tool.name, tool.description, tool.parameters, tool.freeform) for tool in declared
    )
    instructions = _write_instructions(format_json(shown), chosen, compact, examples, budget)
    parts = (base if base and base.strip() else "", instructions)
    return "\n\n".join(part for part in parts if part)


def tool_list_budget(context_window: int | None) -> int:
    """Return the tokens that a full tool list may take of a context window."""
    return context_window // _CONTEXT_WINDOW_SHARE if context_window else COMPACT_FROM


@lru_cache(maxsize=128)
def _write_instructions(
    tools_json: str, dialect: Dialect, compact: bool | Literal["auto"], examples: bool, budget: int
) -> str:
    """Write the tools and how to call them. Every turn of a conversation repeats this text."""
    tools = [
        Tool(name=name, description=description, parameters=parameters, freeform=freeform)
        for name, description, parameters, freeform in json.loads(tools_json)
    ]
    instructions = render_tools(dialect, tools, compact=compact is True)
    if compact == "auto" and len(instructions) > budget * _CHARACTERS_PER_TOKEN:
        instructions = render_tools(dialect, tools, compact=True)
    conversations = _write_examples(dialect, tools) if examples and tools else ""
    return "\n\n".join(part for part in (instructions, conversations) if part)


def _write_examples(dialect: Dialect, tools: Sequence[Tool]) -> str:
    """Write a conversation with one call; with several tools, also one with two calls in turn."""
    shown = tools_for_examples(tools)
    examples = ["Example with one call:", _write_example(dialect, tools, shown[:1])]
    if len(shown) > 1:
        examples.append("Example with two calls. The second follows the result of the first:")
        examples.append(_write_example(dialect, tools, shown[:2]))
    return "\n\n".join(examples)


def _write_example(dialect: Dialect, tools: Sequence[Tool], steps: Sequence[Tool]) -> str:
    calls = [sample_call(tool, f"call_{number}") for number, tool in enumerate(steps, 1)]
    turns = [f"{EXAMPLE_REQUEST}{', then use '.join(map(_describe_call, calls))}."]
    for call in calls:
        result = ToolResult(call_id=call.id, name=call.name, content="ok")
        turns.append(f"Assistant: {render_calls(dialect, [call], tools)}")
        turns.append(f"Tool: {render_result_blocks(dialect, [result])}")
    return "\n".join((*turns, EXAMPLE_ANSWER))


def _describe_call(call: ToolCall) -> str:
    """Describe a call as a user would ask for it: `get_weather with city "Oslo"`."""
    arguments = (
        f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items()
    )
    described = " and ".join(arguments)
    return f"{call.name} with {described}" if described else call.name


# The conversation.


class PromptWriter:
    """Writes one request as plain chat."""

    def __init__(
        self,
        request: Request,
        tools: OfferedTools,
        dialect: Dialect,
        escaper: Escaper,
        *,
        keeps_cache_control: bool = False,
    ) -> None:
        self._request = request
        self._keeps_cache_control = keeps_cache_control
        self._calls: dict[str, ToolCall] = {}
        """The calls written so far, by their ids."""
        self._tools = tools
        self._dialect = dialect
        self._escaper = escaper

    def write_request(self, profile: ModelProfile, *, examples: bool) -> Request:
        """Return the request as plain chat, with its tools in the system prompt."""
        request = self._request
        system = self._mark_system(self._write_system(profile, examples=examples))
        turns = list(self._write_turns())
        if system and profile.capabilities.system_role is False:
            turns = list(merge_roles([Message("user", (system,)), *turns]))
        elif system:
            turns = [Message("system", (system,)), *turns]
        # Without tools, the upstream may enforce the format, too.
        keeps_format = (
            not self._tools.allowed
            and not self._dialect.answer_template
            and profile.capabilities.constrained is not False
        )
        return structs.replace(
            request,
            messages=tuple(turns),
            tools=None,
            tool_choice=ToolChoice(),
            parallel_tool_calls=True,
            response_format=request.response_format if keeps_format else None,
            stop=self._stop_sequences(),
            extra=_split_fields(request.extra)[0],
        )

    def notes(self) -> tuple[Note, ...]:
        """Return a note for everything that plain chat cannot carry. The wire adds notes
        about the settings."""
        keeps = self._keeps_cache_control
        losses = LossLog(PROMPT_NAME, "", has_cache_control=keeps)
        losses.carry(_split_fields(self._request.extra)[1], "$")
        messages = self._request.messages
        start = count_leading_instructions(messages)
        for index, message in enumerate(messages):
            path = f"$.messages[{index}]"
            if message.role in INSTRUCTION_ROLES and index >= start:
                losses.change(INSTRUCTION_WRAPPED, path)
            losses.carry(message.extra, path)
            for part in message.parts:
                _note_losses(part, path, losses)
        return (*losses.notes(), *self._tools.notes(has_cache_control=keeps))

    def _stop_sequences(self) -> tuple[str, ...]:
        """Return the stop sequences, with the one that keeps the model from inventing a result."""
        stop, end = self._request.stop, self._dialect.turn_end_closer
        return (*stop, end) if end and self._tools.allowed and len(stop) < _MAX_STOPS else stop

    def _write_system(self, profile: ModelProfile, *, examples: bool) -> str:
        messages = self._request.messages
        base = "\n\n".join(_iter_texts(messages[: count_leading_instructions(messages)]))
        tools = self._tools.allowed
        if not tools:
            wanted = self._request.response_format
            return "\n\n".join(filter(None, (base, wanted and write_format_rule(wanted))))
        system = augment_system_prompt(
            base,
            tools,
            self._dialect,
            compact=profile.compact,
            examples=examples,
            budget=tool_list_budget(profile.capabilities.context_window),
        )
        return "\n\n".join((system, *self._write_rules(tools)))

    def _mark_system(self, system: str) -> Text | None:
        """Return the system prompt as a part; with `cache_control` if its sources or the tools have
        it."""
        if not system or not self._keeps_cache_control:
            return Text(system) if system else None
        leading = self._request.messages[: count_leading_instructions(self._request.messages)]
        sources = (*(self._request.tools or ()), *leading, *_list_parts(leading))
        return Text(system, self._find_cache_control(sources))

    def _find_cache_control(self, sources: Iterable[Any]) -> Json:
        """Return the last `cache_control` of these parts, messages or tools, if it is kept."""
        if not self._keeps_cache_control:
            return {}
        extras = (getattr(source, "extra", {}) for source in sources)
        marks = [extra[CACHE_CONTROL] for extra in extras if CACHE_CONTROL in extra]
        return {CACHE_CONTROL: marks[-1]} if marks else {}

    def _write_rules(self, tools: tuple[Tool, ...]) -> Iterator[str]:
        request = self._request
        if request.tool_choice.mode == "required":
            which = " or ".join(tool.name for tool in tools) if len(tools) < 4 else "a tool"
            yield f"Reply only with a call to {which}."
        if not request.parallel_tool_calls and self._dialect.parallel:
            yield "Make one call at a time."
        if request.response_format:
            yield write_format_rule(request.response_format, beside_calls=True)

    def _write_turns(self) -> Iterator[Message]:
        messages = self._request.messages
        rest = messages[count_leading_instructions(messages) :]
        return merge_roles(turn for turn in self._write_sides(rest) if turn.parts)

    def _write_sides(self, messages: tuple[Message, ...]) -> Iterator[Message]:
        """Write consecutive messages of one side as one: results may come in several messages."""
        call_ids: list[str] = []
        for is_assistant, run in groupby(messages, lambda message: message.role == "assistant"):
            turn = list(run)
            if is_assistant:
                calls = [part for part in _list_parts(turn) if isinstance(part, ToolCall)]
                call_ids = [call.id for call in calls]
                self._calls.update(zip(call_ids, calls, strict=True))
                parts = (part for message in turn for part in self._write_assistant(message.parts))
                yield Message("assistant", tuple(join_texts(parts)))
            else:
                parts = self._write_user(_list_parts(map(_as_user_message, turn)), call_ids)
                yield Message("user", tuple(join_texts(parts)))

    def _write_assistant(self, parts: tuple[Part, ...]) -> Iterator[Part]:
        calls = [self._tools.to_model_call(part) for part in parts if isinstance(part, ToolCall)]
        text = "".join(part.text for part in parts if isinstance(part, Text))
        yield from (part for part in parts if isinstance(part, (Reasoning, Image)))
        if text and self._dialect.answer_template and not calls:
            encoded = json.dumps(text, ensure_ascii=False)
            text = self._dialect.answer_template.replace("$text_json", encoded)
        rendered = self._render_calls(calls)
        if text or rendered:
            written = "\n".join(filter(None, (text, rendered)))
            yield Text(written, self._find_cache_control(parts))

    def _render_calls(self, calls: list[ToolCall]) -> str:
        """Render calls as the model would have written them; those it cannot write, in words."""
        try:
            return render_calls(self._dialect, calls, self._tools.all)
        except Unrepresentable:
            pass
        rendered: list[str] = []
        for call in calls:
            try:
                rendered.append(render_calls(self._dialect, [call], self._tools.all))
            except Unrepresentable:
                rendered.append(f"(I called {call.name} with {call.arguments_json}.)")
        return "\n".join(rendered)

    def _write_user(self, parts: list[Part], call_ids: list[str]) -> Iterator[Part]:
        """Write the user's side, with results and documents as text.

        The results of the last calls come first and in the order of the calls: most dialects have
        no other way to match them. Other results stay where they are.
        """
        order = {call_id: index for index, call_id in enumerate(call_ids)}
        results = [part for part in parts if _answers(part, order)]
        results.sort(key=lambda result: order[result.call_id])
        rest = [part for part in parts if not _answers(part, order)]
        if results:
            yield from self._write_results(results, is_last=not rest)
        for index, part in enumerate(rest):
            cached = self._find_cache_control([part])
            match part:
                case Document() if part.data is None and part.url is None:
                    yield Text(self._escaper.escape(render_document(part)), cached)
                case Text():
                    yield Text(part.text, cached)
                case Image() | Document():
                    yield part
                case ToolResult():
                    yield from self._write_results([part], is_last=index == len(rest) - 1)
                case _:
                    pass

    def _write_results(self, results: list[ToolResult], *, is_last: bool) -> Iterator[Part]:
        contents = [result.content for result in results if not isinstance(result.content, str)]
        sources = (*itertools.chain.from_iterable(contents), *results)
        text = self._render_results(results, is_last=is_last)
        yield Text(text, self._find_cache_control(sources))
        yield from _iter_images(results)

    def _render_results(self, results: list[ToolResult], *, is_last: bool) -> str:
        escaped = [self._escape_result(result) for result in results]
        # Where the dialect writes no ids, the model has never seen them.
        return render_results(self._dialect, escaped, with_ids=False, with_continuation=is_last)

    def _escape_result(self, result: ToolResult) -> ToolResult:
        call = self._calls.get(result.call_id)
        call = call or ToolCall(id=result.call_id, name=result.name, arguments={})
        name = call.name and self._tools.to_model_call(call).name
        return structs.replace(result, name=name, content=self._escaper.escape(result.text))


def _answers(part: Part, call_ids: Container[str]) -> TypeGuard[ToolResult]:
    """Return True for the result of one of these calls."""
    return isinstance(part, ToolResult) and part.call_id in call_ids


def _split_fields(extra: Json) -> tuple[Json, Json]:
    """Split a client API's extra fields into settings and fields about tools or formats."""
    of_tools = {key: value for key, value in extra.items() if _TOOL_FIELDS.search(key)}
    return {key: value for key, value in extra.items() if key not in of_tools}, of_tools


def _note_losses(part: Part, path: str, losses: LossLog) -> None:
    match part:
        case Other():
            losses.drop(f"the part type `{part_type(part)}`", path)
        case Text() | ToolCall() | ToolResult():
            losses.carry({key: part.extra[key] for key in part.extra if key != "type"}, path)
        case Image() | Document() | Reasoning():
            pass  # The wire notes these.
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        for inner in part.content:
            if isinstance(inner, Document) and not inner.text:
                losses.drop("a document in a result", path)
            else:
                _note_losses(inner, path, losses)


def foreign_texts(request: Request) -> Iterator[str]:
    """Iterate over the texts that tools and documents have brought into a conversation."""
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, (ToolResult, Document)):
                yield part.text


def write_format_rule(wanted: ResponseFormat, *, beside_calls: bool = False) -> str:
    """Return the instruction to answer in a format; `beside_calls` if the model may also call."""
    what = "one JSON value" if wanted.schema is not None else "one JSON object"
    when = "If you answer without a call, write" if beside_calls else "Write"
    rule = f"{when} {what} and nothing else."
    if wanted.schema is None:
        return rule
    schema = json.dumps(wanted.schema, ensure_ascii=False)
    return f"{rule} It must match this JSON Schema:\n{schema}"


def _iter_texts(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        text = "".join(part.text for part in message.parts if isinstance(part, (Text, Document)))
        if text:
            yield text


def _as_user_message(message: Message) -> Message:
    return wrap_instruction(message) if message.role in INSTRUCTION_ROLES else message


def _list_parts(messages: Iterable[Message]) -> list[Part]:
    return [part for message in messages for part in message.parts]


def _iter_images(results: list[ToolResult]) -> Iterator[Image]:
    for result in results:
        if not isinstance(result.content, str):
            yield from (part for part in result.content if isinstance(part, Image))
