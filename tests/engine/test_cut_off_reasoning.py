"""A reply that is cut off inside reasoning makes none of the drafts in it."""

from __future__ import annotations

import pytest

from tests.engine.support import build_request, prepare, read_reply
from toolspeak import Finish, Started, TextDelta
from toolspeak.types import StopReason, Trust

DRAFT = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
REASONS: list[StopReason] = ["length", "stop"]
TRUSTS: list[Trust] = ["strict", "standard", "lenient"]


@pytest.mark.parametrize("piece", [0, 7])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "ollama", "gemini"])
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("reason", REASONS)
def test_draft_in_reasoning_is_made_only_if_the_reply_ended_by_itself(
    reason: StopReason, trust: Trust, wire: str, piece: int
) -> None:
    sent = prepare(build_request(), mode="prompt", dialect="hermes", wire=wire, trust=trust)
    events = [Started(), TextDelta(f"<think>I could\n{DRAFT}"), Finish(reason)]
    made = [call.name for call in read_reply(sent, events, piece=piece).calls]
    assert made == (["now"] if reason == "stop" and trust != "strict" else [])
