"""Constrained decoding: a JSON schema that admits only a valid call or an answer.

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
from .plan import CONSTRAINED, OfferedTools

DIALECT = Dialect(
    name=CONSTRAINED,
    call_templates=("$object",),
    json_keys=JsonKeys("tool", "arguments"),
    evidence="whole",
    parallel=False,
    answer_template='{"answer": $text_json}',
    result_template="Result: $content",
    description="Replies that are constrained to a JSON schema",
)
_COPIED_KEYWORDS = (
    "type",
    "enum",
    "const",
    "required",
    "description",
    "minimum",
    "maximum",
    "minItems",
)
_MAX_DEPTH = 12
_ANSWER_START = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=(\S))')
_PARTIAL_START = re.compile(
    r'\s*(?:\{\s*(?:"(?:a(?:n(?:s(?:w(?:e(?:r(?:"\s*(?::\s*)?)?)?)?)?)?)?)?)?)?'
)
"""Matches a start that may still become an answer."""
_DECODABLE = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+"
)
"""Matches as much of a JSON string as can be decoded on its own."""


def build_response_format(request: Request, offered: OfferedTools) -> ResponseFormat:
    """Return the schema that admits a call to one of the tools, or an answer."""
    may_answer = request.tool_choice.mode != "required" or not offered.allowed
    branches = [_build_call_schema(tool) for tool in offered.allowed]
    if may_answer:
        branches.append(_build_answer_schema(request.response_format))
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return ResponseFormat(schema, "reply", strict=True)


def _build_call_schema(tool: Tool) -> dict[str, Any]:
    arguments = simplify_schema(tool.parameters, tool.parameters) or {"type": "object"}
    return _build_object_schema({"tool": {"const": tool.name}, "arguments": arguments})


def _build_answer_schema(wanted: ResponseFormat | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if wanted:
        schema = (
            simplify_schema(wanted.schema, wanted.schema) if wanted.schema else {"type": "object"}
        )
    return _build_object_schema({"answer": schema})


def _build_object_schema(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def simplify_schema(schema: Any, root: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return a schema with only the keywords that every server supports.

    The reply is validated against the full schema later.
    """
    whole = resolve_ref(schema, root)
    if depth > _MAX_DEPTH:
        return {}
    out = {key: whole[key] for key in _COPIED_KEYWORDS if key in whole}
    if isinstance(whole.get("properties"), dict):
        out["properties"] = {
            key: simplify_schema(item, root, depth + 1) for key, item in whole["properties"].items()
        }
    for word in ("items", "additionalProperties"):
        if isinstance(whole.get(word), dict):
            out[word] = simplify_schema(whole[word], root, depth + 1)
    if whole.get("additionalProperties") is False:
        out["additionalProperties"] = False
    for word in ("anyOf", "oneOf"):
        if isinstance(whole.get(word), list) and whole[word]:
            out["anyOf"] = [simplify_schema(item, root, depth + 1) for item in whole[word]]
    return out


class ConstrainedReader:
    """Reads a constrained reply: an answer streams as text, a call is parsed."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._buffer = ""
        self._state = self._read_start

    def feed(self, text: str) -> Iterable[Event]:
        self._buffer += text
        return self._state()

    @property
    def is_in_call(self) -> bool:
        """True while a call has started and not ended."""
        return self._state == self._read_call

    def finish(self, *, is_complete: bool) -> Iterable[Event]:
        if self._state == self._read_text_answer:
            return self._emit_text(self._buffer)
        if self._state == self._read_value_answer:
            return self._emit_text(_extract_answer(self._buffer) or self._buffer)
        if self._state == self._ignore_rest:
            return [Finish()]
        return self._parser.events([self._buffer], is_complete=is_complete)

    def find_calls_in_reasoning(self, reasoning: str) -> Iterable[Event]:
        """Return nothing: a constrained reply says itself whether it is a call or an answer."""
        return ()

    def _emit_text(self, text: str) -> Iterable[Event]:
        return [TextDelta(text), Finish()] if text else [Finish()]

    def _read_start(self) -> Iterable[Event]:
        """Decide whether the reply is an answer or a call."""
        match = _ANSWER_START.match(self._buffer)
        if match and match[1] == '"':
            self._buffer, self._state = self._buffer[match.end() + 1 :], self._read_text_answer
        elif match:
            self._state = self._read_value_answer
        elif _PARTIAL_START.fullmatch(self._buffer):
            return ()
        else:
            self._state = self._read_call
        return self._state()

    def _read_call(self) -> Iterable[Event]:
        text, self._buffer = self._buffer, ""
        return self._parser.feed(text)

    def _read_text_answer(self) -> Iterable[Event]:
        """Stream an answer that is a JSON string."""
        match = _DECODABLE.match(self._buffer)
        end = match.end() if match else 0
        said, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._buffer.startswith('"'):
            self._state = self._ignore_rest
        return [TextDelta(json.loads(f'"{said}"', strict=False))] if said else ()

    def _read_value_answer(self) -> Iterable[Event]:
        """Wait for the end of an answer that is another JSON value."""
        return ()

    def _ignore_rest(self) -> Iterable[Event]:
        """Ignore what follows the answer."""
        return ()


def _extract_answer(text: str) -> str:
    try:
        return json.dumps(json.loads(text)["answer"], ensure_ascii=False)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
