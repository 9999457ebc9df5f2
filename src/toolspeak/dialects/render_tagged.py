"""Writes arguments as tagged parameters, in the first spelling that reads back as the same."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from ..calls.drafts import json_equal
from ..calls.schema import format_text_value, get_properties, json_type
from .scan import DONE
from .tagged import (
    CDATA_CLOSE,
    CDATA_OPEN,
    BadBody,
    CannotCarry,
    ParamScanner,
    decode,
    params_of,
    raw_params,
    unwrapped,
)
from .template import Dialect, Literal, Slot, Tag, pieces


def render_params(arguments: Mapping[str, Any], dialect: Dialect, schema: Mapping[str, Any]) -> str:
    """The arguments as tagged parameters."""
    return "".join(_render_param(key, value, dialect, schema) for key, value in arguments.items())


def _render_param(key: str, value: Any, dialect: Dialect, schema: Mapping[str, Any]) -> str:
    """One parameter, in the first spelling that reads back as the same value."""
    text = format_text_value(value)
    hints = {"string": "true" if isinstance(value, str) else "false", "type": _written_type(value)}
    spellings = [text, f"\n{text}\n"]
    if dialect.cdata and CDATA_CLOSE not in text:
        spellings.append(f"{CDATA_OPEN}{text}{CDATA_CLOSE}")
    for spelling in spellings:
        written = _fill(dialect.param, key, spelling, hints)
        if _reads_back(written, key, value, dialect, schema):
            return written
    raise CannotCarry(key, _reason(key, text, dialect))


def _written_type(value: Any) -> str:
    return (
        "number"
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else json_type(value)
    )


def _fill(template: str, key: str, value: str, hints: Mapping[str, str]) -> str:
    written: list[str] = []
    for part in pieces(template):
        match part:
            case Literal():
                written.append(part.text)
            case Tag():
                words = {**hints, "key": key, "value": value}
                written.append(fill_tag(part, words))
            case Slot():
                words = {**hints, "key": key, "value": value}
                written.append(words[part.kind])
    return "".join(written)


def fill_tag(tag: Tag, words: Mapping[str, str]) -> str:
    """A tag with its attributes filled in."""
    text = tag.text
    for _, slot in tag.attributes:
        text = text.replace(f"${slot}", html.escape(words[slot]).replace("&#x27;", "'"))
    return text


def _reads_back(
    written: str, key: str, value: Any, dialect: Dialect, schema: Mapping[str, Any]
) -> bool:
    """Whether this text, followed by other parameters and the end, can only mean this value."""
    params = params_of(dialect)
    form = dialect.forms[0]
    scanner = ParamScanner(params, form.closer, form.closers)
    whole = f"{written}{form.closer}{''.join(form.closers[1:])}"
    if scanner.step(whole, 0) != len(written) + len(form.closer) or scanner.state != DONE:
        return False
    try:
        found = list(raw_params(written, params, get_properties(schema)))
    except BadBody:
        return False
    if not key or len(found) != 1 or found[0][0] != key:
        return False
    _, text, hints, _ = found[0]
    back = decode(text, get_properties(schema).get(key), schema, hints, dialect, [])
    whole, _ = unwrapped({key: back}, get_properties(schema), ())
    return json_equal(back, value) and json_equal(whole, {key: back})


def _reason(key: str, text: str, dialect: Dialect) -> str:
    closes = params_of(dialect).closes
    if closes and closes in text:
        return f"{closes} inside a value"
    return f"the value of {key!r} so that it reads back as what it is"
