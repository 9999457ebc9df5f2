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

from ...errors import UsageError
from ..catalog import EMBEDDED, Served
from ..config import FILE, Loaded, read
from ..drafts import escaped
from ..names import look_up, named
from ..problems import ConfigError
from ..settings import Model, Upstream
from .probe import Report

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Advice(Struct, frozen=True):
    """What to write into the configuration."""

    section: str
    """Of the model."""
    lines: str
    """All sections that are needed; empty if nothing has to be written."""
    is_there: bool
    """Whether the file has the section already, so that it has to be changed by hand."""
    why_not: str = ""
    """Why it cannot be added to the file; empty if it can."""


def advice(report: Report, served: Served, loaded: Loaded) -> Advice:
    """The lines that make the gateway use a model as the report says."""
    config = loaded.config
    match = look_up(config, report.model)
    name = match.name if match else report.model
    section = f"[models.{_key(name)}]"
    is_there = name in config.models
    if served.endpoint.name == EMBEDDED and EMBEDDED not in config.upstreams:
        return Advice(section, "", False, "the embedded model has no section")
    lines = "\n".join((section, *_lines(_model(report, name, loaded, only_new=is_there))))
    why_not = _why_not(served, loaded, section, is_there=is_there)
    if served.endpoint.name not in config.upstreams:
        lines = f"{_upstream(served)}\n\n{lines}"
    return Advice(section, lines, is_there, why_not)


def _why_not(served: Served, loaded: Loaded, section: str, *, is_there: bool) -> str:
    if is_there:
        return f"{loaded.source} has a section {section}: change it there"
    if loaded.source and Path(loaded.source).suffix != ".toml":
        return f"{loaded.source} is no TOML file"
    if loaded.source and served.endpoint.name not in loaded.config.upstreams:
        return f"{loaded.source} does not have the upstream {served.endpoint.name}"
    return ""


def save(advised: Advice, loaded: Loaded, environ: Mapping[str, str]) -> Path:
    """Add the lines to the file, or begin one. It is read before it is there for good: what would
    not be a configuration any more is left as it was, and that is an error."""
    if advised.why_not:
        raise UsageError(f"nothing was saved: {advised.why_not}")
    path = Path(loaded.source or FILE)
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
        read(Path(name), environ)
    except ConfigError as problem:
        told = str(problem).replace(name, "it")
        raise UsageError(f"nothing was saved, as the file could not be read then: {told}") from None
    finally:
        os.unlink(name)


# The lines.


def _model(report: Report, name: str, loaded: Loaded, *, only_new: bool) -> Model:
    """The settings of the model: what was found, and what a wildcard or its own section says."""
    config = loaded.config
    target = named(config, name)
    before = target.model if target and not only_new else Model(report.upstream)
    model = report.name if report.name != name else ""
    found = report.findings
    context = found["context"].value
    return structs.replace(
        before,
        model=model,
        tools=report.mode,
        dialect=report.dialect,
        context=before.context or (context if isinstance(context, int) else None),
        system_role=False if found["system_role"].value is False else before.system_role,
        reasoning_open=True if found["reasoning"].value == "open" else before.reasoning_open,
    )


def _upstream(served: Served) -> str:
    """The section of an upstream that was found, and not configured."""
    settings = Upstream(
        provider=served.endpoint.settings.provider, base_url=served.endpoint.base_url
    )
    return "\n".join((f"[upstreams.{_key(served.endpoint.name)}]", *_lines(settings)))


def _lines(settings: Struct) -> Iterator[str]:
    """Every setting that is not as it would be anyway."""
    defaults = {field.name: field.default for field in structs.fields(settings)}
    for name, default in defaults.items():
        value = getattr(settings, name)
        if value != default and value is not None:
            yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    """TOML writes texts, numbers and truth as JSON does."""
    return json.dumps(escaped(value) if isinstance(value, str) else value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
