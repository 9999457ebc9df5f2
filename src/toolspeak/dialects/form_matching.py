"""Tries the forms that may begin at a marker: reads the header, the body, and what closes the call.

    <tool_call>  get_weather\n   <arg_key>city</arg_key>…   </tool_call>
    opener       header          body                       closer

The header holds the tool's name, an id, the attributes of a tag. A form that cannot read the text
gives it back, and the next form is tried. Text that no form can read stays text; so do a call that
is too long and one that is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..calls.drafts import CallDraft
from .argument_bodies import (
    read_attributes,
    read_bare_input,
    read_brace_map,
    read_key_value,
    read_perl_map,
    read_program,
    read_yaml,
)
from .call_sink import TentativeEvents
from .elements import read_elements
from .form_reader import (
    MAX_NAME_LENGTH,
    NO_BODY,
    Body,
    FormReader,
    FormRejected,
    Header,
    ParserState,
    UndeclaredCall,
)
from .json_bodies import read_exact_call, read_json_arguments, read_json_calls
from .markers import MarkerSet, marker_set
from .python_calls import read_python_calls
from .tagged_parameters import parse_attributes, read_parameters, tag_pattern, unescape_entities
from .template import (
    CODE_SLOTS,
    COMMON_REASONING_TAGS,
    END_OF_TURN_TOKENS,
    JSON_SLOTS,
    OTHER_TURN_OPENERS,
    CallForm,
    LiteralText,
    Slot,
    TagTemplate,
    TemplatePart,
)
from .text_buffer import HeldTooLong, Reading, TextBuffer

_BODY_READERS: dict[str, Callable[[FormReader, Header], Reading[Body]]] = {
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
_MAX_TAG_LENGTH = 1024
_NAME = re.compile(r"""["'`][\w.\-:/$@*]*+["'`]?+|[\w.\-:/$@*]*+""")
_NAME_IN_ATTRIBUTE = re.compile(r"[\w.\-:/$@*&#;]*+")
"""A name in quotes that belong to the form, with XML's entities."""
_PLAIN_NAME = re.compile(r"[\w.\-:]*+")
_NAME_PATTERNS = {'"': _NAME_IN_ATTRIBUTE, "/": _PLAIN_NAME}
"""The characters of a name, by the literal that follows it."""
_TAG_CONTENT = re.compile(r"""(?:[^<>"']++|"[^"<]*"|'[^'<]*')*+""")
_REASONING_OPENERS = marker_set(tuple(opener for opener, _ in COMMON_REASONING_TAGS))
_END_TAG = re.compile(r"</(?:[\w:.\-]{1,30}(>?)|\Z)|<\Z()")
_MAX_LINK_LENGTH = 200
"""The most text that may be between two calls in prose."""
_RESCAN_FACTOR, _FREE_RESCAN = 8, 65_536
"""How many times text may be read in vain, on average, before it is passed on unread.

This bounds the parser's time."""


def read_form(attempt: FormReader) -> Reading[Body]:
    """Read a form from its opener on."""
    header = yield from _read_header(attempt)
    if header is None:
        return NO_BODY
    if attempt.form.body:
        return (yield from _BODY_READERS[attempt.form.body](attempt, header))
    if header.name:
        attempt.add_call(CallDraft(header.name, None, header.id))
    else:
        held = attempt.buffer.held_text()
        attempt.writer.add_note("no-call", "a section for calls is empty", held)
    return Body()


# The header.


def _read_header(attempt: FormReader) -> Reading[Header | None]:
    """Read the opener and the words up to the body; None if they are not there."""
    buffer, form = attempt.buffer, attempt.form
    words: dict[str, str] = {}
    first = form.header[0] if form.header else None
    if not (isinstance(first, TagTemplate) and form.opener == f"<{first.name}"):
        buffer.position += len(form.opener)
        if form.opener.endswith(">"):
            yield from _skip_reasoning(attempt)
    is_after_bracket = False
    for part, following in zip(form.header, (*form.header[1:], None), strict=False):
        yield from buffer.read_space()
        if isinstance(part, LiteralText):
            is_after_bracket = part.stripped_text.endswith("<")
            if part.stripped_text and not (yield from buffer.read_literal(part.stripped_text)):
                return None
        elif isinstance(part, TagTemplate):
            attributes = yield from _read_tag(buffer, part)
            if attributes is None:
                return None
            words |= attributes
        else:
            word = yield from _read_word(attempt, part, following, is_first=not words)
            if word is None or (is_after_bracket and form.opener == f"<{word}>"):
                return None  # Not a name, or the same tag again.
            words[part.kind] = word
    if "header" in words:
        return _parse_header_word(attempt, words["header"])
    return Header(words.get("name", ""), words.get("id", ""), "empty" in words)


def _read_word(
    attempt: FormReader, slot: Slot, following: TemplatePart | None, *, is_first: bool
) -> Reading[str | None]:
    """Read a name or an id, without quotes; None if there is none."""
    ends = following.stripped_text[:1] if isinstance(following, LiteralText) else ""
    pattern = _NAME_PATTERNS.get(ends, _NAME)
    # Without an opener any word could be a name: wait only for the name of a tool.
    is_viable = attempt.may_begin_name if is_first and not attempt.form.opener else None
    word = yield from attempt.buffer.read_run(pattern, MAX_NAME_LENGTH, is_viable)
    if word is None or word[:1] in ("-", "/") or (not word and slot.kind != "id"):
        return None
    if pattern is _NAME_IN_ATTRIBUTE:
        return unescape_entities(word)
    plain = word.strip("\"'`") or word
    if len(plain) < len(word):
        attempt.add_repair("quoted")
    return plain


def _skip_reasoning(attempt: FormReader) -> Reading[None]:
    """Skip reasoning between the opener and the body."""
    buffer = attempt.buffer
    mark = buffer.held_length()
    yield from buffer.read_space()
    match = yield from buffer.match_marker(_REASONING_OPENERS)
    if match:
        closer = dict(COMMON_REASONING_TAGS)[match[0]]
        if (yield from buffer.read_through_marker(marker_set((closer,)))):
            attempt.add_repair("extra-text")
            return
    buffer.seek(mark)


def _parse_header_word(attempt: FormReader, word: str) -> Header:
    """Find the tool's name in a header such as `functions.get_weather:0`, which is the id too.

    Each pattern that matches gives a candidate. The first declared name or number is taken, else
    the first candidate; a number means that the header names no tool.
    """
    patterns = attempt.form.dialect.header_patterns
    found = [match[1] for pattern in patterns if (match := re.fullmatch(pattern, word))]
    name = found[0] if found else ""
    declared = attempt.tools.declared
    if declared is not None:
        name = next((other for other in found if other in declared or other.isdigit()), name)
        name = "" if name.isdigit() else name
    return Header(name, word)


def _read_tag(buffer: TextBuffer, tag: TagTemplate) -> Reading[dict[str, str] | None]:
    """Read an opening tag; return its attributes by slot, or None if it is another tag."""
    if not (yield from buffer.read_literal(f"<{tag.name}")):
        return None
    while True:
        match = _TAG_CONTENT.match(buffer.text, buffer.position)
        end = match.end() if match else buffer.position
        if end - buffer.position > _MAX_TAG_LENGTH:
            return None
        if end < len(buffer.text) and buffer.text[end] == ">":
            break
        if end < len(buffer.text) and buffer.text[end] not in "\"'":
            return None
        if len(buffer.text) - buffer.position > _MAX_TAG_LENGTH or buffer.is_final:
            return None
        yield
    text = f"<{tag.name}{buffer.text[buffer.position : end + 1]}"
    parsed = re.fullmatch(tag_pattern(tag.name), text)
    if parsed is None:
        return None
    buffer.position = end + 1
    attributes = parse_attributes(parsed[1])
    if any(name not in attributes for name, slot in tag.attributes if slot == "name"):
        return None
    words = {slot: attributes.get(name, "") for name, slot in tag.attributes}
    return {**words, "empty": "/"} if parsed[2] else words


# The forms at a marker.


class FormMatcher:
    """Reads the calls of one reply, form by form.

    `is_exhaustive` is for text that is only searched: calls inside other calls, after a complete
    answer and after a truncated one are read too.
    """

    def __init__(self, state: ParserState, *, is_exhaustive: bool = False) -> None:
        self._state = state
        self._buffer = state.buffer
        self._writer = state.writer
        self._sink = state.sink
        self._scope = state.table.scope
        self.is_exhaustive = is_exhaustive
        self.is_turn_over = False
        """The final answer or another role's turn has begun: nothing after it is a call."""
        self.reached_end = False
        """The last attempt read to the end of the text."""
        self._open_closers: dict[str, None] = {}
        """Markers that may still close the calls so far, until text comes."""
        self._missing_closers: tuple[str, ...] = ()
        """Closing markers, of which the last call lacked one."""
        self._rescanned = 0
        """The amount of text that was read in vain so far."""
        self._is_list = False
        """The last calls were in a list."""
        self._is_answer_complete = False
        """The calls were in a list or between markers: calls in prose after them are examples."""
        self._begins_message = False
        """A token has begun another message since the last call."""
        self._has_noted_call_after_answer = False
        self._has_noted_stray_closer = False

    def match_forms(
        self, forms: tuple[CallForm, ...], *, is_example: bool = False, ends_message: bool = False
    ) -> Reading[bool]:
        """Read a call in one of the forms; return False if the marker stays text.

        With `ends_message`, the call must end a message: no other text may follow it.
        """
        forms = self._order_forms(forms)
        rejected: list[CallForm] = []
        undeclared_size = 0
        is_truncated = False
        for index, form in enumerate(forms):
            in_prose = self._is_prose_form(form)
            if in_prose and self._is_answered():
                self._note_call_after_answer(self._buffer.text[self._buffer.position])
                continue
            attempt = FormReader(
                self._state,
                form,
                in_prose=in_prose,
                is_example=is_example,
                is_truncated=is_truncated,
                ends_message=ends_message,
                can_step_back=index + 1 < len(forms) or bool(rejected),
            )
            try:
                if (yield from self._try_form(attempt)):
                    self._is_answer_complete = not in_prose or self._is_list
                    self._begins_message = False
                    return True
            except FormRejected:
                self._buffer.restore()
                rejected.append(form)
                if self.write_if_read_too_often():
                    return True
            except UndeclaredCall as undeclared:
                self._buffer.restore()
                undeclared_size = max(undeclared_size, undeclared.size)
                if self.write_if_read_too_often():
                    return True
            is_truncated = attempt.is_truncated
        if rejected:
            # Every form found a fault: the first one reports its own.
            attempt = FormReader(
                self._state,
                rejected[0],
                is_example=is_example,
                is_truncated=is_truncated,
                ends_message=ends_message,
            )
            return (yield from self._try_form(attempt))
        if undeclared_size and not self.is_exhaustive:
            self._write_unread(undeclared_size)
            return True
        return is_truncated and self.write_truncated_call()

    def _order_forms(self, forms: tuple[CallForm, ...]) -> tuple[CallForm, ...]:
        """Put the dialect of the last call first."""
        last = self._sink.last_dialect
        if last and len(forms) > 1:
            return tuple(sorted(forms, key=lambda form: form.dialect is not last))
        return forms

    def _try_form(self, attempt: FormReader) -> Reading[bool]:
        """Read one form; what it cannot read is given back."""
        self._buffer.hold()
        if (yield from self.read_calls(attempt, read_form(attempt))):
            return True
        self._buffer.restore()
        return self.write_if_read_too_often()

    def read_calls(self, attempt: FormReader, reader: Reading[Body]) -> Reading[bool]:
        """Read the calls of a form and what closes them; a call that is too long becomes text."""
        form, sink, writer = attempt.form, self._sink, self._writer
        is_inert = any(form.opener == opener for opener, _ in form.dialect.inert_spans)
        has_end = bool(form.closer) or form.body in JSON_SLOTS | CODE_SLOTS
        must_close = (self._scope.is_strict and has_end) or is_inert
        calls_before = sink.call_count
        is_tentative = must_close or attempt.ends_message or self.is_exhaustive
        trial = writer.trial = TentativeEvents() if is_tentative else None
        writer.holds_call_end = True
        try:
            body = yield from attempt.run(reader)
            found = body.has_calls
            if found and must_close:
                found = yield from self._is_closed(form, body, or_ends=is_inert)
            if found and attempt.ends_message:
                found = yield from self._ends_message(form)
            if self._buffer.is_held_too_long():
                raise HeldTooLong
        except HeldTooLong:
            writer.end_trial(emits=False)
            writer.end_call()
            self._write_overlong_call()
            return True
        except (FormRejected, UndeclaredCall):
            writer.end_trial(emits=False)
            writer.end_call()
            raise
        writer.end_trial(emits=found)
        if not found:
            writer.end_call()
            sink.retract_streamed_call()
            sink.forget_calls(keep=calls_before)
            return False
        if trial and self.is_exhaustive and trial.has_rejections():
            writer.end_call()
            return False
        self._is_list = body.in_list
        yield from self._read_closers(attempt, body, trial.last_call_end if trial else 0)
        return True

    def _is_closed(self, form: CallForm, body: Body, *, or_ends: bool) -> Reading[bool]:
        """Return True if a closing marker of the form comes next, or the end of the text."""
        buffer = self._buffer
        if body.has_unclosed_list:
            return False
        if body.is_closed or not form.closer:
            return True
        mark = buffer.held_length()
        yield from buffer.read_space()
        match = yield from buffer.match_marker(marker_set((*body.fence, *form.all_closers)))
        is_closed = match is not None or (or_ends and buffer.position == len(buffer.text))
        buffer.seek(mark)
        return is_closed

    def _ends_message(self, form: CallForm) -> Reading[bool]:
        """Return True if after the call's closers, the text ends or a marker of its dialect
        comes."""
        buffer, dialect = self._buffer, form.dialect
        closers = marker_set(form.all_closers)
        openers = (other.opener for other in dialect.forms if other.opener)
        ends = marker_set((*dialect.control_tokens, *openers))
        mark = buffer.held_length()
        yield from buffer.read_space()
        while match := (yield from buffer.match_marker(closers)):
            buffer.position = match.end()
            yield from buffer.read_space()
        is_end = (yield from buffer.match_marker(ends)) is not None
        is_end = is_end or buffer.position == len(buffer.text)
        buffer.seek(mark)
        return is_end

    # Closing markers.

    def _read_closers(self, attempt: FormReader, body: Body, call_end: int) -> Reading[None]:
        """Read what closes a call, and write the text of rejected drafts. The last call ended
        `call_end` characters after the buffer's hold."""
        buffer, writer, form = self._buffer, self._writer, attempt.form
        earlier = {} if writer.length_since_call else self._open_closers
        self._open_closers = dict.fromkeys((*body.fence, *form.all_closers, *earlier))
        self._missing_closers, self._has_noted_stray_closer = (), False
        if not self._open_closers:
            writer.end_call()
        space = ""
        is_closed = not form.closer
        while True:
            closers = marker_set(tuple(self._open_closers))
            space += yield from buffer.read_space()
            match = yield from buffer.match_marker(closers)
            if match:
                space = ""
                is_closed = True
                buffer.position = match.end()
                if match[0] == form.dialect.turn_end_closer or match[0] in OTHER_TURN_OPENERS:
                    self.is_turn_over = True
                del self._open_closers[match[0]]
            elif not is_closed and (yield from self._read_wrong_closer(attempt)):
                is_closed = True
                space = ""
            else:
                break
        if buffer.is_final and self._begins_closer(closers):
            rest = buffer.text[buffer.position :]
            writer.add_note("unclosed", "the closing marker of a call is cut off", rest)
            buffer.position = len(buffer.text)
        elif body.has_unclosed_list or not (
            is_closed or body.is_closed or form.closer in END_OF_TURN_TOKENS
        ):
            self._note_missing_closer(attempt)
        text = buffer.release()
        if attempt.rejections:
            writer.end_call()
            writer.write_text(text)
        else:
            writer.end_call(text[call_end:].removesuffix(space))
            writer.mark_call_boundary()
            writer.write_text(space)

    def _note_missing_closer(self, attempt: FormReader) -> None:
        """Note that a call is not closed, and expect its closer later."""
        if not attempt.is_truncated and not attempt.rejections:
            where = attempt.form.closer or "]"
            self._writer.add_note("unclosed", "the call has no closing marker", where)
            self._missing_closers = attempt.form.all_closers

    def _read_wrong_closer(self, attempt: FormReader) -> Reading[bool]:
        """Read another tag's end where the call's own should be."""
        buffer, opener = self._buffer, attempt.form.opener
        if not opener.startswith("<") or opener.startswith("<|"):
            return False
        while True:
            match = _END_TAG.match(buffer.text, buffer.position)
            if match is None:
                return False
            if match[1]:
                if not attempt.is_example:
                    message = f"{match[0]} closes {opener}"
                    self._writer.add_note("wrong-closer", message, match[0])
                buffer.position = match.end()
                return True
            if buffer.is_final or match.end() < len(buffer.text):
                return False
            yield

    def _begins_closer(self, closers: MarkerSet) -> bool:
        """Return True if the text ends with more than one character of a closing marker."""
        rest = self._buffer.text[self._buffer.position :]
        return len(rest) > 1 and rest[0] in "<[`~]" and closers.may_continue(rest, 0)

    def read_late_closer(self, literal: str) -> bool:
        """Read a closing marker after a call that lacked it, or that has it twice.

        Within text it stays text: it may have been part of one of the call's values.
        """
        last = self._sink.last_dialect if self._sink.call_count else None
        if last is None or literal not in last.closing_tags or self.is_turn_over:
            return False
        is_late, is_second = literal in self._missing_closers, not self._writer.length_since_call
        if is_second and not is_late:
            self._writer.add_note("repaired-extra-closer", f"{literal} appears twice", literal)
        elif not is_late and not self._has_noted_stray_closer:
            self._has_noted_stray_closer = True
            message = f"{literal} closes nothing here; it may belong to a value of the last call"
            self._writer.add_note("stray-closer", message, literal)
        if is_late or is_second:
            self._missing_closers = ()
            self._buffer.position += len(literal)
        return is_late or is_second

    # Calls that are not accepted.

    def are_prose_forms(self, forms: tuple[CallForm, ...]) -> bool:
        """Return True if all forms are recognized in prose, where failing to read them is
        normal."""
        return bool(forms) and all(map(self._is_prose_form, forms))

    def _is_prose_form(self, form: CallForm) -> bool:
        """Return True if a form has no marker or only a fence, and its dialect is recognized in
        prose."""
        is_bare = not form.opener or form.opener.startswith("`")
        return is_bare and form.dialect in self._scope.in_prose

    def _is_answered(self) -> bool:
        """Return True if calls in prose are no longer accepted: after a call, models explain and
        give examples."""
        if self.is_exhaustive or not self._sink.call_count:
            return False
        length = self._writer.length_since_call
        if self._is_answer_complete:
            # Without a word in between, the next message goes on with the answer.
            return length > 0 or not self._begins_message
        return length > _MAX_LINK_LENGTH

    def begin_message(self) -> None:
        """Record that a token begins another message."""
        self._begins_message = True

    def is_too_late(self, opener: str) -> bool:
        """Return True if a call would rest on a fabricated result or follow the answer."""
        if self.is_turn_over and not self.is_exhaustive:
            self._note_call_after_answer(opener)
            return True
        return False

    def _note_call_after_answer(self, opener: str) -> None:
        """Note once that a tool is named after the answer."""
        if not self._has_noted_call_after_answer and opener[0] not in "{[`":
            self._has_noted_call_after_answer = True
            self._writer.add_note("after-answer", "calls after a complete answer are text")

    # Text instead of calls.

    def write_truncated_call(self) -> bool:
        """Write the rest of the text, which ends inside a call, without searching it for calls."""
        if self.is_exhaustive:
            return False
        rest = self._buffer.text[self._buffer.position :]
        self._buffer.position = len(self._buffer.text)
        self._sink.reject_truncated(rest)
        self._writer.write_text(rest)
        return True

    def _write_overlong_call(self) -> None:
        """Write as much text as a call may have."""
        buffer = self._buffer
        self._sink.retract_streamed_call()
        buffer.active_scanner = None
        buffer.seek(buffer.max_held_length)
        text = buffer.release()
        message = f"a call is longer than {buffer.max_held_length} characters; it stays text"
        self._writer.add_note("too-long", message, text)
        self._writer.write_text(text)

    def _write_unread(self, length: int) -> None:
        """Write text that was read in vain without reading it again."""
        buffer = self._buffer
        self._writer.write_text(buffer.text[buffer.position : buffer.position + length])
        buffer.position += length

    def write_if_read_too_often(self) -> bool:
        """Account for text that was read in vain; return True if it was written as text.

        That happens once so much text was read in vain that time would not be linear.
        """
        buffer = self._buffer
        length = buffer.furthest - buffer.offset
        is_at_end = buffer.is_final and buffer.position + length >= len(buffer.text)
        self.reached_end = self.reached_end or is_at_end
        self._rescanned += length
        if self._rescanned <= _FREE_RESCAN + _RESCAN_FACTOR * buffer.furthest:
            return False
        self._write_unread(length)
        return True
