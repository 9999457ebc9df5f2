"""Canonical types: frozen values without behaviour, which all other modules exchange.

ToolCall(id="call_5Nq…", name="get_weather", arguments={"city": "Oslo"})
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ._util import format_json

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolsMode = Literal["native", "prompt", "constrained"]
Trust = Literal["strict", "standard", "lenient"]
"""The condition for accepting text as a call. `lenient`: it can be parsed as one. `standard`: also,
it does not look like an example. `strict`: also, it is in an expected dialect."""


class Tool(Struct, frozen=True, kw_only=True):
    """A function the model may call. `parameters` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    namespace: str | None = None
    freeform: bool = False
    """The call carries text (`{"input": …}`) instead of an object."""
    strict: bool | None = None
    """Ask the provider to enforce the schema, if it can."""
    aliases: tuple[str, ...] = ()
    """Other names by which a model may call the tool, unless another tool has them."""
    extra: dict[str, Any] = {}


class ToolCall(Struct, frozen=True, kw_only=True, tag="call"):
    """A call that the model made, with decoded arguments."""

    id: str
    name: str
    arguments: dict[str, Any]
    namespace: str | None = None
    freeform: bool = False
    raw: str = ""
    """The text that the call was read from, with its markers; the JSON text of the arguments, if
    the call was structured."""
    dialect: str | None = None
    """The dialect of a call in text; None for a structured call."""
    extra: dict[str, Any] = {}

    @property
    def arguments_json(self) -> str:
        """The arguments as JSON text, as some APIs send them."""
        return format_json(self.arguments)

    @property
    def input(self) -> str:
        """The input of the tool: its arguments as JSON text, or the text of a freeform call."""
        return str(self.arguments.get("input", "")) if self.freeform else self.arguments_json


class Text(Struct, frozen=True, tag="text"):
    """A part of a message that is text."""

    text: str
    extra: dict[str, Any] = {}


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """Reasoning before the answer. The provider recognises it by its `signature`."""

    text: str
    signature: str | None = None
    extra: dict[str, Any] = {}


class Image(Struct, frozen=True, tag="image"):
    """An image, by URL or by value."""

    url: str | None = None
    data: str | None = None
    """Base64."""
    media_type: str = "image/png"
    detail: str | None = None
    """The resolution to use: `low`, `high` or `auto`."""
    extra: dict[str, Any] = {}


class Document(Struct, frozen=True, tag="document"):
    """A file, recording or quoted text: not the user's own words. It is text, or data by value or
    URL."""

    text: str = ""
    title: str = ""
    url: str | None = None
    data: str | None = None
    """Base64."""
    media_type: str = "text/plain"
    extra: dict[str, Any] = {}


class Other(Struct, frozen=True, tag="other"):
    """A part that only one API supports; it is passed on only to that API."""

    data: dict[str, Any]


class ToolResult(Struct, frozen=True, kw_only=True, tag="result"):
    """The result of the call with the id `call_id`."""

    call_id: str
    name: str
    content: str | tuple[Text | Image | Document | Other, ...]
    is_error: bool = False
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The content as text, without images."""
        if isinstance(self.content, str):
            return self.content
        parts = (part for part in self.content if isinstance(part, (Text, Document)))
        return "\n".join(part.text for part in parts)


Part = Text | Reasoning | Image | Document | ToolCall | ToolResult | Other


class Message(Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]
    extra: dict[str, Any] = {}


class ToolChoice(Struct, frozen=True):
    """Says if the model may, must or must not call tools; `names` restricts it to some of them."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    validated: bool = False
    """Calls must match the schema, but the model may also answer with text."""


class ResponseFormat(Struct, frozen=True):
    """A request for an answer in JSON, by a schema if there is one."""

    schema: dict[str, Any] | None = None
    name: str = ""
    description: str = ""
    strict: bool | None = None


class Thinking(Struct, frozen=True):
    """The amount of reasoning before the answer; None leaves it to the model."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None
    """In tokens."""
    shown: bool | None = None
    """The reply includes the reasoning or a summary of it."""


class Request(Struct, frozen=True, kw_only=True):
    """A client's request.

    Each `extra` in it belongs to `wire`, the API of the client, and is passed on only to that API.
    One field of it is shared: `cache_control` goes to every API and provider that has it.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    """None: the field was absent; (): the client declared an empty list."""
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    thinking: Thinking = Thinking()
    stream: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: dict[str, float] = {}
    """`temperature`, `top_p`, `top_k`, `seed`, `presence_penalty`, `frequency_penalty`."""
    metadata: dict[str, Any] = {}
    """`user_id` identifies the end user."""
    wire: str = ""
    notes: tuple[Note, ...] = ()
    """Notes on fields of the client's request that were not understood."""
    extra: dict[str, Any] = {}


