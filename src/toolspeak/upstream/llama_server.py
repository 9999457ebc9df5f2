"""The embedded model's process: llama.cpp's own HTTP server on a loopback port.

    $ export TOOLSPEAK_EMBEDDED_KEY=…
    $ python -m toolspeak.upstream.llama_server --gguf model.gguf --context-window 8192
    {"type": "ready", "url": "http://127.0.0.1:40123", "context_window": 8192, "model": "model"}

In a process of its own, a crash in native code does not end the gateway. It runs until its stdin
is closed, which happens however its parent ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec

from ..config.settings import find_gguf_problem

KEY_VARIABLE = "TOOLSPEAK_EMBEDDED_KEY"
"""An environment variable with the key for clients: as an argument, every user could see it."""
_LOG_ERRORS, _LOG_EVERYTHING = 1, 4
"""llama.cpp's log levels."""
_CACHE_MIB = 128
"""For the prompts of earlier conversations. llama.cpp's default is 8 GiB."""


class ServerReady(msgspec.Struct, frozen=True, tag="ready"):
    """The only line on stdout once the model is loaded."""

    url: str
    context_window: int
    """Tokens for each request: fewer than requested if the model supports fewer."""
    model: str


class ServerNotReady(msgspec.Struct, frozen=True, tag="refused"):
    """The only line on stdout if the model cannot be served. It is not on stderr because llama.cpp
    writes its log there from another thread, even in the middle of a line."""

    problem: str


def main(arguments: Sequence[str] | None = None) -> int:
    options = _argument_parser().parse_args(arguments)
    key = os.environ.get(KEY_VARIABLE, "")
    stdout = _take_stdout()
    problem = _find_problem(options.gguf, key)
    if problem:
        return _report_problem(stdout, problem)
    try:
        server = import_module("xllamacpp").Server(_server_parameters(options, key))
    except RuntimeError:
        problem = f"llama.cpp cannot load {options.gguf}; check that it is complete and supported"
        return _report_problem(stdout, problem)
    _restore_signals()
    _write_line(stdout, _query_server(server.listening_address, key, options.gguf.stem))
    sys.stdin.buffer.read()
    # Exit at once: a regular shutdown would wait for the requests in progress.
    os._exit(0)


def _argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="toolspeak.upstream.llama_server", description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True, help="the model's file")
    parser.add_argument("--context-window", type=int, required=True, help="tokens for each request")
    # Threads wait for each other by spinning: one too many is much slower than one too few.
    threads = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument("--threads", type=int, default=threads, help="default: half of the cores")
    parser.add_argument("--parallel", type=int, default=1, help="requests at the same time")
    parser.add_argument(
        "--max-reply-tokens", type=int, default=-1, help="for requests without a limit"
    )
    parser.add_argument("--verbose", action="store_true", help="llama.cpp's log, on stderr")
    return parser


def _find_problem(gguf: Path, key: str) -> str:
    """Return why the model cannot be served; empty if it probably can."""
    if not key:
        return f"{KEY_VARIABLE} is not set; set it to the key for clients"
    return find_gguf_problem(gguf)


def _report_problem(stdout: BinaryIO, problem: str) -> int:
    _write_line(stdout, ServerNotReady(problem))
    return 2


def _write_line(stdout: BinaryIO, message: ServerReady | ServerNotReady) -> None:
    with stdout:
        stdout.write(msgspec.json.encode(message) + b"\n")


def _take_stdout() -> BinaryIO:
    """Return stdout, and redirect what native code writes there to stderr."""
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stdout


def _server_parameters(options: argparse.Namespace, key: str) -> Any:
    parameters: Any = import_module("xllamacpp").CommonParams()
    parameters.model.path = str(options.gguf)
    parameters.model_alias = {options.gguf.stem}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [key]
    # The slots share this equally. With one pool for all (`kv_unified`) each could have more, but
    # requests that fill it together would all fail.
    parameters.n_ctx = options.context_window * options.parallel
    parameters.n_parallel = options.parallel
    parameters.n_predict = options.max_reply_tokens
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.cache_ram_mib = _CACHE_MIB
    parameters.verbosity = _LOG_EVERYTHING if options.verbose else _LOG_ERRORS
    parameters.offline = True
    parameters.ui = False
    return parameters


def _restore_signals() -> None:
    """Replace llama.cpp's handlers, which would end its server but not this process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _query_server(url: str, key: str, model: str) -> ServerReady:
    """Ask the server for its context window, which also shows that it responds."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})
        properties = msgspec.json.decode(connection.getresponse().read())
    finally:
        connection.close()
    return ServerReady(url, properties["default_generation_settings"]["n_ctx"], model)


if __name__ == "__main__":
    sys.exit(main())
