"""Whether requests are traced, which takes packages that not everybody has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.checks import TELEMETRY_MISSING, is_telemetry_installed
from ..config.settings import Config
from ..errors import UsageError

if TYPE_CHECKING:
    from .tracing import Tracing


def open_tracing(config: Config) -> Tracing | None:
    """What traces requests, if somebody is to get the traces."""
    if not config.telemetry.otlp_endpoint:
        return None
    if not is_telemetry_installed():
        raise UsageError(TELEMETRY_MISSING)
    from .tracing import Tracing

    return Tracing(config)
