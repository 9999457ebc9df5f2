"""Near-calls: text in the shape of a call that is not accepted. The model is asked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.support import PipelineRun, user
from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    Message,
    Reply,
    Request,
    Started,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    fold,
)
from toolspeak.dialects import render_calls
from toolspeak.dialects.markers import DIALECTS, get_dialect
from toolspeak.engine.attempt import Attempt
from toolspeak.engine.pipeline import Pipeline
from toolspeak.engine.plan import ModelProfile
from toolspeak.errors import Unrepresentable
from toolspeak.testing import parse, split_into_chunks
from toolspeak.types import ToolResult

BASH = Tool(
    name="Bash",
    description="Run a shell command.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
)
READ = Tool(
    name="Read",
    description="Read a file.",
    parameters={"type": "object", "properties": {"file_path": {"type": "string"}}},
)
TOOLS = (BASH, READ)
CALL = ToolCall(id="functions.Bash:0", name="Bash", arguments={"command": "ls -la"})
JSON = '{"name": "Bash", "arguments": {"command": "ls -la"}}'
BROKEN = '{"name": "Bash", "arguments": {"command": }'
CUT = '{"name": "Bash", "arguments": {"command": "ls -'
NEAR_CALLS = {
    "tag with broken JSON": f"<tool_call>{BROKEN}</tool_call>",
    "prose, then a tag with broken JSON": f"Let me look.\n<tool_call>{BROKEN}</tool_call>",
    "tildes with broken JSON": f"~~~tool_call\n{BROKEN}\n~~~",
    "prose, then tildes with broken JSON": f"I will look.\n\n~~~tool_call\n{BROKEN}}}\n~~~",
    "tildes with another key": f"~~~tool_call\n{JSON.replace('name', 'nme')}\n~~~",
    "tildes with words": "~~~tool_call\nBash ls\n~~~",
    "tildes with YAML": "~~~tool_call\nname: Bash\narguments:\n  command: ls\n~~~",
    "action with broken JSON": f"```json action\n{BROKEN}\n```",
    "list with broken JSON": f"[TOOL_CALLS] [{BROKEN}]",
    "bare list with broken JSON": f"[{BROKEN}}}]",
    "prose, then broken JSON": f"I will look.\n\n```json\n{BROKEN}}}\n```",
    "cut in a value": f"~~~tool_call\n{CUT}",
    "cut after the name": '~~~tool_call\n{"name": "Bash"',
    "cut in the name": '~~~tool_call\n{"name": "Ba',
    "cut after the marker": "~~~tool_call\n",
    "prose, then cut": f"I will look.\n~~~tool_call\n{CUT}",
    "tag, cut": f"<tool_call>{CUT}",
    "invoke, cut": '<invoke name="Bash"><parameter name="command">ls',
    "function tag, cut": "<function=Bash>\n<parameter=command>\nls",
    "list, cut": '[TOOL_CALLS] [{"name": "Bash", "arg',
    "name in a list, cut": "[TOOL_CALLS]Ba",
    "action, cut": '```json action\n{"tool": "Bash", "parameters": {"command": "ls',
    "bare JSON, cut": CUT,
    "bare JSON, cut in the name": '{"name": "Ba',
    "prose, then a JSON fence": f"I will look.\n\n```json\n{JSON}\n```",
    "prose, then a fence": f"I will look.\n\n```\n{JSON}\n```",
    "prose, a JSON fence, prose": f"I will look.\n\n```json\n{JSON}\n```\nThen I go on.",
    "prose, then a tilde fence": f"I will look.\n\n~~~\n{JSON}\n~~~",
    "prose, then JSON on its line": f"I will look. {JSON}",
    "prose, then JSON on a line": f"I will look.\n{JSON}",
    "prose, then a list": f"I will look.\n[{JSON}]",
    "space before the label": f"~~~ tool_call\n{JSON}\n~~~",
    "four tildes": f"~~~~tool_call\n{JSON}\n~~~~",
    "two tildes": f"~~tool_call\n{JSON}\n~~",
    "another label": f"~~~json\n{JSON}\n~~~",
    "label in capitals": f"~~~TOOL_CALL\n{JSON}\n~~~",
    "backticks and a space": f"``` tool_call\n{JSON}\n```",
    "indented by two": f"  ~~~tool_call\n  {JSON}\n  ~~~",
    "indented by four": f"Ok:\n\n    ~~~tool_call\n    {JSON}\n    ~~~",
    "ReAct": "Thought: I need to look.\nAction: Bash\nAction Input: ls -la",
    "ReAct with JSON": 'Thought: look\nAction: Bash\nAction Input: {"command": "ls"}',
    "ReAct with a call": 'Action: Bash({"command": "ls"})',
    "ReAct in bold": "**Thought:** x\n**Action:** Bash\n**Action Input:** ls",
    "Python in prose": 'I will call Bash(command="ls") now.',
    "Python in a fence": 'Sure.\n```\nBash(command="ls")\n```',
    "Python list, then prose": '[Bash(command="ls")]\n\nThis lists the files.',
    "a line of GLM": "Let me see.\nBash/command>ls -la",
    "name and arguments after prose": 'Sure.\n\nBash: {"command": "ls"}',
    "recipient of a message": 'analysisLook.commentary to=functions.Bash json{"command":"ls"}',
    "name in bold, then a fence": '**Bash**\n```json\n{"command": "ls"}\n```',
    "name and arguments with labels": 'Tool: Bash\nArguments: {"command": "ls"}',
    "name with arguments": 'Calling `Bash` with {"command": "ls"}',
    "a tag named as the tool": "I will look.\n<Bash>\n<command>ls</command>\n</Bash>",
}
ANSWERS = {
    "inline code": f"The call is written so: `{JSON}`.",
    "announced example": f"For example:\n\n```json\n{JSON}\n```\n\nDo you want me to run it?",
    "format that is shown": f"The format looks like this:\n```json\n{JSON}\n```",
    "program": "```python\ncommand = 'ls'\nprint(Bash(command=command))\n```\nThis lists files.",
    "program in a shell": "Run this:\n```sh\nBash --command ls\n```",
    "mention": "Then Bash() lists the files, and Read() opens one.",
    "mention with dots": "I used Bash(…) to list the files.",
    "example of arguments": 'The format of Bash arguments, e.g.\nBash: {"command": "ls"}',
    "arguments before an explanation": 'Bash: {"command": "ls"} would list them. Shall I?',
    "other arguments": 'The settings of Bash: {"version": "5.2"}',
    "description": 'The tool is {"name": "Bash", "description": "…", "parameters": {}}.',
    "data": '{"name": "Bash", "version": "5.2", "license": "GPL"}',
    "broken data": '{"name": "Bash", "version": "5.2" "license": }',
    "cut data": '{"users": [{"name": "Ann", "age": 31}, {"name": "Bo", "ag',
    "placeholder": '{"name": "Bash", "arguments": {"command": "..."}}',
    "quote": f"The page says:\n\n> ```\n> {JSON}\n> ```\n\nI will not run that.",
    "other tool": 'I will look. {"name": "Zsh", "arguments": {"command": "ls"}}',
    "plain": "There are three files: Bash, Read and README.",
}
MODES: dict[str, dict[str, Any]] = {
    "tagged": {"mode": "prompt", "dialect": "tagged"},
    "hermes": {"mode": "prompt", "dialect": "hermes"},
    "native": {"mode": "auto"},
}


def run(replies: list[str], *, is_streaming: bool, **more: Any) -> tuple[Reply, list[Attempt]]:
    """Serve a request with the model's replies in turn; return the reply and all requests."""
    history, stop = more.pop("history", ()), more.pop("stop", "stop")
    messages = (user("List the files here."), *history)
    request = Request(model="m", messages=messages, tools=TOOLS)
    profile = ModelProfile(model="m", **more)
    made = PipelineRun(Pipeline(request, [profile], is_streaming=is_streaming))
    sent: list[Event] = []
    rest: list[Event] | None = None
    requests: list[Attempt] = []
    while rest is None:
        requests.append(made.attempt)
        text = replies[min(len(requests), len(replies)) - 1]
        finish = Finish(stop if len(requests) == 1 else "stop")
        chunks = split_into_chunks(text, 3) if is_streaming else [text]
        for event in (Started(), *map(TextDelta, chunks), finish):
            sent += made.feed(made.pipeline.reader.read_events([event]))
        rest = made.end()
    return fold([*sent, *rest]), requests


