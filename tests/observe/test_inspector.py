"""What is kept of requests, who gets to see it, and what it looks like to them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.gateway.raw_clients import STREAMED, WHOLE, Client, Heard, ask
from tests.gateway.running_gateway import Running, behind, running
from toolspeak import CallEnd, CallStart, Event, Finish, ReasoningDelta, TextDelta, ToolCall
from toolspeak.config.settings import Config, InspectorSettings, ServerSettings
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

TOKEN = "the-token-of-this-start"
HTTP = httpx.Client(trust_env=False, timeout=30)
SECRET = "sk-proj-4f9Q2mZx8LrT1vBn6cYw"
CALL = '<tool_call>\n{"name": "tool_0", "arguments": {"city": "Oslo"}}\n</tool_call>'


def words(text: str, size: int = 7) -> list[Event]:
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    return [*map(TextDelta, pieces), Finish("stop")]


class Looking:
    """Somebody who looks at a gateway."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.url = url
        self._headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return HTTP.get(f"{self.url}/inspector/api/{path}", headers=self._headers | headers)

    def post(self, path: str, value: Any, **headers: str) -> httpx.Response:
        place = f"{self.url}/inspector/api/{path}"
        return HTTP.post(place, json=value, headers=self._headers | headers)

    def requests(self) -> list[dict[str, Any]]:
        return self.get("requests").json()["requests"]

    def last(self) -> dict[str, Any]:
        """The last request, when it is over."""
        deadline = time.monotonic() + 5
        while not (found := self.requests()) or not found[-1]["is_finished"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self.get(f"requests/{found[-1]['key']}").json()


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def gateway(model: ScriptedServer) -> Iterator[Running]:
    with running(behind(model.url, tools="prompt", dialect="hermes"), token=TOKEN) as gateway:
        yield gateway


def asked(url: str, client: Client, text: str = "Hi", *, tools: int = 0) -> Heard:
    return ask(url, client, client.body(text, tools=tools))


def say(model: ScriptedServer, *turns: list[Event]) -> None:
    model.turns += turns


# Who may look.


@pytest.mark.parametrize("token", ["-", "wrong", "a-client-key", TOKEN + "x", "ü"])
def test_nobody_looks_without_the_token(model: ScriptedServer, token: str) -> None:
    config = structs.replace(behind(model.url), server=ServerSettings(keys=("a-client-key",)))
    with running(config, token=TOKEN) as gateway:
        for path in ("about", "requests", "requests/x", "live", "approvals", "approvals/x"):
            got = HTTP.get(
                f"{gateway.url}/inspector/api/{path}",
                headers=[(b"authorization", f"Bearer {token}".encode())],
            )
            assert got.status_code == 401, path
            assert "toolspeak serve" in got.json()["error"]["message"]
        for path in ("parse", "chat", "approvals", "approvals/x"):
            got = HTTP.post(
                f"{gateway.url}/inspector/api/{path}",
                json={"messages": [], "text": ""},
                headers=[(b"authorization", f"Bearer {token}".encode())],
            )
            assert got.status_code == 401, path
        assert Looking(gateway.url).get("requests").status_code == 200


def test_a_token_in_other_places_opens_nothing(gateway: Running) -> None:
    place = f"{gateway.url}/inspector/api/requests"
    assert HTTP.get(f"{place}?token={TOKEN}&key={TOKEN}").status_code == 401
    for name in ("x-api-key", "x-goog-api-key", "cookie"):
        assert HTTP.get(place, headers={name: TOKEN}).status_code == 401


def test_the_token_is_no_key_for_clients(model: ScriptedServer) -> None:
    config = structs.replace(behind(model.url), server=ServerSettings(keys=("a-client-key",)))
    with running(config, token=TOKEN) as gateway:
        got = HTTP.post(
            f"{gateway.url}/v1/chat/completions",
            json=WHOLE[0].body(),
            headers={"authorization": f"Bearer {TOKEN}"},
        )
        assert got.status_code == 401


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
def test_no_other_page_looks(gateway: Running, headers: dict[str, str]) -> None:
    looking = Looking(gateway.url)
    assert looking.get("requests", **headers).status_code == 403
    assert looking.post("parse", {"text": ""}, **headers).status_code == 403
    assert "access-control-allow-origin" not in looking.get("requests", **headers).headers


def test_an_admin_key_takes_the_place_of_the_token(model: ScriptedServer) -> None:
    server = ServerSettings(keys=("a-client-key",), admin_key="the-admin-key")
    with running(structs.replace(behind(model.url), server=server), token=TOKEN) as gateway:
        assert Looking(gateway.url).get("about").status_code == 401
        assert Looking(gateway.url, "a-client-key").get("about").status_code == 401
        assert Looking(gateway.url, "the-admin-key").get("about").status_code == 200


@pytest.mark.parametrize(
    ("server", "inspector", "why"),
    [
        (ServerSettings(), InspectorSettings(enabled=False), "`inspector.enabled` is false"),
        (
            ServerSettings(host="0.0.0.0", keys=("k" * 20,)),
            InspectorSettings(),
            "`server.admin_key`",
        ),
    ],
)
def test_it_is_off(
    model: ScriptedServer, server: ServerSettings, inspector: InspectorSettings, why: str
) -> None:
    config = structs.replace(behind(model.url), server=server, inspector=inspector)
    with running(config, token=TOKEN) as gateway:
        assert gateway.gateway.recorder is None
        got = Looking(gateway.url).get("requests")
        assert got.status_code == 403
        assert why in got.json()["error"]["message"]


def test_off_loopback_it_takes_the_admin_key(model: ScriptedServer) -> None:
    server = ServerSettings(host="0.0.0.0", keys=("k" * 20,), admin_key="a" * 20)
    with running(structs.replace(behind(model.url), server=server), token=TOKEN) as gateway:
        assert Looking(gateway.url).get("requests").status_code == 401
        assert Looking(gateway.url, "a" * 20).get("requests").status_code == 200


def test_a_page_that_may_use_the_apis_may_not_look(model: ScriptedServer) -> None:
    friend = {"origin": "https://app.example"}
    server = ServerSettings(allowed_origins=("https://app.example",))
    with running(structs.replace(behind(model.url), server=server), token=TOKEN) as gateway:
        got = Looking(gateway.url).get("requests", **friend)
        assert got.status_code == 403
        assert "access-control-allow-origin" not in got.headers
        place = f"{gateway.url}/inspector/api/approvals/x"
        asked = friend | {"access-control-request-method": "POST"}
        assert "access-control-allow-origin" not in HTTP.options(place, headers=asked).headers
        allowed = HTTP.get(f"{gateway.url}/v1/models", headers=friend)
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"


def test_a_key_of_clients_is_no_admin_key(model: ScriptedServer) -> None:
    server = ServerSettings(keys=("the-same-key",), admin_key="the-same-key")
    with running(structs.replace(behind(model.url), server=server), token=TOKEN) as gateway:
        got = Looking(gateway.url, "the-same-key").get("requests")
        assert got.status_code == 403
        assert "set a different one" in got.json()["error"]["message"]


def test_whoever_looks_has_to_show_the_new_key(model: ScriptedServer) -> None:
    config = structs.replace(behind(model.url), server=ServerSettings(admin_key="the-old-key"))
    with running(config, token=TOKEN) as gateway:
        place = f"{gateway.url}/inspector/api/live"
        headers = {"authorization": "Bearer the-old-key"}
        with HTTP.stream("GET", place, headers=headers) as stream:
            lines = stream.iter_lines()
            next(lines)
            server = ServerSettings(admin_key="the-new-key")
            gateway.gateway.reload(structs.replace(config, server=server))
            assert list(lines) == []
        assert Looking(gateway.url, "the-old-key").get("about").status_code == 401


def test_it_is_switched_off_and_on_again(model: ScriptedServer, gateway: Running) -> None:
    say(model, words("One."), words("Two."), words("Three."))
    config: Config = gateway.gateway.config
    asked(gateway.url, WHOLE[0])
    gateway.gateway.reload(structs.replace(config, inspector=InspectorSettings(enabled=False)))
    asked(gateway.url, WHOLE[0])
    gateway.gateway.reload(config)
    assert Looking(gateway.url).requests() == []
    asked(gateway.url, WHOLE[0])
    assert len(Looking(gateway.url).requests()) == 1


# The page.


def test_browsers_get_a_page_and_programs_do_not(gateway: Running) -> None:
    page = HTTP.get(gateway.url, headers={"accept": "text/html,*/*"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy
    assert HTTP.get(gateway.url).json()["name"] == "toolspeak"
    assert HTTP.head(gateway.url).status_code == 200


def test_a_link_from_elsewhere_leads_to_the_page(gateway: Running) -> None:
    headers = {"accept": "text/html", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert HTTP.get(gateway.url, headers=headers).status_code == 200
    rebound = headers | {"host": "evil.example"}
    assert HTTP.get(gateway.url, headers=rebound).status_code == 403


def test_there_is_nothing_but_the_page(gateway: Running) -> None:
    for name in (
        "nothing.js",
        "..%2fpages.py",
        "../pages.py",
        "%2e%2e/pages.py",
        "",
        "api",
        "api/",
    ):
        got = HTTP.get(f"{gateway.url}/inspector/{name}", headers={"accept": "*/*"})
        assert got.status_code in (401, 404), name


# What is kept.


@pytest.mark.parametrize("client", [*WHOLE, *STREAMED], ids=lambda one: one.name)
def test_every_api(model: ScriptedServer, gateway: Running, client: Client) -> None:
    say(model, words(f"I look. {CALL}"))
    # So that what is sent in pieces comes in pieces.
    model.pause = 0.002
    asked(gateway.url, client, "What is the weather?", tools=1)
    shown = Looking(gateway.url).last()
    summary, (turn,) = shown["summary"], shown["attempts"]
    assert (summary["wire"], summary["stream"]) == (client.wire, client.stream)
    assert (summary["model"], summary["upstream"], summary["mode"]) == ("m", "scripted", "prompt")
    assert (summary["user_message"], summary["calls"]) == ("What is the weather?", ["tool_0"])
    assert summary["status"] == shown["response"]["status"] == 200
    assert json.loads(shown["request"]["body"])
    assert turn["text"] == f"I look. {CALL}"
    assert turn["plan"]["reasons"]
    assert [one["role"] for one in turn["prompt"]] == ["system", "user"]
    assert turn["outcome"] == "calls"
    (call,) = turn["calls"]
    assert (call["name"], call["arguments"], call["dialect"]) == (
        "tool_0",
        {"city": "Oslo"},
        "hermes",
    )
    (span,) = turn["highlights"]
    assert turn["text"][span["start"] : span["end"]] == CALL
    assert "Oslo" in shown["response"]["body"]
    ends = [one["end"] for one in turn["chunks"]]
    assert ends == sorted(ends)
    assert ends[-1] == len(turn["text"])
    assert turn["chunks"][-1]["raw_end"] == len(turn["raw"])
    assert shown["response"]["chunks"][-1]["end"] == len(shown["response"]["body"])
    assert len(ends) > 5 if client.stream else len(ends) >= 1


def test_native_calls_and_thoughts_are_to_be_seen(model: ScriptedServer) -> None:
    call = ToolCall(id="call_1", name="tool_0", arguments={"city": "Oslo"})
    turn: list[Event] = [ReasoningDelta("Let me think."), TextDelta("I look. ")]
    turn += [CallStart(0, "call_1", "tool_0"), CallEnd(0, call), Finish("calls")]
    say(model, turn)
    with running(behind(model.url, tools="native"), token=TOKEN) as gateway:
        asked(gateway.url, STREAMED[0], tools=1)
        (turn_,) = Looking(gateway.url).last()["attempts"]
    kinds = {one["kind"]: turn_["text"][one["start"] : one["end"]] for one in turn_["highlights"]}
    assert kinds["reasoning"] == "Let me think."
    assert kinds["call"].startswith("tool_0({")
    assert "Oslo" in kinds["call"]


def test_the_ladder_is_there_turn_by_turn(model: ScriptedServer, gateway: Running) -> None:
    say(model, words("I cannot do that: I have no tools."), words(CALL))
    body = STREAMED[0].body("What is the weather?", tools=1, required=True)
    assert HTTP.post(f"{gateway.url}/v1/chat/completions", json=body).status_code == 200
    shown = Looking(gateway.url).last()
    first, second = shown["attempts"]
    assert first["outcome"] == "missing-call"
    assert second["reason"] == "missing-call"
    assert "no call" in second["reason_text"]
    assert shown["summary"]["retries"] == 1
    assert "retried" in shown["summary"]["notes"]
    assert shown["attempts"][0]["end_ms"] <= second["start_ms"]


def test_failures_are_kept(model: ScriptedServer, gateway: Running) -> None:
    say(model, [Failure("rate_limit", "too much", 429)])
    got = HTTP.post(f"{gateway.url}/v1/messages", json=WHOLE[2].body())
    assert got.status_code == 429
    shown = Looking(gateway.url).last()
    assert shown["summary"]["status"] == 429
    assert "too much" in shown["failure"]["message"]
    assert shown["attempts"][0]["failure"]["kind"] == "rate_limit"
    bad = HTTP.post(f"{gateway.url}/v1/messages", json={"model": "m"})
    assert bad.status_code == 400
    shown = Looking(gateway.url).last()
    assert (shown["summary"]["status"], shown["attempts"]) == (400, [])
    assert json.loads(shown["request"]["body"]) == {"model": "m"}
    HTTP.post(
        f"{gateway.url}/v1/messages",
        content=b'{"model": ',
        headers={"content-type": "application/json"},
    )
    assert Looking(gateway.url).last()["request"]["body"] == '{"model": '


def test_a_stream_that_fails_is_kept_with_what_it_said(
    model: ScriptedServer, gateway: Running
) -> None:
    failure = Failure("overloaded", "too much at once", 503)
    say(model, [*words("This is the beginning of it. ")[:-1], failure])
    body = {**STREAMED[0].body(), "tools": []}
    assert "too much at once" in HTTP.post(f"{gateway.url}/v1/chat/completions", json=body).text
    shown = Looking(gateway.url).last()
    assert "too much at once" in shown["failure"]["message"]
    assert "too much at once" in shown["summary"]["failure"]
    assert "beginning of it" in shown["attempts"][0]["text"]


def test_a_request_is_there_while_it_runs(model: ScriptedServer, gateway: Running) -> None:
    model.pause = 0.05
    say(model, words("one two three four five six seven eight nine ten"))
    looking = Looking(gateway.url)
    with HTTP.stream(
        "POST", f"{gateway.url}/v1/chat/completions", json=STREAMED[0].body()
    ) as stream:
        pieces = stream.iter_bytes()
        next(pieces)
        (summary,) = looking.requests()
        assert not summary["is_finished"]
        some = looking.get(f"requests/{summary['key']}").json()["attempts"][0]
        assert some["end_ms"] is None
        time.sleep(0.2)
        more = looking.get(f"requests/{summary['key']}").json()["attempts"][0]
        assert more["text"].startswith(some["text"])
        assert len(more["text"]) > len(some["text"])
        assert list(pieces)
    assert looking.last()["summary"]["is_finished"]


def test_a_request_can_be_opened_whatever_happens_to_it(model: ScriptedServer) -> None:
    """While turns are added and pieces come, and in another thread."""
    model.pause = 0.001
    say(model, *[words("I cannot: I have no tools. " * 40, 3)] * 3)
    with running(behind(model.url, tools="prompt", dialect="hermes"), token=TOKEN) as gateway:
        looking = Looking(gateway.url)
        with ThreadPoolExecutor(1) as pool:
            body = STREAMED[0].body("Weather?", tools=1, required=True)
            path = f"{gateway.url}/v1/chat/completions"
            asking = pool.submit(HTTP.post, path, json=body)
            codes: set[int] = set()
            while not asking.done():
                for one in looking.requests():
                    codes.add(looking.get(f"requests/{one['key']}").status_code)
        assert codes == {200}


def test_a_row_says_more_while_the_request_runs(model: ScriptedServer, gateway: Running) -> None:
    model.pause = 0.05
    say(model, words("one two three four five six seven eight"))
    headers = {"authorization": f"Bearer {TOKEN}"}
    with (
        ThreadPoolExecutor(1) as pool,
        HTTP.stream("GET", f"{gateway.url}/inspector/api/live", headers=headers) as stream,
    ):
        lines = stream.iter_lines()
        asking = pool.submit(asked, gateway.url, STREAMED[0], "What is it?", tools=1)
        seen: list[Any] = []
        while not seen or not seen[-1]["is_finished"]:
            seen += json.loads(next(lines)).get("requests", [])
        asking.result()
    running_ = [one for one in seen if not one["is_finished"]]
    assert running_[-1]["mode"] == "prompt"
    assert running_[-1]["user_message"] == "What is it?"
    # And it is not told again and again.
    assert len(seen) < 6


def test_a_client_that_leaves(model: ScriptedServer, gateway: Running) -> None:
    model.pause = 0.05
    say(model, words("one two three four five six seven eight nine ten " * 5))
    with HTTP.stream(
        "POST", f"{gateway.url}/v1/chat/completions", json=STREAMED[0].body()
    ) as stream:
        next(stream.iter_bytes())
    shown = Looking(gateway.url).last()
    assert shown["summary"]["status"] == 499
    assert shown["attempts"][0]["text"]


def test_the_ring_is_bounded(model: ScriptedServer) -> None:
    say(model, *[words(f"This is number {number}.") for number in range(12)])
    kept = InspectorSettings(requests=5, bytes=200_000)
    config = structs.replace(behind(model.url), inspector=kept)
    with running(config, token=TOKEN) as gateway:
        looking = Looking(gateway.url)
        for _ in range(8):
            asked(gateway.url, WHOLE[0])
        before = looking.requests()
        assert len(before) == 5
        for _ in range(2):
            asked(gateway.url, WHOLE[0], "x" * 60_000)
        assert len(looking.requests()) < 5
        asked(gateway.url, WHOLE[0], "y" * 300_000)
        last = looking.requests()[-1]
        assert last["user_message"].startswith("yyy")
        assert looking.last()["request"]["body"] == ""
        assert looking.get(f"requests/{before[0]['key']}").status_code == 404


def test_what_is_under_way_is_bounded_too(model: ScriptedServer) -> None:
    say(model, words("A long story. " * 3000, 100), words("Short."))
    config = structs.replace(behind(model.url), inspector=InspectorSettings(bytes=50_000))
    with running(config, token=TOKEN) as gateway:
        heard = asked(gateway.url, STREAMED[0])
        assert heard.text == "A long story. " * 3000
        recorder = gateway.gateway.recorder
        assert recorder
        assert Looking(gateway.url).last()["summary"]["status"] == 200
        asked(gateway.url, STREAMED[0])
        # The room that the first one had is there again.
        shown = Looking(gateway.url).last()
        assert shown["attempts"][0]["text"] == "Short."
        assert "not kept" not in shown["attempts"][0]["raw"]


def test_what_was_not_kept_is_told(model: ScriptedServer) -> None:
    say(model, words("A long story. " * 300, 10))
    config = structs.replace(behind(model.url), inspector=InspectorSettings(bytes=120_000))
    with running(config, token=TOKEN) as gateway:
        asked(gateway.url, STREAMED[0])
        shown = Looking(gateway.url).last()
        assert "more bytes were not kept" in shown["response"]["body"]
        assert shown["response"]["size"] > len(shown["response"]["body"])


def test_the_clients_own_name_for_a_request(model: ScriptedServer, gateway: Running) -> None:
    say(model, words("One."), words("Two."))
    for _ in range(2):
        headers = {"x-request-id": "mine/1"}
        HTTP.post(f"{gateway.url}/v1/chat/completions", json=WHOLE[0].body(), headers=headers)
    looking = Looking(gateway.url)
    first, second = looking.requests()
    assert first["id"] == second["id"] == "mine/1"
    assert first["key"] != second["key"]
    assert looking.get("requests/mine%2F1").json()["attempts"][0]["text"] == "Two."
    assert looking.get(f"requests/{first['key']}").json()["attempts"][0]["text"] == "One."


def test_odd_texts_are_kept(model: ScriptedServer, gateway: Running) -> None:
    text = f"𝒽ello 👩‍👩‍👧 {CALL} 🦀"
    say(model, words(text, 3))
    said = b'[{"role": "user", "content": "\\ud800 \\u0000"}]'
    body = b'{"model": "m\\ud800", "stream": true, "messages": ' + said + b"}"
    headers = {"content-type": "application/json"}
    HTTP.post(f"{gateway.url}/v1/chat/completions", content=body, headers=headers)
    shown = Looking(gateway.url).last()
    assert shown["attempts"][0]["text"] == text
    assert Looking(gateway.url).requests()[0]["is_finished"]


def test_places_count_as_javascript_does(model: ScriptedServer, gateway: Running) -> None:
    say(model, words(f"🦀🦀 {CALL} 🦀"))
    asked(gateway.url, STREAMED[0], tools=1)
    (turn,) = Looking(gateway.url).last()["attempts"]
    units = turn["text"].encode("utf-16-le")
    (span,) = turn["highlights"]
    assert units[2 * span["start"] : 2 * span["end"]].decode("utf-16-le") == CALL
    assert turn["chunks"][-1]["end"] == len(units) // 2


# Secrets.


def test_no_secret_is_shown(model: ScriptedServer) -> None:
    say(model, words(f"Your api_key is {SECRET}, and so is the other: {SECRET}. {CALL}", 5))
    config = behind(model.url, tools="prompt", dialect="hermes")
    key = structs.replace(config.upstreams["scripted"], key="upstream-key-0123456789")
    server = ServerSettings(keys=("client-key-0123456789",))
    config = structs.replace(config, upstreams={"scripted": key}, server=server)
    with running(config, token=TOKEN) as gateway:
        text = f"api_key={SECRET} and upstream-key-0123456789"
        HTTP.post(
            f"{gateway.url}/v1/chat/completions?key=client-key-0123456789",
            json=STREAMED[0].body(text, tools=1),
            headers={
                "authorization": "Bearer client-key-0123456789",
                "x-own": "what-is-this",
            },
        )
        looking = Looking(gateway.url)
        shown = looking.last()
        listed = looking.get("requests").text
    everything = json.dumps(shown) + listed
    for secret in (SECRET, "upstream-key-0123456789", "client-key-0123456789", "what-is-this"):
        assert secret not in everything
        # Not in pieces either: a stream has it five characters at a time.
        for at in range(5, len(secret) - 5):
            assert f'"{secret[at : at + 5]}"' not in everything, secret
    turn = shown["attempts"][0]
    assert shown["masked_secrets"] >= 2
    assert sum(one["kind"] == "secret" for one in turn["highlights"]) == 2
    assert turn["text"].count("sk-p****") == 2
    assert [one["arguments"] for one in turn["calls"]] == [{"city": "Oslo"}]
    assert "$KEY" in shown["curl"]


# What is live.


def test_live(model: ScriptedServer, gateway: Running) -> None:
    say(model, words("One."))
    looking = Looking(gateway.url)
    with HTTP.stream(
        "GET",
        f"{gateway.url}/inspector/api/live",
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as stream:
        lines = stream.iter_lines()
        first = json.loads(next(lines))
        assert first["approvals"] == []
        assert first["epoch"]
        asked(gateway.url, WHOLE[0])
        seen: list[Any] = []
        while not seen or not seen[-1]["is_finished"]:
            seen += json.loads(next(lines)).get("requests", [])
        assert seen[-1]["key"] == looking.requests()[-1]["key"]
        looking.post("approvals", {"tool": "t", "expires_at": time.time() + 60})
        line = json.loads(next(lines))
        assert line["approvals"][0]["tool"] == "t"


def test_whoever_looks_does_not_keep_the_gateway_from_stopping(model: ScriptedServer) -> None:
    with running(behind(model.url), token=TOKEN) as gateway:
        headers = {"authorization": f"Bearer {TOKEN}"}
        place = f"{gateway.url}/inspector/api/live"
        with HTTP.stream("GET", place, headers=headers) as stream:
            lines = stream.iter_lines()
            next(lines)
            gateway.gateway.is_stopping = True
            assert list(lines) == []


def test_looking_is_not_counted(model: ScriptedServer, gateway: Running) -> None:
    looking = Looking(gateway.url)
    looking.get("requests")
    looking.get("about")
    metrics = HTTP.get(f"{gateway.url}/metrics").text
    assert "toolspeak_requests_total{" not in metrics
    assert looking.requests() == []


# Approvals.


def test_approvals(gateway: Running) -> None:
    looking = Looking(gateway.url)
    asked = {"tool": "rm", "arguments": {"path": "/"}, "expires_at": time.time() + 60}
    first = looking.post("approvals", asked).json()
    second = looking.post("approvals", {**asked, "can_always": True}).json()
    pending = looking.get("approvals").json()["approvals"]
    assert [one["id"] for one in pending] == [first["id"], second["id"]]
    assert pending[0]["arguments"] == {"path": "/"}
    assert looking.get(f"approvals/{first['id']}").json() == {"answer": None}
    # "always" is no answer where it would not last.
    place = f"approvals/{first['id']}"
    assert looking.post(place, {"answer": "always"}).json() == {"answer": "yes"}
    for _ in range(3):
        assert looking.post(place, {"answer": "no"}).json() == {"answer": "yes"}
    assert looking.post(f"approvals/{second['id']}", {"answer": "always"}).json() == {
        "answer": "always"
    }
    assert looking.get(f"{place}?wait=5").json() == {"answer": "yes"}
    assert looking.get("approvals").json() == {"approvals": []}
    assert looking.post("approvals/ask_none", {"answer": "yes"}).status_code == 404
    assert looking.post(place, {"answer": "perhaps"}).status_code == 400
    assert looking.post("approvals", {"tool": 1}).status_code == 400


def test_it_is_too_late(gateway: Running) -> None:
    looking = Looking(gateway.url)
    asked = looking.post("approvals", {"tool": "rm", "expires_at": time.time() + 0.1}).json()
    time.sleep(0.15)
    assert looking.get("approvals").json() == {"approvals": []}
    assert looking.post(f"approvals/{asked['id']}", {"answer": "yes"}).status_code == 404


# The playground.


def test_parse(gateway: Running) -> None:
    looking = Looking(gateway.url)
    tools = STREAMED[0].body(tools=1)["tools"]
    text = f"🦀 <think>let me see</think> {CALL} and <tool_call>oops</tool_call>"
    found = looking.post("parse", {"text": text, "tools": tools}).json()
    (call,) = found["calls"]
    assert call["dialect"] == "hermes"
    assert len(found["rejected"]) == 1
    assert found["reasoning"] == "let me see"
    units, places = text.encode("utf-16-le"), {one["kind"]: one for one in found["highlights"]}
    shown = {
        kind: units[2 * one["start"] : 2 * one["end"]].decode("utf-16-le")
        for kind, one in places.items()
    }
    assert (shown["call"], shown["rejected"]) == (CALL, "<tool_call>oops</tool_call>")
    assert "reasoning" in shown
    assert places["rejected"]["start"] > places["call"]["end"]
    assert all(one["meaning"] for one in found["notes"])
    strict = {"text": text, "tools": tools, "trust": "strict", "dialect": "glm45"}
    assert looking.post("parse", strict).json()["calls"] == []
    for wrong in ({"text": 1}, {"text": "", "tools": [1]}, {"text": "", "dialect": "nope"}, {}):
        assert looking.post("parse", wrong).status_code == 400, wrong


def test_every_dialect_has_an_example_that_reads(gateway: Running) -> None:
    about = Looking(gateway.url).get("about").json()
    tools = [about["samples"][0]["tool"]]
    assert len(about["dialects"]) > 60
    for dialect in about["dialects"][::9]:
        pasted = {"text": dialect["example"], "tools": tools, "dialect": dialect["name"]}
        found = Looking(gateway.url).post("parse", pasted).json()
        assert [one["name"] for one in found["calls"]] == ["get_weather"], dialect["name"]


def test_the_page_chats_with_keys_configured(model: ScriptedServer) -> None:
    say(model, words("Hello there."))
    config = structs.replace(behind(model.url), server=ServerSettings(keys=("a-client-key",)))
    with running(config, token=TOKEN) as gateway:
        looking = Looking(gateway.url)
        got = looking.post("chat", STREAMED[0].body())
        assert "Hello" in got.text
        assert looking.last()["summary"]["key"] == got.headers["x-request-id"]
        bad = looking.post("chat", {"model": "m"})
        assert bad.status_code == 400
        assert "messages" in bad.json()["error"]["message"]
