"""What stands between a call's opener and its closer: one function for each kind of body.

A body buffer is a generator. It reads through `sink.buffer`, reports every call it finds with
`sink.draft`, and returns whether it found any; if not, its text is given back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..calls.drafts import CallDraft
from ..calls.schema import get_properties, parse_text_value
from .call_sink import CallSink
from .elements import parse_elements
from .header import read_header
from .json_bodies import (
    Header,
    follows_comma,
    peek_past_separator,
    read_exact_call,
    read_fence,
    read_json_arguments,
    read_json_calls,
    skip_extra_brackets,
)
from .json_objects import seek_closer
from .marker_table import marker_set
from .syntax import (
    FUNCTION_NAME,
    INTERPRETERS,
    find_unclosed_map_end,
    is_complete_program,
    is_unfinished_call,
    parse_bare_input,
    parse_brace_map,
    parse_key_value,
    parse_perl_map,
    parse_program,
    parse_python_call,
    parse_yaml,
)
from .tagged_parameters import (
    ATTRIBUTE_LIST,
    InvalidBody,
    ParameterScanner,
    ParsedArguments,
    find_truncated_closer,
    find_unclosed_value_end,
    parameter_format,
    parse_attributes,
    parse_parameters,
)
from .template import CODE_SLOTS, JSON_SLOTS, CallForm
from .text_buffer import Found
from .value_scanners import COMPLETE, NEED_MORE, BracketScanner, run_scanner

BodyParser = Callable[[str, Mapping[str, Any]], ParsedArguments]

_CALL_NAME = re.compile(r"[\w.\-\\]*+")
_LONGEST_NAME = 256
_LONGEST_GAP = 256
_CALL_START = re.compile(r"[A-Za-z_\"']")
_LINE_END = re.compile(r"\n")
_BODY_START = re.compile(r"\s*(?:\]<\]\w+\[>\[)?<\w|\s*[\w\-]+\s*:")
_OPEN_FENCE = re.compile(r"\s*(?:`+\w*\s*)?")
_NEXT_STEP = re.compile(r"\n\*{0,4}(?:Observation|Thought|Action|Final Answer)\b")
_LONGEST_STEP = 40
_JSON_KEY = re.compile(r'\{\s*+("|\Z)')
_PARAM = re.compile(r"[A-Za-z_]\w*>")


def read_form(sink: CallSink, form: CallForm) -> Found:
    """Read a form from its opener on."""
    header = yield from read_header(sink, form)
    if header is None:
        return False
    if not form.body:
        _no_body(sink, form, header)
        return True
    return (yield from _READERS[form.body](sink, form, header))


def _no_body(sink: CallSink, form: CallForm, header: Header) -> None:
    """A form that says everything before its body would begin: no arguments, or no calls at all."""
    if "name" in header:
        sink.add_draft(form, CallDraft(header["name"], None, header.get("id", "")), 0)
    else:
        sink.writer.add_note("no-call", "a section for calls holds none", sink.buffer.held_text())


# Bodies that are read whole, once their end is found.


def read_parameters(sink: CallSink, form: CallForm, header: Header) -> Found:
    """Tagged parameters."""
    params = parameter_format(form.dialect)
    if not header.get("empty") and not (
        yield from _comes_next(sink, (params.first_literal, *form.all_closers))
    ):
        return False
    scanner = ParameterScanner(params, form.closer, form.all_closers)

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_parameters(body, form.dialect, schema)

    return (yield from _read_to_scanned_end(sink, form, header, scanner, parse))


def _comes_next(sink: CallSink, literals: tuple[str, ...]) -> Found:
    """Whether one of the literals comes next, after white space: prose is not waited for."""
    buffer = sink.buffer
    markers = marker_set((*literals, "\\n"))
    while True:
        yield from buffer.read_space()
        if markers.pattern.match(buffer.text, buffer.position):
            return True
        if buffer.is_final or not markers.may_continue(buffer.text, buffer.position):
            return False
        yield


def read_elements(sink: CallSink, form: CallForm, header: Header) -> Found:
    """Nested elements."""

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_elements(body, form.dialect, schema)

    return _read_to_closer(sink, form, header, parse)


def read_yaml(sink: CallSink, form: CallForm, header: Header) -> Found:
    """YAML."""
    closers = tuple(closer.replace("$name", header["name"]) for closer in form.all_closers)
    return _read_to_closer(sink, form, header, parse_yaml, closers)


def _read_to_closer(
    sink: CallSink, form: CallForm, header: Header, parse: BodyParser, closers: tuple[str, ...] = ()
) -> Found:
    closers = closers or (form.closer.replace("$name", header.get("name", "")),)
    buffer = sink.buffer
    start = buffer.held_length()
    found = yield from buffer.read_through_marker(marker_set(closers))
    if not found:
        sink.cut_off = bool(_BODY_START.match(buffer.held_text(), start))
        return False
    sink.closed = True
    _add_parsed_body(sink, form, header, buffer.held_text()[start : -len(found)], parse)
    return True


def _read_to_scanned_end(
    sink: CallSink, form: CallForm, header: Header, scanner: ParameterScanner, parse: BodyParser
) -> Found:
    if header.get("empty"):
        _add_parsed_body(sink, form, header, "", parse)
        return True
    buffer = sink.buffer
    start = buffer.held_length()
    state = yield from run_scanner(buffer, scanner)
    if state == COMPLETE:
        body = buffer.held_text()[start:].removesuffix(scanner.closing_marker)
        sink.closed = True
        _add_parsed_body(sink, form, header, body, parse)
        return True
    body = buffer.held_text()[start:] + buffer.text[buffer.position :]
    end = find_truncated_closer(body, form) if scanner.is_outside_value() else -1
    if end >= 0:
        buffer.seek(start + end)
        _add_parsed_body(sink, form, header, body[:end], parse)
        return True
    end = find_unclosed_value_end(body, form)
    if end < 0:
        sink.cut_off = True
        return False
    buffer.seek(start + end + len(form.closer))
    _add_parsed_body(sink, form, header, body[:end], parse)
    return True


def _add_parsed_body(
    sink: CallSink, form: CallForm, header: Header, body: str, parse: BodyParser
) -> None:
    name = header["name"]
    try:
        arguments, repairs = parse(body, sink.schema_of(name))
    except InvalidBody as error:
        sink.add_draft(form, CallDraft(name, problem=str(error)), 0)
    else:
        sink.add_draft(form, CallDraft(name, arguments, header.get("id", ""), repairs=repairs), 0)


def read_brace_map(sink: CallSink, form: CallForm, header: Header) -> Found:
    """A map without quotes around its keys; or with, and then it is JSON."""
    buffer = sink.buffer
    opens = yield from buffer.peek()
    if opens not in ("{", "("):
        return False
    if (yield from _begins_json(sink)):
        return (yield from read_json_arguments(sink, form, header))
    start = buffer.held_length()
    quote = form.dialect.string_quote
    state = yield from run_scanner(buffer, BracketScanner(quote, form.closer))
    if state == NEED_MORE:
        # A string has no end: its quote may be missing, or the text is cut off.
        end = find_unclosed_map_end(buffer.held_text()[start:], quote, form.closer)
        if end < 0:
            sink.cut_off = True
            return False
        buffer.seek(start + end)
    elif state != COMPLETE and not (yield from buffer.read_literal(form.closer)):
        return False
    elif state != COMPLETE:
        buffer.position -= len(form.closer)

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_brace_map(body, quote, schema, close=state != COMPLETE)

    _add_parsed_body(sink, form, header, buffer.held_text()[start:], parse)
    yield from skip_extra_brackets(sink, form)
    return True


def _begins_json(sink: CallSink) -> Found:
    """Whether a map's first key stands in quotes."""
    buffer = sink.buffer
    while True:
        match = _JSON_KEY.match(buffer.text, buffer.position)
        if match is None:
            return False
        if match[1] or buffer.is_final or len(match[0]) > _LONGEST_GAP:
            return match[1] == '"'
        yield


