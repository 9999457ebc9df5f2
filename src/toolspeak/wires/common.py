"""What several wires say in nearly the same words."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from .._util import encode_json, memoize_by_identity
from ..calls.drafts import CallDraft, decode_arguments
from ..calls.tools import build_text_schema
from ..types import (
    Document,
    Failure,
    FailureKind,
    Image,
    Message,
    Note,
    Other,
    Part,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
)
from .fields import OWN, WRITTEN, Json, Unsaid
from .names import NameRule, Names

_LONGEST_USER = 64
OPENAI_NAMES = NameRule(r"a-zA-Z0-9_\-", 64)

# Pictures and files.


def image_from(url: str, **fields: Any) -> Image:
    """A picture by its address; a `data:` address holds it."""
    media_type, data = split_data_url(url)
    if data is None:
        return Image(url=url, **fields)
    return Image(data=data, media_type=media_type or "image/png", **fields)


def split_data_url(url: str) -> tuple[str, str | None]:
    """The kind of media and the base64 data of a `data:` address; ("", None) for any other."""
    if not url.startswith("data:"):
        return "", None
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return "", None
    return head.partition(";")[0], data


def url_of(part: Image | Document) -> str:
    """The address of a picture or file, which holds the data where it came by value."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{part.data}"
    return part.url or ""


def document_as_text(document: Document) -> str:
    """A text from elsewhere, marked as such, for an API that has no documents."""
    title = f' title="{document.title}"' if document.title else ""
    return f"<document{title}>\n{document.text or document.url or ''}\n</document>"


# Tools and calls.

GIVEN_ID = f"{OWN}id"
"""In the `extra` of a call or result: the id that it came with, if that is another; "" for none."""


class History:
    """The calls of a conversation so far, to tell whose result a result is."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unanswered: set[str] = set()
        self._waiting: dict[tuple[str, str], deque[str]] = {}
        """The calls in their order: of a name, of a name however it is spelled, and all."""
        self._unsorted: list[ToolCall] = []
        """The calls that are not there yet: most results have ids, and nobody asks."""
        self._count = 0

    def new_id(self) -> str:
        """An id for a call that came without one: the same each time the conversation is read."""
        self._count = max(self._count, len(self._names) + 1)
        while f"call_{self._count}" in self._names:
            self._count += 1
        return f"call_{self._count}"

    def made(self, call: ToolCall) -> ToolCall:
        """Remember a call."""
        self._names[call.id] = call.name
        self._unanswered.add(call.id)
        self._unsorted.append(call)
        return call

    def answered(
        self, identity: str = "", name: str = "", *, loose: bool = False
    ) -> tuple[str, str]:
        """The id and the name of the call that a result answers: the one with that id, or else the
        first without a result, of that name if there is one. Where ids are `loose`, one that no
        call has is none."""
        if not identity or (loose and identity not in self._names):
            identity = self._first(name) or identity or self.new_id()
        self._unanswered.discard(identity)
        return identity, self._names.setdefault(identity, name) or name

    def _first(self, name: str) -> str:
        for call in self._unsorted:
            for key in _spellings(call.name):
                self._waiting.setdefault(key, deque()).append(call.id)
        self._unsorted = []
        for key in _spellings(name) if name else [_ALL]:
            waiting = self._waiting.get(key)
            while waiting and waiting[0] not in self._unanswered:
                waiting.popleft()
            if waiting:
                return waiting[0]
        return ""


_ALL = ("", "")


def _spellings(name: str) -> list[tuple[str, str]]:
    return [("exact", name), ("alike", re.sub(r"[\W_]", "", name).casefold()), _ALL]


def whose(
    history: History, given: str, named: str, path: str, notes: list[Note]
) -> tuple[str, str, Json]:
    """The id and the name of the call that a result answers, where results need not say; and the
    id that it came with, to ride along."""
    identity, name = history.answered(given, named, loose=True)
    if identity == given:
        return identity, name, {}
    if given or named not in ("", name):
        message = f"a result of {named or given!r} is taken for that of a call of {name!r}"
        notes.append(Note("name-corrected", message, path))
    return identity, name, {GIVEN_ID: given}


def call_from_text(
    identity: str, name: str, arguments: Any, path: str, notes: list[Note], **fields: Any
) -> ToolCall:
    """A call of the history whose arguments are JSON text. What cannot be read is kept as it is."""
    extra: Json = dict(fields.pop("extra", None) or {})
    decoded, problem, repairs = decode_arguments(CallDraft(name, arguments))
    if decoded is None:
        notes.append(Note("undecodable-arguments", problem, path))
    if isinstance(arguments, str) and (decoded is None or encode_json(decoded) != arguments):
        extra[WRITTEN] = arguments
    notes.extend(
        Note(f"repaired-{repair}", f"in the history of {name!r}", path) for repair in repairs
    )
    return ToolCall(id=identity, name=name, arguments=decoded or {}, extra=extra, **fields)


def as_function(tool: Tool, unsaid: Unsaid, path: str) -> Tool:
    """A tool that takes text, as one that takes an object with the text in it."""
    if not tool.freeform:
        return tool
    unsaid.change(f"{unsaid.wire} has no freeform tools; the text is an object's `input`", path)
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=build_text_schema(tool.extra.get("format")),
        namespace=tool.namespace,
    )


def short_id(identity: str, longest: int) -> str:
    """An id of no more letters than an API takes. A call and its result get the same."""
    return identity if len(identity) <= longest else f"{identity[: longest - 7]}_{digest(identity)}"


def digest(text: str) -> str:
    """Six letters that tell a text from others like it."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=3).hexdigest()


