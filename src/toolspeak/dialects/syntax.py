"""Calls written like code, and maps written without quotes around their keys.

[get_weather(city="Oslo", days=3), now()]          call:get_weather{city:<|"|>Oslo<|"|>,days:3}
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from ..calls.drafts import CallDraft, json_equal
from ..calls.json_values import strip_code_fence
from ..calls.lenient_json import (
    MAX_DEPTH,
    IncompleteJson,
    LenientJsonError,
    LenientJsonReader,
    is_string_concatenation,
    unescape,
)
from ..calls.schema import (
    allowed_types,
    get_properties,
    get_required,
    json_type,
    parse_text_value,
    resolve_ref,
)
from .tagged_parameters import InvalidBody, NotRenderable, ParsedArguments

FUNCTION_NAME = re.compile(r"[A-Za-z_](?:[\w.\-]|\\_)*")
INTERPRETERS = ("python", "code_interpreter", "ipython")
"""Tools that models give a bare program to."""
_NO_INPUT = ("", "none", "null", "n/a")
_PYTHON = frozenset({"python-literal", "single-quotes", "comment"})
"""What is no repair in Python's own syntax."""
_MARKDOWN = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\+_""", re.S)
"""An underscore that is escaped; and texts, in which nothing is changed."""
_ESCAPED_NAME = re.compile(r"\A[\w.\-]*\\+_|[(,]\s*\w*\\+_[\w\\]*\s*=")
"""A name that was escaped for Markdown; then all of the call was."""
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)")
_CUT_KEYWORD = re.compile(r"\s*(?:[A-Za-z_]\w*\s*)?")
_NEXT_KEYWORD = re.compile(r"(?:^|,)\s*([A-Za-z_]\w*)\s*=\s*(?=[\"'])")
_NOT_A_TEXT = {
    quote: re.compile(
        rf"{quote}\s*+(?:[+%*.]|(?:if|or|and|in|for|else)\b|{quote}|[A-Za-z_]\w*+\s*+={quote})"
        r"|\)\s*+[,;]\s*+[A-Za-z_][\w.]*+\("
    )
    for quote in "\"'"
}
"""What tells that a text with quotes inside is more than one text: code, or the next call."""
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


class _TextLoader(yaml.BaseLoader):
    """YAML whose scalars all stay text, and without aliases, which could grow without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


def parse_python_call(text: str, schema: Mapping[str, Any]) -> CallDraft:
    """One call in Python's syntax, from its name to its closing bracket. Arguments without a name
    have the names that the schema declares in their place."""
    plain = _MARKDOWN.sub(_unescape_underscore, text) if _ESCAPED_NAME.search(text) else text
    marked, text = text != plain, plain
    name = text.partition("(")[0]
    reader = LenientJsonReader(text, len(name) + 1, python=True)
    name = name.strip()
    try:
        given, arguments = _read_call_arguments(reader)
    except LenientJsonError as error:
        return _parse_loosely_quoted_call(text, name) or CallDraft(
            name, problem=f"the arguments cannot be read: {error}"
        )
    repairs = [repair for repair in reader.repairs() if repair not in _PYTHON]
    if given:
        repairs.append("positional-arguments")
        positional = _name_positional_arguments(given, schema)
        if positional is None or positional.keys() & arguments.keys():
            return CallDraft(name, problem="an argument has no name")
        arguments = positional | arguments
    return CallDraft(
        name, arguments, repairs=(*repairs, "markdown-escape") if marked else tuple(repairs)
    )


def _unescape_underscore(found: re.Match[str]) -> str:
    return "_" if found[0].endswith("_") else found[0]


