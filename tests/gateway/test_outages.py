"""Real outages of the store: what fails, what goes on, and what people are told."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.gateway.gateway_process import (
    HTTP,
    SERVE,
    GatewayProcess,
    ask,
    find_free_port,
    format_settings,
    read_text,
    start_gateway,
    wait_until,
)
from tests.store.test_store import REDIS_MARKS
from tests.store.test_store import Server as Redis
from toolspeak import Finish, TextDelta
from toolspeak.testing import ScriptedServer

pytestmark = pytest.mark.process
QUESTION = {"model": "m", "input": "Hi"}
OBEY_PERMISSIONS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Root could write to any file."""


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta("Hello."), Finish("stop")]) as server:
        yield server


def read_status(gateway: GatewayProcess) -> str:
    response = HTTP.get(f"{gateway.url}/ready", headers={"connection": "close"})
    assert response.status_code == 200
    return response.json()["status"]


def store_response(gateway: GatewayProcess) -> str:
    response = ask(gateway.url, "/v1/responses", QUESTION)
    assert response.status_code == 200
    return response.json()["id"]


def fetch_status(gateway: GatewayProcess, identity: str) -> int:
    url = f"{gateway.url}/v1/responses/{identity}"
    return HTTP.get(url, headers={"connection": "close"}).status_code


def use_until(gateway: GatewayProcess, status: str) -> None:
    """Use the store until the gateway reports this status."""

    def use() -> bool:
        store_response(gateway)
        return read_status(gateway) == status

    wait_until(use)


def list_outage_lines(gateway: GatewayProcess) -> list[str]:
    return [line for line in gateway.log.splitlines() if "the store is" in line]


def check_outage(
    gateway: GatewayProcess, begin: Callable[[], object], end: Callable[[], object], number: int = 1
) -> None:
    """Check that an outage is noticed, that requests are served, and that its end is noticed.

    `number` outages have begun with this one; a store that is emptied forgets earlier ones.
    """
    begin()
    use_until(gateway, "degraded")
    for _ in range(5):
        assert read_text(ask(gateway.url)) == "Hello."
        store_response(gateway)
    assert len(list_outage_lines(gateway)) == 2 * number - 1
    end()
    use_until(gateway, "ready")
    assert fetch_status(gateway, store_response(gateway)) == 200
    lines = list_outage_lines(gateway)
    assert len(lines) == 2 * number, lines
    assert "the store is unavailable: " in lines[-2]
    assert "the store is available again after " in lines[-1]
    metrics = HTTP.get(f"{gateway.url}/metrics", headers={"connection": "close"}).text
    assert 'toolspeak_store_problems_total{kind="outage"} 1\n' in metrics
    assert "Traceback" not in gateway.log


# Redis.


@pytest.fixture
def redis() -> Iterator[Redis]:
    with tempfile.TemporaryDirectory(prefix="ts") as folder:
        server = Redis(Path(folder), port=find_free_port())
        server.start()
        yield server
        server.kill()


@pytest.mark.redis
@pytest.mark.skipif(*REDIS_MARKS[1].args, **REDIS_MARKS[1].kwargs)
def test_redis_that_hangs_or_is_restarted_is_reported_once_each(
    tmp_path: Path, model: ScriptedServer, redis: Redis
) -> None:
    (tmp_path / "toolspeak.toml").write_text(format_settings(model.url))
    with start_gateway(tmp_path, TOOLSPEAK_STORE=redis.url) as gateway:
        identity = store_response(gateway)
        check_outage(
            gateway, lambda: redis.send(signal.SIGSTOP), lambda: redis.send(signal.SIGCONT)
        )
        assert fetch_status(gateway, identity) == 200
        check_outage(gateway, redis.kill, redis.start, number=2)
        assert fetch_status(gateway, identity) == 404, "it was in the memory of the old server"


# SQLite.


@contextmanager
def serve_file(
    path: Path, model: ScriptedServer, *program: str
) -> Generator[GatewayProcess, None, None]:
    (path.parent.parent / "toolspeak.toml").write_text(format_settings(model.url))
    path.parent.mkdir(exist_ok=True)
    store = f"sqlite:{path}"
    command = (*program, *SERVE)
    with start_gateway(path.parent.parent, program=command, TOOLSPEAK_STORE=store) as gateway:
        yield gateway


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


