"""What stands between a call's opener and its closer: one function for each kind of body.

A body reader is a generator. It reads through `desk.reader`, reports every call it finds with
`desk.draft`, and returns whether it found any; if not, its text is given back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..calls.drafts import CallDraft
from ..calls.schema import get_properties, parse_text_value
from .call_sink import Desk
from .elements import parse_elements
from .grammar import markers_of
from .header import read_header
from .json_bodies import (
    Header,
    fence,
    follows_comma,
    gap,
    past_brackets,
    read_arguments,
    read_canonical,
    read_json,
)
from .json_objects import end_at_closer
from .reader import Found
from .scan import DONE, MORE, BracketScanner, scan
from .syntax import (
    CALL_NAME,
    INTERPRETERS,
    is_complete,
    is_unfinished_call,
    parse_braces,
    parse_call,
    parse_input,
    parse_line,
    parse_perl,
    parse_program,
    parse_yaml,
    unclosed_end,
)
from .tagged import (
    ATTRIBUTES,
    Arguments,
    BadBody,
    ParamScanner,
    attributes_of,
    half_closed,
    params_of,
    parse_params,
    unclosed_value,
)
from .template import CALL_SLOTS, JSON_SLOTS, Form

Parse = Callable[[str, Mapping[str, Any]], Arguments]

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


def read(desk: Desk, form: Form) -> Found:
    """Read a form from its opener on."""
    header = yield from read_header(desk, form)
    if header is None:
        return False
    if not form.body:
        _no_body(desk, form, header)
        return True
    return (yield from _READERS[form.body](desk, form, header))


def _no_body(desk: Desk, form: Form, header: Header) -> None:
    """A form that says everything before its body would begin: no arguments, or no calls at all."""
    if "name" in header:
        desk.draft(form, CallDraft(header["name"], None, header.get("id", "")), 0)
    else:
        desk.output.note("no-call", "a section for calls holds none", desk.reader.held())


# Bodies that are read whole, once their end is found.


def read_params(desk: Desk, form: Form, header: Header) -> Found:
    """Tagged parameters."""
    params = params_of(form.dialect)
    if not header.get("empty") and not (yield from _sees(desk, (params.begins, *form.closers))):
        return False
    scanner = ParamScanner(params, form.closer, form.closers)

    def parse(body: str, schema: Mapping[str, Any]) -> Arguments:
        return parse_params(body, form.dialect, schema)

    return (yield from _until_end(desk, form, header, scanner, parse))


def _sees(desk: Desk, literals: tuple[str, ...]) -> Found:
    """Whether one of the literals comes next, after white space: prose is not waited for."""
    reader = desk.reader
    markers = markers_of((*literals, "\\n"))
    while True:
        yield from reader.space()
        if markers.pattern.match(reader.text, reader.at):
            return True
        if reader.ended or not markers.may_grow(reader.text, reader.at):
            return False
        yield


def read_elements(desk: Desk, form: Form, header: Header) -> Found:
    """Nested elements."""

    def parse(body: str, schema: Mapping[str, Any]) -> Arguments:
        return parse_elements(body, form.dialect, schema)

    return _until_closer(desk, form, header, parse)


def read_yaml(desk: Desk, form: Form, header: Header) -> Found:
    """YAML."""
    closers = tuple(closer.replace("$name", header["name"]) for closer in form.closers)
    return _until_closer(desk, form, header, parse_yaml, closers)


def _until_closer(
    desk: Desk, form: Form, header: Header, parse: Parse, closers: tuple[str, ...] = ()
) -> Found:
    closers = closers or (form.closer.replace("$name", header.get("name", "")),)
    reader = desk.reader
    start = reader.offset()
    found = yield from reader.until_marker(markers_of(closers))
    if not found:
        desk.cut_off = bool(_BODY_START.match(reader.held(), start))
        return False
    desk.closed = True
    _whole_body(desk, form, header, reader.held()[start : -len(found)], parse)
    return True


def _until_end(
    desk: Desk, form: Form, header: Header, scanner: ParamScanner, parse: Parse
) -> Found:
    if header.get("empty"):
        _whole_body(desk, form, header, "", parse)
        return True
    reader = desk.reader
    start = reader.offset()
    state = yield from scan(reader, scanner)
    if state == DONE:
        body = reader.held()[start:].removesuffix(scanner.closed_by)
        desk.closed = True
        _whole_body(desk, form, header, body, parse)
        return True
    body = reader.held()[start:] + reader.text[reader.at :]
    end = half_closed(body, form) if scanner.outside() else -1
    if end >= 0:
        reader.seek(start + end)
        _whole_body(desk, form, header, body[:end], parse)
        return True
    end = unclosed_value(body, form)
    if end < 0:
        desk.cut_off = True
        return False
    reader.seek(start + end + len(form.closer))
    _whole_body(desk, form, header, body[:end], parse)
    return True


def _whole_body(desk: Desk, form: Form, header: Header, body: str, parse: Parse) -> None:
    name = header["name"]
    try:
        arguments, repairs = parse(body, desk.schema(name))
    except BadBody as error:
        desk.draft(form, CallDraft(name, problem=str(error)), 0)
    else:
        desk.draft(form, CallDraft(name, arguments, header.get("id", ""), repairs=repairs), 0)


def read_braces(desk: Desk, form: Form, header: Header) -> Found:
    """A map without quotes around its keys; or with, and then it is JSON."""
    reader = desk.reader
    opens = yield from reader.peek()
    if opens not in ("{", "("):
        return False
    if (yield from _begins_json(desk)):
        return (yield from read_arguments(desk, form, header))
    start = reader.offset()
    quote = form.dialect.quote
    state = yield from scan(reader, BracketScanner(quote, form.closer))
    if state == MORE:
        # A string has no end: its quote may be missing, or the text is cut off.
        end = unclosed_end(reader.held()[start:], quote, form.closer)
        if end < 0:
            desk.cut_off = True
            return False
        reader.seek(start + end)
    elif state != DONE and not (yield from reader.literal(form.closer)):
        return False
    elif state != DONE:
        reader.at -= len(form.closer)

    def parse(body: str, schema: Mapping[str, Any]) -> Arguments:
        return parse_braces(body, quote, schema, close=state != DONE)

    _whole_body(desk, form, header, reader.held()[start:], parse)
    yield from past_brackets(desk, form)
    return True


def _begins_json(desk: Desk) -> Found:
    """Whether a map's first key stands in quotes."""
    reader = desk.reader
    while True:
        match = _JSON_KEY.match(reader.text, reader.at)
        if match is None:
            return False
        if match[1] or reader.ended or len(match[0]) > _LONGEST_GAP:
            return match[1] == '"'
        yield