class Note(Struct, frozen=True, tag="note"):
    """A recorded remark: something was repaired, coerced, guessed, rejected, dropped or retried."""

    code: str
    message: str
    where: str = ""
    """The text or the path that the note is about."""


class Rejection(Struct, frozen=True):
    """A block that looks like a call and was not accepted. It stays in the text of the reply."""

    raw: str
    """The first 400 characters of the block; all of it, if the reply ends inside it."""
    code: str
    """The code of the note on this rejection."""
    problem: str
    path: str = "$"
    name: str | None = None


class Usage(Struct, frozen=True):
    """Numbers of tokens, as counted by the upstream."""

    input: int = 0
    """The whole prompt, including cached tokens."""
    output: int = 0
    """The whole reply, including reasoning."""
    cached: int = 0
    """The part of the prompt that was read from the cache."""
    cache_written: int = 0
    reasoning: int = 0
    extra: dict[str, Any] = {}


FailureKind = Literal[
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "too_large",
    "context_length",
    "rate_limit",
    "overloaded",
    "timeout",
    "upstream",
    "internal",
]


class Failure(Struct, frozen=True, tag="failure"):
    """The reason why a reply is missing or incomplete."""

    kind: FailureKind
    message: str
    status: int = 500
    code: str | None = None
    """The error code of the API."""
    param: str | None = None
    """The path of the field of the request that is wrong."""
    details: dict[str, Any] | None = None
    prompt_tokens: int | None = None
    """The size of a request that exceeds the context window, if the upstream tells it."""
    token_limit: int | None = None
    """The size of that context window."""


StopReason = Literal[
    "stop", "calls", "length", "stop_sequence", "filter", "refusal", "pause", "error"
]
COMPLETE_STOP_REASONS = frozenset({"stop", "calls", "stop_sequence", None})
"""The stop reasons of complete replies. None: the API gave none."""


class Reply(Struct, frozen=True, kw_only=True):
    """A whole reply. Only `fold` creates it."""

    parts: tuple[Part, ...] = ()
    """The reasoning, texts, calls and other parts, in order."""
    rejected: tuple[Rejection, ...] = ()
    notes: tuple[Note, ...] = ()
    dialect: str | None = None
    """The dialect in which the first call was written."""
    id: str = ""
    model: str = ""
    stop_reason: StopReason | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    wire: str = ""
    """The API that the reply came from; each `extra` belongs to it."""
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


class Capabilities(Struct, frozen=True):
    """The capabilities of a model at an upstream; None: not known yet."""

    native_tools: bool | None = None
    constrained: bool | None = None
    tool_role: bool | None = None
    system_role: bool | None = None
    alternation: bool | None = None
    """The chat template requires user and assistant to alternate."""
    reasoning_open: bool | None = None
    """The chat template opens the reasoning, so the reply starts inside it."""
    context_window: int | None = None


class Plan(Struct, frozen=True):
    """The way in which a model gets its tools for one request, and the reasons."""

    mode: ToolsMode
    dialect: str | None = None
    reasoning_open: bool = False
    """Replies start inside reasoning. This is decided before the reply: what was sent cannot be
    taken back if a closing tag arrives later."""
    reasons: tuple[str, ...] = ()
    other_dialects: tuple[str, ...] = ()
    """Dialects that the model may write although it is not asked to."""


class Quirks(Struct, frozen=True, forbid_unknown_fields=True):
    """How a provider's requests differ from those of the API that it imitates."""

    rename: dict[str, str] = {}
    replace: dict[str, dict[str, str]] = {}
    drop: tuple[str, ...] = ()
    drop_in_messages: tuple[str, ...] = ()
    drop_in_tools: tuple[str, ...] = ()
    call_id_length: int | None = None
    """The number of letters and digits that the id of a call must have."""
    roles: Literal["any", "system-first", "alternating"] = "system-first"
    """The order of roles. `any`: as in OpenAI's API. `system-first`: at most one system message, at
    the start. `alternating`: the same, and user and assistant take turns."""
    cache_control: bool = False
    """The provider caches prompts up to the parts that have `cache_control`."""
    after_results: str = ""
    """The assistant's text to insert between tool results and the user's next message."""
    think_tags: bool = False
    """The reasoning of earlier replies goes into their content, between `<think>` and
    `</think>`."""
