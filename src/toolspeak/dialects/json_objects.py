"""One JSON object: where it ends, what it says, and its arguments as they come.

An object that is all there is decoded at once. One that arrives in pieces is watched by a scanner
until its end, and one that breaks JSON's rules is mended, up to its closer if need be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from ..calls import json_values as jsonish
from ..calls.drafts import ARGUMENT_KEYS
from ..calls.json_values import STRICT_DECODER, is_nested_deeper
from ..calls.lenient_json import MAX_DEPTH, unescape
from .call_sink import CallSink
from .marker_table import marker_set
from .template import CallForm
from .text_buffer import Found, Steps
from .value_scanners import COMPLETE, NEED_MORE, BracketScanner, JsonScanner, run_scanner

ScannerRun = Callable[[JsonScanner], Steps]
"""Runs a scanner to its end, and passes on what it reads."""

_LONGEST_HEAD = 512
_WORTH_TRYING = 64
_STRING = r'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(
    rf'\{{\s*(?:"type"\s*:\s*{_STRING}\s*,\s*)?'
    rf'(?:"(?:id|tool_call_id|call_id)"\s*:\s*(?P<id>{_STRING})\s*,\s*)?'
    rf'"(?:name|tool_name|tool|function)"\s*:\s*(?P<name>{_STRING})\s*,'
    rf'\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:\s*(?=\{{)'
)
"""The beginning of a call up to its arguments, where they come last."""
_NOT_QUITE_JSON = re.compile(r"[\x00-\x1f]|\\")
_PIECE = re.compile(r'"|\\.|[\x00-\x1f]', re.S)


class JsonResult(Struct, frozen=True):
    """An object that was read, or what is wrong with it."""

    value: Any = None
    repairs: tuple[str, ...] = ()
    problem: str = ""


def read_object(
    sink: CallSink, form: CallForm, watch: ScannerRun | None
) -> Generator[None, None, JsonResult | None]:
    """An object, mended if it has to be; None if it cannot be read."""
    buffer = sink.buffer
    start = buffer.held_length()
    value = None if sink.incremental else _decode_complete(sink)
    if value is not None:
        return JsonResult(value)
    scanner = JsonScanner()
    yield from watch(scanner) if watch else run_scanner(buffer, scanner)
    if scanner.state == COMPLETE:
        return decode_lenient(buffer.held_text()[start:])
    # What was passed on so far is not what will be read.
    sink.retract_started_call()
    if scanner.state == NEED_MORE:
        sink.cut_off = True
        return None
    return (yield from _read_broken_object(sink, form, start))


def _read_broken_object(
    sink: CallSink, form: CallForm, start: int
) -> Generator[None, None, JsonResult | None]:
    """An object that breaks JSON's rules: up to where its brackets are closed, or to its closer."""
    buffer = sink.buffer
    buffer.seek(start)
    state = yield from run_scanner(buffer, BracketScanner(stop=form.closer))
    if state == COMPLETE:
        read = decode_lenient(buffer.held_text()[start:])
        if not read.problem or (form.opener and not form.closer):
            return read
    if not (yield from seek_closer(sink, form, start)):
        sink.cut_off = state == NEED_MORE and jsonish.is_incomplete_json(buffer.held_text()[start:])
        if not sink.cut_off and (yield from _skip_inner_calls(sink, form, start)):
            return JsonResult(problem="a text that holds a call is not closed before it")
        return None
    begins_line = sink.writer.last_character in ("", "\n")
    return decode_lenient(buffer.held_text()[start:], close=True, escaped=begins_line)


def decode_lenient(text: str, *, close: bool = False, escaped: bool = False) -> JsonResult:
    problem = ""
    for loose in (False, True) if close else (False,):
        try:
            return JsonResult(
                *jsonish.parse_json(
                    text,
                    allow_missing_closers=close,
                    allow_inner_quotes=loose,
                    allow_escaped_quotes=escaped,
                )
            )
        except jsonish.LenientJsonError as error:
            problem = problem or f"not valid JSON: {error}"
    return JsonResult(problem=problem)


