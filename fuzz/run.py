"""Fuzzes one target with atheris, in a process of its own: `python -m fuzz.run TARGET FOLDER …`.

An input that breaks a rule is saved, once for each place in the code, and fuzzing goes on.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tomllib
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

atheris: Any = import_module("atheris")
"""It has no types, and only `make fuzz` installs it."""
with atheris.instrument_imports(include=["toolspeak"]):
    from tests.wires.support import mutate

    from .targets import TARGETS

FAILURES = Path(__file__).parent.parent / "tests" / "fuzz" / "inputs"


def main(target: str, *options: str) -> None:
    check, seen = TARGETS[target], set[str]()

    def check_input(data: bytes) -> None:
        try:
            check(data)
        except Exception as error:
            place = find_place(error)
            if place not in seen:
                seen.add(place)
                save_failure(target, data)
                traceback.print_exc()

    arguments = [sys.argv[0], f"-artifact_prefix={FAILURES / target}-", *options]
    mutators = {"wires": mutate_body, "config": mutate_settings}
    if mutator := mutators.get(target):
        atheris.Setup(arguments, check_input, custom_mutator=mutator)
    else:
        atheris.Setup(arguments, check_input)
    atheris.Fuzz()


def find_place(error: Exception) -> str:
    """Return the kind of an exception and the lines where it went through this project."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{frame.name}:{frame.lineno}" for frame in frames if "/.venv/" not in frame.filename]
    return f"{type(error).__name__} {' '.join(own[-3:])}"


def save_failure(target: str, data: bytes) -> None:
    FAILURES.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(data).hexdigest()[:12]
    (FAILURES / f"{target}-{name}").write_bytes(data)


def mutate_body(data: bytes, max_size: int, seed: int) -> bytes:
    """Change single values of a JSON body; half of the time, and otherwise, change bytes."""
    chance = random.Random(seed)
    head, _, body = data.partition(b"\n")
    if chance.random() < 0.5 and len(body) > 1:
        changed = b"\n".join(_mutate_line(line, chance) for line in body.split(b"\n"))
        if changed != body and len(head) + 1 + len(changed) <= max_size:
            return head + b"\n" + changed
    return atheris.Mutate(data, max_size)


def mutate_settings(data: bytes, max_size: int, seed: int) -> bytes:
    """Change single values of a TOML file; half of the time, and otherwise, change bytes."""
    chance = random.Random(seed)
    try:
        values = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return atheris.Mutate(data, max_size)
    changed = mutate(values, chance)
    if changed == values or not isinstance(changed, dict) or chance.random() < 0.5:
        return atheris.Mutate(data, max_size)
    lines = (f"{json.dumps(key)} = {render_toml(item)}\n" for key, item in changed.items())
    return "".join(lines).encode("utf-8", "replace")[:max_size]


def render_toml(value: Any) -> str:
    """Return a value on one line of TOML, which has no null."""
    if isinstance(value, dict):
        items = (f"{json.dumps(key)} = {render_toml(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(render_toml, value)) + "]"
    return json.dumps(value if isinstance(value, (str, int, float)) else str(value))


def _mutate_line(line: bytes, chance: random.Random) -> bytes:
    prefix = b"data: " if line.startswith(b"data: ") else b""
    try:
        value: Any = json.loads(line.removeprefix(prefix))
    except ValueError:
        return line
    return prefix + json.dumps(mutate(value, chance)).encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
