"""Calls as JSON: objects with a name and arguments, or arguments alone after a name.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}

An object that has arrived whole is decoded at once. One that arrives in chunks is scanned
up to its end. One that breaks JSON's rules is repaired, up to its closing marker if need be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, structs

from ..calls import json_values
from ..calls.coercion import ARGUMENT_KEYS
from ..calls.drafts import CallDraft, read_drafts
from ..calls.json_values import STRICT_DECODER, is_nested_deeper
from ..calls.lenient_json import MAX_DEPTH, unescape
from ..calls.schema import find_only_parameter, get_properties
from .form_reader import (
    MAX_EXTRA_BRACKETS,
    NO_BODY,
    Body,
    FormReader,
    Header,
    note_extra_brackets,
    read_fence,
    seek_closer,
    skip_extra_brackets,
)
from .markers import marker_set
from .template import NAME_IS_KEY, InvalidBody, ParsedArguments
from .text_buffer import (
    COMPLETE,
    NEED_MORE,
    BracketScanner,
    JsonScanner,
    Reading,
    TextBuffer,
)

_Streamed = Literal["", "object", "arguments"]
"""The part of an object that is passed on while it arrives."""
_MAX_LEADING_PROSE = 300
_MAX_HEAD_LENGTH = 512
_MIN_DECODE_LENGTH = 64
"""It is not worth trying to decode a shorter text."""
_BRACES = re.compile(r"[\s}]*")
_STRING = r'"(?:[^"\\]|\\.)*"'
_CALL_HEAD = re.compile(
    rf'\{{\s*(?:"type"\s*:\s*{_STRING}\s*,\s*)?'
    rf'(?:"(?:id|tool_call_id|call_id)"\s*:\s*(?P<id>{_STRING})\s*,\s*)?'
    rf'"(?:name|tool_name|tool|function)"\s*:\s*(?P<name>{_STRING})\s*,'
    rf'\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:\s*(?=\{{)'
)
"""The beginning of a call up to its arguments, where they come last."""
_ARGUMENT_KEY = re.compile(rf"""\b(?:{"|".join(ARGUMENT_KEYS)})["']?\s*:""")
_PROGRAM_OPENER, _PROGRAM_CLOSER = "<code>", "</code>"
_NEEDS_ESCAPING = re.compile(r"[\x00-\x1f]|\\")
_ESCAPABLE = re.compile(r'"|\\.|[\x00-\x1f]', re.S)


def read_json_calls(attempt: FormReader, _: Header) -> Reading[Body]:
    """Read calls as JSON objects: one, a list, or one after the other."""
    buffer, form = attempt.buffer, attempt.form
    yield from read_fence(attempt)
    before = buffer.held_length()
    if form.dialect.allows_prose and not (yield from _skip_prose(attempt)):
        return NO_BODY
    is_after_prose = buffer.held_length() > before
    if form.opener and (yield from buffer.peek()) == '"':
        return (yield from _read_calls_in_string(attempt))
    in_list = yield from buffer.read_literal("[")
    if in_list and (yield from buffer.peek_past_separator()) in ('"', "'", "["):
        buffer.seek(buffer.held_length() - 1)
        return (yield from _read_call_object(attempt))
    is_single = form.body == "object" and bool(form.opener and form.closer)
    found = False
    mark = buffer.held_length()
    while (yield from _find_next_object(attempt, is_later=in_list and found)) or (
        found and is_after_prose and (yield from _skip_prose(attempt))
    ):
        if found and not in_list and is_single:
            attempt.add_repair("several-calls")
        last = yield from _read_call_object(attempt)
        if not last.has_calls:
            if found:
                attempt.sink.retract_streamed_call()
                buffer.seek(mark)
            if found and last.is_truncated:
                message = "the last of several calls is cut off; it was not accepted"
                attempt.writer.add_note("truncated", message)
            return structs.replace(last, has_calls=found, has_unclosed_list=in_list)
        found = True
        mark = buffer.held_length()
    is_closed = not in_list or (yield from _read_list_end(attempt, found=found))
    if found:
        yield from skip_extra_brackets(attempt)
    if found and is_after_prose:
        yield from _skip_trailing_prose(attempt)
    return Body(found, in_list=in_list and found, has_unclosed_list=not is_closed)


