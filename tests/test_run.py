"""`toolspeak run`, with programs in place of the clients that tell what they were started with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.support import running
from toolspeak.cli.run import RUNNABLE
from toolspeak.clients import CLIENTS, Gateway, launch, snippets
from toolspeak.gateway.settings import Config, Model, Server, Upstream

RUN = [sys.executable, "-m", "toolspeak", "run"]
FAKE = f"""#!{sys.executable}
import json, os, sys, time
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}), flush=True)
if "wait" in sys.argv:
    time.sleep(60)
sys.exit(7)
"""
GATEWAY = Gateway("http://127.0.0.1:7878", "qwen3", "secret")
FAR = Upstream(wire="openai_chat", base_url="http://127.0.0.1:9/v1")
MODELS = {"small": Model("far", context=8192), "large:30b": Model("far", context=200_000)}
CONFIG = Config(default="large:30b", upstreams={"far": FAR}, models=MODELS)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(CONFIG) as gateway:
        yield gateway.url


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine that has every client, and a user who uses them with others too."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for client in RUNNABLE.values():
        (programs / client.program).write_text(FAKE)
        (programs / client.program).chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "ANTHROPIC_API_KEY": "the user's own",
        "GOOGLE_API_KEY": "the user's own",
    }


def ran(environment: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *words],
        env={**environment, **more},
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        timeout=30,
    )


def refused(environment: dict[str, str], *words: str, **more: str) -> str:
    done = ran(environment, *words, **more)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_client_is_told_where_the_gateway_is(
    name: str, environment: dict[str, str], url: str
) -> None:
    done = ran(environment, name, "--url", url, "--key", "k1", "--", "-p", "--model", "a b")
    assert done.returncode == 7
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["argv"][-3:] == ["-p", "--model", "a b"]
    new = {key: value for key, value in told["env"].items() if environment.get(key) != value}
    said = json.dumps([told["argv"], new])
    assert url in said
    assert "large:30b" in said
    assert "k1" in json.dumps(new)
    assert "k1" not in json.dumps(told["argv"]), "everybody could see it"
    assert not {*RUNNABLE[name].unset} & {*told["env"]}


def test_the_model_and_the_key_may_be_said(environment: dict[str, str], url: str) -> None:
    done = ran(environment, "--url", url, "--model", "gpt-5", "claude", TOOLSPEAK_KEYS="k2,k3")
    env = json.loads(done.stdout)["env"]
    assert (env["ANTHROPIC_MODEL"], env["ANTHROPIC_AUTH_TOKEN"]) == ("gpt-5", "k2")


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_is_printed_can_be_pasted_and_holds_no_key(
    name: str, environment: dict[str, str], url: str
) -> None:
    words = (name, "--url", url, "--key", "k1", "--print", "--", "-p", "it's here")
    done = ran(environment, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "k1" not in done.stdout
    pasted = subprocess.run(
        ["sh", "-c", done.stdout.replace("YOUR_KEY", "k1")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    started = ran(environment, *(word for word in words if word != "--print"))
    pasted_told, told = json.loads(pasted.stdout), json.loads(started.stdout)
    assert pasted_told["argv"] == told["argv"]
    same = [name for name in told["env"] if name not in ("_", "PWD", "SHLVL", "LC_CTYPE")]
    assert {key: pasted_told["env"].get(key) for key in same} == {k: told["env"][k] for k in same}


def test_nothing_of_the_users_is_touched(environment: dict[str, str], url: str) -> None:
    for name in RUNNABLE:
        ran(environment, name, "--url", url)
    home = Path(environment["HOME"])
    files = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    made = {str(path) for path in files if path.parts[0] != "bin"}
    assert made == {".local/state/toolspeak/gemini/.gemini/settings.json"}


def test_a_signal_ends_the_client(environment: dict[str, str], url: str) -> None:
    process = subprocess.Popen(
        [*RUN, "--url", url, "claude", "--", "wait"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert json.loads(process.stdout.readline())["argv"][-1] == "wait"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    process.stdout.close()


def test_a_model_that_is_too_small_for_a_client(environment: dict[str, str], url: str) -> None:
    done = ran(environment, "claude", "--url", url, "--model", "small")
    assert done.returncode == 7
    assert "begins with about 29000 tokens, and small takes 8192" in done.stderr


# What cannot be done.


def test_no_gateway(environment: dict[str, str]) -> None:
    told = refused(environment, "claude", "--url", "http://127.0.0.1:9")
    assert "nothing answers at http://127.0.0.1:9" in told
    assert "`toolspeak serve`" in told


@pytest.mark.parametrize("address", ["nonsense", "file:///etc", "http://"])
def test_no_address(environment: dict[str, str], address: str) -> None:
    assert "Expected an address such as" in refused(environment, "claude", "--url", address)


def test_something_else_that_answers(environment: dict[str, str], url: str) -> None:
    told = refused(environment, "claude", "--url", f"{url}/v1")
    assert f"{url}/v1/health says 404" in told


def test_a_key_that_is_wrong(environment: dict[str, str]) -> None:
    locked = Config(
        default="large:30b", upstreams={"far": FAR}, models=MODELS, server=Server(keys=("right",))
    )
    with running(locked) as gateway:
        for key in ([], ["--key", "wrong"]):
            told = refused(environment, "claude", "--url", gateway.url, *key)
            assert "wants a key that it knows: --key, or TOOLSPEAK_KEYS" in told
        assert ran(environment, "claude", "--url", gateway.url, "--key", "right").returncode == 7


def test_no_model(environment: dict[str, str]) -> None:
    with running(Config()) as gateway:
        assert "has no model" in refused(environment, "claude", "--url", gateway.url)


@pytest.mark.parametrize("name", RUNNABLE)
def test_no_program(name: str, environment: dict[str, str], url: str) -> None:
    told = refused(environment, name, "--url", url, PATH="/nowhere")
    program, install = RUNNABLE[name].program, RUNNABLE[name].install
    assert told == f"toolspeak: there is no program `{program}` here: {install}\n"


def test_words_for_the_client_that_stand_before_the_dashes(environment: dict[str, str]) -> None:
    told = refused(environment, "claude", "-p", "hi")
    assert "goes behind --: toolspeak run claude -- -p hi" in told


def test_a_client_that_is_not_known(environment: dict[str, str]) -> None:
    assert "there is no client 'cursor'; there are claude, codex" in refused(environment, "cursor")


# The table.


def test_codex_is_told_the_same_as_in_its_file() -> None:
    """But for the key, which is in a variable."""
    client = CLIENTS["codex"]
    assert client.file
    [file] = snippets(client, GATEWAY)
    written = tomllib.loads(file.text)
    headers = written["model_providers"]["toolspeak"].pop("http_headers")
    assert headers == {"Authorization": "Bearer secret"}
    args = launch(client, GATEWAY).argv[1:]
    told: dict[str, Any] = {}
    for option, setting in zip(args[::2], args[1::2], strict=True):
        assert option == "-c"
        *path, last = setting.partition("=")[0].split(".")
        at = told
        for key in path:
            at = at.setdefault(key, {})
        at[last] = tomllib.loads(f"a={setting.partition('=')[2]}")["a"]
    assert told["model_providers"]["toolspeak"].pop("env_key") == "GATEWAY_KEY"
    assert told == written


NO_MODEL = {"open-webui", "openai-sdk", "anthropic-sdk", "ollama-sdk", "gemini-sdk"}
"""They ask for one, or the program says it with each request."""


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_can_be_told(name: str) -> None:
    odd = Gateway("http://127.0.0.1:7878", 'a "b" $c', "secret")
    told = [*snippets(CLIENTS[name], odd)]
    assert odd.url in "".join(one.text for one in told)
    for one in told:
        match one.language:
            case "json":
                assert json.loads(one.text)
            case "toml":
                assert tomllib.loads(one.text)["model"] == odd.model
            case "yaml":
                assert yaml.safe_load(one.text)[0]["model_name"] == odd.model
            case "sh":
                assert shlex.split(one.text)
            case "python":
                compile(one.text, name, "exec")
            case _:
                assert one.language == "js"
    models = [word for one in told for word in re.findall(r"a .{0,2}b.{0,2} \$c", one.text)]
    assert models or name in NO_MODEL
