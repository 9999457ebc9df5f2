"""What was found out about a model, one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Finding(Struct, frozen=True):
    """One thing that a model or its upstream can do, or cannot."""

    value: bool | int | str | None
    """None: not known."""
    seen: str
    """What it was told by, for people."""


Findings = Mapping[str, Finding]
