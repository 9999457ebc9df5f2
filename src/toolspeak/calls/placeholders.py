"""Detect placeholders: arguments that only stand for a value, as in an example.

{"city": "..."}   {"city": "<city>"}   {"city": "YOUR_CITY"}   {"path": "{file_path}"}

Values that may be code (`pattern`, `old_string`) count only if they cannot be anything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .schema import get_properties, lists_value, select_branch

_DOTS = frozenset({"...", "…", "<...>", "<…>"})
_CERTAIN_IN_CODE = re.compile(r"<?your[_ ][\w ]+[_ ]here>?|<your[ _]\w+>|YOUR_[A-Z_]+")
_CERTAIN = re.compile(
    r"\.{3,}|<<[\w \-]+>>|<[a-z]+(?: [a-z]+){2,}>|<\w+(?:/\w+)+>|your_\w+_here|<your[ _]\w+>", re.I
)
_BRACKETED = re.compile(
    r"<([A-Za-z][\w \-]*)>|\{\{? *([A-Za-z][\w \-]*)\}\}?|\[([A-Za-z][\w \-]*)\]"
)
_GENERIC_WORD = re.compile(
    r"(?:your|insert|some|the|a|an|my)[_ \-].*|.*[_ \-]here"
    r"|(?:arg|argument|param|parameter|value|name|string|text|number|integer|placeholder|example"
    r"|type|key|foo|bar)(?:[_ \-]?(?:\d+|name|value))?",
    re.I,
)
_ABBREVIATION = re.compile(r"<[a-z]{3,}>", re.I)
"""At least three letters: `<br>` and `<li>` are HTML."""
_CHARACTER_CLASS = re.compile(r"\[(?:\^[^\]]+|(?:\w-\w|\\\w|_|[^\w\s\]])+)\]")
"""`[a-z]` and `[^x]` are patterns, not names in brackets."""
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}|%(\w+)%")
_COMMAND_KEYS = frozenset({"command", "cmd"})
_CODE_KEYS = frozenset({"old_string", "new_string", "old_str", "new_str", "search_string"})
_CODE_KEY_ENDINGS = frozenset(
    (
        *("pattern", "regex", "regexp", "glob", "query", "selector", "xpath", "jsonpath", "sql"),
        *("code", "script", "source", "expression", "html", "css", "xml", "json", "template"),
        *("content", "contents", "text", "body", "snippet", "patch", "diff"),
        *("find", "search", "replace", "replacement"),
    )
)
"""Values under these keys are code or patterns, in which brackets and capitals have a meaning."""
_MAX_DEPTH = 64


def find_placeholder(arguments: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> str:
    """Return the path of the first placeholder, or "". Values listed in the schema do not count."""
    root = schema or {}
    pending: list[tuple[str, str, Any, Any]] = [("", "", arguments, root)]
    while pending:
        path, key, value, declared = pending.pop()
        if isinstance(value, str):
            if is_placeholder(value, key) and not lists_value(declared, root, value):
                return path
        elif path.count(".") >= _MAX_DEPTH:
            continue
        elif isinstance(value, Mapping):
            properties = get_properties(select_branch(declared, root, "object"))
            pending += [
                (f"{path}.{name}".lstrip("."), name, item, properties.get(name, {}))
                for name, item in reversed(list(value.items()))
            ]
        elif isinstance(value, list):
            items = select_branch(declared, root, "array").get("items")
            pending += [(path, key, item, items) for item in reversed(value)]
    return ""


def is_placeholder(value: str, key: str) -> bool:
    """Return True if the value of a parameter is `...`, `<value>`, `<city>`, `CITY`, `$CITY`,
    `YOUR_CITY` or the like."""
    value = value.strip()
    if value in _DOTS or _CERTAIN_IN_CODE.fullmatch(value):
        return True
    if _holds_code(key):
        names_key = value.startswith("<") and _to_snake_case(value[1:-1]) == _to_snake_case(key)
        return names_key or re.fullmatch(r"\.{3,}", value) is not None
    if _CERTAIN.fullmatch(value):
        return True
    if _CHARACTER_CLASS.fullmatch(value):
        return False
    if bracketed := _BRACKETED.fullmatch(value):
        return _is_bracketed_placeholder(value, bracketed[bracketed.lastindex or 0].strip(), key)
    if variable := _VARIABLE.fullmatch(value):
        return _is_uppercase_placeholder(variable[variable.lastindex or 0].upper(), key)
    is_uppercase = value.isupper() and value.replace("_", "").isalpha()
    return is_uppercase and _is_uppercase_placeholder(value, key)


def _is_bracketed_placeholder(value: str, word: str, key: str) -> bool:
    """Check a `word` in brackets: it names the parameter, is generic, or abbreviates the name."""
    # In a command, `<name>` may be a redirection or an argument of another program.
    can_be_generic = _to_snake_case(key) not in _COMMAND_KEYS
    return (
        f"_{_to_snake_case(word)}".endswith(f"_{_to_snake_case(key)}")
        or (can_be_generic and _GENERIC_WORD.fullmatch(word) is not None)
        or (_ABBREVIATION.fullmatch(value) is not None and _abbreviates(word.lower(), key))
    )


def _holds_code(key: str) -> bool:
    """`pattern`, `searchPattern` and `old_string` hold code; `query_id` and `text_color` do not."""
    name = _to_snake_case(key)
    return name in _CODE_KEYS or name.rpartition("_")[2] in _CODE_KEY_ENDINGS


def _is_uppercase_placeholder(word: str, key: str) -> bool:
    """`CITY` stands for the value of `city`. `$HOME` does not, since a shell expands it; nor does
    `$GITHUB_TOKEN` for `token`."""
    names_key = word in (key.upper(), _to_snake_case(key).upper())
    return names_key or word in {"NAME", "VALUE"} or word.startswith("YOUR_")


def _abbreviates(word: str, key: str) -> bool:
    """`cmd` abbreviates `command`, and `dir` abbreviates `working_directory`: the letters appear in
    one word of the key in this order, beginning with its first."""
    for part in _to_snake_case(key).split("_"):
        letters = iter(part)
        if part.startswith(word[0]) and all(letter in letters for letter in word):
            return True
    return False


def _to_snake_case(name: str) -> str:
    """`filePath`, `file-path` and `file path` all become `file_path`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[\s\-]+", "_", name.strip()).lower()
