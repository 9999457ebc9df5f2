"""Calls in Python's syntax: read, parsed and rendered.

[get_weather(city="Oslo", days=3), now()]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import structs

from ..calls.drafts import CallDraft
from ..calls.lenient_json import (
    IncompleteJson,
    LenientJsonError,
    LenientJsonReader,
    is_string_concatenation,
    unescape,
)
from ..calls.schema import allowed_types, get_properties, get_required, json_type, resolve_ref
from .form_reader import (
    MAX_NAME_LENGTH,
    NO_BODY,
    Body,
    FormReader,
    Header,
    read_fence,
    seek_closer,
)
from .template import NotRenderable
from .text_buffer import COMPLETE, NEED_MORE, BracketScanner, Reading, TextBuffer

FUNCTION_NAME = re.compile(r"[A-Za-z_](?:[\w.\-]|\\_)*")
_MAX_LIST_DEPTH = 2
"""Some models put each call into a list of its own."""
_NAME = re.compile(r"[\w.\-\\]*+")
_CALL_START = re.compile(r"[A-Za-z_\"']")
_PYTHON = frozenset({"python-literal", "single-quotes", "comment"})
"""Repairs of JSON that are plain syntax in Python."""
_MARKDOWN = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\+_""", re.S)
"""An escaped underscore; and strings, which are left as they are."""
_ESCAPED_NAME = re.compile(r"\A[\w.\-]*\\+_|[(,]\s*\w*\\+_[\w\\]*\s*=")
"""A name that was escaped for Markdown: then the whole call was."""
_BARE_WORD = re.compile(r"\s*([A-Za-z_][\w.\-]*)(?=\s*[,)])")
_STRING_ONLY = frozenset({"string"})
_LITERALS = frozenset({"True", "False", "None", "true", "false", "null"})
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)")
_CUT_KEYWORD = re.compile(r"\s*(?:[A-Za-z_]\w*\s*)?")
_NEXT_KEYWORD = re.compile(r"(?:^|,)\s*([A-Za-z_]\w*)\s*=\s*(?=[\"'])")
_LOOSE_END = re.compile(r"[\"'](?<!\\.)\s{0,8}\)(?=\s{0,8}(?:[\],;]|\n\s{0,8}\n|\Z))")
"""A quote and the bracket after it that may end a call."""
_NOT_A_TEXT = {
    quote: re.compile(
        rf"{quote}\s*+(?:[+%*.]|(?:if|or|and|in|for|else)\b|{quote}|[A-Za-z_]\w*+\s*+={quote})"
        r"|\)\s*+[,;]\s*+[A-Za-z_][\w.]*+\("
    )
    for quote in "\"'"
}
"""Signs that a string with quotes inside is several strings: code, or the next call."""
_KEY = re.compile(r"[A-Za-z_]\w*")


def read_python_calls(attempt: FormReader, _: Header) -> Reading[Body]:
    """Read calls in Python's syntax, one after the other, also in lists."""
    buffer = attempt.buffer
    yield from read_fence(attempt)
    depth, read_to, read_depth = 0, buffer.held_length(), 0
    found = in_list = follows_call = False
    is_truncated: bool | None = None
    while True:
        first = yield from buffer.peek_past_separator()
        if first == "[" and depth < _MAX_LIST_DEPTH:
            yield from _read_sign(buffer, "[")
            depth, in_list, follows_call = depth + 1, True, False
            continue
        if first == "]" and depth:
            yield from _read_sign(buffer, "]")
            depth, follows_call = depth - 1, False
        elif first == "+" and found:
            yield from _read_sign(buffer, "+")
            continue
        elif _CALL_START.match(first) or (first == "(" and depth):
            if depth and follows_call and not buffer.is_comma_next():
                attempt.add_repair("missing-comma")
            is_bare = not depth and not attempt.form.opener
            read = _read_tuple(attempt) if first == "(" else _read_call(attempt, is_bare=is_bare)
            last = yield from read
            is_truncated = last.is_truncated
            if not last.has_calls:
                break
            found = follows_call = True
        else:
            break
        read_to, read_depth = buffer.held_length(), depth
    buffer.seek(read_to)
    is_open = read_depth > 0 or (depth > 0 and bool(is_truncated))
    return Body(
        found, in_list=in_list and found, has_unclosed_list=is_open, is_truncated=is_truncated
    )


