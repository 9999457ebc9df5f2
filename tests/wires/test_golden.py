"""The encoders write what people have looked at."""

from __future__ import annotations

import pytest

from tests.wires.golden import FOLDER, page
from toolspeak.wires import WIRES, Wire


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_encoders_write_what_was_reviewed(wire: Wire) -> None:
    golden = (FOLDER / f"{wire.name}.md").read_text(encoding="utf-8")
    assert page(wire) == golden, "look at the change, then run `python -m tests.wires.golden`"
