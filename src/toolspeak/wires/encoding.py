"""Request encoding that the APIs share: tool names, a log of losses, and settings.

Names that an API does not allow are replaced, and mapped back in the reply:

    mcp.files/read        ->   mcp_files_read            crm › find   ->   crm__find
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar

from msgspec import Struct

from .._util import memoize_by_identity
from ..calls.tools import build_text_schema
from ..types import Message, Note, Request, Thinking, Tool
from .fields import HOSTED_TOOLS, PRIVATE, Json

API_NAMES = {
    "openai_chat": "OpenAI Chat Completions",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "ollama": "Ollama",
    "gemini": "Gemini",
}
"""The names of the APIs in notes and docs."""
LocatedMessage = tuple[Message, str]
"""A message and its path in the request."""
CACHE_CONTROL = "cache_control"
"""Marks the end of what is to be cached of a prompt. The APIs that have it write it alike."""
_CONNECTION_FIELDS = frozenset({"stream_options"})
"""Fields about the connection: another API loses nothing without them."""


# Tool names.


class NameRule(Struct, frozen=True):
    """The tool names that an API allows."""

    allowed: str
    """The allowed characters, as in a regular expression's set."""
    max_length: int
    first: str = ""
    """The characters that a name may begin with, if not all of them."""
    has_namespaces: bool = False
    """The API has a field for namespaces beside the names."""

    def allows(self, name: str) -> bool:
        first = f"(?=[{self.first}])" if self.first else ""
        pattern = f"{first}[{self.allowed}]{{1,{self.max_length}}}"
        return re.fullmatch(pattern, name) is not None


ANY_NAME = NameRule(r"\s\S", 10_000)
OPENAI_NAMES = NameRule(r"a-zA-Z0-9_\-", 64)


class ToolNames:
    """Maps the tools of a request to names that an API allows, and back.

    A name depends on the tools alone, so that it is the same in every turn. Names that differ stay
    different.
    """

    def __init__(self, tools: Iterable[Tool], rule: NameRule) -> None:
        self._rule = rule
        self._wire_names: dict[tuple[str | None, str], str] = {}
        self._tools: dict[tuple[str | None, str], Tool] = {}
        declared = list(tools)
        plain = {tool.name for tool in declared if tool.namespace is None}
        for tool in declared:
            key = (tool.namespace, tool.name)
            if key in self._wire_names:
                continue
            namespace = self._namespace_field(tool.namespace)
            name = self._make_valid(tool.namespace, tool.name)
            is_taken = namespace is None and name in plain and key != (None, name)
            if is_taken or (namespace, name) in self._tools:
                name = self._append_hash(name, f"{tool.namespace or ''}\0{tool.name}")
            self._wire_names[key] = name
            self._tools[namespace, name] = tool

    def to_wire(self, name: str, namespace: str | None = None) -> str:
        """Return the name as it is sent."""
        known = self._wire_names.get((namespace, name))
        return known if known is not None else self._make_valid(namespace, name)

    def find_wire_name(self, name: str, namespace: str | None = None) -> str | None:
        """Return the name under which a tool of the request is sent, or None."""
        return self._wire_names.get((namespace, name))

    def find_tool(self, name: str, namespace: str | None = None) -> Tool | None:
        """Return the request's tool that a name on the wire refers to, or None."""
        return self._tools.get((namespace, name))

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """A note on each tool that is sent under another name."""
        return tuple(
            Note("renamed-tool", f"The tool {name!r} was sent as {sent!r}.", name)
            for (_, name), sent in self._wire_names.items()
            if name != sent
        )

    def _namespace_field(self, namespace: str | None) -> str | None:
        return namespace if self._rule.has_namespaces else None

    def _make_valid(self, namespace: str | None, name: str) -> str:
        rule = self._rule
        is_inside = namespace and not self._namespace_field(namespace)
        full = f"{namespace}__{name}" if is_inside else name
        if rule.allows(full):
            return full
        valid = re.sub(f"[^{rule.allowed}]", "_", full) or "_"
        if rule.first and not re.match(f"[{rule.first}]", valid):
            valid = f"_{valid}"
        return valid if len(valid) <= rule.max_length else self._append_hash(valid, full)

    def _append_hash(self, name: str, full: str) -> str:
        """Return a name that differs from those of all other tools, however similar they are."""
        digest = short_hash(full)
        return f"{name[: self._rule.max_length - len(digest) - 1]}_{digest}"


