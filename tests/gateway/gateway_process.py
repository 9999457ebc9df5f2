"""`toolspeak serve` in its own processes, and an upstream whose streams pause."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import httpx

SERVE = [sys.executable, "-m", "toolspeak", "serve"]
SERVE_WITH_SHORT_GRACE = [
    sys.executable,
    "-c",
    "import sys; from toolspeak import cli; from toolspeak.gateway import server; "
    "server._GRACE_SECONDS = 1; sys.exit(cli.main())",
    "serve",
]
"""Gives requests less time to end when the gateway is stopped."""
Result = TypeVar("Result")
WAIT_SECONDS = 60
"""Generous: a busy machine may take long for anything."""
HTTP = httpx.Client(trust_env=False, timeout=WAIT_SECONDS, verify=False)
CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "Who are you?"}]}


def make_environment(**variables: str) -> dict[str, str]:
    """Return this environment without settings and keys, and with these variables."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_API_KEY") and not name.startswith("TOOLSPEAK_")
    }
    return {**inherited, **variables}


class GatewayProcess:
    """A process of `toolspeak serve`, the JSON it prints at the start, and its log."""

    def __init__(
        self, folder: Path, *options: str, program: Sequence[str] = SERVE, **variables: str
    ) -> None:
        self._log = folder / f"log-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, "--port", "0", "--json", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=make_environment(**variables),
                start_new_session=True,
            )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log
        self.start_info: dict[str, Any] = json.loads(line)
        self.url: str = self.start_info["url"]

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait_for_exit(self) -> int:
        """Return the exit code once the process has ended."""
        return self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        assert self.process.stdout
        self.process.stdout.close()
        if self.process.poll() is None:
            family = list_descendants(self.pid)
            self.process.kill()
            self.process.wait()
            for pid in filter(is_alive, family):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def start_gateway(
    folder: Path, *options: str, program: Sequence[str] = SERVE, **variables: str
) -> Generator[GatewayProcess, None, None]:
    gateway = GatewayProcess(folder, *options, program=program, **variables)
    try:
        yield gateway
    finally:
        gateway.close()


def ask(
    url: str, path: str = "/v1/chat/completions", body: Any = CHAT_BODY, key: str = ""
) -> httpx.Response:
    """Send a request on a connection of its own, and return the whole response."""
    headers = {"connection": "close"} | ({"authorization": f"Bearer {key}"} if key else {})
    return HTTP.post(url + path, json=body, headers=headers)


def read_text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


class StreamReader:
    """Requests a stream and reads it in a thread."""

    def __init__(self, url: str) -> None:
        self.data = b""
        self.problem: Exception | None = None
        self._url = url
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        body = {**CHAT_BODY, "stream": True}
        try:
            with HTTP.stream("POST", f"{self._url}/v1/chat/completions", json=body) as response:
                for data in response.iter_bytes():
                    self.data += data
        except httpx.HTTPError as problem:
            self.problem = problem

    def read_all(self) -> str:
        """Return the whole stream once it has ended."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), self.data
        assert self.problem is None, self.problem
        return self.data.decode()


def format_settings(url: str) -> str:
    """Return a configuration file with one model, `m`, at this URL."""
    return (
        f'default = "m"\n[upstreams.here]\nwire = "openai_chat"\nbase_url = "{url}/v1"\n'
        'retries = 0\n[models.m]\nupstream = "here"\n'
    )


class PausingUpstream:
    """An upstream that replies with its name, and whose streams then pause until `resume`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[Any] = []
        self.resume = threading.Event()
        handler = type("Handler", (_PausingHandler,), {"upstream": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def toml(self) -> str:
        """A configuration file with this upstream's model."""
        return format_settings(self.url)

    def __enter__(self) -> PausingUpstream:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.resume.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _PausingHandler(BaseHTTPRequestHandler):
    upstream: PausingUpstream
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.upstream.requests.append(body)
        if body.get("stream"):
            self._send_stream()
        else:
            message = {"role": "assistant", "content": f"I am {self.upstream.name}."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send_whole("application/json", json.dumps({"choices": [choice]}).encode())

    def _send_stream(self) -> None:
        first, last = ({"content": text} for text in (f"I am {self.upstream.name}.", " Goodbye."))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            self._send_choice({"index": 0, "delta": first, "finish_reason": None})
            self.upstream.resume.wait(2 * WAIT_SECONDS)
            self._send_choice({"index": 0, "delta": last, "finish_reason": "stop"})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass
        self.close_connection = True

    def _send_choice(self, choice: dict[str, Any]) -> None:
        chunk = {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}
        self.wfile.write(b"data: %b\n\n" % json.dumps(chunk).encode())

    def _send_whole(self, content_type: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the output of tests short."""


def wait_until(condition: Callable[[], Result], seconds: float = WAIT_SECONDS) -> Result:
    """Return the first result of `condition` that counts as true."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"the condition was still false after {seconds} s"
        time.sleep(0.01)
    return result


def is_open(url: str) -> bool:
    """Return True if the gateway accepts connections."""
    address = httpx.URL(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.host, address.port)) == 0


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Processes.


def list_children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []


def list_descendants(pid: int) -> list[int]:
    return [one for child in list_children(pid) for one in (child, *list_descendants(child))]


def read_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def read_state(pid: int) -> str:
    """Return the state of a process as one letter: `T` if it is stopped, `Z` once it is gone."""
    fields = _read_stat(pid)
    return fields[0] if fields else "Z"


def is_alive(pid: int) -> bool:
    return read_state(pid) != "Z"


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, which other processes do not change much."""
    return sum(map(int, _read_stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _read_stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def read_resident_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
