"""What leaves of a reply while it comes, and what waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.support import asked, user
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
)
from toolspeak.engine.attempt import Attempt
from toolspeak.engine.pipeline import NoCallMade, Pipeline
from toolspeak.engine.plan import ModelProfile

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


def ladder(*messages: Message, choice: str = "auto", **target: Any) -> Pipeline:
    request = asked(*messages, tool_choice=ToolChoice(choice))  # pyright: ignore[reportArgumentType]
    target.setdefault("mode", "native")
    made = Pipeline(request, ModelProfile(model="m", **target), streams=True)
    made.exchange()
    return made


def following(made: Pipeline) -> Attempt:
    exchange = made.exchange()
    assert exchange
    return exchange


class TestWhatWaits:
    def test_where_a_call_is_required_all_waits_for_it(self) -> None:
        waits = ladder(choice="required")
        assert waits.feed(WORDS) == []
        assert waits.feed(CALL[:1]) == [*WORDS, *CALL[:1]]
        assert waits.feed([*CALL[1:], Finish("calls")]) == CALL[1:]
        assert waits.end() == [Finish("calls")]

    def test_words_leave_at_once(self) -> None:
        free = ladder()
        assert free.feed(WORDS) == WORDS
        assert free.feed([TextDelta(" Well."), Finish("stop")]) == [TextDelta(" Well.")]
        assert free.end() == [Finish("stop")]

    def test_before_anything_has_left_a_failure_is_all_that_the_client_gets(self) -> None:
        assert ladder(choice="required").feed([*WORDS, FAILURE]) == [FAILURE]

    def test_after_that_it_lets_go_of_everything(self) -> None:
        made = ladder()
        assert made.feed([Started(), TextDelta("In Oslo. ")])
        assert made.feed([*REJECTED, FAILURE]) == [*REJECTED, FAILURE]

    def test_what_may_be_a_refusal_waits_until_it_is_certain(self) -> None:
        waits = ladder()
        assert waits.feed([Started(), TextDelta("I")]) == [Started()]
        late = TextDelta(
            " think that it is time to go home, as it is late, and the sun is low. " * 3
        )
        assert waits.feed([late]) == [TextDelta("I"), late]

    @pytest.mark.parametrize("said", [[TextDelta(SORRY)], REJECTED], ids=["refusal", "rejected"])
    def test_nothing_waits_where_nothing_can_be_taken_back(self, said: list[Event]) -> None:
        assert ladder(retries=0).feed([Started(), *said]) == [Started(), *said]
        thought = ReasoningDelta("Hm.", "signed")
        assert ladder().feed([Started(), thought, *said]) == [Started(), thought, *said]
        assert ladder(choice="none").feed([Started(), *said]) == [Started(), *said]

    def test_a_call_that_may_not_be_made_again_leaves_where_nothing_can_be_done(self) -> None:
        made = ladder(*looped(3), retries=0)
        assert made.feed([*CALL, Finish("calls")]) == CALL
        assert made.end() == [Finish("calls")]

    def test_a_call_that_is_not_made_waits_for_the_end(self) -> None:
        waits = ladder()
        assert waits.feed([*WORDS, *REJECTED, Finish("stop")]) == WORDS

    def test_a_call_after_one_that_is_not_made(self) -> None:
        waits = ladder()
        assert waits.feed([*REJECTED, *CALL, Finish("calls")]) == [*REJECTED, *CALL]
        assert waits.end() == [Finish("calls")]


class TestWhatComesNext:
    def test_the_model_is_told_what_was_wrong(self) -> None:
        made = ladder()
        made.feed([*REJECTED, Finish("stop", usage=Usage(input=5, output=2))])
        assert made.end() is None
        assert [outcome.kind for outcome in made.outcomes] == ["invalid-call"]
        said, told = following(made).request.messages[-2:]
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
            (REJECTED, "auto", "Your call was not executed.", "Your call is still invalid."),
            (CUT, "auto", "Your call was cut off", "Your call was cut off again."),
            (WORDS, "required", "You must call one of these tools now", "Do not answer in text."),
        ],
        ids=["invalid", "cut off", "missing"],
    )
    def test_what_it_is_told_the_first_time_and_the_second(
        self, said: list[Event], choice: str, first: str, second: str
    ) -> None:
        made = ladder(choice=choice, retries=4)
        told: list[Message] = []
        made.feed([*said, Finish("stop")])
        while len(told) < 2 and made.end() is None:
            told += following(made).request.messages[2:]
            made.feed([*said, Finish("stop")])
        assert [first in str(told[0]), second in str(told[1])] == [True, True]

    def test_only_calls_are_taken_once_it_has_spoken(self) -> None:
        made = ladder()
        assert made.feed([*WORDS, *REJECTED, Finish("stop")]) == WORDS
        assert made.end() is None
        made.exchange()
        assert made.feed([Started(), TextDelta("Of course!"), *CALL, Finish("calls")]) == CALL
        assert [getattr(note, "code", "") for note in made.end() or []] == [
            "retried",
            "dropped-text",
            "",
        ]

    def test_after_all_attempts_the_first_reply_is_as_good_as_any(self) -> None:
        made = ladder(retries=1)
        made.feed([TextDelta(SORRY), Finish("stop")])
        assert made.end() is None
        made.exchange()
        made.feed([TextDelta(SORRY + " Really."), Finish("stop")])
        assert (made.end() or [])[0] == TextDelta(SORRY)

    def test_a_call_that_is_required_is_not_given_up_in_silence(self) -> None:
        made = ladder(choice="required", retries=0)
        made.feed([*WORDS, Finish("stop")])
        with pytest.raises(NoCallMade):
            made.end()

    def test_nothing_follows_a_signed_thought(self) -> None:
        made = ladder()
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
    def test_a_required_call_is_asked_for_in_a_stronger_way(
        self, mode: str, constrained: bool | None, expected: str
    ) -> None:
        able = Capabilities(constrained=constrained)
        made = ladder(choice="required", mode=mode, capabilities=able)
        made.feed([*WORDS, Finish("stop")])
        assert made.end() is None
        assert following(made).plan.mode == expected


def looped(times: int, result: str = "noon") -> list[Message]:
    turns = [user("What time is it?")]
    for number in range(times):
        call = ToolCall(id=f"c{number}", name="now", arguments={})
        gave = ToolResult(call_id=f"c{number}", name="now", content=result or str(number))
        turns += [Message("assistant", (call,)), Message("tool", (gave,))]
    return turns


class TestLoops:
    @pytest.mark.parametrize(
        ("times", "result", "stops"), [(3, "noon", True), (2, "noon", False), (3, "", False)]
    )
    def test_a_call_that_changes_nothing_is_not_made_for_ever(
        self, times: int, result: str, stops: bool
    ) -> None:
        made = ladder(*looped(times, result))
        assert made.feed([*CALL, Finish("calls")]) == ([] if stops else CALL)
        assert (made.end() is None) == stops
        if stops:
            assert "its result has not changed" in str(following(made).request.messages[-1])

    def test_another_call_is_made(self) -> None:
        other = CallEnd(0, ToolCall(id="c1", name="now", arguments={"zone": "UTC"}))
        made = ladder(*looped(3))
        assert made.feed([*CALL[:2], other, Finish("calls")]) == [*CALL[:2], other]
