"""What tools and documents bring in must not be read as markup, neither by the model's template nor
by our own parser.

    <tool_call>   ->   <·tool_call>      with a character for the dot that the request has nowhere

Whatever the model repeats of it has the mark, which is taken out of all that a client sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, to_builtins

from ..calls.schema import iter_strings
from ..dialects.marker_table import marker_table_for
from ..dialects.registry import EVERY_DIALECT
from ..dialects.template import END_OF_TURN_TOKENS, LLAMA_END_TOKENS
from ..errors import WireError
from ..types import Request

_MARKS = range(0xF5C0, 0x110000)
"""Characters that nobody has given a meaning, and then all the others that follow."""
_SHORTEST = 4
_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]", "<|endoftext|>", "<|im_start|>", "<|im_end|>")


class Escaper(Struct, frozen=True):
    """The character that makes markup inert; none if there is nothing to make inert."""

    character: str = ""

    def escape(self, text: str) -> str:
        """Text that holds no markup any more."""
        if not self.character:
            return text
        return _markup().sub(lambda found: f"{found[0][0]}{self.character}{found[0][1:]}", text)

    def unescape(self, text: str) -> str:
        """The text as it was."""
        return text.replace(self.character, "") if self.character else text

    def unescape_value(self, value: Any) -> Any:
        """A decoded value with all its texts as they were."""
        if not self.character:
            return value
        match value:
            case str():
                return self.unescape(value)
            case Mapping():
                return {
                    self.unescape(key): self.unescape_value(item) for key, item in value.items()
                }
            case list():
                return [self.unescape_value(item) for item in value]
            case _:
                return value


NO_ESCAPER = Escaper()


def choose_escaper(request: Request, foreign: Iterable[str]) -> Escaper:
    """The mark for a request, if anything that was brought in holds markup."""
    markup = _markup()
    if not any(markup.search(text) for text in foreign):
        return NO_ESCAPER
    said = set("".join(iter_strings(to_builtins((request.messages, request.tools)))))
    unused = next((mark for mark in map(chr, _MARKS) if mark not in said), "")
    if not unused:
        raise WireError("the request holds every character there is", "$.messages")
    return Escaper(unused)


@lru_cache(maxsize=1)
def _markup() -> re.Pattern[str]:
    """What may open or close a call, a thought or a turn in any dialect or chat template. Fences
    are left alone: code is full of them, and a fence alone makes no call."""
    grammar = marker_table_for(EVERY_DIALECT, None)
    found = {
        *(text for text, marker in grammar.markers.items() if not marker.is_bracket),
        *LLAMA_END_TOKENS,
        *END_OF_TURN_TOKENS,
        *_TOKENS,
    }
    literals = [text for text in found if len(text) >= _SHORTEST and text[0] in "<["]
    return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))))
