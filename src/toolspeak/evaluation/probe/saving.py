"""A verdict for good: the lines of `toolspeak.toml` that say the same, and how they get there.

[models."box/qwen3:8b"]
upstream = "box"
tools = "prompt"
dialect = "hermes"

Nobody's file is rewritten: a section is added at its end where there is none of that name. In all
other cases it is said what to change.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from ...config.document import ConfigError, escape_variables
from ...config.loading import DEFAULT_FILE, LoadedConfig, read_config
from ...config.model_names import find_named_model, resolve_aliases
from ...config.providers import PROVIDERS
from ...config.settings import ModelSettings, UpstreamSettings
from ...errors import UsageError
from ...upstream.catalog import EMBEDDED, ResolvedModel
from .run import Report

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Advice(Struct, frozen=True):
    """What to write into the configuration."""

    file: str
    lines: str
    """Empty if nothing has to be written."""
    why_not: str = ""
    """Why it cannot be added to the file; empty if it can."""


def advice(report: Report, served: ResolvedModel, loaded: LoadedConfig) -> Advice:
    """The lines that make the gateway use a model as the report says."""
    config = loaded.config
    file = loaded.source or DEFAULT_FILE
    if served.endpoint.name == EMBEDDED and EMBEDDED not in config.upstreams:
        return Advice(file, "", "the embedded model is given its tools by constraint, always")
    match = resolve_aliases(config, report.model)
    name = match.name if match else report.model
    target = find_named_model(config, name)
    before = target.settings if target else ModelSettings(report.upstream)
    section = f"[models.{_key(name)}]"
    is_toml = Path(file).suffix == ".toml"
    if name in config.models and is_toml:
        changed = list(_lines(_found(report, before), before))
        lines = "\n".join((section, *changed)) if changed else ""
        why_not = f"change {section} in {file} yourself" if changed else f"{file} says so already"
        return Advice(file, lines, why_not)
    after = structs.replace(_found(report, before), model=report.name)
    lines = "\n".join((section, *_lines(after)))
    if served.endpoint.name in config.upstreams:
        return Advice(file, lines, "" if is_toml else f"{file} is not a .toml file")
    lines = f"{_upstream(served)}\n\n{lines}"
    if not loaded.source:
        # Once there is a file, what it names is no longer found by itself.
        return Advice(file, f"default = {_value(name)}\n\n{lines}")
    return Advice(file, lines, f"{file} does not have the upstream {served.endpoint.name} yet")


def save(advised: Advice, loaded: LoadedConfig, environ: Mapping[str, str]) -> Path:
    """Add the lines to the file, or begin one. They are tried before that: what would not be a
    configuration any more is left as it was, and that is an error."""
    path = Path(advised.file)
    before = path.read_text("utf-8") if loaded.source else ""
    between = "\n" if before.endswith("\n") else "\n\n" if before else ""
    added = f"{between}{advised.lines}\n"
    _try(before + added, environ)
    with path.open("a" if loaded.source else "x", encoding="utf-8") as file:
        file.write(added)
    return path


def _try(text: str, environ: Mapping[str, str]) -> None:
    """Read a text as a configuration."""
    descriptor, name = tempfile.mkstemp(suffix=".toml")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        read_config(Path(name), environ)
    except ConfigError as problem:
        told = str(problem).replace(name, "it")
        raise UsageError(f"nothing was saved, as the file could not be read then: {told}") from None
    finally:
        os.unlink(name)


# The lines.


def _found(report: Report, before: ModelSettings) -> ModelSettings:
    """The settings of a model with what was found out."""
    found = report.findings
    context = found["context"].value
    return structs.replace(
        before,
        tools=report.mode,
        dialect=report.dialect or before.dialect,
        context=before.context or (context if isinstance(context, int) else None),
        system_role=False if found["system_role"].value is False else before.system_role,
        starts_in_reasoning=True
        if found["reasoning"].value == "open"
        else before.starts_in_reasoning,
    )


def _upstream(served: ResolvedModel) -> str:
    """The section of an upstream that was found, and not configured."""
    row = PROVIDERS[served.endpoint.settings.provider]
    address = served.endpoint.base_url
    settings = UpstreamSettings(served.endpoint.settings.provider)
    if address != row.base_url:
        settings = structs.replace(settings, base_url=address)
    return "\n".join((f"[upstreams.{_key(served.endpoint.name)}]", *_lines(settings)))


def _lines(settings: Struct, before: Struct | None = None) -> Iterator[str]:
    """Every setting that is not as it was before, or as it would be anyway."""
    for field in structs.fields(settings):
        value = getattr(settings, field.name)
        known = field.default if before is None else getattr(before, field.name)
        if value != known and value is not None:
            yield f"{field.name} = {_value(value)}"


def _value(value: Any) -> str:
    """TOML writes texts, numbers and truth as JSON does."""
    return json.dumps(
        escape_variables(value) if isinstance(value, str) else value, ensure_ascii=False
    )


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
