"""Events, and the replies that `fold` forms of them."""

from __future__ import annotations

import pytest

from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Failure,
    Finish,
    Image,
    Note,
    PartAdded,
    ReasoningDelta,
    Reclassify,
    Rejection,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    fold,
    use_reasoning_as_text,
)

CALL = ToolCall(id="c1", name="f", arguments={"a": "é"}, raw="<f>")


def test_fold_no_events_gives_empty_reply() -> None:
    reply = fold([])
    assert reply.text == reply.reasoning == ""
    assert reply.calls == ()
    assert reply.dialect is None


def test_fold_every_event_fills_the_reply() -> None:
    note = Note("code", "message")
    found: list[Event] = [
        ReasoningDelta("hm"),
        TextDelta("a"),
        TextDelta("b"),
        CallStart(0, "c1", "f", "hermes"),
        ArgumentsDelta(0, "{}"),
        CallEnd(0, CALL),
        CallRejected(Rejection("raw", "malformed", "problem")),
        note,
        Finish("stop", "eos"),
    ]
    reply = fold(found)
    assert (reply.text, reply.reasoning, reply.calls) == ("ab", "hm", (CALL,))
    assert reply.rejected == (Rejection("raw", "malformed", "problem"),)
    assert reply.notes == (note,)
    assert (reply.dialect, reply.stop_reason, reply.raw_stop_reason) == ("hermes", "stop", "eos")


def test_fold_reclassify_makes_text_and_calls_reasoning() -> None:
    reply = fold(
        [
            TextDelta("hm "),
            CallStart(0, "c1", "f"),
            CallEnd(0, CALL),
            Reclassify(),
            TextDelta("yes"),
        ]
    )
    assert (reply.reasoning, reply.text, reply.calls) == ("hm <f>", "yes", ())


def test_fold_withdrawn_call_is_not_made() -> None:
    reply = fold([CallStart(0, "c1", "f"), ArgumentsDelta(0, '{"a'), CallRejected(None, 0)])
    assert (reply.calls, reply.rejected) == ((), ())


def test_types_derived_properties_give_text() -> None:
    assert CALL.arguments_json == '{"a":"é"}'
    assert ToolCall(id="c", name="f", arguments={"a": "\ud800"}).arguments_json == '{"a":"\\ud800"}'
    parts = (Text("a"), Image(url="x"), Text("b"))
    assert ToolResult(call_id="c", name="f", content=parts).text == "a\nb"


def test_use_reasoning_as_text_fills_missing_answer() -> None:
    thought: list[Event] = [ReasoningDelta("h"), ReasoningDelta("m"), TextDelta(" \n")]
    for finish in (Finish("stop"), Finish("stop_sequence"), Finish()):
        reply = use_reasoning_as_text(fold([*thought, finish]))
        assert (reply.text, reply.reasoning) == ("hm", "hm")
        assert [note.code for note in reply.notes] == ["reasoning-as-text"]


@pytest.mark.parametrize(
    "rest",
    [
        [TextDelta("a"), Finish("stop")],
        [CallStart(0, "c1", "f"), CallEnd(0, CALL), Finish("calls")],
        [CallRejected(Rejection("f(", "malformed", "no", "$", "f")), Finish("stop")],
        [PartAdded(Image(url="x")), Finish("stop")],
        [Finish("length")],
        [Finish("filter")],
        [Finish("refusal")],
        [Failure("upstream", "gone", 502)],
    ],
)
def test_use_reasoning_as_text_leaves_other_replies_alone(rest: list[Event]) -> None:
    reply = fold([ReasoningDelta("hm"), *rest])
    assert use_reasoning_as_text(reply) is reply


def test_use_reasoning_as_text_needs_reasoning_that_can_be_read() -> None:
    for thought in (ReasoningDelta(" \n"), ReasoningDelta("", "signature")):
        reply = fold([thought, Finish("stop")])
        assert use_reasoning_as_text(reply) is reply