def read_calls(desk: Desk, form: Form, header: Header) -> Found:
    """Calls in Python's syntax: one, a list, or one after the other."""
    reader = desk.reader
    yield from fence(desk, form)
    in_list = yield from reader.literal("[")
    found = False
    while _CALL_START.match((yield from gap(desk, ""))):
        mark = reader.offset()
        if in_list and found and not follows_comma(desk):
            desk.liberties["missing-comma"] = None
        if not (yield from _call(desk, form, bare=not in_list and not form.opener)):
            reader.seek(mark)
            desk.unclosed = in_list
            return found
        found = True
    if in_list and (yield from gap(desk, "]")) == "]":
        yield from reader.literal("]")
    else:
        desk.unclosed = in_list
    desk.listed = in_list and found
    return found


def _call(desk: Desk, form: Form, *, bare: bool) -> Found:
    """One call. A bare one, behind no marker and no bracket, has to be of a declared tool."""
    reader = desk.reader
    begins = yield from gap(desk, "")
    yield from gap(desk, begins)
    if form.opener and begins == "p" and (yield from reader.literal("print(")):
        # Models that are told of an interpreter print what the call gives.
        desk.liberties["wrapped-call"] = None
        found = yield from _call(desk, form, bare=bare)
        return found and (yield from reader.literal(")"))
    quote = begins if begins in "\"'" and not bare else ""
    reader.at += len(quote)
    if quote:
        desk.liberties["quoted"] = None
    start = reader.offset()
    viable = desk.may_be_tool if bare else None
    name = yield from reader.run(_CALL_NAME, _LONGEST_NAME, viable)
    if not name or not CALL_NAME.fullmatch(name):
        return False
    if quote and (yield from reader.literal(quote)):
        quote = ""
    after_name = reader.offset()
    if (yield from reader.peek()) != "(":
        return False
    if form.body == "builtin" and not name.endswith(".call"):
        return False
    spelled = desk.declared(name) if bare else desk.may_call(name)
    known = bool(form.opener) or spelled is not None
    if not known and (bare or not desk.embedded):
        return False
    if bare and desk.tools is None:
        return False
    state = yield from scan(reader, BracketScanner())
    if state != DONE and (yield from _last_call_before_closer(desk, form, start)):
        state = DONE
    if state != DONE:
        desk.cut_off = state == MORE and known and is_unfinished_call(reader.held()[start:])
        return False
    name = name.removesuffix(".call") if form.body == "builtin" else name
    text = name + reader.held()[after_name:]
    if quote:
        yield from reader.literal(quote)
    desk.draft(form, parse_call(text, desk.schema(name)), start)
    return True