def join_namespace(namespace: str | None, name: str) -> str:
    """Return a tool's name with its namespace, as models write it."""
    return f"{namespace}.{name}" if namespace else name


NO_TOOL_NAMES = ToolNames((), ANY_NAME)


@cache
def build_name_mapper(rule: NameRule) -> Callable[[tuple[Tool, ...]], ToolNames]:
    """Return a cached function that maps the names of tools by a rule."""
    return memoize_by_identity(lambda tools: ToolNames(tools, rule))


# Requests.


class EncodedRequest(Struct, frozen=True):
    """A request that is ready to be sent to an upstream."""

    path: str
    """Below the upstream's base URL."""
    body: Json
    names: ToolNames = NO_TOOL_NAMES
    """Maps the tool names in the reply back to the tools."""
    notes: tuple[Note, ...] = ()


class LossLog:
    """Collects notes on what a request loses on its way to another API.

    Each loss is noted once, with the path of the first place and the number of places.
    """

    def __init__(self, wire: str, origin: str, *, has_cache_control: bool = False) -> None:
        self.wire = wire
        self._has_cache_control = has_cache_control
        self.is_same_wire = wire == origin
        """The request came through this very API, so every `extra` is sent along."""
        self._notes: dict[tuple[str, str], tuple[str, int]] = {}

    @property
    def api(self) -> str:
        return API_NAMES.get(self.wire, self.wire)

    def carry(self, extra: Json, path: str) -> Json:
        """Return `extra` if it belongs to this API. Otherwise return only what both APIs have, and
        log the other fields."""
        if self.is_same_wire or not extra:
            return extra
        shared: Json = {}
        for key in extra:
            if key == CACHE_CONTROL and self._has_cache_control:
                shared[key] = extra[key]
            elif key not in _CONNECTION_FIELDS and not key.startswith(PRIVATE):
                self.drop(f"`{key}`", f"{path}.{key}")
        for tool in extra.get(HOSTED_TOOLS, ()):
            kind = tool.get("type") or next(iter(tool), None)
            self._note(
                "skipped-tool",
                f"{self.api} cannot run the hosted tool {kind!r}; it was not offered.",
                path,
            )
        return shared

    def drop(self, feature: str, path: str) -> None:
        """Note that the API does not support something, which is left out."""
        self._note("unsupported", f"{self.api} does not support {feature}; dropped.", path)

    def change(self, message: str, path: str) -> None:
        """Note that something is expressed in another way."""
        self._note("converted", message, path)

    def notes(self) -> tuple[Note, ...]:
        if not self._notes:
            return ()
        return tuple(
            Note(code, f"{message} ({count} places)" if count > 1 else message, path)
            for (code, message), (path, count) in self._notes.items()
        )

    def _note(self, code: str, message: str, path: str) -> None:
        first_path, count = self._notes.get((code, message), (path, 0))
        self._notes[code, message] = (first_path, count + 1)


