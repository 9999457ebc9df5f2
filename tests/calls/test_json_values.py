"""JSON as models write it: each row has the value and the repairs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.calls import json_values as jsonish

ROWS: list[tuple[str, Any, tuple[str, ...]]] = [
    ('{"a": 1}', {"a": 1}, ()),
    ("[1, 2.5, true, null]", [1, 2.5, True, None], ()),
    ("{'a': 'b'}", {"a": "b"}, ("single-quotes",)),
    ('{"a": 1,}', {"a": 1}, ("trailing-comma",)),
    ("[1, 2,]", [1, 2], ("trailing-comma",)),
    ("{a: 1}", {"a": 1}, ("unquoted-key",)),
    ("[True, False, None]", [True, False, None], ("python-literal",)),
    ("(1, 2)", [1, 2], ("python-literal",)),
    ("{'a', 'b'}", ["a", "b"], ("single-quotes", "python-set")),
    ('{"a": 1} // why', {"a": 1}, ("comment",)),
    ('{"a": /* one */ 1}', {"a": 1}, ("comment",)),
    ("{“a”: “b”}", {"a": "b"}, ("smart-quotes",)),
    ('{"a": "say “hi”"}', {"a": "say “hi”"}, ()),
    ('{"a": "two\nlines"}', {"a": "two\nlines"}, ("raw-newline",)),
    ('```json\n{"a": 1}\n```', {"a": 1}, ("code-fence",)),
    ("'''a'b'''", "a'b", ("single-quotes", "python-literal")),
    (r'{"a": "\d+"}', {"a": r"\d+"}, ("invalid-escape",)),
    (
        r'{"a": "\u00e9\ud83c\udf89", "b": \'\x41\'}'.replace("\\'", "'"),
        {"a": "é🎉", "b": "A"},
        ("single-quotes",),
    ),
    ("123456789012345678901234567890", 123456789012345678901234567890, ()),
    ("[-1, +2, 1e3, .5]", [-1, 2, 1000.0, 0.5], ("python-literal",)),
]


@pytest.mark.parametrize(("text", "value", "repairs"), ROWS)
def test_parse_json_row_gives_value_and_repairs(
    text: str, value: Any, repairs: tuple[str, ...]
) -> None:
    assert jsonish.parse_json(text) == (value, repairs)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"',
        '{"a": }',
        "{a b}",
        "[1 2]",
        "hello",
        "{'a': it's}",
        '{"a": 1} x',
        "f(x)",
        "[" * 500,
    ],
)
def test_parse_json_invalid_text_raises(text: str) -> None:
    with pytest.raises(jsonish.LenientJsonError):
        jsonish.parse_json(text)


def test_parse_json_adds_closers_only_if_allowed() -> None:
    assert jsonish.parse_json('{"a": [1, {"b": 2', allow_missing_closers=True) == (
        {"a": [1, {"b": 2}]},
        ("missing-closer",),
    )
    with pytest.raises(jsonish.IncompleteJson):
        jsonish.parse_json('{"a": [1, {"b": 2')
    with pytest.raises(jsonish.IncompleteJson):
        jsonish.parse_json('{"a": "cut o', allow_missing_closers=True)


@given(st.text())
def test_parse_json_any_text_returns_or_raises(text: str) -> None:
    try:
        jsonish.parse_json(text, allow_missing_closers=True)
    except jsonish.LenientJsonError:
        pass


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_parse_json_python_repr_is_read_back(value: Any) -> None:
    assert jsonish.parse_json(repr(value))[0] == value
