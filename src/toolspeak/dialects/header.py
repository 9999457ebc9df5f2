"""What stands between a call's opener and its body: the tool's name, an id, a tag's attributes."""

from __future__ import annotations

import re
from collections.abc import Generator

from .call_sink import Desk
from .grammar import markers_of
from .reader import Steps
from .tagged import attributes_of, tag_pattern, unescape
from .template import COMMON_THOUGHTS, Form, Literal, Slot, Tag

_LONGEST_NAME = 256
_NAME = re.compile(r"""["'`][\w.\-:/$@*]*+["'`]?+|[\w.\-:/$@*]*+""")
_ATTRIBUTE = re.compile(r"[\w.\-:/$@*&#;]*+")
"""A name in quotes that belong to the form, with XML's entities."""
_PLAIN_NAME = re.compile(r"[\w.\-:]*+")
_PATTERNS = {'"': _ATTRIBUTE, "/": _PLAIN_NAME}
"""What a name is made of, by what ends it."""
_LONGEST_TAG = 1024
_TAG_END = re.compile(r"""(?:[^<>"']++|"[^"<]*"|'[^'<]*')*+""")
_THOUGHTS = markers_of(tuple(opener for opener, _ in COMMON_THOUGHTS))


def read_header(desk: Desk, form: Form) -> Generator[None, None, dict[str, str] | None]:
    """The opener and the words up to the body; None if they are not there."""
    reader = desk.reader
    words: dict[str, str] = {}
    first = form.header[0] if form.header else None
    if not (isinstance(first, Tag) and form.opener == f"<{first.name}"):
        reader.at += len(form.opener)
        if form.opener.endswith(">"):
            yield from _past_thought(desk)
    followers = (*form.header[1:], None) if form.header else ()
    tag_like = False
    for part, following in zip(form.header, followers, strict=True):
        match part:
            case Literal():
                tag_like = part.core.endswith("<")
                yield from reader.space()
                if part.core and not (yield from reader.literal(part.core)):
                    return None
            case Slot():
                yield from reader.space()
                ends = following.core[:1] if isinstance(following, Literal) else ""
                pattern = _PATTERNS.get(ends, _NAME)
                # At the very beginning any word could be a name: only a tool's own is waited for.
                viable = desk.may_be_tool if not form.opener and not words else None
                word = yield from reader.run(pattern, _LONGEST_NAME, viable)
                if word is None or word[:1] in ("-", "/") or (not word and part.kind != "id"):
                    return None
                if tag_like and form.opener == f"<{word}>":
                    return None  # The same tag again.
                plain = unescape(word) if pattern is _ATTRIBUTE else word.strip("\"'`") or word
                if len(plain) < len(word) and pattern is not _ATTRIBUTE:
                    desk.liberties["quoted"] = None
                words[part.kind] = plain
            case Tag():
                yield from reader.space()
                found = yield from _tag(desk, part)
                if found is None:
                    return None
                words |= found
    return _named(desk, words["header"], form.dialect.header) if "header" in words else words


def _past_thought(desk: Desk) -> Steps:
    """Reasoning between a marker and what it marks."""
    reader = desk.reader
    mark = reader.offset()
    yield from reader.space()
    while not reader.ended and _THOUGHTS.may_grow(reader.text, reader.at):
        yield
    match = _THOUGHTS.pattern.match(reader.text, reader.at)
    if match:
        closer = dict(COMMON_THOUGHTS)[match[0]]
        if (yield from reader.until_marker(markers_of((closer,)))):
            desk.liberties["extra-text"] = None
            return
    reader.seek(mark)


def _named(desk: Desk, header: str, patterns: tuple[str, ...]) -> dict[str, str]:
    """Find the tool's name in a header that is an id at the same time: the first that is declared,
    or a number that stands for none, or the first of all."""
    found = [match[1] for pattern in patterns if (match := re.fullmatch(pattern, header))]
    if desk.tools:
        known = (name for name in found if name in desk.tools.tools or name.isdigit())
        name = next(known, found[0] if found else "")
        return {"name": "" if name.isdigit() else name, "id": header}
    return {"name": found[0] if found else "", "id": header}


def _tag(desk: Desk, tag: Tag) -> Generator[None, None, dict[str, str] | None]:
    reader = desk.reader
    if not (yield from reader.literal(f"<{tag.name}")):
        return None
    while True:
        match = _TAG_END.match(reader.text, reader.at)
        end = match.end() if match else reader.at
        if end - reader.at > _LONGEST_TAG or (end == len(reader.text) and reader.ended):
            return None
        if end < len(reader.text) and reader.text[end] == ">":
            break
        if end < len(reader.text) and reader.text[end] not in "\"'":
            return None
        if len(reader.text) - reader.at > _LONGEST_TAG or reader.ended:
            return None
        yield
    text = f"<{tag.name}{reader.text[reader.at : end + 1]}"
    whole = re.fullmatch(tag_pattern(tag.name), text)
    if whole is None:
        return None
    reader.at = end + 1
    written = attributes_of(whole[1])
    if any(name not in written for name, slot in tag.attributes if slot == "name"):
        return None
    words = {slot: written.get(name, "") for name, slot in tag.attributes}
    return {**words, "empty": "/"} if whole[2] else words
