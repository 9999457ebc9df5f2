"""Calls as JSON: objects with a name and arguments, or arguments alone behind a name.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}

An object that has arrived whole is decoded at once. One that arrives in chunks is followed by a
scanner to its end. One that breaks JSON's rules is repaired, up to its closing marker if need be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from ..calls import json_values
from ..calls.drafts import ARGUMENT_KEYS, CallDraft, read_drafts
from ..calls.json_values import STRICT_DECODER, is_nested_deeper
from ..calls.lenient_json import MAX_DEPTH, unescape
from .form_attempt import (
    MAX_EXTRA_BRACKETS,
    FormAttempt,
    Header,
    is_comma_next,
    note_extra_brackets,
    peek_past_separator,
    read_fence,
    seek_closer,
    skip_extra_brackets,
)
from .marker_table import marker_set
from .template import NAME_IS_KEY
from .text_buffer import Reading, TextBuffer
from .value_scanners import (
    COMPLETE,
    NEED_MORE,
    BracketScanner,
    JsonScanner,
    StringScanner,
    run_scanner,
)

ScannerRun = Callable[[JsonScanner], Reading[None]]
"""Runs a scanner to its end while passing on what it scans."""

_MAX_LEADING_PROSE = 300
_MAX_HEAD_LENGTH = 512
_MIN_DECODE_LENGTH = 64
"""Shorter texts are not worth a try of the decoder."""
_BRACES = re.compile(r"[\s}]*")
_STRING = r'"(?:[^"\\]|\\.)*"'
_CALL_HEAD = re.compile(
    rf'\{{\s*(?:"type"\s*:\s*{_STRING}\s*,\s*)?'
    rf'(?:"(?:id|tool_call_id|call_id)"\s*:\s*(?P<id>{_STRING})\s*,\s*)?'
    rf'"(?:name|tool_name|tool|function)"\s*:\s*(?P<name>{_STRING})\s*,'
    rf'\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:\s*(?=\{{)'
)
"""The beginning of a call up to its arguments, where they come last."""
_NEEDS_ESCAPING = re.compile(r"[\x00-\x1f]|\\")
_ESCAPABLE = re.compile(r'"|\\.|[\x00-\x1f]', re.S)


def read_json_calls(attempt: FormAttempt, _: Header) -> Reading[bool]:
    """Read calls as JSON objects: one, a list, or one after the other."""
    buffer, form = attempt.buffer, attempt.form
    yield from read_fence(attempt)
    if form.dialect.allows_leading_prose and not (yield from _skip_leading_prose(attempt)):
        return False
    if form.opener and (yield from buffer.peek()) == '"':
        return (yield from _read_calls_in_string(attempt))
    in_list = yield from buffer.read_literal("[")
    if in_list and (yield from peek_past_separator(buffer)) in ('"', "'", "["):
        buffer.seek(buffer.held_length() - 1)
        return (yield from _read_call_object(attempt))
    is_single = form.body == "object" and bool(form.opener and form.closer)
    found = False
    mark = buffer.held_length()
    while (yield from _find_next_object(attempt, is_later=in_list and found)):
        if found and not in_list and is_single:
            attempt.add_repair("several-calls")
        if not (yield from _read_call_object(attempt)):
            if found:
                attempt.sink.retract_streamed_call()
                buffer.seek(mark)
            if found and attempt.is_truncated:
                attempt.add_note("truncated", "the last of several calls is cut off; not made")
            attempt.leave_list(in_list=in_list)
            return found
        found = True
        mark = buffer.held_length()
    yield from _end_calls(attempt, in_list=in_list, found=found)
    return found


def _end_calls(attempt: FormAttempt, *, in_list: bool, found: bool) -> Reading[None]:
    """Read the bracket that closes a list of calls, and brackets that are too many."""
    buffer = attempt.buffer
    is_closed = not in_list
    if in_list and (yield from peek_past_separator(buffer, "]")) == "]":
        yield from buffer.read_literal("]")
        is_closed = True
    elif in_list and found and (yield from _is_closer_next(attempt)):
        attempt.add_note("repaired-missing-closer", "the list of calls is not closed", "]")
        is_closed = True
    attempt.end_list(in_list=in_list and found, is_closed=is_closed)
    if found:
        yield from skip_extra_brackets(attempt)


def _read_call_object(attempt: FormAttempt) -> Reading[bool]:
    """Read one object that holds a call, or several."""
    start = attempt.buffer.held_length()
    scanner_run = _stream_arguments_of(attempt) if attempt.sink.incremental else None
    result = yield from _read_object(attempt, scanner_run)
    if result is None:
        return False
    if result.problem:
        attempt.add_draft(CallDraft(problem=result.problem), start)
        return True
    return _add_calls(attempt, result, start)


def _read_calls_in_string(attempt: FormAttempt) -> Reading[bool]:
    """Read calls whose JSON is itself encoded as a JSON string."""
    start = attempt.buffer.held_length()
    text = yield from _read_string(attempt)
    if text is None:
        return False
    result = _decode_leniently(text)
    if result.problem:
        return False
    repairs = ("double-encoding", *result.repairs)
    return _add_calls(attempt, structs.replace(result, repairs=repairs), start)


def _add_calls(attempt: FormAttempt, result: JsonResult, start: int) -> bool:
    """Hand in every call that a decoded value holds."""
    value = result.value
    name_is_key = attempt.form.dialect.json_keys == NAME_IS_KEY
    declared = attempt.tools.tools if attempt.tools else None
    found = list(read_drafts(value, declared, name_is_key=name_is_key))
    if attempt.accepts_any_tool and declared is not None and any(d.problem for d in found):
        found = list(read_drafts(value, None, name_is_key=name_is_key))
    if found and isinstance(value, dict) and "tool_calls" in value:
        # The text beside the calls; if they are not calls, the whole object stays text.
        are_calls = all(not d.problem and attempt.resolve_name(d.name) for d in found)
        if are_calls and isinstance(value.get("content"), str):
            attempt.add_text(value["content"])
    for draft in found:
        repairs = (*result.repairs, *draft.repairs)
        repairs = (*repairs, "extra-keys") if draft.ignored_keys else repairs
        attempt.add_draft(structs.replace(draft, repairs=repairs), start)
    return bool(found)


def read_exact_call(attempt: FormAttempt, _: Header) -> Reading[bool]:
    """Read one object that is a call and nothing else: lists of tools look much the same."""
    buffer = attempt.buffer
    yield from buffer.read_space()
    if (yield from buffer.peek()) != "{":
        return False
    start = buffer.held_length()
    result = yield from _read_object(attempt, None)
    value = result.value if result and not result.repairs else None
    if not isinstance(value, dict) or value.keys() - {"id"} != {"name", "arguments"}:
        return False
    for draft in read_drafts(value):
        attempt.add_draft(draft, start)
    return True


def read_json_arguments(attempt: FormAttempt, header: Header) -> Reading[bool]:
    """Read the arguments as a JSON object, for a name that came before."""
    buffer = attempt.buffer
    name, call_id = header.get("name", ""), header.get("id", "")
    yield from read_fence(attempt)
    start = buffer.held_length()
    first = yield from buffer.peek()
    if first == '"' and attempt.form.opener:
        text = yield from _read_string(attempt)
        if text is not None:
            attempt.add_draft(CallDraft(name, text, call_id), start)
        return text is not None
    if first != "{":
        return (yield from _read_no_arguments(attempt, header))
    is_streaming = attempt.start_streaming(name, call_id)
    result = yield from _read_object(attempt, _stream_object(attempt) if is_streaming else None)
    if result is None:
        return False
    draft = CallDraft(name, result.value, call_id, result.problem, result.repairs)
    attempt.add_draft(draft, start)
    yield from skip_extra_brackets(attempt)
    return True


def _read_no_arguments(attempt: FormAttempt, header: Header) -> Reading[bool]:
    """Take a missing body for no arguments, if the call is closed."""
    buffer, closer = attempt.buffer, attempt.form.closer
    if not closer or not header.get("name") or not (yield from buffer.read_literal(closer)):
        return False
    buffer.position -= len(closer)
    attempt.add_draft(CallDraft(header["name"], None, header.get("id", "")), 0)
    return True


# What stands around the values.


def _skip_leading_prose(attempt: FormAttempt) -> Reading[bool]:
    """Skip prose before the JSON, if the JSON soon begins a line."""
    buffer = attempt.buffer
    if (yield from buffer.peek()) in ("{", "["):
        return True
    start = buffer.held_length()
    markers = marker_set(("\n{", attempt.form.closer[0]))
    found = yield from buffer.read_through_marker(markers, _MAX_LEADING_PROSE)
    if found != "\n{" or buffer.held_length() - start > _MAX_LEADING_PROSE:
        return False
    buffer.position -= 1
    attempt.add_repair("extra-text")
    return True


def _find_next_object(attempt: FormAttempt, *, is_later: bool) -> Reading[bool]:
    """Go to the next object, if one follows; between two, skip a brace that is too many."""
    buffer = attempt.buffer
    follows = yield from peek_past_separator(buffer)
    if follows == "}" and is_later:
        mark = buffer.held_length()
        braces = yield from buffer.read_run(_BRACES, MAX_EXTRA_BRACKETS)
        if braces and (yield from buffer.peek()) in ("]", ","):
            note_extra_brackets(attempt, braces)
            follows = yield from peek_past_separator(buffer)
        else:
            buffer.seek(mark)
    if follows == "{":
        if is_later and not is_comma_next(buffer):
            attempt.add_repair("missing-comma")
        yield from peek_past_separator(buffer, "{")
    return follows == "{"


def _is_closer_next(attempt: FormAttempt) -> Reading[bool]:
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


def _read_string(attempt: FormAttempt) -> Reading[str | None]:
    """Read a JSON string; None if it is invalid or cut off."""
    buffer = attempt.buffer
    start = buffer.held_length()
    if (yield from run_scanner(buffer, StringScanner())) != COMPLETE:
        attempt.mark_truncated(buffer.held_text()[start:].startswith(('"{', '"[')))
        return None
    try:
        value, _ = json_values.parse_json(buffer.held_text()[start:])
    except json_values.LenientJsonError:
        return None
    return value if isinstance(value, str) else None


def _read_object(
    attempt: FormAttempt, scanner_run: ScannerRun | None
) -> Reading[JsonResult | None]:
    """Read an object, repaired if need be; None if it cannot be read."""
    buffer = attempt.buffer
    start = buffer.held_length()
    value = None if attempt.sink.incremental else _decode_at_once(buffer)
    if value is not None:
        return JsonResult(value)
    scanner = JsonScanner()
    yield from scanner_run(scanner) if scanner_run else run_scanner(buffer, scanner)
    if scanner.state == COMPLETE:
        return _decode_leniently(buffer.held_text()[start:])
    # The arguments that were passed on so far differ from what will be read.
    attempt.sink.retract_streamed_call()
    if scanner.state == NEED_MORE:
        attempt.mark_truncated()
        return None
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


def _read_broken_object(attempt: FormAttempt, start: int) -> Reading[JsonResult | None]:
    """Read an object that breaks JSON's rules, to the end of its brackets or to its closer."""
    buffer, form = attempt.buffer, attempt.form
    buffer.seek(start)
    state = yield from run_scanner(buffer, BracketScanner(stop=form.closer))
    if state == COMPLETE:
        result = _decode_leniently(buffer.held_text()[start:])
        if not result.problem or (form.opener and not form.closer):
            return result
    if (yield from seek_closer(attempt, start)):
        text = buffer.held_text()[start:]
        return _decode_leniently(text, may_lack_closers=True, escaped=attempt.begins_line())
    text = buffer.held_text()[start:]
    attempt.mark_truncated(state == NEED_MORE and json_values.is_incomplete_json(text))
    if not attempt.is_truncated and (yield from _skip_inner_calls(attempt, start)):
        return JsonResult(problem="a string that holds a call is not closed before it")
    return None


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


