"""What stands between a call's opener and its closer: one function for each kind of body.

A body reader is a generator. It reads through `machine.reader`, reports every call it finds with
`machine.draft`, and returns whether it found any; if not, its text is given back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from .. import jsonish
from ..jsonish import MAX_DEPTH, depth_of
from ..calls import ARGUMENT_KEYS, Draft, drafts
from .elements import parse_elements
from .scan import BAD, DONE, MORE, BracketScanner, JsonScanner, scan
from .syntax import CALL_NAME, parse_braces, parse_call, parse_line, parse_yaml
from .tagged import BadBody, ParamScanner, attributes_of, params_of, parse_params, tag_pattern
from .template import CALL_SLOTS, JSON_SLOTS, Form, Literal, Slot, Tag

if TYPE_CHECKING:
    from .parser import Parser

Found = Generator[None, None, bool]
Header = Mapping[str, str]

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


def read(machine: Parser, form: Form) -> Found:
    """Read a form from its opener on."""
    header = yield from _header(machine, form)
    if header is None:
        return False
    if not form.body:
        return (yield from _no_body(machine, form, header))
    return (yield from _READERS[form.body](machine, form, header))


def _header(machine: Parser, form: Form) -> Generator[None, None, dict[str, str] | None]:
    """The opener and the words up to the body; None if they are not there."""
    reader = machine.reader
    words: dict[str, str] = {}
    first = form.header[0] if form.header else None
    if not (isinstance(first, Tag) and form.opener == f"<{first.name}"):
        reader.at += len(form.opener)
    for part, following in zip_longest(form.header, form.header[1:]):
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
                found = yield from _tag(machine, part)
                if found is None:
                    return None
                words |= found
    return _named(words, form.dialect.header) if "header" in words else words


def _named(words: dict[str, str], pattern: str) -> dict[str, str]:
    """Find the tool's name in a header that is an id at the same time."""
    match = re.fullmatch(pattern, words["header"])
    return {"name": match[1] if match else "", "id": words["header"]}


def _tag(machine: Parser, tag: Tag) -> Generator[None, None, dict[str, str] | None]:
    reader = machine.reader
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


def _no_body(machine: Parser, form: Form, header: Header) -> Found:
    """A form that says everything before its body would begin: no arguments, or no calls at all."""
    if "name" in header:
        machine.draft(form, Draft(header["name"], None, header.get("id", "")), 0)
    else:
        machine.note("no-calls", "a section for calls holds none", machine.reader.held())
    return True
    yield


# JSON.


def read_json(machine: Parser, form: Form, header: Header) -> Found:
    """Calls as JSON objects: one, a list, or one after the other."""
    reader = machine.reader
    yield from _fence(machine)
    in_list = yield from reader.literal("[")
    found = False
    mark = reader.offset()
    while (yield from _gap(machine, "{")) == "{":
        if not (yield from _object(machine, form)):
            if found:
                reader.seek(mark)
            return found
        found = True
        mark = reader.offset()
    if in_list and (yield from _gap(machine, "]")) == "]":
        yield from reader.literal("]")
    return found


def _fence(machine: Parser) -> Generator[None, None, None]:
    """Models like to put JSON in a code fence, even between markers."""
    reader = machine.reader
    yield from reader.space()
    if (yield from reader.peek()) == "`":
        yield from reader.run(re.compile(r"`{0,3}[\w-]*"), 40)
        yield from reader.space()
        machine.fenced()


def _gap(machine: Parser, wanted: str) -> Generator[None, None, str]:
    """The next character after white space and a separator, which are read only if it is wanted."""
    reader = machine.reader
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


def _object(machine: Parser, form: Form) -> Found:
    """One JSON object that holds a call, or several."""
    reader = machine.reader
    start = reader.offset()
    value = _at_once(machine)
    state = DONE
    if value is None:
        scanner = JsonScanner()
        steps = _streamed(machine, form, scanner, start) if machine.incremental else None
        state = yield from steps or scan(reader, scanner)
    if state == DONE:
        value = _decode(reader.held()[start:]) if value is None else value
        if form.body == "content" and isinstance(value.get("content"), str):
            machine.say_before_calls(value["content"])
        for draft in drafts(value, machine.tools):
            machine.draft(form, draft, start)
        return True
    return (yield from _rescued(machine, form, start, state, _drafts_of))


