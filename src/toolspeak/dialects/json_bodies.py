"""Calls as JSON: objects that hold name and arguments, or arguments alone behind a name.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}

An object that is all there is decoded at once. One that arrives in pieces is watched by a scanner
until its end, and its arguments can be passed on as they come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any

from .. import jsonish
from ..calls import ARGUMENT_KEYS, Draft, drafts
from ..jsonish import MAX_DEPTH, depth_of
from .desk import Desk
from .scan import BAD, DONE, MORE, JsonScanner, scan
from .template import Form

Found = Generator[None, None, bool]
Header = Mapping[str, str]
_LONGEST_GAP = 256
_LONGEST_HEAD = 512
_LONGEST_FENCE = 40
_WORTH_TRYING = 64
_FENCE = re.compile(r"`{0,3}[\w-]*")
_GAP = re.compile(r"\s*+[,;]?+\s*+")
_HEAD = re.compile(
    r'\{\s*"(?:name|tool_name|tool|function)"\s*:\s*("(?:[^"\\]|\\.)*")\s*,'
    rf'\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:\s*(?=\{{)'
)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_decoder = json.JSONDecoder(strict=False, parse_constant=_no_constant)


def read_json(desk: Desk, form: Form, header: Header) -> Found:
    """Calls as JSON objects: one, a list, or one after the other."""
    reader = desk.reader
    yield from fence(desk)
    in_list = yield from reader.literal("[")
    found = False
    mark = reader.offset()
    while (yield from gap(desk, "{")) == "{":
        if not (yield from _object(desk, form)):
            if found:
                reader.seek(mark)
            return found
        found = True
        mark = reader.offset()
    if in_list and (yield from gap(desk, "]")) == "]":
        yield from reader.literal("]")
    return found


def fence(desk: Desk) -> Generator[None, None, None]:
    """Models like to put JSON in a code fence, even between markers."""
    reader = desk.reader
    yield from reader.space()
    if (yield from reader.peek()) == "`":
        yield from reader.run(_FENCE, _LONGEST_FENCE)
        yield from reader.space()
        desk.fenced()


def gap(desk: Desk, wanted: str) -> Generator[None, None, str]:
    """The next character after white space and a separator, which are read only if it is wanted."""
    reader = desk.reader
    while True:
        match = _GAP.match(reader.text, reader.at)
        end = match.end() if match else reader.at
        if end < len(reader.text) and end - reader.at <= _LONGEST_GAP:
            character = reader.text[end]
            if character == wanted:
                reader.at = end
            return character
        if reader.ended or end - reader.at > _LONGEST_GAP:
            return ""
        yield


def _object(desk: Desk, form: Form) -> Found:
    """One JSON object that holds a call, or several."""
    reader = desk.reader
    start = reader.offset()
    value = _at_once(desk)
    state = DONE
    if value is None:
        scanner = JsonScanner()
        steps = _streamed(desk, form, scanner, start) if desk.incremental else None
        state = yield from steps or scan(reader, scanner)
    if state == DONE:
        value = _decoder.decode(reader.held()[start:]) if value is None else value
        found = list(drafts(value, desk.tools))
        if found and form.body == "content" and isinstance(value.get("content"), str):
            desk.say_before_calls(value["content"])
        for draft in found:
            desk.draft(form, draft, start)
        return bool(found)
    return (yield from _rescued(desk, form, start, state, _drafts_of))


def _at_once(desk: Desk) -> dict[str, Any] | None:
    """The object that begins here, if all of it is here already: the decoder finds its end."""
    reader = desk.reader
    text = reader.text
    if desk.incremental or len(text) - reader.at < _WORTH_TRYING or text is reader.refused:
        return None
    try:
        value, end = _decoder.raw_decode(text, reader.at)
    except (ValueError, RecursionError):
        # Each failure costs the decoder a walk through the text, to count lines for its message.
        reader.refused = text
        return None
    if depth_of(value) > MAX_DEPTH:
        return None
    reader.at = end
    return value


def _drafts_of(desk: Desk, value: Any, repairs: tuple[str, ...]) -> list[Draft]:
    return [
        Draft(draft.name, draft.arguments, draft.id, draft.problem, repairs)
        for draft in drafts(value, desk.tools)
    ]


def _rescued(
    desk: Desk,
    form: Form,
    start: int,
    state: int,
    make: Callable[[Desk, Any, tuple[str, ...]], list[Draft]],
) -> Found:
    """JSON that breaks off or breaks the rules: mend it if the text says where it ends."""
    reader = desk.reader
    if not form.closer:
        return False
    body = reader.held()[start:]
    end = body.find(form.closer)
    if end >= 0:
        reader.seek(start + end)
    elif state == BAD:
        closer = yield from reader.until(re.compile(re.escape(form.closer)), len(form.closer))
        end = len(reader.held()) - len(closer) - start
        if not closer:
            return False
        reader.seek(start + end)
    if end < 0:
        return False
    try:
        value, repairs = jsonish.loads(reader.held()[start:], close=True)
    except jsonish.NotAValue as error:
        desk.draft(form, Draft(problem=f"not valid JSON: {error}"), start)
        return True
    for draft in make(desk, value, repairs):
        desk.draft(form, draft, start)
    return True


def _streamed(
    desk: Desk, form: Form, scanner: JsonScanner, start: int
) -> Generator[None, None, int]:
    """Read an object, and pass its arguments on as they come if the name came before them."""
    reader = desk.reader
    scanner.pause = True
    streaming = False
    over = False
    while True:
        before = reader.at
        looking = not over and not streaming and reader.offset() - start < _LONGEST_HEAD
        reader.at = scanner.step(reader.text, before)
        if streaming:
            desk.more(reader.text[before : reader.at])
        elif looking:
            match = _HEAD.match(reader.held(), start)
            streaming = bool(match) and desk.begin(form, json.loads(match[1]), "")
            if match and streaming:
                desk.more(reader.held()[match.end() :])
        if scanner.depth_one:
            over, streaming, scanner.pause = True, False, False
        elif scanner.state != MORE or reader.ended:
            return scanner.state
        else:
            yield


def read_arguments(desk: Desk, form: Form, header: Header) -> Found:
    """The arguments as a JSON object, for a name that stood before."""
    reader = desk.reader
    name, identity = header.get("name", ""), header.get("id", "")
    yield from fence(desk)
    if (yield from reader.peek()) != "{":
        return (yield from _no_arguments(desk, form, header))
    start = reader.offset()
    value = _at_once(desk)
    if value is not None:
        desk.draft(form, Draft(name, value, identity), start)
        return True
    scanner = JsonScanner()
    if desk.begin(form, name, identity):
        yield from _streamed_arguments(desk, scanner)
    else:
        yield from scan(reader, scanner)
    if scanner.state == DONE:
        desk.draft(form, Draft(name, _decoder.decode(reader.held()[start:]), identity), start)
        return True

    def make(_: Desk, value: Any, repairs: tuple[str, ...]) -> list[Draft]:
        return [Draft(name, value, identity, "", repairs)]

    return (yield from _rescued(desk, form, start, scanner.state, make))


def _streamed_arguments(desk: Desk, scanner: JsonScanner) -> Generator[None, None, None]:
    reader = desk.reader
    while True:
        before = reader.at
        reader.at = scanner.step(reader.text, before)
        desk.more(reader.text[before : reader.at])
        if scanner.state != MORE or reader.ended:
            return
        yield


def _no_arguments(desk: Desk, form: Form, header: Header) -> Found:
    """Nothing where the arguments should be: that is an empty object, if the call is closed."""
    reader = desk.reader
    if not form.closer or not header.get("name"):
        return False
    if not (yield from reader.literal(form.closer)):
        return False
    reader.at -= len(form.closer)
    desk.draft(form, Draft(header["name"], None, header.get("id", "")), 0)
    return True