def _skip_inner_calls(attempt: FormAttempt, start: int) -> Reading[bool]:
    """Go to the closer of a body that seems to hold other calls, in the same markers, in a string.

    They are part of the string, not calls of their own.
    """
    buffer, form = attempt.buffer, attempt.form
    if not form.closer or not form.opener:
        return False
    markers = marker_set((form.closer, form.opener))
    buffer.seek(start)
    found = yield from buffer.read_through_marker(markers)
    before = buffer.held_text()[start:].removesuffix(found)
    if found != form.opener or not json_values.is_incomplete_json(before):
        return False
    begins_line = before.rstrip(" \t").endswith("\n")
    depth = 2
    while depth and found:
        found = yield from buffer.read_through_marker(markers)
        depth += 1 if found == form.opener else -1
    buffer.seek(buffer.held_length() - len(found))
    return bool(found) or not begins_line


# Arguments that are passed on while they arrive.


def _stream_object(attempt: FormAttempt) -> ScannerRun:
    """Pass on everything that is scanned: it is the arguments."""

    def run(scanner: JsonScanner) -> Reading[None]:
        buffer = attempt.buffer
        while True:
            before, in_string = buffer.position, scanner.in_string
            buffer.position = scanner.step(buffer.text, before)
            scanned = buffer.text[before : buffer.position]
            attempt.sink.stream_arguments(_escape_controls(scanned, in_string=in_string))
            if scanner.state != NEED_MORE or buffer.is_final:
                return
            yield

    return run


