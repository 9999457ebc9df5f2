"""Finds the model that a name refers to.

    find_model(config, "claude-opus-4-8")  # by its name, an alias, a wildcard, or the default
    find_model(config, "box/qwen3:8b")  # by the name of an upstream

An exact name takes precedence over a wildcard, and a longer wildcard over a shorter one.
"""

from __future__ import annotations

from msgspec import Struct

from .settings import Config, ModelSettings


class ModelLocation(Struct, frozen=True):
    """An upstream, and its name for a model."""

    upstream: str
    model: str


class ConfiguredModel(Struct, frozen=True):
    """The settings that apply to a name, and the upstreams to try in order."""

    name: str
    """The name or wildcard in the configuration."""
    settings: ModelSettings
    locations: tuple[ModelLocation, ...]


class NameMatch(Struct, frozen=True):
    """The name or wildcard of the configuration that matches a name."""

    pattern: str
    """Empty if nothing matches."""
    wildcard_text: str
    """The part of the name that `*` matched."""
    name: str
    """The name after aliases were resolved."""


def find_model(config: Config, requested: str) -> ConfiguredModel | None:
    """Return the model for a request; the default model serves unknown names."""
    return find_named_model(config, requested) or find_named_model(config, config.default)


def find_named_model(config: Config, requested: str) -> ConfiguredModel | None:
    """Return the model of that name, or None if the configuration does not have it."""
    match = resolve_aliases(config, requested)
    if match is None:
        return None
    if match.pattern:
        settings = config.models[match.pattern]
        return ConfiguredModel(match.pattern, settings, _locations(config, settings, match))
    upstream, _, model = match.name.partition("/")
    if not model or upstream not in config.upstreams:
        return None
    settings = ModelSettings(upstream, model=model)
    return ConfiguredModel(match.name, settings, _locations(config, settings, match))


def resolve_aliases(config: Config, name: str) -> NameMatch | None:
    """Follow aliases until a model or an unknown name is reached; None if they form a cycle."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        match = best_match(config, name)
        if match is None or match.pattern not in config.aliases:
            return match or NameMatch("", "", name)
        name = config.aliases[match.pattern]
    return None


def best_match(config: Config, name: str) -> NameMatch | None:
    """Return the model or alias that matches a name most closely.

    An alias does not match its own target: `"*" = "box/qwen3"` leads to `box/qwen3` and stops.
    """
    matches = [
        NameMatch(pattern, wildcard_text, name)
        for pattern in (*config.aliases, *config.models)
        if (wildcard_text := _match_wildcard(pattern, name)) is not None
        and config.aliases.get(pattern) != name
    ]
    exact = [match for match in matches if match.pattern == name]
    return exact[0] if exact else max(matches, key=lambda match: len(match.pattern), default=None)


def _locations(
    config: Config, settings: ModelSettings, match: NameMatch
) -> tuple[ModelLocation, ...]:
    first = config.upstreams[settings.upstream]
    model = settings.model.replace("*", match.wildcard_text) or first.model or match.name
    fallbacks = (
        ModelLocation(fallback, config.upstreams[fallback].model or model)
        for fallback in first.fallbacks
    )
    return ModelLocation(settings.upstream, model), *fallbacks


def _match_wildcard(pattern: str, name: str) -> str | None:
    """Return the text that `*` matched ("" if the pattern has none), or None if nothing matches."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if pattern == name else None
    is_long_enough = len(name) >= len(before) + len(after)
    if not (is_long_enough and name.startswith(before) and name.endswith(after)):
        return None
    return name[len(before) : len(name) - len(after)]
