"""Reads one form from its opener on: the header, then the body.

    <tool_call>  get_weather\n   <arg_key>city</arg_key>…   </tool_call>
    opener       header          body                       closer

The header holds the tool's name, an id, the attributes of a tag. Each kind of body has its own
reader: a generator that hands in every call it finds with `attempt.add_draft`, and returns whether
it found any. If it did not, its text is given back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..calls.drafts import CallDraft
from .argument_bodies import (
    BodyParser,
    add_parsed_body,
    read_attributes,
    read_bare_input,
    read_brace_map,
    read_key_value,
    read_perl_map,
    read_program,
    read_to_closer,
    read_yaml,
)
from .elements import parse_elements
from .form_attempt import FormAttempt, Header
from .json_bodies import read_exact_call, read_json_arguments, read_json_calls
from .marker_table import marker_set
from .python_calls import read_python_calls
from .tagged_parameters import (
    ParameterScanner,
    ParsedArguments,
    find_truncated_closer,
    find_unclosed_value_end,
    parameter_format,
    parse_attributes,
    parse_parameters,
    tag_regex,
    unescape_entities,
)
from .template import (
    CODE_SLOTS,
    COMMON_REASONING_TAGS,
    JSON_SLOTS,
    LiteralText,
    Slot,
    TagTemplate,
    TemplatePart,
)
from .text_buffer import Reading, TextBuffer
from .value_scanners import COMPLETE, run_scanner

_MAX_NAME_LENGTH = 256
_MAX_TAG_LENGTH = 1024
_NAME = re.compile(r"""["'`][\w.\-:/$@*]*+["'`]?+|[\w.\-:/$@*]*+""")
_ATTRIBUTE = re.compile(r"[\w.\-:/$@*&#;]*+")
"""A name in quotes that belong to the form, with XML's entities."""
_PLAIN_NAME = re.compile(r"[\w.\-:]*+")
_NAME_PATTERNS = {'"': _ATTRIBUTE, "/": _PLAIN_NAME}
"""The characters of a name, by the literal that follows it."""
_TAG_CONTENT = re.compile(r"""(?:[^<>"']++|"[^"<]*"|'[^'<]*')*+""")
_REASONING_OPENERS = marker_set(tuple(opener for opener, _ in COMMON_REASONING_TAGS))


def read_form(attempt: FormAttempt) -> Reading[bool]:
    """Read a form from its opener on; return whether it holds calls."""
    header = yield from _read_header(attempt)
    if header is None:
        return False
    body = attempt.form.body
    if body:
        return (yield from _BODY_READERS[body](attempt, header))
    if "name" in header:
        attempt.add_draft(CallDraft(header["name"], None, header.get("id", "")), 0)
    else:
        attempt.add_note("no-call", "a section for calls is empty", attempt.buffer.held_text())
    return True


# The header.


def _read_header(attempt: FormAttempt) -> Reading[dict[str, str] | None]:
    """Read the opener and the words up to the body; None if they are not there."""
    buffer, form = attempt.buffer, attempt.form
    words: dict[str, str] = {}
    first = form.header[0] if form.header else None
    if not (isinstance(first, TagTemplate) and form.opener == f"<{first.name}"):
        buffer.position += len(form.opener)
        if form.opener.endswith(">"):
            yield from _skip_reasoning(attempt)
    is_after_bracket = False
    for part, following in zip(form.header, (*form.header[1:], None), strict=False):
        yield from buffer.read_space()
        if isinstance(part, LiteralText):
            is_after_bracket = part.stripped.endswith("<")
            if part.stripped and not (yield from buffer.read_literal(part.stripped)):
                return None
        elif isinstance(part, TagTemplate):
            found = yield from _read_tag(buffer, part)
            if found is None:
                return None
            words |= found
        else:
            word = yield from _read_word(attempt, part, following, is_first=not words)
            if word is None or (is_after_bracket and form.opener == f"<{word}>"):
                return None  # Not a name, or the same tag again.
            words[part.kind] = word
    if "header" in words:
        return _find_name_in_header(attempt, words["header"])
    return words


def _read_word(
    attempt: FormAttempt, slot: Slot, following: TemplatePart | None, *, is_first: bool
) -> Reading[str | None]:
    """Read a name or an id, without quotes; None if there is none."""
    ends = following.stripped[:1] if isinstance(following, LiteralText) else ""
    pattern = _NAME_PATTERNS.get(ends, _NAME)
    # Without an opener any word could be a name: wait only for the name of a tool.
    is_viable = attempt.may_begin_tool_name if is_first and not attempt.form.opener else None
    word = yield from attempt.buffer.read_run(pattern, _MAX_NAME_LENGTH, is_viable)
    if word is None or word[:1] in ("-", "/") or (not word and slot.kind != "id"):
        return None
    if pattern is _ATTRIBUTE:
        return unescape_entities(word)
    plain = word.strip("\"'`") or word
    if len(plain) < len(word):
        attempt.add_repair("quoted")
    return plain


def _skip_reasoning(attempt: FormAttempt) -> Reading[None]:
    """Skip reasoning between the opener and the body."""
    buffer = attempt.buffer
    mark = buffer.held_length()
    yield from buffer.read_space()
    match = yield from buffer.match_marker(_REASONING_OPENERS)
    if match:
        closer = dict(COMMON_REASONING_TAGS)[match[0]]
        if (yield from buffer.read_through_marker(marker_set((closer,)))):
            attempt.add_repair("extra-text")
            return
    buffer.seek(mark)


def _find_name_in_header(attempt: FormAttempt, header: str) -> dict[str, str]:
    """Find the tool's name in a header such as `functions.get_weather:0`, which is the id too.

    The first name that is declared counts, else a number, which names no tool, else the first.
    """
    patterns = attempt.form.dialect.header_patterns
    found = [match[1] for pattern in patterns if (match := re.fullmatch(pattern, header))]
    name = found[0] if found else ""
    if attempt.tools:
        declared = attempt.tools.tools
        name = next((other for other in found if other in declared or other.isdigit()), name)
        name = "" if name.isdigit() else name
    return {"name": name, "id": header}


def _read_tag(buffer: TextBuffer, tag: TagTemplate) -> Reading[dict[str, str] | None]:
    """Read an opening tag; return its attributes by slot, or None if it is another tag."""
    if not (yield from buffer.read_literal(f"<{tag.name}")):
        return None
    while True:
        match = _TAG_CONTENT.match(buffer.text, buffer.position)
        end = match.end() if match else buffer.position
        if end - buffer.position > _MAX_TAG_LENGTH:
            return None
        if end < len(buffer.text) and buffer.text[end] == ">":
            break
        if end < len(buffer.text) and buffer.text[end] not in "\"'":
            return None
        if len(buffer.text) - buffer.position > _MAX_TAG_LENGTH or buffer.is_final:
            return None
        yield
    text = f"<{tag.name}{buffer.text[buffer.position : end + 1]}"
    parsed = re.fullmatch(tag_regex(tag.name), text)
    if parsed is None:
        return None
    buffer.position = end + 1
    attributes = parse_attributes(parsed[1])
    if any(name not in attributes for name, slot in tag.attributes if slot == "name"):
        return None
    words = {slot: attributes.get(name, "") for name, slot in tag.attributes}
    return {**words, "empty": "/"} if parsed[2] else words


# Bodies of tags.


def _read_parameters(attempt: FormAttempt, header: Header) -> Reading[bool]:
    """Read tagged parameters."""
    form = attempt.form

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_parameters(body, form.dialect, schema)

    if header.get("empty"):
        add_parsed_body(attempt, header, "", parse)
        return True
    parameters = parameter_format(form.dialect)
    if not (yield from _is_next(attempt, (parameters.first_literal, *form.all_closers))):
        return False
    scanner = ParameterScanner(parameters, form.closer, form.all_closers)
    return (yield from _read_to_scanned_end(attempt, header, scanner, parse))


def _is_next(attempt: FormAttempt, literals: tuple[str, ...]) -> Reading[bool]:
    """Return whether a literal comes next, after white space: prose is not waited for."""
    buffer = attempt.buffer
    markers = marker_set((*literals, "\\n"))
    while True:
        yield from buffer.read_space()
        if markers.pattern.match(buffer.text, buffer.position):
            return True
        if buffer.is_final or not markers.may_continue(buffer.text, buffer.position):
            return False
        yield


def _read_to_scanned_end(
    attempt: FormAttempt, header: Header, scanner: ParameterScanner, parse: BodyParser
) -> Reading[bool]:
    """Read parameters to their closer; if it is cut off or missing, to where they must end."""
    buffer, form = attempt.buffer, attempt.form
    start = buffer.held_length()
    state = yield from run_scanner(buffer, scanner)
    if state == COMPLETE:
        body = buffer.held_text()[start:].removesuffix(scanner.closing_marker)
        attempt.mark_closed()
        add_parsed_body(attempt, header, body, parse)
        return True
    body = buffer.held_text()[start:] + buffer.text[buffer.position :]
    end = find_truncated_closer(body, form) if scanner.is_outside_value() else -1
    if end >= 0:
        buffer.seek(start + end)
        add_parsed_body(attempt, header, body[:end], parse)
        return True
    end = find_unclosed_value_end(body, form)
    if end < 0:
        attempt.mark_truncated()
        return False
    buffer.seek(start + end + len(form.closer))
    add_parsed_body(attempt, header, body[:end], parse)
    return True


def _read_elements(attempt: FormAttempt, header: Header) -> Reading[bool]:
    """Read nested elements."""

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_elements(body, attempt.form.dialect, schema)

    return read_to_closer(attempt, header, parse)


_BODY_READERS: dict[str, Callable[[FormAttempt, Header], Reading[bool]]] = {
    **dict.fromkeys(JSON_SLOTS, read_json_calls),
    **dict.fromkeys(CODE_SLOTS, read_python_calls),
    "arguments": read_json_arguments,
    "params": _read_parameters,
    "elements": _read_elements,
    "braces": read_brace_map,
    "yaml": read_yaml,
    "line": read_key_value,
    "perl": read_perl_map,
    "input": read_bare_input,
    "code": read_program,
    "attributes": read_attributes,
    "canonical": read_exact_call,
}
