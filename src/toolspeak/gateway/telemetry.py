"""Whether requests are traced, which takes packages that not everybody has."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..errors import UsageError
from .settings import Config

if TYPE_CHECKING:
    from .tracing import Tracing

MISSING = "traces need OpenTelemetry: pip install 'toolspeak[otel]'"
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def is_installed() -> bool:
    """Whether all is there that traces need."""
    try:
        return all(map(find_spec, _NEEDED))
    except ModuleNotFoundError:
        return False


def open_tracing(config: Config) -> Tracing | None:
    """What traces requests, if somebody is to get the traces."""
    if not config.telemetry.otlp:
        return None
    if not is_installed():
        raise UsageError(MISSING)
    from .tracing import Tracing

    return Tracing(config)
