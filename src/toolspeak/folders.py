"""Where files of this user are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """For what is remembered: histories, and which gateways run."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "toolspeak"