def _read_list_end(attempt: FormReader, *, found: bool) -> Reading[bool]:
    """Read the bracket that closes a list of calls; return False if it is missing."""
    buffer = attempt.buffer
    if (yield from buffer.peek_past_separator("]")) == "]":
        yield from buffer.read_literal("]")
        return True
    if found and (yield from _is_closer_next(attempt)):
        attempt.writer.add_note("repaired-missing-closer", "the list of calls is not closed", "]")
        return True
    return False


def _read_call_object(attempt: FormReader) -> Reading[Body]:
    """Read one object that holds a call, or several."""
    start = attempt.buffer.held_length()
    result = yield from _read_object(attempt, "arguments" if attempt.sink.incremental else "")
    if result.is_missing:
        return Body(has_calls=False, is_truncated=result.is_truncated)
    if result.problem:
        name = _name_broken_call(attempt, start)
        attempt.add_call(CallDraft(name, problem=result.problem), start)
        return Body(is_truncated=result.is_truncated)
    if (yield from _is_program_next(attempt, result.value)):
        return (yield from _read_program(attempt, result.value, start))
    found = _add_calls(attempt, result, start)
    return Body(found, is_truncated=result.is_truncated)


def _is_program_next(attempt: FormReader, value: Any) -> Reading[bool]:
    """Return True if a program follows a call that has no arguments: `{…}<code>print(1)</code>`."""
    buffer, form = attempt.buffer, attempt.form
    if not (form.opener and isinstance(value, dict)) or any(
        value.get(key) for key in ARGUMENT_KEYS
    ):
        return False
    mark = buffer.held_length()
    yield from buffer.read_space()
    found = yield from buffer.is_next(_PROGRAM_OPENER)
    rest = buffer.text[buffer.position :]
    is_cut_off = buffer.is_final and len(rest) > 1 and _PROGRAM_OPENER.startswith(rest)
    buffer.seek(mark)
    return found or is_cut_off


def _read_program(attempt: FormReader, value: dict[str, Any], start: int) -> Reading[Body]:
    """Read the program that is a call's only argument; it may contain its own closer."""
    buffer = attempt.buffer
    attempt.sink.retract_streamed_call()
    yield from buffer.read_space()
    yield from buffer.read_literal(_PROGRAM_OPENER)
    code_start = buffer.held_length()
    while (yield from buffer.read_through_marker(marker_set((_PROGRAM_CLOSER,)))):
        end = buffer.held_length()
        if (yield from _is_closer_next(attempt)):
            break
        if not attempt.form.closer and (yield from buffer.peek_past_separator()) == "<":
            break
    else:
        return Body(has_calls=False, is_truncated=True)
    code = buffer.held_text()[code_start : end - len(_PROGRAM_CLOSER)]
    for draft in read_drafts(value, attempt.tools):
        try:
            arguments, repairs = parse_program(code, attempt.tools.get_schema(draft.name))
        except InvalidBody as error:
            attempt.add_call(structs.replace(draft, problem=draft.problem or str(error)), start)
        else:
            attempt.add_call(structs.replace(draft, arguments=arguments, repairs=repairs), start)
    return Body()


def _name_broken_call(attempt: FormReader, start: int) -> str:
    """Return the tool that a call in broken JSON names, or ""; JSON without arguments is data."""
    text = attempt.buffer.held_text()[start:]
    return attempt.find_named(text) if _ARGUMENT_KEY.search(text) else ""


def _read_calls_in_string(attempt: FormReader) -> Reading[Body]:
    """Read calls whose JSON is itself encoded as a JSON string."""
    start = attempt.buffer.held_length()
    string = yield from _read_string(attempt.buffer)
    if string.is_missing:
        return Body(has_calls=False, is_truncated=string.is_truncated)
    result = _decode_leniently(string.value)
    if result.problem:
        return NO_BODY
    result = structs.replace(result, repairs=("double-encoding", *result.repairs))
    return Body(_add_calls(attempt, result, start))


