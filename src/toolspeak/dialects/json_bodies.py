"""Calls as JSON: objects that hold name and arguments, or arguments alone behind a name.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}

How one object is read is in `json_objects`; here is which calls it and its neighbours are.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any

from msgspec import structs

from ..calls import json_values as jsonish
from ..calls.drafts import CallDraft, read_drafts
from .call_sink import Desk
from .grammar import markers_of
from .json_objects import Read, loaded, passing_on, passing_on_arguments, read_object
from .reader import Found, Steps
from .scan import DONE, StringScanner, scan
from .template import NAME_IS_KEY, Form

Header = Mapping[str, str]

_LONGEST_GAP = 256
_LONGEST_NOISE = 300
_LONGEST_FENCE = 40
_FENCE_TICKS = 3
_TICKS = re.compile(r"`*")
_WORD = re.compile(r"[\w-]*")
_BRACES = re.compile(r"[\s}]*")
_BRACKETS = re.compile(r"[\s}\]]*")
_MOST_BRACKETS = 16
_GAP = re.compile(r"\s*+[,;]?+\s*+")


def read_json(desk: Desk, form: Form, header: Header) -> Found:
    """Calls as JSON objects: one, a list, or one after the other."""
    reader = desk.reader
    yield from fence(desk, form)
    if form.dialect.noisy and not (yield from _past_noise(desk, form)):
        return False
    if form.opener and (yield from reader.peek()) == '"':
        return (yield from _in_string(desk, form))
    in_list = yield from reader.literal("[")
    if in_list and (yield from gap(desk, "")) in ('"', "'", "["):
        reader.seek(reader.offset() - 1)
        return (yield from _calls(desk, form))
    found = False
    mark = reader.offset()
    while (yield from _next_object(desk, in_list and found)):
        if found and not in_list and form.body == "object" and form.opener and form.closer:
            desk.liberties["several-calls"] = None
        if not (yield from _calls(desk, form)):
            if found:
                desk.retract()
                reader.seek(mark)
            if found and desk.cut_off:
                desk.remark("truncated", "the last of several calls is cut off, and is not made")
            desk.unclosed = in_list
            return found
        found = True
        mark = reader.offset()
    if in_list and (yield from gap(desk, "]")) == "]":
        yield from reader.literal("]")
    elif in_list and found and (yield from _sees_closer(desk, form)):
        desk.remark("repaired-missing-closer", "the list of calls is not closed", "]")
    else:
        desk.unclosed = in_list
    desk.listed = in_list and found
    if found:
        yield from past_brackets(desk, form)
    return found


def _in_string(desk: Desk, form: Form) -> Found:
    """Calls whose JSON is itself a JSON string."""
    start = desk.reader.offset()
    text = yield from _string(desk)
    if text is None:
        return False
    read = loaded(text)
    if read.problem:
        return False
    repairs = ("double-encoding", *read.repairs)
    return _hand_in(desk, form, structs.replace(read, repairs=repairs), start)


def _string(desk: Desk) -> Generator[None, None, str | None]:
    """The JSON string that begins here; None if it is none, or is cut off."""
    start = desk.reader.offset()
    if (yield from scan(desk.reader, StringScanner())) != DONE:
        desk.cut_off = desk.reader.held()[start:].startswith(('"{', '"['))
        return None
    try:
        value, _ = jsonish.parse_json(desk.reader.held()[start:])
    except jsonish.LenientJsonError:
        return None
    return value if isinstance(value, str) else None


def _sees_closer(desk: Desk, form: Form) -> Found:
    """Whether the form's closer comes next."""
    mark = desk.reader.offset()
    yield from desk.reader.space()
    found = bool(form.closer) and (yield from desk.reader.literal(form.closer))
    desk.reader.seek(mark)
    return found


def _past_noise(desk: Desk, form: Form) -> Found:
    """Prose before the JSON: it is left out, if the JSON begins a line soon after."""
    reader = desk.reader
    if (yield from reader.peek()) in ("{", "["):
        return True
    start = reader.offset()
    found = yield from reader.until_marker(markers_of(("\n{", form.closer[0])), _LONGEST_NOISE)
    if found != "\n{" or reader.offset() - start > _LONGEST_NOISE:
        return False
    reader.at -= 1
    desk.liberties["extra-text"] = None
    return True


def _next_object(desk: Desk, more: bool) -> Found:
    """Whether another object comes; between two of a list, a brace too many is left out."""
    reader = desk.reader
    follows = yield from gap(desk, "")
    if follows == "}" and more:
        mark = reader.offset()
        braces = yield from reader.run(_BRACES, _MOST_BRACKETS)
        if braces and (yield from reader.peek()) in ("]", ","):
            _remark_on_brackets(desk, braces)
            follows = yield from gap(desk, "")
        else:
            reader.seek(mark)
    if follows == "{":
        if more and not follows_comma(desk):
            desk.liberties["missing-comma"] = None
        yield from gap(desk, "{")
    return follows == "{"