def read_python_calls(sink: CallSink, form: CallForm, header: Header) -> Found:
    """Calls in Python's syntax: one, a list, or one after the other."""
    buffer = sink.buffer
    yield from read_fence(sink, form)
    in_list = yield from buffer.read_literal("[")
    found = False
    while _CALL_START.match((yield from peek_past_separator(sink, ""))):
        mark = buffer.held_length()
        if in_list and found and not follows_comma(sink):
            sink.liberties["missing-comma"] = None
        if not (yield from _call(sink, form, bare=not in_list and not form.opener)):
            buffer.seek(mark)
            sink.unclosed = in_list
            return found
        found = True
    if in_list and (yield from peek_past_separator(sink, "]")) == "]":
        yield from buffer.read_literal("]")
    else:
        sink.unclosed = in_list
    sink.listed = in_list and found
    return found


def _call(sink: CallSink, form: CallForm, *, bare: bool) -> Found:
    """One call. A bare one, behind no marker and no bracket, has to be of a declared tool."""
    buffer = sink.buffer
    begins = yield from peek_past_separator(sink, "")
    yield from peek_past_separator(sink, begins)
    if form.opener and begins == "p" and (yield from buffer.read_literal("print(")):
        # Models that are told of an interpreter print what the call gives.
        sink.liberties["wrapped-call"] = None
        found = yield from _call(sink, form, bare=bare)
        return found and (yield from buffer.read_literal(")"))
    quote = begins if begins in "\"'" and not bare else ""
    buffer.position += len(quote)
    if quote:
        sink.liberties["quoted"] = None
    start = buffer.held_length()
    viable = sink.may_begin_tool_name if bare else None
    name = yield from buffer.read_run(_CALL_NAME, _LONGEST_NAME, viable)
    if not name or not FUNCTION_NAME.fullmatch(name):
        return False
    if quote and (yield from buffer.read_literal(quote)):
        quote = ""
    after_name = buffer.held_length()
    if (yield from buffer.peek()) != "(":
        return False
    if form.body == "builtin" and not name.endswith(".call"):
        return False
    spelled = sink.find_tool(name) if bare else sink.resolve_name(name)
    known = bool(form.opener) or spelled is not None
    if not known and (bare or not sink.embedded):
        return False
    if bare and sink.tools is None:
        return False
    state = yield from run_scanner(buffer, BracketScanner())
    if state != COMPLETE and (yield from _last_call_before_closer(sink, form, start)):
        state = COMPLETE
    if state != COMPLETE:
        sink.cut_off = (
            state == NEED_MORE and known and is_unfinished_call(buffer.held_text()[start:])
        )
        return False
    name = name.removesuffix(".call") if form.body == "builtin" else name
    text = name + buffer.held_text()[after_name:]
    if quote:
        yield from buffer.read_literal(quote)
    sink.add_draft(form, parse_python_call(text, sink.schema_of(name)), start)
    return True


