"""The files by which programs of the same user find a running gateway."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from toolspeak.cli import main
from toolspeak.config.running_instances import (
    RunningInstance,
    list_instances,
    list_responding,
    register_instance,
)


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_registered_instance_is_readable_by_its_user_only(state_folder: Path) -> None:
    instance = RunningInstance("http://127.0.0.1:7878", os.getpid(), "secret-token")
    with register_instance(instance):
        (path,) = (state_folder / "toolspeak" / "gateways").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert list_instances() == [instance]
        assert "secret-token" not in repr(instance)
        with register_instance(instance):
            assert list_instances() == [instance]
    assert list_instances() == []


def test_instances_of_ended_processes_are_removed(state_folder: Path) -> None:
    folder = state_folder / "toolspeak" / "gateways"
    folder.mkdir(parents=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder / "1.json").write_text(f'{{"url": "http://127.0.0.1:1", "process": {dead.pid}}}')
    (folder / "2.json").write_text("no JSON")
    assert list_instances() == []
    assert [path.name for path in folder.iterdir()] == ["2.json"]


def test_instances_are_listed_newest_first(state_folder: Path) -> None:
    folder = state_folder / "toolspeak" / "gateways"
    folder.mkdir(parents=True)
    for age, name in enumerate(("new", "old")):
        path = folder / f"{name}.json"
        path.write_text(f'{{"url": "http://{name}", "process": {os.getpid()}}}')
        os.utime(path, (1000 - age, 1000 - age))
    assert [instance.url for instance in list_instances()] == ["http://new", "http://old"]


def test_instance_without_a_home_folder_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with register_instance(RunningInstance("http://127.0.0.1:7878", os.getpid())):
        assert list_instances() == []


def test_instance_whose_process_id_was_reused_does_not_respond(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with register_instance(RunningInstance("http://127.0.0.1:9", os.getpid(), "token")):
        assert len(list_instances()) == 1
        assert [*list_responding()] == []
        assert main(["explain"]) == 2
    assert "no gateway is running" in capsys.readouterr().err


def test_busy_instance_counts_as_responding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        instance = RunningInstance(f"http://127.0.0.1:{listener.getsockname()[1]}", os.getpid())
        with register_instance(instance):
            assert [*list_responding()] == [instance]