def past_brackets(desk: Desk, form: Form) -> Steps:
    """Models like to close one bracket more than they opened."""
    reader = desk.reader
    mark = reader.offset()
    if not form.closer:
        return
    brackets = yield from reader.run(_BRACKETS, _MOST_BRACKETS)
    if brackets and brackets.strip():
        for closer in (*desk.fence, form.closer):
            if (yield from reader.literal(closer)):
                reader.at -= len(closer)
                _remark_on_brackets(desk, brackets)
                return
    reader.seek(mark)


def _remark_on_brackets(desk: Desk, brackets: str) -> None:
    desk.remark("repaired-extra-closer", "there were more brackets than needed", brackets)


def _calls(desk: Desk, form: Form) -> Found:
    """One object that holds a call, or several."""
    start = desk.reader.offset()
    watch = passing_on_arguments(desk, form) if desk.incremental else None
    read = yield from read_object(desk, form, watch)
    if read is None:
        return False
    if read.problem:
        desk.draft(form, CallDraft(problem=read.problem), start)
        return True
    return _hand_in(desk, form, read, start)


def _hand_in(desk: Desk, form: Form, read: Read, start: int) -> bool:
    """Report every call that a value holds."""
    name_is_key = form.dialect.keys == NAME_IS_KEY
    declared = desk.tools.tools if desk.tools else None
    found = list(read_drafts(read.value, declared, name_is_key=name_is_key))
    if desk.takes_any and declared is not None and any(draft.problem for draft in found):
        found = list(read_drafts(read.value, None, name_is_key=name_is_key))
    _say_content(desk, read.value, found)
    for draft in found:
        repairs = (*read.repairs, *draft.repairs, *("extra-keys",) * bool(draft.ignored_keys))
        desk.draft(form, structs.replace(draft, repairs=repairs), start)
    return bool(found)


def _say_content(desk: Desk, value: Any, found: list[CallDraft]) -> None:
    """The text that stands beside the calls, if they are calls: else all of it stays text."""
    good = all(not draft.problem and desk.may_call(draft.name) for draft in found)
    beside = isinstance(value, dict) and "tool_calls" in value
    if found and good and beside and isinstance(value.get("content"), str):
        desk.say_before_calls(value["content"])


def read_canonical(desk: Desk, form: Form, header: Header) -> Found:
    """One object that is a call and nothing else: a list of tools looks much the same."""
    reader = desk.reader
    yield from reader.space()
    if (yield from reader.peek()) != "{":
        return False
    start = reader.offset()
    read = yield from read_object(desk, form, None)
    value = read.value if read and not read.repairs else None
    if not isinstance(value, dict) or value.keys() - {"id"} != {"name", "arguments"}:
        return False
    for draft in read_drafts(value):
        desk.draft(form, draft, start)
    return True


def read_arguments(desk: Desk, form: Form, header: Header) -> Found:
    """The arguments as a JSON object, for a name that stood before."""
    reader = desk.reader
    name, identity = header.get("name", ""), header.get("id", "")
    yield from fence(desk, form)
    start = reader.offset()
    opens = yield from reader.peek()
    if opens == '"' and form.opener:
        text = yield from _string(desk)
        if text is not None:
            desk.draft(form, CallDraft(name, text, identity), start)
        return text is not None
    if opens != "{":
        return (yield from _no_arguments(desk, form, header))
    watch = passing_on(desk) if desk.begin(form, name, identity) else None
    read = yield from read_object(desk, form, watch)
    if read is None:
        return False
    desk.draft(form, CallDraft(name, read.value, identity, read.problem, read.repairs), start)
    yield from past_brackets(desk, form)
    return True


def _no_arguments(desk: Desk, form: Form, header: Header) -> Found:
    """Nothing where the arguments should be: that is an empty object, if the call is closed."""
    reader = desk.reader
    if not form.closer or not header.get("name"):
        return False
    if not (yield from reader.literal(form.closer)):
        return False
    reader.at -= len(form.closer)
    desk.draft(form, CallDraft(header["name"], None, header.get("id", "")), 0)
    return True


def fence(desk: Desk, form: Form) -> Steps:
    """Models like to put JSON in a code fence, even between markers."""
    reader = desk.reader
    yield from reader.space()
    if (yield from reader.peek()) == "`" and not form.opener.startswith("`"):
        ticks = (yield from reader.run(_TICKS, _LONGEST_FENCE)) or ""
        if len(ticks) >= _FENCE_TICKS:
            yield from reader.run(_WORD, _LONGEST_FENCE)
        yield from reader.space()
        desk.fenced(ticks)


def follows_comma(desk: Desk) -> bool:
    """Whether a comma stands before what `gap` has seen."""
    match = _GAP.match(desk.reader.text, desk.reader.at)
    return match is not None and "," in match[0]


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
