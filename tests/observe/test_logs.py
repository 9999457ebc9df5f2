"""The gateway's log, as text and as lines of JSON."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import (
    CHAT_BODY,
    PausingUpstream,
    find_free_port,
    format_settings,
    start_gateway,
    wait_until,
)
from tests.gateway.gateway_process import ask as send_request
from tests.gateway.raw_clients import HTTP, STREAMED, WHOLE, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak.events import Event, Finish, TextDelta
from toolspeak.observe.logs import REQUEST_ID, JsonLogFormatter
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

PRIVATE = "a-very-private-matter"
CALL = '<tool_call>{"name": "get_weather", "arguments": {"text": "%b",}}</tool_call>'
FALSE_REFUSAL = "I'm sorry, but I don't have access to any tools."
TURNS: list[list[Event]] = [
    [TextDelta(FALSE_REFUSAL), Finish("stop")],
    [TextDelta(CALL.replace("%b", PRIVATE)), Finish("stop")],
]


def format_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    formatter = JsonLogFormatter()
    return [json.loads(formatter.format(record)) for record in caplog.records]


@pytest.mark.parametrize(
    "client", [WHOLE[0], STREAMED[0], WHOLE[2]], ids=lambda client: client.name
)
def test_request_is_logged_without_its_content(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolspeak.gateway")
    with (
        ScriptedServer(*TURNS) as upstream,
        run_gateway(make_config(upstream.url, tools="native")) as gateway,
    ):
        body = client.body(f"The weather? {PRIVATE}", tools=["get_weather"])
        reply = ask(gateway.url, client, body, **{"x-request-id": "mine-1"})
        assert reply.status == 200
    [line] = format_lines(caplog)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert 0 < line.pop("overhead_ms") < line.pop("ms") < 100_000
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
        "notes": ["retried", "repaired-trailing-comma", "text-call"],
        "failure": None,
    }
    [record] = caplog.records
    text = record.getMessage()
    assert re.fullmatch(
        rf"mine-1: POST '{client.path}': 200 in [\d.]+ ms, 'm' at scripted, native, 1 tool, "
        "1 call, 1 retry, retried, repaired-trailing-comma, text-call",
        text,
    )
    assert PRIVATE not in text


def test_failed_requests_are_logged_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolspeak.gateway")
    failure = Failure("rate_limit", f"slower, {PRIVATE}", 429)
    with ScriptedServer([failure]) as upstream, run_gateway(make_config(upstream.url)) as gateway:
        path = "/v1beta/models/m:generateContent"
        HTTP.post(f"{gateway.url}{path}?key=AIza{PRIVATE}", json=WHOLE[4].body())
        HTTP.get(f"{gateway.url}/nowhere?key={PRIVATE}")
        HTTP.post(f"{gateway.url}/v1/chat/completions", json={"model": "x" * 5000, "messages": []})
    served, unknown, invalid = format_lines(caplog)
    assert (served["path"], served["status"], served["failure"]) == (path, 429, "rate_limit")
    assert (unknown["path"], unknown["status"], unknown["failure"]) == (
        "/nowhere",
        404,
        "not_found",
    )
    assert "model" not in unknown
    assert len(invalid["model"]) == 200
    assert PRIVATE not in caplog.text


def test_other_records_are_formatted_as_json() -> None:
    formatter = JsonLogFormatter()
    record = logging.LogRecord("uvicorn", logging.WARNING, "", 1, "text: %s\n2", ("\ud800",), None)
    line = json.loads(formatter.format(record))
    assert (line["level"], line["logger"], line["message"]) == (
        "WARNING",
        "uvicorn",
        "text: \ud800\n2",
    )
    assert "request_id" not in line
    token = REQUEST_ID.set("req_1")
    try:
        raise ValueError("oh")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    output = formatter.format(record)
    REQUEST_ID.reset(token)
    assert output.isascii()
    assert "\n" not in output
    line = json.loads(output)
    assert line["request_id"] == "req_1"
    assert line["exception"].endswith("ValueError: oh")


def test_internal_error_is_logged_with_its_request_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("oh")

    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonLogFormatter())
    monkeypatch.setattr("toolspeak.gateway.conversation_store._omits_tools", fails)
    logger = logging.getLogger("toolspeak.gateway")
    logger.addHandler(handler)
    try:
        with ScriptedServer(*TURNS) as upstream, run_gateway(make_config(upstream.url)) as gateway:
            assert ask(gateway.url, WHOLE[0], **{"x-request-id": "mine-2"}).status == 500
    finally:
        logger.removeHandler(handler)
    line = json.loads(output.getvalue().splitlines()[0])
    assert (line["level"], line["request_id"]) == ("ERROR", "mine-2")
    assert "ValueError: oh" in line["exception"]


@pytest.mark.parametrize(
    ("workers", "source"), [(1, "option"), (1, "setting"), (1, "variable"), (2, "option")]
)
def test_serve_with_json_log_writes_only_json(tmp_path: Path, workers: int, source: str) -> None:
    options = ["--workers", str(workers), *(["--log", "json"] if source == "option" else [])]
    variables = {"TOOLSPEAK_LGO": "x"} | (
        {"TOOLSPEAK_LOG_FORMAT": "json"} if source == "variable" else {}
    )
    with PausingUpstream("model") as upstream:
        more = '\n[server]\nlog_format = "json"\n' if source == "setting" else ""
        (tmp_path / "toolspeak.toml").write_text(upstream.toml + more)
        with start_gateway(tmp_path, *options, **variables) as gateway:
            send_request(gateway.url)
            wait_until(lambda: "/v1/chat/completions" in gateway.log)
            gateway.send(15)
            assert gateway.wait_for_exit() == 0
            lines = [json.loads(line) for line in gateway.log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert [(line["status"], line["model"]) for line in requests] == [(200, "m")]
    [warning] = [line for line in lines if line["message"] != "request"]
    assert warning["level"] == "WARNING"
    assert warning["message"].startswith("the variable TOOLSPEAK_LGO is not known and is ignored")


def test_serve_without_options_logs_text(tmp_path: Path) -> None:
    (tmp_path / "toolspeak.toml").write_text(
        format_settings(f"http://127.0.0.1:{find_free_port()}")
    )
    with start_gateway(tmp_path, "--verbose") as gateway:
        send_request(gateway.url, body={**CHAT_BODY, "model": "other"})
        wait_until(lambda: "chat/completions" in gateway.log)
        assert re.search(
            r"INFO req_\w+: POST '/v1/chat/completions': 502 in [\d.]+ ms, upstream, "
            "'other' at here\n",
            gateway.log,
        )