def _last_call_before_closer(sink: CallSink, form: CallForm, start: int) -> Found:
    """Go to the end of a call whose texts hold quotes that are not escaped: its last bracket
    before the closer."""
    buffer = sink.buffer
    here = buffer.held_length()
    if (yield from seek_closer(sink, form, start)):
        end = buffer.held_text()[start:].rstrip().removesuffix("]").rstrip()
        if end.endswith(")"):
            buffer.seek(start + len(end))
            return True
    buffer.seek(here)
    return False


def read_key_value(sink: CallSink, form: CallForm, header: Header) -> Found:
    """A JSON object, or one parameter up to the end of the line."""
    buffer = sink.buffer
    if (yield from buffer.peek()) == "{":
        return (yield from read_json_arguments(sink, form, header))
    start = buffer.held_length()
    found = yield from buffer.read_through(_LINE_END, 1)
    line = buffer.held_text()[start:].removesuffix(found)
    if found:
        buffer.seek(start + len(line))
    if not _PARAM.match(line):
        return False
    _add_parsed_body(sink, form, header, line, parse_key_value)
    return True


def read_bare_input(sink: CallSink, form: CallForm, header: Header) -> Found:
    """A JSON object, or bare text for a tool that takes only one parameter."""
    buffer = sink.buffer
    start = buffer.held_length()
    yield from read_fence(sink, form)
    if (yield from buffer.peek()) == "{":
        return (yield from read_json_arguments(sink, form, header))
    sink.fence = ()
    buffer.seek(start)
    if form.closer:
        found = yield from buffer.read_through_marker(marker_set(form.all_closers))
    else:
        found = yield from buffer.read_through(_NEXT_STEP, _LONGEST_STEP)
    buffer.seek(buffer.held_length() - len(found))
    text = buffer.held_text()[start:]
    if not found and (form.closer or _OPEN_FENCE.fullmatch(text)):
        return False
    _add_parsed_body(sink, form, header, text, parse_bare_input)
    return True


