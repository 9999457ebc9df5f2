"""Fuzzes each target for a while: `python -m fuzz [TARGET …] [--seconds N]`.

Prints one line per target. Inputs that broke a rule are saved in tests/fuzz/inputs, where a test
replays them. The corpus grows in build/fuzz.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from .seeds import SEEDS, render_dictionary

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "fuzz"
FAILURES = ROOT / "tests" / "fuzz" / "inputs"
_STATISTICS = re.compile(r"^#\d+\s.*?cov: (\d+)", re.M)
_COUNT = re.compile(r"number_of_executed_units: (\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(SEEDS)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    options = parser.parse_args()
    if unknown := set(options.targets) - SEEDS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: not a target; use {', '.join(SEEDS)}")
    results = [fuzz(target, options.seconds) for target in options.targets or SEEDS]
    return 0 if all(results) else 1


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz one target; print what was found, and return True if that is nothing."""
    seeds, corpus = BUILD / "seeds" / target, BUILD / "corpus" / target
    for folder in (seeds, corpus, FAILURES):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[target]():
        (seeds / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    dictionary, log = BUILD / f"{target}.dict", BUILD / f"{target}.log"
    dictionary.write_text(render_dictionary(target), "ascii")
    before = {path.name for path in FAILURES.iterdir()}
    command = [
        *(sys.executable, "-m", "fuzz.run", target, str(corpus), str(seeds)),
        *(f"-max_total_time={seconds}", "-timeout=60", "-report_slow_units=60"),
        *("-rss_limit_mb=4096", "-max_len=4000"),
        *(f"-dict={dictionary}", "-print_final_stats=1"),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with log.open("wb") as output:
        code = subprocess.run(
            command, stdout=output, stderr=output, cwd=ROOT, env=environment
        ).returncode
    text = log.read_text("utf-8", "replace")
    count, coverage = _COUNT.findall(text), _STATISTICS.findall(text)
    found = sorted({path.name for path in FAILURES.iterdir()} - before)
    print(
        f"{target}: {count[-1] if count else 'no'} inputs in {seconds} s, "
        f"{coverage[-1] if coverage else 'no'} edges covered, {len(found)} failures",
        flush=True,
    )
    for name in found:
        print(f"  tests/fuzz/inputs/{name}")
    if code and not found:
        print(f"  it ended with exit code {code}: see {log.relative_to(ROOT)}")
    return not code and not found


if __name__ == "__main__":
    raise SystemExit(main())
