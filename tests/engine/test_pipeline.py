"""The pipeline: what is held back, when the model is asked again, and which upstream is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.support import PipelineRun, build_request, user
from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Capabilities,
    Event,
    Failure,
    Finish,
    Message,
    ReasoningDelta,
    Rejection,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    fold,
)
from toolspeak.engine.attempt import Attempt
from toolspeak.engine.pipeline import ModeEvidence, Pipeline, run_pipeline
from toolspeak.engine.plan import ModelProfile
from toolspeak.errors import UpstreamError

CALL: list[Event] = [
    CallStart(0, "c1", "now"),
    ArgumentsDelta(0, "{}"),
    CallEnd(0, ToolCall(id="c1", name="now", arguments={})),
]
WORDS: list[Event] = [Started(), TextDelta("Let me look.")]
FAILURE = Failure("upstream", "it is gone", 502)
REJECTED: list[Event] = [
    CallRejected(Rejection("now(1)", "invalid-arguments", "1 is too much", "$.x", "now")),
    TextDelta("now(1)"),
]
CUT: list[Event] = [
    CallRejected(Rejection('{"x', "truncated", "it ends too soon", "$", "now")),
    TextDelta('now({"x)'),
]
SORRY = "I'm sorry, I don't have access to the time."


def start(*messages: Message, choice: str = "auto", **profile: Any) -> PipelineRun:
    request = build_request(*messages, tool_choice=ToolChoice(choice))  # pyright: ignore[reportArgumentType]
    profile.setdefault("mode", "native")
    return PipelineRun(Pipeline(request, [ModelProfile(model="m", **profile)], is_streaming=True))


class TestHoldback:
    def test_text_before_a_required_call_waits_for_the_call(self) -> None:
        waits = start(choice="required")
        assert waits.feed(WORDS) == []
        assert waits.feed(CALL[:1]) == [*WORDS, *CALL[:1]]
        assert waits.feed([*CALL[1:], Finish("calls")]) == CALL[1:]
        assert waits.end() == [Finish("calls")]

    def test_text_without_tools_in_doubt_passes_at_once(self) -> None:
        free = start()
        assert free.feed(WORDS) == WORDS
        assert free.feed([TextDelta(" Well."), Finish("stop")]) == [TextDelta(" Well.")]
        assert free.end() == [Finish("stop")]

    def test_failure_before_any_content_drops_held_text(self) -> None:
        assert start(choice="required").feed([*WORDS, FAILURE]) == [FAILURE]

    def test_failure_after_content_flushes_held_text(self) -> None:
        made = start()
        assert made.feed([Started(), TextDelta("In Oslo. ")])
        assert made.feed([*REJECTED, FAILURE]) == [*REJECTED, FAILURE]

    def test_opening_that_may_be_a_refusal_waits_until_decided(self) -> None:
        waits = start()
        assert waits.feed([Started(), TextDelta("I")]) == []
        late = TextDelta(
            " think that it is time to go home, as it is late, and the sun is low. " * 3
        )
        assert waits.feed([late]) == [Started(), TextDelta("I"), late]

    @pytest.mark.parametrize("said", [[TextDelta(SORRY)], REJECTED], ids=["refusal", "rejected"])
    def test_reply_that_cannot_be_retried_passes_at_once(self, said: list[Event]) -> None:
        assert start(retries=0).feed([Started(), *said]) == [Started(), *said]
        thought = ReasoningDelta("Hm.", "signed")
        assert start().feed([Started(), thought, *said]) == [Started(), thought, *said]
        assert start(choice="none").feed([Started(), *said]) == [Started(), *said]

    def test_repeated_call_without_retries_passes(self) -> None:
        made = start(*looped(3), retries=0)
        assert made.feed([*CALL, Finish("calls")]) == CALL
        assert made.end() == [Finish("calls")]

    def test_rejected_call_waits_for_the_end_of_the_reply(self) -> None:
        waits = start()
        assert waits.feed([*WORDS, *REJECTED, Finish("stop")]) == WORDS

    def test_call_after_a_rejected_call_flushes_both(self) -> None:
        waits = start()
        assert waits.feed([*REJECTED, *CALL, Finish("calls")]) == [*REJECTED, *CALL]
        assert waits.end() == [Finish("calls")]


class TestRetries:
    def test_invalid_call_is_retried_with_the_problem(self) -> None:
        made = start()
        made.feed([*REJECTED, Finish("stop", usage=Usage(input=5, output=2))])
        assert made.end() is None
        assert [outcome.kind for outcome in made.pipeline.recovery.outcomes] == ["invalid-call"]
        said, told = made.attempt.request.messages[-2:]
        assert said == Message("assistant", (Text("now(1)"),))
        assert "1 is too much" in str(told)
        assert made.feed([Started(), *CALL, Finish("calls", usage=Usage(input=7, output=1))])
        *notes, finish = made.end() or []
        assert isinstance(finish, Finish)
        assert finish.usage == Usage(input=12, output=3)
        assert [getattr(note, "code", "") for note in notes] == ["retried"]

    @pytest.mark.parametrize(
        ("said", "choice", "first", "second"),
        [
            (REJECTED, "auto", "Your call was not run.", "Your call is invalid."),
            (CUT, "auto", "Your call was cut off", "Your call was cut off again."),
            (WORDS, "required", "You must call one of these tools now", "Do not answer in text."),
        ],
        ids=["invalid", "cut off", "missing"],
    )
    def test_second_correction_is_shorter_than_the_first(
        self, said: list[Event], choice: str, first: str, second: str
    ) -> None:
        made = start(choice=choice, retries=4)
        told: list[Message] = []
        made.feed([*said, Finish("stop")])
        while len(told) < 2 and made.end() is None:
            told += made.attempt.request.messages[2:]
            made.feed([*said, Finish("stop")])
        assert [first in str(told[0]), second in str(told[1])] == [True, True]

    def test_retry_after_text_contributes_only_its_calls(self) -> None:
        made = start()
        assert made.feed([*WORDS, *REJECTED, Finish("stop")]) == WORDS
        assert made.end() is None
        assert made.feed([Started(), TextDelta("Of course!"), *CALL, Finish("calls")]) == CALL
        assert [getattr(note, "code", "") for note in made.end() or []] == [
            "retried",
            "dropped-text",
            "",
        ]

    def test_exhausted_retries_return_the_first_reply(self) -> None:
        made = start(retries=1)
        made.feed([TextDelta(SORRY), Finish("stop")])
        assert made.end() is None
        made.feed([TextDelta(SORRY + " Really."), Finish("stop")])
        assert (made.end() or [])[0] == TextDelta(SORRY)

    def test_missing_required_call_without_retries_raises(self) -> None:
        made = start(choice="required", retries=0)
        made.feed([*WORDS, Finish("stop")])
        with pytest.raises(UpstreamError, match="a tool call was required"):
            made.end()

    def test_signed_reasoning_is_never_followed_by_a_retry(self) -> None:
        made = start()
        thought = ReasoningDelta("Hm.", "signed")
        assert made.feed([thought, *REJECTED, Finish("stop")]) == [thought, *REJECTED]
        assert made.end() == [Finish("stop")]

    @pytest.mark.parametrize(
        ("mode", "constrained", "expected"),
        [
            ("native", None, "prompt"),
            ("native", True, "constrained"),
            ("prompt", None, "prompt"),
            ("prompt", True, "constrained"),
            ("constrained", True, "constrained"),
        ],
    )
    def test_missing_required_call_changes_the_mode(
        self, mode: str, constrained: bool | None, expected: str
    ) -> None:
        able = Capabilities(constrained=constrained)
        made = start(choice="required", mode=mode, capabilities=able)
        made.feed([*WORDS, Finish("stop")])
        assert made.end() is None
        assert made.attempt.plan.mode == expected


def looped(times: int, result: str = "noon") -> list[Message]:
    turns = [user("What time is it?")]
    for number in range(times):
        call = ToolCall(id=f"c{number}", name="now", arguments={})
        gave = ToolResult(call_id=f"c{number}", name="now", content=result or str(number))
        turns += [Message("assistant", (call,)), Message("tool", (gave,))]
    return turns


class TestLoopGuard:
    @pytest.mark.parametrize(
        ("times", "result", "stops"), [(3, "noon", True), (2, "noon", False), (3, "", False)]
    )
    def test_repeated_call_with_the_same_result_is_stopped(
        self, times: int, result: str, stops: bool
    ) -> None:
        made = start(*looped(times, result))
        assert made.feed([*CALL, Finish("calls")]) == ([] if stops else CALL)
        assert (made.end() is None) == stops
        if stops:
            assert "its result has not changed" in str(made.attempt.request.messages[-1])

    def test_call_with_other_arguments_passes(self) -> None:
        other = CallEnd(0, ToolCall(id="c1", name="now", arguments={"zone": "UTC"}))
        made = start(*looped(3))
        assert made.feed([*CALL[:2], other, Finish("calls")]) == [*CALL[:2], other]


NO_TOOLS = Failure("bad_request", "this model does not support tools", 400)
BUSY = Failure("overloaded", "try later", 529)


def failing(*failures: Failure | None) -> tuple[list[Attempt], Any]:
    """Return the attempts that were made, and a `send` that fails as told, then calls `now`."""
    attempts: list[Attempt] = []
    script = iter(failures)

    async def send(attempt: Attempt) -> None:
        attempts.append(attempt)
        if failure := next(script, None):
            raise UpstreamError(failure)

    return attempts, send


async def serve(pipeline: Pipeline, *failures: Failure | None) -> tuple[list[Attempt], list[Event]]:
    attempts, fail = failing(*failures)

    async def send(attempt: Attempt) -> None:
        await fail(attempt)
        pipeline.receive([Started(), *CALL, Finish("calls")])

    return attempts, await run_pipeline(pipeline, send)


def two_upstreams(**profile: Any) -> Pipeline:
    first = ModelProfile(upstream="one", model="m", **profile)
    second = ModelProfile(upstream="two", model="m2", **profile)
    return Pipeline(build_request(), [first, second], is_streaming=False)


class TestFallback:
    def test_busy_upstream_is_replaced_by_the_next(self) -> None:
        pipeline = two_upstreams()
        attempts, rest = asyncio.run(serve(pipeline, BUSY))
        assert [(one.profile.upstream, one.reason) for one in attempts] == [
            ("one", ""),
            ("two", "fallback"),
        ]
        assert attempts[1].outgoing.body["model"] == "m2"
        assert pipeline.failures == [("one", BUSY)]
        assert CALL[-1] in rest

    def test_bad_request_is_not_sent_to_another_upstream(self) -> None:
        failure = Failure("bad_request", "no", 400)
        with pytest.raises(UpstreamError, match="no"):
            asyncio.run(serve(two_upstreams(), failure))

    def test_last_upstream_that_fails_raises_its_error(self) -> None:
        pipeline = two_upstreams()
        with pytest.raises(UpstreamError, match="it is gone"):
            asyncio.run(serve(pipeline, BUSY, FAILURE))
        assert pipeline.failures == [("one", BUSY), ("two", FAILURE)]

    def test_upstream_that_breaks_off_after_text_is_not_replaced(self) -> None:
        first = ModelProfile(upstream="one", model="m", mode="native")
        other = ModelProfile(upstream="two", model="m")
        pipeline = Pipeline(build_request(), [first, other], is_streaming=True)
        steps = pipeline.run()
        next(steps)
        assert pipeline.receive([Started(), TextDelta("In Oslo it rains. ")])
        with pytest.raises(StopIteration) as end:
            steps.throw(UpstreamError(FAILURE))
        assert end.value.value == [FAILURE]


class TestToolRejection:
    def test_rejected_native_tools_are_sent_in_the_prompt(self) -> None:
        pipeline = Pipeline(build_request(), [ModelProfile(model="m")], is_streaming=False)
        attempts, rest = asyncio.run(serve(pipeline, NO_TOOLS))
        assert [(one.plan.mode, one.reason) for one in attempts] == [
            ("native", ""),
            ("prompt", "tools rejected"),
        ]
        assert pipeline.find_mode_evidence(fold(rest)) == ModeEvidence("", "m", True, None)

    def test_rejected_tools_of_a_configured_mode_raise(self) -> None:
        pipeline = Pipeline(
            build_request(), [ModelProfile(model="m", mode="native")], is_streaming=False
        )
        with pytest.raises(UpstreamError, match="does not support tools"):
            asyncio.run(serve(pipeline, NO_TOOLS))

    def test_second_failure_raises_the_rejection(self) -> None:
        pipeline = Pipeline(build_request(), [ModelProfile(model="m")], is_streaming=False)
        other = Failure("bad_request", "something else", 400)
        with pytest.raises(UpstreamError, match="does not support tools"):
            asyncio.run(serve(pipeline, NO_TOOLS, other))

    @pytest.mark.parametrize("said", [SORRY, ""], ids=["false refusal", "empty"])
    def test_ignored_native_tools_are_sent_in_the_prompt(self, said: str) -> None:
        made = start(mode="auto")
        modes = [made.attempt.plan.mode]
        for _ in range(2):
            made.feed([Started(), TextDelta(said), Finish("stop")])
            assert made.end() is None
            modes.append(made.attempt.plan.mode)
        assert modes == ["native", "native", "prompt"]
        sent = made.feed(made.pipeline.reader.read_events([*CALL, Finish("calls")]))
        reply = fold([*sent, *(made.end() or ())])
        assert made.pipeline.find_mode_evidence(reply) == ModeEvidence("", "m", True, None)

    def test_native_call_is_observed_as_native(self) -> None:
        pipeline = Pipeline(build_request(), [ModelProfile(model="m")], is_streaming=False)
        _, rest = asyncio.run(serve(pipeline))
        assert pipeline.find_mode_evidence(fold(rest)) == ModeEvidence("", "m", False, False)
