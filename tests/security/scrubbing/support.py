"""What the tests of scrubbing share: the table, and texts that are cut in every way."""

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
_MADE_UP = re.compile(r"\{([aAdhT]?)(\d+)\}")
_SECRET = re.compile("«(.*?)»", re.DOTALL)


class Case(NamedTuple):
    title: str
    row: str
    text: str
    scrubbed: str
    secrets: list[str]


def made_up(alphabet: str, size: int, chance: random.Random) -> str:
    """Letters by chance, among them a digit where there may be one, and no digit first."""
    letters = ALPHABETS[alphabet]
    if alphabet in ("d", "h", "a", "T"):
        return "".join(chance.choices(letters, k=size))
    return (
        "k7" + "".join(chance.choices(letters, k=size - 2))
        if not alphabet
        else "".join(chance.choices(letters, k=size))
    )


def cases() -> list[Case]:
    """Every row of the table."""
    table = tomllib.loads((Path(__file__).parent / "cases.toml").read_text())
    return [_case(group["title"], row) for group in table["group"] for row in group["rows"]]


def _case(title: str, row: str) -> Case:
    chance = random.Random(row)
    filled = _MADE_UP.sub(lambda found: made_up(found[1], int(found[2]), chance), row)
    if title not in ("JSON",):
        filled = filled.replace("\\n", "\n").replace("\\r", "\r").replace("\\\\", "\\")
    return Case(
        title,
        row,
        _SECRET.sub(lambda found: found[1], filled),
        _SECRET.sub(lambda found: marked(found[1]), filled),
        _SECRET.findall(filled),
    )


def marked(secret: str) -> str:
    """What stands in the place of a secret: its first four characters, if it has eight."""
    units = re.findall(r"(?s)\\ud[89ab]..\\ud[c-f]..|\\U.{8}|\\u....|\\+.|.", secret)
    return "".join(units[:4] if len(units) >= 8 else []) + "*[REDACTED]"


def scrubbed(text: str, size: int) -> str:
    """The text without its secrets, if it comes in chunks of this size."""
    scrubber = Scrubber()
    return "".join(map(scrubber.feed, split_into_chunks(text, size))) + scrubber.finish()
