"""Who may talk to the gateway: machines by their Host, pages by their Origin, clients by their key.
And what nobody is told."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import Act, Asked, Faulty
from tests.gateway.raw_clients import (
    CLIENTS,
    HTTP,
    STREAMED,
    WHOLE,
    Client,
    Heard,
    ask,
    bytes_of,
    error_of,
    sent,
)
from tests.gateway.running_gateway import Running, behind, running
from toolspeak.config.settings import Config, ServerSettings
from toolspeak.events import Finish, TextDelta
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure
from toolspeak.wires.framing import encode_json

CHAT = WHOLE[0]
PAGE = "https://app.example"
KEYS = ("sk-first-key-0123456789", "sk-second-key-987654321")
READABLE = ("/v1/models", "/v1beta/models", "/api/tags", "/metrics", "/")


def serving(config: Config, **server: Any) -> Config:
    return structs.replace(config, server=ServerSettings(**server))


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta("Hello."), Finish("stop")]) as server:
        yield server


@pytest.fixture(scope="module")
def open_gateway(model: ScriptedServer) -> Iterator[Running]:
    """On loopback, without keys."""
    config = serving(
        behind(model.url),
        allowed_hosts=("Example.org", "with.port:8080"),
        allowed_origins=(PAGE, "http://two/"),
    )
    with running(config) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def locked_gateway(model: ScriptedServer) -> Iterator[Running]:
    """With keys."""
    with running(serving(behind(model.url), keys=KEYS, allowed_origins=(PAGE,))) as gateway:
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
def test_hosts(host: str, open_gateway: Running) -> None:
    heard = sent(open_gateway.url, bytes_of(CHAT, None, host))
    assert heard.status == HOSTS[host], heard
    assert heard.status == 200 or error_of(CHAT.wire, json.loads(heard.raw))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_no_host(client: Client, open_gateway: Running) -> None:
    data = bytes_of(client).replace(b"Host: localhost\r\n", b"")
    heard = sent(open_gateway.url, data)
    assert heard.status == 403
    assert "server.allowed_hosts" in error_of(client.wire, json.loads(heard.raw))


@pytest.mark.parametrize("path", READABLE)
def test_hosts_of_whatever_is_read(path: str, open_gateway: Running) -> None:
    for host, status in (("localhost", 200), ("evil.example", 403)):
        assert HTTP.get(open_gateway.url + path, headers={"host": host}).status_code == status


def test_any_host_where_keys_are_needed_anyway(model: ScriptedServer) -> None:
    with running(serving(behind(model.url), host="0.0.0.0", keys=KEYS)) as gateway:
        key = f"Authorization: Bearer {KEYS[0]}"
        assert sent(gateway.url, bytes_of(CHAT, None, "Host: gw.example", key)).status == 200
        assert sent(gateway.url, bytes_of(CHAT, None, "Host: gw.example")).status == 401


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
def test_origins(origin: str, open_gateway: Running) -> None:
    heard = sent(open_gateway.url, bytes_of(CHAT, None, f"Origin: {origin}"))
    assert heard.status == ORIGINS[origin], heard
    allowed = heard.headers.get("access-control-allow-origin")
    assert allowed == (origin if heard.status == 200 else None)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_pages_are_refused_in_words_of_the_api(client: Client, open_gateway: Running) -> None:
    heard = ask(open_gateway.url, client, origin="https://evil.example")
    assert heard.status == 403
    assert "server.allowed_origins" in heard.error


def test_its_own_pages(open_gateway: Running) -> None:
    for origin, host, status in (
        ("http://localhost:7878", "localhost:7878", 200),
        ("http://localhost:7879", "localhost:7878", 403),
    ):
        data = bytes_of(CHAT, None, f"Host: {host}", f"Origin: {origin}")
        assert sent(open_gateway.url, data).status == status


def test_any_page_if_the_configuration_says_so(model: ScriptedServer) -> None:
    with running(serving(behind(model.url), allowed_origins=("*",))) as gateway:
        heard = ask(gateway.url, CHAT, origin="https://whoever.example")
        assert heard.headers["access-control-allow-origin"] == "https://whoever.example"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("kind", ["open", "locked"])
def test_a_browser_asks_first(kind: str, client: Client, request: pytest.FixtureRequest) -> None:
    """Without a key, and without a body."""
    gateway: Running = request.getfixturevalue(f"{kind}_gateway")
    asked = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-api-key",
    }
    answer = HTTP.options(gateway.url + client.path, headers=asked)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == asked["access-control-request-headers"]
    assert answer.headers["vary"] == "origin"
    refused = HTTP.options(gateway.url + client.path, headers=asked | {"origin": "https://evil"})
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("client", [CHAT, *STREAMED], ids=lambda client: client.name)
def test_a_page_that_may(client: Client, locked_gateway: Running) -> None:
    heard = ask(locked_gateway.url, client, origin=PAGE, authorization=f"Bearer {KEYS[0]}")
    assert (heard.status, heard.text) == (200, "Hello.")
    assert heard.headers["access-control-allow-origin"] == PAGE
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
def test_content_types(content_type: str, open_gateway: Running) -> None:
    heard = sent(open_gateway.url, bytes_of(CHAT, None, f"Content-Type: {content_type}"))
    assert heard.status == TYPES[content_type], heard


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_no_content_type(client: Client, open_gateway: Running) -> None:
    data = bytes_of(client).replace(b"Content-Type: application/json\r\n", b"")
    heard = sent(open_gateway.url, data)
    assert heard.status == 415
    assert "application/json" in error_of(client.wire, json.loads(heard.raw))


# Keys.

SHOWN: dict[str, int] = {
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


@pytest.mark.parametrize("shown", SHOWN)
def test_keys(shown: str, locked_gateway: Running) -> None:
    heard = sent(locked_gateway.url, bytes_of(CHAT, None, shown))
    assert heard.status == SHOWN[shown], heard


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
def test_keys_in_the_query(query: str, locked_gateway: Running) -> None:
    client = structs.replace(WHOLE[4], path=f"{WHOLE[4].path}?{query}")
    assert sent(locked_gateway.url, bytes_of(client)).status == QUERIES[query]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_no_key(client: Client, locked_gateway: Running) -> None:
    for shown in ({}, {"x-api-key": "wrong"}):
        heard = ask(locked_gateway.url, client, **shown)
        assert heard.status == 401
        assert "key" in heard.error
        assert "wrong" not in heard.error
        assert heard.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", READABLE)
def test_keys_for_whatever_is_read(path: str, locked_gateway: Running) -> None:
    assert HTTP.get(locked_gateway.url + path).status_code == 401
    shown = {"x-api-key": KEYS[1]}
    assert HTTP.get(locked_gateway.url + path, headers=shown).status_code == 200


def test_an_empty_key_lets_nobody_in(model: ScriptedServer) -> None:
    with running(serving(behind(model.url), keys=("",))) as gateway:
        for shown in ("X-Nothing: at all", "x-api-key:", "Authorization: Bearer "):
            assert sent(gateway.url, bytes_of(CHAT, None, shown)).status == 401
        keyed = structs.replace(WHOLE[4], path=f"{WHOLE[4].path}?key=")
        assert ask(gateway.url, keyed).status == 401


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_is_open(path: str, locked_gateway: Running, open_gateway: Running) -> None:
    for gateway in (locked_gateway, open_gateway):
        for headers in ({}, {"host": "10.1.2.3:7878"}, {"origin": "https://evil.example"}):
            answer = HTTP.get(gateway.url + path, headers=headers)
            assert answer.status_code == 200
            assert "access-control-allow-origin" not in answer.headers


# Secrets.

SECRETS = {
    "key": "sk-upstream-secret-31337",
    "header": "team-secret-4711",
    "token": "token-secret-0815",
    "password": "pass-secret-1234",
}


def echoes(how: str) -> Act:
    """An upstream that tells everybody what it was asked with."""

    async def act(asked: Asked) -> bool:
        said = f"who are you? {asked.head}"
        failure = Failure("unauthorized", said, 401, details={"headers": [asked.head, {"a": 1}]})
        words = encode_json(asked.wire.encode_failure(failure))
        match how:
            case "plain":
                await asked.answer(401, said.encode(), content_type="text/plain")
            case "moved":
                place = f"http://user:{SECRETS['password']}@elsewhere/?key={SECRETS['key']}"
                await asked.answer(302, b"", location=place)
            case "in the stream" if asked.request.stream:
                data = b"".join(asked.written([TextDelta("Hello."), failure]))
                await asked.answer(200, data)
            case _:
                status = 401 if how == "own words" else 200
                await asked.answer(status, words, content_type="application/json")
        return True

    return act


def keyed(url: str, wire: str) -> Config:
    """An upstream with secrets wherever there can be any."""
    config = serving(behind(url, wire), keys=KEYS)
    scripted = structs.replace(
        config.upstreams["scripted"],
        key=SECRETS["key"],
        headers={"X-Team": SECRETS["header"], "X-Token": f"Token {SECRETS['token']}"},
    )
    if wire != "openai_chat":
        # Where the key is no Authorization, the address may hold one.
        address = scripted.base_url.replace("://", f"://user:{SECRETS['password']}@")
        scripted = structs.replace(scripted, base_url=address)
    return structs.replace(config, upstreams={"scripted": scripted})


def told(said: str) -> list[str]:
    """The secrets in a text."""
    basic = b64encode(f"user:{SECRETS['password']}".encode()).decode()
    return [secret for secret in (*SECRETS.values(), *KEYS, basic) if secret in said]


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "gemini"])
@pytest.mark.parametrize("how", ["plain", "own words", "in the stream", "moved"])
def test_secrets_are_never_told(how: str, wire: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Faulty() as upstream, running(keyed(upstream.url, wire)) as gateway:
        upstream.does(echoes(how))
        for client in CLIENTS:
            heard = ask(gateway.url, client, authorization=f"Bearer {KEYS[0]}")
            assert heard.error
            assert told(repr((heard.headers, heard.raw.decode()))) == []
        assert len(told(upstream.asked[0].head)) >= 3
        assert told(caplog.text) == []


def test_secrets_are_not_told_when_nobody_is_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with running(keyed("http://127.0.0.1:9", "anthropic")) as gateway:
        for client in CLIENTS:
            heard = ask(gateway.url, client, **{"x-api-key": KEYS[1]})
            assert heard.status == 502
            assert told(heard.raw.decode()) == []
    assert told(caplog.text) == []


def _logged(caplog: pytest.LogCaptureFixture) -> str:
    """What the gateway logs. The client's own log is its own; and uvicorn's list of requests is
    off, but pytest turns it on, to see everything."""
    others = ("http", "uvicorn.access")
    return "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith(others))


def test_keys_are_not_logged(caplog: pytest.LogCaptureFixture, locked_gateway: Running) -> None:
    caplog.set_level(logging.DEBUG)
    for client in CLIENTS:
        for key in (KEYS[0], "wrong-key-0123456789"):
            joint = "&" if "?" in client.path else "?"
            asked = structs.replace(client, path=f"{client.path}{joint}key={key}")
            heard: Heard = ask(locked_gateway.url, asked)
            assert key not in repr((heard.headers, heard.raw))
            assert HTTP.get(f"{locked_gateway.url}/nowhere?key={key}").status_code in (401, 404)
    mine = _logged(caplog)
    assert KEYS[0] not in mine
    assert "wrong-key" not in mine


def test_a_broken_gateway_tells_no_secret(
    caplog: pytest.LogCaptureFixture, locked_gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody has foreseen is told in general terms, and in the log with the request's id."""
    caplog.set_level(logging.DEBUG)

    def breaks(_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(locked_gateway.gateway.access, "check_tool_count", breaks)
    for client in CLIENTS:
        heard = ask(locked_gateway.url, client, authorization=f"Bearer {KEYS[0]}")
        assert heard.status == 500
        assert heard.headers["x-request-id"] in heard.error
        assert "division" not in heard.error
        assert heard.headers["x-request-id"] in caplog.text
    mine = _logged(caplog)
    assert KEYS[0] not in mine
