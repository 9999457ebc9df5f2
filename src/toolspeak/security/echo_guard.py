"""Finds calls that only repeat a tool result or a document, so that they are not run.

The guard recognises calls that are repeated verbatim or serialised again: in any wrapper, in JSON
strings, in HTML, in quoted or numbered lines, or split between two results. Invisible characters,
look-alike letters, spaces and the spelling of paths do not matter. It does not recognise
paraphrases.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ..calls.json_values import iter_strings
from ..calls.lenient_json import unescape
from ..calls.resolution import CallKey, call_key
from .message_origin import UserTurn, split_by_origin, split_results

_LINE_MARGIN = re.compile(
    r"^[ \t]*+(?:(?:\d++[ \t]*+[→|:\t]|[>|+#*\-]++|//++|\d++[.)])[ \t]?+){1,8}+", re.M
)
"""The start of each line in a quoted mail, a numbered file, a diff, a comment or a list."""
_MAX_LAYERS = 6
_MAX_DECODINGS = 24
"""The most decodings of a text that are searched; those with the fewest layers come first."""
_WORD = re.compile(r"[A-Za-z0-9]+")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
_JSON_STARTS = ("{", "[", '"')
_ESCAPE_OR_QUOTE = re.compile(r'(\\.)|"', re.S)


FoundCall = tuple[str, Mapping[str, Any]]
"""The name and the arguments of a call in a text."""


class EchoGuard:
    """Decides whether a call only repeats the untrusted parts of a conversation.

    They are searched when the first call is checked.
    """

    def __init__(
        self,
        context: Any,
        calls_in: Callable[[str], Iterable[FoundCall]],
        makes_calls: Callable[[str], bool],
    ) -> None:
        self._outside_texts, self._user_turns = split_by_origin(context)
        self._calls_in = calls_in
        self._makes_calls = makes_calls

    def __call__(self, name: str, arguments: Mapping[str, Any], raw: str) -> bool:
        """Return True if untrusted text contains the call, or its source text, and the user's
        messages do not."""
        if not any(self._texts[0]):
            return False
        flat = _SearchedCall(see_through(name), flatten_value(arguments), flatten(raw))
        if not _contain(self._untrusted_content, flat):
            return False
        return not _contain(
            self._requested_content, _SearchedCall(name, arguments, _collapse_spaces(raw))
        )

    @cached_property
    def _texts(self) -> tuple[list[str], list[str]]:
        """The untrusted texts, and the user's requests."""
        untrusted, requested = list(self._outside_texts), list[str]()
        for turn in self._user_turns:
            for is_result, text in self._split_turn(turn):
                (untrusted if is_result else requested).append(text)
        return untrusted, requested

    @cached_property
    def _untrusted_content(self) -> list[_DecodedText]:
        texts = self._texts[0]
        seen_through = [plain for text in texts if (plain := see_through(text)) != text]
        decoded = self._decode(texts) + (self._decode(seen_through) if seen_through else [])
        plain = (plain for text in decoded if (plain := see_through(text)) != text)
        return [
            _DecodedText(text, flatten(text), self._find_flat_calls)
            for text in dict.fromkeys((*decoded, *plain))
        ]

    def _find_flat_calls(self, text: str) -> Iterator[FoundCall]:
        """Find calls however they are spelled."""
        found = self._calls_in(text)
        return ((see_through(name), flatten_value(arguments)) for name, arguments in found)

    @cached_property
    def _requested_content(self) -> list[_DecodedText]:
        """The user's requests, as they are spelled: another spelling is another request."""
        return [
            _DecodedText(text, _collapse_spaces(text), self._calls_in)
            for text in self._decode(self._texts[1])
        ]

    def _decode(self, texts: list[str]) -> list[str]:
        joined = ["".join(texts), "\n".join(texts)] if len(texts) > 1 else []
        decodings = (decoding for text in (*texts, *joined) for decoding in decode_layers(text))
        return list(dict.fromkeys(decodings))

    def _split_turn(self, turn: UserTurn) -> Iterable[tuple[bool, str]]:
        """Split a user's turn into tool results and requests.

        Some dialects write results without any marker. There, a turn after a call is its result.
        """
        parts = list(split_results(turn.text))
        if len(parts) > 1 or not turn.reply or not turn.text.strip():
            return parts
        return [(self._makes_calls(turn.reply), turn.text)]


def _contain(texts: list[_DecodedText], call: _SearchedCall) -> bool:
    # All source texts first: that is cheap, and parsing is not.
    return any(text.contains_source(call) for text in texts) or any(
        text.contains_call(call) for text in texts
    )


class _SearchedCall:
    def __init__(self, name: str, arguments: Mapping[str, Any], source: str) -> None:
        self.key = call_key(name, arguments)
        self.source = source
        self._name = _alphanumerics(name.rpartition(".")[2])
        self._parameters = [_alphanumerics(key) for key in arguments]
        self._words = {
            word.lower() for text in iter_strings(arguments) for word in _WORD.findall(text)
        }

    def may_be_in(self, alphanumerics: str) -> bool:
        """Return False if a text of these characters cannot contain the call in any form.

        Every form contains the words of the arguments, and the tool's name, or the parameters'
        names where the tool's is implied.
        """
        has_parameters = bool(self._parameters) and all(
            parameter in alphanumerics for parameter in self._parameters
        )
        has_name = has_parameters or self._name in alphanumerics
        return has_name and all(word in alphanumerics for word in self._words)


