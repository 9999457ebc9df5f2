"""The window of text that a model sees: how large it has to be, and whether it was too small.

Ollama cuts a prompt that is too long without a word, and so do others; then a model does not know
its tools. What a prompt must have at least, and what was counted, tells.
"""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from ..calls.schema import iter_strings
from ..types import Note, Request, Usage
from ..wires.framing import encode_json

_LETTERS_A_TOKEN = 3
"""Few texts have fewer: what has to fit a window is rather guessed too high."""
_MOST_LETTERS_A_TOKEN = 8
"""Hardly any text has more: a prompt is rather guessed too short before it is called cut."""
_USUAL, _ANSWER = 4096, 2048
_TOO_SHORT_TO_TELL = 1024
_LONGEST_WORD = 200
"""What is longer and has no space is a picture, or another file."""


def count_text(body: Any) -> int:
    """How many characters of text a request has."""
    return sum(len(text) for text in iter_strings(body) if len(text) < _LONGEST_WORD or " " in text)


def fits_context(request: Request, context: int | None) -> bool:
    """Whether a request is certainly no longer than a model can read, if that is known: no token
    is less than a byte."""
    told = to_builtins((request.messages, request.tools or ()))
    return context is None or len(encode_json(told)) <= context


def choose_context_window(body: Any, most_answer: int | None, context: int | None) -> int | None:
    """How many tokens a window has to have for a request and its answer; None if that is no more
    than any server gives. Powers of two: a server loads its model anew for each other size."""
    if context is not None:
        return context
    need = count_text(body) // _LETTERS_A_TOKEN + min(most_answer or _ANSWER, _ANSWER)
    window = _USUAL
    while window < need:
        window *= 2
    return window if window > _USUAL else None


def note_truncated_prompt(body: Any, written: bytes, usage: Usage | None) -> Note | None:
    """What to say if an upstream has read much less of a request than it was sent."""
    read = usage.input + usage.cached if usage else 0
    if read < _TOO_SHORT_TO_TELL:
        # Some count only what they had not read before, which may be next to nothing.
        return None
    if read >= len(written) // _MOST_LETTERS_A_TOKEN:
        # There can be no more letters than bytes; to count them takes a while.
        return None
    least = count_text(body) // _MOST_LETTERS_A_TOKEN
    if read >= least:
        return None
    told = f"the prompt has at least {least} tokens, and the upstream has read {read} of it: "
    return Note("prompt-truncated", f"{told}the beginning is lost; give the model a larger context")
