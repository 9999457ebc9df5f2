"""Writes arguments as tagged parameters, in the first spelling that reads back as the same."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from ..calls.json_values import json_equal
from ..calls.schema import format_text_value, get_properties, json_type
from .tagged_parameters import (
    CDATA_CLOSE,
    CDATA_OPEN,
    InvalidBody,
    NotRenderable,
    ParameterScanner,
    decode_value,
    parameter_format,
    split_parameters,
    unwrap_arguments,
)
from .template import Dialect, LiteralText, Slot, TagTemplate, parse_template
from .value_scanners import COMPLETE


def render_parameters(
    arguments: Mapping[str, Any], dialect: Dialect, schema: Mapping[str, Any]
) -> str:
    """The arguments as tagged parameters."""
    return "".join(_render_param(key, value, dialect, schema) for key, value in arguments.items())


def _render_param(key: str, value: Any, dialect: Dialect, schema: Mapping[str, Any]) -> str:
    """One parameter, in the first spelling that reads back as the same value."""
    text = format_text_value(value)
    hints = {"string": "true" if isinstance(value, str) else "false", "type": _type_hint(value)}
    spellings = [text, f"\n{text}\n"]
    if dialect.allows_cdata and CDATA_CLOSE not in text:
        spellings.append(f"{CDATA_OPEN}{text}{CDATA_CLOSE}")
    for spelling in spellings:
        written = _fill_parameter(dialect.parameter_template, key, spelling, hints)
        if _parameter_reads_back(written, key, value, dialect, schema):
            return written
    raise NotRenderable(key, _explain_failure(key, text, dialect))


def _type_hint(value: Any) -> str:
    return (
        "number"
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else json_type(value)
    )


def _fill_parameter(template: str, key: str, value: str, hints: Mapping[str, str]) -> str:
    written: list[str] = []
    for part in parse_template(template):
        match part:
            case LiteralText():
                written.append(part.text)
            case TagTemplate():
                words = {**hints, "key": key, "value": value}
                written.append(fill_tag(part, words))
            case Slot():
                words = {**hints, "key": key, "value": value}
                written.append(words[part.kind])
    return "".join(written)


def fill_tag(tag: TagTemplate, words: Mapping[str, str]) -> str:
    """A tag with its attributes filled in."""
    text = tag.text
    for _, slot in tag.attributes:
        text = text.replace(f"${slot}", html.escape(words[slot]).replace("&#x27;", "'"))
    return text


def _parameter_reads_back(
    written: str, key: str, value: Any, dialect: Dialect, schema: Mapping[str, Any]
) -> bool:
    """Whether this text, followed by other parameters and the end, can only mean this value."""
    params = parameter_format(dialect)
    form = dialect.forms[0]
    scanner = ParameterScanner(params, form.closer, form.all_closers)
    whole = f"{written}{form.closer}{''.join(form.all_closers[1:])}"
    if scanner.step(whole, 0) != len(written) + len(form.closer) or scanner.state != COMPLETE:
        return False
    try:
        found = list(split_parameters(written, params, get_properties(schema)))
    except InvalidBody:
        return False
    if not key or len(found) != 1 or found[0][0] != key:
        return False
    _, text, hints, _ = found[0]
    back = decode_value(text, get_properties(schema).get(key), schema, hints, dialect, [])
    whole, _ = unwrap_arguments({key: back}, get_properties(schema), ())
    return json_equal(back, value) and json_equal(whole, {key: back})


def _explain_failure(key: str, text: str, dialect: Dialect) -> str:
    closes = parameter_format(dialect).value_closer
    if closes and closes in text:
        return f"{closes} inside a value"
    return f"the value of {key!r} so that it reads back as what it is"
