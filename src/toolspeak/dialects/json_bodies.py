"""Calls as JSON: objects that hold name and arguments, or arguments alone behind a name.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}

An object that is all there is decoded at once. One that arrives in pieces is watched by a scanner
until its end, and its arguments can be passed on as they come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct, structs

from .. import jsonish
from ..calls import ARGUMENT_KEYS, Draft, drafts
from ..jsonish import MAX_DEPTH, decoder, depth_of
from .desk import Desk
from .scan import BAD, DONE, MORE, JsonScanner, scan
from .template import NAME_IS_KEY, Form

Found = Generator[None, None, bool]
Header = Mapping[str, str]
Watch = Callable[[JsonScanner], Generator[None, None, None]]
"""Runs a scanner to its end, and passes on what it reads."""

_LONGEST_GAP = 256
_LONGEST_HEAD = 512
_LONGEST_FENCE = 40
_WORTH_TRYING = 64
_FENCE_TICKS = 3
_TICKS = re.compile(r"`*")
_WORD = re.compile(r"[\w-]*")
_BRACKETS = re.compile(r"[\s}\]]*")
_MOST_BRACKETS = 16
_GAP = re.compile(r"\s*+[,;]?+\s*+")
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


def read_json(desk: Desk, form: Form, header: Header) -> Found:
    """Calls as JSON objects: one, a list, or one after the other."""
    reader = desk.reader
    yield from fence(desk)
    in_list = yield from reader.literal("[")
    if in_list and (yield from gap(desk, "")) == '"':
        reader.seek(reader.offset() - 1)
        return (yield from _calls(desk, form))
    found = False
    mark = reader.offset()
    while (yield from gap(desk, "{")) == "{":
        if not (yield from _calls(desk, form)):
            if found:
                desk.retract()
                reader.seek(mark)
            return found
        found = True
        mark = reader.offset()
    if in_list and (yield from gap(desk, "]")) == "]":
        yield from reader.literal("]")
    if found:
        yield from _past_brackets(desk, form)
    return found


def _past_brackets(desk: Desk, form: Form) -> Generator[None, None, None]:
    """Models like to close one bracket more than they opened."""
    reader = desk.reader
    mark = reader.offset()
    if not form.closer:
        return
    brackets = yield from reader.run(_BRACKETS, _MOST_BRACKETS)
    if brackets and brackets.strip() and (yield from reader.literal(form.closer)):
        reader.at -= len(form.closer)
        desk.remark("repaired-extra-closer", "there were more brackets than needed", brackets)
    else:
        reader.seek(mark)


def _calls(desk: Desk, form: Form) -> Found:
    """One object that holds a call, or several."""
    start = desk.reader.offset()
    watch = _passing_on_arguments(desk, form) if desk.incremental else None
    read = yield from _object(desk, form, watch)
    if read is None:
        return False
    if read.problem:
        desk.draft(form, Draft(problem=read.problem), start)
        return True
    name_is_key = form.dialect.keys == NAME_IS_KEY
    found = list(drafts(read.value, desk.tools, name_is_key=name_is_key))
    if not form.opener:
        _say_content(desk, read.value, found)
    for draft in found:
        repairs = (*read.repairs, *draft.repairs)
        desk.draft(form, structs.replace(draft, repairs=repairs), start)
    return bool(found)


def _say_content(desk: Desk, value: Any, found: list[Draft]) -> None:
    """The text that stands beside the calls, if they are calls: else all of it stays text."""
    good = all(not draft.problem and desk.declared(draft.name) for draft in found)
    beside = isinstance(value, dict) and "tool_calls" in value
    if found and good and beside and isinstance(value.get("content"), str):
        desk.say_before_calls(value["content"])


def read_arguments(desk: Desk, form: Form, header: Header) -> Found:
    """The arguments as a JSON object, for a name that stood before."""
    reader = desk.reader
    name, identity = header.get("name", ""), header.get("id", "")
    yield from fence(desk)
    if (yield from reader.peek()) != "{":
        return (yield from _no_arguments(desk, form, header))
    start = reader.offset()
    watch = _passing_on(desk) if desk.begin(form, name, identity) else None
    read = yield from _object(desk, form, watch)
    if read is None:
        return False
    desk.draft(form, Draft(name, read.value, identity, read.problem, read.repairs), start)
    yield from _past_brackets(desk, form)
    return True


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


def fence(desk: Desk) -> Generator[None, None, None]:
    """Models like to put JSON in a code fence, even between markers."""
    reader = desk.reader
    yield from reader.space()
    if (yield from reader.peek()) == "`":
        ticks = (yield from reader.run(_TICKS, _LONGEST_FENCE)) or ""
        if len(ticks) >= _FENCE_TICKS:
            yield from reader.run(_WORD, _LONGEST_FENCE)
        yield from reader.space()
        desk.fenced(ticks)


def gap(desk: Desk, wanted: str) -> Generator[None, None, str]:
    """The next character after white space and a separator, which are read only if it is wanted."""
    reader = desk.reader
    while True:
        match = _GAP.match(reader.text, reader.at, reader.at + _LONGEST_GAP + 2)
        end = match.end() if match else reader.at
        if end < len(reader.text) and end - reader.at <= _LONGEST_GAP:
            character = reader.text[end]
            if character == wanted:
                reader.at = end
            return character
        if reader.ended or end - reader.at > _LONGEST_GAP:
            return ""
        yield


# One object.


def _object(desk: Desk, form: Form, watch: Watch | None) -> Generator[None, None, Read | None]:
    """An object, mended if it has to be; None if it cannot be read."""
    reader = desk.reader
    start = reader.offset()
    value = None if desk.incremental else _at_once(desk)
    if value is not None:
        return Read(value)
    scanner = JsonScanner()
    yield from watch(scanner) if watch else scan(reader, scanner)
    whole = scanner.state == DONE
    if not whole:
        # What was passed on so far is not what will be read.
        desk.retract()
        if not (yield from end_at_closer(desk, form, start, bad=scanner.state == BAD)):
            return None
    try:
        value, repairs = jsonish.loads(reader.held()[start:], close=not whole)
    except jsonish.NotAValue as error:
        return Read(problem=f"not valid JSON: {error}")
    return Read(value, repairs)


def _at_once(desk: Desk) -> Any:
    """The object that begins here, if all of it is here already: the decoder finds its end."""
    reader = desk.reader
    text = reader.text
    if len(text) - reader.at < _WORTH_TRYING or text is reader.refused:
        return None
    try:
        value, end = decoder.raw_decode(text, reader.at)
    except (ValueError, RecursionError):
        # Each failure costs the decoder a walk through the text, to count lines for its message.
        reader.refused = text
        return None
    if depth_of(value) > MAX_DEPTH:
        return None
    reader.at = end
    return value


def end_at_closer(desk: Desk, form: Form, start: int, *, bad: bool) -> Found:
    """Where JSON that breaks off or breaks the rules ends: at its closer, if one comes before
    another call is opened."""
    reader = desk.reader
    if not form.closer:
        return False
    markers = [marker for marker in (form.closer, form.opener) if marker]
    pattern = re.compile("|".join(map(re.escape, markers)))
    match = pattern.search(reader.held(), start)
    if match:
        reader.seek(match.start())
        return match[0] == form.closer
    if not bad:
        return False
    # A marker may have begun in what was read already.
    reader.seek(max(start, reader.offset() - max(map(len, markers))))
    found = yield from reader.until(pattern, max(map(len, markers)))
    reader.seek(reader.offset() - len(found))
    return found == form.closer


# Arguments as they come.


def _passing_on(desk: Desk) -> Watch:
    """Everything that is read is the arguments."""

    def watch(scanner: JsonScanner) -> Generator[None, None, None]:
        reader = desk.reader
        while True:
            before, in_string = reader.at, scanner.in_string
            reader.at = scanner.step(reader.text, before)
            desk.more(_as_json(reader.text[before : reader.at], in_string))
            if scanner.state != MORE or reader.ended:
                return
            yield

    return watch


def _passing_on_arguments(desk: Desk, form: Form) -> Watch:
    """The arguments stand inside of what is read; they are passed on if the name came before."""

    def watch(scanner: JsonScanner) -> Generator[None, None, None]:
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
    return jsonish.unescape(quoted[1:-1])


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
