"""Ask a model the questions of an evaluation, and keep its graded answers in a file.

    async with connect_model(config, "box/qwen3:8b") as connection:
        runner = EvalRunner(connection, timeout=600, max_tokens=1024)
        await runner.ask_questions(answers.find_unanswered(modes, questions), answers.add)

The questions go through the same pipeline as the gateway's requests. The file has one JSON object
per line, written as the answers arrive. Of two lines with the same key, the later one counts.

{"key": "prompt simple_1", "model": "box/qwen3:8b", "mode": "prompt", "correct": true, …}
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Struct, structs

from ..calls.tools import as_tools
from ..errors import ToolspeakError, UpstreamError, UsageError
from ..types import Message, Reply, Request, Text, ToolsMode, Usage
from ..upstream.catalog import ResolvedModel
from ..upstream.model_call import ModelCall
from ..upstream.model_connection import ModelConnection
from ..upstream.record import RequestRecord
from .questions import EvalQuestion, is_correct

_MAX_TEXT = 500
"""Characters of an answer's text that the file keeps."""
_LINE_START = b'{"key":'
"""The start of every line, so that no other file is mistaken for one of answers."""


class GradedAnswer(Struct, frozen=True, kw_only=True):
    """A model's answer to one question in one mode, with its grade."""

    key: str
    model: str
    mode: ToolsMode
    id: str
    """The question's id."""
    digest: str
    category: str
    correct: bool
    calls: list[dict[str, Any]] = []
    text: str = ""
    served_mode: str = ""
    """The mode of the final attempt: a retry may use another mode."""
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


# Asking.


class EvalRunner(Struct, frozen=True):
    """Asks one model the questions, in any mode."""

    connection: ModelConnection
    timeout: float
    """Seconds for one question."""
    max_tokens: int
    """For one answer: a small model may repeat itself without end."""
    retries: int | None = None
    """How many times the model is asked again; None keeps the configured number."""

    async def ask_questions(
        self,
        work: Iterable[tuple[ToolsMode, EvalQuestion]],
        on_answer: Callable[[GradedAnswer], None],
        *,
        concurrency: int = 1,
    ) -> None:
        """Ask each question in its mode, up to `concurrency` at a time."""
        remaining = iter(work)

        async def ask_remaining() -> None:
            for mode, question in remaining:
                on_answer(await self.ask(mode, question))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(ask_remaining())
        except ExceptionGroup as problems:
            raise problems.exceptions[0] from None

    async def ask(self, mode: ToolsMode, question: EvalQuestion) -> GradedAnswer:
        """Ask a question and grade the reply; a failure becomes an answer with `error` set."""
        model = await self.connection.resolve()
        record, reply, error = RequestRecord(), Reply(), ""
        began = perf_counter()
        try:
            async with asyncio.timeout(self.timeout):
                reply = await self._send(self._set_mode(model, mode), question, record)
        except TimeoutError:
            error = f"no answer within {self.timeout:g} s"
        except UpstreamError as problem:
            error = f"HTTP {problem.failure.status}: {problem}"
        except ToolspeakError as problem:
            error = f"the question cannot be sent: {problem}"
        return GradedAnswer(
            key=answer_key(mode, question),
            model=full_name(model),
            mode=mode,
            id=question.id,
            digest=question.digest,
            category=question.category,
            correct=not error and is_correct(question, reply.calls),
            seconds=round(perf_counter() - began, 4),
            error=error,
            **_describe_reply(reply, record),
        )

    async def _send(
        self, model: ResolvedModel, question: EvalQuestion, record: RequestRecord
    ) -> Reply:
        request = Request(
            model=model.name,
            messages=(Message("user", (Text(question.question),)),),
            tools=as_tools(question.tools),
            sampling={"temperature": 0},
            max_tokens=self.max_tokens,
        )
        call = ModelCall(self.connection.services, request, model, record=record)
        return call.fold(await call.run())

    def _set_mode(self, model: ResolvedModel, mode: ToolsMode) -> ResolvedModel:
        """Return the model in one mode, without fallbacks: another model must not answer."""
        retries = model.profile.retries if self.retries is None else self.retries
        profile = structs.replace(model.profile, mode=mode, retries=retries)
        return structs.replace(model, profile=profile, fallbacks=())


def _describe_reply(reply: Reply, record: RequestRecord) -> dict[str, Any]:
    usage = reply.usage or Usage()
    return {
        "calls": [{"name": call.name, "arguments": call.arguments} for call in reply.calls],
        "text": reply.text[:_MAX_TEXT],
        "served_mode": record.mode,
        "stop_reason": reply.stop_reason or "",
        "retries": len(record.retries),
        "input_tokens": usage.input,
        "output_tokens": usage.output,
    }


def full_name(model: ResolvedModel) -> str:
    return f"{model.endpoint.name}/{model.profile.model}"


# The file of answers.


def answer_key(mode: ToolsMode, question: EvalQuestion) -> str:
    return f"{mode} {question.id}"


class AnswerFile(Struct):
    """The answers of one model, including those of earlier runs; made by `open_answers`."""

    path: Path
    answers: dict[str, GradedAnswer]
    """By their keys."""

    def add(self, answer: GradedAnswer) -> None:
        """Append an answer; it is in the file when this returns."""
        self.answers[answer.key] = answer
        line = json.dumps(msgspec.to_builtins(answer), ensure_ascii=False)
        # A model may write lone surrogates, which UTF-8 cannot encode.
        with self.path.open("ab") as file:
            file.write(line.encode("utf-8", "replace") + b"\n")

    def get(self, mode: ToolsMode, question: EvalQuestion) -> GradedAnswer | None:
        """Return the answer to this version of a question, also a failed one, or None."""
        answer = self.answers.get(answer_key(mode, question))
        return answer if answer and answer.digest == question.digest else None

    def find_unanswered(
        self, modes: Sequence[ToolsMode], questions: Iterable[EvalQuestion]
    ) -> Iterator[tuple[ToolsMode, EvalQuestion]]:
        """Yield each mode and question without an answer.

        All modes of a question come together, so that the modes can be compared even if the run
        is interrupted.
        """
        for question in questions:
            for mode in modes:
                answer = self.get(mode, question)
                if answer is None or answer.error:
                    yield mode, question


def open_answers(path: Path, model: str, *, fresh: bool = False) -> AnswerFile:
    """Open a file of answers, or create it; `fresh` discards the answers that it has.

    An incomplete last line is removed: an interrupted run has left it.
    """
    data = path.read_bytes() if path.exists() else b""
    complete = data[: data.rfind(b"\n") + 1]
    for part in (data, data[len(complete) :]):
        # Never truncate or overwrite a file of another kind.
        if not _LINE_START.startswith(part[: len(_LINE_START)]):
            raise UsageError(f"{path} is not an answers file: choose another with --out")
    if fresh:
        complete = b""
    lines = enumerate(complete.splitlines(), 1)
    answers = [_decode_answer(line, f"{path}, line {number}", model) for number, line in lines]
    path.touch()
    if len(complete) < len(data):
        os.truncate(path, len(complete))
    return AnswerFile(path, {answer.key: answer for answer in answers})


def _decode_answer(line: bytes, place: str, model: str) -> GradedAnswer:
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
    return answer