class _DecodedText:
    """A text that may contain calls; it is parsed only for a call that it may contain."""

    def __init__(
        self, text: str, single_spaced: str, calls_in: Callable[[str], Iterable[FoundCall]]
    ) -> None:
        self._text, self._calls_in = text, calls_in
        self._single_spaced = single_spaced
        self._alphanumerics = _alphanumerics(single_spaced)

    def contains_source(self, call: _SearchedCall) -> bool:
        return call.source != "" and call.source in self._single_spaced

    def contains_call(self, call: _SearchedCall) -> bool:
        return call.may_be_in(self._alphanumerics) and call.key in self._calls

    @cached_property
    def _calls(self) -> frozenset[CallKey]:
        return frozenset(call_key(*call) for call in self._calls_in(self._text))


def _alphanumerics(text: str) -> str:
    """Return the letters and digits of a text, without quotes, escapes and separators."""
    return _NOT_ALPHANUMERIC.sub("", text).lower()


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def decode_layers(text: str) -> list[str]:
    """Return the text and its decodings: JSON strings, HTML, URLs and line margins, also nested.

    Each layer is decoded wherever it occurs, so the text need not be well-formed as a whole.
    """
    found = {text: None}
    layer = [text]
    for _ in range(_MAX_LAYERS):
        decoded = (inner for outer in layer for inner in _decode_one_layer(outer))
        layer = [inner for inner in dict.fromkeys(decoded) if inner not in found]
        layer = layer[: _MAX_DECODINGS - len(found)]
        found.update(dict.fromkeys(layer))
    return list(found)


def _decode_one_layer(text: str) -> Iterator[str]:
    if "\\" in text or text.lstrip()[:1] in _JSON_STARTS:
        yield unescape(_ESCAPE_OR_QUOTE.sub(_separate_strings, text))
    if "&" in text:
        yield html.unescape(text)
    if "\\" in text:
        yield unescape(text)
    if "%" in text:
        yield unquote(text)
    if len(_LINE_MARGIN.findall(text)) > 1:
        yield _LINE_MARGIN.sub("", text)


def _separate_strings(match: re.Match[str]) -> str:
    """Keep escapes; replace a quote with a line break, which separates a string from the rest."""
    return match[1] or "\n"


# Spellings that a model or a reader takes for the same.

_LOOK_ALIKES = {
    # Cyrillic
    **dict(zip("аеорсухіјѕһԁԛԝӏ", "aeopcyxijshdqwl", strict=True)),
    **dict(zip("АВЕКМНОРСТУХІЈЅԚԜ", "ABEKMHOPCTYXIJSQW", strict=True)),
    # Greek
    **dict(zip("αγικνορυ", "ayikvopu", strict=True)),
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
    # Armenian, and Latin letters for phonetics
    **dict(zip("օսոհɑɡɩᴄᴏᴜᴠᴡᴢꜱ", "ounhagicouvwzs", strict=True)),
    # Coptic, Cherokee and Lisu
    **dict(zip("ⲟⲣⲥⲞⲢⲤⲦⲬⲎⲒⲔⲘⲚ", "opcOPCTXHIKMN", strict=True)),
    **dict(zip("ᎠᎡᎢᎩᎪᎫᎬᎳᎷᎻᏀᏃᏙᏚᏞᏟᏢᏦᏴ", "DRTYAJEWMHGZVSLCPKB", strict=True)),
    **dict(zip("ꓐꓑꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ", "BPDTGKJCZFMNLSRVHWXYAEIOU", strict=True)),
    # Punctuation
    **dict.fromkeys("‐‑‒–—―−⁃", "-"),
    **dict.fromkeys("∕⁄⧸╱", "/"),
    **dict.fromkeys("∖⧵⧹", "\\"),
    **dict.fromkeys("‘’‛′`ʼ", "'"),
    **dict.fromkeys("“”‟″", '"'),
    "\u2800": " ",
}
"""The letters of Unicode's list of confusables (UTS 39) that look like a Latin one in most fonts.

No two letters of one alphabet have the same look-alike, so words of one alphabet stay different.
"""
_TRANSLATION = str.maketrans(_LOOK_ALIKES)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Control and format characters, and those that Unicode lets programs ignore."""
_MARKER_BAR = "｜"
"""Part of markers; its compatibility form is part of other markers."""
_SLASHES = re.compile(r"[/\\](?:\.?[/\\])*")


_HERE = re.compile(r"\A\./+(?=[^/-])")
"""A reference to the working folder, which all relative paths begin in."""


def see_through(text: str) -> str:
    """Return the text without invisible characters, in Latin letters where others look alike."""
    if text.isascii():
        return _INVISIBLE.sub("", text)
    return _MARKER_BAR.join(map(_see_through, text.split(_MARKER_BAR)))


def _see_through(text: str) -> str:
    plain = unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)).translate(_TRANSLATION)
    return unicodedata.normalize("NFKC", plain)


def flatten(text: str) -> str:
    """Return the text with single spaces and plain separators of paths, seen through."""
    return " ".join(_SLASHES.sub("/", see_through(text)).split())


def flatten_value(value: Any) -> Any:
    match value:
        case str():
            path = flatten(value)
            return _HERE.sub("", path).rstrip("/") or path
        case Mapping():
            return {flatten(key): flatten_value(item) for key, item in value.items()}
        case list() | tuple():
            return [flatten_value(item) for item in value]
        case _:
            return value
