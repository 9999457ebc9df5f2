"""Reasoning: what counts as such, which calls in it are made, and when it is the answer."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.engine.support import PipelineRun, build_request, prepare, read_reply, user
from toolspeak import (
    CallEnd,
    CallStart,
    Capabilities,
    Event,
    Finish,
    ReasoningDelta,
    Reply,
    Request,
    Started,
    TextDelta,
    ToolCall,
    ToolChoice,
    extract,
    fold,
)
from toolspeak.engine import ModelProfile, Pipeline, plan
from toolspeak.engine.holdback import MAX_REASONING
from toolspeak.types import StopReason, ToolsMode, Trust

DRAFT = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
THOUGHT = f"I could\n{DRAFT}\nor not."
REASONS: list[StopReason] = ["length", "stop"]
TRUSTS: list[Trust] = ["strict", "standard", "lenient"]
WIRES = ["openai_chat", "openai_responses", "anthropic", "ollama", "gemini"]
MODES: list[ToolsMode] = ["native", "prompt"]
every_wire = pytest.mark.parametrize("wire", WIRES)
whole_and_streamed = pytest.mark.parametrize("piece", [0, 7])


# Drafts: calls in reasoning.


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("reason", REASONS)
def test_draft_at_the_end_of_open_reasoning_is_made_only_if_the_reply_ended_by_itself(
    reason: StopReason, trust: Trust, wire: str, piece: int
) -> None:
    sent = prepare(build_request(), mode="prompt", dialect="hermes", wire=wire, trust=trust)
    events = [Started(), TextDelta(f"<think>I could\n{DRAFT}"), Finish(reason)]
    made = [call.name for call in read_reply(sent, events, piece=piece).calls]
    assert made == (["now"] if reason == "stop" and trust != "strict" else [])


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("reason", REASONS)
def test_draft_in_separate_reasoning_counts_like_one_in_tags(
    reason: StopReason, trust: Trust, mode: ToolsMode, wire: str, piece: int
) -> None:
    sent = prepare(build_request(), mode=mode, wire=wire, trust=trust)
    thoughts: list[list[Event]] = [
        [ReasoningDelta(THOUGHT[:20]), ReasoningDelta(THOUGHT[20:])],
        [TextDelta(f"<think>{THOUGHT}</think>")],
    ]
    is_made = reason == "stop" and trust == "lenient"
    for thought in thoughts:
        for rest in ([], [TextDelta("So, no.")]):
            reply = read_reply(sent, [Started(), *thought, *rest, Finish(reason)], piece=piece)
            assert [call.name for call in reply.calls] == (["now"] if is_made else [])
            assert "call-from-reasoning" in {note.code for note in reply.notes} or not is_made
            assert reply.stop_reason == ("calls" if is_made else reason)
            assert reply.text == "".join(event.text for event in rest)
            assert "I could" in reply.reasoning


@whole_and_streamed
@every_wire
def test_draft_is_not_made_if_there_is_a_call_outside_the_reasoning(wire: str, piece: int) -> None:
    call = ToolCall(id="c1", name="get_weather", arguments={"city": "Oslo"})
    native = [CallStart(0, "c1", "get_weather"), CallEnd(0, call)]
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    sent = prepare(build_request(), mode="native", wire=wire, trust="lenient")
    for calls in (native, [TextDelta(text)]):
        events = [Started(), ReasoningDelta(THOUGHT), *calls, Finish("calls")]
        reply = read_reply(sent, events, piece=piece)
        assert [call.name for call in reply.calls] == ["get_weather"]


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("stop", ["stop", "length"])
def test_draft_in_separate_reasoning_counts_in_extract_too(trust: Trust, stop: str) -> None:
    for content in ("", None, "So, no."):
        message = {"role": "assistant", "content": content, "reasoning_content": THOUGHT}
        response = {"choices": [{"message": message, "finish_reason": stop}]}
        reply = extract(response, tools=[{"name": "now"}], trust=trust)
        is_made = trust == "lenient" and stop == "stop"
        assert [call.name for call in reply.calls] == (["now"] if is_made else [])
        assert reply.reasoning == THOUGHT
    unknown = {"role": "assistant", "content": "", "reasoning_content": THOUGHT}
    assert not extract(unknown, tools=[{"name": "other"}], trust="lenient").calls


# Tags of reasoning in the text.

TEXTS = [
    "Models such as R1 emit <think> before the answer. Call me.",
    'Use re.compile(r"<think>(.*?)</think>", re.S).',
    "I think.</think>\n\nParis.",
    "I think</think>Paris.",
    "</think>Paris.",
]


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_open", [None, False])
def test_reply_is_text_unless_a_tag_opens_reasoning(
    is_open: bool | None, mode: ToolsMode, wire: str, piece: int
) -> None:
    capabilities = Capabilities(reasoning_open=is_open)
    sent = prepare(build_request(), mode=mode, wire=wire, capabilities=capabilities)
    assert sent.plan.reasoning_open is False
    for text in TEXTS:
        reply = read_reply(sent, [Started(), TextDelta(text), Finish("stop")], piece=piece)
        assert (reply.text, reply.reasoning) == (text, "")


@whole_and_streamed
@pytest.mark.parametrize("mode", MODES)
def test_reply_begins_with_reasoning_if_the_prompt_opens_it(mode: ToolsMode, piece: int) -> None:
    opened = Capabilities(reasoning_open=True)
    sent = prepare(build_request(), mode=mode, capabilities=opened)
    events = [Started(), TextDelta("I think.</think>\n\nParis.</think>"), Finish("stop")]
    reply = read_reply(sent, events, piece=piece)
    assert (reply.text, reply.reasoning) == ("Paris.</think>", "I think.")
    # The server separates the reasoning, whatever the prompt does.
    events = [Started(), ReasoningDelta("I think."), TextDelta("Paris."), Finish("stop")]
    reply = read_reply(sent, events, piece=piece)
    assert (reply.text, reply.reasoning) == ("Paris.", "I think.")


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("mode", MODES)
def test_tags_are_text_beside_separate_reasoning(mode: ToolsMode, wire: str, piece: int) -> None:
    sent = prepare(build_request(), mode=mode, wire=wire)
    for text in (*TEXTS, "<think>a</think>b", f"<think> is a tag.\n{DRAFT}"):
        events = [Started(), ReasoningDelta("Hm."), TextDelta(text), Finish("stop")]
        reply = read_reply(sent, events, piece=piece)
        assert reply.reasoning == "Hm."
        assert reply.text.strip() == text.removesuffix(DRAFT).strip()
        assert len(reply.calls) == (DRAFT in text)


def test_empty_reasoning_field_does_not_separate_reasoning() -> None:
    sent = prepare(build_request(), mode="native")
    events = [Started(), ReasoningDelta(""), TextDelta("<think>a</think>b"), Finish("stop")]
    for piece in (0, 7):
        reply = read_reply(sent, events, piece=piece)
        assert (reply.reasoning, reply.text) == ("a", "b")


def test_plan_without_a_probe_does_not_leave_reasoning_to_the_text() -> None:
    for known, expected in ((None, False), (False, False), (True, True)):
        profile = ModelProfile(model="m", capabilities=Capabilities(reasoning_open=known))
        assert plan.plan_request(build_request(), profile).reasoning_open is expected


# Replies that are only reasoning.

Kind = Literal["native", "prompt", "no tools"]
KINDS: list[Kind] = ["native", "prompt", "no tools"]


def run_pipeline(kind: Kind, events: list[Event], *, stream: bool, **profile: Any) -> Reply:
    """Return what a client gets for a reply."""
    request = build_request() if kind != "no tools" else Request(model="m", messages=(user("Hi"),))
    mode = "prompt" if kind == "prompt" else "native"
    pipeline = Pipeline(
        request, [ModelProfile(model="m", mode=mode, **profile)], is_streaming=stream
    )
    run = PipelineRun(pipeline)
    sent = run.feed(pipeline.reader.read_events(events))
    rest = run.end()
    assert rest is not None
    return fold([*sent, *rest])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_reply_that_is_only_reasoning_gets_it_as_its_text(kind: Kind, stream: bool) -> None:
    for text in ("", " \n"):
        for stop in ("stop", "stop_sequence", "calls", None):
            events = [ReasoningDelta("It is "), ReasoningDelta("42."), TextDelta(text)]
            reply = run_pipeline(kind, [Started(), *events, Finish(stop)], stream=stream)
            assert (reply.text.strip(), reply.reasoning) == ("It is 42.", "It is 42.")
            assert [note.code for note in reply.notes] == ["reasoning-as-text"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["native", "prompt"])
def test_thought_in_tags_that_is_the_whole_reply_is_its_text(kind: Kind, stream: bool) -> None:
    for text in (
        "<think>It is 42.</think>",
        "<think>It is 42.",
        "\n<think>\nIt is 42.\n</think>\n",
    ):
        reply = run_pipeline(kind, [Started(), TextDelta(text), Finish("stop")], stream=stream)
        assert (reply.text, reply.reasoning) == ("It is 42.", "It is 42.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_reply_with_an_answer_or_without_an_end_keeps_its_text(kind: Kind, stream: bool) -> None:
    thought = [Started(), ReasoningDelta("It is 42.")]
    for rest, text in (
        ([TextDelta("42"), Finish("stop")], "42"),
        ([Finish("length")], ""),
        ([Finish("filter")], ""),
        ([Finish("refusal")], ""),
    ):
        reply = run_pipeline(kind, [*thought, *rest], stream=stream)
        assert (reply.text, reply.reasoning) == (text, "It is 42.")
        assert not reply.notes
    call = ToolCall(id="c1", name="now", arguments={})
    if kind != "no tools":
        made: list[Event] = [CallStart(0, "c1", "now"), CallEnd(0, call), Finish("calls")]
        reply = run_pipeline(kind, [*thought, *made], stream=stream)
        assert (reply.text, len(reply.calls)) == ("", 1)


@pytest.mark.parametrize("stream", [False, True])
def test_very_long_reasoning_is_the_text_in_whole_or_not_at_all(stream: bool) -> None:
    piece = "x" * 1000
    for count, is_text in ((MAX_REASONING // 1000, True), (MAX_REASONING // 1000 + 1, False)):
        events: list[Event] = [ReasoningDelta(piece)] * count
        reply = run_pipeline("native", [Started(), *events, Finish("stop")], stream=stream)
        assert reply.reasoning == piece * count
        assert reply.text == (piece * count if is_text else "")
        events.append(TextDelta("Yes."))
        reply = run_pipeline("native", [Started(), *events, Finish("stop")], stream=stream)
        assert reply.text == "Yes."


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_does_not_replace_a_required_call(stream: bool) -> None:
    request = build_request(tool_choice=ToolChoice("required"))
    pipeline = Pipeline(request, [ModelProfile(model="m", retries=0)], is_streaming=stream)
    run = PipelineRun(pipeline)
    sent = run.feed(pipeline.reader.read_events([ReasoningDelta("Hm."), Finish("stop")]))
    assert not any(isinstance(event, TextDelta) for event in sent)
    with pytest.raises(Exception, match="a tool call was required"):
        run.end()
