"""Asks a model the probe's questions. A rejected request is a reply too, with a failure.

The questions are so simple that a wrong answer does not come from a lack of intelligence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from .._util import encode_json
from ..calls.tools import as_tools
from ..dialects import Parser
from ..engine import Attempt, ModelProfile, Pipeline, run_pipeline
from ..engine.recovery import REJECTION_STATUSES
from ..errors import UpstreamError, WireError
from ..events import Reclassify, fold
from ..types import Failure, Message, Reply, Request, Text, ToolCall, ToolResult, ToolsMode
from ..upstream.catalog import ResolvedModel
from ..upstream.client import UpstreamClient
from ..upstream.model_call import read_reply
from ..wires.framing import decode_json
from .questions import has_expected_calls

_MAX_TOKENS, _MAX_TOKENS_WITH_REASONING = 160, 4000
_FETCH_TIMEOUT = 5.0

# The questions.

_CITY = {"type": "string", "description": "The name of the city."}
_MINUTES = {"type": "integer", "description": "How long it runs."}


def _declare_tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


_TOOL_ROWS = [
    _declare_tool("get_weather", "Tells the weather in a city.", city=_CITY),
    _declare_tool("add", "Adds two numbers.", a={"type": "integer"}, b={"type": "integer"}),
    _declare_tool("set_timer", "Starts a timer.", minutes=_MINUTES),
]
TOOLS = as_tools(_TOOL_ROWS)


class ProbeQuestion(Struct, frozen=True):
    """A question asked with tools on offer, and the reply that is correct."""

    title: str
    messages: tuple[Message, ...]
    truth: dict[str, Any] = {}
    """The expected call, as in `questions.py`; empty if the correct reply has none."""
    expected_words: tuple[str, ...] = ()
    """A correct answer contains one of them."""

    def is_correct_reply(self, reply: Reply) -> bool:
        """Check for the expected call, or for an answer without any call."""
        if reply.failure or reply.rejected:
            return False
        if self.truth:
            return has_expected_calls(reply.calls, self.truth, _TOOL_ROWS)
        text = reply.text.lower()
        has_words = not self.expected_words or any(word in text for word in self.expected_words)
        return not reply.calls and bool(text.strip()) and has_words


def user_message(text: str) -> Message:
    return Message("user", (Text(text),))


# A city that no example in our prompts names: a model might just repeat the example.
_WEATHER = user_message("What is the weather in Paris?")
_CALL = ToolCall(id="call_a1b2c3d4e", name="get_weather", arguments={"city": "Paris"})
_RESULT = ToolResult(call_id=_CALL.id, name=_CALL.name, content="Rain, 9 degrees.")

CALL_QUESTIONS = (
    ProbeQuestion("weather", (_WEATHER,), {"get_weather": {"city": ["Paris", "Paris, France"]}}),
    ProbeQuestion(
        "sum", (user_message("Use the tool to add 17 and 25."),), {"add": {"a": [17], "b": [25]}}
    ),
    ProbeQuestion(
        "timer", (user_message("Start a timer of 5 minutes."),), {"set_timer": {"minutes": [5]}}
    ),
)
GREETING = ProbeQuestion("greeting", (user_message("Hello! How are you?"),))
AFTER_RESULT = ProbeQuestion(
    "result",
    (_WEATHER, Message("assistant", (_CALL,)), Message("tool", (_RESULT,))),
    expected_words=("rain", "9", "nine"),
)
QUESTIONS = (*CALL_QUESTIONS, GREETING, AFTER_RESULT)
_FIRST_QUESTION = "How many days does a week have? Answer with one number."


def build_chat_request(*messages: Message) -> Request:
    return Request(model="", messages=messages)


# Asking.


class ModelProber:
    """Asks one model, and keeps the replies: no question is asked twice."""

    def __init__(
        self, model: ResolvedModel, upstreams: UpstreamClient, on_step: Callable[[str], None]
    ) -> None:
        self.on_step = on_step
        """Receives the title of each step."""
        self.endpoint = model.endpoint
        self.profile: ModelProfile = structs.replace(model.profile, mode="auto")
        self.request_count = 0
        self._upstreams = upstreams
        self._max_tokens = _MAX_TOKENS_WITH_REASONING
        self._sampling = {"temperature": 0.0}
        self._replies: dict[tuple[str, ToolsMode, str | None], Reply] = {}

    @property
    def text_call_dialects(self) -> list[str]:
        """The dialects of calls that the model wrote into its text in native mode."""
        native = (reply for (_, mode, _), reply in self._replies.items() if mode == "native")
        return [dialect for reply in native if (dialect := get_text_call_dialect(reply))]

    def set_capabilities(self, **facts: bool) -> None:
        """Apply what was found out to all requests from now on."""
        capabilities = structs.replace(self.profile.capabilities, **facts)
        self.profile = structs.replace(self.profile, capabilities=capabilities)

    async def ask_first_question(self) -> Reply:
        """Ask a question without tools; raise `UpstreamError` if the model does not answer it.

        Some models reject any temperature but their own: then no request sets one.
        """
        request = build_chat_request(user_message(_FIRST_QUESTION))
        reply = await self.send_unchanged(request)
        if reply.failure:
            self._sampling = {}
            reply = await self.send_unchanged(request)
        if reply.failure:
            raise UpstreamError(reply.failure)
        if not locate_reasoning(reply):
            self._max_tokens = _MAX_TOKENS
        return reply

    async def ask(
        self, question: ProbeQuestion, mode: ToolsMode, dialect: str | None = None
    ) -> Reply:
        """Ask a question in a mode, through the pipeline and without retries."""
        key = question.title, mode, dialect
        if key not in self._replies:
            request = structs.replace(build_chat_request(*question.messages), tools=TOOLS)
            dialect = dialect or self.profile.dialect
            profile = structs.replace(self.profile, mode=mode, dialect=dialect)
            self._replies[key] = await self._run_pipeline(request, profile)
        return self._replies[key]

    async def send_unchanged(self, request: Request) -> Reply:
        """Send a request whose messages keep their roles."""
        quirks = structs.replace(self.profile.quirks, roles="any", after_results="")
        profile = structs.replace(self.profile, mode="native", quirks=quirks)
        return await self._run_pipeline(request, profile)

    async def fetch_json(self, path: str, body: Any = None) -> Any:
        """Return the JSON at a path of the upstream, or None if there is none.

        A path that begins with a slash is below the server's root, any other below its API.
        """
        endpoint = self.endpoint
        if path.startswith("/"):
            endpoint = structs.replace(endpoint, base_url=endpoint.base_url.removesuffix("/v1"))
        else:
            path = f"/{path}"
        data = None if body is None else encode_json(body)
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT):
                with await self._upstreams.request(endpoint, path, data) as response:
                    content = await response.read_body()
                    return decode_json(content) if response.status == 200 else None
        except (UpstreamError, WireError, TimeoutError):
            return None

    async def _run_pipeline(self, request: Request, profile: ModelProfile) -> Reply:
        """Return the reply without any retry; a rejection is a reply with a failure."""
        limited = structs.replace(request, max_tokens=self._max_tokens, sampling=self._sampling)
        profile = structs.replace(profile, retries=0)
        pipeline = Pipeline(limited, [profile], is_streaming=False)

        async def send(attempt: Attempt) -> None:
            if not attempt.is_decided:
                await self._send(pipeline, attempt)

        try:
            return fold(await run_pipeline(pipeline, send))
        except UpstreamError as problem:
            if not _is_rejection(problem.failure):
                raise
            return fold([problem.failure])

    async def _send(self, pipeline: Pipeline, attempt: Attempt) -> None:
        """Send an attempt; a rejected one is not sent again, not even after status 500."""
        self.request_count += 1
        response = await self._upstreams.send(
            self.endpoint, attempt.outgoing.path, attempt.data, is_final=_is_rejection
        )
        with response:
            if response.status >= 300:
                raise await response.read_error()
            events, _ = read_reply(pipeline.reader, response, await response.read_body())
        for event in pipeline.receive(events):
            if isinstance(event, Failure):
                raise UpstreamError(event)


def _is_rejection(failure: Failure) -> bool:
    return failure.status in REJECTION_STATUSES


def get_text_call_dialect(reply: Reply) -> str | None:
    """Return the dialect of the calls in a reply's text, or None without such calls."""
    return reply.dialect if any(call.dialect for call in reply.calls) else None


def locate_reasoning(reply: Reply) -> str:
    """Return where a reply has its reasoning: "field", "text", "open" or "" if it has none.

    "open" is text without an opening tag: the prompt has opened the reasoning.
    """
    if reply.reasoning:
        return "field"
    parser = Parser()
    events = [*parser.feed(reply.text), *parser.finish()]
    if not fold(events).reasoning:
        return ""
    return "open" if any(isinstance(event, Reclassify) for event in events) else "text"
