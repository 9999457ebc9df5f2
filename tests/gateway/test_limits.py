"""How much may be asked, what is no request at all, and what every answer says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import Asked, Faulty
from tests.gateway.raw_clients import (
    CLIENTS,
    HTTP,
    WHOLE,
    Client,
    ask,
    bytes_of,
    connected,
    error_of,
    heard,
    sent,
)
from tests.gateway.running_gateway import Running, behind, running
from toolspeak.config.settings import Config, Limits
from toolspeak.events import Finish, TextDelta
from toolspeak.testing import ScriptedServer

CHAT = WHOLE[0]
LIMITS = Limits(
    body_bytes=20_000, header_bytes=8_000, json_depth=50, tools=10, concurrent_requests=4
)


def limited(config: Config, limits: Limits = LIMITS) -> Config:
    return structs.replace(config, limits=limits)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    with (
        ScriptedServer([TextDelta("Hello."), Finish("stop")]) as model,
        running(limited(behind(model.url))) as gateway,
    ):
        yield gateway


# What is no request.


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "space": (b"  \n", "JSON"),
    "not JSON": (b"{nope}", "JSON"),
    "cut off": (b'{"model": "m", "mess', "JSON"),
    "two values": (b"{}{}", "JSON"),
    "not UTF-8": (b'{"model": "\xff\xfe"}', ""),
    "binary": (bytes(range(256)), ""),
    "zeros": (b"\0" * 100, ""),
    "a list": (b"[]", "object"),
    "a text": (b'"hello"', "object"),
    "a number": (b"42", "object"),
    "nothing": (b"null", "object"),
    "true": (b"true", "object"),
    "not a number": (b"NaN", ""),
    "a huge number": (b"1" + b"0" * 5000, ""),
    "deep": (nested(5_000), "deep"),
    "a deep field": (b'{"model": "m", "x": ' + nested(60) + b"}", "limits.json_depth"),
    "a very deep field": (b'{"model": "m", "x": ' + nested(9_000) + b"}", "deep"),
    "deep objects": (b'{"a":' * 3000 + b"1" + b"}" * 3000, "deep"),
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", BODIES)
def test_no_request(name: str, client: Client, gateway: Running) -> None:
    body, about = BODIES[name]
    answer = sent(gateway.url, bytes_of(client, body))
    assert answer.status == 400, answer
    assert about in error_of(client.wire, json.loads(answer.raw), 400)
    assert ask(gateway.url, client).text == "Hello."


# How much.


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_long_body(client: Client, gateway: Running) -> None:
    content = json.dumps(client.body("x" * 20_000)).encode()
    pieces = (content[at : at + 1000] for at in range(0, len(content), 1000))
    headers = {"content-type": "application/json"}
    for body in (content, pieces):
        answer = heard(client, HTTP.post(gateway.url + client.path, content=body, headers=headers))
        assert answer.status == 413
        assert "limits.body_bytes" in answer.error
    assert ask(gateway.url, client, client.body("x" * 19_000)).status == 200


def test_a_body_that_never_ends(gateway: Running) -> None:
    """The answer comes while the client still speaks, and nothing of that is kept."""
    head = bytes_of(CHAT, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connected(gateway.url) as connection:
        connection.sendall(head)
        chunk = b"%x\r\n%b\r\n" % (16_384, b" " * 16_384)
        for _ in range(64):
            connection.sendall(chunk)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", ["99999999999999999999", "20001"])
def test_a_length_that_is_too_much(length: str, gateway: Running) -> None:
    data = bytes_of(CHAT, b"").replace(b"Content-Length: 0", b"Content-Length: " + length.encode())
    assert sent(gateway.url, data).status in (400, 413)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_long_headers(client: Client, gateway: Running) -> None:
    for much, status in ((7_000, 200), (9_000, 431), (60_000, 431)):
        answer = ask(gateway.url, client, **{"x-long": "x" * much})
        assert answer.status == status
    assert "limits.header_bytes" in answer.error
    many = {f"x-{at}": "x" * 90 for at in range(100)}
    assert ask(gateway.url, client, **many).status == 431
    joint = "&" if "?" in client.path else "?"
    long = structs.replace(client, path=f"{client.path}{joint}long={'x' * 9_000}")
    assert ask(gateway.url, long).status == 431


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_depth(client: Client, gateway: Running) -> None:
    for depth, status in ((30, 200), (60, 400)):
        schema: Any = {"type": "string"}
        for _ in range(depth // 2):
            schema = {"type": "object", "properties": {"a": schema}}
        body = json.loads(json.dumps(client.body(tools=1)).replace('{"type": "string"}', "0"))
        text = json.dumps(body).replace('{"city": 0}', json.dumps({"city": schema}))
        assert ask(gateway.url, client, json.loads(text)).status == status


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_tools(client: Client, gateway: Running) -> None:
    assert ask(gateway.url, client, client.body(tools=10)).status == 200
    answer = ask(gateway.url, client, client.body(tools=11))
    assert answer.status == 400
    assert "limits.tools" in answer.error


def test_a_depth_that_python_cannot_do() -> None:
    """Even where the limit is higher than what can be worked with."""
    with (
        ScriptedServer([TextDelta("Hello."), Finish("stop")]) as model,
        running(limited(behind(model.url), Limits(json_depth=1_000_000))) as gateway,
    ):
        for depth in (150, 250, 400, 480, 700, 900, 990, 2_000, 100_000):
            for client in CLIENTS:
                body = json.dumps(client.body(tools=1)).encode()
                filled = body.replace(b'{"type": "string"}', nested(depth))
                answer = sent(gateway.url, bytes_of(client, filled))
                assert answer.status in (200, 400), (depth, answer)
            metadata = (
                b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "metadata": '
            )
            answer = sent(gateway.url, bytes_of(CHAT, metadata + nested(depth) + b"}"))
            assert answer.status in (200, 400), (depth, answer)


async def hangs(asked: Asked) -> None:
    await asked.closed()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_many_at_once(client: Client) -> None:
    with Faulty() as upstream, running(limited(behind(upstream.url))) as gateway:
        upstream.does(hangs)
        with (
            connected(gateway.url) as first,
            connected(gateway.url) as second,
            connected(gateway.url) as third,
            connected(gateway.url) as fourth,
        ):
            for connection in (first, second, third, fourth):
                connection.sendall(bytes_of(client))
            while gateway.gateway.metrics.active_requests < 4:
                pass
            answer = ask(gateway.url, client)
            assert answer.status == 503
            assert "limits.concurrent_requests" in answer.error
            assert answer.headers["retry-after"] == "1"
            assert HTTP.get(f"{gateway.url}/health").status_code == 200
            assert HTTP.get(f"{gateway.url}/v1/models").status_code == 200


# Paths and methods.

PATHS: dict[tuple[str, str], tuple[int, str]] = {
    ("GET", "/nowhere"): (404, "openai_chat"),
    ("POST", "/nowhere"): (404, "openai_chat"),
    ("PUT", "/nowhere"): (404, "openai_chat"),
    ("POST", "/v1/nowhere"): (404, "openai_chat"),
    ("POST", "/v1/messages/nowhere"): (404, "anthropic"),
    ("POST", "/api/nowhere"): (404, "ollama"),
    ("POST", "/v1beta/nowhere"): (404, "gemini"),
    ("POST", "/v1beta/models/m:nowhere"): (404, "gemini"),
    ("GET", "/v1/chat/completions"): (405, "openai_chat"),
    ("PUT", "/v1/responses"): (405, "openai_responses"),
    ("DELETE", "/v1/messages"): (405, "anthropic"),
    ("GET", "/api/chat"): (405, "ollama"),
    ("GET", "/v1beta/models/m:generateContent"): (405, "gemini"),
    ("POST", "/health"): (405, "openai_chat"),
    ("DELETE", "/v1/models"): (405, "openai_chat"),
    ("GET", "/api/show"): (405, "ollama"),
    ("PATCH", "/v1/responses/resp_1"): (405, "openai_chat"),
    ("GET", "/v1/responses/resp_1"): (404, "openai_chat"),
    ("GET", "//v1/models"): (404, "openai_chat"),
    ("GET", "//["): (404, "openai_chat"),
    ("GET", "/%00"): (404, "openai_chat"),
    ("GET", "/../etc/passwd"): (404, "openai_chat"),
    ("GET", "/" + "x" * 5000): (404, "openai_chat"),
}


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_paths_and_methods(method: str, path: str, gateway: Running) -> None:
    status, wire = PATHS[method, path]
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = sent(gateway.url, f"{head}Content-Length: 2\r\n\r\n{{}}".encode(), method)
    assert answer.status == status
    assert method in error_of(wire, json.loads(answer.raw), status) or "resp_1" in path
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/api/tags", "/api/version"])
def test_head(path: str, gateway: Running) -> None:
    answer = HTTP.head(gateway.url + path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len(HTTP.get(gateway.url + path).content)


def test_a_model_that_is_not_there(gateway: Running) -> None:
    config = structs.replace(gateway.gateway.config, default="")
    with running(config) as other:
        for client in CLIENTS:
            path = client.path.replace("/m:", "/nobody:")
            body = client.body() | ({} if client.wire == "gemini" else {"model": "nobody"})
            answer = ask(other.url, structs.replace(client, path=path), body)
            assert answer.status == 404
            assert "nobody" in answer.error


# What every answer says of itself.

MADE = re.compile(r"req_[0-9a-z]+")
IDENTITIES: dict[str, bool] = {
    "abc-123": True,
    "x" * 128: True,
    "!#$%&'*+-.^_`|~": True,
    "": False,
    "two words": False,
    "x" * 129: False,
    "x" * 7_000: False,
    "наш": False,
    "a\tb": False,
}


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda identity: identity[:20])
def test_request_ids(identity: str, gateway: Running) -> None:
    for client in (CHAT, CLIENTS[-1]):
        answer = sent(gateway.url, bytes_of(client, None, f"X-Request-Id: {identity}"))
        assert answer.status == 200
        given = answer.headers["x-request-id"]
        assert given == identity if IDENTITIES[identity] else MADE.fullmatch(given)


@pytest.mark.parametrize("break_", ["\r\n ", "\n", "\r", "\0", "\x1b"])
def test_hostile_request_ids(break_: str, gateway: Running) -> None:
    data = bytes_of(CHAT, None, f"X-Request-Id: a{break_}Set-Cookie: b=c")
    answer = sent(gateway.url, data)
    assert answer.status in (200, 400)
    assert "set-cookie" not in answer.headers
    assert ask(gateway.url, CHAT).status == 200


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/v1/models", "/nowhere"])
def test_request_ids_are_everywhere(path: str, gateway: Running) -> None:
    first, second = (HTTP.get(gateway.url + path).headers["x-request-id"] for _ in range(2))
    assert first != second
    given = HTTP.get(gateway.url + path, headers={"x-request-id": "mine"})
    assert given.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_how_it_was_served(client: Client, gateway: Running) -> None:
    answer = ask(gateway.url, client, client.body(tools=1))
    assert answer.headers["x-toolspeak-mode"] == "native"
    assert answer.headers["x-toolspeak-retries"] == "0"
    assert 0 < float(answer.headers["x-toolspeak-overhead-ms"]) < 1000
    assert re.fullmatch(r"[a-z,-]*", answer.headers["x-toolspeak-notes"])
