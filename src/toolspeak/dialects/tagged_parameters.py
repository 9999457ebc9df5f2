"""Parameters between tags, with their values as bare text: read, parsed and rendered.

    <parameter=city>           <arg_key>city</arg_key>        <param name="city">Oslo</param>
    Oslo                       <arg_value>Oslo</arg_value>
    </parameter>

Nothing is escaped in these formats: a value ends at its closing tag, and its type is the schema's.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..calls import json_values
from ..calls.coercion import ARGUMENT_KEYS
from ..calls.json_values import json_equal
from ..calls.schema import (
    allowed_types,
    format_text_value,
    get_properties,
    json_type,
    parse_text_value,
)
from .form_reader import NO_BODY, Body, FormReader, Header
from .markers import MarkerSet, marker_set
from .template import (
    CallForm,
    Dialect,
    InvalidBody,
    LiteralText,
    ParsedArguments,
    Slot,
    TagTemplate,
    TemplatePart,
    fill_template,
    parse_template,
    render_argument,
    split_markers,
)
from .text_buffer import COMPLETE, NEED_MORE, Reading, TextBuffer

_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""")
_ATTRIBUTES = r"""((?:\s*+[\w:.-]++\s*+=\s*+(?:"[^"]*"|'[^']*'|[^\s"'<>=/]++))*+)\s*+(/?)>"""
_SPACE = r"(?:\s|\\n)*+"
"""White space between tags; some models escape their line breaks twice."""
CDATA_OPEN, CDATA_CLOSE = "<![CDATA[", "]]>"
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.S)
_CDATA_START = re.compile(r"\s*<!\[CDATA\[")
_OUTSIDE, _IN_VALUE, _IN_CDATA, _IN_INNER_CALL = range(4)
_END_TAG = re.compile(r"</([\w:.\-]{1,60})>\s*\Z")
_VALUE_TAGS = ("parameter", "param", "arg", "argument", "arg_key", "arg_value", "value")
_GAP = 16
"""The most white space that may be between two closing tags."""
_INNER_WORD_LENGTH = 80
"""The longest name, or attributes, of a call that a value quotes."""


class ParameterFormat(Struct, frozen=True, eq=False):
    """A dialect's parameter template, prepared for parsing."""

    pattern: re.Pattern[str]
    """Everything before the value."""
    first_literal: str
    """The literal that a parameter begins with."""
    value_opener: str
    """The literal that begins a value's opening tag."""
    value_closer: str
    """The literal that ends a value; empty if the value is an attribute."""
    allows_cdata: bool
    """Values may be CDATA sections."""
    has_own_lines: bool
    """A value is on separate lines: the line breaks next to its tags do not belong to it."""
    tag: TagTemplate | None


@lru_cache(maxsize=256)
def parameter_format(dialect: Dialect) -> ParameterFormat:
    parts = parse_template(dialect.parameter_template)
    at = next((i for i, p in enumerate(parts) if isinstance(p, Slot) and p.kind == "value"), -1)
    before, after = (parts[:at], parts[at + 1 :]) if at >= 0 else (parts, ())
    closes = next((part.stripped_text for part in after if isinstance(part, LiteralText)), "")
    begins = before[-1] if before else None
    has_own_lines = isinstance(begins, LiteralText) and begins.text.endswith("\n")
    tag = next((part for part in before if isinstance(part, TagTemplate)), None)
    found = _markers_before_value(before)
    pattern = _parameter_pattern(before)
    if len(found) > 1 and found[-2].startswith("</"):
        # The key has its own tags. Its closing tag may occur twice, and the value's opening tag
        # may be missing.
        *_, ends, opens = map(re.escape, found)
        pattern = pattern.removesuffix(ends + _SPACE + opens)
        pattern += f"(?:{ends}{_SPACE})++(?:{opens}|(?P<unopened>))"
    return ParameterFormat(
        re.compile(pattern),
        found[0],
        found[-1],
        closes,
        dialect.allows_cdata,
        has_own_lines,
        tag,
    )


def _markers_before_value(before: tuple[TemplatePart, ...]) -> list[str]:
    """Return the markers before a value; the last one opens the value."""
    found: list[str] = []
    for part in before:
        match part:
            case TagTemplate():
                found.append(f"<{part.name}")
            case LiteralText():
                found += [marker for marker in split_markers(part.stripped_text) if "<" in marker]
            case Slot():
                pass
    return found


