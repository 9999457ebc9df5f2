"""The inspector's API: who may use it, and what it returns about requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.gateway.raw_clients import STREAMED, WHOLE, Client, ParsedResponse, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak import CallEnd, CallStart, Event, Finish, ReasoningDelta, TextDelta, ToolCall
from toolspeak.config.settings import Config, InspectorSettings, ServerSettings
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

TOKEN = "the-token-of-this-start"
HTTP = httpx.Client(trust_env=False, timeout=30)
SECRET = "sk-proj-4f9Q2mZx8LrT1vBn6cYw"
CALL = '<tool_call>\n{"name": "tool_0", "arguments": {"city": "Oslo"}}\n</tool_call>'


def stream_text(text: str, size: int = 7) -> list[Event]:
    chunks = (text[start : start + size] for start in range(0, len(text), size))
    return [*map(TextDelta, chunks), Finish("stop")]


class InspectorApi:
    """Sends requests to the inspector of a gateway."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.url = url
        self._headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return HTTP.get(f"{self.url}/inspector/api/{path}", headers=self._headers | headers)

    def post(self, path: str, value: Any, **headers: str) -> httpx.Response:
        url = f"{self.url}/inspector/api/{path}"
        return HTTP.post(url, json=value, headers=self._headers | headers)

    def list_requests(self) -> list[dict[str, Any]]:
        return self.get("requests").json()["requests"]

    def wait_for_last(self) -> dict[str, Any]:
        """Return the last request as soon as it has ended."""
        deadline = time.monotonic() + 60
        while not (found := self.list_requests()) or not found[-1]["is_finished"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self.get(f"requests/{found[-1]['key']}").json()


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def gateway(model: ScriptedServer) -> Iterator[RunningGateway]:
    with run_gateway(
        make_config(model.url, tools="prompt", dialect="hermes"), token=TOKEN
    ) as gateway:
        yield gateway


def send_request(url: str, client: Client, text: str = "Hi", *, tools: int = 0) -> ParsedResponse:
    return ask(url, client, client.body(text, tools=tools))


def add_turns(model: ScriptedServer, *turns: list[Event]) -> None:
    model.turns += turns


# Access.


@pytest.mark.parametrize("token", ["-", "wrong", "a-client-key", TOKEN + "x", "ü"])
def test_inspector_without_its_token_is_refused(model: ScriptedServer, token: str) -> None:
    config = structs.replace(make_config(model.url), server=ServerSettings(keys=("a-client-key",)))
    with run_gateway(config, token=TOKEN) as gateway:
        for path in ("about", "requests", "requests/x", "live", "approvals", "approvals/x"):
            response = HTTP.get(
                f"{gateway.url}/inspector/api/{path}",
                headers=[(b"authorization", f"Bearer {token}".encode())],
            )
            assert response.status_code == 401, path
            assert "toolspeak serve" in response.json()["error"]["message"]
        for path in ("parse", "chat", "approvals", "approvals/x"):
            response = HTTP.post(
                f"{gateway.url}/inspector/api/{path}",
                json={"messages": [], "text": ""},
                headers=[(b"authorization", f"Bearer {token}".encode())],
            )
            assert response.status_code == 401, path
        assert InspectorApi(gateway.url).get("requests").status_code == 200


def test_token_outside_the_authorization_header_is_refused(gateway: RunningGateway) -> None:
    url = f"{gateway.url}/inspector/api/requests"
    assert HTTP.get(f"{url}?token={TOKEN}&key={TOKEN}").status_code == 401
    for name in ("x-api-key", "x-goog-api-key", "cookie"):
        assert HTTP.get(url, headers={name: TOKEN}).status_code == 401


def test_token_as_a_client_key_is_refused(model: ScriptedServer) -> None:
    config = structs.replace(make_config(model.url), server=ServerSettings(keys=("a-client-key",)))
    with run_gateway(config, token=TOKEN) as gateway:
        response = HTTP.post(
            f"{gateway.url}/v1/chat/completions",
            json=WHOLE[0].body(),
            headers={"authorization": f"Bearer {TOKEN}"},
        )
        assert response.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"host": "evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_request_from_another_site_is_refused(
    gateway: RunningGateway, headers: dict[str, str]
) -> None:
    inspector = InspectorApi(gateway.url)
    assert inspector.get("requests", **headers).status_code == 403
    assert inspector.post("parse", {"text": ""}, **headers).status_code == 403
    assert "access-control-allow-origin" not in inspector.get("requests", **headers).headers


