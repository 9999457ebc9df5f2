"""Endpoints besides chat: token counts, embeddings and models; and requests without messages."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import HELLO
from tests.gateway.raw_clients import CLIENTS, HTTP, Client
from tests.gateway.raw_clients import ask as ask_client
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak.testing import ScriptedServer
from toolspeak.wires import get_wire

SHORT = {"max_tokens": 4, "messages": [{"role": "user", "content": "Say hello to the world."}]}
TOOL = {"name": "now", "description": "The time.", "input_schema": {"type": "object"}}
LONG = {"max_tokens": 4, "messages": [{"role": "user", "content": "word " * 9000}]}


def ask(url: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """Return the status, the headers and the JSON value of a response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.headers, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, json.loads(error.read())


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["without tools", "with tools"])
def test_token_count_equals_usage_of_the_model(
    embedded_gateway: dict[str, Any], tools: Any
) -> None:
    body = {"model": embedded_gateway["default"], **SHORT, **({"tools": tools} if tools else {})}
    status, headers, counted = ask(f"{embedded_gateway['url']}/v1/messages/count_tokens", body)
    assert (status, headers["x-toolspeak-estimated"]) == (200, "false")
    _, _, reply = ask(f"{embedded_gateway['url']}/v1/messages", body)
    usage = reply["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_token_count_of_gemini_grows_with_the_text(embedded_gateway: dict[str, Any]) -> None:
    contents = [{"role": "user", "parts": [{"text": "Say hello to the world."}]}]
    url = f"{embedded_gateway['url']}/v1beta/models/any:countTokens"
    _, _, short = ask(url, {"contents": contents})
    _, _, long = ask(url, {"generateContentRequest": {"contents": contents * 3}})
    assert 0 < short["totalTokens"] < long["totalTokens"]


def test_request_over_the_context_length_is_rejected_with_both_numbers(
    embedded_gateway: dict[str, Any],
) -> None:
    status, _, body = ask(f"{embedded_gateway['url']}/v1/messages", {"model": "any", **LONG})
    assert status == 400
    assert body["error"]["message"].startswith("prompt is too long: ")
    assert " tokens > 8192 maximum. " in body["error"]["message"]
    assert "Shorten the conversation" in body["error"]["message"]
    status, _, body = ask(
        f"{embedded_gateway['url']}/v1/chat/completions", {"model": "any", **LONG}
    )
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert "8192" in body["error"]["message"]
    assert "Shorten the conversation" in body["error"]["message"]


class _EchoHandler(BaseHTTPRequestHandler):
    """Responds with the path and the body of the request."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = json.dumps({"path": self.path, "body": body}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the output of tests short."""


@pytest.mark.parametrize(
    ("wire", "path", "upstream_path"),
    [
        ("openai_chat", "/v1/embeddings", "/v1/embeddings"),
        ("ollama", "/api/embed", "/api/embed"),
    ],
)
def test_embeddings_are_passed_through(wire: str, path: str, upstream_path: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EchoHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with run_gateway(make_config(url, wire, model="theirs")) as gateway:
            _, _, echo = ask(f"{gateway.url}{path}", {"model": "m", "input": ["a", "b"]})
            other = "/api/embed" if wire == "openai_chat" else "/v1/embeddings"
            other_status, *_ = ask(f"{gateway.url}{other}", {"model": "m", "input": "a"})
    finally:
        server.shutdown()
        server.server_close()
    assert echo == {"path": upstream_path, "body": {"model": "theirs", "input": ["a", "b"]}}
    assert other_status == 404


def test_model_list_has_the_shape_of_each_api(embedded_gateway: dict[str, Any]) -> None:
    url, name = embedded_gateway["url"], embedded_gateway["default"]
    _, _, openai = ask(f"{url}/v1/models")
    assert [model["id"] for model in openai["data"]] == [name]
    assert [model["slug"] for model in openai["models"]] == [name]
    assert ask(f"{url}/v1/models/{name}")[2]["id"] == name
    _, _, anthropic = ask(f"{url}/v1/models", **{"anthropic-version": "2023-06-01"})
    assert (anthropic["data"][0]["type"], anthropic["last_id"]) == ("model", name)
    assert ask(f"{url}/v1beta/models")[2]["models"][0]["name"] == f"models/{name}"
    assert ask(f"{url}/api/tags")[2]["models"][0]["name"] == name
    shown = ask(f"{url}/api/show", {"model": name})[2]
    assert "tools" in shown["capabilities"]
    assert shown["model_info"]["toolspeak.context_length"] == 8192
    assert "." in ask(f"{url}/api/version")[2]["version"]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [(None, "is missing"), ([], "has no message to reply to")],
    ids=["missing", "empty"],
)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_request_without_messages_is_rejected_or_loads_the_model(
    client: Client, messages: list[Any] | None, problem: str
) -> None:
    field = get_wire(client.wire).messages_field
    body = {"stream": client.stream} | ({} if messages is None else {field: messages})
    with ScriptedServer(HELLO) as server, run_gateway(make_config(server.url)) as gateway:
        response = ask_client(gateway.url, client, body)
        if client.wire == "ollama":
            assert json.loads(response.raw)["done_reason"] == "load"
        else:
            assert response.status == 400
            assert f"`{field}` {problem}; send at least one message" in response.error
        assert server.requests == []


def test_generate_request_of_ollama_loads_the_model() -> None:
    with ScriptedServer(HELLO) as server, run_gateway(make_config(server.url)) as gateway:
        response = HTTP.post(f"{gateway.url}/api/generate", json={"model": "m"})
        assert (response.json()["response"], response.json()["done_reason"]) == ("", "load")
        assert server.requests == []


@pytest.mark.parametrize("name", ["g/../cachedContents?x=", "g?key=1", "g#x", "g/./x", "a b"])
def test_model_name_cannot_change_the_path_at_the_upstream(name: str) -> None:
    with ScriptedServer(HELLO) as server:
        config = make_config(server.url, "gemini")
        config = structs.replace(config, models={}, default="", aliases={"*": f"scripted/{name}"})
        with run_gateway(config) as gateway:
            body = {"model": "any", "messages": [{"role": "user", "content": "Hi"}]}
            response = HTTP.post(f"{gateway.url}/v1/chat/completions", json=body)
        expected = f"/v1beta/models/{quote(name, safe='/')}:generateContent"
        if ".." in name or "/./" in name:
            assert (response.status_code, server.paths) == (400, [])
        else:
            assert server.paths == [expected]
