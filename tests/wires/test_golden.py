"""The encoders write what has been reviewed."""

from __future__ import annotations

import pytest

from tests.wires.golden import FOLDER, render_page
from toolspeak.wires import WIRES, Wire


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_encoded_scenarios_equal_the_reviewed_files(wire: Wire) -> None:
    golden = (FOLDER / f"{wire.name}.md").read_text(encoding="utf-8")
    assert render_page(wire) == golden, (
        "look at the change, then run `python -m tests.wires.golden`"
    )