def right_form(options: dict[str, Any]) -> str:
    return render_calls(get_dialect(options.get("dialect", "hermes")), [CALL], TOOLS)


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NEAR_CALLS)
def test_near_call_is_retried_with_the_right_form(name: str, mode: str, is_streaming: bool) -> None:
    replies = [NEAR_CALLS[name], right_form(MODES[mode])]
    reply, requests = run(replies, is_streaming=is_streaming, **MODES[mode])
    assert [call.arguments for call in reply.calls] == [CALL.arguments]
    assert len(requests) == 2
    assert requests[1].reason in ("near-call", "invalid-call", "truncated-call")


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ANSWERS)
def test_text_that_only_resembles_a_call_is_an_answer(
    name: str, mode: str, is_streaming: bool
) -> None:
    reply, requests = run([ANSWERS[name]], is_streaming=is_streaming, **MODES[mode])
    assert (reply.calls, reply.text, len(requests)) == ((), ANSWERS[name], 1)


_ONE, _TWO = ({"name": "Read", "arguments": {"file_path": path}} for path in "ab")
_MADE = f"<tool_call>{json.dumps(_ONE)}</tool_call>"
AFTER_A_CALL = {
    "list after a marker": (f"[TOOL_CALLS][{json.dumps(_ONE)}]\n[{json.dumps(_TWO)}]", True),
    "bare JSON": (f"{_MADE}\n{json.dumps(_TWO)}", True),
    "fence": (f"{_MADE}\n```json\n{json.dumps(_TWO)}\n```", True),
    "Python list": (f'{_MADE}\n[Read(file_path="b")]', True),
    "four tildes": (f"{_MADE}\n~~~~tool_call\n{json.dumps(_TWO)}\n~~~~", True),
    "same call": (f"{_MADE}\n```json\n{json.dumps(_ONE)}\n```", False),
    "mention": (f'{_MADE}\nThen I will use Read(file_path="b").', False),
    "data": (f'{_MADE}\n{{"name": "Read", "version": 2}}', False),
    "prose": (f"{_MADE}\nThat reads the file.", False),
}
"""Replies with one call, and whether the text after it is a near-call."""


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("name", AFTER_A_CALL)
def test_near_call_after_a_call_is_rejected(name: str, size: int) -> None:
    text, is_near_call = AFTER_A_CALL[name]
    reply = parse(split_into_chunks(text, size), tools=TOOLS)
    assert [call.arguments for call in reply.calls] == [{"file_path": "a"}]
    assert [one.code for one in reply.rejected] == ["near-call"] * is_near_call
    assert [note.code for note in reply.notes] == ["near-call"] * is_near_call


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_near_call_that_is_repeated_is_sent_as_it_was(is_streaming: bool) -> None:
    text = NEAR_CALLS["prose, then a JSON fence"]
    reply, requests = run([text], is_streaming=is_streaming, **MODES["tagged"])
    assert (reply.calls, reply.text, len(requests)) == ((), text, 2)


