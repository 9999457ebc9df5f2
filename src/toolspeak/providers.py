"""The providers: where they are, what they speak, and in what they differ from others.

format_tools("anthropic", tools)      parse_tool_calls("ollama", response)
format_tool_result("openai", call_id, name, text)
"""

from __future__ import annotations

import hashlib
import string
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .errors import UsageError
from .extract import extract
from .native import native
from .tools import as_tools
from .types import Message, Note, Rejection, Request, ToolCall, ToolResult
from .wires import wire_of

Shape = dict[str, Any]
_LETTERS = string.ascii_letters + string.digits


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


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `providers.toml`."""

    title: str
    wire: str
    base_url: str = ""
    keys: tuple[str, ...] = ()
    tools: bool | Literal["model"] = "model"
    """Whether its models call tools natively; "model": some do."""
    schema: bool = False
    """Whether an answer can be held to a JSON schema."""
    headers: dict[str, str] = {}
    quirks: Quirks = Quirks()


def _load() -> dict[str, Provider]:
    table = resources.files("toolspeak").joinpath("providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(table), dict[str, Provider])


PROVIDERS = _load()


def provider_of(name: str) -> Provider:
    """The provider of that name."""
    if name not in PROVIDERS:
        raise UsageError(f"there is no provider {name!r}; known are {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def adapted(body: Shape, quirks: Quirks) -> tuple[Shape, tuple[Note, ...]]:
    """A request as this provider wants it, and what is lost by that."""
    if not (quirks.rename or quirks.replace or quirks.drop or _changes_messages(quirks)):
        return body, ()
    out: Shape = {}
    for key, value in body.items():
        if key not in quirks.drop:
            known = quirks.replace.get(key, {})
            changed = known.get(value, value) if isinstance(value, str) else value
            out[quirks.rename.get(key, key)] = changed
    messages = body.get("messages")
    if isinstance(messages, list) and _changes_messages(quirks):
        out["messages"] = [_message(message, quirks) for message in messages]
    lost = [key for key in quirks.drop if key in body]
    lost += [
        f"messages[].{key}"
        for key in quirks.drop_in_messages
        if isinstance(messages, list) and any(key in message for message in messages)
    ]
    notes = (Note("unsupported", f"the provider takes no {key}", f"$.{key}") for key in lost)
    return out, tuple(notes)


def _changes_messages(quirks: Quirks) -> bool:
    return bool(quirks.drop_in_messages or quirks.call_ids)


def _message(message: Shape, quirks: Quirks) -> Shape:
    out = {key: value for key, value in message.items() if key not in quirks.drop_in_messages}
    return _with_ids(out, quirks.call_ids) if quirks.call_ids else out


def _with_ids(message: Shape, length: int) -> Shape:
    """A message whose calls have ids of this length. A call and its result get the same."""
    out = dict(message)
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [{**call, "id": _fitted(call["id"], length)} for call in calls]
    if answered := message.get("tool_call_id"):
        out["tool_call_id"] = _fitted(answered, length)
    return out


def _fitted(identity: str, length: int) -> str:
    if len(identity) == length and set(identity) <= set(_LETTERS):
        return identity
    digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=32).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)[:length]


# Tools, calls and results in a provider's own shape.


def format_tools(provider: str, tools: Iterable[Any]) -> list[Shape]:
    """The tools as the provider's API takes them."""
    request = Request(model="", messages=(), tools=as_tools(tools) or ())
    return wire_of(provider_of(provider).wire).encode_request(request).body.get("tools", [])


def parse_tool_calls(
    provider: str, response: Any, *, rejected: list[Rejection] | None = None
) -> tuple[ToolCall, ...]:
    """The structured calls in a provider's response. One that cannot be read does not spoil the
    others: it is left out, and `rejected`, if given, takes it with the reason."""
    provider_of(provider)
    if not native(response).drafts:
        return ()
    reply = extract(response)
    if rejected is not None:
        rejected += reply.rejected
    return reply.calls


def format_tool_result(provider: str, call_id: str, name: str, text: str) -> Shape:
    """The message that gives a tool's result back."""
    result = ToolResult(call_id=call_id, name=name, content=text)
    request = Request(model="", messages=(Message("tool", (result,)),))
    body = wire_of(provider_of(provider).wire).encode_request(request).body
    [message] = body.get("messages") or body["contents"]
    return message
