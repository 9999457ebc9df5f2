"""Access by Host, Origin and key, and secrets that must never leave the gateway."""

from __future__ import annotations

import hmac
import json
import logging
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import Action, FaultyUpstream, ReceivedRequest
from tests.gateway.raw_clients import (
    CLIENTS,
    HTTP,
    STREAMED,
    WHOLE,
    Client,
    ask,
    encode_request,
    read_error,
    send_bytes,
)
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak._util import encode_json
from toolspeak.config.settings import Config, ServerSettings
from toolspeak.events import Finish, TextDelta
from toolspeak.gateway import chat_handler
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

CHAT = WHOLE[0]
PAGE = "https://app.example"
KEYS = ("sk-first-key-0123456789", "sk-second-key-987654321")
WRONG_KEY = "sk-not-a-key"
GET_PATHS = ("/v1/models", "/v1beta/models", "/api/tags", "/metrics", "/")


def set_server(config: Config, **server: Any) -> Config:
    return structs.replace(config, server=ServerSettings(**server))


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta("Hello."), Finish("stop")]) as server:
        yield server


@pytest.fixture(scope="module")
def open_gateway(model: ScriptedServer) -> Iterator[RunningGateway]:
    """A gateway on loopback, without keys."""
    config = set_server(
        make_config(model.url),
        allowed_hosts=("Example.org", "with.port:8080"),
        allowed_origins=(PAGE, "http://two/"),
    )
    with run_gateway(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def locked_gateway(model: ScriptedServer) -> Iterator[RunningGateway]:
    """A gateway with keys."""
    with run_gateway(
        set_server(make_config(model.url), keys=KEYS, allowed_origins=(PAGE,))
    ) as gateway:
        yield gateway


# Hosts.

HOSTS: dict[str, int] = {
    "Host: localhost": 200,
    "Host: LocalHost:7878": 200,
    "Host: 127.0.0.1": 200,
    "Host: 127.0.0.1:80": 200,
    "Host: 127.1.2.3": 200,
    "Host: [::1]": 200,
    "Host: [::1]:7878": 200,
    "Host: example.org": 200,
    "Host: EXAMPLE.ORG:443": 200,
    "Host: with.port:8080": 200,
    "Host: with.port": 403,
    "Host: evil.example": 403,
    "Host: evil.example:7878": 403,
    "Host: 127.evil.example": 403,
    "Host: 127.0.0.1.evil.example": 403,
    "Host: localhost.evil.example": 403,
    "Host: evil.example#localhost": 403,
    "Host: localhost@evil.example": 403,
    "Host: sub.example.org": 403,
    "Host: 0.0.0.0:7878": 403,
    "Host: 192.168.0.1": 403,
    "Host: [::2]": 403,
    "Host: [::1].evil.example": 403,
    "Host: ::1": 200,
    "Host: []": 403,
    "Host:": 403,
    "Host: localhost\r\nHost: evil.example": 400,
    "Host: evil.example\r\nHost: localhost": 400,
}


@pytest.mark.parametrize("host", HOSTS)
def test_host_header_is_admitted_if_it_names_this_machine(
    host: str, open_gateway: RunningGateway
) -> None:
    response = send_bytes(open_gateway.url, encode_request(CHAT, None, host))
    assert response.status == HOSTS[host], response
    assert response.status == 200 or read_error(CHAT.wire, json.loads(response.raw))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_request_without_host_is_rejected(client: Client, open_gateway: RunningGateway) -> None:
    data = encode_request(client).replace(b"Host: localhost\r\n", b"")
    response = send_bytes(open_gateway.url, data)
    assert response.status == 403
    assert "server.allowed_hosts" in read_error(client.wire, json.loads(response.raw))


@pytest.mark.parametrize("path", GET_PATHS)
def test_host_of_get_request_is_checked(path: str, open_gateway: RunningGateway) -> None:
    for host, status in (("localhost", 200), ("evil.example", 403)):
        assert HTTP.get(open_gateway.url + path, headers={"host": host}).status_code == status


def test_host_is_not_checked_off_loopback_where_keys_are_required(model: ScriptedServer) -> None:
    with run_gateway(set_server(make_config(model.url), host="0.0.0.0", keys=KEYS)) as gateway:
        key = f"Authorization: Bearer {KEYS[0]}"
        assert (
            send_bytes(gateway.url, encode_request(CHAT, None, "Host: gw.example", key)).status
            == 200
        )
        assert send_bytes(gateway.url, encode_request(CHAT, None, "Host: gw.example")).status == 401


# Origins.

ORIGINS: dict[str, int] = {
    PAGE: 200,
    "http://two": 200,
    "HTTPS://APP.EXAMPLE": 200,
    "null": 403,
    "": 403,
    "https://evil.example": 403,
    "https://app.example.evil.example": 403,
    "http://app.example": 403,
    "https://app.example:444": 403,
    "http://localhost:3000": 403,
    "http://[": 403,
    "http://[::1": 403,
    "file://": 403,
    "chrome-extension://abcdef": 403,
    f"{PAGE} https://evil.example": 403,
    f"{PAGE}\r\nOrigin: https://evil.example": 400,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_origin_header_is_admitted_if_configured(origin: str, open_gateway: RunningGateway) -> None:
    response = send_bytes(open_gateway.url, encode_request(CHAT, None, f"Origin: {origin}"))
    assert response.status == ORIGINS[origin], response
    allowed = response.headers.get("access-control-allow-origin")
    assert allowed == (origin if response.status == 200 else None)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_request_of_other_page_is_rejected_in_shape_of_its_api(
    client: Client, open_gateway: RunningGateway
) -> None:
    response = ask(open_gateway.url, client, origin="https://evil.example")
    assert response.status == 403
    assert "server.allowed_origins" in response.error


def test_page_of_same_origin_is_admitted(open_gateway: RunningGateway) -> None:
    for origin, host, status in (
        ("http://localhost:7878", "localhost:7878", 200),
        ("http://localhost:7879", "localhost:7878", 403),
    ):
        data = encode_request(CHAT, None, f"Host: {host}", f"Origin: {origin}")
        assert send_bytes(open_gateway.url, data).status == status


def test_any_origin_is_admitted_with_wildcard(model: ScriptedServer) -> None:
    with run_gateway(set_server(make_config(model.url), allowed_origins=("*",))) as gateway:
        response = ask(gateway.url, CHAT, origin="https://whoever.example")
        assert response.headers["access-control-allow-origin"] == "https://whoever.example"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("kind", ["open", "locked"])
def test_preflight_without_key_is_answered(
    kind: str, client: Client, request: pytest.FixtureRequest
) -> None:
    gateway: RunningGateway = request.getfixturevalue(f"{kind}_gateway")
    headers = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-api-key",
    }
    response = HTTP.options(gateway.url + client.path, headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "POST" in response.headers["access-control-allow-methods"]
    assert (
        response.headers["access-control-allow-headers"]
        == headers["access-control-request-headers"]
    )
    assert response.headers["vary"] == "origin"
    refused = HTTP.options(gateway.url + client.path, headers=headers | {"origin": "https://evil"})
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("client", [CHAT, *STREAMED], ids=lambda client: client.name)
def test_page_of_allowed_origin_gets_cors_headers(
    client: Client, locked_gateway: RunningGateway
) -> None:
    response = ask(locked_gateway.url, client, origin=PAGE, authorization=f"Bearer {KEYS[0]}")
    assert (response.status, response.text) == (200, "Hello.")
    assert response.headers["access-control-allow-origin"] == PAGE
    refused = ask(locked_gateway.url, client, origin=PAGE)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == PAGE


# Bodies.

TYPES: dict[str, int] = {
    "application/json": 200,
    "Application/JSON; charset=utf-8": 200,
    "application/vnd.api+json": 200,
    "text/plain": 415,
    "text/plain; application/json": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=x": 415,
    "": 415,
    "json": 415,
    "text/plain\r\nContent-Type: application/json": 400,
}


@pytest.mark.parametrize("content_type", TYPES)
def test_content_type_must_be_json(content_type: str, open_gateway: RunningGateway) -> None:
    response = send_bytes(
        open_gateway.url, encode_request(CHAT, None, f"Content-Type: {content_type}")
    )
    assert response.status == TYPES[content_type], response


def encode_without_type(client: Client, *headers: str) -> bytes:
    data = encode_request(client, None, *headers)
    return data.replace(b"Content-Type: application/json\r\n", b"")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_request_of_a_program_without_content_type_is_admitted(
    client: Client, open_gateway: RunningGateway
) -> None:
    assert send_bytes(open_gateway.url, encode_without_type(client)).status == 200


BROWSER_HEADERS = {
    "Host: localhost:7\r\nOrigin: http://localhost:7": 415,
    f"Origin: {PAGE}": 415,
    "Sec-Fetch-Site: same-origin": 415,
    "Sec-Fetch-Site: none": 415,
    "Sec-Fetch-Mode: no-cors": 415,
    "Sec-Fetch-Dest: empty": 415,
    "Origin: null": 403,
    "Origin: https://evil.example": 403,
    "Sec-Fetch-Site: cross-site": 403,
    "Host: evil.example": 403,
}


@pytest.mark.parametrize("header", BROWSER_HEADERS)
@pytest.mark.parametrize("client", WHOLE, ids=lambda client: client.name)
def test_request_of_a_page_without_content_type_is_rejected(
    client: Client, header: str, open_gateway: RunningGateway
) -> None:
    data = encode_without_type(client, *header.split("\r\n"))
    response = send_bytes(open_gateway.url, data)
    assert response.status == BROWSER_HEADERS[header]
    if response.status == 415:
        assert "application/json" in read_error(client.wire, json.loads(response.raw))


def test_text_without_content_type_is_rejected(open_gateway: RunningGateway) -> None:
    data = encode_request(CHAT, b"not JSON").replace(b"Content-Type: application/json\r\n", b"")
    assert send_bytes(open_gateway.url, data).status == 400


def test_request_off_loopback_without_content_type_is_rejected(model: ScriptedServer) -> None:
    with run_gateway(set_server(make_config(model.url), host="0.0.0.0", keys=KEYS)) as gateway:
        data = encode_without_type(CHAT, f"Authorization: Bearer {KEYS[0]}")
        assert send_bytes(gateway.url, data).status == 415


# Keys.

CREDENTIALS: dict[str, int] = {
    f"Authorization: Bearer {KEYS[0]}": 200,
    f"Authorization: Bearer {KEYS[1]}": 200,
    f"authorization: bearer  {KEYS[1]} ": 200,
    f"x-api-key: {KEYS[0]}": 200,
    f"x-goog-api-key: {KEYS[0]}": 200,
    f"Authorization: Bearer wrong\r\nx-api-key: {KEYS[0]}": 200,
    "X-Nothing: at all": 401,
    "Authorization: Bearer wrong": 401,
    "Authorization: Bearer": 401,
    "Authorization: Bearer ": 401,
    f"Authorization: Basic {KEYS[0]}": 401,
    f"Authorization: {KEYS[0]}": 401,
    f"Authorization: Bearer {KEYS[0]}x": 401,
    f"Authorization: Bearer {KEYS[0][:-1]}": 401,
    f"Authorization: Bearer {KEYS[0].upper()}": 401,
    f"Authorization: Bearer {KEYS[0]},{KEYS[1]}": 401,
    "Authorization: Bearer ключ": 401,
    "x-api-key: 🔑": 401,
    "x-api-key:": 401,
    f"Cookie: key={KEYS[0]}": 401,
}


@pytest.mark.parametrize("credentials", CREDENTIALS)
def test_key_in_headers_is_checked(credentials: str, locked_gateway: RunningGateway) -> None:
    response = send_bytes(locked_gateway.url, encode_request(CHAT, None, credentials))
    assert response.status == CREDENTIALS[credentials], response


QUERIES: dict[str, int] = {
    f"key={KEYS[0]}": 200,
    f"alt=sse&key={KEYS[1]}": 200,
    "key=wrong": 401,
    "key=": 401,
    "key=%ff%fe": 401,
    "key=%F0%9F%94%91": 401,
    f"nokey={KEYS[0]}": 401,
    f"key={KEYS[0]}%00": 401,
}


@pytest.mark.parametrize("query", QUERIES)
def test_key_in_query_is_checked(query: str, locked_gateway: RunningGateway) -> None:
    client = structs.replace(WHOLE[4], path=f"{WHOLE[4].path}?{query}")
    assert send_bytes(locked_gateway.url, encode_request(client)).status == QUERIES[query]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_missing_or_wrong_key_is_rejected(client: Client, locked_gateway: RunningGateway) -> None:
    for credentials in ({}, {"x-api-key": WRONG_KEY}):
        response = ask(locked_gateway.url, client, **credentials)
        assert response.status == 401
        assert "key is missing or wrong" in response.error
        assert WRONG_KEY not in response.error
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", GET_PATHS)
def test_key_of_get_request_is_checked(path: str, locked_gateway: RunningGateway) -> None:
    assert HTTP.get(locked_gateway.url + path).status_code == 401
    credentials = {"x-api-key": KEYS[1]}
    assert HTTP.get(locked_gateway.url + path, headers=credentials).status_code == 200


def test_empty_configured_key_admits_nobody(model: ScriptedServer) -> None:
    with run_gateway(set_server(make_config(model.url), keys=("",))) as gateway:
        for credentials in ("X-Nothing: at all", "x-api-key:", "Authorization: Bearer "):
            assert send_bytes(gateway.url, encode_request(CHAT, None, credentials)).status == 401
        empty_key = structs.replace(WHOLE[4], path=f"{WHOLE[4].path}?key=")
        assert ask(gateway.url, empty_key).status == 401


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_needs_no_key(
    path: str, locked_gateway: RunningGateway, open_gateway: RunningGateway
) -> None:
    for gateway in (locked_gateway, open_gateway):
        for headers in ({}, {"host": "10.1.2.3:7878"}, {"origin": "https://evil.example"}):
            response = HTTP.get(gateway.url + path, headers=headers)
            assert response.status_code == 200
            assert "access-control-allow-origin" not in response.headers
            assert response.json() in ({"status": "ok"}, {"status": "ready"})


@pytest.mark.parametrize("sent", [*KEYS, WRONG_KEY])
def test_key_is_compared_with_every_configured_key(
    sent: str, locked_gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first match must not end the comparison: its time would reveal which key it was."""
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def record(presented: bytes, known: bytes) -> bool:
        compared.append(known)
        return compare(presented, known)

    monkeypatch.setattr(hmac, "compare_digest", record)
    status = ask(locked_gateway.url, CHAT, **{"x-api-key": sent}).status
    assert status == (200 if sent in KEYS else 401)
    assert compared == [key.encode() for key in KEYS]


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "anthropic", "gemini"])
def test_client_key_is_never_sent_to_the_upstream(wire: str) -> None:
    config = set_server(make_config("", wire), keys=KEYS)
    with FaultyUpstream() as upstream:
        config = structs.replace(config, upstreams=make_config(upstream.url, wire).upstreams)
        with run_gateway(config) as gateway:
            for client in CLIENTS:
                separator = "&" if "?" in client.path else "?"
                in_query = structs.replace(client, path=f"{client.path}{separator}key={KEYS[0]}")
                for name in ("authorization", "x-api-key", "x-goog-api-key"):
                    key = f"Bearer {KEYS[0]}" if name == "authorization" else KEYS[0]
                    assert ask(gateway.url, client, **{name: key}).status == 200
                assert ask(gateway.url, in_query).status == 200
        assert len(upstream.requests) == 4 * len(CLIENTS)
        assert not [one for one in upstream.requests if KEYS[0] in one.head + one.body.decode()]


# Secrets.

SECRETS = {
    "key": "sk-upstream-secret-31337",
    "header": "team-secret-4711",
    "token": "token-secret-0815",
    "password": "pass-secret-1234",
}


def echo_request(kind: str) -> Action:
    """Put the head of each request, with its secrets, into the response."""

    async def respond(received: ReceivedRequest) -> bool:
        message = f"who are you? {received.head}"
        failure = Failure(
            "unauthorized", message, 401, details={"headers": [received.head, {"a": 1}]}
        )
        body = encode_json(received.wire.encode_failure(failure))
        match kind:
            case "plain":
                await received.respond(401, message.encode(), content_type="text/plain")
            case "redirect":
                location = f"http://user:{SECRETS['password']}@elsewhere/?key={SECRETS['key']}"
                await received.respond(302, b"", location=location)
            case "error in stream" if received.request.stream:
                data = b"".join(received.encode([TextDelta("Hello."), failure]))
                await received.respond(200, data)
            case _:
                status = 401 if kind == "error body" else 200
                await received.respond(status, body, content_type="application/json")
        return True

    return respond


def make_config_with_secrets(url: str, wire: str) -> Config:
    """Return a configuration with secrets wherever an upstream can have any."""
    config = set_server(make_config(url, wire), keys=KEYS)
    scripted = structs.replace(
        config.upstreams["scripted"],
        key=SECRETS["key"],
        headers={"X-Team": SECRETS["header"], "X-Token": f"Token {SECRETS['token']}"},
    )
    if wire != "openai_chat":
        # Only where the key is not in Authorization, the URL may have a password.
        base_url = scripted.base_url.replace("://", f"://user:{SECRETS['password']}@")
        scripted = structs.replace(scripted, base_url=base_url)
    return structs.replace(config, upstreams={"scripted": scripted})


def find_secrets(text: str) -> list[str]:
    basic = b64encode(f"user:{SECRETS['password']}".encode()).decode()
    return [secret for secret in (*SECRETS.values(), *KEYS, basic) if secret in text]


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "gemini"])
@pytest.mark.parametrize("kind", ["plain", "error body", "error in stream", "redirect"])
def test_secrets_echoed_by_upstream_are_removed(
    kind: str, wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        FaultyUpstream() as upstream,
        run_gateway(make_config_with_secrets(upstream.url, wire)) as gateway,
    ):
        upstream.set_actions(echo_request(kind))
        for client in CLIENTS:
            response = ask(gateway.url, client, authorization=f"Bearer {KEYS[0]}")
            assert response.error
            assert find_secrets(repr((response.headers, response.raw.decode()))) == []
            assert upstream.url.removeprefix("http://") not in response.raw.decode()
        assert len(find_secrets(upstream.requests[0].head)) >= 3
        assert find_secrets(caplog.text) == []


def test_secrets_are_not_in_error_of_unreachable_upstream(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with run_gateway(make_config_with_secrets("http://127.0.0.1:9", "anthropic")) as gateway:
        for client in CLIENTS:
            response = ask(gateway.url, client, **{"x-api-key": KEYS[1]})
            assert response.status == 502
            assert find_secrets(response.raw.decode()) == []
            assert "127.0.0.1" not in response.raw.decode()
    assert find_secrets(caplog.text) == []


def read_log(caplog: pytest.LogCaptureFixture) -> str:
    """Return the gateway's log without that of the test's own HTTP client."""
    return "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith("http"))


def test_keys_of_clients_are_not_logged(
    caplog: pytest.LogCaptureFixture, locked_gateway: RunningGateway
) -> None:
    caplog.set_level(logging.DEBUG)
    for client in CLIENTS:
        for key in (KEYS[0], "wrong-key-0123456789"):
            separator = "&" if "?" in client.path else "?"
            keyed_client = structs.replace(client, path=f"{client.path}{separator}key={key}")
            response = ask(locked_gateway.url, keyed_client)
            assert key not in repr((response.headers, response.raw))
            assert HTTP.get(f"{locked_gateway.url}/nowhere?key={key}").status_code in (401, 404)
    log = read_log(caplog)
    assert KEYS[0] not in log
    assert "wrong-key" not in log


def test_internal_error_reveals_only_request_id(
    caplog: pytest.LogCaptureFixture,
    locked_gateway: RunningGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(chat_handler, "check_schemas", fail)
    for client in CLIENTS:
        response = ask(locked_gateway.url, client, authorization=f"Bearer {KEYS[0]}")
        assert response.status == 500
        assert response.headers["x-request-id"] in response.error
        assert "division" not in response.error
        assert response.headers["x-request-id"] in caplog.text
    log = read_log(caplog)
    assert KEYS[0] not in log
