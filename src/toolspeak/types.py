"""The values that everything else passes around: frozen, and with no behaviour of their own.

A `ToolCall` as the rest of the program sees it:

    ToolCall(id="call_5Nq…", name="get_weather", arguments={"city": "Oslo"})
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ._util import encode_json

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolsMode = Literal["native", "prompt", "constrained"]
Trust = Literal["strict", "standard", "lenient"]
"""How readily text is accepted as a call: only in the expected dialects; not if it looks like an
example; or whenever it can be read as one."""


class Tool(Struct, frozen=True, kw_only=True):
    """A function the model may call. `parameters` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    namespace: str | None = None
    freeform: bool = False
    """The call carries text (`{"input": …}`) instead of an object."""
    strict: bool | None = None
    """The model is held to the schema, where its maker can do that."""
    extra: dict[str, Any] = {}


class ToolCall(Struct, frozen=True, kw_only=True, tag="call"):
    """A call the model made, with its arguments decoded."""

    id: str
    name: str
    arguments: dict[str, Any]
    namespace: str | None = None
    freeform: bool = False
    raw: str = ""
    """The text that the call was read from, where it came as text."""
    extra: dict[str, Any] = {}

    @property
    def arguments_json(self) -> str:
        """The arguments as the JSON string that some wires carry."""
        return encode_json(self.arguments)

    @property
    def input(self) -> str:
        """What the call says: its arguments as JSON, or its text if the tool takes text."""
        return str(self.arguments.get("input", "")) if self.freeform else self.arguments_json


class Text(Struct, frozen=True, tag="text"):
    """What somebody said."""

    text: str
    extra: dict[str, Any] = {}


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """What a model thought before it answered. `signature` proves it to its maker."""

    text: str
    signature: str | None = None
    extra: dict[str, Any] = {}


class Image(Struct, frozen=True, tag="image"):
    """A picture, by address or by value."""

    url: str | None = None
    data: str | None = None
    """Base64."""
    media_type: str = "image/png"
    detail: str | None = None
    """How closely to look: `low`, `high`, `auto`."""
    extra: dict[str, Any] = {}


class Document(Struct, frozen=True, tag="document"):
    """A file, a recording or a text from elsewhere: not the user's own words. It comes as text, by
    value or by address."""

    text: str = ""
    title: str = ""
    url: str | None = None
    data: str | None = None
    """Base64."""
    media_type: str = "text/plain"
    extra: dict[str, Any] = {}


class Other(Struct, frozen=True, tag="other"):
    """A part that only its own API can say: it rides along there, and nowhere else."""

    data: dict[str, Any]


class ToolResult(Struct, frozen=True, kw_only=True, tag="result"):
    """What a tool gave back for the call with `call_id`."""

    call_id: str
    name: str
    content: str | tuple[Text | Image | Document | Other, ...]
    is_error: bool = False
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The content as text; pictures are left out."""
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
    """Whether the model may, must or must not call; `names` narrows which tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    validated: bool = False
    """The model may answer in words, but what it calls has to fit the schema."""


class ResponseFormat(Struct, frozen=True):
    """The answer is JSON, in this schema if there is one."""

    schema: dict[str, Any] | None = None
    name: str = ""
    description: str = ""
    strict: bool | None = None


class Thinking(Struct, frozen=True):
    """How much a model shall think before it answers; None leaves it to the model."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None
    """In tokens."""
    shown: bool | None = None
    """The thoughts, or a summary of them, are part of the reply."""


class Request(Struct, frozen=True, kw_only=True):
    """What a client asks for.

    Every `extra` in it belongs to `wire`, the API that it came by: there it rides along.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    """None: the client said nothing about tools; (): it said there are none."""
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
    """`user_id` says on whose behalf."""
    wire: str = ""
    notes: tuple[Note, ...] = ()
    """What could not be taken over from the client's own words."""
    extra: dict[str, Any] = {}


class Note(Struct, frozen=True, tag="note"):
    """A visible remark: something was repaired, guessed, dropped or found wanting."""

    code: str
    message: str
    where: str = ""
    """The text or the path it is about."""


class Rejection(Struct, frozen=True):
    """A block that tried to be a call. It stays in the reply's text."""

    raw: str
    code: str
    """The code of the note that says the same."""
    problem: str
    path: str = "$"
    name: str | None = None


class Usage(Struct, frozen=True):
    """Tokens, as the upstream counted them."""

    input: int = 0
    """All of the prompt, with what was cached."""
    output: int = 0
    """All of the reply, with the reasoning."""
    cached: int = 0
    """The part of the prompt that was read from a cache."""
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
    """Why there is no reply, or no more of it."""

    kind: FailureKind
    message: str
    status: int = 500
    code: str | None = None
    """The API's own word for it."""
    param: str | None = None
    """The field of the request that is wrong, as a path."""
    details: dict[str, Any] | None = None


StopReason = Literal[
    "stop", "calls", "length", "stop_sequence", "filter", "refusal", "pause", "error"
]


class Reply(Struct, frozen=True, kw_only=True):
    """A whole reply. Only `fold` makes one."""

    parts: tuple[Part, ...] = ()
    """What the model thought, said and called, in order."""
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
    """The API that it came by, whose every `extra` is."""
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """All that the model said."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        """All that the model thought before it spoke."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model made."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


class Capabilities(Struct, frozen=True):
    """What a model behind an upstream can do; None: not known yet."""

    native_tools: bool | None = None
    constrained: bool | None = None
    tool_role: bool | None = None
    system_role: bool | None = None
    alternation: bool | None = None
    """The chat template needs user and assistant to take turns."""
    reasoning_open: bool | None = None
    """The template opens the reasoning, so the reply starts inside it."""
    context: int | None = None


class Plan(Struct, frozen=True):
    """How one request will be served. A value: it can be printed, tested and shown."""

    mode: ToolsMode
    dialect: str | None = None
    reasoning_open: bool | None = None
    reasons: tuple[str, ...] = ()


class Quirks(Struct, frozen=True, forbid_unknown_fields=True):
    """In what a provider's requests differ from those of its wire."""

    rename: dict[str, str] = {}
    replace: dict[str, dict[str, str]] = {}
    drop: tuple[str, ...] = ()
    drop_in_messages: tuple[str, ...] = ()
    call_ids: int | None = None
    """How many letters and digits the id of a call has to have."""
    roles: Literal["any", "system-first", "alternating"] = "system-first"
    """Who may speak when: `any` as OpenAI has it, with developers and with instructions in between;
    one system message, as the first; and then user and assistant in turns."""
    after_results: str = ""
    """What the assistant is to have said before the user may go on after results."""
