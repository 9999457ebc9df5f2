"""A model that is held to a JSON schema: it can write a valid call, or an answer, and nothing else.

{"tool": "get_weather", "arguments": {"city": "Oslo"}}          {"answer": "It is sunny."}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..calls.schema import resolve_ref
from ..dialects import Dialect, Parser
from ..dialects.template import JsonKeys
from ..events import Event, Finish, TextDelta
from ..types import Request, ResponseFormat, Tool
from .plan import CONSTRAINED
from .tool_names import OfferedTools

DIALECT = Dialect(
    name=CONSTRAINED,
    call_templates=("$object",),
    json_keys=JsonKeys("tool", "arguments"),
    evidence="whole",
    parallel=False,
    answer_template='{"answer": $text_json}',
    result_template="Result: $content",
    description="What a model writes that is held to a JSON schema",
)
_KEPT = ("type", "enum", "const", "required", "description", "minimum", "maximum", "minItems")
_DEEPEST = 12
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=(\S))')
_HEAD = re.compile(r'\s*(?:\{\s*(?:"(?:a(?:n(?:s(?:w(?:e(?:r(?:"\s*(?::\s*)?)?)?)?)?)?)?)?)?)?')
"""What may still become an answer."""
_SAFE = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+"
)
"""As much of a JSON string as can be decoded by itself."""


def response_format(request: Request, offered: OfferedTools) -> ResponseFormat:
    """What the upstream is to hold the model to."""
    may_answer = request.tool_choice.mode != "required" or not offered.tools
    branches = [_call_schema(tool) for tool in offered.tools]
    if may_answer:
        branches.append(_answer_schema(request.response_format))
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return ResponseFormat(schema, "reply", strict=True)


def _call_schema(tool: Tool) -> dict[str, Any]:
    arguments = simple(tool.parameters, tool.parameters) or {"type": "object"}
    return _object({"tool": {"const": tool.name}, "arguments": arguments})


def _answer_schema(wanted: ResponseFormat | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if wanted:
        schema = simple(wanted.schema, wanted.schema) if wanted.schema else {"type": "object"}
    return _object({"answer": schema})


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def simple(schema: Any, root: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """A schema in the few words that every server understands; the whole of it is checked later."""
    whole = resolve_ref(schema, root)
    if depth > _DEEPEST:
        return {}
    out = {key: whole[key] for key in _KEPT if key in whole}
    if isinstance(whole.get("properties"), dict):
        out["properties"] = {
            key: simple(item, root, depth + 1) for key, item in whole["properties"].items()
        }
    for word in ("items", "additionalProperties"):
        if isinstance(whole.get(word), dict):
            out[word] = simple(whole[word], root, depth + 1)
    if whole.get("additionalProperties") is False:
        out["additionalProperties"] = False
    for word in ("anyOf", "oneOf"):
        if isinstance(whole.get(word), list) and whole[word]:
            out["anyOf"] = [simple(item, root, depth + 1) for item in whole[word]]
    return out


class ConstrainedReader:
    """Reads what such a model says: an answer as it comes, a call when it is whole."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._held = ""
        self._feed = self._head

    def feed(self, text: str) -> Iterable[Event]:
        """More of the reply."""
        self._held += text
        return self._feed()

    @property
    def in_call(self) -> bool:
        """Whether a call has begun that is not over."""
        return self._feed == self._call

    def finish(self) -> Iterable[Event]:
        """The reply is over."""
        if self._feed == self._words:
            return self._said(self._held)
        if self._feed == self._value:
            return self._said(_answer_in(self._held) or self._held)
        if self._feed == self._nothing:
            return [Finish()]
        return [*self._parser.feed(self._held), *self._parser.finish()]

    def _said(self, text: str) -> Iterable[Event]:
        return [TextDelta(text), Finish()] if text else [Finish()]

    def _head(self) -> Iterable[Event]:
        """Nothing is known yet."""
        match = _ANSWER.match(self._held)
        if match and match[1] == '"':
            self._held, self._feed = self._held[match.end() + 1 :], self._words
        elif match:
            self._feed = self._value
        elif _HEAD.fullmatch(self._held):
            return ()
        else:
            self._feed = self._call
        return self._feed()

    def _call(self) -> Iterable[Event]:
        text, self._held = self._held, ""
        return self._parser.feed(text)

    def _words(self) -> Iterable[Event]:
        """Inside an answer that is text."""
        match = _SAFE.match(self._held)
        end = match.end() if match else 0
        said, self._held = self._held[:end], self._held[end:]
        if self._held.startswith('"'):
            self._feed = self._nothing
        return [TextDelta(json.loads(f'"{said}"', strict=False))] if said else ()

    def _value(self) -> Iterable[Event]:
        """Inside an answer that is another JSON value: it counts when it is whole."""
        return ()

    def _nothing(self) -> Iterable[Event]:
        """Behind the answer."""
        return ()


def _answer_in(text: str) -> str:
    try:
        return json.dumps(json.loads(text)["answer"], ensure_ascii=False)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