def _decode_complete(sink: CallSink) -> Any:
    """The object that begins here, if all of it is here already: the decoder finds its end."""
    buffer = sink.buffer
    text = buffer.text
    if len(text) - buffer.position < _WORTH_TRYING or text is buffer.undecodable_text:
        return None
    try:
        value, end = STRICT_DECODER.raw_decode(text, buffer.position)
    except (ValueError, RecursionError):
        # Each failure costs the decoder a walk through the text, to count lines for its message.
        buffer.undecodable_text = text
        return None
    if is_nested_deeper(value, text[buffer.position : end], MAX_DEPTH):
        return None
    buffer.position = end
    return value


def seek_closer(sink: CallSink, form: CallForm, start: int) -> Found:
    """Where a body that breaks the rules ends: at its closer, if one comes before another call is
    opened."""
    buffer = sink.buffer
    if not form.closer:
        return False
    markers = marker_set(tuple(marker for marker in (form.closer, form.opener) if marker))
    buffer.seek(start)
    found = yield from buffer.read_through_marker(markers)
    buffer.seek(buffer.held_length() - len(found))
    return found == form.closer


def _skip_inner_calls(sink: CallSink, form: CallForm, start: int) -> Found:
    """Go to the closer of a body one of whose texts holds other calls in the same markers, if that
    is what it looks like: then they are no calls of their own."""
    buffer = sink.buffer
    if not form.closer or not form.opener:
        return False
    markers = marker_set((form.closer, form.opener))
    buffer.seek(start)
    found = yield from buffer.read_through_marker(markers)
    before = buffer.held_text()[start:].removesuffix(found)
    if found != form.opener or not jsonish.is_incomplete_json(before):
        return False
    begins_line = before.rstrip(" \t").endswith("\n")
    depth = 2
    while depth and found:
        found = yield from buffer.read_through_marker(markers)
        depth += 1 if found == form.opener else -1
    buffer.seek(buffer.held_length() - len(found))
    return bool(found) or not begins_line


# Arguments as they come.


def stream_object(sink: CallSink) -> ScannerRun:
    """Everything that is read is the arguments."""

    def watch(scanner: JsonScanner) -> Steps:
        buffer = sink.buffer
        while True:
            before, in_string = buffer.position, scanner.in_string
            buffer.position = scanner.step(buffer.text, before)
            sink.stream_arguments(
                _escape_control_characters(buffer.text[before : buffer.position], in_string)
            )
            if scanner.state != NEED_MORE or buffer.is_final:
                return
            yield

    return watch


def stream_member(sink: CallSink, form: CallForm) -> ScannerRun:
    """The arguments stand inside of what is read; they are passed on if the name came before."""

    def watch(scanner: JsonScanner) -> Steps:
        buffer = sink.buffer
        start = buffer.held_length()
        scanner.pauses_after_member = True
        streaming = over = False
        while True:
            before, in_string = buffer.position, scanner.in_string
            looking = not over and not streaming and buffer.held_length() - start < _LONGEST_HEAD
            buffer.position = scanner.step(buffer.text, before)
            if streaming:
                sink.stream_arguments(
                    _escape_control_characters(buffer.text[before : buffer.position], in_string)
                )
            elif looking and (match := _HEAD.match(buffer.held_text(), start)):
                streaming = sink.start_streaming(
                    form, _unquote(match["name"]), _unquote(match["id"] or "")
                )
                if streaming:
                    sink.stream_arguments(
                        _escape_control_characters(
                            buffer.held_text()[match.end() :], in_string=False
                        )
                    )
            if scanner.is_paused:
                over, streaming, scanner.pauses_after_member = True, False, False
            elif scanner.state != NEED_MORE or buffer.is_final:
                return
            else:
                yield

    return watch


def _unquote(quoted: str) -> str:
    return unescape(quoted[1:-1])


def _escape_control_characters(text: str, in_string: bool) -> str:
    """A piece of JSON with what models write raw in strings escaped as JSON wants it."""
    if not _NOT_QUITE_JSON.search(text):
        return text
    written: list[str] = []
    at = 0
    for match in _PIECE.finditer(text):
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