def _read_sign(buffer: TextBuffer, sign: str) -> Reading[None]:
    """Read a sign that comes next, after a separator."""
    yield from buffer.peek_past_separator(sign)
    buffer.position += 1


def _read_tuple(attempt: FormReader) -> Reading[Body]:
    """Read a call as a name and its arguments: `("get_weather", {"city": "Oslo"})`."""
    buffer = attempt.buffer
    yield from buffer.peek_past_separator("(")
    start = buffer.held_length()
    if (yield from buffer.scan(BracketScanner())) != COMPLETE:
        return NO_BODY
    try:
        value = LenientJsonReader(buffer.held_text(), start, python=True).read_value()
    except LenientJsonError:
        return NO_BODY
    match value:
        case [str(name), dict(arguments)]:
            attempt.add_call(CallDraft(name, arguments), start)
            return Body()
        case _:
            return NO_BODY


def _read_call(attempt: FormReader, *, is_bare: bool) -> Reading[Body]:
    """Read one call. A bare one, with no marker and no bracket, must name a declared tool."""
    buffer, form = attempt.buffer, attempt.form
    first = yield from buffer.peek_past_separator()
    yield from buffer.peek_past_separator(first)
    if form.opener and first == "p" and (yield from buffer.read_literal("print(")):
        # Models that are told of an interpreter print the result of the call.
        attempt.add_repair("wrapped-call")
        call = yield from _read_call(attempt, is_bare=is_bare)
        is_closed = call.has_calls and (yield from buffer.read_literal(")"))
        return call if is_closed else structs.replace(call, has_calls=False)
    quote = first if first in "\"'" and not is_bare else ""
    buffer.position += len(quote)
    is_quoted = bool(quote)
    if quote:
        attempt.add_repair("quoted")
    start = buffer.held_length()
    is_viable = attempt.may_begin_name if is_bare else None
    name = yield from buffer.read_run(_NAME, MAX_NAME_LENGTH, is_viable)
    if not name or not FUNCTION_NAME.fullmatch(name):
        return NO_BODY
    if quote and (yield from buffer.read_literal(quote)):
        quote = ""
    name_end = buffer.held_length()
    if (yield from buffer.peek()) != "(" or not _may_call(attempt, name, is_bare=is_bare):
        return NO_BODY
    state = yield from buffer.scan(BracketScanner())
    is_closed = state == COMPLETE or (yield from _seek_last_bracket(attempt, start))
    if not is_closed and not _seek_loose_bracket(attempt, start):
        is_cut_off = state == NEED_MORE and _is_known(attempt, name, is_bare=is_bare)
        is_truncated = is_cut_off and is_unfinished_call(buffer.held_text()[start:])
        return Body(has_calls=False, is_truncated=is_truncated)
    name = name.removesuffix(".call") if form.body == "builtin" else name
    text = name + buffer.held_text()[name_end:]
    if quote:
        yield from buffer.read_literal(quote)
    # Models leave out the quotes of values; a call in prose may be code with variables.
    allow_words = (is_quoted or not is_bare) and attempt.accepts_words
    draft = parse_python_call(text, attempt.tools.get_schema(name), allow_words=allow_words)
    if draft.problem and (text := _seek_loose_bracket(attempt, start)):
        draft = _parse_loosely_quoted_call(text, draft.name) or draft
    attempt.add_call(draft, start)
    return Body()


def _is_known(attempt: FormReader, name: str, *, is_bare: bool) -> bool:
    spelled = attempt.tools.resolve_name(name) if is_bare else attempt.resolve_name(name)
    return bool(attempt.form.opener) or spelled is not None


