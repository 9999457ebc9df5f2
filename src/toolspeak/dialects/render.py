"""Renders calls, results and tool lists in a dialect.

    render_calls("qwen3_coder", [call], tools)      render_results("hermes", [result])
    render_tools("mistral_args", tools)

Parsing uses the same templates. A value that a dialect cannot express raises `Unrepresentable` with
a path, so all rendered text parses to the same calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..calls.json_values import nesting_depth
from ..calls.lenient_json import MAX_DEPTH
from ..calls.schema import allowed_types, get_properties, get_required, resolve_ref, select_branch
from ..calls.tools import as_tools, get_first_sentence, shorten_text
from ..errors import Unrepresentable
from ..types import Tool, ToolCall, ToolResult
from .argument_bodies import render_brace_map, render_key_value, render_yaml
from .elements import render_elements
from .markers import get_dialect
from .python_calls import FUNCTION_NAME, render_python_call
from .tagged_parameters import render_parameters
from .template import (
    CODE_SLOTS,
    JSON_SLOTS,
    NAME_IS_KEY,
    ONE_CALL_INTRODUCTION,
    RESULT_INSTRUCTION,
    SEVERAL_CALLS_INTRODUCTION,
    Dialect,
    NotRenderable,
    fill_template,
)

Value = TypeVar("Value")
_NAME = re.compile(r"[A-Za-z_$@*/][\w.\-:/$@*]*")
_PLAIN_NAME = re.compile(r"[\w.\-:]+")
_ID = re.compile(r"[\w.\-:/$@*]+")
_SLOT = re.compile(r"\$([a-z_]+)")
MAX_DESCRIPTION_LENGTH = 120
"""The longest description of a tool in a compact list."""
_MAX_FREEFORM_LENGTH = 4000
"""The limit for a tool that takes text: without its description it cannot be used."""
_SHOWN_DEPTH = 2
_MOST_CHOICES = 6
_CODE_SEPARATORS = {"python": ", ", "statements": "\n", "semicolons": "; "}
_SEVERAL_CALLS = {"list", "lines", "echo", "content", *_CODE_SEPARATORS}
"""The bodies that hold all calls of a reply."""
_NESTING = MAX_DEPTH - 10
"""The maximum nesting of arguments: the dialect adds some levels around them."""

_RESULT_ID = re.compile(r"\$id\b|\$id_json\b")
_NEXT_ACTION = "Make the next call if you need one. Otherwise answer the user."
"""Ends the results of a turn."""


def render_calls(
    dialect: str | Dialect, calls: Sequence[ToolCall], tools: Iterable[Any] | None = None
) -> str:
    """Render the calls of one turn. `tools` give the types that the format does not express."""
    dialect = get_dialect(dialect) if isinstance(dialect, str) else dialect
    schemas = {tool.name: tool.parameters for tool in as_tools(tools) or ()}
    if not calls:
        return ""
    if len(calls) > 1 and not dialect.parallel:
        raise Unrepresentable(dialect.name, "$[1]", "more than one call in a reply")
    for index, call in enumerate(calls):
        _check_call(dialect, index, call)
    if dialect.forms[0].body in _SEVERAL_CALLS:
        written = _render_form(dialect, 0, calls, schemas)
    else:
        written = dialect.joiner.join(
            _render_form(dialect, index, [call], schemas) for index, call in enumerate(calls)
        )
    before, _, after = dialect.wrapper_template.partition("$calls")
    return f"{before}{written}{after}"


def render_results(
    dialect: str | Dialect,
    results: Sequence[ToolResult],
    *,
    with_ids: bool = True,
    with_continuation: bool = True,
) -> str:
    """Render the results of one turn for the user's message: which calls they belong to, the
    results in the format of the dialect, and a request to go on. Empty results and errors are
    labelled.

    `with_ids` adds the ids of the calls to the heading, for dialects that do not write them.
    """
    if not results:
        return ""
    dialect = get_dialect(dialect) if isinstance(dialect, str) else dialect
    with_ids = with_ids and not _RESULT_ID.search(dialect.result_template)
    labels = dict.fromkeys(_label_result(result, with_ids) for result in results)
    of = ", ".join(filter(None, labels))
    heading = f"Result{'s' if len(results) > 1 else ''}{' of ' if of else ''}{of}:"
    blocks = render_result_blocks(dialect, results)
    return "\n\n".join((heading, blocks, *((_NEXT_ACTION,) if with_continuation else ())))


def render_result_blocks(dialect: str | Dialect, results: Sequence[ToolResult]) -> str:
    """Render the results in the format of the dialect, and nothing else."""
    dialect = get_dialect(dialect) if isinstance(dialect, str) else dialect
    written = [_render_result(dialect, index, result) for index, result in enumerate(results)]
    joiner = (
        ", "
        if "_json" in dialect.result_template and "[$results]" in dialect.results_template
        else "\n"
    )
    return dialect.results_template.replace("$results", joiner.join(written))


def render_tools(dialect: str | Dialect, tools: Iterable[Any], *, compact: bool = False) -> str:
    """Return the instructions for a model: its tools, and how to call them in `dialect`.

    `compact` writes each tool as one line instead of its schema.
    """
    dialect = get_dialect(dialect) if isinstance(dialect, str) else dialect
    declared = as_tools(tools) or ()
    if not declared:
        return ""
    if compact:
        listed = "\n".join(_compact_line(tool) for tool in declared)
        lines = ["You can call these tools. Parameters marked ? are optional.", listed]
    else:
        listed = "\n".join(json.dumps(_schema_entry(tool), ensure_ascii=False) for tool in declared)
        about = "You can call these tools. `parameters` is the JSON Schema of a tool's arguments."
        lines = [about, dialect.tools_template.replace("$tools", listed)]
    lines += [
        ONE_CALL_INTRODUCTION,
        *_examples(dialect, declared),
        f"{RESULT_INSTRUCTION} If a call needs the result of another call, wait for it. "
        f"{_answer_instruction(dialect)} Do not say that tools are unavailable.",
    ]
    return "\n\n".join(lines)


def _answer_instruction(dialect: Dialect) -> str:
    if not dialect.answer_template:
        return "If you need no tool, answer in plain text."
    # A small model repeats whatever words stand here.
    sample = dialect.answer_template.replace("$text_json", '"..."')
    return f"If you need no tool, write {sample} with your answer to the user."


def _schema_entry(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _compact_line(tool: Tool) -> str:
    """Return `- name(a: string, b?: integer) — first sentence`, with required parameters first.

    A tool that takes text has its full description.
    """
    written = _describe_parameters(tool.parameters, tool.parameters, _SHOWN_DEPTH)
    if tool.freeform:
        about = _freeform_description(tool)
    else:
        about = shorten_text(get_first_sentence(tool.description), MAX_DESCRIPTION_LENGTH)
    return f"- {tool.name}({written})" + (f" — {about}" if about else "")


def _freeform_description(tool: Tool) -> str:
    told = (given.get("description") for given in get_properties(tool.parameters).values())
    about = "\n".join(filter(None, (tool.description, *told)))
    return re.sub(r"\n(?=[^\n])", "\n  ", shorten_text(about, _MAX_FREEFORM_LENGTH))


def _describe_parameters(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    """Return the parameters as `a: string, b?: integer`."""
    required = get_required(schema)
    declared = get_properties(schema)
    ordered = (*required, *(key for key in declared if key not in required))
    return ", ".join(
        f"{key}{'' if key in required else '?'}: {_describe_type(declared[key], root, depth)}"
        for key in ordered
    )


def _describe_type(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    """Return the type of a parameter; for objects, their parameters."""
    whole = resolve_ref(schema, root)
    choices = [whole["const"]] if "const" in whole else whole.get("enum")
    if isinstance(choices, list) and choices:
        shown = [json.dumps(choice, ensure_ascii=False) for choice in choices[:_MOST_CHOICES]]
        return "|".join([*shown, "…"] if len(choices) > _MOST_CHOICES else shown)
    kinds = sorted(allowed_types(whole, root)) or ["any"]
    return "|".join(
        _describe_branch(kind, select_branch(whole, root, kind), root, depth) for kind in kinds
    )


def _describe_branch(
    kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> str:
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict):
        item = _describe_type(items, root, depth)
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object" and depth and get_properties(schema):
        return f"{{{_describe_parameters(schema, root, depth - 1)}}}"
    return kind


def _examples(dialect: Dialect, tools: Sequence[Tool]) -> list[str]:
    """Return a call of the first tool, and two calls together if the dialect allows it."""
    tools = tools_for_examples(tools)
    first = sample_call(tools[0], "call_1")
    shown = [render_calls(dialect, [first], tools)]
    if dialect.parallel and len(tools) > 1:
        both = render_calls(dialect, [first, sample_call(tools[1], "call_2")], tools)
        return [*shown, SEVERAL_CALLS_INTRODUCTION, both]
    return shown if dialect.parallel else [*shown, "Make one call at a time."]


_SAMPLE_NUMBERS = {"year": 2026, "port": 8080, "latitude": 60, "longitude": 11}
_SAMPLE_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:00:00Z",
    "time": "09:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "uuid": "0b5e7c1a-4f2d-4c8e-9a6b-3d1f5e7a9c20",
}
_WORDS_OF_SAMPLES = {
    "ls": "command",
    "notes.txt": "path file filename",
    "src": "folder directory dir",
    "*.py": "glob",
    "https://example.com": "url",
    "Oslo": "city location place",
    "Norway": "country",
    "Europe/Oslo": "timezone",
    "weather in Oslo": "query",
    "How is the weather in Oslo?": "question",
    "Summarize notes.txt": "prompt instruction task",
    "TODO": "pattern",
    "2026-01-31": "date",
    "09:00": "time",
    "2026-01-31T09:00:00Z": "start",
    "2026-01-31T10:00:00Z": "end",
    "ada@example.com": "email to recipient",
    "+47 22 00 00 00": "phone",
    "Ada": "name user",
    "ada": "owner",
    "notes": "repo repository project",
    "main": "branch",
    "Meeting notes": "title subject description",
    "The meeting is at nine": "body message content text old new",
    "en": "language",
    "EUR": "currency",
    "celsius": "unit",
    "42": "id",
    "SELECT 1": "sql",
    "print(1)": "code",
}
_SAMPLE_TEXTS = {word: text for text, words in _WORDS_OF_SAMPLES.items() for word in words.split()}
"""Texts for parameters by a word of their name: weak models copy what they are shown."""
_OTHER_TEXTS = {
    "notes.txt": "summary.txt",
    "src": "docs",
    "Oslo": "Bergen",
    "2026-01-31": "2026-02-01",
    "2026-01-31T09:00:00Z": "2026-01-31T10:00:00Z",
    "09:00": "10:00",
    "09:00:00Z": "10:00:00Z",
    "ada@example.com": "bo@example.com",
    "Ada": "Bo",
    "The meeting is at nine": "The meeting is at ten",
    "en": "no",
    "EUR": "NOK",
    "42": "43",
    "example": "another example",
}
"""Texts for the second of two parameters: a new text differs from the old one."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_MAX_SAMPLE_DEPTH = 8
"""A schema may contain itself. Lists are empty from a quarter of this depth on."""


