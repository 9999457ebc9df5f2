"""The file of a model's graded answers: one JSON object per line, written as they arrive.

{"key": "prompt simple_1", "model": "box/qwen3:8b", "mode": "prompt", "correct": true, …}

An interrupted run continues where it stopped. Of two lines with the same key, the later one counts.
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

_LINE_START = b'{"key":'
"""The start of every line, so that no other file is mistaken for one of answers."""


class GradedAnswer(Struct, frozen=True, kw_only=True):
    """A model's answer to one question in one mode, with its grade."""

    key: str
    model: str
    mode: str
    id: str
    """The question's id."""
    digest: str
    category: str
    correct: bool
    calls: list[dict[str, Any]] = []
    text: str = ""
    served_mode: str = ""
    """The mode of the final attempt: the gateway may fall back to another."""
    stop_reason: str = ""
    """`length` if the answer was truncated."""
    retries: int = 0
    input_tokens: int = 0
    """Of all prompts, retries included."""
    output_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    """The reason why there is no answer; the next run asks the question again."""


_DECODER = msgspec.json.Decoder(GradedAnswer)


def answer_key(mode: str, question: EvalQuestion) -> str:
    return f"{mode} {question.id}"


class AnswerFile:
    """The answers of one model, including those of earlier runs."""

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
        self._file.close()

    def add(self, answer: GradedAnswer) -> None:
        """Append an answer; it is in the file when this returns."""
        self._answers[answer.key] = answer
        line = json.dumps(msgspec.to_builtins(answer), ensure_ascii=False)
        # A model may write lone surrogates, which UTF-8 cannot encode.
        self._file.write(line.encode("utf-8", "replace") + b"\n")
        self._file.flush()

    def get(self, mode: str, question: EvalQuestion) -> GradedAnswer | None:
        """Return the answer to this version of a question, also a failed one, or None."""
        answer = self._answers.get(answer_key(mode, question))
        return answer if answer and answer.digest == question.digest else None

    def find_unanswered(
        self, modes: Iterable[str], questions: Iterable[EvalQuestion]
    ) -> Iterator[tuple[str, EvalQuestion]]:
        """Yield each mode and question without an answer.

        All modes of a question come together, so that the modes can be compared even if the run
        is interrupted.
        """
        modes = list(modes)
        for question in questions:
            for mode in modes:
                answer = self.get(mode, question)
                if answer is None or answer.error:
                    yield mode, question

    def _check_format(self, data: bytes, whole: bytes) -> None:
        """Refuse to truncate or overwrite a file that does not contain answers."""
        first, rest = data[: len(_LINE_START)], data[len(whole) :][: len(_LINE_START)]
        if not (_LINE_START.startswith(first) and _LINE_START.startswith(rest)):
            raise UsageError(f"{self.path} is not a file of answers: choose another with --out")

    def _add_line(self, line: bytes, place: str, model: str) -> None:
        try:
            answer = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            advice = "delete the line, or start over with --fresh"
            raise UsageError(f"{place} is not an answer: {problem}; {advice}") from None
        if answer.model != model:
            raise UsageError(
                f"{place} is an answer of {answer.model}, not of {model}: "
                "choose another file with --out, or start over with --fresh"
            )
        self._answers[answer.key] = answer
