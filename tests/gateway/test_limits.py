"""Limits, invalid requests, unknown paths, and the headers of every response."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import FaultyUpstream, ReceivedRequest
from tests.gateway.gateway_process import wait_until
from tests.gateway.raw_clients import (
    CLIENTS,
    HTTP,
    WHOLE,
    Client,
    ask,
    connect,
    encode_request,
    parse_response,
    read_error,
    send_bytes,
)
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.config.settings import Config, Limits
from toolspeak.events import Finish, TextDelta
from toolspeak.testing import ScriptedServer

CHAT = WHOLE[0]
LIMITS = Limits(
    body_bytes=20_000, header_bytes=8_000, json_depth=50, tools=10, concurrent_requests=4
)


def set_limits(config: Config, limits: Limits = LIMITS) -> Config:
    return structs.replace(config, limits=limits)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with (
        ScriptedServer([TextDelta("Hello."), Finish("stop")]) as model,
        run_gateway(set_limits(make_config(model.url))) as gateway,
    ):
        yield gateway


# Invalid requests.


def nest_arrays(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "space": (b"  \n", "JSON"),
    "not JSON": (b"{nope}", "JSON"),
    "truncated": (b'{"model": "m", "mess', "JSON"),
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
    "deep": (nest_arrays(5_000), "deep"),
    "a deep field": (b'{"model": "m", "x": ' + nest_arrays(60) + b"}", "limits.json_depth"),
    "a very deep field": (b'{"model": "m", "x": ' + nest_arrays(9_000) + b"}", "deep"),
    "deep objects": (b'{"a":' * 3000 + b"1" + b"}" * 3000, "deep"),
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", BODIES)
def test_invalid_body_is_rejected(name: str, client: Client, gateway: RunningGateway) -> None:
    body, message_part = BODIES[name]
    response = send_bytes(gateway.url, encode_request(client, body))
    assert response.status == 400, response
    assert message_part in read_error(client.wire, json.loads(response.raw), 400)
    assert ask(gateway.url, client).text == "Hello."


# Sizes.


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_body_over_the_limit_is_rejected(client: Client, gateway: RunningGateway) -> None:
    content = json.dumps(client.body("x" * 20_000)).encode()
    chunks = (content[at : at + 1000] for at in range(0, len(content), 1000))
    headers = {"content-type": "application/json"}
    for body in (content, chunks):
        response = parse_response(
            client, HTTP.post(gateway.url + client.path, content=body, headers=headers)
        )
        assert response.status == 413
        assert "limits.body_bytes" in response.error
    assert ask(gateway.url, client, client.body("x" * 19_000)).status == 200


def test_endless_body_is_rejected_while_it_is_sent(gateway: RunningGateway) -> None:
    head = encode_request(CHAT, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connect(gateway.url) as connection:
        connection.sendall(head)
        chunk = b"%x\r\n%b\r\n" % (16_384, b" " * 16_384)
        for _ in range(64):
            connection.sendall(chunk)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", ["99999999999999999999", "20001"])
def test_content_length_over_the_limit_is_rejected(length: str, gateway: RunningGateway) -> None:
    data = encode_request(CHAT, b"").replace(
        b"Content-Length: 0", b"Content-Length: " + length.encode()
    )
    assert send_bytes(gateway.url, data).status in (400, 413)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_headers_over_the_limit_are_rejected(client: Client, gateway: RunningGateway) -> None:
    for length, status in ((7_000, 200), (9_000, 431), (60_000, 431)):
        response = ask(gateway.url, client, **{"x-long": "x" * length})
        assert response.status == status
    assert "limits.header_bytes" in response.error
    many = {f"x-{at}": "x" * 90 for at in range(100)}
    assert ask(gateway.url, client, **many).status == 431
    separator = "&" if "?" in client.path else "?"
    long = structs.replace(client, path=f"{client.path}{separator}long={'x' * 9_000}")
    assert ask(gateway.url, long).status == 431


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_json_over_the_depth_limit_is_rejected(client: Client, gateway: RunningGateway) -> None:
    for depth, status in ((30, 200), (60, 400)):
        schema: Any = {"type": "string"}
        for _ in range(depth // 2):
            schema = {"type": "object", "properties": {"a": schema}}
        body = json.loads(json.dumps(client.body(tools=1)).replace('{"type": "string"}', "0"))
        text = json.dumps(body).replace('{"city": 0}', json.dumps({"city": schema}))
        assert ask(gateway.url, client, json.loads(text)).status == status


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_tools_over_the_limit_are_rejected(client: Client, gateway: RunningGateway) -> None:
    assert ask(gateway.url, client, client.body(tools=10)).status == 200
    response = ask(gateway.url, client, client.body(tools=11))
    assert response.status == 400
    assert "limits.tools" in response.error


def test_depth_beyond_python_limit_is_handled() -> None:
    """The limit in the configuration may be higher than what Python can handle."""
    with (
        ScriptedServer([TextDelta("Hello."), Finish("stop")]) as model,
        run_gateway(set_limits(make_config(model.url), Limits(json_depth=1_000_000))) as gateway,
    ):
        for depth in (150, 250, 400, 480, 700, 900, 990, 2_000, 100_000):
            for client in CLIENTS:
                body = json.dumps(client.body(tools=1)).encode()
                nested_body = body.replace(b'{"type": "string"}', nest_arrays(depth))
                response = send_bytes(gateway.url, encode_request(client, nested_body))
                assert response.status in (200, 400), (depth, response)
            metadata = (
                b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "metadata": '
            )
            response = send_bytes(
                gateway.url, encode_request(CHAT, metadata + nest_arrays(depth) + b"}")
            )
            assert response.status in (200, 400), (depth, response)


async def hang(received: ReceivedRequest) -> None:
    await received.wait_for_close()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_concurrent_requests_over_the_limit_are_rejected(client: Client) -> None:
    with (
        FaultyUpstream() as upstream,
        run_gateway(set_limits(make_config(upstream.url))) as gateway,
    ):
        upstream.set_actions(hang)
        with (
            connect(gateway.url) as first,
            connect(gateway.url) as second,
            connect(gateway.url) as third,
            connect(gateway.url) as fourth,
        ):
            for connection in (first, second, third, fourth):
                connection.sendall(encode_request(client))
            wait_until(lambda: gateway.gateway.metrics.active_requests == 4)
            response = ask(gateway.url, client)
            assert response.status == 503
            assert "limits.concurrent_requests" in response.error
            assert response.headers["retry-after"] == "1"
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
def test_unknown_path_or_method_is_rejected_in_shape_of_its_api(
    method: str, path: str, gateway: RunningGateway
) -> None:
    status, wire = PATHS[method, path]
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    response = send_bytes(gateway.url, f"{head}Content-Length: 2\r\n\r\n{{}}".encode(), method)
    assert response.status == status
    assert method in read_error(wire, json.loads(response.raw), status) or "resp_1" in path
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/api/tags", "/api/version"])
def test_head_request_gets_headers_of_get(path: str, gateway: RunningGateway) -> None:
    response = HTTP.head(gateway.url + path)
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["content-length"]) == len(HTTP.get(gateway.url + path).content)


def test_unknown_model_is_not_found(gateway: RunningGateway) -> None:
    config = structs.replace(gateway.gateway.config, default="")
    with run_gateway(config) as other:
        for client in CLIENTS:
            path = client.path.replace("/m:", "/unknown:")
            body = client.body() | ({} if client.wire == "gemini" else {"model": "unknown"})
            response = ask(other.url, structs.replace(client, path=path), body)
            assert response.status == 404
            assert "unknown" in response.error


# Headers of every response.

GENERATED_ID = re.compile(r"req_[0-9a-z]+")
REQUEST_IDS: dict[str, bool] = {
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


@pytest.mark.parametrize("identity", REQUEST_IDS, ids=lambda identity: identity[:20])
def test_request_id_is_kept_if_valid(identity: str, gateway: RunningGateway) -> None:
    for client in (CHAT, CLIENTS[-1]):
        response = send_bytes(
            gateway.url, encode_request(client, None, f"X-Request-Id: {identity}")
        )
        assert response.status == 200
        request_id = response.headers["x-request-id"]
        assert (
            request_id == identity if REQUEST_IDS[identity] else GENERATED_ID.fullmatch(request_id)
        )


@pytest.mark.parametrize("line_break", ["\r\n ", "\n", "\r", "\0", "\x1b"])
def test_request_id_with_line_break_adds_no_header(
    line_break: str, gateway: RunningGateway
) -> None:
    data = encode_request(CHAT, None, f"X-Request-Id: a{line_break}Set-Cookie: b=c")
    response = send_bytes(gateway.url, data)
    assert response.status in (200, 400)
    assert "set-cookie" not in response.headers
    assert ask(gateway.url, CHAT).status == 200


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/v1/models", "/nowhere"])
def test_request_id_is_in_every_response(path: str, gateway: RunningGateway) -> None:
    first, second = (HTTP.get(gateway.url + path).headers["x-request-id"] for _ in range(2))
    assert first != second
    echoed = HTTP.get(gateway.url + path, headers={"x-request-id": "mine"})
    assert echoed.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_response_headers_describe_the_request(client: Client, gateway: RunningGateway) -> None:
    response = ask(gateway.url, client, client.body(tools=1))
    assert response.headers["x-toolspeak-mode"] == "native"
    assert response.headers["x-toolspeak-retries"] == "0"
    assert float(response.headers["x-toolspeak-overhead-ms"]) > 0
    assert re.fullmatch(r"[a-z,-]*", response.headers["x-toolspeak-notes"])
