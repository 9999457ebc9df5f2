"""Splits a conversation, in the shape of any API, into the user's requests and untrusted text.

The text of a user's turn is a request. Text from tools, documents and other roles is untrusted: a
call that is quoted there must not be run. Prompts may write results into a user's turn, too;
`split_results` finds them by the templates that the dialects write results with.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ..calls.json_values import iter_strings
from ..dialects.catalog import ALL_DIALECTS
from ..errors import UsageError
from ..types import Document, Message, Part, Text, ToolResult

GENERATED_KEY = "~by"
"""A key in a message's `extra`: Toolspeak wrote the message, not the user or the model."""

_ROLES_AFTER_REPLY = frozenset({"user", "system", "developer"})
"""Messages of these roles may stand between a model's reply and the user's turn."""
_TEXT_TYPES = frozenset({None, "text", "input_text", "output_text"})
_MEDIA_TYPES = frozenset({"image", "image_url", "input_image", "input_audio", "audio", "video"})
_RESULT_KEYS = {"functionResponse", "function_response"}
_UNTRUSTED_TYPE = re.compile(r"result|output|document|file|resource|response")
_CONVERSATION_FIELDS = ("messages", "input", "contents")
"""The field of a request with the conversation: OpenAI Chat and Anthropic, Responses, Gemini."""


class UserTurn(NamedTuple):
    text: str
    reply: str = ""
    """The model's reply before this turn, with only users' turns in between."""


Origin = Literal["user", "model", "operator", "untrusted"]
OriginTexts = Iterator[tuple[Origin, str]]

_ORIGINS: Mapping[Any, Origin] = {
    "user": "user",
    **dict.fromkeys(("assistant", "model", "ai"), "model"),
    **dict.fromkeys(("system", "developer"), "operator"),
}
"""The origin of a role's text; other roles are untrusted."""


def split_by_origin(context: Any) -> tuple[list[str], list[UserTurn]]:
    """Return the untrusted texts and the user's turns of a conversation."""
    untrusted: list[str] = []
    user_turns: list[UserTurn] = []
    reply = ""
    for index, message in enumerate(_list_messages(context)):
        model_texts: list[str] = []
        for origin, text in _message_texts(message, index):
            if origin == "model":
                model_texts.append(text)
            elif origin == "user":
                user_turns.append(UserTurn(text, reply))
            elif origin == "untrusted":
                untrusted.append(text)
        continues = _role_of(message) in _ROLES_AFTER_REPLY
        reply = "\n".join(model_texts) or (reply if continues else "")
    return untrusted, user_turns


def last_user_text(messages: Iterable[Message]) -> str:
    """Return the text of the user's last message that has any."""
    last = ""
    for message in messages:
        if message.role == "user":
            text = "".join(part.text for part in message.parts if isinstance(part, Text))
            last = text or last
    return last


# Messages of all APIs.


def _list_messages(context: Any) -> Iterable[Any]:
    if isinstance(context, Mapping) and "role" not in context:
        messages = _messages_of_request(context)
        if messages is not None:
            return messages
    is_single = isinstance(context, (str, Mapping, Message, ToolResult, Document))
    return (context,) if is_single else context


