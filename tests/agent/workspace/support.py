"""Helpers of the workspace tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import WorkspaceError

SECRET = "the secret outside"
SOON = 10.0
"""Seconds in which a call must return, on a busy machine."""


def get_error(call: Callable[[], Any]) -> str:
    with pytest.raises(WorkspaceError) as caught:
        call()
    return str(caught.value)


def get_result(call: Callable[[], str]) -> str:
    """Return a tool's result or its error message."""
    try:
        return call()
    except WorkspaceError as problem:
        return str(problem)


def read_tree(folder: Path) -> dict[str, Any]:
    found = sorted(folder.rglob("*"))
    return {
        str(path): path.read_bytes()
        for path in found
        if path.is_file() and not path.is_symlink() and folder in path.parents
    } | {"all": [str(path) for path in found]}


def find_temporary_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".toolspeak-*")]
