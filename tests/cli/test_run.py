"""`toolspeak run`, with programs in place of the clients that print how they were started."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import yaml
from msgspec import structs

from tests.gateway.running_gateway import run_gateway
from toolspeak.cli import main
from toolspeak.cli.clients import (
    CLIENTS,
    GatewayAddress,
    build_launch,
    build_snippets,
    list_overrides,
)
from toolspeak.cli.run import RUNNABLE
from toolspeak.config.settings import Config, ModelSettings, ServerSettings, UpstreamSettings

RUN = [sys.executable, "-m", "toolspeak", "run"]
FAKE_CLIENT = f"""#!{sys.executable} -IS
import json, os, sys, time
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}), flush=True)
if "wait" in sys.argv:
    time.sleep(60)
sys.exit(7)
"""
GATEWAY = GatewayAddress("http://127.0.0.1:7878", "qwen3", "secret")
UPSTREAM = UpstreamSettings(wire="openai_chat", base_url="http://127.0.0.1:9/v1")
MODELS = {
    "small": ModelSettings("upstream", context_window=8192),
    "large:30b": ModelSettings("upstream", context_window=200_000),
}
CONFIG = Config(default="large:30b", upstreams={"upstream": UPSTREAM}, models=MODELS)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_gateway(CONFIG) as gateway:
        yield gateway.url


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has every client, and keys of other servers."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for client in RUNNABLE.values():
        (programs / client.program).write_text(FAKE_CLIENT)
        (programs / client.program).chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "ANTHROPIC_API_KEY": "the user's own",
        "GOOGLE_API_KEY": "the user's own",
    }


class Finished(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


RunClient = Callable[..., Finished]


@pytest.fixture
def run_client(
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunClient:
    """Run the command in this process; print what the client would be started with."""

    def start(program: str, argv: list[str], env: dict[str, str]) -> NoReturn:
        assert os.access(program, os.X_OK)
        print(json.dumps({"argv": argv[1:], "env": env}))
        raise SystemExit(7)

    def run(*words: str, **more: str) -> Finished:
        with monkeypatch.context() as patch:
            patch.chdir(environment["HOME"])
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in {**environment, **more}.items():
                patch.setenv(name, value)
            patch.setattr(os, "execve", start)
            try:
                code = main(["run", *words])
            except SystemExit as end:
                code = int(end.code or 0)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


def read_error(finished: Finished) -> str:
    assert (finished.returncode, finished.stdout) == (2, ""), finished
    return finished.stderr


@contextmanager
def serve_json(answers: Mapping[str, Any]) -> Generator[str, None, None]:
    """Run a server of another kind; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path)).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("name", RUNNABLE)
def test_run_starts_the_client_with_the_gateway_url(
    name: str, environment: dict[str, str], run_client: RunClient, url: str
) -> None:
    finished = run_client(name, "--url", url, "--key", "k1", "--", "-p", "--model", "a b")
    assert finished.returncode == 7
    assert finished.stderr == ""
    output = json.loads(finished.stdout)
    assert output["argv"][-3:] == ["-p", "--model", "a b"]
    new = {key: value for key, value in output["env"].items() if environment.get(key) != value}
    combined = json.dumps([output["argv"], new])
    assert url in combined
    assert "large:30b" in combined
    assert "k1" in json.dumps(new)
    assert "k1" not in json.dumps(output["argv"]), "other users can see arguments"
    assert not {*RUNNABLE[name].unset} & {*output["env"]}


def test_run_with_model_and_key_passes_them_on(run_client: RunClient, url: str) -> None:
    finished = run_client("--url", url, "--model", "gpt-5", "claude", TOOLSPEAK_KEYS="k2,k3")
    env = json.loads(finished.stdout)["env"]
    assert (env["ANTHROPIC_MODEL"], env["ANTHROPIC_AUTH_TOKEN"]) == ("gpt-5", "k2")


