"""The values that everything else passes around: frozen, and with no behaviour of their own.

A `ToolCall` as the rest of the program sees it:

    ToolCall(id="call_5Nq…", name="get_weather", arguments={"city": "Oslo"})
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from .jsonish import dumps

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolsMode = Literal["native", "prompt", "constrained"]


class Tool(Struct, frozen=True, kw_only=True):
    """A function the model may call. `parameters` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    namespace: str | None = None
    freeform: bool = False
    """The call carries text (`{"input": …}`) instead of an object."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call the model made, with its arguments decoded."""

    id: str
    name: str
    arguments: dict[str, Any]
    namespace: str | None = None
    raw: str = ""
    """The text that the call was read from, where it came as text."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def arguments_json(self) -> str:
        """The arguments as the JSON string that some wires carry."""
        return dumps(self.arguments)


class Text(Struct, frozen=True, tag="text"):
    """What somebody said."""

    text: str
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """What a model thought before it answered. `signature` proves it to its maker."""

    text: str
    signature: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class Image(Struct, frozen=True, tag="image"):
    """A picture, by address or by value."""

    url: str | None = None
    data: str | None = None
    """Base64."""
    media_type: str = "image/png"
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class Document(Struct, frozen=True, tag="document"):
    """Text that was brought in from elsewhere: not the user's own words."""

    text: str
    title: str = ""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a tool gave back for the call with `call_id`."""

    call_id: str
    name: str
    content: str | tuple[Text | Image | Document, ...]
    is_error: bool = False
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The content as text; pictures are left out."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if not isinstance(part, Image))


Part = Text | Reasoning | Image | Document | ToolCall | ToolResult


class Message(Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class ToolChoice(Struct, frozen=True):
    """Whether the model may, must or must not call; `names` narrows which tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


class Request(Struct, frozen=True, kw_only=True):
    """What a client asks for."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    """None: the client said nothing about tools; (): it said there are none."""
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    response_schema: dict[str, Any] | None = None
    stream: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: dict[str, float] = field(default_factory=dict[str, float])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


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
    output: int = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class Reply(Struct, frozen=True, kw_only=True):
    """A whole reply. Only `fold` makes one."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    notes: tuple[Note, ...] = ()
    dialect: str | None = None
    """The dialect in which the first call was written."""
    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None


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
