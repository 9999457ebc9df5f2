"""What is asked of a gateway besides chats: how long a request is, and which models there are."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from msgspec import structs

from tests.gateway import raw_clients as clients
from tests.gateway.faulty_upstream import HELLO
from tests.gateway.raw_clients import CLIENTS, Client
from tests.gateway.running_gateway import behind, running
from toolspeak.testing import ScriptedServer

ASKED = {"max_tokens": 4, "messages": [{"role": "user", "content": "Say hello to the world."}]}
TOOL = {"name": "now", "description": "The time.", "input_schema": {"type": "object"}}
LONG = {"max_tokens": 4, "messages": [{"role": "user", "content": "word " * 9000}]}


def ask(url: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """The status, the headers and the value of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers, json.loads(refused.read())


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["without tools", "with tools"])
def test_tokens_are_counted_as_the_model_counts_them(
    embedded_gateway: dict[str, Any], tools: Any
) -> None:
    body = {"model": embedded_gateway["default"], **ASKED, **({"tools": tools} if tools else {})}
    status, headers, counted = ask(f"{embedded_gateway['url']}/v1/messages/count_tokens", body)
    assert (status, headers["x-toolspeak-estimated"]) == (200, "false")
    _, _, reply = ask(f"{embedded_gateway['url']}/v1/messages", body)
    usage = reply["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_gemini_counts_too(embedded_gateway: dict[str, Any]) -> None:
    contents = [{"role": "user", "parts": [{"text": "Say hello to the world."}]}]
    url = f"{embedded_gateway['url']}/v1beta/models/any:countTokens"
    _, _, short = ask(url, {"contents": contents})
    _, _, long = ask(url, {"generateContentRequest": {"contents": contents * 3}})
    assert 0 < short["totalTokens"] < long["totalTokens"]


def test_a_request_that_is_too_long_is_told_with_the_numbers(
    embedded_gateway: dict[str, Any],
) -> None:
    status, _, said = ask(f"{embedded_gateway['url']}/v1/messages", {"model": "any", **LONG})
    assert status == 400
    assert said["error"]["message"].startswith("prompt is too long: ")
    assert " tokens > 8192 maximum. " in said["error"]["message"]
    assert "Shorten the conversation" in said["error"]["message"]
    status, _, said = ask(
        f"{embedded_gateway['url']}/v1/chat/completions", {"model": "any", **LONG}
    )
    assert (status, said["error"]["code"]) == (400, "context_length_exceeded")
    assert "8192" in said["error"]["message"]
    assert "Shorten the conversation" in said["error"]["message"]


class _Embeds(BaseHTTPRequestHandler):
    """Says where it was asked, and what."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = json.dumps({"path": self.path, "asked": body}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name for it
        """A test has its own ways to say what happened."""


@pytest.mark.parametrize(
    ("wire", "asked", "passed"),
    [
        ("openai_chat", "/v1/embeddings", "/v1/embeddings"),
        ("ollama", "/api/embed", "/api/embed"),
    ],
)
def test_embeddings_are_passed_through(wire: str, asked: str, passed: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Embeds)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with running(behind(url, wire, model="theirs")) as gateway:
            _, _, said = ask(f"{gateway.url}{asked}", {"model": "m", "input": ["a", "b"]})
            other = "/api/embed" if wire == "openai_chat" else "/v1/embeddings"
            refused, *_ = ask(f"{gateway.url}{other}", {"model": "m", "input": "a"})
    finally:
        server.shutdown()
        server.server_close()
    assert said == {"path": passed, "asked": {"model": "theirs", "input": ["a", "b"]}}
    assert refused == 404


def test_models_are_listed_in_each_api(embedded_gateway: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_request_has_to_ask_something(client: Client) -> None:
    with ScriptedServer(HELLO) as server, running(behind(server.url)) as gateway:
        heard = clients.ask(gateway.url, client, {"stream": client.stream})
        if client.wire == "ollama":
            assert json.loads(heard.raw)["done_reason"] == "load"
        else:
            assert (heard.status, "no message to reply to" in heard.error) == (400, True)
        assert server.requests == []


def test_ollama_loads_a_model_to_generate() -> None:
    with ScriptedServer(HELLO) as server, running(behind(server.url)) as gateway:
        answer = httpx.post(f"{gateway.url}/api/generate", json={"model": "m"})
        assert (answer.json()["response"], answer.json()["done_reason"]) == ("", "load")
        assert server.requests == []


@pytest.mark.parametrize("name", ["g/../cachedContents?x=", "g?key=1", "g#x", "g/./x", "a b"])
def test_a_name_does_not_change_where_the_upstream_is_asked(name: str) -> None:
    with ScriptedServer(HELLO) as server:
        config = behind(server.url, "gemini")
        config = structs.replace(config, models={}, default="", aliases={"*": f"scripted/{name}"})
        with running(config) as gateway:
            body = {"model": "any", "messages": [{"role": "user", "content": "Hi"}]}
            answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body)
        expected = f"/v1beta/models/{quote(name, safe='/')}:generateContent"
        if ".." in name or "/./" in name:
            assert (answer.status_code, server.paths) == (400, [])
        else:
            assert server.paths == [expected]
