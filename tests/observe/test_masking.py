"""Secrets in what the inspector shows: they are masked in every form and position."""

from __future__ import annotations

import json
from time import thread_time
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.raw_clients import STREAMED, WHOLE
from tests.gateway.running_gateway import make_config, run_gateway
from tests.observe.test_inspector import HTTP, SECRET, TOKEN, InspectorApi, stream_text
from toolspeak import Finish, TextDelta
from toolspeak.config.settings import Config
from toolspeak.observe.inspector.masking import Masker
from toolspeak.observe.inspector.reply_text import read_reply_text
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure
from toolspeak.upstream.record import CaptureBudget, StreamCapture

PART_SIZE = 6
"""No part of a secret of this length may be visible, apart from its first four characters."""


def collect_texts(value: Any) -> str:
    """Return all texts in a value, including the texts in JSON that is itself in a text."""
    match value:
        case str():
            try:
                decoded = json.loads(value)
            except ValueError:
                decoded = None
            inner = collect_texts(decoded) if isinstance(decoded, (dict, list)) else ""
            return f"{value}\n{inner}"
        case dict():
            return "".join(collect_texts(key) + collect_texts(item) for key, item in value.items())
        case list():
            return "".join(map(collect_texts, value))
        case _:
            return ""


def assert_masked(shown: Any, secret: str) -> None:
    text = collect_texts(shown)
    for start in range(4, len(secret) - PART_SIZE + 1):
        part = secret[start : start + PART_SIZE]
        assert part not in text, part


def send_and_read(config: Config, body: Any, path: str = "/v1/chat/completions") -> Any:
    with run_gateway(config, token=TOKEN) as gateway:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        HTTP.post(gateway.url + path, content=content, headers=headers)
        inspector = InspectorApi(gateway.url)
        return [inspector.wait_for_last(), inspector.list_requests()]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 100])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "ollama", "gemini"])
def test_secret_in_a_stream_of_any_chunks_is_masked(size: int, wire: str) -> None:
    text = f"The api_key is {SECRET}, key k, and then more – ü <b>&</b>."
    with ScriptedServer(stream_text(text, size)) as model:
        client = next(c for c in STREAMED if c.wire == wire and not c.is_array)
        shown = send_and_read(make_config(model.url, wire=wire), client.body("Hi"), client.path)
    assert_masked(shown, SECRET)
    assert shown[0]["attempts"][0]["text"].count("*") > 10
    raw = shown[0]["attempts"][0]["raw"]
    assert SECRET[4:] not in "".join(char for char in raw if char in SECRET or char == "*")


def test_secret_in_json_escapes_is_masked() -> None:
    escaped = "".join(f"\\u{ord(char):04x}" for char in SECRET)
    body = '{"model": "m", "messages": [{"role": "user", "content": "api_key=' + escaped + '"}]}'
    with ScriptedServer(stream_text("Hello.")) as model:
        shown = send_and_read(make_config(model.url), body.encode())
    assert_masked(shown, SECRET)
    assert escaped not in collect_texts(shown)


def test_secret_in_a_rejected_call_is_masked() -> None:
    call = {"name": "tool_0", "arguments": {"city": 1, "api_key": [SECRET]}}
    tools = STREAMED[0].body("Hi", tools=1)
    tools["tools"][0]["function"]["parameters"] = {
        "type": "object",
        "properties": {"api_key": {"type": "integer"}},
    }
    reply = stream_text(f"<tool_call>{json.dumps(call)}</tool_call>")
    with ScriptedServer(reply, reply, reply, reply) as model:
        shown = send_and_read(make_config(model.url, tools="prompt", dialect="hermes"), tools)
    assert shown[0]["attempts"][0]["rejected"]
    assert_masked(shown, SECRET)


def test_secret_as_a_tool_or_model_name_is_masked() -> None:
    body = {**WHOLE[0].body("Hi"), "model": SECRET}
    call = stream_text(f'<tool_call>{{"name": "{SECRET}", "arguments": {{}}}}</tool_call>')
    with ScriptedServer(*[call] * 4) as model:
        with_tools = WHOLE[0].body("Hi", tools=1) | {"model": SECRET}
        config = make_config(model.url, tools="prompt", dialect="hermes")
        assert_masked(send_and_read(config, with_tools), SECRET)
    with ScriptedServer(stream_text("Hello.")) as model:
        assert_masked(send_and_read(make_config(model.url), body), SECRET)


