"""Which model a name means, and where it is to be had.

    find(config, "claude-opus-4-8")  # by its own name, an alias, a wildcard, or the default
    find(config, "box/qwen3:8b")  # by the name of an upstream

An exact name counts before a wildcard, and a longer wildcard before a shorter one.
"""

from __future__ import annotations

from msgspec import Struct

from .settings import Config, ModelSettings


class Attempt(Struct, frozen=True):
    """An upstream to ask, and its name for the model."""

    upstream: str
    model: str


class Target(Struct, frozen=True):
    """The model that serves a request, and whom to ask for it, in order."""

    name: str
    """The name or the wildcard under which the configuration has it."""
    model: ModelSettings
    attempts: tuple[Attempt, ...]


class Match(Struct, frozen=True):
    """The name or wildcard that fits a name, and what its `*` stands for."""

    pattern: str
    """Empty if none fits."""
    star: str
    name: str
    """The name that was looked up last: an alias leads on to another."""


def find(config: Config, requested: str) -> Target | None:
    """The model for a request; the default serves names that are not known."""
    return named(config, requested) or named(config, config.default)


def named(config: Config, requested: str) -> Target | None:
    """The model of that name, if the configuration has one."""
    match = look_up(config, requested)
    if match is None:
        return None
    if match.pattern:
        model = config.models[match.pattern]
        return Target(match.pattern, model, _attempts(config, model, match))
    upstream, _, name = match.name.partition("/")
    if not name or upstream not in config.upstreams:
        return None
    model = ModelSettings(upstream, model=name)
    return Target(match.name, model, _attempts(config, model, match))


def _attempts(config: Config, model: ModelSettings, match: Match) -> tuple[Attempt, ...]:
    first = config.upstreams[model.upstream]
    name = model.model.replace("*", match.star) or first.model or match.name
    others = (Attempt(other, config.upstreams[other].model or name) for other in first.fallbacks)
    return Attempt(model.upstream, name), *others


def look_up(config: Config, name: str) -> Match | None:
    """What a name means by way of the aliases; None if they lead in a circle."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        match = best(config, name)
        if match is None or match.pattern not in config.aliases:
            return match or Match("", "", name)
        name = config.aliases[match.pattern]
    return None


def best(config: Config, name: str) -> Match | None:
    """The model or alias that fits a name most closely. What an alias means is not meant again:
    `"*" = "box/qwen3"` leads to `box/qwen3`, and stays there."""
    fitting = [
        Match(pattern, star, name)
        for pattern in (*config.aliases, *config.models)
        if (star := _star(pattern, name)) is not None and config.aliases.get(pattern) != name
    ]
    exact = [match for match in fitting if match.pattern == name]
    return exact[0] if exact else max(fitting, key=lambda match: len(match.pattern), default=None)


def _star(pattern: str, name: str) -> str | None:
    """What `*` stands for if the pattern fits the name; "" where it has none."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if pattern == name else None
    long_enough = len(name) >= len(before) + len(after)
    if not (long_enough and name.startswith(before) and name.endswith(after)):
        return None
    return name[len(before) : len(name) - len(after)]
