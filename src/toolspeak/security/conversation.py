"""Who said what in a conversation, in whatever API's shape its messages are.

What a user's turn says is a request. What tools, documents and other roles brought in is foreign: a
call that stands there is nobody's wish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ..calls.schema import iter_strings
from ..errors import UsageError
from ..types import Document, Message, Text, ToolResult

_OWN = frozenset({"assistant", "model", "system", "developer", "ai"})
"""Roles whose own text is neither a request nor foreign."""
_MODEL = frozenset({"assistant", "model", "ai"})
_KEEPING = frozenset({"user", "system", "developer"})
"""Roles whose turns do not end the model's own."""
_PLAIN_TEXT = frozenset({None, "text", "input_text", "output_text"})
_MEDIA = frozenset({"image", "image_url", "input_image", "input_audio", "audio", "video"})
_BROUGHT_IN = re.compile(r"result|output|document|file|resource|response")
BY_US = "~by"
"""In the `extra` of a message: it was written by neither side, and says nothing new."""
_REQUESTS = ("messages", "input", "contents")
"""Where the conversation stands in a request to OpenAI's Chat and Responses, Anthropic, Gemini."""


class Request(NamedTuple):
    """What a user's turn says."""

    text: str
    reply: str = ""
    """What the model has said before it, with nothing but users' turns between."""


def sides(context: Any) -> tuple[list[str], list[Request]]:
    """The texts that were brought in, and those of the users' turns. A prompt may have put results
    into those too: `security/result_spans.py` tells them apart."""
    foreign: list[str] = []
    own: list[Request] = []
    reply = ""
    for index, message in enumerate(_messages(context)):
        said: list[str] = []
        for whose, text in _sorted(message, index):
            if whose == "model":
                said.append(text)
            elif whose == "user":
                own.append(Request(text, reply))
            else:
                foreign.append(text)
        reply = "\n".join(said) or (reply if _role_of(message) in _KEEPING else "")
    return foreign, own


def asked(messages: Iterable[Message]) -> str:
    """What the user said last."""
    said = ""
    for message in messages:
        if message.role == "user":
            text = "".join(part.text for part in message.parts if isinstance(part, Text))
            said = text or said
    return said


Whose = Literal["user", "model", "foreign"]
Sorted = Iterator[tuple[Whose, str]]


def _messages(context: Any) -> Iterable[Any]:
    if isinstance(context, Mapping) and "role" not in context:
        given = next((context[key] for key in _REQUESTS if context.get(key)), None)
        # What has no role in a whole request is the user's.
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        elif isinstance(given, Mapping):
            given = [given]
        if isinstance(given, (list, tuple)):
            brought = context.get("documents")
            documents = [{"type": "documents", "content": brought}] if brought else []
            return [*documents, *map(_with_role, given)]
    alone = isinstance(context, (str, Mapping, Message, ToolResult, Document))
    return (context,) if alone else context


def _with_role(message: Any) -> Any:
    if isinstance(message, str):
        return {"role": "user", "content": message}
    if isinstance(message, Mapping) and not message.get("role") and "type" not in message:
        return {**message, "role": "user"}
    return message


def _role_of(message: Any) -> Any:
    if isinstance(message, Mapping):
        return message.get("role")
    return message.role if isinstance(message, Message) else None


def _sorted(message: Any, index: int) -> Sorted:
    match message:
        case str():
            yield "foreign", message
        case Message(extra=extra) if BY_US in extra:
            return
        case Message():
            for part in message.parts:
                if isinstance(part, (ToolResult, Document)):
                    yield from _brought(part)
                elif isinstance(part, Text):
                    yield from _spoken(part.text, message.role)
        case ToolResult() | Document():
            yield from _brought(message)
        case Mapping():
            yield from _from_mapping(message)
        case _:
            kind = type(message).__name__
            raise UsageError(f"Expected a message, got `{kind}` - at `$.context[{index}]`")


def _brought(part: ToolResult | Document) -> Sorted:
    """What a result or a document says, with the titles of documents."""
    yield "foreign", part.text
    documents = (part,) if isinstance(part, Document) else part.content
    for document in documents if not isinstance(documents, str) else ():
        if isinstance(document, Document) and document.title:
            yield "foreign", document.title


def _from_mapping(message: Mapping[str, Any]) -> Sorted:
    role = message.get("role")
    if role is None and "type" in message:
        yield from _from_item(message)
        return
    content = message.get("content", message.get("parts"))
    if role not in (*_OWN, "user"):
        yield from _foreign(content)
    elif isinstance(content, str):
        yield from _spoken(content, str(role))
    elif isinstance(content, list):
        for block in content:
            yield from _from_block(block, str(role))


def _from_item(item: Mapping[str, Any]) -> Sorted:
    """An item of OpenAI's Responses that is no message: what a tool gave, or a call."""
    given = [item.get(key) for key in ("output", "results", "error", "content")]
    if str(item["type"]).endswith("_call"):
        given = given[:3]
    elif not any(given):
        given = [dict(item)]
    yield from _foreign(given)


def _from_block(block: Any, role: str) -> Sorted:
    """A part of a message: text of whoever speaks, or something that was brought in."""
    if isinstance(block, str):
        block = {"text": block}
    if not isinstance(block, Mapping):
        return
    kind = block.get("type")
    is_text = kind in _PLAIN_TEXT and isinstance(block.get("text"), str)
    is_result = _BROUGHT_IN.search(str(kind)) or "functionResponse" in block
    if is_text:
        yield from _spoken(block["text"], role)
    elif kind in _MEDIA:
        return
    elif role == "user" or is_result or "function_response" in block:
        yield from _foreign(block)


def _foreign(value: Any) -> Sorted:
    """All texts in something that was brought in."""
    for text in iter_strings(value):
        yield "foreign", text


def _spoken(text: str, role: str) -> Sorted:
    """What a role says in its own words."""
    if role == "user":
        yield "user", text
    elif role in _MODEL:
        yield "model", text
    elif role not in _OWN:
        yield "foreign", text
