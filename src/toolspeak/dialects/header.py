"""What stands between a call's opener and its body: the tool's name, an id, a tag's attributes."""

from __future__ import annotations

import re
from collections.abc import Generator

from .call_sink import CallSink
from .marker_table import marker_set
from .tagged_parameters import parse_attributes, tag_regex, unescape_entities
from .template import COMMON_REASONING_TAGS, CallForm, LiteralText, Slot, TagTemplate
from .text_buffer import Steps

_LONGEST_NAME = 256
_NAME = re.compile(r"""["'`][\w.\-:/$@*]*+["'`]?+|[\w.\-:/$@*]*+""")
_ATTRIBUTE = re.compile(r"[\w.\-:/$@*&#;]*+")
"""A name in quotes that belong to the form, with XML's entities."""
_PLAIN_NAME = re.compile(r"[\w.\-:]*+")
_PATTERNS = {'"': _ATTRIBUTE, "/": _PLAIN_NAME}
"""What a name is made of, by what ends it."""
_LONGEST_TAG = 1024
_TAG_END = re.compile(r"""(?:[^<>"']++|"[^"<]*"|'[^'<]*')*+""")
_THOUGHTS = marker_set(tuple(opener for opener, _ in COMMON_REASONING_TAGS))


def read_header(sink: CallSink, form: CallForm) -> Generator[None, None, dict[str, str] | None]:
    """The opener and the words up to the body; None if they are not there."""
    buffer = sink.buffer
    words: dict[str, str] = {}
    first = form.header[0] if form.header else None
    if not (isinstance(first, TagTemplate) and form.opener == f"<{first.name}"):
        buffer.position += len(form.opener)
        if form.opener.endswith(">"):
            yield from _skip_reasoning(sink)
    followers = (*form.header[1:], None) if form.header else ()
    tag_like = False
    for part, following in zip(form.header, followers, strict=True):
        match part:
            case LiteralText():
                tag_like = part.stripped.endswith("<")
                yield from buffer.read_space()
                if part.stripped and not (yield from buffer.read_literal(part.stripped)):
                    return None
            case Slot():
                yield from buffer.read_space()
                ends = following.stripped[:1] if isinstance(following, LiteralText) else ""
                pattern = _PATTERNS.get(ends, _NAME)
                # At the very beginning any word could be a name: only a tool's own is waited for.
                viable = sink.may_begin_tool_name if not form.opener and not words else None
                word = yield from buffer.read_run(pattern, _LONGEST_NAME, viable)
                if word is None or word[:1] in ("-", "/") or (not word and part.kind != "id"):
                    return None
                if tag_like and form.opener == f"<{word}>":
                    return None  # The same tag again.
                plain = (
                    unescape_entities(word) if pattern is _ATTRIBUTE else word.strip("\"'`") or word
                )
                if len(plain) < len(word) and pattern is not _ATTRIBUTE:
                    sink.liberties["quoted"] = None
                words[part.kind] = plain
            case TagTemplate():
                yield from buffer.read_space()
                found = yield from _read_tag(sink, part)
                if found is None:
                    return None
                words |= found
    return (
        _find_name_in_header(sink, words["header"], form.dialect.header_patterns)
        if "header" in words
        else words
    )


def _skip_reasoning(sink: CallSink) -> Steps:
    """Reasoning between a marker and what it marks."""
    buffer = sink.buffer
    mark = buffer.held_length()
    yield from buffer.read_space()
    while not buffer.is_final and _THOUGHTS.may_continue(buffer.text, buffer.position):
        yield
    match = _THOUGHTS.pattern.match(buffer.text, buffer.position)
    if match:
        closer = dict(COMMON_REASONING_TAGS)[match[0]]
        if (yield from buffer.read_through_marker(marker_set((closer,)))):
            sink.liberties["extra-text"] = None
            return
    buffer.seek(mark)


def _find_name_in_header(sink: CallSink, header: str, patterns: tuple[str, ...]) -> dict[str, str]:
    """Find the tool's name in a header that is an id at the same time: the first that is declared,
    or a number that stands for none, or the first of all."""
    found = [match[1] for pattern in patterns if (match := re.fullmatch(pattern, header))]
    if sink.tools:
        known = (name for name in found if name in sink.tools.tools or name.isdigit())
        name = next(known, found[0] if found else "")
        return {"name": "" if name.isdigit() else name, "id": header}
    return {"name": found[0] if found else "", "id": header}


def _read_tag(sink: CallSink, tag: TagTemplate) -> Generator[None, None, dict[str, str] | None]:
    buffer = sink.buffer
    if not (yield from buffer.read_literal(f"<{tag.name}")):
        return None
    while True:
        match = _TAG_END.match(buffer.text, buffer.position)
        end = match.end() if match else buffer.position
        if end - buffer.position > _LONGEST_TAG or (end == len(buffer.text) and buffer.is_final):
            return None
        if end < len(buffer.text) and buffer.text[end] == ">":
            break
        if end < len(buffer.text) and buffer.text[end] not in "\"'":
            return None
        if len(buffer.text) - buffer.position > _LONGEST_TAG or buffer.is_final:
            return None
        yield
    text = f"<{tag.name}{buffer.text[buffer.position : end + 1]}"
    whole = re.fullmatch(tag_regex(tag.name), text)
    if whole is None:
        return None
    buffer.position = end + 1
    written = parse_attributes(whole[1])
    if any(name not in written for name, slot in tag.attributes if slot == "name"):
        return None
    words = {slot: written.get(name, "") for name, slot in tag.attributes}
    return {**words, "empty": "/"} if whole[2] else words
