"""`toolspeak convert` and `toolspeak providers`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.wires.scenarios import SCENARIOS
from toolspeak import Request, fold
from toolspeak.cli import main
from toolspeak.config.providers import PROVIDERS, find_provider
from toolspeak.engine.attempt import apply_quirks
from toolspeak.provider_formats import format_tools
from toolspeak.types import Quirks
from toolspeak.wires import WIRES, Envelope, StreamDecoder

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "25"},
]


def convert(tmp_path: Path, text: str | bytes, *arguments: str) -> str:
    given, out = tmp_path / "in", tmp_path / "out"
    given.write_bytes(text.encode() if isinstance(text, str) else text)
    assert main(["convert", str(given), "-o", str(out), *arguments]) == 0
    return out.read_text(encoding="utf-8")


TO_ANTHROPIC = ("--from", "openai_chat", "--to", "anthropic")


def test_convert_request_prints_it_in_the_other_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"model": "m", "messages": MESSAGES, "logit_bias": {"1": 2}}
    found = json.loads(convert(tmp_path, json.dumps(body, indent=1), *TO_ANTHROPIC))
    assert found["system"] == "Be brief."
    assert [message["role"] for message in found["messages"]] == ["user", "assistant", "user"]
    assert "logit_bias" in capsys.readouterr().err


def test_convert_json_lines_converts_each_request(tmp_path: Path) -> None:
    lines = (
        "\n".join(json.dumps({"messages": MESSAGES[1:2], "model": name}) for name in "ab") + "\n"
    )
    found = [json.loads(line) for line in convert(tmp_path, lines, *TO_ANTHROPIC).splitlines()]
    assert [body["model"] for body in found] == ["a", "b"]


@pytest.mark.parametrize("target", WIRES)
def test_convert_transcript_round_trips(tmp_path: Path, target: str) -> None:
    lines = "\n".join(map(json.dumps, MESSAGES))
    converted = convert(tmp_path, lines, "--from", "openai_chat", "--to", target)
    back = convert(tmp_path, converted, "--from", target, "--to", "openai_chat")
    found = [json.loads(line) for line in back.splitlines()]
    assert [message["role"] for message in found] == ["system", "user", "assistant", "tool"]
    assert found[2]["tool_calls"][0]["function"] == CALL["function"]


@pytest.mark.parametrize("target", WIRES)
def test_convert_replies_and_streams_keeps_the_call(tmp_path: Path, target: str) -> None:
    for scenario in SCENARIOS[:4]:
        envelope = Envelope(Request(model="m", messages=()), "1")
        reply = fold(scenario.reply)
        body = json.dumps(WIRES["openai_chat"].encode_reply(reply, envelope))
        found = json.loads(convert(tmp_path, body, "--from", "openai_chat", "--to", target))
        assert fold(WIRES[target].decode_reply(found)).text == reply.text
        for source in WIRES.values():
            stream = b"".join(map(source.stream_encoder(envelope).feed, scenario.reply))
            converted = convert(tmp_path, stream, "--from", source.name, "--to", target)
            decoder = StreamDecoder(WIRES[target])
            decoded = fold([*decoder.feed(converted.encode()), *decoder.finish()])
            assert (decoded.text, decoded.failure) == (reply.text, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"messages": 3}', "value 1: Expected `array`, got `integer` - at `$.messages`"),
        ('{"messages": []}\n{"messages": [3]}', "value 2: Expected `object`, got `integer`"),
        ('{"messages": []}\nnope', "line 2: not valid JSON"),
        ("nope", "not valid JSON"),
        ("3", "Expected a JSON object: a request, a reply or a message"),
    ],
)
def test_convert_error_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    given = tmp_path / "in"
    given.write_text(text)
    assert main(["convert", str(given), *TO_ANTHROPIC]) == 2
    assert problem in capsys.readouterr().err


def test_convert_file_onto_itself_works(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text(json.dumps({"model": "m", "messages": MESSAGES}))
    assert main(["convert", str(path), "-o", str(path), *TO_ANTHROPIC]) == 0
    assert json.loads(path.read_text())["system"] == "Be brief."
    path.write_text('{"messages": []}\nnope')
    assert main(["convert", str(path), "-o", str(path), *TO_ANTHROPIC]) == 2
    assert path.read_text() == '{"messages": []}\nnope'
    assert list(tmp_path.iterdir()) == [path]


def test_convert_reply_prints_notes_on_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    reply = {"type": "message", "content": [thinking], "stop_reason": "end_turn"}
    convert(tmp_path, json.dumps(reply), "--from", "anthropic", "--to", "ollama")
    assert "signature" in capsys.readouterr().err


def test_convert_gemini_array_is_one_reply(tmp_path: Path) -> None:
    chunks = [
        {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": reason}]}
        for text, reason in (("Hel", None), ("lo", "STOP"))
    ]
    found = convert(tmp_path, json.dumps(chunks), "--from", "gemini", "--to", "openai_chat")
    assert json.loads(found)["choices"][0]["message"]["content"] == "Hello"


def test_convert_lists_and_indented_files(tmp_path: Path) -> None:
    two = json.dumps([{"messages": MESSAGES[:2], "model": name} for name in "ab"])
    found = json.loads(convert(tmp_path, two, *TO_ANTHROPIC))
    assert [body["model"] for body in found] == ["a", "b"]
    envelope = Envelope(Request(model="m", messages=()), "1")
    dump = WIRES["openai_responses"].encode_reply(fold(SCENARIOS[0].reply), envelope)
    text = json.dumps({**dump, "prompt": None})
    answer = convert(tmp_path, text, "--from", "openai_responses", "--to", "openai_chat")
    assert json.loads(answer)["choices"][0]["message"]["content"] == "Hello."


def test_convert_with_unknown_api_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "-", "--from", "soap", "--to", "anthropic"]) == 2
    assert "There is no API 'soap'. Use one of: openai_chat" in capsys.readouterr().err


def test_convert_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    body = json.dumps({"messages": MESSAGES}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    assert main(["convert", *TO_ANTHROPIC, "--quiet"]) == 0
    found = capfdbinary.readouterr()
    assert json.loads(found.out)["system"] == "Be brief."
    assert found.err == b""


# Providers.


def test_every_provider_has_a_known_wire() -> None:
    for name, provider in PROVIDERS.items():
        assert provider.wire in WIRES, name
        assert not provider.base_url.endswith("/")
        assert (
            provider.key_variables or "127.0.0.1" in provider.base_url or not provider.base_url
        ), name
        assert format_tools(name, [{"name": "f"}])


def test_providers_prints_every_provider(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "a secret")
    assert main(["providers"]) == 0
    shown = capsys.readouterr().out
    assert "GROQ_API_KEY (set)" in shown
    assert "a secret" not in shown
    assert main(["providers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == PROVIDERS.keys()


def test_openrouter_requests_name_the_application() -> None:
    assert find_provider("openrouter").headers.keys() == {"HTTP-Referer", "X-Title"}


def test_provider_quirks_are_read() -> None:
    body = {
        "model": "m",
        "max_tokens": 5,
        "tool_choice": "required",
        "user": "u",
        "messages": MESSAGES,
    }
    openai, _ = apply_quirks(body, find_provider("openai").quirks)
    assert "max_tokens" not in openai
    assert openai["max_completion_tokens"] == 5
    mistral, notes = apply_quirks(body, find_provider("mistral").quirks)
    assert [note.where for note in notes] == ["$.user"]
    assert mistral["tool_choice"] == "any"
    assert "user" not in mistral
    identity = mistral["messages"][2]["tool_calls"][0]["id"]
    assert len(identity) == 9
    assert identity.isalnum()
    assert mistral["messages"][3]["tool_call_id"] == identity
    assert apply_quirks(body, Quirks()) == (body, ())
    named = {"type": "function", "function": {"name": "f"}}
    unchanged, _ = apply_quirks({"tool_choice": named}, find_provider("mistral").quirks)
    assert unchanged == {"tool_choice": named}
    thinking = {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "b"}]}
    groq, notes = apply_quirks(thinking, find_provider("groq").quirks)
    assert groq == {"messages": [{"role": "assistant", "content": "a"}]}
    assert [note.where for note in notes] == ["$.messages[].reasoning_content"]
