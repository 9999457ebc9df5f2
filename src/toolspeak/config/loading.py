"""The gateway's configuration: a TOML file or LiteLLM's YAML, with the environment over it.

    config = load(Path("toolspeak.toml"), os.environ)

All that is wrong with a file is told at once, in a `ConfigError`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct
from msgspec.structs import replace

from . import checks, litellm
from .document import ConfigDocument, ConfigError, escape_variables, suggest_names
from .providers import PROVIDERS, Provider
from .settings import Config, UpstreamSettings, mask_settings

__all__ = [
    "VARIABLES",
    "Config",
    "ConfigError",
    "LoadedConfig",
    "apply_provider",
    "load_config",
    "mask_settings",
    "read_config",
]

DEFAULT_FILE = "toolspeak.toml"
_YAML = re.compile(r"^model_list\s*:", re.M)
_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_QUOTED = re.compile(r"'(?!<)[^']{2,}'")


class LoadedConfig(Struct, frozen=True):
    """A configuration that can be used, and what there is to say about it."""

    config: Config
    warnings: tuple[str, ...] = ()
    source: str = ""
    """The file; empty if there is none."""


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """The configuration of a file, or of this folder and the environment."""
    return read_config(path, environ).config


def read_config(path: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """The same, with the warnings."""
    file = path or _find_config_file(environ)
    draft = _read_document(file) if file else ConfigDocument("the settings")
    _apply_environment(draft, environ)
    draft.expand_variables(environ)
    config = draft.build_settings(Config, draft.values)
    upstreams = {name: apply_provider(one, environ) for name, one in config.upstreams.items()}
    config = replace(config, upstreams=upstreams)
    draft.add_problems(*checks.find_problems(config))
    warned = draft.format_problems([*draft.warnings, *checks.find_warnings(config)])
    warned = (*_unknown_variables(environ), *warned)
    if draft.problems:
        raise ConfigError(draft.format_problems(draft.problems), warned)
    return LoadedConfig(config, warned, str(file or ""))


def apply_provider(upstream: UpstreamSettings, environ: Mapping[str, str]) -> UpstreamSettings:
    """An upstream with all that its provider's row says, where it says nothing itself."""
    base_url = upstream.base_url.rstrip("/")
    row = PROVIDERS.get(upstream.provider)
    if row is None:
        return replace(upstream, base_url=base_url)
    base_url = base_url or row.base_url
    return replace(
        upstream,
        wire=upstream.wire or row.wire,
        base_url=base_url,
        key=upstream.key or _provider_key(row, base_url, environ),
        headers={**row.headers, **upstream.headers},
    )


def _provider_key(row: Provider, base_url: str, environ: Mapping[str, str]) -> str:
    """The key in a provider's own variable, which goes to nobody but this provider."""
    if not _is_same_server(base_url, row.base_url):
        return ""
    return next((environ[name].strip() for name in row.keys if environ.get(name)), "")


def _is_same_server(address: str, other: str) -> bool:
    try:
        return urlsplit(address)[:2] == urlsplit(other)[:2]
    except ValueError:
        return False


# Files.


def _find_config_file(environ: Mapping[str, str]) -> Path | None:
    if Path(DEFAULT_FILE).is_file():
        return Path(DEFAULT_FILE)
    named = environ.get("TOOLSPEAK_CONFIG")
    return Path(named) if named else None


def _read_document(path: Path) -> ConfigDocument:
    text = _read_text(path)
    if path.suffix in (".yaml", ".yml") or _YAML.search(text):
        return litellm.read_litellm(str(path), _parse_yaml(str(path), text))
    return ConfigDocument(str(path), _parse_toml(str(path), text))


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path} is no text in UTF-8"]) from None


def _parse_toml(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _LINE.search(str(error))
        line = (place and place[1]) or text.count("\n") + 1
        problem = _LINE.sub("", str(error))
        raise ConfigError([f"{name}, line {line}: this is no TOML: {problem}"]) from None


def _parse_yaml(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        # What PyYAML itself prints quotes the line, which may hold a key.
        mark = getattr(error, "problem_mark", None)
        problem = _QUOTED.sub("'…'", getattr(error, "problem", None) or "a value cannot be read")
        place = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigError([f"{place}: this is no YAML: {problem}"]) from None


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
    "TOOLSPEAK_LOG": ("server.log", str),
    "TOOLSPEAK_OTLP": ("telemetry.otlp", str),
}
"""The variables that count more than the file, and the settings they are for."""
_OTHER_VARIABLES = ("TOOLSPEAK_CONFIG", "TOOLSPEAK_CORPUS", "TOOLSPEAK_EMBEDDED_KEY")


def _apply_environment(draft: ConfigDocument, environ: Mapping[str, str]) -> None:
    """Put variables in the place of settings, as the file would have to write them."""
    for variable, (setting, convert) in VARIABLES.items():
        if value := environ.get(variable):
            table, _, name = setting.rpartition(".")
            values = draft.values.setdefault(table, {}) if table else draft.values
            if isinstance(values, dict):
                values[name] = convert(escape_variables(value))
                draft.variables[f"$.{setting}"] = variable


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = (*VARIABLES, *_OTHER_VARIABLES)
    unknown = [name for name in environ if name.startswith("TOOLSPEAK_") and name not in known]
    return [f"{name}: there is no such variable{suggest_names(name, known)}" for name in unknown]