def _may_call(attempt: FormReader, name: str, *, is_bare: bool) -> bool:
    if attempt.form.body == "builtin" and not name.endswith(".call"):
        return False
    if is_bare and attempt.tools.declared is None:
        return False
    # In a list, calls to unknown tools are read too, so that nothing inside them is a call.
    return not is_bare or _is_known(attempt, name, is_bare=is_bare)


def _seek_last_bracket(attempt: FormReader, start: int) -> Reading[bool]:
    """Go to the last bracket before the closer, or stay if there is none.

    Strings may contain unescaped quotes.
    """
    buffer = attempt.buffer
    here = buffer.held_length()
    if (yield from seek_closer(attempt, start)):
        end = buffer.held_text()[start:].rstrip().removesuffix("]").rstrip()
        if end.endswith(")"):
            buffer.seek(start + len(end))
            return True
    buffer.seek(here)
    return False


def _seek_loose_bracket(attempt: FormReader, start: int) -> str:
    """Go back to the bracket that ends a call without a closer whose strings contain unescaped
    quotes; return the text of the call, or stay and return "" if there is none."""
    text = attempt.buffer.held_text()[start:]
    end = None if attempt.form.closer else _LOOSE_END.search(text)
    if end is None:
        return ""
    call = text[: end.end()]
    # A bracket that is opened within a string is not closed by the end of the call.
    if call.count("(") != call.count(")") or _parse_loosely_quoted_call(call, "") is None:
        return ""
    attempt.buffer.seek(start + len(call))
    return call


def parse_python_call(
    text: str, schema: Mapping[str, Any], *, allow_words: bool = False
) -> CallDraft:
    """Parse one call, from its name to its closing bracket.

    Positional arguments get the names that the schema declares in their place. A word without
    quotes is a string if the schema lists it; with `allow_words`, wherever only a string may be.
    """
    plain = _MARKDOWN.sub(_unescape_underscore, text) if _ESCAPED_NAME.search(text) else text
    is_escaped, text = text != plain, plain
    name = text.partition("(")[0]
    reader = LenientJsonReader(text, len(name) + 1, python=True)
    name = name.strip()
    try:
        is_string = partial(_is_string, schema, allow_words=allow_words)
        given, arguments = _read_call_arguments(reader, is_string)
    except LenientJsonError as error:
        return _parse_loosely_quoted_call(text, name) or CallDraft(
            name, problem=f"the arguments cannot be read: {error}"
        )
    repairs = [repair for repair in reader.repairs() if repair not in _PYTHON]
    if given:
        repairs.append("positional-arguments")
        positional = _name_positional_arguments(given, schema)
        if positional is None or positional.keys() & arguments.keys():
            return CallDraft(name, problem="an argument has no name: write name=value")
        arguments = positional | arguments
    if is_escaped:
        repairs.append("markdown-escape")
    return CallDraft(name, arguments, repairs=tuple(repairs))


def _unescape_underscore(found: re.Match[str]) -> str:
    return "_" if found[0].endswith("_") else found[0]