def _messages_of_request(request: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a request body; those without a role are the user's."""
    messages = next((request[key] for key in _CONVERSATION_FIELDS if request.get(key)), None)
    if isinstance(messages, (str, Mapping)):
        messages = [messages]
    if not isinstance(messages, (list, tuple)):
        return None
    documents = request.get("documents")
    first = [{"type": "documents", "content": documents}] if documents else []
    return [*first, *map(_with_role, messages)]


def _with_role(message: Any) -> Any:
    if isinstance(message, str):
        return {"role": "user", "content": message}
    if isinstance(message, Mapping) and not message.get("role") and "type" not in message:
        return {**message, "role": "user"}
    return message


def _role_of(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else getattr(message, "role", None)


def _message_texts(message: Any, index: int) -> OriginTexts:
    match message:
        case str():
            yield "untrusted", message
        case Message(extra=extra) if GENERATED_KEY in extra:
            return
        case Message():
            for part in message.parts:
                yield from _part_texts(part, _ORIGINS.get(message.role, "untrusted"))
        case ToolResult() | Document():
            yield from _part_texts(message, "untrusted")
        case Mapping():
            yield from _mapping_texts(message)
        case _:
            kind = type(message).__name__
            raise UsageError(f"Expected a message, got `{kind}` - at `$.context[{index}]`")


def _part_texts(part: Part, origin: Origin) -> OriginTexts:
    """Yield the text of a part, and the titles of documents."""
    match part:
        case Text():
            yield origin, part.text
        case Document() | ToolResult():
            yield "untrusted", part.text
            inside = (part,) if isinstance(part, Document) else part.content
            titles = [one.title for one in inside if isinstance(one, Document) and one.title]
            yield from _untrusted_strings(titles)
        case _:
            pass


def _mapping_texts(message: Mapping[str, Any]) -> OriginTexts:
    role = message.get("role")
    if role is None and "type" in message:
        yield from _item_texts(message)
        return
    origin = _ORIGINS.get(str(role), "untrusted")
    content = message.get("content", message.get("parts"))
    if origin == "untrusted":
        yield from _untrusted_strings(content)
        return
    for block in content if isinstance(content, list) else [content]:
        yield from _block_texts(block, origin)


def _item_texts(item: Mapping[str, Any]) -> OriginTexts:
    """Yield the output of a Responses item that is not a message."""
    values = [item.get(key) for key in ("output", "results", "error", "content")]
    if str(item["type"]).endswith("_call"):
        values = values[:3]
    elif not any(values):
        values = [dict(item)]
    yield from _untrusted_strings(values)


def _block_texts(block: Any, origin: Origin) -> OriginTexts:
    """Yield the text of a content block: the speaker's own, or untrusted."""
    if isinstance(block, str):
        block = {"text": block}
    if not isinstance(block, Mapping):
        return
    kind = block.get("type")
    is_result = _UNTRUSTED_TYPE.search(str(kind)) or _RESULT_KEYS & block.keys()
    if kind in _TEXT_TYPES and isinstance(block.get("text"), str):
        yield origin, block["text"]
    elif kind not in _MEDIA_TYPES and (origin == "user" or is_result):
        yield from _untrusted_strings(block)


def _untrusted_strings(value: Any) -> OriginTexts:
    for text in iter_strings(value):
        yield "untrusted", text


# Results in a user's turn.

_LINE_START = r"^[ \t]*+"
_SLOT = re.compile(r"\$([a-z]+(?:_json)?)")
_FIRST_TOKEN = re.compile(r"<(?P<tag>\w+)(?=[ >])|<[^<>\s]+>|\[[A-Za-z][\w ]+\]")
_LAST_TOKEN = re.compile(r"(?:<[^<>\s]+>|\[/\w+\])\Z")
_NUMBER_SLOTS = ("index", "number")
_OTHER_SPANS = (
    ("<tool_results>", "</tool_results>"),
    ("<function_results>", "</function_results>"),
)
"""Markers of results in other projects' prompts."""


def split_results(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a user's turn: (True, a tool result) or (False, the user's text).

    A result ends with the last of its closing markers, because its content may contain some, too.
    Without any, it reaches to the end.
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


def _result_templates() -> Iterator[tuple[str, str]]:
    """Yield the templates of results, as the parts before and after the content."""
    for dialect in ALL_DIALECTS:
        before, _, after = dialect.result_template.partition("$content")
        yield before, after.removeprefix("_json")
        before, _, after = dialect.results_template.partition("$results")
        yield before, after
        yield from dialect.result_spans
    yield from _OTHER_SPANS


def _opener_pattern(before: str) -> str:
    """Return a pattern for a template's first token, or for its words at the start of a line."""
    before = before.lstrip()
    if token := _FIRST_TOKEN.match(before):
        return re.escape(token[0]) + (r"\b[^<>]*+>" if token["tag"] else "")
    words, *slots = _SLOT.split(before)
    if sum(map(str.isalpha, words)) < 3:
        return ""
    number = r"\s*+\d" if slots and slots[0] in _NUMBER_SLOTS else ""
    return f"{_LINE_START}{re.escape(words.strip())}{number}"


def _closing_marker(after: str) -> str:
    """Return a template's last token, or the text after its last slot."""
    rest = _SLOT.split(after)[-1].strip()
    token = _LAST_TOKEN.search(rest)
    return token[0] if token else "" if " " in rest else rest


def _closers_by_opener() -> dict[str, set[str]]:
    """Map each opener to its closing markers; those at the start of a line come last."""
    table: defaultdict[str, set[str]] = defaultdict(set)
    for before, after in _result_templates():
        table[_opener_pattern(before)].add(_closing_marker(after))
    openers = sorted(filter(None, table), key=lambda opener: opener.startswith(_LINE_START))
    return {opener: table[opener] - {""} for opener in openers}


def _compile_openers(openers: Iterable[str]) -> re.Pattern[str]:
    """Combine the openers into one pattern that fails fast at nearly every character."""
    tokens, lines = list[str](), list[str]()
    for opener in openers:
        group = lines if opener.startswith(_LINE_START) else tokens
        group.append(f"({opener.removeprefix(_LINE_START)})")
    return re.compile(rf"(?=[<\[])(?:{'|'.join(tokens)})|{_LINE_START}(?:{'|'.join(lines)})", re.M)


_SPANS = _closers_by_opener()
_OPENERS = _compile_openers(_SPANS)
_CLOSERS = [set[str](), *_SPANS.values()]
