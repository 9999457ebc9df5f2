"""The lines of `toolspeak.toml` that make a recommendation permanent.

    [models."box/qwen3:8b"]
    upstream = "box"
    tools = "prompt"
    dialect = "hermes"

Existing settings are never rewritten: a section is appended if the file has none of that name.
Otherwise the user is told what to change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import NODEFAULT, Struct, structs

from ..config.document import ConfigError, escape_variables
from ..config.loading import DEFAULT_FILE, LoadedConfig, read_config
from ..config.providers import EMBEDDED, PROVIDERS
from ..config.settings import ModelSettings, UpstreamSettings, find_named_model, resolve_aliases
from ..errors import UsageError
from ..upstream.catalog import ResolvedModel
from .probe import ProbeReport

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class ConfigAdvice(Struct, frozen=True):
    """Settings to write to the configuration file."""

    file: str
    lines: str
    """Empty if nothing needs to change."""
    obstacle: str = ""
    """The reason why the lines cannot be appended to the file; empty if they can."""


def advise_config(report: ProbeReport, served: ResolvedModel, loaded: LoadedConfig) -> ConfigAdvice:
    """Return the lines that make the gateway use the recommended mode."""
    config = loaded.config
    file = loaded.source or DEFAULT_FILE
    upstream = served.endpoint.name
    if upstream == EMBEDDED and EMBEDDED not in config.upstreams:
        return ConfigAdvice(file, "", "the embedded model always uses constrained mode")
    match = resolve_aliases(config, report.model)
    name = match.name if match else report.model
    target = find_named_model(config, name)
    before = target.settings if target else ModelSettings(report.upstream)
    section = f"[models.{_write_key(name)}]"
    is_toml = Path(file).suffix == ".toml"
    if name in config.models and is_toml:
        return _advise_change(file, section, report, before)
    after = structs.replace(_apply_findings(report, before), model=report.name)
    lines = "\n".join((section, *_write_settings(after)))
    if upstream in config.upstreams:
        return ConfigAdvice(file, lines, "" if is_toml else f"{file} is not a .toml file")
    lines = f"{_write_upstream(served)}\n\n{lines}"
    if not loaded.source:
        # Servers that the new file configures are no longer discovered, so it must name the
        # default.
        return ConfigAdvice(file, f"default = {_write_value(name)}\n\n{lines}")
    return ConfigAdvice(file, lines, f"{file} does not define the upstream {upstream} yet")


def _advise_change(
    file: str, section: str, report: ProbeReport, before: ModelSettings
) -> ConfigAdvice:
    """Return the settings that differ in a section that the file already has."""
    changed = list(_write_settings(_apply_findings(report, before), before))
    if not changed:
        return ConfigAdvice(file, "", f"{file} already has these settings")
    return ConfigAdvice(
        file, "\n".join((section, *changed)), f"change {section} in {file} yourself"
    )


def save_advice(advice: ConfigAdvice, loaded: LoadedConfig, environ: Mapping[str, str]) -> Path:
    """Append the lines to the file, or create it.

    Raises `UsageError` and leaves the file unchanged if the result would not be valid.
    """
    path = Path(advice.file)
    before = path.read_text("utf-8") if loaded.source else ""
    separator = "\n" if before.endswith("\n") else "\n\n" if before else ""
    added = f"{separator}{advice.lines}\n"
    _check_config_text(before + added, environ)
    with path.open("a" if loaded.source else "x", encoding="utf-8") as file:
        file.write(added)
    return path


def _check_config_text(text: str, environ: Mapping[str, str]) -> None:
    with TemporaryDirectory() as folder:
        copy = Path(folder, DEFAULT_FILE)
        copy.write_text(text, "utf-8")
        try:
            read_config(copy, environ)
        except ConfigError as error:
            problem = str(error).replace(f"{copy}: ", "")
            raise UsageError(
                f"nothing was saved: the file would become invalid: {problem}"
            ) from None


def _apply_findings(report: ProbeReport, before: ModelSettings) -> ModelSettings:
    """Return a model's settings with the findings of the report."""
    found = report.findings
    context_window = found["context_window"].value
    return structs.replace(
        before,
        tools=report.mode,
        dialect=report.dialect or before.dialect,
        context_window=before.context_window
        or (context_window if isinstance(context_window, int) else None),
        system_role=False if found["system_role"].value is False else before.system_role,
        starts_in_reasoning=found["reasoning"].value == "open" or before.starts_in_reasoning,
    )


def _write_upstream(served: ResolvedModel) -> str:
    """Return the section of an upstream that was discovered, not configured."""
    endpoint = served.endpoint
    provider = endpoint.settings.provider
    is_usual = endpoint.base_url == PROVIDERS[provider].base_url
    settings = UpstreamSettings(provider, base_url="" if is_usual else endpoint.base_url)
    return "\n".join((f"[upstreams.{_write_key(endpoint.name)}]", *_write_settings(settings)))


def _write_settings(settings: Struct, before: Struct | None = None) -> Iterator[str]:
    """Yield each setting that differs from `before`, or from its default."""
    for field in structs.fields(settings):
        value = getattr(settings, field.name)
        known = _find_default(field) if before is None else getattr(before, field.name)
        if value != known and value is not None:
            yield f"{field.name} = {_write_value(value)}"


def _find_default(field: structs.FieldInfo) -> Any:
    has_factory = field.default_factory is not NODEFAULT
    return field.default_factory() if has_factory else field.default


def _write_value(value: Any) -> str:
    """Return a TOML value: strings, numbers and booleans are written as in JSON."""
    if isinstance(value, dict):
        pairs = (f"{_write_value(key)} = {_write_value(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(
        escape_variables(value) if isinstance(value, str) else value, ensure_ascii=False
    )


def _write_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)
