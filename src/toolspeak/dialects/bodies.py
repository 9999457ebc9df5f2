"""What stands between a call's opener and its closer: one function for each kind of body.

A body reader is a generator. It reads through `desk.reader`, reports every call it finds with
`desk.draft`, and returns whether it found any; if not, its text is given back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from .. import jsonish
from ..calls import ARGUMENT_KEYS, Draft, drafts
from ..jsonish import MAX_DEPTH, depth_of
from .elements import parse_elements
from .scan import BAD, DONE, MORE, BracketScanner, JsonScanner, scan
from .syntax import CALL_NAME, parse_braces, parse_call, parse_line, parse_yaml
from .tagged import BadBody, ParamScanner, attributes_of, params_of, parse_params, tag_pattern
from .template import CALL_SLOTS, JSON_SLOTS, Dialect, Form, Literal, Slot, Tag

if TYPE_CHECKING:
    from .desk import Desk

Found = Generator[None, None, bool]
Header = Mapping[str, str]
Parse = Callable[[str, Dialect, Mapping[str, Any]], dict[str, Any]]

_NAME = re.compile(r"[\w.\-:/$@*]*+")
_PLAIN_NAME = re.compile(r"[\w.\-:]*+")
_LONGEST_NAME = 256
_LONGEST_TAG = 1024
_LONGEST_GAP = 256
_LONGEST_HEAD = 512
_FENCE = re.compile(r"```[\w-]*")
_LINE_END = re.compile(r"\n")
_PARAM = re.compile(r"[A-Za-z_]\w*>")
_GAP = re.compile(r"\s*+[,;]?+\s*+")
_TAG_END = re.compile(r"""(?:[^<>"']++|"[^"<]*"|'[^'<]*')*+""")
_WORTH_TRYING = 64


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_decoder = json.JSONDecoder(strict=False, parse_constant=_no_constant)
_decode = _decoder.decode
_HEAD = re.compile(
    r'\{\s*"(?:name|tool_name|tool|function)"\s*:\s*("(?:[^"\\]|\\.)*")\s*,'
    rf'\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:\s*(?=\{{)'
)


def read(desk: Desk, form: Form) -> Found:
    """Read a form from its opener on."""
    header = yield from _header(desk, form)
    if header is None:
        return False
    if not form.body:
        return (yield from _no_body(desk, form, header))
    return (yield from _READERS[form.body](desk, form, header))


def _header(desk: Desk, form: Form) -> Generator[None, None, dict[str, str] | None]:
    """The opener and the words up to the body; None if they are not there."""
    reader = desk.reader
    words: dict[str, str] = {}
    first = form.header[0] if form.header else None
    if not (isinstance(first, Tag) and form.opener == f"<{first.name}"):
        reader.at += len(form.opener)
    followers = (*form.header[1:], None) if form.header else ()
    for part, following in zip(form.header, followers, strict=True):
        match part:
            case Literal():
                yield from reader.space()
                if part.core and not (yield from reader.literal(part.core)):
                    return None
            case Slot():
                yield from reader.space()
                slash = isinstance(following, Literal) and following.core == "/"
                word = yield from reader.run(_PLAIN_NAME if slash else _NAME, _LONGEST_NAME)
                if word is None or (not word and part.kind != "id"):
                    return None
                words[part.kind] = word
            case Tag():
                yield from reader.space()
                found = yield from _tag(desk, part)
                if found is None:
                    return None
                words |= found
    return _named(words, form.dialect.header) if "header" in words else words


def _named(words: dict[str, str], pattern: str) -> dict[str, str]:
    """Find the tool's name in a header that is an id at the same time."""
    match = re.fullmatch(pattern, words["header"])
    return {"name": match[1] if match else "", "id": words["header"]}


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


def _no_body(desk: Desk, form: Form, header: Header) -> Found:
    """A form that says everything before its body would begin: no arguments, or no calls at all."""
    if "name" in header:
        desk.draft(form, Draft(header["name"], None, header.get("id", "")), 0)
    else:
        desk.output.note("no-calls", "a section for calls holds none", desk.reader.held())
    return True
    yield


# JSON.


def read_json(desk: Desk, form: Form, header: Header) -> Found:
    """Calls as JSON objects: one, a list, or one after the other."""
    reader = desk.reader
    yield from _fence(desk)
    in_list = yield from reader.literal("[")
    found = False
    mark = reader.offset()
    while (yield from _gap(desk, "{")) == "{":
        if not (yield from _object(desk, form)):
            if found:
                reader.seek(mark)
            return found
        found = True
        mark = reader.offset()
    if in_list and (yield from _gap(desk, "]")) == "]":
        yield from reader.literal("]")
    return found


def _fence(desk: Desk) -> Generator[None, None, None]:
    """Models like to put JSON in a code fence, even between markers."""
    reader = desk.reader
    yield from reader.space()
    if (yield from reader.peek()) == "`":
        yield from reader.run(re.compile(r"`{0,3}[\w-]*"), 40)
        yield from reader.space()
        desk.fenced()


def _gap(desk: Desk, wanted: str) -> Generator[None, None, str]:
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
        value = _decode(reader.held()[start:]) if value is None else value
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
    yield from _fence(desk)
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
        desk.draft(form, Draft(name, _decode(reader.held()[start:]), identity), start)
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


# Bodies that are read whole, once their end is found.


def read_params(desk: Desk, form: Form, header: Header) -> Found:
    """Tagged parameters."""
    scanner = ParamScanner(params_of(form.dialect.param), form.closer, form.closers)
    return _until_end(desk, form, header, scanner, parse_params)


def read_elements(desk: Desk, form: Form, header: Header) -> Found:
    """Nested elements."""
    return _until_closer(desk, form, header, parse_elements)


def read_yaml(desk: Desk, form: Form, header: Header) -> Found:
    """YAML."""

    def parse(body: str, _: Dialect, schema: Mapping[str, Any]) -> dict[str, Any]:
        return parse_yaml(body, schema)

    return _until_closer(desk, form, header, parse)


def _until_closer(desk: Desk, form: Form, header: Header, parse: Parse) -> Found:
    closer = form.closer.replace("$name", header.get("name", ""))
    reader = desk.reader
    start = reader.offset()
    if not (yield from reader.until(re.compile(re.escape(closer)), len(closer))):
        return False
    _whole_body(desk, form, header, reader.held()[start : -len(closer)], parse)
    return True


def _until_end(
    desk: Desk, form: Form, header: Header, scanner: ParamScanner, parse: Parse
) -> Found:
    if header.get("empty"):
        _whole_body(desk, form, header, "", parse)
        return True
    reader = desk.reader
    start = reader.offset()
    state = yield from scan(reader, scanner)
    if state == DONE:
        _whole_body(desk, form, header, reader.held()[start : -len(form.closer)], parse)
        return True
    body = reader.held()[start:] + reader.text[reader.at :]
    end = body.find(form.closer)
    if end < 0:
        return False
    reader.seek(start + end + len(form.closer))
    _whole_body(desk, form, header, body[:end], parse)
    return True


def _whole_body(desk: Desk, form: Form, header: Header, body: str, parse: Parse) -> None:
    name = header["name"]
    try:
        arguments = parse(body, form.dialect, desk.schema(name))
    except BadBody as error:
        desk.draft(form, Draft(name, problem=str(error)), 0)
    else:
        desk.draft(form, Draft(name, arguments, header.get("id", "")), 0)


def read_braces(desk: Desk, form: Form, header: Header) -> Found:
    """A map without quotes around its keys."""
    reader = desk.reader
    if (yield from reader.peek()) != "{":
        return False
    start = reader.offset()
    state = yield from scan(reader, BracketScanner(form.dialect.quote))
    if state != DONE:
        return False

    def parse(body: str, *_: Any) -> dict[str, Any]:
        return parse_braces(body, form.dialect.quote)

    _whole_body(desk, form, header, reader.held()[start:], parse)
    return True


def read_calls(desk: Desk, form: Form, header: Header) -> Found:
    """Calls in Python's syntax: one, a list, or one after the other."""
    reader = desk.reader
    yield from _fence(desk)
    in_list = yield from reader.literal("[")
    found = False
    while CALL_NAME.match((yield from _gap(desk, ""))):
        mark = reader.offset()
        if not (yield from _call(desk, form)):
            reader.seek(mark)
            return found
        found = True
    if in_list and (yield from _gap(desk, "]")) == "]":
        yield from reader.literal("]")
    return found


def _call(desk: Desk, form: Form) -> Found:
    reader = desk.reader
    yield from _gap(desk, (yield from _gap(desk, "")))
    start = reader.offset()
    name = yield from reader.run(re.compile(r"[\w.\-]*+"), _LONGEST_NAME)
    if not name or not CALL_NAME.fullmatch(name) or (yield from reader.peek()) != "(":
        return False
    if form.body == "builtin" and not name.endswith(".call"):
        return False
    if desk.tools is not None and desk.declared(name) is None and not form.opener:
        return False
    state = yield from scan(reader, BracketScanner())
    if state != DONE:
        return False
    desk.draft(form, parse_call(reader.held()[start:], form.body == "builtin"), start)
    return True


def read_line(desk: Desk, form: Form, header: Header) -> Found:
    """One parameter, or a JSON object, up to the end of the line."""
    reader = desk.reader
    start = reader.offset()
    found = yield from reader.until(_LINE_END, 1)
    line = reader.held()[start:].removesuffix(found)
    if found:
        reader.seek(start + len(line))
    if not line.startswith("{") and not _PARAM.match(line):
        return False

    def parse(body: str, _: Dialect, schema: Mapping[str, Any]) -> dict[str, Any]:
        return parse_line(body, schema)

    _whole_body(desk, form, header, line, parse)
    return True


_READERS: dict[str, Callable[[Desk, Form, Header], Found]] = {
    **dict.fromkeys(JSON_SLOTS, read_json),
    **dict.fromkeys(CALL_SLOTS, read_calls),
    "arguments": read_arguments,
    "params": read_params,
    "elements": read_elements,
    "braces": read_braces,
    "yaml": read_yaml,
    "line": read_line,
}