def _stream_arguments_of(attempt: FormAttempt) -> ScannerRun:
    """Pass on the arguments inside the scanned object, if the name came before them."""

    def run(scanner: JsonScanner) -> Reading[None]:
        buffer, sink = attempt.buffer, attempt.sink
        start = buffer.held_length()
        scanner.pauses_after_member = True
        is_streaming = is_over = False
        while True:
            before, in_string = buffer.position, scanner.in_string
            may_begin = not is_over and not is_streaming
            may_begin = may_begin and buffer.held_length() - start < _MAX_HEAD_LENGTH
            buffer.position = scanner.step(buffer.text, before)
            if is_streaming:
                scanned = buffer.text[before : buffer.position]
                sink.stream_arguments(_escape_controls(scanned, in_string=in_string))
            elif may_begin and (match := _CALL_HEAD.match(buffer.held_text(), start)):
                name, call_id = _unquote(match["name"]), _unquote(match["id"] or "")
                is_streaming = attempt.start_streaming(name, call_id)
                if is_streaming:
                    scanned = buffer.held_text()[match.end() :]
                    sink.stream_arguments(_escape_controls(scanned, in_string=False))
            if scanner.is_paused:
                is_over, is_streaming, scanner.pauses_after_member = True, False, False
            elif scanner.state != NEED_MORE or buffer.is_final:
                return
            else:
                yield

    return run


def _unquote(quoted: str) -> str:
    return unescape(quoted[1:-1])


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
