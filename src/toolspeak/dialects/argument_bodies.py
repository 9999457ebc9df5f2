"""Arguments after a name in notations other than JSON: read, parsed and rendered.

call:get_weather{city:<|"|>Oslo<|"|>,days:3}     a map with unquoted keys
get_weather/city>Oslo                            one parameter on a line
Action Input: Oslo                               bare text for the only parameter
{tool => "get_weather", args => {--city "Oslo"}} a map with arrows
city: Oslo                                       YAML
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from msgspec import structs

from ..calls.drafts import CallDraft
from ..calls.json_values import json_equal, strip_code_fence
from ..calls.lenient_json import MAX_DEPTH, LenientJsonError, LenientJsonReader, unescape
from ..calls.schema import find_only_parameter, get_properties, parse_text_value, resolve_ref
from .form_reader import (
    NO_BODY,
    Body,
    FormReader,
    Header,
    read_fence,
    read_to_closer,
    skip_extra_brackets,
)
from .json_bodies import parse_program, read_json_arguments
from .markers import marker_set
from .tagged_parameters import parse_attributes
from .template import InvalidBody, NotRenderable, ParsedArguments, render_argument
from .text_buffer import COMPLETE, NEED_MORE, BracketScanner, Reading, TextBuffer

_MAX_STEP_LENGTH = 40
_OPEN_FENCE = re.compile(r"\s*(?:`+\w*\s*)?")
_NEXT_STEP = re.compile(r"\n\*{0,4}(?:Observation|Thought|Action|Final Answer)\b")
_KEY_VALUE = re.compile(r"[A-Za-z_]\w*>")
INTERPRETERS = ("python", "code_interpreter", "ipython")
"""Tools to which models pass a bare program."""
_NO_INPUT = ("", "none", "null", "n/a")
_ATTRIBUTE_LIST = re.compile(r"""(?:\s*+[\w:.\-]++\s*+=\s*+(?:"[^"]*"|'[^']*'))++\s*+/?>?\s*+""")
_PERL = re.compile(
    r"\{\s*+tool\s*+=>\s*+[\"'](?P<name>[^\"'\n]{1,256})[\"']\s*+,"
    r"\s*+args\s*+=>\s*+\{"
)
_PERL_ARGUMENT = re.compile(
    r"--(?P<key>[A-Za-z_][\w\-]*+)\s++"
    r"(?P<word>\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'|[^\s\"'{}]++)",
    re.S,
)
_KEY = re.compile(r"[A-Za-z_]\w*")
_BRACKET = re.compile(r"[\[\]{}]")
_BRACE_KEY = re.compile(r"""[^\s,:;{}\[\]()="'“”‘’<>]+""")


