"""Rewrites text so that spellings that a model or a reader takes for the same become equal.

    see_through("dеl\u200bete")     # Cyrillic е, a zero-width space: "delete"
    flatten("/etc//./passwd  ")     # "/etc/passwd"

Only comparisons use the result. Letters that look different stay different: accents, upper and
lower case, digits and letters (0 and O).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_LOOK_ALIKES = {
    # Cyrillic
    **dict(zip("аеорсухіјѕһԁԛԝӏ", "aeopcyxijshdqwl", strict=True)),
    **dict(zip("АВЕКМНОРСТУХІЈЅԚԜ", "ABEKMHOPCTYXIJSQW", strict=True)),
    # Greek
    **dict(zip("αγικνορυ", "ayiknopu", strict=True)),
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
    # Armenian, and Latin letters for phonetics
    **dict(zip("օսոհɑɡɩ", "ounhagi", strict=True)),
    # Punctuation
    **dict.fromkeys("‐‑‒–—―−⁃", "-"),
    **dict.fromkeys("∕⁄⧸╱", "/"),
    **dict.fromkeys("∖⧵⧹", "\\"),
    **dict.fromkeys("‘’‛′`ʼ", "'"),
    **dict.fromkeys("“”‟″", '"'),
}
"""The letters of Unicode's list of confusables (UTS 39) that look like a Latin one in most fonts.

No two letters of one alphabet have the same look-alike, so words of one alphabet stay different.
"""
_TRANSLATION = str.maketrans(_LOOK_ALIKES)
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Characters that Unicode lets programs ignore, and other format characters."""
_MARKER_BAR = "｜"
"""Part of markers; its compatibility form is part of other markers."""
_SLASHES = re.compile(r"[/\\](?:\.?[/\\])*")


def see_through(text: str) -> str:
    """Return the text without invisible characters, in Latin letters where others look alike."""
    if text.isascii():
        return text
    return _MARKER_BAR.join(map(_see_through, text.split(_MARKER_BAR)))


def _see_through(text: str) -> str:
    plain = unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)).translate(_TRANSLATION)
    return unicodedata.normalize("NFKC", plain)


def flatten(text: str) -> str:
    """Return the text with single spaces and plain separators of paths, seen through."""
    return " ".join(_SLASHES.sub("/", see_through(text)).split())


def flatten_value(value: Any) -> Any:
    """Return a JSON value with all strings and keys flattened."""
    match value:
        case str():
            return flatten(value)
        case dict():
            return {flatten(key): flatten_value(item) for key, item in value.items()}
        case list() | tuple():
            return [flatten_value(item) for item in value]
        case _:
            return value