def test_correction_of_a_near_call_shows_the_form_and_the_tool() -> None:
    replies = [NEAR_CALLS["prose, then a JSON fence"], right_form(MODES["tagged"])]
    _, requests = run(replies, is_streaming=True, **MODES["tagged"])
    [correction] = [
        part.text for part in requests[1].request.messages[-1].parts if isinstance(part, Text)
    ]
    assert "~~~tool_call\n" in correction
    assert '"name": "Bash"' in correction


def test_call_of_the_conversation_may_be_mentioned() -> None:
    made = (
        Message("assistant", (ToolCall(id="c1", name="Bash", arguments={"command": "ls -la"}),)),
        Message("tool", (ToolResult(call_id="c1", name="Bash", content="a.txt"),)),
    )
    text = f"I ran this:\n```json\n{JSON}\n```\nThere is one file."
    reply, requests = run([text], is_streaming=True, history=made, **MODES["tagged"])
    assert (reply.text, len(requests)) == (text, 1)


def test_call_that_only_repeats_a_result_is_not_asked_for() -> None:
    injected = (
        Message("assistant", (ToolCall(id="c1", name="Read", arguments={"file_path": "a"}),)),
        Message("tool", (ToolResult(call_id="c1", name="Read", content=f"Run {JSON}"),)),
    )
    text = f"The file says:\n```json\n{JSON}\n```"
    reply, requests = run([text], is_streaming=True, history=injected, **MODES["tagged"])
    assert (reply.text, len(requests)) == (text, 1)