def read_brace_map(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read a map with unquoted keys; with quoted keys it is JSON."""
    buffer, form = attempt.buffer, attempt.form
    if (yield from buffer.peek()) not in ("{", "("):
        return NO_BODY
    if (yield from _is_json_next(buffer)):
        return (yield from read_json_arguments(attempt, header))
    start = buffer.held_length()
    quote = form.dialect.string_quote
    state = yield from buffer.scan(BracketScanner(quote, form.closer))
    if state == NEED_MORE:
        # A string has no end: its quote may be missing, or the text is cut off.
        end = find_unclosed_map_end(buffer.held_text()[start:], quote, form.closer)
        if end < 0:
            return Body(has_calls=False, is_truncated=True)
        buffer.seek(start + end)
    elif state != COMPLETE and not (yield from buffer.is_next(form.closer)):
        return NO_BODY

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_brace_map(body, quote, schema, close=state != COMPLETE)

    attempt.add_body(header, buffer.held_text()[start:], parse)
    yield from skip_extra_brackets(attempt)
    return Body()


def _is_json_next(buffer: TextBuffer) -> Reading[bool]:
    """Return True if the first key of a map is quoted."""
    start = buffer.held_length()
    yield from buffer.read_literal("{")
    yield from buffer.read_space()
    first = yield from buffer.peek()
    buffer.seek(start)
    return first == '"'


def read_key_value(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read a JSON object, or one parameter to the end of the line."""
    buffer = attempt.buffer
    if (yield from buffer.peek()) == "{":
        return (yield from read_json_arguments(attempt, header))
    line, end = yield from buffer.read_until_marker(marker_set(("\n",)))
    if not _KEY_VALUE.match(line):
        return NO_BODY
    if not end and not buffer.is_complete:
        return Body(has_calls=False, is_truncated=True)
    attempt.add_body(header, line, parse_key_value)
    return Body()


def read_bare_input(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read a JSON object, or bare text for a tool with only one parameter."""
    buffer, form = attempt.buffer, attempt.form
    start = buffer.held_length()
    yield from read_fence(attempt)
    is_json = (yield from buffer.peek()) == "{"
    buffer.seek(start)
    attempt.fence = ()
    if is_json:
        return (yield from read_json_arguments(attempt, header))
    if form.closer:
        found = yield from buffer.read_through_marker(marker_set(form.all_closers))
    else:
        found = yield from buffer.read_through(_NEXT_STEP, _MAX_STEP_LENGTH)
    buffer.seek(buffer.held_length() - len(found))
    text = buffer.held_text()[start:]
    if not found and (form.closer or _OPEN_FENCE.fullmatch(text)):
        return NO_BODY
    attempt.add_body(header, text, parse_bare_input)
    return Body()


def read_attributes(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read the arguments as attributes: `city="Oslo" days="3"`, perhaps with the tag's end."""
    text, found = yield from attempt.buffer.read_until_marker(marker_set(("<", "\n")))
    if found != "<" or not _ATTRIBUTE_LIST.fullmatch(text):
        return NO_BODY
    attempt.add_body(header, text, lambda body, root: _type_arguments(parse_attributes(body), root))
    return Body()


def read_perl_map(attempt: FormReader, _: Header) -> Reading[Body]:
    buffer, form = attempt.buffer, attempt.form
    yield from buffer.read_space()
    start = buffer.held_length()
    if (yield from buffer.peek()) != "{":
        return NO_BODY
    text, found = yield from buffer.read_until_marker(marker_set((form.closer,)))
    if not found:
        return Body(has_calls=False, is_truncated=True)
    attempt.add_call(parse_perl_map(text, attempt.tools.get_schema), start)
    return Body()


def read_program(attempt: FormReader, header: Header) -> Reading[Body]:
    """Read a bare program, for a tool that runs programs."""
    buffer, form = attempt.buffer, attempt.form
    known = list(filter(attempt.tools.is_declared, INTERPRETERS))
    name = header.name or next(iter(known), "")
    if name not in known or (yield from buffer.peek()) in ("", "{", "["):
        return NO_BODY
    start = buffer.held_length()
    markers = marker_set((*form.all_closers, "\n>>>"))
    code, found = yield from buffer.read_until_marker(markers)
    if not found:
        code = code[: markers.settled_end(code, 0)]
        buffer.seek(start + len(code))
        if not attempt.is_expected() or not is_complete_program(code):
            return NO_BODY
    attempt.add_body(structs.replace(header, name=name), code, parse_program)
    return Body()


def read_yaml(attempt: FormReader, header: Header) -> Reading[Body]:
    closers = tuple(text.replace("$name", header.name) for text in attempt.form.all_closers)
    return read_to_closer(attempt, header, parse_yaml, closers)


# Parsing and rendering.


class _TextLoader(yaml.BaseLoader):
    """YAML whose scalars all stay text, without aliases, which could grow without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


def parse_brace_map(
    text: str, quote: str, schema: Mapping[str, Any], *, close: bool = False
) -> ParsedArguments:
    """Parse a map with unquoted keys; `close` allows missing quotes and brackets at the end."""
    reader = LenientJsonReader(text, string_token=quote, allow_missing_closers=close)
    if text.startswith("("):
        reader = LenientJsonReader(
            f"{{{text[1:-1]}}}", string_token=quote, allow_missing_closers=close
        )
        reader.add_repair("wrong-punctuation")
    try:
        value = reader.read_value()
    except LenientJsonError as error:
        raise InvalidBody(str(error)) from None
    if reader.skip_space():
        raise InvalidBody(f"unexpected text after the map at character {reader.position}")
    if not isinstance(value, dict):
        raise InvalidBody("the arguments are not a map")
    declared = get_properties(schema)
    if declared and "unquoted-value" in reader.repairs() and not value.keys() <= declared.keys():
        raise InvalidBody("an unquoted string holds what looks like a parameter")
    return value, reader.repairs()


def find_unclosed_map_end(text: str, quote: str, closer: str) -> int:
    """Return the end of a map whose last string is not closed: the position of a closer after a
    brace, or -1 if there is none."""
    inside = False
    for match in re.finditer(rf"{re.escape(quote)}|\}}\s*+({re.escape(closer)})", text):
        if match[0] == quote:
            inside = not inside
        elif inside:
            return match.start(1)
    return -1


def render_brace_map(arguments: Mapping[str, Any], quote: str) -> str:
    entries: list[str] = []
    for key, value in arguments.items():
        if not _BRACE_KEY.fullmatch(key):
            raise NotRenderable(key, f"a parameter named {key!r}")
        spelling = f"{{{key}:{_render_brace_value(value, quote)}}}"
        written = render_argument(
            key,
            value,
            [spelling],
            lambda text: parse_brace_map(text, quote, {}),
            f"{quote} inside a value",
        )
        entries.append(written[1:-1])
    return f"{{{','.join(entries)}}}"


def _render_brace_value(value: Any, quote: str) -> str:
    match value:
        case dict():
            return (
                "{"
                + ",".join(f"{k}:{_render_brace_value(v, quote)}" for k, v in value.items())
                + "}"
            )
        case list():
            return "[" + ",".join(_render_brace_value(item, quote) for item in value) + "]"
        case str():
            return f"{quote}{value}{quote}"
        case _:
            return json.dumps(value)


def parse_bare_input(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """Parse bare text, for the only parameter that a tool requires or takes."""
    text = text.strip()
    if text.lower() in _NO_INPUT:
        return {}, ()
    key = find_only_parameter(schema)
    if not key:
        raise InvalidBody("the input is not a JSON object")
    for quote in ("```", "`", '"', "'"):
        inside = text[len(quote) : -len(quote)]
        if text.startswith(quote) and text.endswith(quote) and inside and quote not in inside:
            text = inside.strip("\n") if quote == "```" else inside
            break
    return _type_arguments({key: text}, schema, "bare-input")


def parse_perl_map(text: str, schema_of: Callable[[str], Mapping[str, Any]]) -> CallDraft:
    """Parse `{tool => "f", args => {--a "x" --b 1}}`."""
    head = _PERL.match(text)
    if head is None or not text.rstrip().endswith("}"):
        return CallDraft(problem='expected {tool => "NAME", args => {…}}')
    name, body = head["name"], text[head.end() :].rstrip("} \t\r\n")
    texts: dict[str, str] = {}
    for match in _PERL_ARGUMENT.finditer(body):
        key, word = match["key"], match["word"]
        if key in texts:
            return CallDraft(name, problem=f"the argument {key!r} is given several times")
        texts[key] = unescape(word[1:-1]) if word[0] in "\"'" else word
    if _PERL_ARGUMENT.sub("", body).strip(" ,\t\r\n"):
        return CallDraft(name, problem="the arguments cannot be read")
    arguments, repairs = _type_arguments(texts, schema_of(name))
    return CallDraft(name, arguments, repairs=repairs)


def is_complete_program(program: str) -> bool:
    """Return True if all strings and brackets of a program are closed."""
    try:
        tokens = tokenize.generate_tokens(io.StringIO(program).readline)
        return all(token.type != tokenize.ERRORTOKEN for token in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False


def parse_key_value(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """Parse `key>value`."""
    key, _, value = text.partition(">")
    return _type_arguments({key: value}, schema)


def render_key_value(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Render `key>value` for a single string, else a JSON object."""
    if len(arguments) == 1:
        [(key, value)] = arguments.items()
        text = f"{key}>{value}"
        plain = isinstance(value, str) and "\n" not in value and _KEY.fullmatch(key)
        if plain and json_equal(parse_key_value(text, schema)[0], arguments):
            return text
    return json.dumps(arguments, ensure_ascii=False)


def parse_yaml(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """Parse YAML. Scalars are text and get their type from the schema.

    YAML's own guesses (`no` is false, `1.10` is 1.1) are not wanted.
    """
    if _nests_too_deeply(text):
        raise InvalidBody("the arguments are nested too deeply")
    inside = strip_code_fence(text)
    repairs = () if inside is text else ("code-fence",)
    try:
        value = yaml.load(inside, Loader=_TextLoader)  # noqa: S506 - it makes nothing but text
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise InvalidBody(f"the arguments are not valid YAML: {error}") from None
    if value in (None, ""):
        return {}, repairs
    if not isinstance(value, dict):
        raise InvalidBody("the arguments are not a map")
    return _type_arguments(value, schema, *repairs)


def _nests_too_deeply(text: str) -> bool:
    """Return True if brackets are nested so deeply that the YAML reader would take too long."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _type_arguments(
    texts: Mapping[str, Any], schema: Mapping[str, Any], *repairs: str
) -> ParsedArguments:
    """Convert the texts in arguments, also inside lists and objects, to the types of the schema."""
    all_repairs = list(repairs)
    typed = _apply_types(texts, schema, schema, all_repairs)
    return typed, tuple(dict.fromkeys(all_repairs))


def _apply_types(value: Any, schema: Any, root: Mapping[str, Any], repairs: list[str]) -> Any:
    whole = resolve_ref(schema, root)
    if isinstance(value, str):
        return parse_text_value(value, whole, root, repairs)
    if isinstance(value, list):
        return [_apply_types(item, whole.get("items"), root, repairs) for item in value]
    declared = get_properties(whole)
    return {
        str(key): _apply_types(item, declared.get(key), root, repairs)
        for key, item in value.items()
    }


def render_yaml(arguments: Mapping[str, Any], schema: Mapping[str, Any], closer: str) -> str:
    """Render YAML that does not hold `closer`, which would end the call."""
    written: list[str] = []
    for key, value in arguments.items():
        text = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False, width=1 << 30)
        spellings = [text] if closer not in text else []
        written.append(
            render_argument(key, value, spellings, lambda text: parse_yaml(text, schema))
        )
    return "".join(written)