def _at_once(machine: Parser) -> dict[str, Any] | None:
    """The object that begins here, if all of it is here already: the decoder finds its end."""
    reader = machine.reader
    text = reader.text
    if machine.incremental or len(text) - reader.at < _WORTH_TRYING or text is reader.refused:
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


def _drafts_of(machine: Parser, value: Any, repairs: tuple[str, ...]) -> list[Draft]:
    return [
        Draft(draft.name, draft.arguments, draft.id, draft.problem, repairs)
        for draft in drafts(value, machine.tools)
    ]


def _rescued(
    machine: Parser,
    form: Form,
    start: int,
    state: int,
    make: Callable[[Parser, Any, tuple[str, ...]], list[Draft]],
) -> Found:
    """JSON that breaks off or breaks the rules: mend it if the text says where it ends."""
    reader = machine.reader
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
        machine.draft(form, Draft(problem=f"not valid JSON: {error}"), start)
        return True
    for draft in make(machine, value, repairs):
        machine.draft(form, draft, start)
    return True


def _streamed(
    machine: Parser, form: Form, scanner: JsonScanner, start: int
) -> Generator[None, None, int]:
    """Read an object, and pass its arguments on as they come if the name came before them."""
    reader = machine.reader
    scanner.pause = True
    streaming = False
    over = False
    while True:
        before = reader.at
        looking = not over and not streaming and reader.offset() - start < _LONGEST_HEAD
        reader.at = scanner.step(reader.text, before)
        if streaming:
            machine.more(reader.text[before : reader.at])
        elif looking:
            match = _HEAD.match(reader.held(), start)
            streaming = bool(match) and machine.begin(form, json.loads(match[1]), "")
            if match and streaming:
                machine.more(reader.held()[match.end() :])
        if scanner.depth_one:
            over, streaming, scanner.pause = True, False, False
        elif scanner.state != MORE or reader.ended:
            return scanner.state
        else:
            yield


def read_arguments(machine: Parser, form: Form, header: Header) -> Found:
    """The arguments as a JSON object, for a name that stood before."""
    reader = machine.reader
    name, identity = header.get("name", ""), header.get("id", "")
    yield from _fence(machine)
    if (yield from reader.peek()) != "{":
        return (yield from _no_arguments(machine, form, header))
    start = reader.offset()
    value = _at_once(machine)
    if value is not None:
        machine.draft(form, Draft(name, value, identity), start)
        return True
    scanner = JsonScanner()
    if machine.begin(form, name, identity):
        yield from _streamed_arguments(machine, scanner)
    else:
        yield from scan(reader, scanner)
    if scanner.state == DONE:
        machine.draft(form, Draft(name, _decode(reader.held()[start:]), identity), start)
        return True

    def make(_: Parser, value: Any, repairs: tuple[str, ...]) -> list[Draft]:
        return [Draft(name, value, identity, "", repairs)]

    return (yield from _rescued(machine, form, start, scanner.state, make))


def _streamed_arguments(machine: Parser, scanner: JsonScanner) -> Generator[None, None, None]:
    reader = machine.reader
    while True:
        before = reader.at
        reader.at = scanner.step(reader.text, before)
        machine.more(reader.text[before : reader.at])
        if scanner.state != MORE or reader.ended:
            return
        yield


def _no_arguments(machine: Parser, form: Form, header: Header) -> Found:
    """Nothing where the arguments should be: that is an empty object, if the call is closed."""
    reader = machine.reader
    if not form.closer or not header.get("name"):
        return False
    if not (yield from reader.literal(form.closer)):
        return False
    reader.at -= len(form.closer)
    machine.draft(form, Draft(header["name"], None, header.get("id", "")), 0)
    return True


# Bodies that are read whole, once their end is found.


def read_params(machine: Parser, form: Form, header: Header) -> Found:
    """Tagged parameters."""
    scanner = ParamScanner(params_of(form.dialect.param), form.closer, form.closers)
    return _until_end(machine, form, header, scanner, parse_params)


def read_elements(machine: Parser, form: Form, header: Header) -> Found:
    """Nested elements."""
    return _until_closer(machine, form, header, parse_elements)


def read_yaml(machine: Parser, form: Form, header: Header) -> Found:
    """YAML."""
    return _until_closer(machine, form, header, lambda body, _, schema: parse_yaml(body, schema))