def _parameter_pattern(parts: tuple[TemplatePart, ...]) -> str:
    """Return a pattern for the text before a value.

    It allows white space between two markers only, so that no search starts over inside it.
    """
    pattern: list[str] = []
    for part in parts:
        match part:
            case LiteralText():
                words = [re.escape(marker) for marker in split_markers(part.stripped_text)]
            case TagTemplate():
                words = [tag_pattern(part.name)]
            case Slot():
                pattern.append(rf"(?P<{part.kind}>[^<>\n]*?)")
                continue
        joined = _SPACE.join(words)
        after_marker = pattern and not pattern[-1].startswith("(?P<")
        pattern.append(_SPACE + joined if after_marker else joined)
    return "".join(pattern)


def tag_pattern(name: str) -> str:
    """Return a pattern for an opening tag; groups: its attributes, and "/" if self-closing."""
    return f"<{re.escape(name)}{_ATTRIBUTES}"


def parse_attributes(text: str) -> dict[str, str]:
    """Return the attributes of a tag, in any kind of quotes."""
    return {
        match[1]: unescape_entities(match[2] or match[3] or match[4] or "")
        for match in _ATTRIBUTE.finditer(text)
    }


def unescape_entities(text: str) -> str:
    """Return the text with XML's entities decoded; unchanged if one of them is impossible."""
    try:
        return html.unescape(text)
    except (ValueError, OverflowError):
        return text


class _Search(Struct, frozen=True, eq=False):
    pattern: re.Pattern[str]
    first: re.Pattern[str]
    """The characters that a match begins with."""
    longest: int


@lru_cache(maxsize=256)
def _searches(form: CallForm) -> tuple[_Search, ...]:
    """Return the searches outside of values, inside of values, of CDATA sections and of calls that
    values quote."""
    params, closer, after = parameter_format(form.dialect), form.closer, form.all_closers
    inner_opener, inner, inner_length = _inner_call(form)
    edges = (closer, inner_opener)
    gap = rf"\s{{0,{_GAP}}}"
    both = [f"{re.escape(closer)}(?={gap}{re.escape(end)})" for end in after if end != closer]
    outside = [closer, *after, params.value_opener] if params.value_closer else [closer, *after]
    inside = (
        [params.value_closer, f">{CDATA_OPEN}"] if params.allows_cdata else [params.value_closer]
    )
    section = [f">{gap}{re.escape(CDATA_OPEN)}"] if params.allows_cdata else []
    longest = (
        len(closer) + _GAP + max(map(len, after), default=0) if both else len(params.value_closer)
    )
    return (
        _Search(
            re.compile("|".join(map(re.escape, outside))),
            re.compile("|".join(re.escape(text[0]) for text in outside)),
            max(map(len, outside)),
        ),
        _Search(
            re.compile("|".join([re.escape(params.value_closer), *section, *both, inner])),
            re.compile("|".join(re.escape(text[0]) for text in (*inside, *edges) if text)),
            max(longest, _GAP + max(map(len, inside)), inner_length),
        ),
        _Search(re.compile(r"\]\](?=>)"), re.compile(r"\]"), len(CDATA_CLOSE)),
        _Search(
            re.compile(f"{re.escape(closer)}|{inner}"),
            re.compile("|".join(re.escape(text[0]) for text in edges if text)),
            max(len(closer), inner_length),
        ),
    )


@lru_cache(maxsize=256)
def _inner_call(form: CallForm) -> tuple[str, str, int]:
    """Return the literal that begins a call inside a value; the pattern of its header, and how long
    that may be."""
    word, gap = rf"[^<>\n]{{1,{_INNER_WORD_LENGTH}}}", rf"\s{{0,{_GAP}}}"
    parts = [LiteralText(form.opener), *form.header]
    parts = [part for part in parts if not isinstance(part, LiteralText) or part.stripped_text]
    texts = [
        f"<{one.name}" if isinstance(one, TagTemplate) else getattr(one, "stripped_text", "")
        for one in parts
    ]
    first = max((i for i, text in enumerate(texts) if text.startswith("<")), default=0)
    words = [
        gap.join(map(re.escape, split_markers(text))) if text else word for text in texts[first:]
    ]
    if isinstance(parts[first], TagTemplate):
        words = [f"{words[0]}\\s{word}>"]
    elif not texts[-1]:
        # Nothing ends the name: a parameter must follow it.
        words += [gap, re.escape(parameter_format(form.dialect).first_literal)]
    longest = sum(map(len, texts)) + (len(words) + 1) * (_INNER_WORD_LENGTH + _GAP)
    return texts[first], "".join(words), longest


