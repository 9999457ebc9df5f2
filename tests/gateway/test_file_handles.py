"""File handles: requests are refused before they run out, and none is needed to read files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gateway.gateway_process import (
    SERVE,
    PausingUpstream,
    ask,
    format_settings,
    make_environment,
    read_cpu_seconds,
    start_gateway,
    wait_until,
)
from tests.gateway.raw_clients import STREAMED, connect, encode_request

_LIMITED = ["sh", "-c", 'ulimit -n 160; exec "$@"', "sh", *SERVE]
_COUNT = 120
"""Streams, each of which needs two handles."""

_LIST_OPENED_FILES = """
import sys
opened = []
sys.addaudithook(lambda name, given: name in ("open", "import") and opened.append(given[0]))
from tests.gateway.gateway_process import wait_until
from tests.gateway.raw_clients import CLIENTS, HTTP, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak.events import Finish, TextDelta
from toolspeak.security.refusals import detection
from toolspeak.testing import ScriptedServer

sorry = [TextDelta("I am sorry, I do not have tools to look that up."), Finish("stop")]
with ScriptedServer(sorry) as model, run_gateway(make_config(model.url, tools="MODE")) as gateway:
    HTTP.get(gateway.url + "/health")
    wait_until(lambda: detection._load_knowledge.cache_info().currsize)
    del opened[:]
    for client in CLIENTS:
        ask(gateway.url, client, client.body(tools=1))
    HTTP.get(gateway.url, headers={"accept": "text/html"})
    HTTP.get(gateway.url + "/metrics")
    print(opened)
"""


@pytest.mark.parametrize("mode", ["native", "prompt", "constrained"])
def test_requests_read_no_files(mode: str) -> None:
    """With no handle left, a file that is read late would fail in the middle of a reply."""
    program = [sys.executable, "-c", _LIST_OPENED_FILES.replace("MODE", mode)]
    run = subprocess.run(program, capture_output=True, text=True, env=make_environment())
    assert run.stdout.splitlines()[-1:] == ["[]"], run.stdout + run.stderr


def test_streams_beyond_the_handles_are_refused(tmp_path: Path) -> None:
    with PausingUpstream("slow") as upstream, ExitStack() as connections:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        gateway = connections.enter_context(start_gateway(tmp_path, program=_LIMITED))
        clients = [connections.enter_context(connect(gateway.url)) for _ in range(_COUNT)]
        for client in clients:
            client.sendall(encode_request(STREAMED[0]))
        heads = [client.recv(4096) for client in clients]
        statuses = [int(head.split()[1]) for head in heads]
        assert set(statuses) == {200, 503}
        for client, status, head in zip(clients, statuses, heads, strict=True):
            if status == 503:
                response = head + b"".join(iter(lambda client=client: client.recv(4096), b""))
                _, _, body = response.partition(b"\r\n\r\n")
                assert "ulimit" in json.loads(body)["error"]["message"]
                assert b"retry-after: 1" in response.lower()
        assert gateway.log.count("file handles are in use") == 1
        upstream.resume.set()
        for client, status in zip(clients, statuses, strict=True):
            if status == 200:
                data = b""
                while not data.endswith(b"0\r\n\r\n"):
                    received = client.recv(65536)
                    assert received, data
                    data += received
                assert b"[DONE]" in data
        wait_until(lambda: ask(gateway.url).status_code == 200)


def test_gateway_raises_its_limit_of_handles(tmp_path: Path) -> None:
    program = ["sh", "-c", 'ulimit -S -n 100; ulimit -H -n 2000; exec "$@"', "sh", *SERVE]
    (tmp_path / "toolspeak.toml").write_text(format_settings("http://127.0.0.1:9"))
    with start_gateway(tmp_path, program=program) as gateway:
        limits = Path(f"/proc/{gateway.pid}/limits").read_text().splitlines()
        (handles,) = [line.split() for line in limits if line.startswith("Max open files")]
        assert handles[3:5] == ["2000", "2000"]


def test_gateway_without_handles_waits(tmp_path: Path) -> None:
    """Connections for which there is no handle wait, and waiting for one costs next to nothing."""
    with PausingUpstream("slow") as upstream, ExitStack() as connections:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        gateway = connections.enter_context(start_gateway(tmp_path, program=_LIMITED))
        clients = [connections.enter_context(connect(gateway.url)) for _ in range(200)]
        wait_until(lambda: "connections cannot be accepted" in gateway.log)
        before = read_cpu_seconds(gateway.pid)
        time.sleep(1)
        assert read_cpu_seconds(gateway.pid) - before < 0.5
        assert gateway.log.count("connections cannot be accepted") == 1
        for client in clients:
            client.close()
        wait_until(lambda: ask(gateway.url).status_code == 200)
