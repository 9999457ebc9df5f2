"""Finds calls that only repeat a tool result or a document, so that they are not executed.

The guard recognises calls that are repeated verbatim or serialised again: in any wrapper, in JSON
strings, in HTML, in quoted or numbered lines, or split between two results. Invisible characters,
look-alike letters, spaces and the spelling of paths do not matter. It does not recognise
paraphrases.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ..calls.ids import CallKey, call_key
from ..calls.json_values import iter_strings
from ..calls.lenient_json import unescape
from .look_alikes import flatten, flatten_value, see_through
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
        return _contain(self._untrusted, _FlattenedCall(name, arguments, raw)) and not _contain(
            self._requested, _SearchedCall(name, arguments, raw)
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
    def _untrusted(self) -> list[_DecodedText]:
        texts = self._texts[0]
        seen_through = [plain for text in texts if (plain := see_through(text)) != text]
        decoded = self._decode(texts) + (self._decode(seen_through) if seen_through else [])
        plain = (plain for text in decoded if (plain := see_through(text)) != text)
        return [_FlattenedText(text, self._calls_in) for text in dict.fromkeys((*decoded, *plain))]

    @cached_property
    def _requested(self) -> list[_DecodedText]:
        """The user's requests, as they are spelled: another spelling is another request."""
        return [_DecodedText(text, self._calls_in) for text in self._decode(self._texts[1])]

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
    def __init__(self, name: str, arguments: Mapping[str, Any], raw: str) -> None:
        self.key = call_key(name, arguments)
        self.source = _collapse_spaces(raw)
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


class _FlattenedCall(_SearchedCall):
    """A call, however it is spelled."""

    def __init__(self, name: str, arguments: Mapping[str, Any], raw: str) -> None:
        super().__init__(see_through(name), flatten_value(dict(arguments)), flatten(raw))
        self.key = call_key(name, flatten_value(dict(arguments)))


class _DecodedText:
    """A text that may contain calls; it is parsed only for a call that it may contain."""

    def __init__(self, text: str, calls_in: Callable[[str], Iterable[FoundCall]]) -> None:
        self._text, self._calls_in = text, calls_in
        self._single_spaced = _collapse_spaces(text)
        self._alphanumerics = _alphanumerics(text)

    def contains_source(self, call: _SearchedCall) -> bool:
        return call.source != "" and call.source in self._single_spaced

    def contains_call(self, call: _SearchedCall) -> bool:
        return call.may_be_in(self._alphanumerics) and call.key in self._calls

    @cached_property
    def _calls(self) -> frozenset[CallKey]:
        return frozenset(call_key(*call) for call in self._calls_in(self._text))


class _FlattenedText(_DecodedText):
    """A text that may contain calls, however they are spelled."""

    def __init__(self, text: str, calls_in: Callable[[str], Iterable[FoundCall]]) -> None:
        super().__init__(text, calls_in)
        flat = flatten(text)
        self._single_spaced, self._alphanumerics = flat, _alphanumerics(flat)

    @cached_property
    def _calls(self) -> frozenset[CallKey]:
        found = self._calls_in(self._text)
        return frozenset(call_key(name, flatten_value(dict(given))) for name, given in found)


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