class ParameterScanner:
    """Finds the end of a call with tagged parameters: the first closing tag outside of values.

    A value without a closing tag ends where the call and its wrapper are closed in direct
    succession, because no value is likely to contain that. With `reads_inner_calls`, a call that a
    value quotes is a part of it.
    """

    __slots__ = (
        "_depth",
        "_ends",
        "_place",
        "_reads_inner_calls",
        "_searches",
        "_value_closer",
        "closing_marker",
        "has_inner_calls",
        "state",
        "value_start",
    )

    def __init__(self, form: CallForm, *, reads_inner_calls: bool = True) -> None:
        self.state = NEED_MORE
        self._ends = (form.closer, *form.all_closers)
        self.closing_marker = ""
        """The marker that ended the call."""
        self.value_start = -1
        """The beginning of the current value; -1 outside of values and in CDATA sections."""
        self._place = _OUTSIDE
        self._reads_inner_calls = reads_inner_calls
        self.has_inner_calls = False
        """A value quotes a call, or begins to."""
        self._depth = 0
        """How many calls inside the value are open."""
        self._searches = _searches(form)
        self._value_closer = parameter_format(form.dialect).value_closer

    def is_outside_value(self) -> bool:
        return self._place == _OUTSIDE

    def is_in_value(self) -> bool:
        return self._place == _IN_VALUE

    def step(self, text: str, at: int) -> int:
        while True:
            search = self._searches[self._place]
            match = search.pattern.search(text, at)
            if match is None:
                start = max(at, len(text) - search.longest + 1)
                first = search.first.search(text, start)
                return first.start() if first else len(text)
            at = match.end()
            if self._place == _IN_INNER_CALL:
                self._depth += -1 if match[0] in self._ends else 1
                self._place = _IN_INNER_CALL if self._depth else _IN_VALUE
                continue
            if match[0] in self._ends:
                self.state = COMPLETE
                self.closing_marker = match[0]
                return at
            if self._place == _OUTSIDE or self._place == _IN_CDATA:
                self._place, self.value_start = _IN_VALUE, at
            elif match[0].endswith(CDATA_OPEN):
                self._place, self.value_start = _IN_CDATA, -1
            elif match[0] != self._value_closer:
                if self._reads_inner_calls:
                    self.has_inner_calls = True
                    self._place, self._depth = _IN_INNER_CALL, 1
            else:
                self._place, self.value_start = _OUTSIDE, -1


