"""The known providers: base URL, wire, key variables and quirks of each."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import UsageError
from ..types import Quirks


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `providers.toml`."""

    title: str
    wire: str
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key."""
    tools: bool | Literal["model"] = "model"
    """True if all of its models have native tools, False if none has, "model" if some have."""
    schema: bool = False
    """True if replies can be constrained to a JSON schema."""
    headers: dict[str, str] = {}
    quirks: Quirks = Quirks()


def _load_providers() -> dict[str, Provider]:
    table = resources.files("toolspeak").joinpath("config", "providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(table), dict[str, Provider])


PROVIDERS = _load_providers()
EMBEDDED = "embedded"
"""The provider without a base URL: the gateway starts its server."""


def find_provider(name: str) -> Provider:
    """Return the provider of that name; raise `UsageError` if there is none."""
    if name not in PROVIDERS:
        raise UsageError(f"{name!r} is not a known provider; known names: {', '.join(PROVIDERS)}")
    return PROVIDERS[name]
