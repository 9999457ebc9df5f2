"""Clients of each API without an SDK: they send bytes and read the JSON of responses."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import httpx
from msgspec import Struct

HTTP = httpx.Client(verify=False, trust_env=False, timeout=60)
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


class Client(Struct, frozen=True):
    """An API, and whether the client streams."""

    name: str
    wire: str
    path: str
    stream: bool = False

    @property
    def is_array(self) -> bool:
        return self.stream and self.wire == "gemini" and "alt=sse" not in self.path

    def body(
        self, text: str = "Hi", *, tools: int | list[str] = 0, required: bool = False
    ) -> dict[str, Any]:
        """Return the body of a request, with this number of tools or with tools of these names."""
        names = [f"tool_{at}" for at in range(tools)] if isinstance(tools, int) else tools
        return _BODIES[self.wire](text, names, required) | (
            {} if self.wire == "gemini" else {"stream": self.stream}
        )


def _chat(text: str, tools: list[str], required: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}]}
    if tools:
        functions = [{"name": name, "parameters": TOOL} for name in tools]
        body["tools"] = [{"type": "function", "function": function} for function in functions]
    return body | ({"tool_choice": "required"} if required else {})


def _responses(text: str, tools: list[str], required: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "input": text}
    if tools:
        body["tools"] = [{"type": "function", "name": n, "parameters": TOOL} for n in tools]
    return body | ({"tool_choice": "required"} if required else {})


def _anthropic(text: str, tools: list[str], required: bool) -> dict[str, Any]:
    body = {**_chat(text, [], False), "max_tokens": 100}
    if tools:
        body["tools"] = [{"name": name, "input_schema": TOOL} for name in tools]
    return body | ({"tool_choice": {"type": "any"}} if required else {})


def _gemini(text: str, tools: list[str], required: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if tools:
        declared = [{"name": name, "parameters": TOOL} for name in tools]
        body["tools"] = [{"functionDeclarations": declared}]
    config = {"functionCallingConfig": {"mode": "ANY"}}
    return body | ({"toolConfig": config} if required else {})


_BODIES = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "ollama": _chat,
    "gemini": _gemini,
}
WHOLE = (
    Client("chat", "openai_chat", "/v1/chat/completions"),
    Client("responses", "openai_responses", "/v1/responses"),
    Client("anthropic", "anthropic", "/v1/messages"),
    Client("ollama", "ollama", "/api/chat"),
    Client("gemini", "gemini", "/v1beta/models/m:generateContent"),
)
_STREAMING = "/v1beta/models/m:streamGenerateContent"
STREAMED = (
    *(Client(f"{c.name} streamed", c.wire, c.path, True) for c in WHOLE if c.wire != "gemini"),
    Client("gemini sse", "gemini", f"{_STREAMING}?alt=sse", True),
    Client("gemini array", "gemini", _STREAMING, True),
)
CLIENTS = (*WHOLE, *STREAMED)


class ParsedResponse(Struct, frozen=True):
    """A response: its text or its error."""

    status: int
    headers: dict[str, str]
    raw: bytes
    text: str = ""
    error: str = ""
    """The message of the error."""


def ask(url: str, client: Client, body: Any = None, **headers: str) -> ParsedResponse:
    """Send a request, and check that the response is complete and valid in its API."""
    content = json.dumps(client.body() if body is None else body)
    all_headers = {"content-type": "application/json", **headers}
    return parse_response(
        client, HTTP.post(url + client.path, content=content, headers=all_headers)
    )


def parse_response(client: Client, response: httpx.Response) -> ParsedResponse:
    headers, raw = dict(response.headers), response.content
    if response.status_code != 200:
        assert headers["content-type"] == "application/json", headers
        error = read_error(client.wire, json.loads(raw), response.status_code)
        return ParsedResponse(response.status_code, headers, raw, "", error)
    if not client.stream:
        assert headers["content-type"] == "application/json", headers
        return ParsedResponse(
            200, headers, raw, "".join(_read_whole_texts(client.wire, json.loads(raw)))
        )
    frames = list(parse_frames(client, raw))
    is_error = [_is_error(client.wire, frame) for frame in frames]
    text = "".join(part for frame in frames for part in _read_delta_texts(client.wire, frame))
    if not any(is_error):
        assert is_complete(client, frames, raw), raw
        return ParsedResponse(200, headers, raw, text)
    at = is_error.index(True)
    check_end_after_error(client, frames[at + 1 :], raw)
    return ParsedResponse(200, headers, raw, text, read_error(client.wire, frames[at]))


@contextmanager
def connect(url: str) -> Generator[socket.socket]:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(60)
        yield connection


def encode_request(client: Client, body: bytes | None = None, *headers: str) -> bytes:
    """Return the bytes of a request; `Host` and `Content-Type` headers replace the defaults."""
    content = json.dumps(client.body()).encode() if body is None else body
    lines = [f"POST {client.path} HTTP/1.1", *headers, f"Content-Length: {len(content)}"]
    if not any(header.lower().startswith("host:") for header in headers):
        lines.append("Host: localhost")
    if not any(header.lower().startswith("content-type:") for header in headers):
        lines.append("Content-Type: application/json")
    return "\r\n".join((*lines, "", "")).encode("utf-8") + content


def send_bytes(url: str, data: bytes, method: str = "POST") -> ParsedResponse:
    """Send these bytes, and return the response without parsing its body."""
    with connect(url) as connection:
        connection.sendall(data)
        response = HTTPResponse(connection, method=method)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return ParsedResponse(response.status, headers, response.read())


def parse_frames(client: Client, raw: bytes) -> Iterator[Any]:
    """Yield the JSON values of a stream."""
    if client.is_array:
        yield from json.loads(raw)
    elif client.wire == "ollama":
        assert raw.endswith(b"\n"), raw
        yield from map(json.loads, raw.splitlines())
    else:
        assert raw.endswith(b"\n\n"), raw
        for frame in raw.decode().split("\n\n"):
            data = [line[6:] for line in frame.split("\n") if line.startswith("data: ")]
            if data and data != ["[DONE]"]:
                yield json.loads("\n".join(data))


def read_error(wire: str, body: Any, status: int | None = None) -> str:
    """Return the message of an error, and check that the body has the shape of its API."""
    match wire:
        case "openai_chat" | "openai_responses":
            assert {"message", "type", "param", "code"} <= set(body["error"]), body
            return body["error"]["message"]
        case "anthropic":
            assert body["type"] == "error", body
            assert isinstance(body["error"]["type"], str), body
            return body["error"]["message"]
        case "ollama":
            assert set(body) == {"error"}, body
            return body["error"]
        case _:
            assert {"code", "message", "status"} <= set(body["error"]), body
            assert status in (None, body["error"]["code"]), body
            return body["error"]["message"]


def is_complete(client: Client, frames: list[Any], raw: bytes) -> bool:
    """Return True if a stream ends as its API prescribes."""
    last = frames[-1]
    match client.wire:
        case "openai_chat":
            return raw.endswith(b"data: [DONE]\n\n")
        case "openai_responses":
            return last["type"] in ("response.completed", "response.incomplete")
        case "anthropic":
            return last["type"] == "message_stop"
        case "ollama":
            return last["done"] is True
        case _:
            return "finishReason" in last["candidates"][0]


def check_end_after_error(client: Client, after: list[Any], raw: bytes) -> None:
    """Check that nothing follows an error besides what its API prescribes."""
    if client.wire == "openai_chat":
        assert raw.endswith(b"data: [DONE]\n\n")
        assert after == []
    elif client.wire == "openai_responses":
        assert [frame["type"] for frame in after] == ["response.failed"]
    else:
        assert after == []


def _is_error(wire: str, frame: Any) -> bool:
    return frame.get("type") == "error" or (wire != "openai_responses" and "error" in frame)


def _read_whole_texts(wire: str, body: Any) -> Iterator[str]:
    match wire:
        case "openai_chat":
            yield body["choices"][0]["message"]["content"] or ""
        case "openai_responses":
            for item in body["output"]:
                yield from (part["text"] for part in item.get("content", ()))
        case "anthropic":
            yield from (block["text"] for block in body["content"] if block["type"] == "text")
        case "ollama":
            yield body["message"]["content"]
        case _:
            parts = body["candidates"][0]["content"]["parts"]
            yield from (part["text"] for part in parts if "text" in part)


def _read_delta_texts(wire: str, frame: Any) -> Iterator[str]:
    match wire:
        case "openai_chat":
            yield from (choice["delta"].get("content") or "" for choice in frame.get("choices", ()))
        case "openai_responses":
            if frame["type"] == "response.output_text.delta":
                yield frame["delta"]
        case "anthropic":
            yield frame.get("delta", {}).get("text", "")
        case "ollama":
            yield frame.get("message", {}).get("content", "")
        case _:
            for candidate in frame.get("candidates", ()):
                yield from (part.get("text", "") for part in candidate["content"]["parts"])
