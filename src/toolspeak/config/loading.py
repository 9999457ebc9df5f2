"""Reads the gateway's configuration: a TOML file or LiteLLM's YAML, overridden by the environment,
which options of the command line override.

    config = load_config(Path("toolspeak.toml"), os.environ)

A `ConfigError` lists all problems of a file at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct
from msgspec.structs import replace

from .checks import find_problems, find_warnings
from .document import ConfigDocument, ConfigError, escape_variables, suggest_names
from .litellm import read_litellm
from .providers import PROVIDERS, Provider
from .settings import Config, UpstreamSettings

DEFAULT_FILE = "toolspeak.toml"
_LITELLM = re.compile(r"^model_list\s*:", re.M)
_TOML_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_QUOTED = re.compile(r"'(?!<)[^']{2,}'")


class LoadedConfig(Struct, frozen=True):
    """A valid configuration, and warnings about it."""

    config: Config
    warnings: tuple[str, ...] = ()
    source: str = ""
    """The file; empty if there is none."""


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Return the configuration of a file, or of this directory and the environment."""
    return read_config(path, environ).config


def read_config(
    path: Path | None,
    environ: Mapping[str, str],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> LoadedConfig:
    """Return the configuration of a file together with warnings. `options` are names of `OPTIONS`
    and their values."""
    file = path or _find_config_file(environ)
    document = _read_document(file) if file else ConfigDocument("the settings")
    _apply_environment(document, environ)
    for option, value in options.items():
        _override(document, OPTIONS[option], value, option)
    document.expand_variables(environ)
    config = document.build_settings(Config, document.values)
    upstreams = {name: apply_provider(one, environ) for name, one in config.upstreams.items()}
    config = replace(config, upstreams=upstreams)
    document.add_problems(*find_problems(config))
    warnings = (
        *_unknown_variables(environ),
        *document.format_problems([*document.warnings, *find_warnings(config)]),
    )
    if document.problems:
        raise ConfigError(document.format_problems(document.problems), warnings)
    return LoadedConfig(config, warnings, str(file or ""))


def apply_provider(upstream: UpstreamSettings, environ: Mapping[str, str]) -> UpstreamSettings:
    """Fill in what an upstream leaves out from its provider's row."""
    base_url = upstream.base_url.rstrip("/")
    provider = PROVIDERS.get(upstream.provider)
    if provider is None:
        return replace(upstream, base_url=base_url)
    base_url = base_url or provider.base_url
    return replace(
        upstream,
        wire=upstream.wire or provider.wire,
        base_url=base_url,
        key=upstream.key or _provider_key(provider, base_url, environ),
        headers={**provider.headers, **upstream.headers},
    )


def _provider_key(provider: Provider, base_url: str, environ: Mapping[str, str]) -> str:
    """Return the key in a provider's own variable, which is only sent to that provider."""
    if not _is_same_server(base_url, provider.base_url):
        return ""
    return next((environ[name].strip() for name in provider.key_variables if environ.get(name)), "")


def _is_same_server(url: str, other: str) -> bool:
    try:
        return urlsplit(url)[:2] == urlsplit(other)[:2]
    except ValueError:
        return False


# Files.


def _find_config_file(environ: Mapping[str, str]) -> Path | None:
    if Path(DEFAULT_FILE).is_file():
        return Path(DEFAULT_FILE)
    path = environ.get("TOOLSPEAK_CONFIG")
    return Path(path) if path else None


def _read_document(path: Path) -> ConfigDocument:
    text = _read_text(path)
    if path.suffix in (".yaml", ".yml") or _LITELLM.search(text):
        return read_litellm(str(path), _parse_yaml(str(path), text))
    return ConfigDocument(str(path), _parse_toml(str(path), text))


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path} is not UTF-8 text"]) from None


def _parse_toml(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = _TOML_POSITION.search(str(error))
        line = (position and position[1]) or text.count("\n") + 1
        message = _TOML_POSITION.sub("", str(error))
        raise ConfigError([f"{name}, line {line}: not valid TOML: {message}"]) from None


def _parse_yaml(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML's own message quotes the line, which may contain a key.
        mark = getattr(error, "problem_mark", None)
        message = _QUOTED.sub(
            "'…'", getattr(error, "problem", None) or "a value, such as a date, is not valid"
        )
        place = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigError([f"{place}: not valid YAML: {message}"]) from None


# The environment.


def _parse_number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"\d{1,9}", text.strip()) else text


def _parse_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TOOLSPEAK_HOST": ("server.host", str),
    "TOOLSPEAK_PORT": ("server.port", _parse_number),
    "TOOLSPEAK_WORKERS": ("server.workers", _parse_number),
    "TOOLSPEAK_KEYS": ("server.keys", _parse_list),
    "TOOLSPEAK_ADMIN_KEY": ("server.admin_key", str),
    "TOOLSPEAK_STORE": ("store", str),
    "TOOLSPEAK_DEFAULT": ("default", str),
    "TOOLSPEAK_GGUF": ("gguf", str),
    "TOOLSPEAK_LOG_FORMAT": ("server.log_format", str),
    "TOOLSPEAK_OTLP_ENDPOINT": ("telemetry.otlp_endpoint", str),
}
"""The environment variables that override settings."""
OPTIONS = {
    "--host": "server.host",
    "--port": "server.port",
    "--workers": "server.workers",
    "--gguf": "gguf",
    "--embedded": "embedded",
    "--log": "server.log_format",
}
"""The options of commands that override settings and their variables."""
_OTHER_VARIABLES = ("TOOLSPEAK_CONFIG", "TOOLSPEAK_CORPUS", "TOOLSPEAK_EMBEDDED_KEY")


def _apply_environment(document: ConfigDocument, environ: Mapping[str, str]) -> None:
    """Override settings with variables."""
    for variable, (setting, convert) in VARIABLES.items():
        if value := environ.get(variable):
            _override(document, setting, convert(value), variable)


def _override(document: ConfigDocument, setting: str, value: Any, source: str) -> None:
    """Set a value that comes from a variable or an option, escaped as a file would write it."""
    table, _, name = setting.rpartition(".")
    values = document.values.setdefault(table, {}) if table else document.values
    if isinstance(values, dict):
        values[name] = _escape(value)
        document.overrides[f"$.{setting}"] = source


def _escape(value: Any) -> Any:
    match value:
        case str():
            return escape_variables(value)
        case list():
            return list(map(_escape, value))
        case _:
            return value


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = (*VARIABLES, *_OTHER_VARIABLES)
    unknown = [name for name in environ if name.startswith("TOOLSPEAK_") and name not in known]
    return [
        f"the variable {name} is not known and is ignored{suggest_names(name, known)}"
        for name in unknown
    ]