def test_secret_in_a_query_is_masked() -> None:
    path = f"/v1/chat/completions?api_key=hunter2hunter2&token={SECRET}&key=mine-is-this-one"
    with ScriptedServer(stream_text("Hello.")) as model:
        shown = send_and_read(make_config(model.url), WHOLE[0].body("Hi"), path)
    for secret in ("hunter2hunter2", SECRET, "mine-is-this-one"):
        assert_masked(shown, secret)


@pytest.mark.parametrize(
    ("changes", "secret"),
    [
        ({"key": "Qx7vZ2mB9kLr4tWn8cYp3sDf"}, "Qx7vZ2mB9kLr4tWn8cYp3sDf"),
        ({"headers": {"x-tenant": "tenant secrethorse9"}}, "secrethorse9"),
    ],
)
def test_secret_repeated_by_an_upstream_is_masked(changes: dict[str, Any], secret: str) -> None:
    with ScriptedServer([Failure("unauthorized", f"Unknown user {secret}", 401)]) as model:
        config = make_config(model.url)
        upstream = structs.replace(config.upstreams["scripted"], **changes)
        config = structs.replace(config, upstreams={"scripted": upstream})
        shown = send_and_read(config, WHOLE[0].body("Hi"))
    assert_masked(shown, secret)


def test_secret_in_the_url_of_an_upstream_is_masked() -> None:
    failure = Failure("unauthorized", "Basic dXNlcjpwYXNzdzByZC1ob3JzZQ==", 401)
    with ScriptedServer([failure]) as model:
        upstream = structs.replace(
            make_config(model.url).upstreams["scripted"],
            base_url=model.url.replace("://", "://user:passw0rd-horse@") + "/v1",
        )
        config = structs.replace(make_config(model.url), upstreams={"scripted": upstream})
        shown = send_and_read(config, WHOLE[0].body("Hi"))
    assert_masked(shown, "dXNlcjpwYXNzdzByZC1ob3JzZQ==")
    assert_masked(shown, "passw0rd-horse")


def test_masking_many_chunks_takes_linear_time() -> None:
    """The whole text is one secret in small chunks."""

    def measure_seconds(count: int) -> float:
        capture = StreamCapture(0.0, CaptureBudget(2**30))
        for number in range(count):
            delta = {"choices": [{"index": 0, "delta": {"content": f"x{number:06}"}}]}
            capture.add(f"data: {json.dumps(delta)}\n\n".encode())
        reply = read_reply_text("openai_chat", capture, is_stream=True)
        start = thread_time()
        reply.mask_raw([(0, len(reply.text))])
        return thread_time() - start

    best = [min(measure_seconds(count) for _ in range(3)) for count in (2000, 8000)]
    assert best[1] < 12 * best[0] + 0.01


def test_copied_curl_command_reads_no_file() -> None:
    with ScriptedServer() as model, run_gateway(make_config(model.url), token=TOKEN) as gateway:
        HTTP.post(
            f"{gateway.url}/v1/chat/completions",
            content=b"@/etc/passwd",
            headers={"content-type": "application/json"},
        )
        curl, url = InspectorApi(gateway.url).wait_for_last()["curl"], gateway.url
    assert "--data-raw @/etc/passwd" in curl
    assert " -d " not in curl
    assert curl.startswith(f"curl -gs {url}/v1/chat/completions")


def test_known_secret_in_any_value_is_masked() -> None:
    masker = Masker(["a-known-secret"])
    value = {"a-known-secret": ["x a-known-secret y", {"n": 1}], "other": None}
    assert masker.mask_known(value) == {
        "a-kn**********": ["x a-kn********** y", {"n": 1}],
        "other": None,
    }


def test_text_without_secrets_is_unchanged() -> None:
    text = 'A plain reply with "\\u00fc", stars *** and a token count of 12.'
    reply = [TextDelta(text), Finish("stop")]
    with ScriptedServer(reply) as model:
        shown = send_and_read(make_config(model.url), WHOLE[0].body("Hi"))[0]
    assert shown["attempts"][0]["text"] == text
    assert shown["masked_secrets"] == 0
    assert json.loads(shown["attempts"][0]["raw"])
