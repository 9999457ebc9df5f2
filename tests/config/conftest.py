from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.config_files import isolate_settings


@pytest.fixture(autouse=True)
def _isolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_settings(tmp_path, monkeypatch)
