"""`fold` and what it makes of every event."""

from __future__ import annotations

from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    Image,
    Note,
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


def test_nothing_folds_to_an_empty_reply() -> None:
    reply = fold([])
    assert reply.text == reply.reasoning == ""
    assert reply.calls == ()
    assert reply.dialect is None


def test_everything() -> None:
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


def test_reclassify_turns_text_and_calls_into_reasoning() -> None:
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


def test_a_call_that_was_begun_and_taken_back_is_not_made() -> None:
    reply = fold([CallStart(0, "c1", "f"), ArgumentsDelta(0, '{"a'), CallRejected(None, 0)])
    assert (reply.calls, reply.rejected) == ((), ())


def test_derived_properties() -> None:
    assert CALL.arguments_json == '{"a":"é"}'
    assert ToolCall(id="c", name="f", arguments={"a": "\ud800"}).arguments_json == '{"a":"\\ud800"}'
    parts = (Text("a"), Image(url="x"), Text("b"))
    assert ToolResult(call_id="c", name="f", content=parts).text == "a\nb"


def test_reasoning_stands_in_for_an_answer() -> None:
    thought: list[Event] = [ReasoningDelta("h"), ReasoningDelta("m"), Finish("stop")]
    reply = fold(use_reasoning_as_text(thought))
    assert (reply.text, reply.reasoning) == ("hm", "hm")
    assert [note.code for note in reply.notes] == ["reasoning-as-text"]
    spoken: list[Event] = [ReasoningDelta("hm"), TextDelta("a"), Finish("stop")]
    assert list(use_reasoning_as_text(spoken)) == spoken