class RequestEncoder:
    """Base of the APIs' request encoders: one request, its tool names and its losses."""

    wire: ClassVar[str]
    name_rule: ClassVar[NameRule]
    has_cache_control: ClassVar[bool] = False
    """The API itself has `cache_control`, whatever the provider."""

    def __init__(self, request: Request, *, has_cache_control: bool = False) -> None:
        """`has_cache_control`: the provider has it, even if others of this API do not."""
        self.request = request
        has_cache_control = has_cache_control or self.has_cache_control
        self.losses = LossLog(self.wire, request.wire, has_cache_control=has_cache_control)
        self.is_same_wire = self.losses.is_same_wire
        self.names = build_name_mapper(self.name_rule)(request.tools or ())
        self.extra = dict(self.losses.carry(request.extra, "$"))
        """Fields that only this API has; encoders take out those that they encode."""

    def encode(self) -> EncodedRequest:
        raise NotImplementedError

    def finish(self, path: str, body: Json) -> EncodedRequest:
        notes = (*self.losses.notes(), *self.names.notes)
        return EncodedRequest(path, body, self.names, notes)

    def encode_name(self, tool: Tool) -> str:
        return self.names.to_wire(tool.name, tool.namespace)

    def split_system(
        self, messages: Iterable[Message], *, keeps_later: bool = False
    ) -> tuple[list[LocatedMessage], list[LocatedMessage]]:
        """Return the instructions, for an API with a field for them; and the other messages.
        Later instructions move to that field unless it `keeps_later` ones in the conversation."""
        instructions: list[LocatedMessage] = []
        others: list[LocatedMessage] = []
        for index, message in enumerate(messages):
            path = f"$.messages[{index}]"
            if message.role not in ("system", "developer") or (keeps_later and others):
                others.append((message, path))
                continue
            if others:
                text = "Instructions within the conversation were moved to the system prompt."
                self.losses.change(text, path)
            if message.role == "developer":
                self.losses.change("A developer message became part of the system prompt.", path)
            instructions.append((message, path))
        return instructions, others

    def encode_choice_names(self) -> list[str]:
        """Return the tools that the tool choice names, as this API spells them."""
        namespaces = {tool.name: tool.namespace for tool in self.request.tools or ()}
        names = self.request.tool_choice.names
        return [self.names.to_wire(name, namespaces.get(name)) for name in names]

    def select_allowed_tools(self) -> tuple[Tool, ...]:
        """Return the tools that may be called, for an API that cannot choose among more."""
        tools, names = self.request.tools or (), self.request.tool_choice.names
        if not names:
            return tools
        allowed = tuple(tool for tool in tools if tool.name in names)
        if len(allowed) < len(tools):
            self.losses.change("Only the tools that may be called were sent.", "$.tool_choice")
        return allowed

    def encode_sampling(self, supported: Container[str], extensions: Container[str] = ()) -> Json:
        """Return the supported sampling settings; `extensions` are only sent back to the API that
        they came from."""
        settings: Json = {}
        for key, value in self.request.sampling.items():
            if key in supported or (self.is_same_wire and key in extensions):
                settings[key] = value
            else:
                self.losses.drop(f"`{key}`", f"$.{key}")
        return settings

    def drop_metadata(self, supported: Container[str] = ()) -> None:
        for key in self.request.metadata:
            if key not in supported:
                self.losses.drop(f"`metadata.{key}`", f"$.metadata.{key}")


def omit_none(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


# Tools.


def convert_freeform_tool(tool: Tool, losses: LossLog, path: str) -> Tool:
    """Return a freeform tool as one whose arguments are an object with the text as `input`."""
    if not tool.freeform:
        return tool
    message = f"{losses.api} has no freeform tools; the text was sent as the argument `input`."
    losses.change(message, path)
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=build_text_schema(tool.extra.get("format")),
        namespace=tool.namespace,
    )


def as_object_schema(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters for an API that requires an object schema."""
    return parameters or {"type": "object", "properties": {}}


def short_hash(text: str) -> str:
    """Return six characters that tell a text from similar ones."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=3).hexdigest()


# Reasoning effort.

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_EFFORT_BY_BUDGET = ((0, "none"), (2_048, "low"), (12_288, "medium"))


def choose_effort(
    thinking: Thinking, losses: LossLog, supported: Iterable[str] = EFFORTS[:6]
) -> str | None:
    """Return the supported effort nearest to what is asked for; None leaves it to the model."""
    effort = thinking.effort
    if effort is None and thinking.enabled is False:
        # Models that cannot reason refuse an effort of `none`.
        losses.drop("disabling reasoning (effort `none`)", "$.thinking")
    elif effort is None and thinking.budget is not None:
        effort = next(
            (word for limit, word in _EFFORT_BY_BUDGET if thinking.budget <= limit), "high"
        )
        message = f"A reasoning budget of {thinking.budget} tokens was sent as effort {effort!r}."
        losses.change(message, "$.thinking")
    if effort is None and (thinking.enabled or thinking.shown is not None):
        losses.drop("enabling or showing reasoning", "$.thinking")
    if effort is None or effort in (supported := tuple(supported)):
        return effort
    nearest = min(supported, key=lambda word: abs(_rank_effort(word) - _rank_effort(effort)))
    message = f"{losses.api} has no reasoning effort {effort!r}; {nearest!r} was sent."
    losses.change(message, "$.thinking")
    return nearest


def _rank_effort(effort: str) -> int:
    return EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")


# Keys of an `extra` that only concern their own API.


def public_fields(extra: Json) -> Json:
    """Return the fields of an `extra` that are not private."""
    return {key: value for key, value in extra.items() if not key.startswith(PRIVATE)}


def mark_private(fields: Json, private: Container[str]) -> Json:
    """Prefix the keys in `private`, so that another API drops them without a note."""
    return {f"{PRIVATE}{key}" if key in private else key: value for key, value in fields.items()}


def unmark_private(extra: Json) -> Json:
    """Undo `mark_private`."""
    return {key.removeprefix(PRIVATE): value for key, value in extra.items()}
