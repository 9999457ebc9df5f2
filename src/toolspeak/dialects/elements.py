"""Arguments as nested elements, whose names are the keys: read, parsed and rendered.

    <city>Oslo</city><days><item>1</item><item>2</item></days>

A repeated element is a list. Nothing is escaped: the schema decides whether a value is text or
structure; without a schema, a value that consists of elements is an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..calls.schema import (
    allowed_types,
    format_text_value,
    get_properties,
    parse_text_value,
    resolve_ref,
    select_branch,
)
from .form_reader import Body, FormReader, Header, read_to_closer
from .tagged_parameters import unwrap_arguments, unwrap_cdata
from .template import Dialect, InvalidBody, ParsedArguments, render_argument
from .text_buffer import Reading

_NAME = r"([A-Za-z_][\w.\-]*)"
_ITEM = "item"
_MAX_DEPTH = 50


def read_elements(attempt: FormReader, header: Header) -> Reading[Body]:
    form = attempt.form

    def parse(body: str, schema: Mapping[str, Any]) -> ParsedArguments:
        return parse_elements(body, form.dialect, schema)

    closer = form.closer.replace("$name", header.name)
    return read_to_closer(attempt, header, parse, (closer,))


def parse_elements(body: str, dialect: Dialect, schema: Mapping[str, Any]) -> ParsedArguments:
    found = _split_elements(body, dialect.tag_prefix)
    if found is None:
        raise InvalidBody("text where only elements are allowed")
    declared = get_properties(schema)
    parser = _ElementParser(dialect, schema, [])
    return unwrap_arguments(parser.parse_object(found, declared), declared, parser.repairs)


def _split_elements(text: str, prefix: str) -> list[tuple[str, str]] | None:
    """Return the names and the contents of elements; None if there is other text between them."""
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
    """Return the position that closes the element opened before `at`; -1 if it is not closed."""
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


class _ElementParser(Struct, frozen=True, eq=False):
    """Parses the elements of one body by their schema."""

    dialect: Dialect
    root: Mapping[str, Any]
    """The schema of all parameters."""
    repairs: list[str]

    def parse_object(
        self, found: list[tuple[str, str]], declared: Mapping[str, Any], depth: int = 0
    ) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise InvalidBody("elements are nested too deeply")
        texts: dict[str, list[str]] = {}
        for key, text in found:
            texts.setdefault(key, []).append(text)
        return {
            key: self._parse_value(several, declared.get(key), depth + 1)
            for key, several in texts.items()
        }

    def _parse_value(self, texts: list[str], schema: Any, depth: int) -> Any:
        root, cdata = self.root, self.dialect.allows_cdata
        types = allowed_types(schema, root)
        items = resolve_ref(schema, root).get("items")
        if len(texts) > 1 and (not types or "array" in types):
            return [self._parse_value([text], items, depth) for text in texts]
        if len(texts) > 1:
            raise InvalidBody("an element is given several times, and only one is allowed")
        [text] = texts
        if cdata and (inside := unwrap_cdata(text)) is not None:
            return parse_text_value(inside, schema, root, self.repairs)
        if not types or (types & {"object", "array"} and "string" not in types):
            structure = self._parse_structure(text, schema, types, depth)
            if structure is not None:
                return structure
        if cdata and text.startswith("\n"):
            text = text[1:].removesuffix("\n")
        value = parse_text_value(text, schema, root, self.repairs)
        if types == frozenset({"array"}) and not isinstance(value, list):
            return [self._parse_value([text], items, depth)]
        return value

    def _parse_structure(self, text: str, schema: Any, types: frozenset[str], depth: int) -> Any:
        found = _split_elements(text, self.dialect.tag_prefix)
        if not found:
            return None
        whole = select_branch(schema, self.root, "array" if found[0][0] == _ITEM else "object")
        if all(key == _ITEM for key, _ in found) and (not types or "array" in types):
            items = whole.get("items")
            return [self._parse_value([item], items, depth + 1) for _, item in found]
        if types and "object" not in types:
            return None
        return self.parse_object(found, get_properties(whole), depth)


def render_elements(
    arguments: Mapping[str, Any], dialect: Dialect, schema: Mapping[str, Any], closer: str
) -> str:
    """Render each argument as an element, in the first spelling that parses to the same value.

    No spelling may contain `closer`, which would end the call.
    """
    written: list[str] = []
    for key, value in arguments.items():
        elements = (
            _render_element(key, spelling, dialect) for spelling in _list_spellings(value, dialect)
        )
        spellings = (text for text in elements if closer not in text)
        written.append(
            render_argument(
                key, value, spellings, lambda text: parse_elements(text, dialect, schema)
            )
        )
    return "".join(written)


def _render_element(key: str, text: str, dialect: Dialect) -> str:
    return f"{dialect.tag_prefix}<{key}>{text}{dialect.tag_prefix}</{key}>"


def _list_spellings(value: Any, dialect: Dialect) -> list[str]:
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
