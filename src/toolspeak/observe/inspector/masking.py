"""Masks secrets wherever a request is shown: known ones, and what looks like one.

Each masked character becomes a star, so that all offsets in a text stay valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..._util import format_json
from ...errors import WireError
from ...security.scrubbing import scrub
from ...wires.framing import decode_json

Span = tuple[int, int]
_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})")
_MIN_LENGTH = 6
"""A shorter secret would be found within ordinary words."""
_VISIBLE_PREFIX = 4
_MAX_KNOWN = 500


class Masker:
    """Masks the secrets of one request; one that was found anywhere is masked everywhere."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = {secret for secret in known if len(secret) >= _MIN_LENGTH}
        self._masked: set[str] = set()
        self._detected: dict[str, list[Span]] = {}
        """Detected secrets by text: some texts are shown more than once."""

    @property
    def masked_count(self) -> int:
        return len(self._masked)

    def learn(self, text: str) -> None:
        """Remember the secrets in a text, to mask them in other texts."""
        for start, end in self._detect(text):
            secret = text[start:end]
            for form in {secret, _decode_json_string(secret)}:
                if len(form) >= _MIN_LENGTH and len(self._known) < _MAX_KNOWN:
                    self._known.add(form)

    def find_secrets(self, text: str) -> list[Span]:
        spans = _merge_spans([*self._detect(text), *self._find_known(text)])
        self._masked.update(text[start:end] for start, end in spans)
        return spans

    def mask_text(self, text: str) -> str:
        return mask_spans(text, self.find_secrets(text))

    def mask_raw_json(self, text: str) -> str:
        """Mask JSON text; all of it, if escape sequences hide a secret in it."""
        decoded = decode_escapes(text)
        is_hidden = decoded != text and len(self.find_secrets(decoded)) > len(
            self.find_secrets(text)
        )
        return "*" * len(text) if is_hidden else self.mask_text(text)

    def mask_value(self, value: Any) -> Any:
        """Mask a JSON value, where also a key may reveal that a string is a secret."""
        self.learn(format_json(value))
        return _map_strings(value, self.mask_text)

    def mask_known(self, value: Any) -> Any:
        """Mask only known secrets in a JSON value, and make its strings valid UTF-8."""

        def change(text: str) -> str:
            text = replace_surrogates(text)
            return mask_spans(text, _merge_spans(list(self._find_known(text))))

        return _map_strings(value, change)

    def _detect(self, text: str) -> list[Span]:
        if text not in self._detected:
            self._detected[text] = [(found.offset, found.end) for found in scrub(text).findings]
        return self._detected[text]

    def _find_known(self, text: str) -> Iterator[Span]:
        for secret in self._known:
            at = text.find(secret)
            while at >= 0:
                yield at, at + len(secret)
                at = text.find(secret, at + len(secret))


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): _map_strings(item, change) for key, item in value.items()}
        case list():
            return [_map_strings(item, change) for item in value]
        case _:
            return value


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def decode_escapes(text: str) -> str:
    """Decode the `\\u` escapes in JSON text that JSON does not require."""
    return _ESCAPE.sub(_decode_escape, text) if "\\u" in text else text


def _decode_escape(match: re.Match[str]) -> str:
    char = chr(int(match[2], 16))
    is_required = char in '"\\' or not char.isprintable()
    return match[0] if is_required else match[1] + char


def mask_spans(text: str, spans: Iterable[Span]) -> str:
    """Replace each span by stars, except for its first few characters."""
    parts: list[str] = []
    copied = 0
    for start, end in spans:
        visible = start + _VISIBLE_PREFIX if end - start >= 2 * _VISIBLE_PREFIX else start
        # Never leave half an escape sequence.
        visible = start if "\\" in text[start:visible] else visible
        parts += text[copied:visible], "*" * (end - visible)
        copied = end
    return "".join(parts) + text[copied:]


def _decode_json_string(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(decode_json(f'"{text}"'.encode("utf-8", "replace")))
    except WireError:
        return text


def _merge_spans(spans: list[Span]) -> list[Span]:
    """Return the spans in order, with overlapping ones merged."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged
