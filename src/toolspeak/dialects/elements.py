"""Arguments as nested elements, where the element's name is the key.

    <city>Oslo</city><days><item>1</item><item>2</item></days>

A repeated element is a list. As with tagged parameters nothing is escaped, and the schema decides
what is text and what is structure; without one, elements inside a value make it an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..calls.json_values import json_equal
from ..calls.schema import (
    allowed_types,
    format_text_value,
    get_properties,
    parse_text_value,
    resolve_ref,
    select_branch,
)
from .tagged_parameters import InvalidBody, NotRenderable, ParsedArguments, unwrap_arguments
from .template import Dialect

_NAME = r"([A-Za-z_][\w.\-]*)"
_ITEM = "item"
_MAX_DEPTH = 50
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*?)\]\]>\s*", re.S)


class _ElementContext(Struct, frozen=True, eq=False):
    """What all parts of one body have in common."""

    dialect: Dialect
    root: Mapping[str, Any]
    """The whole schema."""
    repairs: list[str]


def parse_elements(body: str, dialect: Dialect, schema: Mapping[str, Any]) -> ParsedArguments:
    """The arguments in a body of nested elements."""
    found = _children(body, dialect.tag_prefix)
    if found is None:
        raise InvalidBody("text where only elements may stand")
    declared = get_properties(schema)
    reading = _ElementContext(dialect, schema, [])
    return unwrap_arguments(_read_object(found, declared, reading), declared, reading.repairs)


def _children(text: str, prefix: str) -> list[tuple[str, str]] | None:
    """The elements that a text consists of; None if there is anything else in it."""
    opening = re.compile(rf"\s*{re.escape(prefix)}<{_NAME}>")
    found: list[tuple[str, str]] = []
    at = 0
    while match := opening.match(text, at):
        end = _find_closing_tag(text, match.end(), match[1], prefix)
        if end < 0:
            return None
        found.append((match[1], text[match.end() : end]))
        at = end + len(f"{prefix}</{match[1]}>")
    return found if not text[at:].strip() else None


def _find_closing_tag(text: str, at: int, name: str, prefix: str) -> int:
    """Where the element that was opened before `at` is closed, minding its namesakes inside."""
    opening, closing = f"{prefix}<{name}>", f"{prefix}</{name}>"
    depth = 1
    while True:
        end = text.find(closing, at)
        if end < 0:
            return -1
        depth += text.count(opening, at, end) - 1
        if not depth:
            return end
        at = end + len(closing)


def _read_object(
    found: list[tuple[str, str]],
    declared: Mapping[str, Any],
    reading: _ElementContext,
    depth: int = 0,
) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise InvalidBody("elements are nested too deeply")
    texts: dict[str, list[str]] = {}
    for key, text in found:
        texts.setdefault(key, []).append(text)
    return {
        key: _read_value(several, declared.get(key), reading, depth + 1)
        for key, several in texts.items()
    }


def _read_value(texts: list[str], schema: Any, reading: _ElementContext, depth: int) -> Any:
    root, cdata = reading.root, reading.dialect.allows_cdata
    types = allowed_types(schema, root)
    if len(texts) > 1 and (not types or "array" in types):
        items = resolve_ref(schema, root).get("items")
        return [_read_value([text], items, reading, depth) for text in texts]
    if len(texts) > 1:
        raise InvalidBody("an element stands several times, and only one is allowed")
    [text] = texts
    if cdata and (match := _CDATA.fullmatch(text)):
        return parse_text_value(match[1], schema, root, reading.repairs)
    if not types or (types & {"object", "array"} and "string" not in types):
        structure = _read_structure(text, schema, types, reading, depth)
        if structure is not None:
            return structure
    if cdata and text.startswith("\n"):
        text = text[1:].removesuffix("\n")
    value = parse_text_value(text, schema, root, reading.repairs)
    if types == frozenset({"array"}) and not isinstance(value, list):
        return [_read_value([text], resolve_ref(schema, root).get("items"), reading, depth)]
    return value


def _read_structure(
    text: str, schema: Any, types: frozenset[str], reading: _ElementContext, depth: int
) -> Any:
    found = _children(text, reading.dialect.tag_prefix)
    if not found:
        return None
    whole = select_branch(schema, reading.root, "array" if found[0][0] == _ITEM else "object")
    if all(key == _ITEM for key, _ in found) and (not types or "array" in types):
        items = whole.get("items")
        return [_read_value([item], items, reading, depth + 1) for _, item in found]
    if types and "object" not in types:
        return None
    return _read_object(found, get_properties(whole), reading, depth)


def render_elements(
    arguments: Mapping[str, Any], dialect: Dialect, schema: Mapping[str, Any], closer: str
) -> str:
    """The arguments as nested elements, each in the first spelling that reads back the same and
    does not hold `closer`, which would end the call."""
    written: list[str] = []
    for key, value in arguments.items():
        for spelling in _spellings(value, dialect):
            text = _render_element(key, spelling, dialect)
            if closer not in text and _reads_back(text, key, value, dialect, schema):
                written.append(text)
                break
        else:
            raise NotRenderable(key, f"the value of {key!r} so that it reads back as what it is")
    return "".join(written)


def _render_element(key: str, text: str, dialect: Dialect) -> str:
    return f"{dialect.tag_prefix}<{key}>{text}{dialect.tag_prefix}</{key}>"


def _spellings(value: Any, dialect: Dialect) -> list[str]:
    spellings = [_render_nested(value, dialect), format_text_value(value)]
    if dialect.allows_cdata:
        text = format_text_value(value)
        spellings += [f"\n{text}\n", f"<![CDATA[{text}]]>"]
    return spellings


def _render_nested(value: Any, dialect: Dialect) -> str:
    if isinstance(value, dict) and value:
        return "".join(
            _render_element(key, _render_nested(item, dialect), dialect)
            for key, item in value.items()
        )
    if isinstance(value, list) and value:
        return "".join(
            _render_element(_ITEM, _render_nested(item, dialect), dialect) for item in value
        )
    return format_text_value(value)


def _reads_back(
    text: str, key: str, value: Any, dialect: Dialect, schema: Mapping[str, Any]
) -> bool:
    try:
        return json_equal(parse_elements(text, dialect, schema)[0], {key: value})
    except InvalidBody:
        return False