def read_parameters(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read parameters to their closer; if it is cut off or missing, to where they must end."""
    buffer, form = attempt.buffer, attempt.form

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_parameters(body, form.dialect, schema)

    if header.is_self_closing:
        attempt.add_body(header, "", parse)
        return Body()
    # Prose is recognized at once: nothing waits for the end of it.
    yield from buffer.read_space()
    first = parameter_format(form.dialect).first_literal
    openers = marker_set((first, *form.all_closers, "\\n"))
    if not (yield from buffer.match_marker(openers)):
        return NO_BODY
    start = buffer.held_length()
    scanner = ParameterScanner(form)
    if (yield from buffer.scan(scanner)) != COMPLETE and scanner.has_inner_calls:
        scanner = _seek_end_of_quotes(attempt, start) or scanner
    if scanner.state == COMPLETE:
        closing_marker = yield from _seek_last_closer(attempt, scanner)
        if not closing_marker:
            return Body(has_calls=False, is_truncated=True)
        body = buffer.held_text()[start:].removesuffix(closing_marker)
        attempt.add_body(header, body, parse)
        return Body(is_closed=True)
    body = buffer.held_text()[start:] + buffer.text[buffer.position :]
    end = find_truncated_closer(body, form) if scanner.is_outside_value() else -1
    if end >= 0:
        buffer.seek(start + end)
    else:
        end = find_unclosed_value_end(body, form)
        if end < 0:
            return Body(has_calls=False, is_truncated=True)
        buffer.seek(start + end + len(form.closer))
    attempt.add_body(header, body[:end], parse)
    return Body()


def _seek_end_of_quotes(attempt: FormReader, start: int) -> ParameterScanner | None:
    """Go to the end of a call whose values only begin calls, and do not end them.

    That is certain only if the reply was not cut off, and nothing but other calls follows.
    """
    buffer, form = attempt.buffer, attempt.form
    scanner = ParameterScanner(form, reads_inner_calls=False)
    body = buffer.held_text()[start:] + buffer.text[buffer.position :]
    end = scanner.step(body, 0)
    if scanner.state != COMPLETE or scanner.is_in_value() or not buffer.is_complete:
        return None
    rest, tokens = body[end:].strip(), form.dialect.control_tokens
    for marker in form.all_closers:
        rest = rest.removeprefix(marker).lstrip()
    begins_call = rest.startswith((_inner_call(form)[0], form.opener or "<", *tokens))
    if rest and not (begins_call and rest.endswith((*form.all_closers, *tokens))):
        return None
    buffer.seek(start + end)
    return scanner


def _seek_last_closer(attempt: FormReader, scanner: ParameterScanner) -> Reading[str]:
    """Go to the last marker that may close the call, and return it; "" if it may be cut off.

    If other text follows a call, and its value and the call are closed again before any other call
    begins, the first closing tags were part of the value.
    """
    buffer, form, found = attempt.buffer, attempt.form, scanner.closing_marker
    value_closer = parameter_format(form.dialect).value_closer
    closers = marker_set((form.closer, *form.all_closers))
    openers = tuple(filter(None, (form.opener, _inner_call(form)[0])))
    edges = marker_set((value_closer, *openers)) if value_closer else marker_set(openers)
    last_edges = marker_set(openers) if scanner.is_in_value() else edges
    while value_closer:
        end = buffer.held_length()
        yield from _skip_closers(buffer, closers)
        closes_value, match = False, None
        if (yield from buffer.peek()) and not (yield from buffer.match_marker(last_edges)):
            while not match and (yield from buffer.read_through_marker(edges)) == value_closer:
                closes_value = True
                yield from buffer.read_space()
                match = yield from buffer.match_marker(closers)
        if match is None:
            buffer.seek(end)
            return "" if closes_value and not buffer.is_complete else found
        buffer.position, found, last_edges = match.end(), match[0], edges
    return found


def _skip_closers(buffer: TextBuffer, closers: MarkerSet) -> Reading[None]:
    yield from buffer.read_space()
    while match := (yield from buffer.match_marker(closers)):
        buffer.position = match.end()
        yield from buffer.read_space()


def find_truncated_closer(body: str, form: CallForm) -> int:
    """Return the position of a closing marker that is itself cut off, or -1."""
    params = parameter_format(form.dialect)
    end = body.rfind(params.value_closer) if params.value_closer else -1
    rest = body[end + len(params.value_closer) :].strip()
    begins = (
        len(rest) > 1 and form.closer.startswith(rest) and not params.first_literal.startswith(rest)
    )
    return body.rindex(rest) if end >= 0 and begins else -1


def find_unclosed_value_end(body: str, form: CallForm) -> int:
    """Return the end of a call whose last value has no closing tag, or -1 if it is cut off.

    That is a closer that only closers follow, and that closes no other call inside the value.
    """
    scanner = ParameterScanner(form, reads_inner_calls=False)
    scanner.step(body, 0)
    end = body.find(form.closer, scanner.value_start) if scanner.value_start >= 0 else -1
    openers = (
        form.opener,
        *(part.stripped_text for part in form.header if isinstance(part, LiteralText)),
    )
    if end < 0 or any(body.find(opener, scanner.value_start, end) >= 0 for opener in openers):
        return -1
    rest = body[end:]
    for marker in (form.closer, *form.all_closers):
        rest = rest.replace(marker, "", 1)
    return -1 if rest.strip() else end


def parse_parameters(body: str, dialect: Dialect, schema: Mapping[str, Any]) -> ParsedArguments:
    declared = get_properties(schema)
    arguments: dict[str, Any] = {}
    repairs: dict[str, None] = {}
    for key, text, hints, tag_repairs in split_parameters(body, dialect, declared):
        repairs |= dict.fromkeys(tag_repairs)
        if not key:
            raise InvalidBody("a parameter has no name")
        value_repairs: list[str] = []
        value = decode_value(text, declared.get(key), schema, hints, dialect, value_repairs)
        repairs |= dict.fromkeys(value_repairs)
        if key in arguments and not json_equal(arguments[key], value):
            raise InvalidBody(f"the parameter {key!r} is given several times")
        arguments[key] = value
    return unwrap_arguments(arguments, declared, repairs)


def unwrap_arguments(
    arguments: dict[str, Any], declared: Mapping[str, Any], repairs: Iterable[str]
) -> ParsedArguments:
    """Unwrap the arguments if a single parameter `arguments` holds all of them."""
    unchanged = arguments, tuple(repairs)
    if len(arguments) != 1:
        return unchanged
    [(key, value)] = arguments.items()
    if key not in ARGUMENT_KEYS or key in declared or not declared:
        return unchanged
    value_repairs: tuple[str, ...] = ()
    if isinstance(value, str):
        try:
            value, value_repairs = json_values.parse_json(value)
        except json_values.LenientJsonError:
            return unchanged
    if not isinstance(value, dict):
        return unchanged
    return value, tuple(dict.fromkeys((*repairs, "wrapped-arguments", *value_repairs)))


def split_parameters(
    body: str, dialect: Dialect, declared: Mapping[str, Any]
) -> Iterator[tuple[str, str, dict[str, str], list[str]]]:
    """Yield the key of every parameter, its text, the attributes of its tag, and the repairs."""
    params = parameter_format(dialect)
    tags = _mask_inner_calls(body, dialect)
    match = params.pattern.search(tags)
    end = 0
    text = ""
    while match:
        repairs = _repairs_between(tags[end : match.start()], params, text)
        key, hints = _key_and_hints(match, params)
        if key != hints.get("key", "").strip():
            repairs.append("quoted")
        if "\\n" in match[0].replace(key, ""):
            repairs.append("escaped-newline")
        if not params.value_closer:
            yield key, hints.get("value", ""), hints, repairs
            end = match.end()
            match = params.pattern.search(tags, end)
            continue
        end, following = _find_value_end(tags, params, match, key, declared)
        text = body[match.end() : end]
        closed = tags.startswith(params.value_closer, end)
        if match.groupdict().get("unopened") is not None:
            repairs.append("missing-tag")
            if not closed:
                raise InvalidBody(f"the parameter {key!r} has no value")
        if closed:
            end += len(params.value_closer)
            if params.value_closer in text and params.allows_cdata is False:
                repairs.append("inner-closers")
        else:
            text, repair = _read_unclosed_value(text, key)
            repairs.append(repair)
        match = following
        if not match:
            repairs += _repairs_between(tags[end:], params, text)
        yield key, text, hints, repairs
    if not end:
        _repairs_between(tags, params, "")


def _mask_inner_calls(body: str, dialect: Dialect) -> str:
    """Return the text with every call that a value quotes replaced by other characters."""
    form = dialect.forms[0]
    opener, inner, _ = _inner_call(form)
    if opener not in body:
        return body
    masked: list[str] = []
    start = end = depth = 0
    for match in re.finditer(f"(?P<closer>{re.escape(form.closer)})|{inner}", body):
        start = start if depth else match.start()
        depth = max(depth - 1, 0) if match["closer"] else depth + 1
        if not depth and start < match.start():
            masked += body[end:start], "\0" * (match.end() - start)
            end = match.end()
    return "".join((*masked, body[end:]))


def _find_value_end(
    tags: str,
    params: ParameterFormat,
    match: re.Match[str],
    key: str,
    declared: Mapping[str, Any],
) -> tuple[int, re.Match[str] | None]:
    """Return where the value of a parameter ends, and the match of the next parameter."""
    closer = params.value_closer
    start = _skip_cdata(tags, match.end()) if params.allows_cdata else match.end()
    following = params.pattern.search(tags, start)
    end = tags.find(closer, start)
    if following and (end < 0 or following.start() < end):
        # A closing tag is missing, unless the text that looks like a tag belongs to the value.
        name = _key_and_hints(following, params)[0]
        if end < 0 or (name != key and (name in declared or not declared)):
            return following.start(), following
        following = params.pattern.search(tags, end)
    if end < 0:
        return len(tags), following
    # Other text between two closing tags belongs to the value, and so does the first tag.
    stop = following.start() if following else len(tags)
    last = tags.rfind(closer, end, stop)
    between, rest = tags[end:last].replace(closer, ""), tags[last + len(closer) : stop]
    is_text = between.replace("\\n", "").strip() and not rest.replace("\\n", "").strip()
    return last if is_text else end, following


def _repairs_between(text: str, params: ParameterFormat, value: str) -> list[str]:
    """Return the repairs for the text between two parameters.

    It may be white space, or one closing tag too many, if the value before it did not open it.
    """
    plain = text.replace("\\n", "")
    repairs = ["escaped-newline"] if plain != text else []
    text = plain
    if not text.strip():
        return repairs
    opener = params.value_closer.replace("</", "<", 1).rstrip(">")
    if (
        opener == params.value_closer
        or text.replace(params.value_closer, "").strip()
        or opener in value
    ):
        raise InvalidBody(f"text between the parameters: {text.strip()[:40]!r}")
    return [*repairs, "extra-closer"]


def _read_unclosed_value(text: str, key: str) -> tuple[str, str]:
    """Return a value that lacks its own closing tag, without the wrong tag that may end it; and the
    repair."""
    found = _END_TAG.search(text)
    if found and found[1] in (key, *_VALUE_TAGS) and f"<{found[1]}" not in text:
        return text[: found.start()], "wrong-tag"
    return text, "missing-tag"


def _skip_cdata(body: str, at: int) -> int:
    """Return the end of the CDATA sections at the beginning of a value."""
    while start := _CDATA_START.match(body, at):
        end = body.find(CDATA_CLOSE, start.end())
        if end < 0:
            break
        at = end + len(CDATA_CLOSE)
    return at


def _key_and_hints(match: re.Match[str], params: ParameterFormat) -> tuple[str, dict[str, str]]:
    if params.tag is None:
        hints = {slot: unescape_entities(text) for slot, text in match.groupdict("").items()}
    else:
        written = parse_attributes(match[1])
        hints = {slot: written[name] for name, slot in params.tag.attributes if name in written}
    return hints.get("key", "").strip().strip("\"'"), hints


def decode_value(
    text: str,
    schema: Any,
    root: Mapping[str, Any],
    hints: Mapping[str, str],
    dialect: Dialect,
    repairs: list[str],
) -> Any:
    """Return the value of one parameter; add the repairs that its text needs to `repairs`.

    `hints` are the attributes of its tag.
    """
    inside = unwrap_cdata(text) if dialect.allows_cdata else None
    if inside is not None:
        text = inside
    elif parameter_format(dialect).has_own_lines:
        # An inline value keeps all its white space.
        if text.startswith("\r\n"):
            text = text[2:].removesuffix("\r\n")
        elif text.startswith("\n"):
            text = text[1:].removesuffix("\n")
    types = allowed_types(schema, root)
    if types and not (hints.get("string") == "false" and "string" in types and len(types) > 1):
        return parse_text_value(text, schema, root, repairs)
    if hints.get("string") == "false" or (dialect.infers_json_values and not types):
        return _decode_json_or_text(text, repairs)
    return parse_text_value(text, {"type": hints.get("type", "string")}, {}, repairs)


def unwrap_cdata(text: str) -> str | None:
    """Return the text inside of CDATA sections, or None if there is other text."""
    match = _CDATA.fullmatch(text)
    return match[1].replace(CDATA_CLOSE + CDATA_OPEN, "") if match else None


def _decode_json_or_text(text: str, repairs: list[str]) -> Any:
    try:
        value, value_repairs = json_values.parse_json(text)
    except json_values.LenientJsonError:
        return text
    repairs += value_repairs
    return value


# Rendering.


def render_parameters(
    arguments: Mapping[str, Any], dialect: Dialect, schema: Mapping[str, Any]
) -> str:
    return "".join(_render_param(key, value, dialect, schema) for key, value in arguments.items())


def _render_param(key: str, value: Any, dialect: Dialect, schema: Mapping[str, Any]) -> str:
    """Render one parameter, in the first spelling that parses to the same value."""
    text = format_text_value(value)
    kind = json_type(value)
    words = {
        "key": key,
        "string": "true" if isinstance(value, str) else "false",
        "type": "number" if kind == "integer" else kind,
    }
    values = [text]
    if dialect.allows_cdata and CDATA_CLOSE not in text:
        values.append(f"{CDATA_OPEN}{text}{CDATA_CLOSE}")
    spellings = (
        fill_template(dialect.parameter_template, {**words, "value": spelling})
        for spelling in values
    )
    closer = parameter_format(dialect).value_closer
    return render_argument(
        key,
        value,
        (written for written in spellings if _ends_at_closer(written, dialect)),
        lambda written: parse_parameters(written, dialect, schema),
        f"{closer} inside a value" if closer and closer in text else "",
    )


def _ends_at_closer(written: str, dialect: Dialect) -> bool:
    """Return True if a call that ends with this parameter is found to end there."""
    form, closer = dialect.forms[0], parameter_format(dialect).value_closer
    if closer and written.count(closer) > 1 and CDATA_OPEN not in written:
        return False
    scanner = ParameterScanner(form)
    whole = f"{written}{form.closer}{''.join(form.all_closers[1:])}"
    end = scanner.step(whole, 0)
    return scanner.state == COMPLETE and end == len(written) + len(form.closer)
