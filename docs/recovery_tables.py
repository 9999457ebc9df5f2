"""The tables of docs/reliability.md. Every example in them is tried."""

from __future__ import annotations

from toolspeak import (
    Message,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    fold,
)
from toolspeak.engine import Attempt, ModelProfile, ReplyReader, prepare_attempt
from toolspeak.engine.outcome import (
    OUTCOMES,
    Outcome,
    OutcomeKind,
    classify_reply,
    find_repeated_call,
)
from toolspeak.engine.recovery import RECOVERY_STEPS, STEPS, write_correction
from toolspeak.events import Finish, TextDelta

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
EXAMPLES: dict[OutcomeKind, str] = {
    "calls": CALL,
    "answer": "It is 12 °C in Oslo, and it rains.",
    "refusal": "I can't book flights, I can only look up the weather.",
    "invalid-call": CALL.replace("city", "town"),
    "unknown-tool": CALL.replace("get_weather", "search_web"),
    "missing-call": "Sure, I will look that up.",
    "false-refusal": "I'm sorry, but I don't have access to real-time weather data.",
    "truncated-call": CALL[:48],
    "near-call": f"Let me check. {CALL[11:-12]}",
    "repeated-call": CALL,
    "wrong-format": "It is 12 °C.",
    "empty": "",
}
TARGET = ModelProfile(model="m", mode="prompt", dialect="hermes")
CONDITIONS: dict[OutcomeKind, str] = {
    "missing-call": "where `tool_choice` is `required`",
    "wrong-format": "where `response_format` asks for JSON",
    "repeated-call": f"after the same call and result {TARGET.max_repeats} times in a row",
}
TOOL = Tool(
    name="get_weather",
    description="The current weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)


def tables() -> dict[str, str]:
    """Return the tables of the page by the names of their places."""
    return {
        "outcomes": _outcomes(),
        "steps": _steps(),
        "meanings": _meanings(),
        "corrections": _corrections(),
    }


def outcome_for(kind: OutcomeKind) -> tuple[Outcome, Attempt]:
    """Return the outcome of the example reply, and the attempt that it replies to."""
    call = ToolCall(id="c", name=TOOL.name, arguments={"city": "Oslo"})
    result = ToolResult(call_id="c", name=TOOL.name, content="rain")
    turns = (Message("assistant", (call,)), Message("tool", (result,)))
    asked = Message("user", (Text("How is the weather in Oslo?"),))
    messages = (asked, *turns * TARGET.max_repeats) if kind == "repeated-call" else (asked,)
    choice = ToolChoice("required" if kind == "missing-call" else "auto")
    form = ResponseFormat() if kind == "wrong-format" else None
    request = Request(
        model="m", messages=messages, tools=(TOOL,), tool_choice=choice, response_format=form
    )
    attempt = prepare_attempt(request, TARGET)
    read = ReplyReader(attempt).read_events
    reply = fold(read([TextDelta(EXAMPLES[kind]), Finish("stop")]))
    stuck = find_repeated_call(messages, TARGET.max_repeats)
    return classify_reply(reply, request, attempt.offered, stuck), attempt


def _outcomes() -> str:
    lines = ["| outcome | the reply is | for example |", "|---|---|---|"]
    for kind, meaning in OUTCOMES.items():
        found = outcome_for(kind)[0].kind
        assert found == kind, (found, kind)
        example = f"`{EXAMPLES[kind]}`" if EXAMPLES[kind] else ""
        if kind in CONDITIONS:
            example += f", {CONDITIONS[kind]}"
        lines.append(f"| `{kind}` | {meaning} | {example} |")
    return "\n".join(lines)


def _steps() -> str:
    most = max(map(len, RECOVERY_STEPS.values()))
    names = ("first", *("then",) * (most - 1))
    lines = [f"| outcome | {' | '.join(names)} |", "|---" * (most + 1) + "|"]
    for kind, steps in RECOVERY_STEPS.items():
        cells = [*steps, *[""] * (most - len(steps))]
        lines.append(f"| `{kind}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _meanings() -> str:
    rows = [f"| {step} | {meaning} |" for step, meaning in STEPS.items()]
    return "\n".join(["| step | the next attempt |", "|---|---|", *rows])


def _corrections() -> str:
    """What the model is told of two of the examples, the first time and the second."""
    lines: list[str] = []
    for kind in ("invalid-call", "false-refusal"):
        outcome, attempt = outcome_for(kind)
        for again in (False, True):
            told = write_correction(outcome, attempt.offered, attempt.dialect, is_second=again)
            when = "the second time" if again else "the first time"
            lines += [f"`{kind}`, {when}:", "", "```text", told, "```", ""]
    return "\n".join(lines[:-1])