def test_admin_key_replaces_the_token(model: ScriptedServer) -> None:
    server = ServerSettings(keys=("a-client-key",), admin_key="the-admin-key")
    with run_gateway(
        structs.replace(make_config(model.url), server=server), token=TOKEN
    ) as gateway:
        assert InspectorApi(gateway.url).get("about").status_code == 401
        assert InspectorApi(gateway.url, "a-client-key").get("about").status_code == 401
        assert InspectorApi(gateway.url, "the-admin-key").get("about").status_code == 200


@pytest.mark.parametrize(
    ("server", "settings", "reason"),
    [
        (ServerSettings(), InspectorSettings(enabled=False), "`inspector.enabled` is false"),
        (
            ServerSettings(host="0.0.0.0", keys=("k" * 20,)),
            InspectorSettings(),
            "`server.admin_key`",
        ),
    ],
)
def test_disabled_inspector_names_the_setting(
    model: ScriptedServer, server: ServerSettings, settings: InspectorSettings, reason: str
) -> None:
    config = structs.replace(make_config(model.url), server=server, inspector=settings)
    with run_gateway(config, token=TOKEN) as gateway:
        assert gateway.gateway.recorder is None
        response = InspectorApi(gateway.url).get("requests")
        assert response.status_code == 403
        assert reason in response.json()["error"]["message"]


def test_inspector_for_other_machines_needs_the_admin_key(model: ScriptedServer) -> None:
    server = ServerSettings(host="0.0.0.0", keys=("k" * 20,), admin_key="a" * 20)
    with run_gateway(
        structs.replace(make_config(model.url), server=server), token=TOKEN
    ) as gateway:
        assert InspectorApi(gateway.url).get("requests").status_code == 401
        assert InspectorApi(gateway.url, "a" * 20).get("requests").status_code == 200


def test_allowed_origin_may_use_the_apis_but_not_the_inspector(model: ScriptedServer) -> None:
    origin = {"origin": "https://app.example"}
    server = ServerSettings(allowed_origins=("https://app.example",))
    with run_gateway(
        structs.replace(make_config(model.url), server=server), token=TOKEN
    ) as gateway:
        response = InspectorApi(gateway.url).get("requests", **origin)
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers
        url = f"{gateway.url}/inspector/api/approvals/x"
        preflight = origin | {"access-control-request-method": "POST"}
        assert "access-control-allow-origin" not in HTTP.options(url, headers=preflight).headers
        allowed = HTTP.get(f"{gateway.url}/v1/models", headers=origin)
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"


def test_admin_key_equal_to_a_client_key_is_refused(model: ScriptedServer) -> None:
    server = ServerSettings(keys=("the-same-key",), admin_key="the-same-key")
    with run_gateway(
        structs.replace(make_config(model.url), server=server), token=TOKEN
    ) as gateway:
        response = InspectorApi(gateway.url, "the-same-key").get("requests")
        assert response.status_code == 403
        assert "set a different one" in response.json()["error"]["message"]


