"""Cost of converting requests and streams from one API to another.

Prints CPU times, each beside the same work through the pydantic models of a vendor's SDK.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from toolspeak import Request, TextDelta
from toolspeak._util import encode_json
from toolspeak.wires import WIRES, Envelope, StreamDecoder
from toolspeak.wires.framing import decode_json

_TOOLS, _BYTES, _DELTAS = 40, 100_000, 2000
_PATIENCE = 0.5


def build_request_body(tools: int = _TOOLS, size: int = _BYTES) -> dict[str, Any]:
    """Return a request like those of agents: many tools with rich schemas, and some history."""
    declared = [{"type": "function", "function": _build_function(index)} for index in range(tools)]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent. " * 200}]
    turn = 0
    while len(json.dumps({"messages": messages, "tools": declared})) < size:
        turn += 1
        arguments = json.dumps({"path": f"src/file_{turn}.py", "limit": 200})
        function = {"name": "tool_1", "arguments": arguments}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        result = f"line {turn} of the file\n" * 40
        messages += [
            {"role": "user", "content": f"Now look at file {turn}."},
            {"role": "assistant", "content": "Reading it.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": result},
        ]
    return {"model": "m", "messages": messages, "tools": declared, "stream": True}


def _build_function(index: int) -> dict[str, Any]:
    text = "What this parameter is for, and which values it takes, in a sentence or two. "
    properties = {
        f"parameter_{number}": {"type": kind, "description": text}
        for number, kind in enumerate(("string", "integer", "boolean", "array"))
    }
    schema = {"type": "object", "properties": properties, "required": ["parameter_0"]}
    return {"name": f"tool_{index}", "description": text * 4, "parameters": schema}


def measure_microseconds(work: Callable[[], object], runs: int = 1) -> float:
    """Return the CPU microseconds of one run: the best of those in half a second."""
    best, spent = float("inf"), 0.0
    work()
    while spent < _PATIENCE:
        begun = time.process_time()
        work()
        taken = time.process_time() - begun
        best, spent = min(best, taken), spent + taken
    return best / runs * 1e6


def build_stream(wire: str, deltas: int) -> list[bytes]:
    """Return a stream of short chunks of text."""
    encoder = WIRES[wire].stream_encoder(Envelope(Request(model="m", messages=())))
    return [encoder.feed(TextDelta("word ")) for _ in range(deltas)]


def relay_stream(chunks: list[bytes], upstream: str, client: str) -> Callable[[], object]:
    """Decode every chunk and encode its events."""

    def work() -> None:
        decoder = StreamDecoder(WIRES[upstream])
        encoder = WIRES[client].stream_encoder(Envelope(Request(model="m", messages=())))
        for chunk in chunks:
            for event in decoder.feed(chunk):
                encoder.feed(event)

    return work


def measure_rows() -> list[tuple[str, float, float | None]]:
    """Yield (label, microseconds of Toolspeak, microseconds of the SDK's models)."""
    body = encode_json(build_request_body())
    found: list[tuple[str, float, float | None]] = []
    for upstream in WIRES:

        def pass_on(upstream: str = upstream) -> object:
            request = WIRES["openai_chat"].decode_request(decode_json(body))
            return encode_json(WIRES[upstream].encode_request(request).body)

        sdk = _convert_with_sdk(body) if upstream == "anthropic" else None
        found.append((f"request, openai_chat to {upstream}", measure_microseconds(pass_on), sdk))
    for upstream in WIRES:
        for client in WIRES:
            chunks = build_stream(upstream, _DELTAS)
            cost = measure_microseconds(relay_stream(chunks, upstream, client), _DELTAS)
            sdk = _relay_with_sdk() if (upstream, client) == ("openai_chat", "anthropic") else None
            found.append((f"text delta, {upstream} to {client}", cost, sdk))
    return found


def _convert_with_sdk(body: bytes) -> float:
    """Validate the request as one SDK's parameters and write another's tools and messages."""
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
    from pydantic import TypeAdapter

    messages = TypeAdapter(list[ChatCompletionMessageParam])
    tools = TypeAdapter(list[ChatCompletionToolParam])

    def work() -> object:
        decoded = json.loads(body)
        read = messages.validate_python(decoded["messages"])
        return messages.dump_json(read) + tools.dump_json(tools.validate_python(decoded["tools"]))

    return measure_microseconds(work)


def _relay_with_sdk() -> float:
    """Validate each chunk as one SDK's model and write the other SDK's model."""
    from anthropic.types import RawContentBlockDeltaEvent
    from openai.types.chat import ChatCompletionChunk

    encoded = [chunk[6:] for chunk in build_stream("openai_chat", _DELTAS)[1:]]

    def work() -> None:
        for data in encoded:
            text = ChatCompletionChunk.model_validate_json(data).choices[0].delta.content
            delta = {"type": "text_delta", "text": text}
            event = {"type": "content_block_delta", "index": 0, "delta": delta}
            RawContentBlockDeltaEvent.model_validate(event).model_dump_json()

    return measure_microseconds(work, len(encoded))


def main() -> int:
    table = Table("", "toolspeak", "SDK models", "ratio", title="CPU, microseconds")
    for what, ours, theirs in measure_rows():
        ratio = f"{ours / theirs:.2f}" if theirs else ""
        table.add_row(what, f"{ours:.1f}", f"{theirs:.1f}" if theirs else "", ratio)
    size = len(encode_json(build_request_body()))
    console = Console(width=100 if not sys.stdout.isatty() else None)
    console.print(table)
    console.print(f"A request has {size:,} bytes and {_TOOLS} tools.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
