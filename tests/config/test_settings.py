"""Settings in outputs without secrets, in the docs, and in `toolspeak check`."""

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
    load_everything,
    load_invalid,
    load_text,
)
from toolspeak.cli import main
from toolspeak.config.loading import VARIABLES, load_config
from toolspeak.config.providers import PROVIDERS
from toolspeak.config.settings import (
    Config,
    InspectorSettings,
    Limits,
    ModelLocation,
    ModelSettings,
    ServerSettings,
    StoreLimits,
    TelemetrySettings,
    UpstreamSettings,
    find_model_or_default,
    mask_settings,
)
from toolspeak.upstream import discovery
from toolspeak.upstream.catalog import DiscoveredServer

DOCS = (Path(__file__).parents[2] / "docs" / "config.md").read_text()


def test_settings_in_any_output_show_no_secret(capsys: Any) -> None:
    config = load_everything()
    outputs = [repr(config), str(config), f"{config!r}", pretty_repr(config)]
    outputs += [repr(config.server), repr(config.upstreams), str(mask_settings(config))]
    outputs += [pretty_repr(config.upstreams["u"]), json.dumps(mask_settings(config))]
    for arguments in (["--json"], []):
        assert main(["check", "--config", "a.toml", *arguments]) == 0
        outputs += capsys.readouterr()
    broken = EVERYTHING.replace("fallbacks = ['v']", "") + '\n[upstreams.w]\nkey = "hunter2"\n'
    outputs += [str(load_invalid(broken)), *load_invalid(broken).warnings]
    for text in outputs:
        assert not any(secret in text for secret in SECRETS), text


def test_mask_settings_keeps_the_end_of_long_secrets() -> None:
    shown = mask_settings(load_everything())
    assert shown["server"]["keys"] == ["••••89"]
    assert shown["server"]["admin_key"] == "••••89"
    assert shown["store"] == "redis://••••@localhost:6379/0"
    upstream = shown["upstreams"]["u"]
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
def test_problems_contain_no_secret(name: str, text: str) -> None:
    error = load_invalid(text, name=name)
    assert error.problems
    assert "hunter2" not in str(error) + repr(error)


# The page, and the command.


def test_docs_example_loads_without_warnings() -> None:
    [example] = re.findall(r"```toml\n(.*?)```", DOCS, re.S)
    result = load_text(example)
    assert result.warnings == ()
    target = find_model_or_default(result.config, "gpt-4o")
    assert target
    assert target.locations == (
        ModelLocation("box", "qwen3:8b"),
        ModelLocation("router", "qwen/qwen3-8b"),
    )
    assert find_model_or_default(result.config, "office/phi-4") == find_model_or_default(
        result.config, "gpt-5"
    )


def test_docs_list_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", DOCS, re.M))
    kinds = {"": Config, "server.": ServerSettings, "limits.": Limits}
    kinds |= {"inspector.": InspectorSettings, "telemetry.": TelemetrySettings}
    kinds |= {"store_limits.": StoreLimits}
    kinds |= {"upstreams.NAME.": UpstreamSettings, "models.NAME.": ModelSettings}
    expected = {
        prefix + field.name: format_default(field)
        for prefix, kind in kinds.items()
        for field in fields(kind)
        if f"{prefix}{field.name}." not in kinds
    }
    expected |= {name: f"`{setting}`" for name, (setting, _) in VARIABLES.items()}
    expected["TOOLSPEAK_KEYS"] += ", separated by commas"
    assert rows == expected


def format_default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    empty = field.default is msgspec.NODEFAULT
    value = field.default_factory() if callable(field.default_factory) and empty else field.default
    return "not set" if value is None else f"`{json.dumps(value)}`"


def test_check_shows_the_configuration_without_connecting(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_connection(*_: object, **__: object) -> None:
        raise AssertionError("`check` opens a connection")

    monkeypatch.setattr(socket, "socket", refuse_connection)
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    Path("toolspeak.toml").write_text(EVERYTHING + "[upstreams.bare]\nprovider = 'groq'\n")
    Path("model.gguf").write_bytes(b"GGUF")
    assert main(["check", "--offline"]) == 0
    out, err = capsys.readouterr()
    for fragment in ("openai_responses", "http://••••@127.0.0.1:8000/v1", "hermes", "u: o", "v: o"):
        assert fragment in out
    assert "::1, port 8001, 1 client key" in out
    assert "warning: toolspeak.toml: Groq needs a key: set `key` or GROQ_API_KEY" in err
    assert main(["check", "--offline", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    fields = ["ok", "problems", "warnings", "config", "models", "default", "providers"]
    assert list(shown) == fields
    assert shown["ok"] is True
    assert shown["problems"] == []
    assert len(shown["warnings"]) == 1
    assert shown["config"] == mask_settings(load_config(None, {}))


def test_check_lists_models_of_this_machine_and_providers_with_keys(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def discover(_: Config) -> tuple[DiscoveredServer, ...]:
        upstream = UpstreamSettings("ollama", base_url="http://127.0.0.1:11434")
        return (DiscoveredServer("ollama", upstream, ("qwen3:8b", "phi4")),)

    monkeypatch.setattr(discovery, "discover_servers", discover)
    for provider in PROVIDERS.values():
        for variable in provider.key_variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "gsk_secret")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-secret")
    Path("toolspeak.toml").write_text("[upstreams.deepseek]\nprovider = 'deepseek'\n")
    Path("my-model.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("TOOLSPEAK_GGUF", "my-model.gguf")
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    models = ["ollama/qwen3:8b", "ollama/phi4", "embedded/my-model"]
    for fragment in (*models, "http://127.0.0.1:11434", "groq/…", "GROQ_API_KEY"):
        assert fragment in out
    # The upstream of that name has its own row.
    assert "deepseek/…" not in out
    assert "secret" not in out
    assert re.search(r"default model\s+ollama/qwen3:8b", out)
    assert main(["check", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["models"], shown["default"]) == (models, models[0])
    assert shown["providers"] == {"groq": "GROQ_API_KEY"}


def test_check_of_invalid_file_lists_its_problems(capsys: Any) -> None:
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
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"] is False
    assert len(shown["problems"]) == 2
    assert shown["config"] is None


def test_check_without_a_file_shows_defaults(capsys: Any) -> None:
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "defaults (no file)" in out
    assert "embedded/SmolLM2" in out
    Path("toolspeak.toml").write_text("embedded = false")
    assert main(["check"]) == 0
    assert "embedded/" not in capsys.readouterr().out
    assert main(["check", "--config", "nowhere.toml"]) == 1
    assert "nowhere.toml cannot be read" in capsys.readouterr().err