@pytest.mark.parametrize("name", RUNNABLE)
def test_printed_command_runs_in_a_shell_and_hides_the_key(
    name: str, environment: dict[str, str], run_client: RunClient, url: str
) -> None:
    words = (name, "--url", url, "--key", "k1", "--print", "--", "-p", "it's here")
    finished = run_client(*words)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "k1" not in finished.stdout
    shell = subprocess.run(
        ["sh", "-c", finished.stdout.replace("YOUR_KEY", "k1")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    started = run_client(*(word for word in words if word != "--print"))
    shell_output, output = json.loads(shell.stdout), json.loads(started.stdout)
    assert shell_output["argv"] == output["argv"]
    same = [name for name in output["env"] if name not in ("_", "PWD", "SHLVL", "LC_CTYPE")]
    assert {key: shell_output["env"].get(key) for key in same} == {
        k: output["env"][k] for k in same
    }


def test_run_changes_no_file_of_the_user(
    environment: dict[str, str], run_client: RunClient, url: str
) -> None:
    for name in RUNNABLE:
        run_client(name, "--url", url)
    home = Path(environment["HOME"])
    files = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    created = {str(path) for path in files if path.parts[0] != "bin"}
    state = ".local/state/toolspeak"
    digest = hashlib.sha256(f"{url} large:30b".encode()).hexdigest()[:12]
    assert created == {
        f"{state}/gemini/.gemini/settings.json",
        f"{state}/qwen/{digest}/settings.json",
        f"{state}/aider/{digest}/metadata.json",
    }
    # They may contain the gateway's key.
    assert {(home / path).stat().st_mode & 0o777 for path in created} == {0o600}


CONTEXTS = {
    "claude": '"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "200000"',
    "codex": "--config=model_context_window=200000",
    "gemini": '"compressionThreshold": 0.133514',
    "opencode": '"limit": {"context": 200000, "output": 50000}',
    "qwen": '"contextWindowSize": 200000',
    "aider": '"max_input_tokens": 200000',
}


@pytest.mark.parametrize("name", RUNNABLE)
def test_client_is_told_the_context_of_the_model_if_it_is_known(name: str) -> None:
    for context in (200_000, None):
        gateway = GatewayAddress("http://127.0.0.1:7878", 'a "b"', "secret", context)
        launched = build_launch(CLIENTS[name], gateway)
        texts = [json.dumps(launched.env), *launched.env.values(), *launched.argv]
        files = [*launched.files.values(), *launched.settings.values()]
        assert any(CONTEXTS[name] in text for text in texts + files) is bool(context)
        assert "$" not in "".join(texts + files)
        # Lines that are left out leave valid JSON.
        for text in (*files, *filter(re.compile(r"\s*\{").match, launched.env.values())):
            assert json.loads(text)


TELEMETRY = {
    "claude": ['"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"'],
    "codex": ["--config=analytics.enabled=false", 'otel.metrics_exporter="none"'],
    "gemini": ['"usageStatisticsEnabled": false', '"GEMINI_TELEMETRY_ENABLED": "false"'],
    "opencode": ['"share": "disabled"', '"OPENCODE_DISABLE_MODELS_FETCH": "1"'],
    "qwen": ['"usageStatisticsEnabled": false', '"QWEN_TELEMETRY_ENABLED": "false"'],
    "aider": ["--no-analytics", "--no-check-update"],
}


@pytest.mark.parametrize("name", RUNNABLE)
def test_telemetry_of_the_client_is_switched_off(name: str) -> None:
    launched = build_launch(CLIENTS[name], GATEWAY)
    files = [*launched.files.values(), *launched.settings.values()]
    text = "\n".join([json.dumps(launched.env), *launched.env.values(), *launched.argv, *files])
    for setting in TELEMETRY[name]:
        assert setting in text


@pytest.mark.parametrize(
    ("name", "variable", "expected"),
    [
        ("claude", "CLAUDE_CODE_USE_BEDROCK", None),
        ("claude", "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST", "1"),
        ("aider", "OPENAI_API_BASE", "URL/v1"),
        ("aider", "AIDER_OPENAI_API_KEY", "k1"),
        ("aider", "AIDER_WEAK_MODEL", "openai/large:30b"),
        ("gemini", "GOOGLE_GENAI_USE_VERTEXAI", None),
        ("qwen", "OPENAI_BASE_URL", "URL/v1"),
    ],
)
def test_variable_of_the_user_that_selects_another_server_is_overridden(
    name: str, variable: str, expected: str | None, run_client: RunClient, url: str
) -> None:
    finished = run_client(name, "--url", url, "--key", "k1", **{variable: "http://127.0.0.1:9"})
    env = json.loads(finished.stdout)["env"]
    assert env.get(variable) == (expected and expected.replace("URL", url))


def test_arguments_override_files_of_aider(run_client: RunClient, url: str) -> None:
    argv = json.loads(run_client("aider", "--url", url).stdout)["argv"]
    for option, value in (
        ("--openai-api-base", f"{url}/v1"),
        ("--set-env", f"OPENAI_BASE_URL={url}/v1"),
    ):
        assert argv[argv.index(option) + 1] == value


@pytest.mark.parametrize(
    ("name", "path", "text", "is_warned"),
    [
        ("qwen", "~/.qwen/settings.json", '{"modelProviders": [{"id": "large:30b"}]}', True),
        ("qwen", "~/.qwen/settings.json", '{"modelProviders": [{"id": "other"}]}', False),
        ("qwen", ".qwen/settings.json", '{"model": {"name": "large:30b"}}', False),
        ("aider", ".env", "AIDER_OPENAI_API_KEY=x", True),
        ("aider", ".env", "OPENAI_API_KEY=x", False),
        ("claude", "~/.claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "x"}}', False),
    ],
)
def test_file_that_overrides_the_gateway_is_warned_about(
    name: str,
    path: str,
    text: str,
    is_warned: bool,
    environment: dict[str, str],
    run_client: RunClient,
    url: str,
) -> None:
    file = Path(environment["HOME"]) / path.removeprefix("~/")
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    finished = run_client(name, "--url", url)
    assert finished.returncode == 7
    assert (f"{path} overrides these settings" in finished.stderr) is is_warned, finished.stderr


def test_administrators_file_overrides_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "managed.json"
    client = structs.replace(CLIENTS["claude"], overrides={str(file): ()})
    assert [*list_overrides(client, "m")] == []
    file.write_text("{}")
    assert [*list_overrides(client, "m")] == [str(file)]


@pytest.mark.parametrize(
    "found", ['{"theme": "dark", "security": {"auth": {"selectedType": "oauth"}}}', "// {", "[]"]
)
def test_settings_that_the_client_has_changed_are_kept_except_ours(
    environment: dict[str, str], run_client: RunClient, url: str, found: str
) -> None:
    home = Path(environment["HOME"])
    settings = home / ".local/state/toolspeak/gemini/.gemini/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(found)
    run_client("gemini", "--url", url)
    written = json.loads(settings.read_text())
    assert written["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert written.get("theme") == ("dark" if "dark" in found else None)
    assert [*settings.parent.iterdir()] == [settings]


def test_print_writes_no_file(environment: dict[str, str], run_client: RunClient, url: str) -> None:
    home = Path(environment["HOME"])
    before = {*home.rglob("*")}
    for name in RUNNABLE:
        assert run_client(name, "--url", url, "--print").returncode == 0
    assert {*home.rglob("*")} == before
    # The printed line creates the settings file, unless it exists.
    line = run_client("gemini", "--url", url, "--print").stdout
    settings = home / ".local/state/toolspeak/gemini/.gemini/settings.json"
    subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False)
    assert json.loads(settings.read_text())["security"]
    settings.write_text("{}")
    subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False)
    assert settings.read_text() == "{}"


def test_signal_reaches_the_client(environment: dict[str, str], url: str) -> None:
    process = subprocess.Popen(
        [*RUN, "--url", url, "claude", "--", "wait"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert json.loads(process.stdout.readline())["argv"][-1] == "wait"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.stdout.close()


def test_model_with_small_context_is_warned_about(run_client: RunClient, url: str) -> None:
    finished = run_client("claude", "--url", url, "--model", "small")
    assert finished.returncode == 7
    assert (
        "sends about 29000 tokens in its first request, but small has a context of 8192"
        in finished.stderr
    )


# Errors.


def test_missing_gateway_is_an_error(run_client: RunClient) -> None:
    output = read_error(run_client("claude", "--url", "http://127.0.0.1:9"))
    assert "no gateway responds at http://127.0.0.1:9" in output
    assert "`toolspeak serve`" in output


@pytest.mark.parametrize(
    "address",
    ["nonsense", "file:///etc", "http://", "http://127.0.0.1:abc", "http://[", "http://h:1/\n"],
)
def test_invalid_url_is_an_error(run_client: RunClient, address: str) -> None:
    assert "Expected a URL such as" in read_error(run_client("claude", "--url", address))


def test_url_of_an_api_is_an_error(run_client: RunClient, url: str) -> None:
    output = read_error(run_client("claude", "--url", f"{url}/v1"))
    assert f"{url}/v1/v1/models returned 404" in output


OTHERS = [
    # llama.cpp's server.
    {"models": [{"name": "qwen3", "model": "qwen3"}], "data": [{"id": "qwen3"}]},
    {"data": []},
    {"models": {}},
    {"models": [{"slug": "a", "context_window": "large"}]},
    [],
]


@pytest.mark.parametrize("listed", OTHERS, ids=str)
def test_server_of_another_kind_is_an_error(run_client: RunClient, listed: Any) -> None:
    with serve_json({"/v1/models": listed}) as address:
        output = read_error(run_client("claude", "--url", address))
    assert output == f"toolspeak: the server at {address} is not a Toolspeak gateway: check --url\n"


@pytest.mark.parametrize("model", ["a\nb", "\x1b[2J", "--yolo", "a\x7f", "\u202eb"])
def test_unsafe_model_name_is_an_error(run_client: RunClient, url: str, model: str) -> None:
    for more in ([], ["--print"]):
        output = read_error(run_client("claude", "--url", url, f"--model={model}", *more))
        assert f"the model name {model!r} begins with `-` or is not printable" in output


def test_missing_home_is_an_error_only_for_clients_with_files(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user id without an account has no home folder."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    words = ["--url", "http://127.0.0.1:9", "--model", "m", "--print"]
    assert main(["run", "claude", *words]) == 0
    for name in ("gemini", "qwen", "aider"):
        assert main(["run", name, *words]) == 2


def test_run_skips_gateways_that_were_killed(
    environment: dict[str, str], run_client: RunClient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id belongs to another process by now."""
    folder = Path(environment["HOME"]) / ".local/state/toolspeak/gateways"
    folder.mkdir(parents=True)
    with serve_json({}) as other:
        for age, address in enumerate((other, "http://127.0.0.1:9", url)):
            path = folder / f"{age}.json"
            path.write_text(json.dumps({"url": address, "process": os.getpid()}))
            os.utime(path, (1000 - age, 1000 - age))
        finished = run_client("claude")
    assert finished.returncode == 7, finished.stderr
    assert json.loads(finished.stdout)["env"]["ANTHROPIC_BASE_URL"] == url


def test_wrong_key_is_an_error(run_client: RunClient) -> None:
    locked = Config(
        default="large:30b",
        upstreams={"upstream": UPSTREAM},
        models=MODELS,
        server=ServerSettings(keys=("right",)),
    )
    with run_gateway(locked) as gateway:
        for key in ([], ["--key", "wrong"]):
            output = read_error(run_client("claude", "--url", gateway.url, *key))
            assert "rejected the key: set --key or TOOLSPEAK_KEYS" in output
        assert run_client("claude", "--url", gateway.url, "--key", "right").returncode == 7


def test_gateway_without_models_is_an_error(run_client: RunClient) -> None:
    with run_gateway(Config()) as gateway:
        assert "has no model" in read_error(run_client("claude", "--url", gateway.url))


@pytest.mark.parametrize("name", RUNNABLE)
def test_missing_program_is_an_error(name: str, run_client: RunClient, url: str) -> None:
    output = read_error(run_client(name, "--url", url, PATH="/nowhere"))
    program, install = RUNNABLE[name].program, RUNNABLE[name].install
    assert output == f"toolspeak: `{program}` is not installed: {install}\n"


def test_client_arguments_without_dashes_are_an_error(run_client: RunClient) -> None:
    output = read_error(run_client("claude", "-p", "hi"))
    assert "after --: toolspeak run claude -- -p hi" in output


def test_unknown_client_is_an_error(run_client: RunClient) -> None:
    assert "unknown client 'cursor': choose from claude, codex" in read_error(run_client("cursor"))


# The clients' settings.


def test_codex_options_equal_its_file() -> None:
    """Only the key differs, which is in an environment variable, and what `run` adds."""
    client = CLIENTS["codex"]
    assert client.file
    [file] = build_snippets(client, GATEWAY)
    written = tomllib.loads(file.text)
    headers = written["model_providers"]["toolspeak"].pop("http_headers")
    assert headers == {"Authorization": "Bearer secret"}
    settings = read_codex_settings(build_launch(client, GATEWAY).argv[1:])
    assert {key: settings[key] for key in written} == written


def read_codex_settings(args: Sequence[str]) -> dict[str, Any]:
    """Return the settings that Codex's options make, without the variable of the key."""
    output: dict[str, Any] = {}
    assert {*args[:-1:2]} >= {"-c"}
    for setting in (arg.removeprefix("--config=") for arg in args if arg != "-c"):
        *path, last = setting.partition("=")[0].split(".")
        at = output
        for key in path:
            at = at.setdefault(key, {})
        at[last] = tomllib.loads(f"a={setting.partition('=')[2]}")["a"]
    assert output["model_providers"]["toolspeak"].pop("env_key") == "GATEWAY_KEY"
    return output


UNUSUAL_NAMES = [
    'a"b',
    "a\\",
    "a\\b c",
    "it's",
    "a\nb\tc\r\x00\x1f\x7f",
    "größe 😀",
    "$key ${url} $$",
    'm", "ANTHROPIC_AUTH_TOKEN": "x',
    'm"\napproval_policy="never',
]


@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_model_name_is_escaped_in_every_format(name: str) -> None:
    gateway = GatewayAddress("http://127.0.0.1:7878", name, 'k"1')
    env = build_launch(CLIENTS["claude"], gateway).env
    models = [env[key] for key in env if key.endswith("_MODEL")]
    assert (len(models), {*models}) == (4, {name})
    provider = {"name": "toolspeak", "base_url": f"{gateway.url}/v1", "wire_api": "responses"}
    settings = read_codex_settings(build_launch(CLIENTS["codex"], gateway).argv[1:])
    assert {key: settings[key] for key in ("model", "model_provider", "model_providers")} == {
        "model": name,
        "model_provider": "toolspeak",
        "model_providers": {"toolspeak": provider},
    }
    content = json.loads(build_launch(CLIENTS["opencode"], gateway).env["OPENCODE_CONFIG_CONTENT"])
    assert [*content["provider"]["toolspeak"]["models"]] == [name]
    assert content["agent"]["build"]["model"] == f"toolspeak/{name}"
    aider = build_launch(CLIENTS["aider"], gateway)
    assert [[*json.loads(text)] for text in aider.files.values()] == [[f"openai/{name}"]]
    assert aider.env["AIDER_WEAK_MODEL"] == f"openai/{name}"
    [file] = build_snippets(CLIENTS["codex"], gateway)
    assert tomllib.loads(file.text)["model"] == name
    lines = [one.text for one in build_snippets(CLIENTS["llm"], gateway) if one.language == "yaml"]
    assert yaml.safe_load(lines[0])[0]["model_name"] == name


NO_MODEL = {"open-webui", "openai-sdk", "anthropic-sdk", "ollama-sdk", "gemini-sdk"}
"""They ask the user for a model, or the program names one in each request."""


@pytest.mark.parametrize("name", CLIENTS)
def test_snippets_of_every_client_are_valid(name: str) -> None:
    gateway = GatewayAddress("http://127.0.0.1:7878", 'a "b" $c', "secret")
    output = [*build_snippets(CLIENTS[name], gateway)]
    assert gateway.url in "".join(one.text for one in output)
    for one in output:
        match one.language:
            case "json":
                assert json.loads(one.text)
            case "toml":
                assert tomllib.loads(one.text)["model"] == gateway.model
            case "yaml":
                assert yaml.safe_load(one.text)[0]["model_name"] == gateway.model
            case "sh":
                assert shlex.split(one.text)
            case "python":
                compile(one.text, name, "exec")
            case _:
                assert one.language == "js"
    models = [word for one in output for word in re.findall(r"a .{0,2}b.{0,2} \$c", one.text)]
    assert models or name in NO_MODEL
