"""Escapes markup in tool results and documents, so that chat templates and our parser ignore it.

    <tool_call>   ->   <·tool_call>      the dot is a character that the request does not contain

What the model repeats of it contains the same character, which is removed from all that a client
receives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct, to_builtins

from ..calls.json_values import iter_strings, map_strings
from ..dialects.markers import EVERY_DIALECT, marker_table_for
from ..dialects.template import END_OF_TURN_TOKENS, LLAMA_END_TOKENS
from ..errors import WireError
from ..types import Request

_ESCAPE_CHARACTERS = range(0xF5C0, 0x110000)
"""Private-use characters first, then all that follow."""
_ORDINARY = ("word", "bracket")
"""Values of `Marker.position`: markers with these also occur in ordinary text."""
_MIN_MARKER = 4
_COMMON_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]", "<|endoftext|>", "<|im_start|>", "<|im_end|>")


class Escaper(Struct, frozen=True):
    """Escapes markup with one character; without a character it changes nothing."""

    character: str = ""

    def escape(self, text: str) -> str:
        if not self.character:
            return text
        return _markup().sub(lambda marker: f"{marker[0][0]}{self.character}{marker[0][1:]}", text)

    def unescape(self, text: str) -> str:
        return text.replace(self.character, "") if self.character else text

    def unescape_value(self, value: Any) -> Any:
        """Unescape all strings in a decoded JSON value."""
        return map_strings(value, self.unescape) if self.character else value


NO_ESCAPER = Escaper()


def choose_escaper(request: Request, untrusted: Iterable[str]) -> Escaper:
    """Return an escaper for a request; `NO_ESCAPER` if no untrusted text contains markup."""
    markup = _markup()
    if not any(markup.search(text) for text in untrusted):
        return NO_ESCAPER
    used = set("".join(iter_strings(to_builtins((request.messages, request.tools)))))
    unused = next((one for one in map(chr, _ESCAPE_CHARACTERS) if one not in used), "")
    if not unused:
        raise WireError(
            "The messages contain every Unicode character; none is left to escape markup with. "
            "Shorten the conversation.",
            "$.messages",
        )
    return Escaper(unused)


@lru_cache(maxsize=1)
def _markup() -> re.Pattern[str]:
    """Return a pattern for the markers of calls, reasoning and turns in all dialects and templates.

    Fences are not escaped: code is full of them, and a fence alone is not a call.
    """
    table = marker_table_for(EVERY_DIALECT, None)
    markers = {
        *(text for text, marker in table.markers.items() if marker.position not in _ORDINARY),
        *LLAMA_END_TOKENS,
        *END_OF_TURN_TOKENS,
        *_COMMON_TOKENS,
    }
    literals = [text for text in markers if len(text) >= _MIN_MARKER and text[0] in "<["]
    return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))))