def _last_call_before_closer(desk: Desk, form: Form, start: int) -> Found:
    """Go to the end of a call whose texts hold quotes that are not escaped: its last bracket
    before the closer."""
    reader = desk.reader
    here = reader.offset()
    if (yield from end_at_closer(desk, form, start)):
        end = reader.held()[start:].rstrip().removesuffix("]").rstrip()
        if end.endswith(")"):
            reader.seek(start + len(end))
            return True
    reader.seek(here)
    return False


def read_line(desk: Desk, form: Form, header: Header) -> Found:
    """A JSON object, or one parameter up to the end of the line."""
    reader = desk.reader
    if (yield from reader.peek()) == "{":
        return (yield from read_arguments(desk, form, header))
    start = reader.offset()
    found = yield from reader.until(_LINE_END, 1)
    line = reader.held()[start:].removesuffix(found)
    if found:
        reader.seek(start + len(line))
    if not _PARAM.match(line):
        return False
    _whole_body(desk, form, header, line, parse_line)
    return True


def read_input(desk: Desk, form: Form, header: Header) -> Found:
    """A JSON object, or bare text for a tool that takes only one parameter."""
    reader = desk.reader
    start = reader.offset()
    yield from fence(desk, form)
    if (yield from reader.peek()) == "{":
        return (yield from read_arguments(desk, form, header))
    desk.fence = ()
    reader.seek(start)
    if form.closer:
        found = yield from reader.until_marker(markers_of(form.closers))
    else:
        found = yield from reader.until(_NEXT_STEP, _LONGEST_STEP)
    reader.seek(reader.offset() - len(found))
    text = reader.held()[start:]
    if not found and (form.closer or _OPEN_FENCE.fullmatch(text)):
        return False
    _whole_body(desk, form, header, text, parse_input)
    return True


def read_attributes(desk: Desk, form: Form, header: Header) -> Found:
    """Arguments as a tag's attributes: `city="Oslo" days="3"`, perhaps with the tag's end."""
    reader = desk.reader
    start = reader.offset()
    found = yield from reader.until_marker(markers_of(("<", "\n")))
    text = reader.held()[start:].removesuffix(found)
    reader.seek(start + len(text))
    if found != "<" or not ATTRIBUTES.fullmatch(text):
        return False

    def parse(body: str, schema: Mapping[str, Any]) -> Arguments:
        declared = get_properties(schema)
        repairs: list[str] = []
        arguments = {
            key: parse_text_value(word, declared.get(key), schema, repairs)
            for key, word in attributes_of(body).items()
        }
        return arguments, tuple(dict.fromkeys(repairs))

    _whole_body(desk, form, header, text, parse)
    return True


def read_perl(desk: Desk, form: Form, _: Header) -> Found:
    """A map with arrows."""
    reader = desk.reader
    yield from reader.space()
    start = reader.offset()
    if (yield from reader.peek()) != "{":
        return False
    found = yield from reader.until_marker(markers_of((form.closer,)))
    if not found:
        desk.cut_off = True
        return False
    reader.seek(reader.offset() - len(found))
    desk.draft(form, parse_perl(reader.held()[start:], desk.schema), start)
    return True


def read_code(desk: Desk, form: Form, header: Header) -> Found:
    """A bare program, for a tool that runs programs."""
    reader = desk.reader
    known = [name for name in INTERPRETERS if desk.tools and desk.declared(name)]
    name = header.get("name", next(iter(known), ""))
    if name not in known or (yield from reader.peek()) in ("", "{", "["):
        return False
    start = reader.offset()
    markers = markers_of((*form.closers, "\n>>>"))
    found = yield from reader.until_marker(markers)
    reader.seek(reader.offset() - len(found))
    code = reader.held()[start:]
    if not found:
        code = code[: markers.certain(code, 0)]
        reader.seek(start + len(code))
        if form.dialect not in desk.expected or not is_complete(code):
            return False
    _whole_body(desk, form, {**header, "name": name}, code, parse_program)
    return True


_READERS: dict[str, Callable[[Desk, Form, Header], Found]] = {
    **dict.fromkeys(JSON_SLOTS, read_json),
    **dict.fromkeys(CALL_SLOTS, read_calls),
    "arguments": read_arguments,
    "params": read_params,
    "elements": read_elements,
    "braces": read_braces,
    "yaml": read_yaml,
    "line": read_line,
    "perl": read_perl,
    "input": read_input,
    "code": read_code,
    "attributes": read_attributes,
    "canonical": read_canonical,
}
