"""Limits on the bodies of requests: their sizes and counts, and the work of their schemas."""

from __future__ import annotations

from typing import Any

from .._util import memoize_by_identity
from ..calls.json_values import find_json_excess, is_nested_deeper
from ..calls.schema_expansion import is_endless
from ..config.settings import Limits
from ..errors import WireError
from ..types import Failure, Request, Tool
from ..upstream.worker_thread import LARGE, WorkerThread
from ..wires.framing import decode_json, encode_json
from .http import HttpRequest, Refused

_MESSAGE_FIELDS = ("messages", "input", "contents")
_TOOL_FIELDS = ("tools", "functions")
_GROUP_FIELDS = ("functionDeclarations", "function_declarations", "tools")


async def read_json(request: HttpRequest, limits: Limits, worker: WorkerThread) -> dict[str, Any]:
    """Return the body of a request, which must be a JSON object within the limits."""
    data = await request.read_body(limits.body_bytes)
    if request.capture:
        request.capture.set_body(data)
    return await worker.run_if(len(data) > LARGE, decode_body, data, limits)


def decode_body(data: bytes, limits: Limits) -> dict[str, Any]:
    """Return the JSON object in a body; raise if it is none, or exceeds a limit."""
    if not data:
        raise WireError("the request body is empty; send a JSON object")
    if excess := find_json_excess(data, limits.json_values):
        message = f"the request {excess}; send less, or raise `limits.json_values`"
        raise Refused(Failure("too_large", message, 413))
    value = decode_json(data)
    if not isinstance(value, dict):
        raise WireError("the request body must be a JSON object")
    if is_nested_deeper(value, data, limits.json_depth):
        problem = f"the request is nested more than {limits.json_depth} levels deep; "
        raise WireError(problem + "nest it less deeply, or raise `limits.json_depth`")
    _check_counts(value, len(data), limits)
    return value


def check_schemas(request: Request) -> None:
    """Raise if a schema of a request cannot be validated in any reasonable time."""
    if request.tools and (name := _find_endless_schema(request.tools)):
        message = f"the schema of the tool {name!r} is too large once its `$ref`s are expanded"
        raise WireError(message, "$.tools")
    wanted = request.response_format
    if wanted and wanted.schema and is_endless(wanted.schema):
        message = "the schema of the response format is too large once its `$ref`s are expanded"
        raise WireError(message)


@memoize_by_identity
def _find_endless_schema(tools: tuple[Tool, ...]) -> str:
    """Return the name of a tool with such a schema; "" if there is none."""
    return next((tool.name[:100] for tool in tools if is_endless(tool.parameters)), "")


def _check_counts(body: dict[str, Any], size: int, limits: Limits) -> None:
    for field in _MESSAGE_FIELDS:
        messages = body.get(field)
        if isinstance(messages, list) and len(messages) > limits.messages:
            _refuse(field, f"has {len(messages)} messages", limits.messages, "messages")
    for field in _TOOL_FIELDS:
        tools = body.get(field)
        if not isinstance(tools, list):
            continue
        if (count := _count_tools(tools)) > limits.tools:
            _refuse(field, f"has {count} tools", limits.tools, "tools")
        if size > limits.tool_bytes and (length := len(encode_json(tools))) > limits.tool_bytes:
            _refuse(field, f"has tools of {length} bytes", limits.tool_bytes, "tool_bytes")


def _count_tools(tools: list[Any]) -> int:
    """Return the number of tools, with those in groups."""
    count = len(tools)
    for tool in tools:
        for field in _GROUP_FIELDS if isinstance(tool, dict) else ():
            if (group := tool.get(field)) and isinstance(group, list):
                count += len(group) - 1
    return count


def _refuse(field: str, problem: str, limit: int, setting: str) -> None:
    message = f"the request {problem}, and at most {limit} are allowed; "
    message += f"send fewer, or raise `limits.{setting}`"
    raise Refused(Failure("too_large", message, 400, param=field))