def _add_calls(attempt: FormReader, result: JsonResult, start: int) -> bool:
    """Make or reject every call that a decoded value holds; return whether there is one."""
    value = result.value
    name_is_key = attempt.form.dialect.json_keys == NAME_IS_KEY
    drafts = list(read_drafts(value, attempt.tools, name_is_key=name_is_key))
    if attempt.accepts_undeclared and any(draft.problem for draft in drafts):
        drafts = list(read_drafts(value, name_is_key=name_is_key))
    if drafts and isinstance(value, dict) and "tool_calls" in value:
        # The text beside the calls; if they are not calls, the whole object stays text.
        are_calls = all(not d.problem and attempt.resolve_name(d.name) for d in drafts)
        if are_calls and isinstance(value.get("content"), str):
            attempt.write_text(value["content"])
    for draft in drafts:
        repairs = (*result.repairs, *draft.repairs)
        repairs = (*repairs, "extra-keys") if draft.ignored_keys else repairs
        draft = structs.replace(draft, repairs=repairs)
        is_alone = len(drafts) == 1
        text = "" if is_alone else draft.describe()
        attempt.add_call(draft, start, text)
    return bool(drafts)


def parse_program(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """Parse a program, for the parameter that takes it."""
    is_code = not schema or "code" in get_properties(schema)
    key = "code" if is_code else find_only_parameter(schema)
    if not key:
        raise InvalidBody("the tool has no parameter that takes code")
    return {key: text.strip()}, ()


def read_exact_call(attempt: FormReader, _: Header) -> Reading[Body]:
    """Read one object that is a call and nothing else: lists of tools look much the same."""
    buffer = attempt.buffer
    yield from buffer.read_space()
    if (yield from buffer.peek()) != "{":
        return NO_BODY
    start = buffer.held_length()
    result = yield from _read_object(attempt)
    value = None if result.repairs else result.value
    if not isinstance(value, dict) or value.keys() - {"id"} != {"name", "arguments"}:
        return Body(has_calls=False, is_truncated=result.is_truncated)
    for draft in read_drafts(value):
        attempt.add_call(draft, start)
    return Body()


def read_json_arguments(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read the arguments as a JSON object, for a name that came before."""
    buffer, form = attempt.buffer, attempt.form
    yield from read_fence(attempt)
    start = buffer.held_length()
    first = yield from buffer.peek()
    if first == '"' and form.opener:
        result = yield from _read_string(buffer)
    elif first == "{":
        is_streaming = attempt.start_streaming(header.name, header.id)
        result = yield from _read_object(attempt, "object" if is_streaming else "")
    elif header.name and form.closer and (yield from buffer.is_next(form.closer)):
        attempt.add_call(CallDraft(header.name, None, header.id))
        return Body()
    else:
        return NO_BODY
    if result.is_missing:
        return Body(has_calls=False, is_truncated=result.is_truncated)
    draft = CallDraft(header.name, result.value, header.id, result.problem, result.repairs)
    attempt.add_call(draft, start)
    if first == "{":
        yield from skip_extra_brackets(attempt)
    return Body(is_truncated=result.is_truncated)


# Text around the values.


def _skip_prose(attempt: FormReader) -> Reading[bool]:
    """Go past prose to the next object that is a call, or that begins a line."""
    buffer = attempt.buffer
    if (yield from buffer.peek()) in ("{", "["):
        return True
    start = buffer.held_length()
    markers = marker_set(("{", "<", attempt.form.closer[0]))
    while True:
        room = _MAX_LEADING_PROSE - (buffer.held_length() - start)
        found = yield from buffer.read_through_marker(markers, room)
        if found != "{" or buffer.held_length() - start > _MAX_LEADING_PROSE:
            buffer.seek(start)
            return False
        mark = buffer.held_length()
        buffer.position -= 1
        begins_line = buffer.held_text().endswith("\n")
        if begins_line or (yield from _is_call_next(attempt)):
            buffer.seek(mark - 1)
            attempt.add_repair("extra-text")
            return True
        buffer.seek(mark)


def _is_call_next(attempt: FormReader) -> Reading[bool]:
    """Read an object; return True if it calls a tool that may be called."""
    result = yield from _read_object(attempt)
    drafts = read_drafts(result.value) if isinstance(result.value, dict) else ()
    return any(not draft.problem and attempt.resolve_name(draft.name) for draft in drafts)


def _skip_trailing_prose(attempt: FormReader) -> Reading[None]:
    """Go past prose to the closer, if it comes soon."""
    buffer, closer = attempt.buffer, attempt.form.closer
    mark = buffer.held_length()
    yield from buffer.read_space()
    text_start = buffer.held_length()
    found = yield from buffer.read_through_marker(marker_set((closer,)), _MAX_LEADING_PROSE)
    is_near = found and buffer.held_length() - text_start <= _MAX_LEADING_PROSE + len(closer)
    buffer.seek(buffer.held_length() - len(closer) if is_near else mark)


def _find_next_object(attempt: FormReader, *, is_later: bool) -> Reading[bool]:
    """Go to the next object, if one follows; skip extra braces between two objects."""
    buffer = attempt.buffer
    follows = yield from buffer.peek_past_separator()
    if follows == "}" and is_later:
        mark = buffer.held_length()
        braces = yield from buffer.read_run(_BRACES, MAX_EXTRA_BRACKETS)
        if braces and (yield from buffer.peek()) in ("]", ","):
            note_extra_brackets(attempt, braces)
            follows = yield from buffer.peek_past_separator()
        else:
            buffer.seek(mark)
    if follows == "{":
        if is_later and not buffer.is_comma_next():
            attempt.add_repair("missing-comma")
        yield from buffer.peek_past_separator("{")
    return follows == "{"


def _is_closer_next(attempt: FormReader) -> Reading[bool]:
    """Return True if the form's closer comes next, after white space."""
    buffer, closer = attempt.buffer, attempt.form.closer
    mark = buffer.held_length()
    yield from buffer.read_space()
    found = bool(closer) and (yield from buffer.read_literal(closer))
    buffer.seek(mark)
    return found


# One value.


class JsonResult(Struct, frozen=True):
    """A decoded value, or what is wrong with its text."""

    value: Any = None
    repairs: tuple[str, ...] = ()
    problem: str = ""
    is_missing: bool = False
    """The text is no value at all."""
    is_truncated: bool | None = None
    """The text ended inside the value; None if that is not known."""


def _read_string(buffer: TextBuffer) -> Reading[JsonResult]:
    start = buffer.held_length()
    if (yield from buffer.scan(JsonScanner())) != COMPLETE:
        is_json = buffer.held_text()[start:].startswith(('"{', '"['))
        return JsonResult(is_missing=True, is_truncated=is_json)
    try:
        value, _ = json_values.parse_json(buffer.held_text()[start:])
    except json_values.LenientJsonError:
        return JsonResult(is_missing=True)
    return JsonResult(value, is_missing=not isinstance(value, str))


def _read_object(attempt: FormReader, streamed: _Streamed = "") -> Reading[JsonResult]:
    """Read an object, repaired if need be."""
    buffer = attempt.buffer
    start = buffer.held_length()
    value = None if attempt.sink.incremental else _decode_at_once(buffer)
    if value is not None:
        return JsonResult(value)
    scanner = JsonScanner()
    if streamed:
        yield from _scan_streaming(attempt, scanner, is_streaming=streamed == "object")
    else:
        yield from buffer.scan(scanner)
    if scanner.state == COMPLETE:
        return _decode_leniently(buffer.held_text()[start:])
    # The arguments that were passed on so far differ from what will be read.
    attempt.sink.retract_streamed_call()
    if scanner.state == NEED_MORE:
        return JsonResult(is_missing=True, is_truncated=True)
    return (yield from _read_broken_object(attempt, start))


def _decode_at_once(buffer: TextBuffer) -> Any:
    """Decode the object that begins here, if all of it has arrived; None if not."""
    text = buffer.text
    if len(text) - buffer.position < _MIN_DECODE_LENGTH or text is buffer.undecodable_text:
        return None
    try:
        value, end = STRICT_DECODER.raw_decode(text, buffer.position)
    except (ValueError, RecursionError):
        # Each failure makes the decoder walk through the text, to count lines for its message.
        buffer.undecodable_text = text
        return None
    if is_nested_deeper(value, text[buffer.position : end], MAX_DEPTH):
        return None
    buffer.position = end
    return value


def _read_broken_object(attempt: FormReader, start: int) -> Reading[JsonResult]:
    """Read an object that breaks JSON's rules, to the end of its brackets or to its closer."""
    buffer, form = attempt.buffer, attempt.form
    buffer.seek(start)
    state = yield from buffer.scan(BracketScanner(stop=form.closer))
    if state == COMPLETE:
        result = _decode_leniently(buffer.held_text()[start:])
        is_end_certain = not form.closer if form.opener else _name_broken_call(attempt, start)
        if not result.problem or is_end_certain:
            return result
    if (yield from seek_closer(attempt, start)):
        text = buffer.held_text()[start:]
        return _decode_leniently(text, may_lack_closers=True, escaped=attempt.writer.begins_line)
    text = buffer.held_text()[start:]
    is_truncated = state == NEED_MORE and json_values.is_incomplete_json(text)
    if not is_truncated and (yield from _skip_inner_calls(attempt, start)):
        problem = "a string that contains a call is not closed"
        return JsonResult(problem=problem, is_truncated=False)
    return JsonResult(is_missing=True, is_truncated=is_truncated)


def _decode_leniently(
    text: str, *, may_lack_closers: bool = False, escaped: bool = False
) -> JsonResult:
    problem = ""
    for allow_inner_quotes in (False, True) if may_lack_closers else (False,):
        try:
            value, repairs = json_values.parse_json(
                text,
                allow_missing_closers=may_lack_closers,
                allow_inner_quotes=allow_inner_quotes,
                allow_escaped_quotes=escaped,
            )
            return JsonResult(value, repairs)
        except json_values.LenientJsonError as error:
            problem = problem or f"not valid JSON: {error}"
    return JsonResult(problem=problem)


def _skip_inner_calls(attempt: FormReader, start: int) -> Reading[bool]:
    """Go to the closer of a body in which a string seems to hold calls with the same markers.

    Those are part of the string, not calls of their own.
    """
    buffer, form = attempt.buffer, attempt.form
    if not form.closer or not form.opener:
        return False
    markers = marker_set((form.closer, form.opener))
    buffer.seek(start)
    before, found = yield from buffer.read_until_marker(markers)
    if found != form.opener or not json_values.is_incomplete_json(before):
        return False
    begins_line = before.rstrip(" \t").endswith("\n")
    buffer.position += len(found)
    depth = 2
    while depth and found:
        found = yield from buffer.read_through_marker(markers)
        depth += 1 if found == form.opener else -1
    buffer.seek(buffer.held_length() - len(found))
    return bool(found) or not begins_line


# Arguments that are passed on while they arrive.


def _scan_streaming(
    attempt: FormReader, scanner: JsonScanner, *, is_streaming: bool
) -> Reading[None]:
    """Scan an object and pass on the arguments: all of it, or what follows the head of a call."""
    buffer, sink = attempt.buffer, attempt.sink
    start = buffer.held_length()
    may_begin = scanner.pauses_after_member = not is_streaming
    while True:
        before, in_string = buffer.position, scanner.in_string
        may_begin = may_begin and buffer.held_length() - start < _MAX_HEAD_LENGTH
        buffer.position = scanner.step(buffer.text, before)
        scanned = buffer.text[before : buffer.position]
        if may_begin and (head := _CALL_HEAD.match(buffer.held_text(), start)):
            may_begin = in_string = False
            is_streaming = attempt.start_streaming(_unquote(head["name"]), _unquote(head["id"]))
            scanned = buffer.held_text()[head.end() :]
        if is_streaming:
            sink.stream_arguments(_escape_controls(scanned, in_string=in_string))
        if scanner.is_paused:
            may_begin = is_streaming = scanner.pauses_after_member = False
        elif scanner.state != NEED_MORE or buffer.is_final:
            return
        else:
            yield


def _unquote(quoted: str | None) -> str:
    return unescape(quoted[1:-1]) if quoted else ""


def _escape_controls(text: str, *, in_string: bool) -> str:
    """Escape what models write raw in strings, and backslashes that escape nothing."""
    if not _NEEDS_ESCAPING.search(text):
        return text
    written: list[str] = []
    at = 0
    for match in _ESCAPABLE.finditer(text):
        mark = match[0]
        written.append(text[at : match.start()])
        at = match.end()
        if mark == '"':
            in_string = not in_string
        elif in_string and mark < " ":
            mark = f"\\u{ord(mark):04x}"
        elif mark[0] == "\\" and mark[1] not in '"\\/bfnrtu':
            mark = "\\" + mark
        written.append(mark)
    return "".join(written) + text[at:]
