"""Placeholders: values that only stand for a value, as in an example or in documentation.

{"city": "..."}   {"city": "<city>"}   {"city": "YOUR_CITY"}   {"path": "{file_path}"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .schema import resolve_ref, select_branch

_DOTS = frozenset({"...", "…", "<...>", "<…>"})
_BRACKETED = re.compile(
    r"<([A-Za-z][\w \-]*)>|\{\{? *([A-Za-z][\w \-]*)\}\}?|\[([A-Za-z][\w \-]*)\]"
)
_ABBREVIATION = re.compile(r"<[a-z]{3,}>", re.I)
"""Three letters at least: `<br>` and `<li>` are HTML."""
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}|%(\w+)%")
_PLAINLY = re.compile(
    r"\.{3,}|<<[\w \-]+>>|<[a-z]+(?: [a-z]+){2,}>|<\w+(?:/\w+)+>|your_\w+_here|<your[ _]\w+>", re.I
)
_STAND_INS = re.compile(
    r"(?:your|insert|some|the|a|an|my)[_ \-].*|.*[_ \-]here"
    r"|(?:arg|argument|param|parameter|value|name|string|text|number|integer|placeholder|example"
    r"|type|key|foo|bar)(?:[_ \-]?(?:\d+|name|value))?",
    re.I,
)

_YOURS = re.compile(r"<?your[_ ][\w ]+[_ ]here>?|<your[ _]\w+>|YOUR_[A-Z_]+")
_CHARACTER_CLASS = re.compile(r"\[(?:\^[^\]]+|(?:\w-\w|\\\w|_|[^\w\s\]])+)\]")
"""`[a-z]` and `[^x]` are patterns, not names in brackets."""
_COMMANDS = frozenset({"command", "cmd"})
_TEXTS = frozenset(
    (
        *("pattern", "regex", "regexp", "glob", "query", "selector", "xpath", "jsonpath", "sql"),
        *("code", "script", "source", "expression", "html", "css", "xml", "json", "template"),
        *("content", "contents", "text", "body", "snippet", "patch", "diff"),
        *("find", "search", "replace", "replacement"),
    )
)
_STRINGS = frozenset({"old_string", "new_string", "old_str", "new_str", "search_string"})
"""Keys whose values are code or patterns, in which brackets and capitals mean something."""
_CHOICES = ("anyOf", "oneOf", "allOf")
_DEEPEST = 64


def find_placeholder(arguments: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> str:
    """Where the first value stands that only stands for a value, as in an explanation; "" if there
    is none. A value that the schema lists is meant."""
    root = schema or {}
    pending: list[tuple[str, str, Any, Any]] = [("", "", arguments, root)]
    while pending:
        where, key, value, declared = pending.pop()
        if isinstance(value, str):
            if is_placeholder(value, key) and not _lists(declared, root, value):
                return where
        elif where.count(".") >= _DEEPEST:
            continue
        elif isinstance(value, Mapping):
            inner = _properties(declared, root)
            pending += [
                (f"{where}.{name}".lstrip("."), name, item, inner.get(name, {}))
                for name, item in reversed(list(value.items()))
            ]
        elif isinstance(value, list):
            items = select_branch(declared, root, "array").get("items")
            pending += [(where, key, item, items) for item in reversed(value)]
    return ""


def _properties(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of an object within a schema."""
    declared = select_branch(schema, root, "object").get("properties")
    return declared if isinstance(declared, dict) else {}


def _lists(schema: Any, root: Mapping[str, Any], value: str, depth: int = 8) -> bool:
    """Whether a schema names this very value."""
    schema = resolve_ref(schema, root)
    named = schema.get("enum")
    if schema.get("const") == value or (isinstance(named, list) and value in named):
        return True
    choices = (choice for word in _CHOICES for choice in schema.get(word) or () if depth)
    return any(_lists(choice, root, value, depth - 1) for choice in choices)


def is_placeholder(value: str, key: str) -> bool:
    """Whether a text is `...`, `<value>`, `<city>`, `CITY`, `$CITY`, `YOUR_CITY` and the like. What
    may be code or a pattern is so only if it could be nothing else."""
    value = value.strip()
    if value in _DOTS or _YOURS.fullmatch(value):
        return True
    if _holds_code(key):
        own = value.startswith("<") and _plain(value[1:-1]) == _plain(key)
        return own or re.fullmatch(r"\.{3,}", value) is not None
    if _PLAINLY.fullmatch(value):
        return True
    if _CHARACTER_CLASS.fullmatch(value):
        return False
    any_name = _plain(key) not in _COMMANDS
    if bracketed := _BRACKETED.fullmatch(value):
        word = bracketed[bracketed.lastindex or 0].strip()
        return (
            f"_{_plain(word)}".endswith(f"_{_plain(key)}")
            or (any_name and _STAND_INS.fullmatch(word) is not None)
            or (_ABBREVIATION.fullmatch(value) is not None and _abbreviates(word.lower(), key))
        )
    if variable := _VARIABLE.fullmatch(value):
        return _is_shouted(variable[variable.lastindex or 0].upper(), key)
    return value.isupper() and value.replace("_", "").isalpha() and _is_shouted(value, key)


def _holds_code(key: str) -> bool:
    """`pattern`, `searchPattern` and `old_string` hold code; `query_id` and `text_color` do not."""
    plain = _plain(key)
    return plain in _STRINGS or plain.rpartition("_")[2] in _TEXTS


def _is_shouted(word: str, key: str) -> bool:
    """Whether a word in capitals stands for the value of a parameter. `$HOME` does not: it is what
    a shell puts in; nor does `$GITHUB_TOKEN` for a token."""
    own = word in (key.upper(), _plain(key).upper())
    return own or word in {"NAME", "VALUE"} or word.startswith("YOUR_")


def _abbreviates(word: str, key: str) -> bool:
    """Whether a word is short for one word of a key, as `cmd` is for `command` and `dir` for
    `working_directory`: its letters in their order, from the first on."""
    for part in _plain(key).split("_"):
        letters = iter(part)
        if part.startswith(word[0]) and all(letter in letters for letter in word):
            return True
    return False


def _plain(name: str) -> str:
    """`filePath`, `file-path` and `file path` are all `file_path`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[\s\-]+", "_", name.strip()).lower()
