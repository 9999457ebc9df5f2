"""Settings as people meet them: without secrets, on the page, and by `toolspeak check`."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields
from rich.pretty import pretty_repr

from tests.config.config_files import (
    EVERYTHING,
    SECRETS,
    go_apart,
    load_everything,
    loaded,
    refused,
)
from toolspeak.cli import main
from toolspeak.config.loading import VARIABLES, load_config
from toolspeak.config.settings import (
    Config,
    InspectorSettings,
    Limits,
    ModelLocation,
    ModelSettings,
    ServerSettings,
    TelemetrySettings,
    UpstreamSettings,
    find_model,
    mask_settings,
)

DOCS = (Path(__file__).parents[2] / "docs" / "config.md").read_text()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_apart(tmp_path, monkeypatch)


def test_secrets_are_not_shown(capsys: Any) -> None:
    config = load_everything()
    everywhere = [repr(config), str(config), f"{config!r}", pretty_repr(config)]
    everywhere += [repr(config.server), repr(config.upstreams), str(mask_settings(config))]
    everywhere += [pretty_repr(config.upstreams["u"]), json.dumps(mask_settings(config))]
    for arguments in (["--json"], []):
        assert main(["check", "--config", "a.toml", *arguments]) == 0
        everywhere += capsys.readouterr()
    broken = EVERYTHING.replace("fallbacks = ['v']", "") + '\n[upstreams.w]\nkey = "hunter2"\n'
    everywhere += [str(refused(broken)), *refused(broken).warnings]
    for text in everywhere:
        assert not any(secret in text for secret in SECRETS), text


def test_how_secrets_are_shown() -> None:
    told = mask_settings(load_everything())
    assert told["server"]["keys"] == ["••••89"]
    assert told["server"]["admin_key"] == "••••89"
    assert told["store"] == "redis://••••@localhost:6379/0"
    upstream = told["upstreams"]["u"]
    assert upstream["key"] == "••••89"
    assert upstream["base_url"] == "http://••••@127.0.0.1:8000/v1"
    assert upstream["headers"] == {"Authorization": "••••r2", "X-Title": "Title"}
    short = UpstreamSettings(key="twelve-chars", base_url="name:p@ss/w?key=x")
    assert mask_settings(short)["key"] == "••••"
    assert mask_settings(short)["base_url"] == "••••@ss/w?••••"
    assert mask_settings(UpstreamSettings())["key"] == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", 'key = "hunter2\nb = 1'),
        ("a.toml", "key = hunter2"),
        ("a.toml", "[upstreams.a]\nkey = 'hunter2 hunter2'\nprovider = 'ollama'"),
        ("a.toml", "[upstreams.a]\nkey = ['hunter2']"),
        ("a.toml", "store = 'postgres://hunter2@h'"),
        ("a.yaml", "model_list:\n  - api_key: [hunter2"),
        ("a.yaml", "model_list:\n  - api_key: *hunter2"),
        ("a.yaml", "model_list:\n  - api_key: !hunter2"),
        ("a.yaml", "model_list:\n  - {model_name: 1, litellm_params: {api_key: hunter2}}"),
    ],
)
def test_problems_tell_no_secret(name: str, text: str) -> None:
    error = refused(text, name=name)
    assert error.problems
    assert "hunter2" not in str(error) + repr(error)


# The page, and the command.


def test_the_example_on_the_page_loads() -> None:
    [example] = re.findall(r"```toml\n(.*?)```", DOCS, re.S)
    result = loaded(example)
    assert result.warnings == ()
    target = find_model(result.config, "gpt-4o")
    assert target
    assert target.locations == (
        ModelLocation("box", "qwen3:8b"),
        ModelLocation("router", "qwen/qwen3-8b"),
    )
    assert find_model(result.config, "office/phi-4") == find_model(result.config, "gpt-5")


def test_the_page_has_every_setting_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", DOCS, re.M))
    kinds = {"": Config, "server.": ServerSettings, "limits.": Limits}
    kinds |= {"inspector.": InspectorSettings, "telemetry.": TelemetrySettings}
    kinds |= {"upstreams.NAME.": UpstreamSettings, "models.NAME.": ModelSettings}
    expected = {
        prefix + field.name: _default(field)
        for prefix, kind in kinds.items()
        for field in fields(kind)
        if f"{prefix}{field.name}." not in kinds
    }
    expected |= {name: f"`{setting}`" for name, (setting, _) in VARIABLES.items()}
    expected["TOOLSPEAK_KEYS"] += ", separated by commas"
    assert rows == expected


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    empty = field.default is msgspec.NODEFAULT
    value = field.default_factory() if callable(field.default_factory) and empty else field.default
    return "not set" if value is None else f"`{json.dumps(value)}`"


def test_check(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError("check asks somebody")

    monkeypatch.setattr(socket, "socket", nobody)
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    Path("toolspeak.toml").write_text(EVERYTHING + "[upstreams.bare]\nprovider = 'groq'\n")
    assert main(["check"]) == 0
    out, err = capsys.readouterr()
    for fragment in ("openai_responses", "http://••••@127.0.0.1:8000/v1", "hermes", "u: o", "v: o"):
        assert fragment in out
    assert "::1, port 8001, 1 client key" in out
    assert "warning: toolspeak.toml: Groq needs a key: set `key` or GROQ_API_KEY" in err
    assert main(["check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["ok", "problems", "warnings", "config"]
    assert told["ok"] is True
    assert told["problems"] == []
    assert len(told["warnings"]) == 1
    assert told["config"] == mask_settings(load_config(None, {}))


def test_check_of_a_bad_file(capsys: Any) -> None:
    Path("bad.toml").write_text("[server]\nprot = 1\nport = 'x'\n")
    assert main(["check", "--config", "bad.toml"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "toolspeak: bad.toml: Expected `int`, got `str` - at `$.server.port`",
        "toolspeak: bad.toml: `prot` is not a known setting; did you mean port? "
        "- at `$.server.prot`",
    ]
    assert main(["check", "--config", "bad.toml", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert len(told["problems"]) == 2
    assert told["config"] is None


def test_check_of_nothing(capsys: Any) -> None:
    assert main(["check"]) == 0
    assert "defaults (no file)" in capsys.readouterr().out
    assert main(["check", "--config", "nowhere.toml"]) == 1
    assert "nowhere.toml cannot be read" in capsys.readouterr().err