def tools_for_examples(tools: Sequence[Tool]) -> Sequence[Tool]:
    """Return the tools without freeform ones, whose input cannot be made up."""
    return [tool for tool in tools if not tool.freeform] or tools


def sample_call(tool: Tool, identity: str) -> ToolCall:
    """Return an example call with all required arguments and no others."""
    arguments = _sample_object(tool.parameters, tool.parameters, 0)
    return ToolCall(id=identity, name=tool.name, arguments=arguments)


def _sample_object(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    required = get_required(schema)
    sample: dict[str, Any] = {}
    for key, declared in get_properties(schema).items():
        if key in required:
            sample[key] = _sample_value(key, declared, root, [*sample.values()], depth)
    return sample


def _sample_value(
    key: str, schema: Any, root: Mapping[str, Any], used: Sequence[Any], depth: int
) -> Any:
    """Return a value for a parameter, unlike those that are `used` beside it."""
    whole = resolve_ref(schema, root)
    types = allowed_types(whole, root)
    kind = next(iter(sorted(types - {"null"})), "null" if types else "string")
    whole = {**whole, **select_branch(whole, root, kind)}
    for word in ("examples", "enum"):
        if isinstance(whole.get(word), list) and whole[word]:
            return next((one for one in whole[word] if one not in used), whole[word][0])
    for word in ("const", "default"):
        if whole.get(word) is not None:
            return whole[word]
    match kind:
        case "object":
            return _sample_object(whole, root, depth + 1) if depth < _MAX_SAMPLE_DEPTH else {}
        case "array":
            items = whole.get("items") if depth < _MAX_SAMPLE_DEPTH // 4 else None
            return [_sample_value(key, items, root, (), depth + 1)] if items else []
        case "string":
            return _sample_text(key, whole, used)
        case "integer" | "number":
            return _sample_number(key, whole)
        case _:
            return True if kind == "boolean" else None


def _sample_number(key: str, schema: Mapping[str, Any]) -> float:
    """Return the number that fits a parameter's name, or else 1, within the schema's limits."""
    number = _find_by_name(key, _SAMPLE_NUMBERS) or 1
    for limit, choose in (("minimum", max), ("maximum", min)):
        if isinstance(schema.get(limit), (int, float)):
            number = choose(number, schema[limit])
    return number


def _sample_text(key: str, schema: Mapping[str, Any], used: Sequence[Any]) -> str:
    text = _SAMPLE_FORMATS.get(str(schema.get("format"))) or _find_by_name(key, _SAMPLE_TEXTS)
    text = text or "example"
    return _OTHER_TEXTS.get(text, text) if text in used else text


def _find_by_name(key: str, samples: Mapping[str, Value]) -> Value | None:
    """Return the sample for a word of a parameter's name."""
    # The last word of a name says the most: `file_path`, `startDate`.
    for word in reversed(_WORD.findall(key)):
        for spelling in (word.lower(), word.lower().removesuffix("s")):
            if spelling in samples:
                return samples[spelling]
    return None


# Calls.


def _check_call(dialect: Dialect, index: int, call: ToolCall) -> None:
    """Raise `Unrepresentable` for a call that no dialect can express reliably."""
    name, path, template = call.name, f"$[{index}]", dialect.call_templates[0]
    is_code = dialect.forms[0].body in CODE_SLOTS
    is_name = (
        _NAME.fullmatch(name)
        and not name.startswith("functions.")
        and name not in dialect.reserved_names
        and ("$name/" not in template or _PLAIN_NAME.fullmatch(name))
        and (not is_code or FUNCTION_NAME.fullmatch(name))
    )
    if not is_name:
        raise Unrepresentable(dialect.name, f"{path}.name", f"a tool named {name!r}")
    if "$id" in template and not _ID.fullmatch(call.id):
        raise Unrepresentable(dialect.name, f"{path}.id", f"the id {call.id!r}")
    try:
        _encode_arguments(call)
    except (ValueError, TypeError):
        problem = "a value that JSON cannot express"
        raise Unrepresentable(dialect.name, f"{path}.arguments", problem) from None
    if nesting_depth(call.arguments) > _NESTING:
        raise Unrepresentable(dialect.name, f"{path}.arguments", "arguments nested this deeply")


def _render_form(
    dialect: Dialect,
    index: int,
    calls: Sequence[ToolCall],
    schemas: Mapping[str, dict[str, Any]],
) -> str:
    call, kind = calls[0], dialect.forms[0].body
    words = {
        "name": call.name,
        "id": call.id,
        "index": str(index + 1),
        "header": _render_header(dialect, index, call.id, call.name),
        kind: _render_body(dialect, kind, index, calls, schemas),
    }
    return fill_template(dialect.call_templates[0], words)


def _render_header(dialect: Dialect, index: int, identity: str, name: str) -> str:
    """Return a header that is the call's id; an id in the model's own format is kept."""
    for pattern in dialect.header_patterns:
        own = re.fullmatch(pattern, identity)
        if own and own[1] == name != identity:
            return identity
    return dialect.header_template.replace("$name", name).replace("$index", str(index))


def _render_body(
    dialect: Dialect,
    kind: str,
    index: int,
    calls: Sequence[ToolCall],
    schemas: Mapping[str, dict[str, Any]],
) -> str:
    if kind in JSON_SLOTS:
        return _JSON_BODIES[kind]([_render_object(dialect, call) for call in calls], dialect)
    if kind in CODE_SLOTS:
        written = [
            _render_arguments(dialect, kind, at, call, {}) for at, call in enumerate(calls, index)
        ]
        return _join_code(kind, written)
    call = calls[0]
    return _render_arguments(dialect, kind, index, call, schemas.get(call.name, {}))


def _render_arguments(
    dialect: Dialect, kind: str, index: int, call: ToolCall, schema: Mapping[str, Any]
) -> str:
    """Render the arguments of one call; in code, the whole call."""
    closer = dialect.forms[0].closer.replace("$name", call.name)
    try:
        match kind:
            case _ if kind in CODE_SLOTS:
                return render_python_call(call.name, call.arguments)
            case "params":
                return render_parameters(call.arguments, dialect, schema)
            case "elements":
                return render_elements(call.arguments, dialect, schema, closer)
            case "yaml":
                return render_yaml(call.arguments, schema, closer)
            case "line" if all(str(value).strip() for value in call.arguments.values()):
                return render_key_value(call.arguments, schema)
            case "braces":
                return render_brace_map(call.arguments, dialect.string_quote)
            case _:
                return _encode_arguments(call)
    except NotRenderable as error:
        path = f"$[{index}].arguments.{error.key}"
        raise Unrepresentable(dialect.name, path, error.reason) from None


def _render_object(dialect: Dialect, call: ToolCall) -> str:
    arguments = _encode_arguments(call)
    keys = dialect.json_keys
    if keys == NAME_IS_KEY:
        return f"{{{json.dumps(call.name)}: {arguments}}}"
    identity = f', "{keys.id}": {json.dumps(call.id)}' if keys.id and call.id else ""
    return f'{{"{keys.name}": {json.dumps(call.name)}, "{keys.arguments}": {arguments}{identity}}}'


def _render_api_echo(objects: Sequence[str], _: Dialect) -> str:
    """Render calls like the OpenAI API: every call in a wrapper, its arguments as a string."""
    wrapped: list[dict[str, Any]] = []
    for text in objects:
        call = json.loads(text)
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        wrapped.append({"id": call.get("id", ""), "type": "function", "function": function})
    return json.dumps({"tool_calls": wrapped}, ensure_ascii=False)


_JSON_BODIES: dict[str, Callable[[Sequence[str], Dialect], str]] = {
    "object": lambda objects, _: objects[0],
    "list": lambda objects, _: f"[{', '.join(objects)}]",
    "lines": lambda objects, dialect: dialect.joiner.join(objects),
    "echo": _render_api_echo,
    "content": lambda objects, _: f'{{"content": null, "tool_calls": [{", ".join(objects)}]}}',
}


def _encode_arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)


def _join_code(kind: str, written: Sequence[str]) -> str:
    if kind == "builtin":
        return written[0].replace("(", ".call(", 1)
    text = _CODE_SEPARATORS.get(kind, "").join(written)
    return f"[{text}]" if kind == "python" else text


# Results.


def _label_result(result: ToolResult, with_id: bool) -> str:
    """Return the name of the call that a result belongs to, and its id."""
    if with_id and result.call_id:
        return f"{result.name} ({result.call_id})" if result.name else result.call_id
    return result.name


def _render_result(dialect: Dialect, index: int, result: ToolResult) -> str:
    content = result.text or "(no output)"
    if result.is_error and "$error" not in dialect.result_template:
        content = f"Error: {content}"
    words = {
        "content": content,
        "content_json": json.dumps(content, ensure_ascii=False),
        "id": _render_header(dialect, index, result.call_id, result.name) or result.call_id,
        "id_json": json.dumps(result.call_id),
        "name": result.name,
        "index": str(index),
        "number": str(index + 1),
        "error": "true" if result.is_error else "false",
    }
    return _SLOT.sub(lambda slot: words.get(slot[1], slot[0]), dialect.result_template)
