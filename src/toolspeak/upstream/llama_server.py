"""The program that the embedded model runs in: llama.cpp's own HTTP server, on a loopback port.

    $ export TOOLSPEAK_EMBEDDED_KEY=…
    $ python -m toolspeak.upstream.llama_server --gguf model.gguf --context 8192
    {"type": "ready", "url": "http://127.0.0.1:40123", "context": 8192, "model": "model"}

It is a process of its own, so that a crash in native code takes nothing else along. It stays until
its stdin ends: that happens when its parent does, however that comes about.
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

KEY_VARIABLE = "TOOLSPEAK_EMBEDDED_KEY"
"""Holds the key that clients have to show. Arguments would be visible to every user."""
_ERRORS, _EVERYTHING = 1, 4
"""How much llama.cpp tells."""
_CACHE_MIB = 128
"""For the prompts of earlier conversations. llama.cpp would take 8 GiB."""


class ServerReady(msgspec.Struct, frozen=True, tag="ready"):
    """The one line on stdout: where the model listens, and what it is."""

    url: str
    context: int
    """How many tokens each request may have: less than was asked for if the model knows less."""
    model: str


class ServerNotReady(msgspec.Struct, frozen=True, tag="refused"):
    """The one line on stdout if the model cannot be served. On stderr it would be lost at times:
    a thread of llama.cpp's writes its log there, even in the midst of a line."""

    problem: str


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    key = os.environ.get(KEY_VARIABLE, "")
    stdout = _take_stdout()
    problem = _problem(options.gguf, key)
    if problem:
        return _refuse(stdout, problem)
    try:
        server = import_module("xllamacpp").Server(_parameters(options, key))
    except RuntimeError:
        problem = f"llama.cpp cannot load {options.gguf}: is it whole, and a model it knows?"
        return _refuse(stdout, problem)
    _restore_signals()
    _say(stdout, _greeting(server.listening_address, key, options.gguf.stem))
    sys.stdin.buffer.read()
    # Leaves at once: to take the server apart would wait for the requests that it is answering.
    os._exit(0)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="toolspeak.upstream.llama_server", description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True, help="the model's file")
    parser.add_argument("--context", type=int, required=True, help="tokens for each request")
    # Threads wait for each other by spinning: one too many is far slower than one too few.
    threads = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument(
        "--threads", type=int, default=threads, help="half of the cores if left out"
    )
    parser.add_argument("--parallel", type=int, default=1, help="requests at a time; more wait")
    parser.add_argument(
        "--longest", type=int, default=-1, help="tokens of a reply whose request sets no limit"
    )
    parser.add_argument("--verbose", action="store_true", help="llama.cpp's log, on stderr")
    return parser


def _problem(gguf: Path, key: str) -> str:
    """Why the model cannot be served; empty if it may well be."""
    if not key:
        return f"{KEY_VARIABLE} is not set: it holds the key that clients have to show"
    try:
        with gguf.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        return f"cannot read {gguf} ({error.strerror}): give the path of a GGUF file"
    return "" if is_gguf else f"{gguf} is no GGUF file: give one that llama.cpp can load"


def _refuse(stdout: BinaryIO, problem: str) -> int:
    _say(stdout, ServerNotReady(problem))
    return 2


def _say(stdout: BinaryIO, line: ServerReady | ServerNotReady) -> None:
    with stdout:
        stdout.write(msgspec.json.encode(line) + b"\n")


def _take_stdout() -> BinaryIO:
    """Stdout for this program alone: what native code writes there goes to stderr."""
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stdout


def _parameters(options: argparse.Namespace, key: str) -> Any:
    """What llama.cpp is told."""
    parameters: Any = import_module("xllamacpp").CommonParams()
    parameters.model.path = str(options.gguf)
    parameters.model_alias = {options.gguf.stem}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [key]
    # The slots divide this among them. In one pool for all (`kv_unified`) each could have more, but
    # requests that fill it together would all fail.
    parameters.n_ctx = options.context * options.parallel
    parameters.n_parallel = options.parallel
    parameters.n_predict = options.longest
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.cache_ram_mib = _CACHE_MIB
    parameters.verbosity = _EVERYTHING if options.verbose else _ERRORS
    parameters.offline = True
    parameters.ui = False
    return parameters


def _restore_signals() -> None:
    """llama.cpp's own handlers would end its server, and leave this process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _greeting(url: str, key: str, model: str) -> ServerReady:
    """Asks the server what it offers, which also shows that it answers."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})
        offered = msgspec.json.decode(connection.getresponse().read())
    finally:
        connection.close()
    return ServerReady(url, offered["default_generation_settings"]["n_ctx"], model)


if __name__ == "__main__":
    sys.exit(main())