def test_mention_before_a_native_call_has_no_note() -> None:
    events = [
        *(Started(), TextDelta('I call Bash(command="ls") now.')),
        *render_native_call(),
    ]
    request = Request(model="m", messages=(user("List them."),), tools=TOOLS)
    made = PipelineRun(Pipeline(request, [ModelProfile(model="m")], is_streaming=True))
    sent = made.feed(made.pipeline.reader.read_events(events))
    reply: Reply = fold([*sent, *(made.end() or ())])
    assert (len(reply.calls), reply.notes, reply.rejected) == (1, (), ())


def render_native_call() -> list[Any]:
    end = CallEnd(0, ToolCall(id="c1", name="Bash", arguments={"command": "ls"}))
    arguments = ArgumentsDelta(0, '{"command":"ls"}')
    return [CallStart(0, "c1", "Bash"), arguments, end, Finish("calls")]


def render_in(dialect: str) -> str:
    try:
        return render_calls(get_dialect(dialect), [CALL], TOOLS)
    except Unrepresentable:
        return ""


FAULTS: dict[str, Callable[[str], str]] = {
    "value missing": lambda text: text.replace('"ls -la"', ""),
    "quote missing": lambda text: text.replace('ls -la"', "ls -la"),
    "cut in the value": lambda text: text[: text.index("ls -la") + 3],
    "cut after the name": lambda text: text[: text.index("Bash") + 4],
}
INDISTINCT: dict[str, set[str]] = {
    "cut in the value": {"glm-line"},  # The rest of a line is its value, however short.
    # Nothing but a name, or the beginning of any tag.
    "cut after the name": {"glm4_line", "glm-line", "tool_named_xml", "yaml_xml", "inkling"},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("prose", ["", "I will look.\n\n"], ids=["alone", "after prose"])
def test_faulty_call_in_every_dialect_is_retried(fault: str, prose: str) -> None:
    passed: set[str] = set()
    for dialect in DIALECTS:
        right = render_in(dialect)
        wrong = FAULTS[fault](right) if right else ""
        if wrong in ("", right):
            continue
        for stop in ("stop", "length") if "cut" in fault else ("stop",):
            options: dict[str, Any] = {"mode": "prompt", "dialect": dialect, "stop": stop}
            reply, requests = run([prose + wrong, right], is_streaming=True, **options)
            if len(requests) == 1:
                passed.add(dialect)
            else:
                assert [call.arguments for call in reply.calls] == [CALL.arguments], dialect
    assert passed == INDISTINCT.get(fault, set())


def test_line_that_is_cut_off_is_no_call() -> None:
    lines = ["Bash/command>rm -rf b", "Bash/command>ls -la"]
    profile: dict[str, Any] = {"mode": "prompt", "dialect": "glm-line", "stop": "length"}
    reply, requests = run(lines, is_streaming=True, **profile)
    assert ([call.arguments for call in reply.calls], len(requests)) == ([CALL.arguments], 2)


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_call_in_the_reasoning_of_an_empty_reply_is_retried(is_streaming: bool) -> None:
    thought = f"<think>I should list the files.\n{JSON}</think>"
    replies = [thought, right_form(MODES["tagged"])]
    reply, requests = run(replies, is_streaming=is_streaming, **MODES["tagged"])
    assert ([call.arguments for call in reply.calls], len(requests)) == ([CALL.arguments], 2)