def _name_positional_arguments(
    given: list[Any], schema: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Name positional arguments: one map of all of them, or one value for each parameter.

    The order is certain if it is the same with the required parameters first, as compact tool
    lists have it, or if only one of the two orders gives each parameter a value of its type.
    Return None if it is not certain.
    """
    declared = get_properties(schema)
    if len(given) == 1 and isinstance(given[0], dict) and given[0].keys() <= declared.keys():
        return given[0]
    if len(given) > len(declared):
        return None
    first = dict.fromkeys((*get_required(schema), *declared))
    orders = {tuple(declared)[: len(given)], tuple(first)[: len(given)]}
    named = [dict(zip(order, given, strict=True)) for order in orders]
    fitting = [
        arguments
        for arguments in named
        if all(_is_of_type(value, declared[key], schema) for key, value in arguments.items())
    ]
    found = named if len(named) == 1 else fitting
    return found[0] if len(found) == 1 else None


def _is_of_type(value: Any, part: Any, schema: Mapping[str, Any]) -> bool:
    types = allowed_types(part, schema)
    kind = json_type(value)
    return not types or kind in types or (kind == "integer" and "number" in types)


def is_unfinished_call(text: str) -> bool:
    """Return True if the text is a valid call as far as it goes."""
    try:
        _read_call_arguments(LenientJsonReader(text, text.index("(") + 1))
    except IncompleteJson:
        return True
    except LenientJsonError:
        pass
    return False


def _is_string(schema: Mapping[str, Any], key: str, word: str, *, allow_words: bool) -> bool:
    """Return True if a word without quotes is the string that a parameter requires."""
    declared = get_properties(schema)
    part = resolve_ref(declared.get(key), schema)
    if word in _LITERALS:
        return False
    # A variable that is named like a parameter has its value elsewhere.
    may_be_text = allow_words and word not in declared and "enum" not in part
    return word in part.get("enum", ()) or (
        may_be_text and allowed_types(part, schema) == _STRING_ONLY
    )


def _never(key: str, word: str) -> bool:
    return False


def _read_call_arguments(
    reader: LenientJsonReader, is_string: Callable[[str, str], bool] = _never
) -> tuple[list[Any], dict[str, Any]]:
    """Read the positional arguments and the keyword arguments."""
    given: list[Any] = []
    arguments: dict[str, Any] = {}
    while reader.skip_space() != ")":
        keyword = _KEYWORD.match(reader.text, reader.position)
        if keyword:
            reader.position = keyword.end()
            word = _BARE_WORD.match(reader.text, reader.position)
            if word and is_string(keyword[1], word[1]):
                reader.position, value = word.end(), word[1]
                reader.add_repair("unquoted-value")
            else:
                value = reader.read_value()
            if keyword[1] in arguments and arguments[keyword[1]] != value:
                raise LenientJsonError(
                    f"the argument {keyword[1]!r} is given twice", reader.position
                )
            arguments[keyword[1]] = value
        elif _CUT_KEYWORD.fullmatch(reader.text, reader.position):
            reader.position = len(reader.text)
            raise reader.error("an argument has no name")
        elif arguments:
            raise reader.error("an argument has no name")
        else:
            given.append(reader.read_value())
        reader.read_separator(")")
    return given, arguments


def _parse_loosely_quoted_call(text: str, name: str) -> CallDraft | None:
    """Parse a call whose strings hold unescaped quotes, as in `f(c='sed -n '1,2p' x')`.

    Each string ends where the next keyword begins.
    """
    body = text[text.index("(") + 1 : -1]
    keywords = list(_NEXT_KEYWORD.finditer(body))
    if not keywords or keywords[0].start():
        return None
    ends = [*(match.start() for match in keywords[1:]), len(body)]
    arguments: dict[str, Any] = {}
    for match, end in zip(keywords, ends, strict=True):
        value = body[match.end() : end].strip()
        quote = value[:1]
        if len(value) < 2 or quote not in "\"'" or value[-1] != quote:
            return None
        inside = value[1:-1]
        if (
            match[1] in arguments
            or is_string_concatenation(inside, quote)
            or _NOT_A_TEXT[quote].search(inside)
        ):
            return None
        arguments[match[1]] = unescape(inside, python=True)
    return CallDraft(name, arguments, repairs=("inner-quotes",))


def render_python_call(name: str, arguments: Mapping[str, Any]) -> str:
    for key in arguments:
        if not _KEY.fullmatch(key):
            raise NotRenderable(key, f"a parameter named {key!r}")
    return (
        f"{name}({', '.join(f'{key}={render_literal(value)}' for key, value in arguments.items())})"
    )


def render_literal(value: Any) -> str:
    """Render a value as Python writes it, with JSON's strings."""
    match value:
        case dict():
            return (
                "{"
                + ", ".join(f"{_render_string(k)}: {render_literal(v)}" for k, v in value.items())
                + "}"
            )
        case list():
            return "[" + ", ".join(map(render_literal, value)) + "]"
        case str():
            return _render_string(value)
        case _:
            return repr(value)


def _render_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
