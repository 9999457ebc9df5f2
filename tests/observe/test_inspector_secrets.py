"""No secret is shown, however it is written, cut or repeated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.raw_clients import STREAMED, WHOLE
from tests.gateway.running_gateway import behind, running
from tests.observe.test_inspector import HTTP, SECRET, TOKEN, Looking, words
from toolspeak import Finish, TextDelta
from toolspeak.config.settings import Config
from toolspeak.observe.inspector.masking import Masker
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

PIECE = 6
"""So many characters of a secret are too many."""


def spelled(value: Any) -> str:
    """All texts of what is shown, with what they say in JSON of their own."""
    match value:
        case str():
            try:
                inside = json.loads(value)
            except ValueError:
                inside = None
            deeper = spelled(inside) if isinstance(inside, (dict, list)) else ""
            return f"{value}\n{deeper}"
        case dict():
            return "".join(spelled(key) + spelled(item) for key, item in value.items())
        case list():
            return "".join(map(spelled, value))
        case _:
            return ""


def assert_hidden(shown: Any, secret: str) -> None:
    text = spelled(shown)
    for at in range(4, len(secret) - PIECE + 1):
        assert secret[at : at + PIECE] not in text, secret[at : at + PIECE]


def looked(config: Config, body: Any, path: str = "/v1/chat/completions") -> Any:
    with running(config, token=TOKEN) as gateway:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        HTTP.post(gateway.url + path, content=content, headers=headers)
        looking = Looking(gateway.url)
        return [looking.last(), looking.requests()]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 100])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "ollama", "gemini"])
def test_in_a_stream_cut_anywhere(size: int, wire: str) -> None:
    text = f"The api_key is {SECRET}, key k, and then more – ü <b>&</b>."
    with ScriptedServer(words(text, size)) as model:
        client = next(one for one in STREAMED if one.wire == wire and not one.is_array)
        shown = looked(behind(model.url, wire=wire), client.body("Hi"), client.path)
    assert_hidden(shown, SECRET)
    assert shown[0]["attempts"][0]["text"].count("*") > 10
    spelled_out = "".join(
        sign for sign in shown[0]["attempts"][0]["raw"] if sign in SECRET or sign == "*"
    )
    assert SECRET[4:] not in spelled_out


def test_in_escapes() -> None:
    hidden = "".join(f"\\u{ord(sign):04x}" for sign in SECRET)
    body = '{"model": "m", "messages": [{"role": "user", "content": "api_key=' + hidden + '"}]}'
    with ScriptedServer(words("Hello.")) as model:
        shown = looked(behind(model.url), body.encode())
    assert_hidden(shown, SECRET)
    assert hidden not in spelled(shown)


def test_in_what_is_wrong_with_a_call() -> None:
    call = {"name": "tool_0", "arguments": {"city": 1, "api_key": [SECRET]}}
    tools = STREAMED[0].body("Hi", tools=1)
    tools["tools"][0]["function"]["parameters"] = {
        "type": "object",
        "properties": {"api_key": {"type": "integer"}},
    }
    said = words(f"<tool_call>{json.dumps(call)}</tool_call>")
    with ScriptedServer(said, said, said, said) as model:
        shown = looked(behind(model.url, tools="prompt", dialect="hermes"), tools)
    assert shown[0]["attempts"][0]["rejected"]
    assert_hidden(shown, SECRET)


def test_as_a_name_of_a_tool_or_model() -> None:
    body = {**WHOLE[0].body("Hi"), "model": SECRET}
    call = words(f'<tool_call>{{"name": "{SECRET}", "arguments": {{}}}}</tool_call>')
    with ScriptedServer(*[call] * 4) as model:
        asked = WHOLE[0].body("Hi", tools=1) | {"model": SECRET}
        assert_hidden(looked(behind(model.url, tools="prompt", dialect="hermes"), asked), SECRET)
    with ScriptedServer(words("Hello.")) as model:
        assert_hidden(looked(behind(model.url), body), SECRET)


def test_in_an_address() -> None:
    path = f"/v1/chat/completions?api_key=hunter2hunter2&token={SECRET}&key=mine-is-this-one"
    with ScriptedServer(words("Hello.")) as model:
        shown = looked(behind(model.url), WHOLE[0].body("Hi"), path)
    for secret in ("hunter2hunter2", SECRET, "mine-is-this-one"):
        assert_hidden(shown, secret)


@pytest.mark.parametrize(
    ("changes", "secret"),
    [
        ({"key": "Qx7vZ2mB9kLr4tWn8cYp3sDf"}, "Qx7vZ2mB9kLr4tWn8cYp3sDf"),
        ({"headers": {"x-tenant": "tenant secrethorse9"}}, "secrethorse9"),
    ],
)
def test_that_an_upstream_repeats(changes: dict[str, Any], secret: str) -> None:
    with ScriptedServer([Failure("unauthorized", f"Unknown user {secret}", 401)]) as model:
        config = behind(model.url)
        upstream = structs.replace(config.upstreams["scripted"], **changes)
        config = structs.replace(config, upstreams={"scripted": upstream})
        shown = looked(config, WHOLE[0].body("Hi"))
    assert_hidden(shown, secret)


def test_in_the_address_of_an_upstream() -> None:
    said = Failure("unauthorized", "Basic dXNlcjpwYXNzdzByZC1ob3JzZQ==", 401)
    with ScriptedServer([said]) as model:
        upstream = structs.replace(
            behind(model.url).upstreams["scripted"],
            base_url=model.url.replace("://", "://user:passw0rd-horse@") + "/v1",
        )
        config = structs.replace(behind(model.url), upstreams={"scripted": upstream})
        shown = looked(config, WHOLE[0].body("Hi"))
    assert_hidden(shown, "dXNlcjpwYXNzdzByZC1ob3JzZQ==")
    assert_hidden(shown, "passw0rd-horse")


def test_many_pieces_take_no_more_than_their_share() -> None:
    """A long secret in small pieces: twice as many take about twice as long."""
    from time import perf_counter

    from toolspeak.observe.inspector.reply_text import read_reply_text
    from toolspeak.upstream.record import CaptureBudget, StreamCapture

    def seconds(count: int) -> float:
        flow = StreamCapture(0.0, CaptureBudget(2**30))
        for number in range(count):
            delta = {"choices": [{"index": 0, "delta": {"content": f"x{number:06}"}}]}
            flow.add(f"data: {json.dumps(delta)}\n\n".encode())
        said = read_reply_text("openai_chat", flow, is_stream=True)
        began = perf_counter()
        said.mask_raw([(0, len(said.text))])
        return perf_counter() - began

    best = [min(seconds(count) for _ in range(3)) for count in (2000, 8000)]
    assert best[1] < 12 * best[0] + 0.01


def test_what_curl_is_told_reads_no_file() -> None:
    with ScriptedServer() as model, running(behind(model.url), token=TOKEN) as gateway:
        HTTP.post(
            f"{gateway.url}/v1/chat/completions",
            content=b"@/etc/passwd",
            headers={"content-type": "application/json"},
        )
        curl, url = Looking(gateway.url).last()["curl"], gateway.url
    assert "--data-raw @/etc/passwd" in curl
    assert " -d " not in curl
    assert curl.startswith(f"curl -gs {url}/v1/chat/completions")


def test_a_known_secret_is_covered_everywhere() -> None:
    masker = Masker(["a-known-secret"])
    value = {"a-known-secret": ["x a-known-secret y", {"n": 1}], "other": None}
    assert masker.mask_known(value) == {
        "a-kn**********": ["x a-kn********** y", {"n": 1}],
        "other": None,
    }


def test_text_that_has_none_is_as_it_was() -> None:
    text = 'A plain reply with "\\u00fc", stars *** and a token count of 12.'
    said = [TextDelta(text), Finish("stop")]
    with ScriptedServer(said) as model:
        shown = looked(behind(model.url), WHOLE[0].body("Hi"))[0]
    assert shown["attempts"][0]["text"] == text
    assert shown["masked_secrets"] == 0
    assert json.loads(shown["attempts"][0]["raw"])
