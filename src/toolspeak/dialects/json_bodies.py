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
from .call_sink import CallSink
from .json_objects import JsonResult, decode_lenient, read_object, stream_member, stream_object
from .marker_table import marker_set
from .template import NAME_IS_KEY, CallForm
from .text_buffer import Found, Steps
from .value_scanners import COMPLETE, StringScanner, run_scanner

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


def read_json_calls(sink: CallSink, form: CallForm, header: Header) -> Found:
    """Calls as JSON objects: one, a list, or one after the other."""
    buffer = sink.buffer
    yield from read_fence(sink, form)
    if form.dialect.allows_leading_prose and not (yield from _past_noise(sink, form)):
        return False
    if form.opener and (yield from buffer.peek()) == '"':
        return (yield from _in_string(sink, form))
    in_list = yield from buffer.read_literal("[")
    if in_list and (yield from peek_past_separator(sink, "")) in ('"', "'", "["):
        buffer.seek(buffer.held_length() - 1)
        return (yield from _calls(sink, form))
    found = False
    mark = buffer.held_length()
    while (yield from _next_object(sink, in_list and found)):
        if found and not in_list and form.body == "object" and form.opener and form.closer:
            sink.liberties["several-calls"] = None
        if not (yield from _calls(sink, form)):
            if found:
                sink.retract_started_call()
                buffer.seek(mark)
            if found and sink.cut_off:
                sink.add_note("truncated", "the last of several calls is cut off, and is not made")
            sink.unclosed = in_list
            return found
        found = True
        mark = buffer.held_length()
    if in_list and (yield from peek_past_separator(sink, "]")) == "]":
        yield from buffer.read_literal("]")
    elif in_list and found and (yield from _sees_closer(sink, form)):
        sink.add_note("repaired-missing-closer", "the list of calls is not closed", "]")
    else:
        sink.unclosed = in_list
    sink.listed = in_list and found
    if found:
        yield from skip_extra_brackets(sink, form)
    return found


def _in_string(sink: CallSink, form: CallForm) -> Found:
    """Calls whose JSON is itself a JSON string."""
    start = sink.buffer.held_length()
    text = yield from _string(sink)
    if text is None:
        return False
    read = decode_lenient(text)
    if read.problem:
        return False
    repairs = ("double-encoding", *read.repairs)
    return _hand_in(sink, form, structs.replace(read, repairs=repairs), start)


def _string(sink: CallSink) -> Generator[None, None, str | None]:
    """The JSON string that begins here; None if it is none, or is cut off."""
    start = sink.buffer.held_length()
    if (yield from run_scanner(sink.buffer, StringScanner())) != COMPLETE:
        sink.cut_off = sink.buffer.held_text()[start:].startswith(('"{', '"['))
        return None
    try:
        value, _ = jsonish.parse_json(sink.buffer.held_text()[start:])
    except jsonish.LenientJsonError:
        return None
    return value if isinstance(value, str) else None


def _sees_closer(sink: CallSink, form: CallForm) -> Found:
    """Whether the form's closer comes next."""
    mark = sink.buffer.held_length()
    yield from sink.buffer.read_space()
    found = bool(form.closer) and (yield from sink.buffer.read_literal(form.closer))
    sink.buffer.seek(mark)
    return found


def _past_noise(sink: CallSink, form: CallForm) -> Found:
    """Prose before the JSON: it is left out, if the JSON begins a line soon after."""
    buffer = sink.buffer
    if (yield from buffer.peek()) in ("{", "["):
        return True
    start = buffer.held_length()
    found = yield from buffer.read_through_marker(
        marker_set(("\n{", form.closer[0])), _LONGEST_NOISE
    )
    if found != "\n{" or buffer.held_length() - start > _LONGEST_NOISE:
        return False
    buffer.position -= 1
    sink.liberties["extra-text"] = None
    return True


def _next_object(sink: CallSink, more: bool) -> Found:
    """Whether another object comes; between two of a list, a brace too many is left out."""
    buffer = sink.buffer
    follows = yield from peek_past_separator(sink, "")
    if follows == "}" and more:
        mark = buffer.held_length()
        braces = yield from buffer.read_run(_BRACES, _MOST_BRACKETS)
        if braces and (yield from buffer.peek()) in ("]", ","):
            _remark_on_brackets(sink, braces)
            follows = yield from peek_past_separator(sink, "")
        else:
            buffer.seek(mark)
    if follows == "{":
        if more and not follows_comma(sink):
            sink.liberties["missing-comma"] = None
        yield from peek_past_separator(sink, "{")
    return follows == "{"


def skip_extra_brackets(sink: CallSink, form: CallForm) -> Steps:
    """Models like to close one bracket more than they opened."""
    buffer = sink.buffer
    mark = buffer.held_length()
    if not form.closer:
        return
    brackets = yield from buffer.read_run(_BRACKETS, _MOST_BRACKETS)
    if brackets and brackets.strip():
        for closer in (*sink.fence, form.closer):
            if (yield from buffer.read_literal(closer)):
                buffer.position -= len(closer)
                _remark_on_brackets(sink, brackets)
                return
    buffer.seek(mark)


