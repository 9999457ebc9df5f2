"""What the gateway logs, in words and as lines of JSON."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import ASKED, Held, free_port, serving, settings_for, until
from tests.gateway.gateway_process import ask as asked_of
from tests.gateway.raw_clients import HTTP, STREAMED, WHOLE, Client, ask
from tests.gateway.running_gateway import behind, running
from toolspeak.events import Event, Finish, TextDelta
from toolspeak.observe.logs import REQUEST_ID, JsonLogFormatter
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

SAID = "a-very-private-matter"
CALL = '<tool_call>{"name": "get_weather", "arguments": {"text": "%b",}}</tool_call>'
REFUSED = "I'm sorry, but I don't have access to any tools."
TURNS: list[list[Event]] = [
    [TextDelta(REFUSED), Finish("stop")],
    [TextDelta(CALL.replace("%b", SAID)), Finish("stop")],
]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    formatter = JsonLogFormatter()
    return [json.loads(formatter.format(record)) for record in caplog.records]


@pytest.mark.parametrize("client", [WHOLE[0], STREAMED[0], WHOLE[2]], ids=lambda one: one.name)
def test_a_request(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolspeak.gateway")
    with ScriptedServer(*TURNS) as upstream, running(behind(upstream.url, tools="native")) as it:
        body = client.body(f"The weather? {SAID}", tools=["get_weather"])
        answer = ask(it.url, client, body, **{"x-request-id": "mine-1"})
        assert answer.status == 200
    [line] = lines_of(caplog)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert 0 < line.pop("overhead_ms") < line.pop("ms") < 10_000
    assert line == {
        "level": "INFO",
        "logger": "toolspeak.gateway",
        "message": "request",
        "request_id": "mine-1",
        "method": "POST",
        "path": client.path,
        "wire": client.wire,
        "status": 200,
        "model": "m",
        "upstream": "scripted",
        "mode": "native",
        "stream": client.stream,
        "tools": 1,
        "calls": 1,
        "retries": 1,
        "notes": ["retried", "repaired-trailing-comma"],
        "failure": None,
    }
    [record] = caplog.records
    text = record.getMessage()
    assert re.fullmatch(
        rf"mine-1: POST '{client.path}': 200 in [\d.]+ ms, 'm' at scripted, native, 1 tool, "
        "1 call, 1 retry, retried, repaired-trailing-comma",
        text,
    )
    assert SAID not in text


def test_failures_and_keys_in_the_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolspeak.gateway")
    failure = Failure("rate_limit", f"slower, {SAID}", 429)
    with ScriptedServer([failure]) as upstream, running(behind(upstream.url)) as it:
        path = "/v1beta/models/m:generateContent"
        HTTP.post(f"{it.url}{path}?key=AIza{SAID}", json=WHOLE[4].body())
        HTTP.get(f"{it.url}/nowhere?key={SAID}")
        HTTP.post(f"{it.url}/v1/chat/completions", json={"model": "x" * 5000, "messages": []})
    served, nowhere, empty = lines_of(caplog)
    assert (served["path"], served["status"], served["failure"]) == (path, 429, "rate_limit")
    assert (nowhere["path"], nowhere["status"], nowhere["failure"]) == (
        "/nowhere",
        404,
        "not_found",
    )
    assert "model" not in nowhere
    assert len(empty["model"]) == 200
    assert SAID not in caplog.text


def test_all_else_is_json_too() -> None:
    formatter = JsonLogFormatter()
    record = logging.LogRecord("uvicorn", logging.WARNING, "", 1, "odd: %s\n2", ("\ud800",), None)
    line = json.loads(formatter.format(record))
    assert (line["level"], line["logger"], line["message"]) == (
        "WARNING",
        "uvicorn",
        "odd: \ud800\n2",
    )
    assert "request_id" not in line
    token = REQUEST_ID.set("req_1")
    try:
        raise ValueError("oh")
    except ValueError as problem:
        record.exc_info = (ValueError, problem, problem.__traceback__)
    written = formatter.format(record)
    REQUEST_ID.reset(token)
    assert written.isascii()
    assert "\n" not in written
    line = json.loads(written)
    assert line["request_id"] == "req_1"
    assert line["exception"].endswith("ValueError: oh")


def test_what_goes_wrong_inside_names_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("oh")

    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLogFormatter())
    monkeypatch.setattr("toolspeak.gateway.conversation_store._omits_tools", fails)
    logger = logging.getLogger("toolspeak.gateway")
    logger.addHandler(handler)
    try:
        with ScriptedServer(*TURNS) as upstream, running(behind(upstream.url)) as it:
            assert ask(it.url, WHOLE[0], **{"x-request-id": "mine-2"}).status == 500
    finally:
        logger.removeHandler(handler)
    line = json.loads(written.getvalue().splitlines()[0])
    assert (line["level"], line["request_id"]) == ("ERROR", "mine-2")
    assert "ValueError: oh" in line["exception"]


@pytest.mark.parametrize(
    ("workers", "how"), [(1, "option"), (1, "setting"), (1, "variable"), (2, "option")]
)
def test_the_command(tmp_path: Path, workers: int, how: str) -> None:
    options = ["--workers", str(workers), *(["--log", "json"] if how == "option" else [])]
    variables = {"TOOLSPEAK_LGO": "x"} | (
        {"TOOLSPEAK_LOG_FORMAT": "json"} if how == "variable" else {}
    )
    with Held("model") as upstream:
        more = '\n[server]\nlog_format = "json"\n' if how == "setting" else ""
        (tmp_path / "toolspeak.toml").write_text(upstream.toml + more)
        with serving(tmp_path, *options, **variables) as gateway:
            asked_of(gateway.url)
            until(lambda: "/v1/chat/completions" in gateway.log)
            gateway.send(15)
            assert gateway.ended() == 0
            lines = [json.loads(line) for line in gateway.log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert [(line["status"], line["model"]) for line in requests] == [(200, "m")]
    [warning] = [line for line in lines if line["message"] != "request"]
    assert (warning["level"], warning["message"][:22]) == ("WARNING", "TOOLSPEAK_LGO is not a")


def test_text_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "toolspeak.toml").write_text(settings_for(f"http://127.0.0.1:{free_port()}"))
    with serving(tmp_path, "--verbose") as gateway:
        asked_of(gateway.url, body={**ASKED, "model": "other"})
        until(lambda: "chat/completions" in gateway.log)
        assert re.search(
            r"INFO req_\w+: POST '/v1/chat/completions': 502 in [\d.]+ ms, upstream, "
            "'other' at here, native",
            gateway.log,
        )
