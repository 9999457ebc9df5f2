"""File handles: requests are refused before they run out, and none is needed to read files later."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.gateway.gateway_process import (
    SERVE,
    PausingUpstream,
    ask,
    make_environment,
    read_cpu_seconds,
    start_gateway,
    wait_until,
)
from tests.gateway.raw_clients import STREAMED, connect, encode_request

_LIMITED = ["sh", "-c", 'ulimit -n 160; exec "$@"', "sh", *SERVE]
_COUNT = 120
"""Streams, each of which needs two handles."""

_READ_FILES = """
import sys
opened = []
sys.addaudithook(lambda name, given: name in ("open", "import") and opened.append((name, given)))
from toolspeak.events import Finish, TextDelta
from toolspeak.testing import ScriptedServer
from tests.gateway.raw_clients import CLIENTS, HTTP, ask
from tests.gateway.running_gateway import make_config, run_gateway

replies = [TextDelta("I am sorry, I do not have tools to look that up. ğŸ"), Finish("stop")]
with ScriptedServer(replies) as model:
    # The modules of the test itself are loaded by another gateway.
    for is_measured in (False, True):
        for mode in ("native", "prompt", "constrained"):
            config = make_config(model.url, tools=mode)
            with run_gateway(config, token="t") as gateway:
                if is_measured and mode == "native":
                    pass
                before = len(opened)
                for client in CLIENTS:
                    ask(gateway.url, client, client.body(tools=1))
                HTTP.get(gateway.url, headers={"accept": "text/html"})
                HTTP.get(gateway.url + "/metrics")
                if MEASURES_FIRST or is_measured:
                    print([one for one in opened[before:]])
"""


def test_streams_beyond_the_handles_are_refused(tmp_path: Path) -> None:
    with PausingUpstream("slow") as upstream, ExitStack() as connections:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml + "[server]\nkeys = []\n")
        gateway = connections.enter_context(start_gateway(tmp_path, program=_LIMITED))
        clients = [connections.enter_context(connect(gateway.url)) for _ in range(_COUNT)]
        for client in clients:
            client.sendall(encode_request(STREAMED[0]))
        heads = [client.recv(4096) for client in clients]
        statuses = [int(head.split()[1]) for head in heads]
        assert set(statuses) == {200, 503}
        refused = [head for head in heads if b" 503 " in head.split(b"\r\n")[0]]
        for head in refused:
            assert "ulimit" in json.loads(head.partition(b"\r\n\r\n")[2])["error"]["message"]
            assert b"retry-after: 1" in head.lower()
        before = read_cpu_seconds(gateway.pid)
        assert ask(gateway.url).status_code == 503
        assert gateway.log.count("file handles are in use") == 1
        assert read_cpu_seconds(gateway.pid) - before < 1
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
