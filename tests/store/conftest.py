"""Fixtures of the tests of stores."""

from __future__ import annotations

import pytest

from toolspeak.store.external import ExternalStore


@pytest.fixture
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let operations succeed on a busy machine, too."""
    monkeypatch.setattr(ExternalStore, "timeout", 60.0)
