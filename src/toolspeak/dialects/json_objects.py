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
from .call_sink import Desk
from .grammar import markers_of
from .reader import Found, Steps
from .scan import DONE, MORE, BracketScanner, JsonScanner, scan
from .template import Form

Watch = Callable[[JsonScanner], Steps]
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


class Read(Struct, frozen=True):
    """An object that was read, or what is wrong with it."""

    value: Any = None
    repairs: tuple[str, ...] = ()
    problem: str = ""


def read_object(desk: Desk, form: Form, watch: Watch | None) -> Generator[None, None, Read | None]:
    """An object, mended if it has to be; None if it cannot be read."""
    reader = desk.reader
    start = reader.offset()
    value = None if desk.incremental else _at_once(desk)
    if value is not None:
        return Read(value)
    scanner = JsonScanner()
    yield from watch(scanner) if watch else scan(reader, scanner)
    if scanner.state == DONE:
        return loaded(reader.held()[start:])
    # What was passed on so far is not what will be read.
    desk.retract()
    if scanner.state == MORE:
        desk.cut_off = True
        return None
    return (yield from _mended(desk, form, start))


def _mended(desk: Desk, form: Form, start: int) -> Generator[None, None, Read | None]:
    """An object that breaks JSON's rules: up to where its brackets are closed, or to its closer."""
    reader = desk.reader
    reader.seek(start)
    state = yield from scan(reader, BracketScanner(stop=form.closer))
    if state == DONE:
        read = loaded(reader.held()[start:])
        if not read.problem or (form.opener and not form.closer):
            return read
    if not (yield from end_at_closer(desk, form, start)):
        desk.cut_off = state == MORE and jsonish.is_incomplete_json(reader.held()[start:])
        if not desk.cut_off and (yield from _past_inner_calls(desk, form, start)):
            return Read(problem="a text that holds a call is not closed before it")
        return None
    begins_line = desk.output.last in ("", "\n")
    return loaded(reader.held()[start:], close=True, escaped=begins_line)


def loaded(text: str, *, close: bool = False, escaped: bool = False) -> Read:
    problem = ""
    for loose in (False, True) if close else (False,):
        try:
            return Read(
                *jsonish.parse_json(
                    text,
                    allow_missing_closers=close,
                    allow_inner_quotes=loose,
                    allow_escaped_quotes=escaped,
                )
            )
        except jsonish.LenientJsonError as error:
            problem = problem or f"not valid JSON: {error}"
    return Read(problem=problem)


def _at_once(desk: Desk) -> Any:
    """The object that begins here, if all of it is here already: the decoder finds its end."""
    reader = desk.reader
    text = reader.text
    if len(text) - reader.at < _WORTH_TRYING or text is reader.refused:
        return None
    try:
        value, end = STRICT_DECODER.raw_decode(text, reader.at)
    except (ValueError, RecursionError):
        # Each failure costs the decoder a walk through the text, to count lines for its message.
        reader.refused = text
        return None
    if is_nested_deeper(value, text[reader.at : end], MAX_DEPTH):
        return None
    reader.at = end
    return value


def end_at_closer(desk: Desk, form: Form, start: int) -> Found:
    """Where a body that breaks the rules ends: at its closer, if one comes before another call is
    opened."""
    reader = desk.reader
    if not form.closer:
        return False
    markers = markers_of(tuple(marker for marker in (form.closer, form.opener) if marker))
    reader.seek(start)
    found = yield from reader.until_marker(markers)
    reader.seek(reader.offset() - len(found))
    return found == form.closer


def _past_inner_calls(desk: Desk, form: Form, start: int) -> Found:
    """Go to the closer of a body one of whose texts holds other calls in the same markers, if that
    is what it looks like: then they are no calls of their own."""
    reader = desk.reader
    if not form.closer or not form.opener:
        return False
    markers = markers_of((form.closer, form.opener))
    reader.seek(start)
    found = yield from reader.until_marker(markers)
    before = reader.held()[start:].removesuffix(found)
    if found != form.opener or not jsonish.is_incomplete_json(before):
        return False
    begins_line = before.rstrip(" \t").endswith("\n")
    depth = 2
    while depth and found:
        found = yield from reader.until_marker(markers)
        depth += 1 if found == form.opener else -1
    reader.seek(reader.offset() - len(found))
    return bool(found) or not begins_line


# Arguments as they come.


def passing_on(desk: Desk) -> Watch:
    """Everything that is read is the arguments."""

    def watch(scanner: JsonScanner) -> Steps:
        reader = desk.reader
        while True:
            before, in_string = reader.at, scanner.in_string
            reader.at = scanner.step(reader.text, before)
            desk.more(_as_json(reader.text[before : reader.at], in_string))
            if scanner.state != MORE or reader.ended:
                return
            yield

    return watch


def passing_on_arguments(desk: Desk, form: Form) -> Watch:
    """The arguments stand inside of what is read; they are passed on if the name came before."""

    def watch(scanner: JsonScanner) -> Steps:
        reader = desk.reader
        start = reader.offset()
        scanner.pause = True
        streaming = over = False
        while True:
            before, in_string = reader.at, scanner.in_string
            looking = not over and not streaming and reader.offset() - start < _LONGEST_HEAD
            reader.at = scanner.step(reader.text, before)
            if streaming:
                desk.more(_as_json(reader.text[before : reader.at], in_string))
            elif looking and (match := _HEAD.match(reader.held(), start)):
                streaming = desk.begin(form, _word(match["name"]), _word(match["id"] or ""))
                if streaming:
                    desk.more(_as_json(reader.held()[match.end() :], in_string=False))
            if scanner.depth_one:
                over, streaming, scanner.pause = True, False, False
            elif scanner.state != MORE or reader.ended:
                return
            else:
                yield

    return watch


def _word(quoted: str) -> str:
    return unescape(quoted[1:-1])


def _as_json(text: str, in_string: bool) -> str:
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