def user_id(request: Request, unsaid: Unsaid) -> str | None:
    """On whose behalf the request is, in no more letters than most servers take."""
    user = request.metadata.get("user_id")
    if not isinstance(user, str) or not user:
        return None
    if unsaid.same or len(user) <= _LONGEST_USER:
        return user
    unsaid.change("a user's id that is too long for some goes out as a hash", "$.metadata.user_id")
    return hashlib.blake2b(user.encode("utf-8", "replace"), digest_size=16).hexdigest()


def object_schema(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema as an API wants it that takes nothing but objects."""
    return parameters or {"type": "object", "properties": {}}


def narrowed(request: Request, unsaid: Unsaid) -> tuple[Tool, ...]:
    """The tools that may be called, where an API cannot be told to choose among more."""
    tools = request.tools or ()
    names = request.tool_choice.names
    if not names:
        return tools
    kept = tuple(tool for tool in tools if tool.name in names)
    if len(kept) < len(tools):
        unsaid.change("only the tools that may be chosen are offered", "$.tool_choice")
    return kept


def names_of(request: Request, rule: NameRule, *, keeps_namespaces: bool = False) -> Names:
    """The names of a request's tools, as the rule allows."""
    return names_for(request.tools or (), rule, keeps_namespaces=keeps_namespaces)


def names_for(tools: tuple[Tool, ...], rule: NameRule, *, keeps_namespaces: bool = False) -> Names:
    """The names of tools, as the rule allows."""
    return _names(rule, keeps_namespaces)(tools)


@cache
def _names(rule: NameRule, keeps_namespaces: bool) -> Callable[[tuple[Tool, ...]], Names]:
    return memoize_by_identity(lambda tools: Names(tools, rule, keeps_namespaces=keeps_namespaces))


# What rides along.


def set_apart(fields: Json, known: Container[str]) -> Json:
    """Fields to ride along, of which those that are known mean nothing elsewhere."""
    return {f"{OWN}{key}" if key in known else key: value for key, value in fields.items()}


def put_back(extra: Json) -> Json:
    """The fields that `set_apart` was given."""
    return {key.removeprefix(OWN): value for key, value in extra.items()}


def kind_of(part: Other) -> str:
    """What its API calls a part that only it can say."""
    return str(part.data.get("type") or next(iter(part.data), "other"))


def joined(request: Request) -> tuple[Message, ...]:
    """The conversation in turns, where it came by an API that is read in another way: what an
    assistant says in several messages is one, as its results follow the whole of it."""
    turns: list[Message] = []
    for role, run in groupby(request.messages, lambda message: message.role):
        if role != "assistant":
            turns += run
            continue
        messages = list(run)
        parts = tuple(part for message in messages for part in message.parts)
        extra = {key: value for message in messages for key, value in message.extra.items()}
        if parts:
            turns.append(Message("assistant", parts, extra))
    return tuple(turns)


# Settings.

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_BUDGETS = ((0, "none"), (2_048, "low"), (12_288, "medium"))


def effort_of(thinking: Thinking, unsaid: Unsaid, known: Iterable[str] = EFFORTS[:6]) -> str | None:
    """How hard to think, in words; None leaves it to the model."""
    effort = thinking.effort
    if effort is None and thinking.enabled is False:
        # Models that cannot think refuse an effort of none.
        unsaid.drop("thinking that is switched off, an effort of none", "$.thinking")
    elif effort is None and thinking.budget is not None:
        effort = next((word for limit, word in _BUDGETS if thinking.budget <= limit), "high")
        unsaid.change(f"a budget of {thinking.budget} tokens is {effort!r} effort", "$.thinking")
    if effort is None and (thinking.enabled or thinking.shown is not None):
        unsaid.drop("whether to think, and to show it", "$.thinking")
    if effort is None or effort in (known := tuple(known)):
        return effort
    nearest = min(known, key=lambda word: abs(_rank(word) - _rank(effort)))
    unsaid.change(
        f"{unsaid.wire} has no effort {effort!r}; the nearest is {nearest!r}", "$.thinking"
    )
    return nearest


def _rank(effort: str) -> int:
    return EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")


def sampling_out(
    request: Request, written: Mapping[str, str], unsaid: Unsaid, *, extensions: Iterable[str] = ()
) -> Json:
    """The settings that a wire has words for; `extensions` only where they came by the same."""
    out: Json = {}
    for key, value in request.sampling.items():
        if key in written:
            out[written[key]] = value
        elif unsaid.same and key in extensions:
            out[key] = value
        else:
            unsaid.drop(key, f"$.{key}")
    return out


def only_text(parts: Sequence[Part]) -> str | None:
    """What is said by parts that are nothing but one plain text."""
    if len(parts) > 1:
        return None
    for part in parts:
        is_text = isinstance(part, Text)
        if is_text and (not part.extra or all(key.startswith(OWN) for key in part.extra)):
            return part.text
        return None
    return ""


def choice_names(choice: ToolChoice, names: Names, tools: Iterable[Tool]) -> list[str]:
    """The tools that a choice names, as they are written."""
    spaces = {tool.name: tool.namespace for tool in tools}
    return [names.write(name, spaces.get(name)) for name in choice.names]


# Failures.

_KINDS: dict[int, FailureKind] = {
    400: "bad_request",
    401: "unauthorized",
    402: "forbidden",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "bad_request",
    429: "rate_limit",
    502: "upstream",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
NO_STATUS = 500
"""What an error in a stream has, until its words tell more."""
STATUSES = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "upstream_error": 502,
    "timeout_error": 504,
    "overloaded_error": 529,
    "server_is_overloaded": 529,
}
"""What the words of errors mean, where no status comes with them."""
_CONTEXT = (
    "context_length",
    "context length",
    "context window",
    "context size",
    "context_size",
    "prompt is too long",
    "prompt too long",
    "maximum prompt length",
    "input is too long",
    "reduce the length of the messages",
    "too many tokens",
    "exceeds the maximum number of tokens",
)


def failure_from(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    details: Json | None = None,
) -> Failure:
    """What went wrong, by the status and the words of an upstream."""
    kind = _KINDS.get(status, "upstream" if status >= 500 else "bad_request")
    about = f"{code} {message}".lower()
    if kind in ("bad_request", "too_large") and any(words in about for words in _CONTEXT):
        kind = "context_length"
    return Failure(kind, message or f"the upstream answered {status}", status, code, param, details)
