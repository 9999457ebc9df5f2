"""Asks one model, through the bridge or around it. What an upstream refuses is a reply too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import structs

from ...dialects import Parser
from ...engine import Attempt, ModelProfile, Pipeline, ReplyReader, prepare_attempt, run_pipeline
from ...errors import UpstreamError, WireError
from ...events import Event, Reclassify, fold
from ...types import Failure, Plan, Reply, Request, ToolsMode
from ...upstream.catalog import ResolvedModel
from ...upstream.client import UpstreamClient
from ...upstream.model_call import read_reply
from ...wires.framing import decode_json, encode_json
from .questions import ProbeQuestion, build_chat_request, build_tool_request, user_message

_REFUSALS = frozenset({400, 404, 405, 415, 422, 500, 501})
"""What upstreams answer to requests that they do not take. After anything else nothing is known."""
_ROOM, _ROOM_TO_THINK = 160, 4000
"""Tokens: none of the questions needs many, but a model that thinks before it speaks does."""
_PATIENCE = 5.0
_HELLO = "How many days does a week have? Answer with one number."


class ModelProber:
    """Asks a model, and keeps the answers: the same question is not asked twice."""

    def __init__(
        self, served: ResolvedModel, upstreams: UpstreamClient, on_question: Callable[[str], None]
    ) -> None:
        self.endpoint = served.endpoint
        self.target: ModelProfile = structs.replace(served.profile, mode="auto")
        self.configured_context = served.context
        """What the configuration says."""
        self.request_count = 0
        self._upstreams = upstreams
        self._on_question = on_question
        self._what = ""
        self._room = _ROOM_TO_THINK
        self._sampling = {"temperature": 0.0}
        self._answers: dict[tuple[str, ToolsMode, str | None], Reply] = {}

    @property
    def text_call_dialects(self) -> list[str]:
        """The dialects of calls that the model wrote into its text, though it had tools."""
        native = (reply for (_, mode, _), reply in self._answers.items() if mode == "native")
        return [dialect for reply in native if (dialect := text_call_dialect(reply))]

    def start_step(self, what: str) -> None:
        """Say what is being found out."""
        self._what = what
        self._on_question(what)

    async def send_greeting(self) -> Reply:
        """The first question, which has to be answered: else there is nothing to probe. Some models
        can only be asked with the temperature that they have."""
        greeting = build_chat_request(user_message(_HELLO))
        reply = await self.send_unchanged(greeting)
        if reply.failure:
            self._sampling = {}
            reply = await self.send_unchanged(greeting)
        if reply.failure:
            raise UpstreamError(reply.failure)
        thinks, _ = locate_reasoning(reply)
        self._room = _ROOM_TO_THINK if thinks else _ROOM
        return reply

    async def ask(
        self, question: ProbeQuestion, mode: ToolsMode, dialect: str | None = None
    ) -> Reply:
        """What the model says to a question, with the tools given in this way."""
        key = question.title, mode, dialect
        if key not in self._answers:
            dialect = dialect or self.target.dialect
            target = structs.replace(self.target, mode=mode, dialect=dialect, retries=0)
            self._answers[key] = await self._run(build_tool_request(question), target)
        return self._answers[key]

    async def send_unchanged(self, request: Request, **fields: Any) -> Reply:
        """What the model says to a request that is sent as it stands, with these fields."""
        quirks = structs.replace(self.target.quirks, roles="any", after_results="")
        target = structs.replace(self.target, quirks=quirks)
        attempt = prepare_attempt(self._sized(request), target, Plan("native"))
        return fold(await self._ask(attempt, ReplyReader(attempt), fields))

    async def fetch_json(self, path: str, body: Any = None, *, at_root: bool = False) -> Any:
        """What the upstream tells at a path; None if it tells nothing there."""
        endpoint = self.endpoint
        if at_root:
            root = endpoint.base_url.removesuffix("/v1")
            endpoint = structs.replace(endpoint, base_url=root)
        data = None if body is None else encode_json(body)
        try:
            async with asyncio.timeout(_PATIENCE):
                with await self._upstreams.request(endpoint, path, data) as response:
                    told = await response.read_body()
                    return decode_json(told) if response.status == 200 else None
        except (UpstreamError, WireError, TimeoutError):
            return None

    async def _run(self, request: Request, profile: ModelProfile) -> Reply:
        """Ask through the engine. A failed reply is a reply too; the profile allows no retries."""
        pipeline = Pipeline(self._sized(request), [profile], is_streaming=False)

        async def send(attempt: Attempt) -> None:
            if attempt.is_decided:
                return
            if failures := pipeline.receive(await self._ask(attempt, pipeline.reader)):
                raise UpstreamError(next(one for one in failures if isinstance(one, Failure)))

        try:
            return fold(await run_pipeline(pipeline, send))
        except UpstreamError as problem:
            if problem.failure.status not in _REFUSALS:
                raise
            return fold([problem.failure])

    def _sized(self, request: Request) -> Request:
        sampling = {**self._sampling, **request.sampling}
        return structs.replace(request, max_tokens=self._room, sampling=sampling)

    async def _ask(
        self, attempt: Attempt, reader: ReplyReader, fields: dict[str, Any] | None = None
    ) -> list[Event]:
        """Send one attempt, with more fields in its body; return the events of the reply."""
        body = {**attempt.outgoing.body, **fields} if fields else attempt.outgoing.body
        self.request_count += 1
        self._on_question(self._what)
        events = await self._receive(reader, attempt.outgoing.path, body)
        for event in events:
            if isinstance(event, Failure) and event.status not in _REFUSALS:
                raise UpstreamError(event)
        return events

    async def _receive(self, reader: ReplyReader, path: str, body: Any) -> list[Event]:
        """Return a reply's events, or the failure. A rejected request is not sent again."""
        try:
            response = await self._upstreams.send(
                self.endpoint,
                path,
                encode_json(body),
                is_final=lambda failure: failure.status in _REFUSALS,
            )
        except UpstreamError as problem:
            return [problem.failure]
        with response:
            if response.status >= 300:
                return [(await response.read_error()).failure]
            return read_reply(reader, response, await response.read_body())[0]


def describe_failure(failure: Failure, longest: int = 100) -> str:
    """What an upstream says about a request that it does not take, in few words."""
    said = " ".join(failure.message.split())
    said = said if len(said) <= longest else f"{said[: longest - 1]}…"
    return f"{failure.status}: {said}"


def text_call_dialect(reply: Reply) -> str | None:
    """What a model wrote its calls in; None where they came by other means."""
    return reply.dialect if any(call.raw for call in reply.calls) else None


def locate_reasoning(reply: Reply) -> tuple[str, bool]:
    """Where a model's thoughts stand, if it has any: in a "field" of the reply, or in its "text";
    and whether they begin without a mark there, as the prompt has opened them."""
    if reply.reasoning:
        return "field", False
    parser = Parser()
    events = [*parser.feed(reply.text), *parser.finish()]
    is_open = any(isinstance(event, Reclassify) for event in events)
    return ("text", is_open) if fold(events).reasoning else ("", False)