def test_changed_admin_key_ends_open_streams(model: ScriptedServer) -> None:
    config = structs.replace(make_config(model.url), server=ServerSettings(admin_key="the-old-key"))
    with run_gateway(config, token=TOKEN) as gateway:
        url = f"{gateway.url}/inspector/api/live"
        headers = {"authorization": "Bearer the-old-key"}
        with HTTP.stream("GET", url, headers=headers) as stream:
            lines = stream.iter_lines()
            next(lines)
            server = ServerSettings(admin_key="the-new-key")
            gateway.gateway.reload(structs.replace(config, server=server))
            assert list(lines) == []
        assert InspectorApi(gateway.url, "the-old-key").get("about").status_code == 401


def test_disabling_the_inspector_drops_its_requests(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    add_turns(model, stream_text("One."), stream_text("Two."), stream_text("Three."))
    config: Config = gateway.gateway.config
    send_request(gateway.url, WHOLE[0])
    gateway.gateway.reload(structs.replace(config, inspector=InspectorSettings(enabled=False)))
    send_request(gateway.url, WHOLE[0])
    gateway.gateway.reload(config)
    assert InspectorApi(gateway.url).list_requests() == []
    send_request(gateway.url, WHOLE[0])
    assert len(InspectorApi(gateway.url).list_requests()) == 1


# The page.


def test_root_returns_the_page_to_browsers_only(gateway: RunningGateway) -> None:
    page = HTTP.get(gateway.url, headers={"accept": "text/html,*/*"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy
    assert HTTP.get(gateway.url).json()["name"] == "toolspeak"
    assert HTTP.head(gateway.url).status_code == 200


def test_link_on_another_site_opens_the_page(gateway: RunningGateway) -> None:
    headers = {"accept": "text/html", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert HTTP.get(gateway.url, headers=headers).status_code == 200
    rebound = headers | {"host": "evil.example"}
    assert HTTP.get(gateway.url, headers=rebound).status_code == 403


def test_path_outside_the_page_is_not_found(gateway: RunningGateway) -> None:
    for name in (
        "nothing.js",
        "..%2fpages.py",
        "../pages.py",
        "%2e%2e/pages.py",
        "",
        "api",
        "api/",
    ):
        response = HTTP.get(f"{gateway.url}/inspector/{name}", headers={"accept": "*/*"})
        assert response.status_code in (401, 404), name


# Records.


@pytest.mark.parametrize("client", [*WHOLE, *STREAMED], ids=lambda client: client.name)
def test_request_of_each_api_is_recorded(
    model: ScriptedServer, gateway: RunningGateway, client: Client
) -> None:
    add_turns(model, stream_text(f"I look. {CALL}"))
    # Without pauses, several chunks could arrive as one.
    model.pause = 0.01
    send_request(gateway.url, client, "What is the weather?", tools=1)
    shown = InspectorApi(gateway.url).wait_for_last()
    summary, (attempt,) = shown["summary"], shown["attempts"]
    assert (summary["wire"], summary["stream"]) == (client.wire, client.stream)
    assert (summary["model"], summary["upstream"], summary["mode"]) == ("m", "scripted", "prompt")
    assert (summary["user_message"], summary["calls"]) == ("What is the weather?", ["tool_0"])
    assert summary["status"] == shown["response"]["status"] == 200
    assert json.loads(shown["request"]["body"])
    assert attempt["text"] == f"I look. {CALL}"
    assert attempt["plan"]["reasons"]
    assert [one["role"] for one in attempt["prompt"]] == ["system", "user"]
    assert attempt["outcome"] == "calls"
    (call,) = attempt["calls"]
    assert (call["name"], call["arguments"], call["dialect"]) == (
        "tool_0",
        {"city": "Oslo"},
        "hermes",
    )
    (span,) = attempt["highlights"]
    assert attempt["text"][span["start"] : span["end"]] == CALL
    assert "Oslo" in shown["response"]["body"]
    ends = [one["end"] for one in attempt["chunks"]]
    assert ends == sorted(ends)
    assert ends[-1] == len(attempt["text"])
    assert attempt["chunks"][-1]["raw_end"] == len(attempt["raw"])
    assert shown["response"]["chunks"][-1]["end"] == len(shown["response"]["body"])
    assert len(ends) > 5 if client.stream else len(ends) >= 1


def test_native_call_and_reasoning_are_highlighted(model: ScriptedServer) -> None:
    call = ToolCall(id="call_1", name="tool_0", arguments={"city": "Oslo"})
    turn: list[Event] = [ReasoningDelta("Let me think."), TextDelta("I look. ")]
    turn += [CallStart(0, "call_1", "tool_0"), CallEnd(0, call), Finish("calls")]
    add_turns(model, turn)
    with run_gateway(make_config(model.url, tools="native"), token=TOKEN) as gateway:
        send_request(gateway.url, STREAMED[0], tools=1)
        (attempt,) = InspectorApi(gateway.url).wait_for_last()["attempts"]
    kinds = {
        one["kind"]: attempt["text"][one["start"] : one["end"]] for one in attempt["highlights"]
    }
    assert kinds["reasoning"] == "Let me think."
    assert kinds["call"].startswith("tool_0({")
    assert "Oslo" in kinds["call"]


def test_retried_request_has_every_attempt(model: ScriptedServer, gateway: RunningGateway) -> None:
    add_turns(model, stream_text("I cannot do that: I have no tools."), stream_text(CALL))
    body = STREAMED[0].body("What is the weather?", tools=1, required=True)
    assert HTTP.post(f"{gateway.url}/v1/chat/completions", json=body).status_code == 200
    shown = InspectorApi(gateway.url).wait_for_last()
    first, second = shown["attempts"]
    assert first["outcome"] == "missing-call"
    assert second["reason"] == "missing-call"
    assert "no call" in second["reason_text"]
    assert shown["summary"]["retries"] == 1
    assert "retried" in shown["summary"]["notes"]
    assert shown["attempts"][0]["end_ms"] <= second["start_ms"]


def test_failed_and_invalid_requests_are_recorded(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    add_turns(model, [Failure("rate_limit", "too much", 429)])
    response = HTTP.post(f"{gateway.url}/v1/messages", json=WHOLE[2].body())
    assert response.status_code == 429
    shown = InspectorApi(gateway.url).wait_for_last()
    assert shown["summary"]["status"] == 429
    assert "too much" in shown["failure"]["message"]
    assert shown["attempts"][0]["failure"]["kind"] == "rate_limit"
    bad = HTTP.post(f"{gateway.url}/v1/messages", json={"model": "m"})
    assert bad.status_code == 400
    shown = InspectorApi(gateway.url).wait_for_last()
    assert (shown["summary"]["status"], shown["attempts"]) == (400, [])
    assert json.loads(shown["request"]["body"]) == {"model": "m"}
    HTTP.post(
        f"{gateway.url}/v1/messages",
        content=b'{"model": ',
        headers={"content-type": "application/json"},
    )
    assert InspectorApi(gateway.url).wait_for_last()["request"]["body"] == '{"model": '


def test_failed_stream_is_recorded_with_its_text(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    failure = Failure("overloaded", "too much at once", 503)
    add_turns(model, [*stream_text("This is the beginning of it. ")[:-1], failure])
    body = {**STREAMED[0].body(), "tools": []}
    assert "too much at once" in HTTP.post(f"{gateway.url}/v1/chat/completions", json=body).text
    shown = InspectorApi(gateway.url).wait_for_last()
    assert "too much at once" in shown["failure"]["message"]
    assert "too much at once" in shown["summary"]["failure"]
    assert "beginning of it" in shown["attempts"][0]["text"]


def test_active_request_grows_while_it_is_read(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    model.pause = 0.1
    add_turns(model, stream_text("one two three four five six seven eight nine ten " * 5))
    inspector = InspectorApi(gateway.url)
    with HTTP.stream(
        "POST", f"{gateway.url}/v1/chat/completions", json=STREAMED[0].body()
    ) as stream:
        chunks = stream.iter_bytes()
        next(chunks)
        (summary,) = inspector.list_requests()
        assert not summary["is_finished"]
        first = inspector.get(f"requests/{summary['key']}").json()["attempts"][0]
        assert first["end_ms"] is None
        later = first
        while len(later["text"]) <= len(first["text"]):
            assert later["end_ms"] is None
            later = inspector.get(f"requests/{summary['key']}").json()["attempts"][0]
        assert later["text"].startswith(first["text"])
        model.pause = 0
        assert list(chunks)
    assert inspector.wait_for_last()["summary"]["is_finished"]


def test_active_request_can_be_read_at_any_moment(model: ScriptedServer) -> None:
    """Attempts and chunks are added by one thread while another one reads the record."""
    model.pause = 0.001
    add_turns(model, *[stream_text("I cannot: I have no tools. " * 40, 3)] * 3)
    with run_gateway(
        make_config(model.url, tools="prompt", dialect="hermes"), token=TOKEN
    ) as gateway:
        inspector = InspectorApi(gateway.url)
        with ThreadPoolExecutor(1) as pool:
            body = STREAMED[0].body("Weather?", tools=1, required=True)
            path = f"{gateway.url}/v1/chat/completions"
            request = pool.submit(HTTP.post, path, json=body)
            codes: set[int] = set()
            while not request.done():
                for summary in inspector.list_requests():
                    codes.add(inspector.get(f"requests/{summary['key']}").status_code)
        assert codes == {200}


def test_summary_of_active_request_is_updated_and_not_repeated(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    model.pause = 0.1
    add_turns(model, stream_text("one two three four five six seven eight nine ten " * 5))
    headers = {"authorization": f"Bearer {TOKEN}"}
    with (
        ThreadPoolExecutor(1) as pool,
        HTTP.stream("GET", f"{gateway.url}/inspector/api/live", headers=headers) as stream,
    ):
        lines = stream.iter_lines()
        request = pool.submit(send_request, gateway.url, STREAMED[0], "What is it?", tools=1)
        summaries: list[Any] = []
        while not summaries or not summaries[-1]["is_finished"]:
            summaries += json.loads(next(lines)).get("requests", [])
            if any(summary["mode"] for summary in summaries):
                model.pause = 0
        request.result()
    active = [summary for summary in summaries if not summary["is_finished"]]
    assert active[-1]["mode"] == "prompt"
    assert active[-1]["user_message"] == "What is it?"
    # Unchanged summaries are not sent again.
    assert len(summaries) < 6


def test_disconnected_client_is_recorded_as_499(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    model.pause = 0.05
    add_turns(model, stream_text("one two three four five six seven eight nine ten " * 5))
    with HTTP.stream(
        "POST", f"{gateway.url}/v1/chat/completions", json=STREAMED[0].body()
    ) as stream:
        next(stream.iter_bytes())
    shown = InspectorApi(gateway.url).wait_for_last()
    assert shown["summary"]["status"] == 499
    assert shown["attempts"][0]["text"]


def test_finished_requests_stay_within_the_limits(model: ScriptedServer) -> None:
    add_turns(model, *[stream_text(f"This is number {number}.") for number in range(12)])
    settings = InspectorSettings(requests=5, bytes=200_000)
    config = structs.replace(make_config(model.url), inspector=settings)
    with run_gateway(config, token=TOKEN) as gateway:
        inspector = InspectorApi(gateway.url)
        for _ in range(8):
            send_request(gateway.url, WHOLE[0])
        before = inspector.list_requests()
        assert len(before) == 5
        for _ in range(2):
            send_request(gateway.url, WHOLE[0], "x" * 60_000)
        assert len(inspector.list_requests()) < 5
        send_request(gateway.url, WHOLE[0], "y" * 300_000)
        last = inspector.list_requests()[-1]
        assert last["user_message"].startswith("yyy")
        assert inspector.wait_for_last()["request"]["body"] == ""
        assert inspector.get(f"requests/{before[0]['key']}").status_code == 404


def test_active_request_stays_within_the_limits(model: ScriptedServer) -> None:
    add_turns(model, stream_text("A long story. " * 3000, 100), stream_text("Short."))
    config = structs.replace(make_config(model.url), inspector=InspectorSettings(bytes=50_000))
    with run_gateway(config, token=TOKEN) as gateway:
        reply = send_request(gateway.url, STREAMED[0])
        assert reply.text == "A long story. " * 3000
        recorder = gateway.gateway.recorder
        assert recorder
        assert InspectorApi(gateway.url).wait_for_last()["summary"]["status"] == 200
        send_request(gateway.url, STREAMED[0])
        # The bytes of the first request are available again.
        shown = InspectorApi(gateway.url).wait_for_last()
        assert shown["attempts"][0]["text"] == "Short."
        assert "not kept" not in shown["attempts"][0]["raw"]


def test_truncated_response_names_the_missing_bytes(model: ScriptedServer) -> None:
    add_turns(model, stream_text("A long story. " * 300, 10))
    config = structs.replace(make_config(model.url), inspector=InspectorSettings(bytes=120_000))
    with run_gateway(config, token=TOKEN) as gateway:
        send_request(gateway.url, STREAMED[0])
        shown = InspectorApi(gateway.url).wait_for_last()
        assert "more bytes were not kept" in shown["response"]["body"]
        assert shown["response"]["size"] > len(shown["response"]["body"])


def test_repeated_request_id_finds_the_newest_request(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    add_turns(model, stream_text("One."), stream_text("Two."))
    for _ in range(2):
        headers = {"x-request-id": "mine/1"}
        HTTP.post(f"{gateway.url}/v1/chat/completions", json=WHOLE[0].body(), headers=headers)
    inspector = InspectorApi(gateway.url)
    first, second = inspector.list_requests()
    assert first["id"] == second["id"] == "mine/1"
    assert first["key"] != second["key"]
    assert inspector.get("requests/mine%2F1").json()["attempts"][0]["text"] == "Two."
    assert inspector.get(f"requests/{first['key']}").json()["attempts"][0]["text"] == "One."


def test_unusual_unicode_is_recorded(model: ScriptedServer, gateway: RunningGateway) -> None:
    text = f"𝒽ello 👩‍👩‍👧 {CALL} 🦀"
    add_turns(model, stream_text(text, 3))
    messages = b'[{"role": "user", "content": "\\ud800 \\u0000"}]'
    body = b'{"model": "m\\ud800", "stream": true, "messages": ' + messages + b"}"
    headers = {"content-type": "application/json"}
    HTTP.post(f"{gateway.url}/v1/chat/completions", content=body, headers=headers)
    shown = InspectorApi(gateway.url).wait_for_last()
    assert shown["attempts"][0]["text"] == text
    assert InspectorApi(gateway.url).list_requests()[0]["is_finished"]


def test_positions_are_counted_in_utf16_units(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    add_turns(model, stream_text(f"🦀🦀 {CALL} 🦀"))
    send_request(gateway.url, STREAMED[0], tools=1)
    (attempt,) = InspectorApi(gateway.url).wait_for_last()["attempts"]
    units = attempt["text"].encode("utf-16-le")
    (span,) = attempt["highlights"]
    assert units[2 * span["start"] : 2 * span["end"]].decode("utf-16-le") == CALL
    assert attempt["chunks"][-1]["end"] == len(units) // 2


# Secrets.


def test_secrets_of_a_request_are_masked(model: ScriptedServer) -> None:
    add_turns(
        model, stream_text(f"Your api_key is {SECRET}, and so is the other: {SECRET}. {CALL}", 5)
    )
    config = make_config(model.url, tools="prompt", dialect="hermes")
    key = structs.replace(config.upstreams["scripted"], key="upstream-key-0123456789")
    server = ServerSettings(keys=("client-key-0123456789",))
    config = structs.replace(config, upstreams={"scripted": key}, server=server)
    with run_gateway(config, token=TOKEN) as gateway:
        text = f"api_key={SECRET} and upstream-key-0123456789"
        HTTP.post(
            f"{gateway.url}/v1/chat/completions?key=client-key-0123456789",
            json=STREAMED[0].body(text, tools=1),
            headers={
                "authorization": "Bearer client-key-0123456789",
                "x-own": "what-is-this",
            },
        )
        inspector = InspectorApi(gateway.url)
        shown = inspector.wait_for_last()
        listed = inspector.get("requests").text
    everything = json.dumps(shown) + listed
    for secret in (SECRET, "upstream-key-0123456789", "client-key-0123456789", "what-is-this"):
        assert secret not in everything
        # Nor in parts: each chunk of the stream has five characters.
        for at in range(5, len(secret) - 5):
            assert f'"{secret[at : at + 5]}"' not in everything, secret
    attempt = shown["attempts"][0]
    assert shown["masked_secrets"] >= 2
    assert sum(one["kind"] == "secret" for one in attempt["highlights"]) == 2
    assert attempt["text"].count("sk-p****") == 2
    assert [one["arguments"] for one in attempt["calls"]] == [{"city": "Oslo"}]
    assert "$KEY" in shown["curl"]


# Live updates.


def test_live_stream_sends_requests_and_approvals(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    add_turns(model, stream_text("One."))
    inspector = InspectorApi(gateway.url)
    with HTTP.stream(
        "GET",
        f"{gateway.url}/inspector/api/live",
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as stream:
        lines = stream.iter_lines()
        first = json.loads(next(lines))
        assert first["approvals"] == []
        assert first["epoch"]
        send_request(gateway.url, WHOLE[0])
        summaries: list[Any] = []
        while not summaries or not summaries[-1]["is_finished"]:
            summaries += json.loads(next(lines)).get("requests", [])
        assert summaries[-1]["key"] == inspector.list_requests()[-1]["key"]
        inspector.post("approvals", {"tool": "t", "expires_at": time.time() + 60})
        line = json.loads(next(lines))
        assert line["approvals"][0]["tool"] == "t"


def test_live_stream_ends_when_the_gateway_stops(model: ScriptedServer) -> None:
    with run_gateway(make_config(model.url), token=TOKEN) as gateway:
        headers = {"authorization": f"Bearer {TOKEN}"}
        url = f"{gateway.url}/inspector/api/live"
        with HTTP.stream("GET", url, headers=headers) as stream:
            lines = stream.iter_lines()
            next(lines)
            gateway.gateway.is_stopping = True
            assert list(lines) == []


def test_inspector_requests_are_neither_counted_nor_recorded(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    inspector = InspectorApi(gateway.url)
    inspector.get("requests")
    inspector.get("about")
    metrics = HTTP.get(f"{gateway.url}/metrics").text
    assert "toolspeak_requests_total{" not in metrics
    assert inspector.list_requests() == []


# Approvals.


def test_approval_keeps_its_first_answer(gateway: RunningGateway) -> None:
    inspector = InspectorApi(gateway.url)
    approval = {"tool": "rm", "arguments": {"path": "/"}, "expires_at": time.time() + 60}
    first = inspector.post("approvals", approval).json()
    second = inspector.post("approvals", {**approval, "can_always": True}).json()
    pending = inspector.get("approvals").json()["approvals"]
    assert [one["id"] for one in pending] == [first["id"], second["id"]]
    assert pending[0]["arguments"] == {"path": "/"}
    assert inspector.get(f"approvals/{first['id']}").json() == {"answer": None}
    # "always" counts as "yes" if it was not offered.
    url = f"approvals/{first['id']}"
    assert inspector.post(url, {"answer": "always"}).json() == {"answer": "yes"}
    for _ in range(3):
        assert inspector.post(url, {"answer": "no"}).json() == {"answer": "yes"}
    assert inspector.post(f"approvals/{second['id']}", {"answer": "always"}).json() == {
        "answer": "always"
    }
    assert inspector.get(f"{url}?wait=5").json() == {"answer": "yes"}
    assert inspector.get("approvals").json() == {"approvals": []}
    assert inspector.post("approvals/ask_none", {"answer": "yes"}).status_code == 404
    assert inspector.post(url, {"answer": "perhaps"}).status_code == 400
    assert inspector.post("approvals", {"tool": 1}).status_code == 400


def test_expired_approval_is_gone(gateway: RunningGateway) -> None:
    inspector = InspectorApi(gateway.url)
    approval = inspector.post("approvals", {"tool": "rm", "expires_at": time.time() + 0.1}).json()
    time.sleep(0.11)
    assert inspector.get("approvals").json() == {"approvals": []}
    assert inspector.post(f"approvals/{approval['id']}", {"answer": "yes"}).status_code == 404


# The playground.


def test_parse_returns_calls_rejections_and_highlights(gateway: RunningGateway) -> None:
    inspector = InspectorApi(gateway.url)
    tools = STREAMED[0].body(tools=1)["tools"]
    text = f"🦀\n<think>let me see</think> {CALL} and <tool_call>oops</tool_call>"
    found = inspector.post("parse", {"text": text, "tools": tools}).json()
    (call,) = found["calls"]
    assert call["dialect"] == "hermes"
    assert len(found["rejected"]) == 1
    assert found["reasoning"] == "let me see"
    units, spans = text.encode("utf-16-le"), {one["kind"]: one for one in found["highlights"]}
    shown = {
        kind: units[2 * span["start"] : 2 * span["end"]].decode("utf-16-le")
        for kind, span in spans.items()
    }
    assert (shown["call"], shown["rejected"]) == (CALL, "<tool_call>oops</tool_call>")
    assert "reasoning" in shown
    assert spans["rejected"]["start"] > spans["call"]["end"]
    assert all(one["meaning"] for one in found["notes"])
    strict = {"text": text, "tools": tools, "trust": "strict", "dialect": "glm45"}
    assert inspector.post("parse", strict).json()["calls"] == []
    for invalid in ({"text": 1}, {"text": "", "tools": [1]}, {"text": "", "dialect": "nope"}, {}):
        assert inspector.post("parse", invalid).status_code == 400, invalid


def test_example_of_each_dialect_can_be_parsed(gateway: RunningGateway) -> None:
    about = InspectorApi(gateway.url).get("about").json()
    tools = [about["samples"][0]["tool"]]
    assert len(about["dialects"]) > 60
    for dialect in about["dialects"][::9]:
        body = {"text": dialect["example"], "tools": tools, "dialect": dialect["name"]}
        found = InspectorApi(gateway.url).post("parse", body).json()
        assert [one["name"] for one in found["calls"]] == ["get_weather"], dialect["name"]


def test_chat_of_the_page_needs_no_client_key(model: ScriptedServer) -> None:
    add_turns(model, stream_text("Hello there."))
    config = structs.replace(make_config(model.url), server=ServerSettings(keys=("a-client-key",)))
    with run_gateway(config, token=TOKEN) as gateway:
        inspector = InspectorApi(gateway.url)
        response = inspector.post("chat", STREAMED[0].body())
        assert "Hello" in response.text
        assert inspector.wait_for_last()["summary"]["key"] == response.headers["x-request-id"]
        bad = inspector.post("chat", {"model": "m"})
        assert bad.status_code == 400
        assert "messages" in bad.json()["error"]["message"]
