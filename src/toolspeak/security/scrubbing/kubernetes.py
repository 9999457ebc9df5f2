"""Finds the values of Kubernetes Secrets, in YAML and in JSON.

    kind: Secret
    data:
      username: YWRtaW4t…         every value under `data` and `stringData` is a secret
    stringData:
      config.ini: |
        key = …

`kind` may follow the data, as `kubectl get -o yaml` sorts the names. Where it is too far away,
`data` is that of a Secret if all its values are base64. A ConfigMap is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from .rules import MIN_LENGTH, is_placeholder
from .windows import (
    QUOTE,
    Span,
    Window,
    count_escape_levels,
    match_end,
    quoted_value,
)

DATA_CUE = "data"
_BEFORE = 256
"""This many characters before the cue may show the kind of the object."""
_NEWLINE = r"(?:\r?\n|\\n)"
_NUMBER = r"(?:[ ]{0,8}\d{1,6}(?:\t|→|:[ ]?|[ ]\|[ ]))?"
"""The number of a line: many tools print one before it."""
_MAY_BE_DATA = re.compile(
    r"""[dD]ata(?:\\*"\s{0,8}:\s{0,8}\{(?:\s|\\[nrt]){0,64}\\*"
    |[ ]{0,4}:[ \t]{0,4}(?=\r?\n|\\n))""",
    re.VERBOSE,
)
_DATA_LINE_START = re.compile(
    rf"""(?:^|\n|\\n|["']){_NUMBER}(?P<indent>(?:[ ]|-[ ]){{0,32}})(?P<is_text>string)?\Z"""
)
_JSON_START = re.compile(r"""\\*"(?P<is_text>string)?\Z""")
_JSON_ENTRY = re.compile(
    r"""(?:\s|,|\\[nrt]){0,64}\\*"(?P<name>[\w.-]{1,128})\\*"\s{0,8}:\s{0,8}(?=\\*")"""
)
_JSON_KIND = re.compile(r"""\\*"kind\\*"\s{0,8}:\s{0,8}\\*"(?P<kind>\w{1,64})""")
_JSON_KIND_AFTER = re.compile(
    rf"""\\*"?(?:\s|\\[nrt]){{0,64}}\}}(?:\s|\\[nrt]){{0,64}},(?:\s|\\[nrt]){{0,64}}
    (?:\\*"immutable\\*":\s?\w{{4,5}},(?:\s|\\[nrt]){{0,64}})?{_JSON_KIND.pattern}""",
    re.VERBOSE,
)
_JSON_BOUNDARY = re.compile(r"""\}(?:\s|\\[nrt]){0,64},(?:\s|\\[nrt]){0,64}\{""")
_YAML_ENTRY = re.compile(
    rf"""(?:{_NEWLINE}{_NUMBER}[ ]{{0,64}}(?:\#[^\n]{{0,400}})?(?={_NEWLINE})){{0,16}}
    {_NEWLINE}{_NUMBER}(?P<indent>[ ]{{1,64}})(?P<name>["']?[\w./-]{{1,253}}["']?):[ \t]{{1,8}}
    (?P<block>[|>][+-]?\d?[ \t]{{0,8}}{_NEWLINE}{_NUMBER}[ ]{{1,64}})?""",
    re.VERBOSE,
)
_YAML_KIND = re.compile(r"""(?:^|[\s"'-]|\\n)kind:[ ]{1,4}["']?(?P<kind>\w{1,64})""")
_PLAIN_VALUE = re.compile(r"""(?:[^\s\\"'#]++|[ \t]++(?![#\s]|\\n)|(?<!\s)\#|'|\\(?!n|["']|$))*+""")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_CUT_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_IS_LIKELY_SECRET = re.compile(
    r"""apiVersion\\*["']?:[ ]?\\*["']?v1\b
    |\btype\\*["']?:[ ]?\\*["']?(?:Opaque|kubernetes\.io/|helm\.sh/)""",
    re.VERBOSE,
)


class _SecretEntry(NamedTuple):
    """A name under `data`, and its value."""

    name: str
    start: int
    end: int
    body: re.Pattern[str]
    escape_levels: int = 0


def may_be_data(text: str, at: int) -> object:
    """Return a true value if a mapping may begin at `data`."""
    return _MAY_BE_DATA.match(text, at)


def find_kubernetes_values(window: Window) -> Iterator[Span]:
    """Yield the values of a Secret whose `data` or `stringData` begins at the window."""
    opening = _MAY_BE_DATA.match(window.text, window.at, window.end)
    if not opening:
        return
    is_json = '"' in opening[0]
    before_at = max(0, window.at - _BEFORE)
    start = (_JSON_START if is_json else _DATA_LINE_START).search(window.text, before_at, window.at)
    if not start:
        return
    indent = 0 if is_json else len(start["indent"])
    entries = list(_read_json(window, opening) if is_json else _read_yaml(window, opening, indent))
    if not entries:
        return
    kind = _find_json_kind(window, entries) if is_json else _find_yaml_kind(window, entries, indent)
    if kind == "Secret" or (not kind and (start["is_text"] or _is_likely_secret(window, entries))):
        for entry in entries:
            value = window.text[entry.start : entry.end]
            if len(value) >= MIN_LENGTH and not is_placeholder(value):
                yield _make_span(window, entry)


def _make_span(window: Window, entry: _SecretEntry) -> Span:
    read_more = window.continue_from(entry.end, entry.body)
    kind, levels = "Kubernetes secret", entry.escape_levels
    return Span(entry.start, entry.end, kind, entry.name, levels, read_more)


# Entries.


def _read_json(window: Window, opening: re.Match[str]) -> Iterator[_SecretEntry]:
    at = opening.end() - len(opening[0]) + opening[0].index("{") + 1
    while name := _JSON_ENTRY.match(window.text, at, window.end):
        entry = _read_quoted(window, name["name"], name.end())
        if not entry:
            return
        yield entry
        at = match_end(QUOTE, window.text, entry.end, window.end)


def _read_quoted(window: Window, name: str, at: int) -> _SecretEntry | None:
    quote = QUOTE.match(window.text, at, window.end)
    if not quote or not quote["quote"]:
        return None
    backslashes = len(quote["backslashes"])
    body = quoted_value(backslashes, quote["quote"])
    levels = count_escape_levels(backslashes) if quote["quote"] == '"' else 0
    end = match_end(body, window.text, quote.end(), window.end)
    return _SecretEntry(name, quote.end(), end, body, levels)


def _read_yaml(window: Window, opening: re.Match[str], indent: int) -> Iterator[_SecretEntry]:
    at, entry_indent = opening.end(), 0
    while line := _YAML_ENTRY.match(window.text, at, window.end):
        entry_indent = entry_indent or len(line["indent"])
        if len(line["indent"]) != entry_indent or entry_indent <= indent:
            return
        entry = _read_yaml_value(window, line)
        yield entry
        at = entry.end
        if not line["block"]:
            at = match_end(_REST_OF_LINE, window.text, at, window.end)


_REST_OF_LINE = re.compile(r"""(?:[^\n\\]|\\(?!n))*+""")


def _read_yaml_value(window: Window, line: re.Match[str]) -> _SecretEntry:
    name = line["name"].strip("\"'")
    if not line["block"] and (entry := _read_quoted(window, name, line.end())):
        return entry
    body = _block_value(len(line["indent"])) if line["block"] else _PLAIN_VALUE
    return _SecretEntry(
        name, line.end(), match_end(body, window.text, line.end(), window.end), body
    )


@cache
def _block_value(indent: int) -> re.Pattern[str]:
    """Return a pattern for lines that are indented further."""
    newline = rf"{_NEWLINE}(?={_NUMBER}[ ]{{{indent + 1}}}[ ]*+[^\s\\])"
    return re.compile(rf"(?:[^\n\\\r]++|\\(?!n)|{newline})*+")


# Kinds.


def _find_json_kind(window: Window, entries: list[_SecretEntry]) -> str:
    after = _JSON_KIND_AFTER.match(window.text, entries[-1].end, window.end)
    if after:
        return after["kind"]
    before = window.text[max(0, window.at - _BEFORE) : window.at]
    for kind in reversed(list(_JSON_KIND.finditer(before))):
        return "" if _JSON_BOUNDARY.search(before, kind.end()) else kind["kind"]
    return ""


def _find_yaml_kind(window: Window, entries: list[_SecretEntry], indent: int) -> str:
    boundary = _yaml_boundary(indent)
    before = boundary.split(window.text[max(0, window.at - _BEFORE) : window.at])[-1]
    after = boundary.split(window.text[entries[-1].end : window.end], 1)[0]
    kind = _YAML_KIND.search(before) or _yaml_kind_after(indent).search(after)
    return kind["kind"] if kind else ""


@cache
def _yaml_boundary(indent: int) -> re.Pattern[str]:
    """Return a pattern for the lines that separate objects: `---`, or an item of a list at a
    smaller indent than the names of the object."""
    item = rf"|{_NEWLINE}{_NUMBER}[ ]{{0,{indent - 1}}}-(?=[ ])" if indent else ""
    return re.compile(rf"{_NEWLINE}{_NUMBER}---{item}")


@cache
def _yaml_kind_after(indent: int) -> re.Pattern[str]:
    kind = r"""kind:[ ]{1,4}["']?(?P<kind>\w{1,64})"""
    return re.compile(rf"{_NEWLINE}{_NUMBER}[ ]{{{indent}}}{kind}")


def _is_likely_secret(window: Window, entries: list[_SecretEntry]) -> bool:
    """Return True if all values are base64, in an object that may be a Secret."""
    for entry in entries:
        is_cut = entry.end == window.end and window.is_cut
        form = _CUT_BASE64 if is_cut else _BASE64
        if not form.fullmatch(window.text, entry.start, entry.end):
            return False
    around = window.text[max(0, window.at - _BEFORE) : window.end]
    return _IS_LIKELY_SECRET.search(around) is not None
