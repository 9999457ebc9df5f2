"""Reading configurations: which file, providers, environment variables, and the models of names."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import fields

from tests.config.config_files import (
    BOX,
    EVERYTHING,
    QWEN,
    load_everything,
    load_text,
)
from toolspeak.config.loading import VARIABLES, load_config
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
)


def test_load_config_without_a_file_gives_defaults() -> None:
    assert load_config(None, {}) == Config()


def test_load_config_prefers_the_file_of_the_directory(tmp_path: Path) -> None:
    Path("other.toml").write_text('default = "*"\n[models."*"]\nupstream = "box"\n' + BOX)
    environ = {"TOOLSPEAK_CONFIG": str(tmp_path / "other.toml")}
    assert load_config(None, environ).default == "*"
    Path("toolspeak.toml").write_text("[server]\nport = 1\n")
    assert load_config(None, environ).server.port == 1
    assert load_config(Path("other.toml"), {}).default == "*"


def test_read_config_with_every_field_sets_them_all() -> None:
    config = load_everything()
    document = tomllib.loads(EVERYTHING)
    plain = json.loads(msgspec.json.encode(config))
    document["upstreams"]["v"] = plain["upstreams"]["v"]
    assert plain == document
    assert msgspec.convert(plain, Config) == config
    kinds = {
        "server": ServerSettings,
        "limits": Limits,
        "inspector": InspectorSettings,
        "store_limits": StoreLimits,
        "telemetry": TelemetrySettings,
    }
    for kind, table in (
        (Config, document),
        *((kind, document[name]) for name, kind in kinds.items()),
    ):
        assert set(table) == {field.name for field in fields(kind)}
    assert set(document["upstreams"]["u"]) == {field.name for field in fields(UpstreamSettings)}
    assert set(document["models"]["m"]) == {field.name for field in fields(ModelSettings)}


def test_provider_fills_in_missing_fields() -> None:
    text = '[upstreams.a]\nprovider = "openrouter"\nheaders = { X-Title = "Mine" }\n'
    upstream = load_text(text, {"OPENROUTER_API_KEY": "sk-or"}).config.upstreams["a"]
    assert (upstream.wire, upstream.key) == ("openai_chat", "sk-or")
    assert upstream.base_url == "https://openrouter.ai/api/v1"
    assert upstream.headers["X-Title"] == "Mine"
    assert "HTTP-Referer" in upstream.headers
    assert upstream.idle_timeout == 300.0


def test_provider_key_for_another_server_is_not_used() -> None:
    text = '[upstreams.a]\nprovider = "openai"\nbase_url = "https://api.example.org/v1/"\n'
    result = load_text(text, {"OPENAI_API_KEY": "sk-1"})
    assert result.config.upstreams["a"].key == ""
    assert result.config.upstreams["a"].base_url == "https://api.example.org/v1"
    assert any("OPENAI_API_KEY is not sent there" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneytwoz"),
        ("${C:-three}", "three"),
        ("${EMPTY:-three}", "three"),
        ("${EMPTY}", ""),
        ("${A:-three}", "one"),
        ("${C:-}", ""),
        ("$${A}", "${A}"),
        ("$A $ {A}", "$A $ {A}"),
        ("${SIGNS}", "${A} $${A}"),
    ],
)
def test_variables_in_strings_are_expanded(text: str, expected: str) -> None:
    environ = {"A": "one", "B": "two", "EMPTY": "", "SIGNS": "${A} $${A}"}
    assert load_text(f"embedded = false\ngguf = '{text}'", environ).config.gguf == expected


def test_environment_variables_override_the_file() -> None:
    environ = {
        "TOOLSPEAK_HOST": "0.0.0.0",
        "TOOLSPEAK_PORT": "9000",
        "TOOLSPEAK_WORKERS": "3",
        "TOOLSPEAK_KEYS": "first-key, ${second}",
        "TOOLSPEAK_ADMIN_KEY": "boss",
        "TOOLSPEAK_STORE": "redis://localhost",
        "TOOLSPEAK_DEFAULT": "qwen",
        "TOOLSPEAK_GGUF": "$${a}.gguf",
        "TOOLSPEAK_LOG_FORMAT": "json",
        "TOOLSPEAK_OTLP_ENDPOINT": "http://127.0.0.1:4318",
    }
    assert set(environ) == set(VARIABLES)
    config = load_text(
        "embedded = false\n[server]\nport = 1\nadmin_key = '${UNSET}'\n" + QWEN, environ
    ).config
    assert config.server == ServerSettings(
        host="0.0.0.0",
        port=9000,
        workers=3,
        keys=("first-key", "${second}"),
        admin_key="boss",
        log_format="json",
    )
    assert config.telemetry == TelemetrySettings("http://127.0.0.1:4318")
    assert (config.store, config.default) == ("redis://localhost", "qwen")
    assert config.gguf == "$${a}.gguf"
    nothing = dict.fromkeys(environ, "")
    assert load_text("[server]\nport = 1\n", nothing).config.server.port == 1


# Names.


NAMES = (
    BOX
    + """
    [models.exact]
    upstream = "box"
    model = "there"
    [models."claude-*"]
    upstream = "box"
    [models."claude-opus-*"]
    upstream = "box"
    model = "opus:*"
    [models."*-mini"]
    upstream = "box"
    [aliases]
    "gpt-*" = "claude-x"
    "gpt-4o" = "exact"
    "chain" = "gpt-4o"
    """
)


@pytest.mark.parametrize(
    ("requested", "name", "upstream_model"),
    [
        ("exact", "exact", "there"),
        ("claude-3", "claude-*", "claude-3"),
        ("claude-opus-4", "claude-opus-*", "opus:4"),
        ("o4-mini", "*-mini", "o4-mini"),
        ("gpt-5", "claude-*", "claude-x"),
        ("gpt-4o", "exact", "there"),
        ("chain", "exact", "there"),
        ("-min", None, ""),
        ("unknown", None, ""),
        ("box", None, ""),
        ("box/", None, ""),
        ("", None, ""),
    ],
)
def test_find_model_by_name_alias_or_wildcard_finds_the_best_match(
    requested: str, name: str | None, upstream_model: str
) -> None:
    config = load_text(NAMES).config
    target = find_model_or_default(config, requested)
    assert (target and target.name) == name
    if target:
        assert target.locations == (ModelLocation("box", upstream_model),)
    else:
        default = find_model_or_default(msgspec.structs.replace(config, default="chain"), requested)
        assert default == find_model_or_default(config, "exact")


def test_find_model_with_fallbacks_uses_their_model_names() -> None:
    names = {"a": ["b", "c"], "b": ["d"], "c": ["a"]}
    text = "".join(
        f"[upstreams.{name}]\nprovider = 'ollama'\nfallbacks = {others}\n"
        for name, others in names.items()
    )
    text += "[upstreams.d]\nprovider = 'ollama'\nmodel = 'dd'\n"
    text += "[models.m]\nupstream = 'a'\n[models.n]\nupstream = 'b'\nmodel = 'nn'\n"
    config = load_text(text + "[models.o]\nupstream = 'd'\n").config
    for requested, attempts in {
        "m": (("a", "m"), ("b", "m"), ("c", "m")),
        "n": (("b", "nn"), ("d", "dd")),
        "o": (("d", "dd"),),
        "b/x/y": (("b", "x/y"), ("d", "dd")),
        "d/x": (("d", "x"),),
    }.items():
        target = find_model_or_default(config, requested)
        assert target
        assert [(one.upstream, one.model) for one in target.locations] == list(attempts)


@pytest.mark.parametrize("name", ["box/any", "ollama/qwen3:8b", "embedded/x", "qwen", "a"])
def test_default_may_name_any_kind_of_model(name: str) -> None:
    text = f"default = '{name}'\n{QWEN}\n[aliases]\na = 'box/other'\n"
    assert load_text(text).config.default == name


def test_alias_for_everything_leads_to_its_target() -> None:
    config = load_text(QWEN + "[aliases]\n'*' = 'box/other'\n").config
    for requested, model in {"anything": "other", "": "other", "qwen": "qwen"}.items():
        target = find_model_or_default(config, requested)
        assert target
        assert target.locations == (ModelLocation("box", model),)