def _name_positional_arguments(
    given: list[Any], schema: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Arguments without names: one map of all of them, or one for each declared parameter. Their
    order is certain if it is the same with the required ones first, as short lists of tools have
    it; or if only one of the two gives each parameter a value of its type."""
    declared = get_properties(schema)
    if len(given) == 1 and isinstance(given[0], dict) and given[0].keys() <= declared.keys():
        return given[0]
    if len(given) > len(declared):
        return None
    first = dict.fromkeys((*get_required(schema), *declared))
    orders = {tuple(declared)[: len(given)], tuple(first)[: len(given)]}
    named = [dict(zip(order, given, strict=True)) for order in orders]
    fitting = [
        arguments
        for arguments in named
        if all(_is_of_type(value, declared[key], schema) for key, value in arguments.items())
    ]
    found = named if len(named) == 1 else fitting
    return found[0] if len(found) == 1 else None


def _is_of_type(value: Any, part: Any, schema: Mapping[str, Any]) -> bool:
    types = allowed_types(part, schema)
    kind = json_type(value)
    return not types or kind in types or (kind == "integer" and "number" in types)


def is_unfinished_call(text: str) -> bool:
    """Whether the text is the beginning of a call, as far as it goes."""
    try:
        _read_call_arguments(LenientJsonReader(text, text.index("(") + 1))
    except IncompleteJson:
        return True
    except LenientJsonError:
        pass
    return False


def _read_call_arguments(reader: LenientJsonReader) -> tuple[list[Any], dict[str, Any]]:
    """The arguments without names, and those with names."""
    given: list[Any] = []
    arguments: dict[str, Any] = {}
    while reader.skip_space() != ")":
        keyword = _KEYWORD.match(reader.text, reader.position)
        if keyword:
            reader.position = keyword.end()
            value = reader.read_value()
            if keyword[1] in arguments and arguments[keyword[1]] != value:
                raise LenientJsonError(
                    f"the argument {keyword[1]!r} stands there twice", reader.position
                )
            arguments[keyword[1]] = value
        elif _CUT_KEYWORD.fullmatch(reader.text, reader.position):
            reader.position = len(reader.text)
            raise reader.error("an argument has no name")
        elif arguments:
            raise reader.error("an argument has no name")
        else:
            given.append(reader.read_value())
        reader.read_separator(")")
    return given, arguments


def _parse_loosely_quoted_call(text: str, name: str) -> CallDraft | None:
    """A call whose texts hold their own quotes unescaped, as in `f(c='sed -n '1,2p' x')`: each ends
    where the next keyword begins."""
    body = text[text.index("(") + 1 : -1]
    keywords = list(_NEXT_KEYWORD.finditer(body))
    if not keywords or keywords[0].start():
        return None
    ends = [*(match.start() for match in keywords[1:]), len(body)]
    arguments: dict[str, Any] = {}
    for match, end in zip(keywords, ends, strict=True):
        value = body[match.end() : end].strip()
        quote = value[:1]
        if len(value) < 2 or quote not in "\"'" or value[-1] != quote:
            return None
        inside = value[1:-1]
        if (
            match[1] in arguments
            or is_string_concatenation(inside, quote)
            or _NOT_A_TEXT[quote].search(inside)
        ):
            return None
        arguments[match[1]] = unescape(inside, python=True)
    return CallDraft(name, arguments, repairs=("inner-quotes",))


def render_python_call(name: str, arguments: Mapping[str, Any]) -> str:
    """One call in Python's syntax."""
    for key in arguments:
        if not _KEY.fullmatch(key):
            raise NotRenderable(key, f"a parameter named {key!r}")
    return (
        f"{name}({', '.join(f'{key}={render_literal(value)}' for key, value in arguments.items())})"
    )


def render_literal(value: Any) -> str:
    """A value as Python writes it, with JSON's strings."""
    match value:
        case dict():
            return (
                "{"
                + ", ".join(f"{_render_string(k)}: {render_literal(v)}" for k, v in value.items())
                + "}"
            )
        case list():
            return "[" + ", ".join(map(render_literal, value)) + "]"
        case str():
            return _render_string(value)
        case _:
            return repr(value)


def _render_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def parse_brace_map(
    text: str, quote: str, schema: Mapping[str, Any], *, close: bool = False
) -> ParsedArguments:
    """A map without quotes around its keys. `close` allows quotes and brackets that are missing at
    the end."""
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
        raise InvalidBody("expected a map")
    declared = get_properties(schema)
    if declared and "unquoted-value" in reader.repairs() and not value.keys() <= declared.keys():
        raise InvalidBody("a text without quotes holds what looks like a parameter")
    return value, reader.repairs()


def find_unclosed_map_end(text: str, quote: str, closer: str) -> int:
    """Where a map ends whose last string lacks its closing quote: at a closer that a brace stands
    before; -1 if there is none, and the map is cut off."""
    inside = False
    for match in re.finditer(rf"{re.escape(quote)}|\}}\s*+({re.escape(closer)})", text):
        if match[0] == quote:
            inside = not inside
        elif inside:
            return match.start(1)
    return -1


def render_brace_map(arguments: Mapping[str, Any], quote: str) -> str:
    """A map without quotes around its keys."""
    entries: list[str] = []
    for key, value in arguments.items():
        text = f"{key}:{_render_brace_value(value, quote)}"
        if not _BRACE_KEY.fullmatch(key):
            raise NotRenderable(key, f"a parameter named {key!r}")
        if not _brace_map_reads_back(text, {key: value}, quote):
            raise NotRenderable(key, f"{quote} inside a value")
        entries.append(text)
    return "{" + ",".join(entries) + "}"


def _brace_map_reads_back(text: str, arguments: dict[str, Any], quote: str) -> bool:
    try:
        return json_equal(parse_brace_map("{" + text + "}", quote, {})[0], arguments)
    except InvalidBody:
        return False


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
    """Bare text, for the only parameter that a tool takes or needs."""
    text = text.strip()
    if text.lower() in _NO_INPUT:
        return {}, ()
    declared = get_properties(schema)
    key = _only_parameter(schema)
    if not key:
        raise InvalidBody("the input is no JSON object")
    for quote in ("```", "`", '"', "'"):
        inside = text[len(quote) : -len(quote)]
        if text.startswith(quote) and text.endswith(quote) and inside and quote not in inside:
            text = inside.strip("\n") if quote == "```" else inside
            break
    repairs = ["bare-input"]
    return {key: parse_text_value(text, declared[key], schema, repairs)}, tuple(repairs)


def _only_parameter(schema: Mapping[str, Any]) -> str:
    """The parameter that a tool needs or takes, if it is only one."""
    for keys in (get_required(schema), list(get_properties(schema))):
        if len(keys) == 1:
            return keys[0]
    return ""


def parse_perl_map(text: str, schema_of: Callable[[str], Mapping[str, Any]]) -> CallDraft:
    """`{tool => "f", args => {--a "x" --b 1}}`."""
    head = _PERL.match(text)
    if head is None or not text.rstrip().endswith("}"):
        return CallDraft(problem="not a map of a tool and its arguments")
    name, body = head["name"], text[head.end() :].rstrip("} \t\r\n")
    schema = schema_of(name)
    declared = get_properties(schema)
    arguments: dict[str, Any] = {}
    repairs: list[str] = []
    for match in _PERL_ARGUMENT.finditer(body):
        key, word = match["key"], match["word"]
        if key in arguments:
            return CallDraft(name, problem=f"the argument {key!r} stands several times")
        word = unescape(word[1:-1]) if word[0] in "\"'" else word
        arguments[key] = parse_text_value(word, declared.get(key), schema, repairs)
    if _PERL_ARGUMENT.sub("", body).strip(" ,\t\r\n"):
        return CallDraft(name, problem="the arguments cannot be read")
    return CallDraft(name, arguments, repairs=tuple(dict.fromkeys(repairs)))


def parse_program(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """A program, for the parameter that takes it."""
    key = "code" if "code" in get_properties(schema) else _only_parameter(schema)
    if not key:
        raise InvalidBody("the tool has no parameter that takes a program")
    return {key: text.strip()}, ()


def is_complete_program(program: str) -> bool:
    """Whether a program's strings and brackets are all closed."""
    try:
        tokens = tokenize.generate_tokens(io.StringIO(program).readline)
        return all(token.type != tokenize.ERRORTOKEN for token in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False


def parse_key_value(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """`key>value`."""
    key, _, value = text.partition(">")
    repairs: list[str] = []
    return {key: parse_text_value(value, get_properties(schema).get(key), schema, repairs)}, tuple(
        repairs
    )


def render_key_value(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """`key>value` for a single text, else a JSON object."""
    if len(arguments) == 1:
        [(key, value)] = arguments.items()
        text = f"{key}>{value}"
        plain = isinstance(value, str) and "\n" not in value and _KEY.fullmatch(key)
        if plain and json_equal(parse_key_value(text, schema)[0], arguments):
            return text
    return json.dumps(arguments, ensure_ascii=False)


def parse_yaml(text: str, schema: Mapping[str, Any]) -> ParsedArguments:
    """Arguments as YAML. Every scalar is read as text, and the schema gives it its type: YAML's own
    guesses (`no` is false, `1.10` is 1.1) are not wanted."""
    if _nests_too_deeply(text):
        raise InvalidBody("nested too deeply")
    inside = strip_code_fence(text)
    repairs = [] if inside is text else ["code-fence"]
    try:
        value = yaml.load(inside, Loader=_TextLoader)  # noqa: S506 - it makes nothing but text
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise InvalidBody(f"not valid YAML: {error}") from None
    if value in (None, ""):
        return {}, tuple(repairs)
    if not isinstance(value, dict):
        raise InvalidBody("expected a map")
    return _apply_types(value, schema, schema, repairs), tuple(dict.fromkeys(repairs))


def _nests_too_deeply(text: str) -> bool:
    """Whether brackets are nested so deeply that YAML's reader would take too long over them."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


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
    """Arguments as YAML, without `closer` in it, which would end the call."""
    written: list[str] = []
    for key, value in arguments.items():
        text = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False, width=1 << 30)
        try:
            same = json_equal(parse_yaml(text, schema)[0], {key: value})
        except InvalidBody:
            same = False
        if not same or closer in text:
            raise NotRenderable(key, f"the value of {key!r} so that it reads back as what it is")
        written.append(text)
    return "".join(written)
