"""Inputs that once broke a rule while fuzzing, replayed. `make fuzz` saves new ones in `inputs`."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.seeds import SEEDS, render_dictionary
from fuzz.targets import TARGETS

INPUTS = sorted((Path(__file__).parent / "inputs").glob("*-*"))


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_saved_input_breaks_no_rule(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_of_each_target_break_no_rule(target: str) -> None:
    seeds = [*SEEDS[target]()]
    for seed in seeds[:: len(seeds) // 40 + 1]:
        TARGETS[target](seed)
    assert render_dictionary(target).isascii()


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\x00", b"\xff\xfe\n\xff", b"0 -1 \xb2 99999999999999\n{"]
)
def test_odd_options_break_no_rule(data: bytes) -> None:
    for check in TARGETS.values():
        check(data)