def test_file_locked_by_another_process_is_an_outage(path: Path, model: ScriptedServer) -> None:
    with serve_file(path, model) as gateway:
        identity = store_response(gateway)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:

            def lock() -> None:
                other.execute("PRAGMA busy_timeout = 60000")
                other.execute("BEGIN EXCLUSIVE")

            check_outage(gateway, lock, lambda: other.execute("ROLLBACK"))
        assert fetch_status(gateway, identity) == 200


@pytest.fixture
def small_disk(path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte at the database's folder."""
    path.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path.parent)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    yield path.parent
    subprocess.run(["umount", "--lazy", str(path.parent)], check=True)


def test_full_disk_is_an_outage_that_loses_nothing_stored(
    path: Path, small_disk: Path, model: ScriptedServer
) -> None:
    filler = small_disk / "filler"

    def fill() -> None:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def empty() -> None:
        assert fetch_status(gateway, identity) == 200, "it can still be read"
        filler.unlink()

    with serve_file(path, model) as gateway:
        identity = store_response(gateway)
        check_outage(gateway, fill, empty)
        assert fetch_status(gateway, identity) == 200


def test_file_that_may_not_grow_is_an_outage_that_loses_nothing_stored(
    path: Path, model: ScriptedServer
) -> None:
    with serve_file(path, model) as gateway:
        identity = store_response(gateway)
        limits = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)

        def set_limit(size: int) -> None:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (size, limits[1]))

        # Less than any file of the database; more than the log, which is a file, too.
        check_outage(gateway, lambda: set_limit(4000), lambda: set_limit(limits[0]))
        assert fetch_status(gateway, identity) == 200


def test_read_only_file_is_an_outage_until_it_can_be_written(
    path: Path, model: ScriptedServer
) -> None:
    program = OBEY_PERMISSIONS if os.geteuid() == 0 else ()
    if program and shutil.which(program[0]) is None:
        pytest.skip("setpriv is not installed, and root can write to any file")
    with serve_file(path, model) as gateway:
        identity = store_response(gateway)

    def set_modes(file: int, folder: int) -> None:
        for one in path.parent.iterdir():
            one.chmod(file)
        path.parent.chmod(folder)

    set_modes(0o400, 0o500)
    try:
        with serve_file(path, model, *program) as gateway:
            check_outage(gateway, lambda: None, lambda: set_modes(0o600, 0o700))
            assert fetch_status(gateway, identity) == 200
    finally:
        set_modes(0o600, 0o700)


def test_deleted_file_is_replaced_by_an_empty_one(path: Path, model: ScriptedServer) -> None:
    with serve_file(path, model) as gateway:
        identity = store_response(gateway)
        for file in path.parent.iterdir():
            file.unlink()
        other = store_response(gateway)
        assert fetch_status(gateway, other) == 200
        assert fetch_status(gateway, identity) == 404
        assert read_status(gateway) == "ready"
        assert path.exists()
        assert "Traceback" not in gateway.log


@pytest.mark.parametrize(
    "content",
    [b"This is no database." * 500, b"SQLite format 3\x00" + bytes(range(1, 256)) * 40],
    ids=["text", "header"],
)
def test_damaged_file_at_the_start_is_reported_and_replaced(
    path: Path, model: ScriptedServer, content: bytes
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with serve_file(path, model) as gateway:
        use_until(gateway, "ready")
        wait_until(lambda: len(list_outage_lines(gateway)) == 2)
        assert fetch_status(gateway, store_response(gateway)) == 200
        assert "not a database" in gateway.log
        assert "Traceback" not in gateway.log
    assert path.with_name("store.db.damaged").read_bytes() == content


def test_response_in_a_file_outlives_a_gateway_that_is_killed(
    path: Path, model: ScriptedServer
) -> None:
    with serve_file(path, model) as gateway:
        identities = [store_response(gateway) for _ in range(20)]
        gateway.send(signal.SIGKILL)
        assert gateway.wait_for_exit() == -signal.SIGKILL
    with serve_file(path, model) as gateway:
        assert {fetch_status(gateway, identity) for identity in identities} == {200}
        follow_up = {**QUESTION, "previous_response_id": identities[-1]}
        assert ask(gateway.url, "/v1/responses", follow_up).status_code == 200
        assert gateway.log == ""
