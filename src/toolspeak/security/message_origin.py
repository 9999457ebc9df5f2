"""Who said what in a conversation, in whatever API's shape its messages are.

What a user's turn says is a request. What tools, documents and other roles brought in is foreign: a
call that stands there is nobody's wish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ..calls.schema import iter_strings
from ..dialects.catalog import ALL_DIALECTS
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
GENERATED_KEY = "~by"
"""In the `extra` of a message: it was written by neither side, and says nothing new."""
_REQUESTS = ("messages", "input", "contents")
"""Where the conversation stands in a request to OpenAI's Chat and Responses, Anthropic, Gemini."""


class UserTurn(NamedTuple):
    """What a user's turn says."""

    text: str
    reply: str = ""
    """What the model has said before it, with nothing but users' turns between."""


def split_by_origin(context: Any) -> tuple[list[str], list[UserTurn]]:
    """The texts that were brought in, and those of the users' turns. A prompt may have put results
    into those too: `security/result_spans.py` tells them apart."""
    foreign: list[str] = []
    own: list[UserTurn] = []
    reply = ""
    for index, message in enumerate(_list_messages(context)):
        said: list[str] = []
        for whose, text in _message_texts(message, index):
            if whose == "model":
                said.append(text)
            elif whose == "user":
                own.append(UserTurn(text, reply))
            else:
                foreign.append(text)
        reply = "\n".join(said) or (reply if _role_of(message) in _KEEPING else "")
    return foreign, own


def last_user_text(messages: Iterable[Message]) -> str:
    """What the user said last."""
    said = ""
    for message in messages:
        if message.role == "user":
            text = "".join(part.text for part in message.parts if isinstance(part, Text))
            said = text or said
    return said


Origin = Literal["user", "model", "foreign"]
OriginTexts = Iterator[tuple[Origin, str]]


def _list_messages(context: Any) -> Iterable[Any]:
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


def _message_texts(message: Any, index: int) -> OriginTexts:
    match message:
        case str():
            yield "foreign", message
        case Message(extra=extra) if GENERATED_KEY in extra:
            return
        case Message():
            for part in message.parts:
                if isinstance(part, (ToolResult, Document)):
                    yield from _part_texts(part)
                elif isinstance(part, Text):
                    yield from _text_of_role(part.text, message.role)
        case ToolResult() | Document():
            yield from _part_texts(message)
        case Mapping():
            yield from _mapping_texts(message)
        case _:
            kind = type(message).__name__
            raise UsageError(f"Expected a message, got `{kind}` - at `$.context[{index}]`")


def _part_texts(part: ToolResult | Document) -> OriginTexts:
    """What a result or a document says, with the titles of documents."""
    yield "foreign", part.text
    documents = (part,) if isinstance(part, Document) else part.content
    for document in documents if not isinstance(documents, str) else ():
        if isinstance(document, Document) and document.title:
            yield "foreign", document.title


def _mapping_texts(message: Mapping[str, Any]) -> OriginTexts:
    role = message.get("role")
    if role is None and "type" in message:
        yield from _item_texts(message)
        return
    content = message.get("content", message.get("parts"))
    if role not in (*_OWN, "user"):
        yield from _untrusted_strings(content)
    elif isinstance(content, str):
        yield from _text_of_role(content, str(role))
    elif isinstance(content, list):
        for block in content:
            yield from _block_texts(block, str(role))


def _item_texts(item: Mapping[str, Any]) -> OriginTexts:
    """An item of OpenAI's Responses that is no message: what a tool gave, or a call."""
    given = [item.get(key) for key in ("output", "results", "error", "content")]
    if str(item["type"]).endswith("_call"):
        given = given[:3]
    elif not any(given):
        given = [dict(item)]
    yield from _untrusted_strings(given)


def _block_texts(block: Any, role: str) -> OriginTexts:
    """A part of a message: text of whoever speaks, or something that was brought in."""
    if isinstance(block, str):
        block = {"text": block}
    if not isinstance(block, Mapping):
        return
    kind = block.get("type")
    is_text = kind in _PLAIN_TEXT and isinstance(block.get("text"), str)
    is_result = _BROUGHT_IN.search(str(kind)) or "functionResponse" in block
    if is_text:
        yield from _text_of_role(block["text"], role)
    elif kind in _MEDIA:
        return
    elif role == "user" or is_result or "function_response" in block:
        yield from _untrusted_strings(block)


