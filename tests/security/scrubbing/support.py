"""Reads `cases.toml`, and scrubs texts in chunks."""

from __future__ import annotations

import random
import re
import string
import tomllib
from pathlib import Path
from typing import NamedTuple

from toolspeak.security.scrubbing import Scrubber
from toolspeak.testing import split_into_chunks

ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "a": string.ascii_letters,
    "A": string.ascii_uppercase + string.digits,
    "T": string.ascii_uppercase + "234567",
    "d": string.digits,
    "h": "0123456789abcdef",
}
_RANDOM_TEXT = re.compile(r"\{([aAdhT]?)(\d+)\}")
_SECRET = re.compile("«(.*?)»", re.DOTALL)


class Case(NamedTuple):
    title: str
    row: str
    text: str
    scrubbed: str
    secrets: list[str]


def make_text(alphabet: str, size: int, chance: random.Random) -> str:
    """Return random characters of an alphabet; those of "" begin with a letter and a digit."""
    start = "" if alphabet else "k7"
    return start + "".join(chance.choices(ALPHABETS[alphabet], k=size - len(start)))


def load_cases() -> list[Case]:
    """Return every row of the table."""
    table = tomllib.loads((Path(__file__).parent / "cases.toml").read_text())
    return [_make_case(group["title"], row) for group in table["group"] for row in group["rows"]]


def _make_case(title: str, row: str) -> Case:
    chance = random.Random(row)
    filled = _RANDOM_TEXT.sub(lambda found: make_text(found[1], int(found[2]), chance), row)
    if title not in ("JSON",):
        filled = filled.replace("\\n", "\n").replace("\\r", "\r").replace("\\\\", "\\")
    return Case(
        title,
        row,
        _SECRET.sub(lambda found: found[1], filled),
        _SECRET.sub(lambda found: replace_secret(found[1]), filled),
        _SECRET.findall(filled),
    )


def replace_secret(secret: str) -> str:
    """Return the placeholder of a secret, after its first four characters if it has eight."""
    units = re.findall(r"(?s)\\ud[89ab]..\\ud[c-f]..|\\U.{8}|\\u....|\\+.|.", secret)
    return "".join(units[:4] if len(units) >= 8 else []) + "*[REDACTED]"


def scrub_in_chunks(text: str, size: int) -> str:
    """Scrub a text that arrives in chunks of this size."""
    scrubber = Scrubber()
    return "".join(map(scrubber.feed, split_into_chunks(text, size))) + scrubber.finish()
