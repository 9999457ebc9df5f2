"""What a model answered, kept in a file as it comes: one JSON object a line.

{"key": "prompt simple_1", "model": "box/qwen3:8b", "mode": "prompt", "right": true, …}

A run that was stopped goes on where it was. Of two lines with the same key the later one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import UsageError
from .questions import EvalQuestion

_BEGINNING = b'{"key":'
"""What every line begins with, so that nobody's other file is taken for one of these."""


class GradedAnswer(Struct, frozen=True, kw_only=True):
    """What came back for a question that was asked in one mode."""

    key: str
    model: str
    mode: str
    id: str
    """The question's."""
    digest: str
    category: str
    correct: bool
    calls: list[dict[str, Any]] = []
    text: str = ""
    served_mode: str = ""
    """The mode that the gateway says the answer came by: it may change it to ask again."""
    stop_reason: str = ""
    """Why the model stopped: `length` if it was cut off."""
    retries: int = 0
    input_tokens: int = 0
    """Tokens of all prompts."""
    output_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer; such a question is asked again in the next run."""


_DECODER = msgspec.json.Decoder(GradedAnswer)


def answer_key(mode: str, question: EvalQuestion) -> str:
    """What tells an answer from the others of a file."""
    return f"{mode} {question.id}"


class AnswerFile:
    """The answers of one model, those of earlier runs among them."""

    def __init__(self, path: Path, model: str, *, fresh: bool = False) -> None:
        self.path = path
        self._answers: dict[str, GradedAnswer] = {}
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        self._check_format(data, whole)
        if fresh:
            whole = b""
        for number, line in enumerate(whole.splitlines(), 1):
            self._add_line(line, f"{path}, line {number}", model)
        if len(whole) < len(data):
            os.truncate(path, len(whole))
        self._file = path.open("ab")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, answer: GradedAnswer) -> None:
        """Keep an answer; it is in the file when this returns."""
        self._answers[answer.key] = answer
        line = json.dumps(msgspec.to_builtins(answer), ensure_ascii=False)
        # A model may write half a character, which no file can hold.
        self._file.write(line.encode("utf-8", "replace") + b"\n")
        self._file.flush()

    def get(self, mode: str, question: EvalQuestion) -> GradedAnswer | None:
        """The answer to this very question, if there is one, be it that it failed."""
        answer = self._answers.get(answer_key(mode, question))
        return answer if answer and answer.digest == question.digest else None

    def find_unanswered(
        self, modes: Iterable[str], questions: Iterable[EvalQuestion]
    ) -> Iterator[tuple[str, EvalQuestion]]:
        """What there is still to ask. All modes of a question come together, so that a run can be
        compared wherever it is stopped."""
        modes = list(modes)
        for question in questions:
            for mode in modes:
                answer = self.get(mode, question)
                if answer is None or answer.error:
                    yield mode, question

    def _check_format(self, data: bytes, whole: bytes) -> None:
        """Neither a half-written line nor `fresh` may cost somebody another file."""
        first, rest = data[: len(_BEGINNING)], data[len(whole) :][: len(_BEGINNING)]
        if not (_BEGINNING.startswith(first) and _BEGINNING.startswith(rest)):
            raise UsageError(f"{self.path} is no file of answers; choose another with --out")

    def _add_line(self, line: bytes, place: str, model: str) -> None:
        try:
            answer = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            advice = "take the line out, or begin anew with --fresh"
            raise UsageError(f"{place} is no answer: {problem}; {advice}") from None
        if answer.model != model:
            raise UsageError(
                f"{place} is an answer of {answer.model}, not of {model}; "
                "choose another file with --out, or begin anew with --fresh"
            )
        self._answers[answer.key] = answer