def _untrusted_strings(value: Any) -> OriginTexts:
    """All texts in something that was brought in."""
    for text in iter_strings(value):
        yield "foreign", text


def _text_of_role(text: str, role: str) -> OriginTexts:
    """What a role says in its own words."""
    if role == "user":
        yield "user", text
    elif role in _MODEL:
        yield "model", text
    elif role not in _OWN:
        yield "foreign", text


_LINE = r"^[ \t]*+"
_SLOT = re.compile(r"\$([a-z]+(?:_json)?)")
_FIRST_TOKEN = re.compile(r"<(?P<tag>\w+)(?=[ >])|<[^<>\s]+>|\[[A-Za-z][\w ]+\]")
_LAST_TOKEN = re.compile(r"(?:<[^<>\s]+>|\[/\w+\])\Z")
_NUMBER_SLOTS = ("index", "number")
_FOREIGN_SPANS = (
    ("<tool_results>", "</tool_results>"),
    ("<function_results>", "</function_results>"),
)
"""Seen in other projects' prompts."""


def split_results(text: str) -> Iterator[tuple[bool, str]]:
    """The user's words, and the results among them: (whether it was brought in, text).

    A span ends with the last of its closers, because what a tool gives may hold closers too; one
    that never ends goes on to the end.
    """
    at = 0
    while match := _OPENERS.search(text, at):
        yield False, text[at : match.start()]
        closers = _CLOSERS[match.lastindex or 0]
        found = ((text.rfind(closer, match.end()), len(closer)) for closer in closers)
        last, size = max(found, default=(-1, 0))
        at = last + size if last >= 0 else len(text)
        yield True, text[match.end() : at]
    yield False, text[at:]


def _result_spans() -> Iterator[tuple[str, str]]:
    """A pattern for what opens a result, and what closes it; "" if nothing does."""
    for dialect in ALL_DIALECTS:
        one, _, after = dialect.result_template.partition("$content")
        yield _opener_pattern(one), _closing_token(after.removeprefix("_json"))
        before, _, after = dialect.results_template.partition("$results")
        yield _opener_pattern(before), _closing_token(after)
        yield from (
            (_opener_pattern(opener), _closing_token(closer))
            for opener, closer in dialect.result_spans
        )
    yield from (
        (_opener_pattern(opener), _closing_token(closer)) for opener, closer in _FOREIGN_SPANS
    )


def _opener_pattern(before: str) -> str:
    """The token that a template begins with, or the words on a line of their own; "" if it has
    neither."""
    before = before.lstrip()
    if token := _FIRST_TOKEN.match(before):
        return re.escape(token[0]) + (r"\b[^<>]*+>" if token["tag"] else "")
    words, *slots = _SLOT.split(before)
    if sum(map(str.isalpha, words)) < 3:
        return ""
    number = r"\s*+\d" if slots and slots[0] in _NUMBER_SLOTS else ""
    return f"{_LINE}{re.escape(words.strip())}{number}"


def _closing_token(after: str) -> str:
    """The token that a template ends with, or all behind its last slot."""
    rest = _SLOT.split(after)[-1].strip()
    token = _LAST_TOKEN.search(rest)
    return token[0] if token else "" if " " in rest else rest


def _closers_by_opener() -> dict[str, tuple[str, ...]]:
    """Each opener with all that may close it; tokens first, and then those that begin a line."""
    table: dict[str, dict[str, None]] = {}
    for opener, closer in sorted(_result_spans(), key=lambda span: span[0].startswith(_LINE)):
        if opener:
            table.setdefault(opener, {}).update({closer: None} if closer else {})
    return {opener: tuple(closers) for opener, closers in table.items()}


def _compile_openers(openers: Iterable[str]) -> re.Pattern[str]:
    """All openers in one, which sees at nearly every letter at once that none begins there."""
    tokens, lines = list[str](), list[str]()
    for opener in openers:
        begins_line = opener.startswith(_LINE)
        (lines if begins_line else tokens).append(f"({opener.removeprefix(_LINE)})")
    return re.compile(rf"(?=[<\[])(?:{'|'.join(tokens)})|{_LINE}(?:{'|'.join(lines)})", re.M)


_SPANS = _closers_by_opener()
_OPENERS = _compile_openers(_SPANS)
_CLOSERS = ((), *_SPANS.values())