def read_attributes(sink: CallSink, form: CallForm, header: Header) -> Found:
    """Arguments as a tag's attributes: `city="Oslo" days="3"`, perhaps with the tag's end."""
    buffer = sink.buffer
    start = buffer.held_length()
    found = yield from buffer.read_through_marker(marker_set(("<", "\n")))
    text = buffer.held_text()[start:].removesuffix(found)
    buffer.seek(start + len(text))
    if found != "<" or not ATTRIBUTE_LIST.fullmatch(text):
        return False

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        declared = get_properties(schema)
        repairs: list[str] = []
        arguments = {
            key: parse_text_value(word, declared.get(key), schema, repairs)
            for key, word in parse_attributes(body).items()
        }
        return arguments, tuple(dict.fromkeys(repairs))

    _add_parsed_body(sink, form, header, text, parse)
    return True


def read_perl_map(sink: CallSink, form: CallForm, _: Header) -> Found:
    """A map with arrows."""
    buffer = sink.buffer
    yield from buffer.read_space()
    start = buffer.held_length()
    if (yield from buffer.peek()) != "{":
        return False
    found = yield from buffer.read_through_marker(marker_set((form.closer,)))
    if not found:
        sink.cut_off = True
        return False
    buffer.seek(buffer.held_length() - len(found))
    sink.add_draft(form, parse_perl_map(buffer.held_text()[start:], sink.schema_of), start)
    return True


def read_program(sink: CallSink, form: CallForm, header: Header) -> Found:
    """A bare program, for a tool that runs programs."""
    buffer = sink.buffer
    known = [name for name in INTERPRETERS if sink.tools and sink.find_tool(name)]
    name = header.get("name", next(iter(known), ""))
    if name not in known or (yield from buffer.peek()) in ("", "{", "["):
        return False
    start = buffer.held_length()
    markers = marker_set((*form.all_closers, "\n>>>"))
    found = yield from buffer.read_through_marker(markers)
    buffer.seek(buffer.held_length() - len(found))
    code = buffer.held_text()[start:]
    if not found:
        code = code[: markers.settled_end(code, 0)]
        buffer.seek(start + len(code))
        if form.dialect not in sink.expected_dialects or not is_complete_program(code):
            return False
    _add_parsed_body(sink, form, {**header, "name": name}, code, parse_program)
    return True


_READERS: dict[str, Callable[[CallSink, CallForm, Header], Found]] = {
    **dict.fromkeys(JSON_SLOTS, read_json_calls),
    **dict.fromkeys(CODE_SLOTS, read_python_calls),
    "arguments": read_json_arguments,
    "params": read_parameters,
    "elements": read_elements,
    "braces": read_brace_map,
    "yaml": read_yaml,
    "line": read_key_value,
    "perl": read_perl_map,
    "input": read_bare_input,
    "code": read_program,
    "attributes": read_attributes,
    "canonical": read_exact_call,
}
