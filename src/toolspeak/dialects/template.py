"""A dialect is data: templates that are read in both directions.

    Dialect(
        name="glm45",
        call_templates=("<tool_call>$name\\n$params</tool_call>",),
        parameter_template="<arg_key>$key</arg_key>\\n<arg_value>$value</arg_value>\\n",
    )

Rendering writes the text of a template and fills its slots. Parsing uses the text as markers and
reads the slots between them; white space around markers does not matter. The attributes of a tag
(`<invoke name="$name">`) may come in any order and any kind of quotes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any
from typing import Literal as OneOf

from msgspec import Struct

from ..calls.json_values import json_equal

Evidence = OneOf["marker", "whole", "prose"]
ParsedArguments = tuple[dict[str, Any], tuple[str, ...]]
"""The arguments in a body, and the repairs that were needed."""

JSON_SLOTS = frozenset({"object", "list", "lines", "echo", "content", "canonical"})
"""Calls as JSON; they differ in how several calls are rendered."""
CODE_SLOTS = frozenset({"python", "statements", "semicolons", "single", "builtin"})
"""Calls as `f(a=1)`; they differ in how several calls are rendered."""
HEADER_SLOTS = frozenset({"name", "id", "index", "header"})
"""Words before the body; all other slots are bodies."""

_PIECE = re.compile(
    r"""(?P<tag><(?P<tag_name>[^\s<>$"]+)(?P<attributes>(?:\s+\w+="\$\w+")+)\s*/?>)
      | \$(?P<slot>[a-z]+)""",
    re.X,
)
_ATTRIBUTE = re.compile(r'(\w+)="\$(\w+)"')
_BOUNDARY = re.compile(r"\s*\n\s*|(?<=>)\s*(?=<)|(?<=`)(?=<)")


class InvalidBody(ValueError):
    """The text between the markers is not what the template requires."""


class NotRenderable(ValueError):
    """The format cannot express the value of parameter `key`."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason


class LiteralText(Struct, frozen=True):
    """Text that is rendered unchanged; parsing searches for it `stripped`."""

    text: str

    @property
    def stripped_text(self) -> str:
        return self.text.strip()


class Slot(Struct, frozen=True):
    """A place for a value."""

    kind: str


class TagTemplate(Struct, frozen=True):
    """A tag whose attributes are slots: `<invoke name="$name">`."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    """(attribute, slot) in the order they are written."""
    text: str


TemplatePart = LiteralText | Slot | TagTemplate


@lru_cache(maxsize=1024)
def parse_template(template: str) -> tuple[TemplatePart, ...]:
    found: list[TemplatePart] = []
    end = 0
    for match in _PIECE.finditer(template):
        if match.start() > end:
            found.append(LiteralText(template[end : match.start()]))
        if match["slot"]:
            found.append(Slot(match["slot"]))
        else:
            attributes = tuple(_ATTRIBUTE.findall(match["attributes"]))
            found.append(TagTemplate(match["tag_name"], attributes, match["tag"]))
        end = match.end()
    if end < len(template):
        found.append(LiteralText(template[end:]))
    return tuple(found)


def fill_template(template: str, words: Mapping[str, str]) -> str:
    """Replace the slots of a template with `words`, which are escaped in attributes."""
    written: list[str] = []
    for part in parse_template(template):
        match part:
            case LiteralText(text):
                written.append(text)
            case Slot(kind):
                written.append(words[kind])
            case TagTemplate(_, attributes, text):
                for _, slot in attributes:
                    word = html.escape(words[slot]).replace("&#x27;", "'")
                    text = text.replace(f"${slot}", word)
                written.append(text)
    return "".join(written)


def render_argument(
    key: str,
    value: Any,
    spellings: Iterable[str],
    parse: Callable[[str], ParsedArguments],
    reason: str = "",
) -> str:
    """Return the first spelling of an argument that `parse` reads back as `{key: value}`.

    Raises `NotRenderable` with the `reason` if there is none.
    """
    for text in spellings:
        try:
            if json_equal(parse(text)[0], {key: value}):
                return text
        except InvalidBody:
            pass
    raise NotRenderable(key, reason or f"the value of {key!r}: it would not be read back unchanged")


class JsonKeys(Struct, frozen=True):
    """The keys of a call as a JSON object, as they are rendered. Parsing accepts all usual keys."""

    name: str = "name"
    arguments: str = "arguments"
    id: str = ""
    """The key of the call's id; "" if it is not rendered."""


CHATML_TOKENS = ("<|im_start|>assistant\n", "<|im_start|>", "<|im_end|>")
LLAMA_END_TOKENS = ("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end_of_text|>")
END_OF_TURN_TOKENS = frozenset(
    (
        *LLAMA_END_TOKENS,
        "</s>",
        "<|call|>",
        "<|stop|>",
        "<|end_message|>",
        "<bot_end>",
        "[/TOOL_CALLS]",
    )
)
"""Closers that end a turn: servers remove such tokens, so that a missing one needs no note."""
_ROLES = ("user", "system", "developer", "tool", "function", "ipython", "observation")
_ROLE_OPENERS = (
    "<|im_start|>",
    "<|start|>",
    "<|start_header_id|>",
    "<|header_start|>",
    "<start_of_turn>",
    "<|turn>",
    "<|begin|>",
    "<|from|>",
)
OTHER_TURN_OPENERS = (
    *(f"{opener}{role}" for opener in _ROLE_OPENERS for role in _ROLES),
    "<|start|>functions.",
    "<|user|>",
    "<|system|>",
    "<|tool|>",
    "<|observation|>",
    "<|message_user|>",
    "<|message_tool|>",
    "<|USER_TOKEN|>",
    "<|SYSTEM_TOKEN|>",
    "<|START_TOOL_RESULT|>",
    "<｜User｜>",
    "<｜tool▁outputs▁begin｜>",
    "[INST]",
    "[TOOL_RESULTS]",
    *(f"### {title}:" for title in ("Instruction", "Input", "Human", "User", "System")),
)
"""Literals that begin another role's turn: a model that writes one makes up what follows."""
NEXT_REPLY_OPENERS = ("<|im_start|>assistant", "<|start_header_id|>assistant")
"""Literals that begin another reply: after a call, the model repeats itself or makes up the end."""
MESSAGE_ENDS = (
    *CHATML_TOKENS,
    *END_OF_TURN_TOKENS,
    "<|start_header_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|endoftext|>",
)
"""Tokens that end a message, or begin the next one."""
RESULT_OPENERS = (
    "<tool_response>",
    "<tool_responses>",
    "<tool_result",
    "<tool_output",
    "<function_results>",
    "<|tool_response",
    "<|tool_result|>",
    "<|function_output|>",
    "<start_function_response>",
)
"""Literals that begin a tool result: one that follows a call of the same reply is made up too."""
NAME_IS_KEY = JsonKeys("", "")
"""`{"get_weather": {"city": "Oslo"}}`."""

THINK_TAGS = (("<think>", "</think>"),)
COMMON_REASONING_TAGS = (
    *THINK_TAGS,
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Tags that enclose reasoning in every dialect."""


EXAMPLE_REQUEST = "User: Please use "
EXAMPLE_ANSWER = "Assistant: Done."
ONE_CALL_INTRODUCTION = (
    "To call a tool, write the call in exactly this form, with the tool's name and your arguments:"
)
SEVERAL_CALLS_INTRODUCTION = "To make several calls at once, write them like this:"
RESULT_INSTRUCTION = "After a call, you receive its result."
EXAMPLE_INTRODUCTIONS = (ONE_CALL_INTRODUCTION, SEVERAL_CALLS_INTRODUCTION, EXAMPLE_REQUEST)
EXAMPLE_CONCLUSIONS = (RESULT_INSTRUCTION, EXAMPLE_ANSWER)
"""Between an introduction and a conclusion, a prompt shows example calls. If a reply recites them,
they are examples too."""


class MessageFrame(Struct, frozen=True):
    """The headers of messages, for dialects whose replies are several messages with recipients."""

    openers: tuple[str, ...]
    """The literals that begin a header."""
    first_opener: str
    """The beginning of the first header if the prompt has begun it; "" if it never does."""
    header_pattern: str
    """A regular expression that a header contains, unlike other dialects' headers."""
    header_end: str
    """The literal that ends the header."""
    message_ends: tuple[str, ...]
    """The literals that end the message."""
    recipient_pattern: str
    """A regular expression for the recipient: group 1."""
    reasoning_pattern: str
    """A regular expression for a header whose message is reasoning."""
    tool_pattern: str = ""
    """A regular expression that matches the beginning of recipients that are tools.

    The name of the tool is the rest.
    """


class MessageToUser(Struct, frozen=True, eq=False):
    """A message that is addressed to the user, in which calls are examples."""

    closers: tuple[str, ...]
    """The markers that end it."""
    dialect: Dialect | None = None
    """The dialect whose calls may end it, if nothing else does."""

    def select_own_forms(self, forms: tuple[CallForm, ...]) -> tuple[CallForm, ...]:
        """Return the forms that are of the message's dialect."""
        own = self.dialect
        return tuple(form for form in forms if own and form.dialect.name == own.name)


class Dialect(Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """One text format in which models write tool calls."""

    name: str
    call_templates: tuple[str, ...]
    """Templates of one call: the first is rendered, all are parsed."""
    wrapper_template: str = ""
    """The markers around all calls of a reply, with `$calls` between them."""
    extra_closers: tuple[str, ...] = ()
    """Other markers with which models close a call."""
    turn_end_closer: str = ""
    """A closer that ends the model's turn: calls after it are made up."""
    answer_openers: tuple[str, ...] = ()
    """Literals that begin the final answer: nothing after them is a call."""
    answer_spans: tuple[tuple[str, str], ...] = ()
    """Control tokens that begin and end a message to the user, in which calls are examples.

    The end is "" if only a call ends the message.
    """
    separator: str | None = None
    """The text between two calls; by default a line break, or nothing in a wrapper."""
    parameter_template: str = ""
    """Template of one parameter, for `$params`."""
    json_keys: JsonKeys = JsonKeys()
    evidence: Evidence = "marker"
    line_start_only: bool = False
    """Calls are recognized only if their marker begins a line."""
    parallel: bool = True
    """A reply may hold several calls."""
    reasoning_tags: tuple[tuple[str, str], ...] = THINK_TAGS
    control_tokens: tuple[str, ...] = ()
    """Tokens of the chat format, which are never text."""
    inert_spans: tuple[tuple[str, str], ...] = ()
    """Spans that hold no calls, unless they are exactly one call."""
    result_spans: tuple[tuple[str, str], ...] = ()
    """Spans that only tools may write; if a model writes one, it is dropped."""
    trailing_tokens: tuple[str, ...] = ()
    """Tokens that are dropped at the end of a message; they are text anywhere else."""
    citation_tags: tuple[str, ...] = ()
    """Literals that begin a tag around text that cites a document; a place may follow, then `>`."""
    allows_prose: bool = False
    """A few words may precede and follow the JSON."""
    reserved_names: tuple[str, ...] = ()
    """Words that cannot be the name of a tool, because they mean something else."""
    no_call_names: tuple[str, ...] = ()
    """Names with which a model says that it makes no call."""
    string_quote: str = ""
    """The token around strings in `$braces`."""
    tag_prefix: str = ""
    """The text before every tag of `$elements`."""
    allows_cdata: bool = False
    """Values may be wrapped in `<![CDATA[…]]>`."""
    infers_json_values: bool = False
    """Bare values without a declared type are JSON if they are valid JSON."""
    message_frame: MessageFrame | None = None
    initial_tokens: tuple[str, ...] = ()
    """Literals to drop at the very beginning, in case the prompt has begun the message."""
    header_patterns: tuple[str, ...] = ()
    """Regular expressions that find the tool's name (group 1) in a `$header`, likeliest first."""
    header_template: str = ""
    """The text of a `$header`, with `$name` and `$index`."""
    answer_template: str = ""
    """The text of an answer without a call, with `$text_json`; "" if it is plain text."""
    result_template: str = "<tool_response>\n$content\n</tool_response>"
    """One tool result."""
    results_template: str = "$results"
    """All results of a turn."""
    tools_template: str = "<tools>\n$tools\n</tools>"
    """The list of tools, with `$tools` for one JSON object on each line."""
    model_fragments: tuple[str, ...] = ()
    """Fragments of the ids of models that use this dialect."""
    description: str = ""

    @cached_property
    def message_to_user(self) -> MessageToUser:
        """The message to the user that one of `answer_spans` begins."""
        closers = dict.fromkeys(closer for _, closer in self.answer_spans if closer)
        return MessageToUser(tuple(closers), self)

    @property
    def joiner(self) -> str:
        """The text between two calls."""
        default = "" if self.wrapper_template else "\n"
        return default if self.separator is None else self.separator

    @cached_property
    def forms(self) -> tuple[CallForm, ...]:
        """All forms of a call: each template with and without the wrapper."""
        before, _, after = self.wrapper_template.partition("$calls")
        after_all = split_markers(after)
        found: list[CallForm] = []
        for template in (
            spelling for call in self.call_templates for spelling in _fence_spellings(call)
        ):
            parts = parse_template(template)
            if before:
                found.append(_build_form(self, (LiteralText(before), *parts), after_all))
            found.append(_build_form(self, parts, after_all))
        if before.strip() and after.strip():
            found.append(_build_form(self, (LiteralText(before), LiteralText(after)), ()))
        return tuple(found)

    @cached_property
    def closing_tags(self) -> frozenset[str]:
        """Tags that end a call, or a value in one."""
        ends = split_markers(self.parameter_template.rpartition("$value")[2])
        found = {*ends, *(closer for form in self.forms for closer in form.all_closers)}
        tags = (text for text in found - END_OF_TURN_TOKENS if "$" not in text)
        return frozenset(text for text in tags if text.startswith(("</", "<|/")))


class CallForm(Struct, frozen=True, eq=False):
    """One way to open and read a call, as the parser uses it."""

    dialect: Dialect
    opener: str
    """The literal that begins it; empty if it begins with a name or with the body itself."""
    header: tuple[TemplatePart, ...]
    """The parts between the opener and the body."""
    body: str
    """The body's slot; empty if there is none."""
    closer: str
    """The marker that ends the body; it may contain `$name`."""
    all_closers: tuple[str, ...]
    """All markers that may close a call of this form."""


def split_markers(text: str) -> tuple[str, ...]:
    """Return the markers in a literal: "```<end>" is two. White space may be between them."""
    return tuple(marker for marker in _BOUNDARY.split(text.strip()) if marker)


def _fence_spellings(template: str) -> tuple[str, ...]:
    """Return a template, and the same with a longer code fence."""
    if not template.startswith("```") or not template.endswith("```"):
        return (template,)
    return template, f"`{template}`"


def _split_literals(parts: tuple[TemplatePart, ...]) -> tuple[TemplatePart, ...]:
    """Return the parts with every literal split into its markers."""
    return tuple(
        piece
        for part in parts
        for piece in (_literals_of(part) if isinstance(part, LiteralText) else (part,))
    )


def _literals_of(part: LiteralText) -> Iterable[LiteralText]:
    """Return the markers of a literal; the first keeps the white space before it."""
    found = split_markers(part.text)
    if not found:
        return (part,)
    before = part.text[: len(part.text) - len(part.text.lstrip())]
    return map(LiteralText, (before + found[0], *found[1:]))


def _build_form(
    dialect: Dialect, parts: tuple[TemplatePart, ...], after_all: tuple[str, ...]
) -> CallForm:
    at = next(
        (
            i
            for i, one in enumerate(parts)
            if isinstance(one, Slot) and one.kind not in HEADER_SLOTS
        ),
        len(parts),
    )
    body = parts[at].kind if at < len(parts) else ""  # pyright: ignore[reportAttributeAccessIssue]
    head, tail = _split_literals(parts[:at]), parts[at + 1 :]
    own = split_markers(
        "".join(part.text if isinstance(part, LiteralText) else "$name" for part in tail)
    )
    opener = ""
    if head and isinstance(head[0], LiteralText):
        opener = head[0].stripped_text
        head = head[1:]
    elif head and isinstance(head[0], TagTemplate):
        opener = f"<{head[0].name}"
    return CallForm(
        dialect=dialect,
        opener=opener,
        header=head,
        body=body,
        closer=own[0] if own else "",
        all_closers=tuple(dict.fromkeys((*own, *after_all, *dialect.extra_closers))),
    )