def _until_closer(machine: Parser, form: Form, header: Header, parse: Any) -> Found:
    closer = form.closer.replace("$name", header.get("name", ""))
    reader = machine.reader
    start = reader.offset()
    if not (yield from reader.until(re.compile(re.escape(closer)), len(closer))):
        machine.note("truncated", "the call is cut off", reader.held())
        return False
    _whole_body(machine, form, header, reader.held()[start : -len(closer)], parse)
    return True


def _until_end(
    machine: Parser, form: Form, header: Header, scanner: ParamScanner, parse: Any
) -> Found:
    if header.get("empty"):
        _whole_body(machine, form, header, "", parse)
        return True
    reader = machine.reader
    start = reader.offset()
    state = yield from scan(reader, scanner)
    if state == DONE:
        _whole_body(machine, form, header, reader.held()[start : -len(form.closer)], parse)
        return True
    body = reader.held()[start:] + reader.text[reader.at :]
    end = body.find(form.closer)
    if end < 0:
        machine.note("truncated", "the call is cut off", body)
        return False
    reader.seek(start + end + len(form.closer))
    _whole_body(machine, form, header, body[:end], parse)
    return True


def _whole_body(machine: Parser, form: Form, header: Header, body: str, parse: Any) -> None:
    name = header["name"]
    try:
        arguments = parse(body, form.dialect, machine.schema(name))
    except BadBody as error:
        machine.draft(form, Draft(name, problem=str(error)), 0)
    else:
        machine.draft(form, Draft(name, arguments, header.get("id", "")), 0)


def read_braces(machine: Parser, form: Form, header: Header) -> Found:
    """A map without quotes around its keys."""
    reader = machine.reader
    if (yield from reader.peek()) != "{":
        return False
    start = reader.offset()
    state = yield from scan(reader, BracketScanner(form.dialect.quote))
    if state != DONE:
        machine.note("truncated", "the call is cut off", reader.held())
        return False

    def parse(body: str, *_: Any) -> dict[str, Any]:
        return parse_braces(body, form.dialect.quote)

    _whole_body(machine, form, header, reader.held()[start:], parse)
    return True


def read_calls(machine: Parser, form: Form, header: Header) -> Found:
    """Calls in Python's syntax: one, a list, or one after the other."""
    reader = machine.reader
    yield from _fence(machine)
    in_list = yield from reader.literal("[")
    found = False
    while CALL_NAME.match((yield from _gap(machine, ""))):
        mark = reader.offset()
        if not (yield from _call(machine, form)):
            reader.seek(mark)
            return found
        found = True
    if in_list and (yield from _gap(machine, "]")) == "]":
        yield from reader.literal("]")
    return found


def _call(machine: Parser, form: Form) -> Found:
    reader = machine.reader
    yield from _gap(machine, (yield from _gap(machine, "")))
    start = reader.offset()
    name = yield from reader.run(re.compile(r"[\w.\-]*+"), _LONGEST_NAME)
    if not name or not CALL_NAME.fullmatch(name) or (yield from reader.peek()) != "(":
        return False
    if form.body == "builtin" and not name.endswith(".call"):
        return False
    if machine.tools is not None and machine.declared(name) is None and not form.opener:
        return False
    state = yield from scan(reader, BracketScanner())
    if state != DONE:
        machine.note("truncated", "the call is cut off", reader.held()[start:])
        return False
    machine.draft(form, parse_call(reader.held()[start:], form.body == "builtin"), start)
    return True


def read_line(machine: Parser, form: Form, header: Header) -> Found:
    """One parameter, or a JSON object, up to the end of the line."""
    reader = machine.reader
    start = reader.offset()
    found = yield from reader.until(_LINE_END, 1)
    line = reader.held()[start:].removesuffix(found)
    if found:
        reader.seek(start + len(line))
    if not line.startswith("{") and not _PARAM.match(line):
        return False
    _whole_body(machine, form, header, line, lambda body, _, schema: parse_line(body, schema))
    return True


_READERS: dict[str, Callable[[Parser, Form, Header], Found]] = {
    **dict.fromkeys(JSON_SLOTS, read_json),
    **dict.fromkeys(CALL_SLOTS, read_calls),
    "arguments": read_arguments,
    "params": read_params,
    "elements": read_elements,
    "braces": read_braces,
    "yaml": read_yaml,
    "line": read_line,
}