def _remark_on_brackets(sink: CallSink, brackets: str) -> None:
    sink.add_note("repaired-extra-closer", "there were more brackets than needed", brackets)


def _calls(sink: CallSink, form: CallForm) -> Found:
    """One object that holds a call, or several."""
    start = sink.buffer.held_length()
    watch = stream_member(sink, form) if sink.incremental else None
    read = yield from read_object(sink, form, watch)
    if read is None:
        return False
    if read.problem:
        sink.add_draft(form, CallDraft(problem=read.problem), start)
        return True
    return _hand_in(sink, form, read, start)


def _hand_in(sink: CallSink, form: CallForm, read: JsonResult, start: int) -> bool:
    """Report every call that a value holds."""
    name_is_key = form.dialect.json_keys == NAME_IS_KEY
    declared = sink.tools.tools if sink.tools else None
    found = list(read_drafts(read.value, declared, name_is_key=name_is_key))
    if sink.accepts_any_tool and declared is not None and any(draft.problem for draft in found):
        found = list(read_drafts(read.value, None, name_is_key=name_is_key))
    _say_content(sink, read.value, found)
    for draft in found:
        repairs = (*read.repairs, *draft.repairs, *("extra-keys",) * bool(draft.ignored_keys))
        sink.add_draft(form, structs.replace(draft, repairs=repairs), start)
    return bool(found)


def _say_content(sink: CallSink, value: Any, found: list[CallDraft]) -> None:
    """The text that stands beside the calls, if they are calls: else all of it stays text."""
    good = all(not draft.problem and sink.resolve_name(draft.name) for draft in found)
    beside = isinstance(value, dict) and "tool_calls" in value
    if found and good and beside and isinstance(value.get("content"), str):
        sink.say_before_calls(value["content"])


def read_exact_call(sink: CallSink, form: CallForm, header: Header) -> Found:
    """One object that is a call and nothing else: a list of tools looks much the same."""
    buffer = sink.buffer
    yield from buffer.read_space()
    if (yield from buffer.peek()) != "{":
        return False
    start = buffer.held_length()
    read = yield from read_object(sink, form, None)
    value = read.value if read and not read.repairs else None
    if not isinstance(value, dict) or value.keys() - {"id"} != {"name", "arguments"}:
        return False
    for draft in read_drafts(value):
        sink.add_draft(form, draft, start)
    return True


def read_json_arguments(sink: CallSink, form: CallForm, header: Header) -> Found:
    """The arguments as a JSON object, for a name that stood before."""
    buffer = sink.buffer
    name, identity = header.get("name", ""), header.get("id", "")
    yield from read_fence(sink, form)
    start = buffer.held_length()
    opens = yield from buffer.peek()
    if opens == '"' and form.opener:
        text = yield from _string(sink)
        if text is not None:
            sink.add_draft(form, CallDraft(name, text, identity), start)
        return text is not None
    if opens != "{":
        return (yield from _no_arguments(sink, form, header))
    watch = stream_object(sink) if sink.start_streaming(form, name, identity) else None
    read = yield from read_object(sink, form, watch)
    if read is None:
        return False
    sink.add_draft(form, CallDraft(name, read.value, identity, read.problem, read.repairs), start)
    yield from skip_extra_brackets(sink, form)
    return True


def _no_arguments(sink: CallSink, form: CallForm, header: Header) -> Found:
    """Nothing where the arguments should be: that is an empty object, if the call is closed."""
    buffer = sink.buffer
    if not form.closer or not header.get("name"):
        return False
    if not (yield from buffer.read_literal(form.closer)):
        return False
    buffer.position -= len(form.closer)
    sink.add_draft(form, CallDraft(header["name"], None, header.get("id", "")), 0)
    return True


def read_fence(sink: CallSink, form: CallForm) -> Steps:
    """Models like to put JSON in a code fence, even between markers."""
    buffer = sink.buffer
    yield from buffer.read_space()
    if (yield from buffer.peek()) == "`" and not form.opener.startswith("`"):
        ticks = (yield from buffer.read_run(_TICKS, _LONGEST_FENCE)) or ""
        if len(ticks) >= _FENCE_TICKS:
            yield from buffer.read_run(_WORD, _LONGEST_FENCE)
        yield from buffer.read_space()
        sink.fenced(ticks)


def follows_comma(sink: CallSink) -> bool:
    """Whether a comma stands before what `gap` has seen."""
    match = _GAP.match(sink.buffer.text, sink.buffer.position)
    return match is not None and "," in match[0]


def peek_past_separator(sink: CallSink, wanted: str) -> Generator[None, None, str]:
    """The next character after white space and a separator, which are read only if it is wanted."""
    buffer = sink.buffer
    while True:
        match = _GAP.match(buffer.text, buffer.position, buffer.position + _LONGEST_GAP + 2)
        end = match.end() if match else buffer.position
        if end < len(buffer.text) and end - buffer.position <= _LONGEST_GAP:
            character = buffer.text[end]
            if character == wanted:
                buffer.position = end
            return character
        if buffer.is_final or end - buffer.position > _LONGEST_GAP:
            return ""
        yield
