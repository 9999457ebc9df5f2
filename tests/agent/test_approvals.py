"""Approvals: the order of the rules, how long a decision holds, and the audit log.

Rows of the seed table, and the tests that cover them:

    143  order of the rules            `test_decision_by_policy_follows_precedence`
    144  y, n, a; anything else is no  `test_unknown_answer_denies`
    145  always and once               `test_always_allows_the_tool_for_the_session`
    146  nobody to ask: approved       overruled by 7.4: `test_call_without_approver_is_denied`
    147  "Denied by user."             overruled by 7.4: the text says who decided
    148  every decision is logged      `test_every_decision_is_audited`
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.scripted import (
    RecordingTool,
    Script,
    get_results,
    make_call,
    summarize_events,
)
from toolspeak import Tool, ToolCall, UsageError
from toolspeak.agent import (
    Agent,
    AgentEvent,
    AgentTool,
    ApprovalAnswer,
    ApprovalPolicy,
    ApprovalRequest,
    Approvals,
    AuditRecord,
    RunFinished,
    ToolCallRequested,
    ToolOptions,
    open_audit_log,
    parse_answer,
)
from toolspeak.agent.approvals import ApprovalDecision, digest_call, summarize_arguments


def declare(name: str, *, writes: bool = True) -> AgentTool:
    return AgentTool(
        tool=Tool(name=name), handler=RecordingTool(), options=ToolOptions(writes=writes)
    )


WRITES, READS = declare("delete_file"), declare("read_file", writes=False)
SHELL = AgentTool(
    tool=Tool(name="shell"), handler=RecordingTool(), options=ToolOptions(always_ask=True)
)
DENIED = (
    "`delete_file` was not run: the user denied it. "
    "Do not repeat this call. Continue without it, or ask the user."
)
NAMED = ApprovalPolicy(always_ask=("delete_*",), auto_approve=("delete_file", "read_file"))


@pytest.mark.parametrize(
    ("policy", "session", "tool", "decided"),
    [
        # full comes before the lists.
        (ApprovalPolicy(autonomy="full"), (), WRITES, "allowed by policy"),
        (ApprovalPolicy(autonomy="full", always_ask=("*",)), (), WRITES, "allowed by policy"),
        # read_only denies tools that write and allows the others.
        (ApprovalPolicy(autonomy="read_only"), (), WRITES, "denied by policy"),
        (ApprovalPolicy(autonomy="read_only", auto_approve=("*",)), (), WRITES, "denied by policy"),
        (ApprovalPolicy(autonomy="read_only"), ("delete_file",), WRITES, "denied by policy"),
        (ApprovalPolicy(autonomy="read_only"), (), READS, "allowed by policy"),
        # always_ask > auto_approve > always in this session > ask.
        (NAMED, (), WRITES, "asked"),
        (NAMED, ("delete_file",), WRITES, "asked"),
        (NAMED, (), READS, "allowed by policy"),
        (ApprovalPolicy(auto_approve=("read_*",)), (), WRITES, "asked"),
        (ApprovalPolicy(), ("delete_file",), WRITES, "allowed by session"),
        (ApprovalPolicy(), ("read_file",), WRITES, "asked"),
        # A tool with always_ask is asked about even under full.
        (ApprovalPolicy(autonomy="full", auto_approve=("shell",)), ("shell",), SHELL, "asked"),
        (ApprovalPolicy(autonomy="read_only"), (), SHELL, "denied by policy"),
        (ApprovalPolicy(), (), WRITES, "asked"),
        (ApprovalPolicy(), (), READS, "asked"),
    ],
)
def test_decision_by_policy_follows_precedence(
    policy: ApprovalPolicy, session: tuple[str, ...], tool: AgentTool, decided: str
) -> None:
    approvals = Approvals(policy, lambda question: "always")
    for name in session:
        approver = approvals.build_request(make_call(name), declare(name))
        asyncio.run(approvals.ask(approver))
    decision = approvals.decide_by_policy(tool)
    assert describe_decision(decision) == decided


def describe_decision(decision: ApprovalDecision | None) -> str:
    if decision is None:
        return "asked"
    return f"{'allowed' if decision.is_allowed else 'denied'} by {decision.decided_by}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("y", "yes"),
        ("Y", "yes"),
        (" yes ", "yes"),
        ("a", "always"),
        ("ALWAYS", "always"),
        ("n", "no"),
        ("no", "no"),
        ("", "no"),
        ("yep", "no"),
        ("ya", "no"),
        ("1", "no"),
    ],
)
def test_parse_answer_accepts_only_yes_and_always(text: str, answer: ApprovalAnswer) -> None:
    assert parse_answer(text) == answer


class ScriptedApprover:
    """An approver that respond the scripted answers and records the requests."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.questions: list[ApprovalRequest] = []

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.questions.append(question)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def run_agent(
    approvals: Approvals, *rounds: Any, tool: AgentTool = WRITES
) -> tuple[list[str], list[AgentEvent]]:
    """Return the results that the model receives, and all events."""
    script = Script(*rounds, "Done.")
    events: list[AgentEvent] = []

    async def collect() -> None:
        agent = Agent(script, [tool], approval=approvals)
        events.extend([event async for event in agent.stream("Go.")])

    asyncio.run(collect())
    return get_results(script.requests[-1]), events


def call_delete_file(identity: str = "a", **arguments: Any) -> list[ToolCall]:
    return [make_call("delete_file", identity, **arguments)]


def test_yes_allows_one_call() -> None:
    approver = ScriptedApprover("yes", "no")
    result_texts, _ = run_agent(
        Approvals(approver=approver),
        call_delete_file("a", path="x"),
        call_delete_file("b", path="x"),
    )
    assert result_texts == ["done", DENIED]
    assert len(approver.questions) == 2


def test_always_allows_the_tool_for_the_session() -> None:
    approver = ScriptedApprover("always")
    approvals = Approvals(approver=approver)
    result_texts, _ = run_agent(
        approvals, call_delete_file("a", path="x"), call_delete_file("b", path="y")
    )
    assert result_texts == ["done", "done"]
    assert [question.can_always for question in approver.questions] == [True]
    assert approvals.decide_by_policy(READS) is None


def test_always_on_always_ask_tool_allows_one_call() -> None:
    approver = ScriptedApprover("always", "always")
    policy = ApprovalPolicy(always_ask=("delete_file",))
    approvals = Approvals(policy, approver)
    result_texts, _ = run_agent(approvals, call_delete_file("a"), call_delete_file("b"))
    assert result_texts == ["done", "done"]
    assert [question.can_always for question in approver.questions] == [False, False]
    assert approvals.always_allowed == []


def test_other_calls_run_after_a_denial() -> None:
    approver = ScriptedApprover("no", "yes")
    result_texts, events = run_agent(
        Approvals(approver=approver),
        [*call_delete_file("a", path="x"), *call_delete_file("b", path="y")],
    )
    assert result_texts == [DENIED, "done"]
    assert summarize_events(events)[:6] == [
        "call delete_file",
        "ApprovalRequested",
        "error delete_file",
        "call delete_file",
        "ApprovalRequested",
        "result delete_file",
    ]


@pytest.mark.parametrize("answer", ["maybe", None, True, 1, "yess"])
def test_unknown_answer_denies(answer: Any) -> None:
    result_texts, _ = run_agent(Approvals(approver=ScriptedApprover(answer)), call_delete_file())
    assert result_texts == [DENIED]


@pytest.mark.parametrize("answer", ["y", "Yes", "a"])
def test_typed_answer_is_parsed(answer: Any) -> None:
    assert run_agent(Approvals(approver=ScriptedApprover(answer)), call_delete_file())[0] == [
        "done"
    ]


@pytest.mark.parametrize(
    "problem", [ValueError("gone"), EOFError(), TimeoutError(), asyncio.CancelledError()]
)
def test_failing_approver_denies(problem: BaseException) -> None:
    records: list[AuditRecord] = []
    approvals = Approvals(approver=ScriptedApprover(problem), audit=records.append)
    [result_texts], events = run_agent(approvals, call_delete_file())
    denied = "`delete_file` was not run: it needs approval, and "
    assert result_texts in (
        f"{denied}the request for approval failed. Continue without it.",
        f"{denied}the request was withdrawn. Continue without it.",
    )
    assert [record.by for record in records] == ["no_answer"]
    assert summarize_events(events)[-1] == "answer"


def test_call_without_approver_is_denied() -> None:
    result_texts, _ = run_agent(Approvals(), call_delete_file())
    assert result_texts == [
        "`delete_file` was not run: it needs approval, and there is no one to ask. "
        "Continue without it."
    ]


def test_late_answer_denies() -> None:
    async def never(question: ApprovalRequest) -> ApprovalAnswer:
        await asyncio.sleep(30)
        return "yes"

    result_texts, _ = run_agent(Approvals(ApprovalPolicy(timeout=0.05), never), call_delete_file())
    assert result_texts == [
        "`delete_file` was not run: it needs approval, and there was no answer in time. "
        "Continue without it."
    ]


def test_blocking_approver_is_supported() -> None:
    result_texts, _ = run_agent(Approvals(approver=lambda question: "yes"), call_delete_file())
    assert result_texts == ["done"]


# Grants.


def grant(approvals: Approvals, made: ToolCall) -> ApprovalDecision:
    return asyncio.run(approvals.ask(approvals.build_request(made, WRITES)))


def test_grant_is_redeemed_once() -> None:
    approvals = Approvals(approver=ScriptedApprover("yes"))
    [made] = call_delete_file(path="x")
    decision = grant(approvals, made)
    assert approvals.redeem(decision, made)
    assert not approvals.redeem(decision, made)


@pytest.mark.parametrize(
    "other",
    [
        make_call("delete_file", path="y"),
        make_call("delete_file", path="x", force=True),
        make_call("delete_files", path="x"),
        make_call("delete_file", path=["x"]),
        make_call("delete_file"),
    ],
)
def test_grant_holds_only_for_its_arguments(other: ToolCall) -> None:
    approvals = Approvals(approver=ScriptedApprover("yes"))
    [made] = call_delete_file(path="x")
    assert not approvals.redeem(grant(approvals, made), other)


def test_grant_expires() -> None:
    now = [1000.0]
    approvals = Approvals(ApprovalPolicy(timeout=60), ScriptedApprover("yes"), clock=lambda: now[0])
    [made] = call_delete_file(path="x")
    decision = grant(approvals, made)
    now[0] += 61
    assert not approvals.redeem(decision, made)


def test_unknown_grant_is_not_redeemed() -> None:
    approvals = Approvals()
    [made] = call_delete_file(path="x")
    forged = ApprovalDecision(is_allowed=True, decided_by="user", reason="", grant_id="0" * 16)
    assert not approvals.redeem(forged, made)


def test_call_changed_after_approval_runs_as_approved() -> None:
    """Listeners, approvers and tools each have a copy of the call."""
    seen: list[dict[str, Any]] = []

    def handler(arguments: dict[str, Any]) -> str:
        seen.append(dict(arguments))
        arguments.clear()
        return "done"

    tool = AgentTool(
        tool=Tool(name="delete_file"), handler=handler, options=ToolOptions(parallel=True)
    )

    def change(question: ApprovalRequest) -> ApprovalAnswer:
        question.arguments["path"] = "/"
        return "yes"

    async def collect() -> Any:
        script = Script(
            [*call_delete_file("a", path="x"), *call_delete_file("b", path="y")], "Done."
        )
        agent = Agent(script, [tool], approval=Approvals(approver=change))
        run = None
        async for event in agent.stream("Go."):
            if isinstance(event, ToolCallRequested):
                event.call.arguments["path"] = "/"
            run = event.result if isinstance(event, RunFinished) else run
        return run

    done = asyncio.run(collect())
    assert sorted(given["path"] for given in seen) == ["x", "y"]
    assert [made.arguments for made in done.calls] == [{"path": "x"}, {"path": "y"}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"autonomy": "readonly"},
        {"autonomy": "yolo"},
        {"autonomy": True},
        {"auto_approve": "read_*"},
        {"always_ask": "shell"},
    ],
)
def test_invalid_policy_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="approval"):
        ApprovalPolicy(**wrong)
    mistaken: Any = "readonly"
    with pytest.raises(UsageError, match="`approval` must be one of full, read_only, ask"):
        Approvals(mistaken)


def test_always_holds_for_one_source_only() -> None:
    approvals = Approvals(approver=ScriptedApprover("always"))
    approver = approvals.build_request(
        make_call("m"), AgentTool(tool=Tool(name="m"), handler=RecordingTool(), source="a")
    )
    asyncio.run(approvals.ask(approver))
    assert approvals.decide_by_policy(
        AgentTool(tool=Tool(name="m"), handler=RecordingTool(), source="a")
    )
    assert not approvals.decide_by_policy(
        AgentTool(tool=Tool(name="m"), handler=RecordingTool(), source="b")
    )
    assert not approvals.decide_by_policy(AgentTool(tool=Tool(name="m"), handler=RecordingTool()))


def test_parallel_calls_start_after_all_were_asked_about() -> None:
    """No output interferes with a question."""
    reads = AgentTool(
        tool=Tool(name="delete_file"), handler=RecordingTool(), options=ToolOptions(writes=False)
    )
    _, events = run_agent(
        Approvals(approver=ScriptedApprover("yes", "yes")),
        [*call_delete_file("a", path="x"), *call_delete_file("b", path="y")],
        tool=reads,
    )
    assert summarize_events(events)[:6] == [
        *("call delete_file", "ApprovalRequested"),
        *("call delete_file", "ApprovalRequested"),
        *("result delete_file", "result delete_file"),
    ]


def test_digest_differs_for_other_argument_types() -> None:
    values = [1, 1.5, "1", True, None, [], {}, "é", "e\u0301"]
    assert len({digest_call(make_call("f", x=value)) for value in values}) == len(values)
    assert digest_call(make_call("f", a=1, b=2)) == digest_call(make_call("f", "other", b=2, a=1))


# Summaries and the audit log.


def test_argument_summary_is_shortened() -> None:
    long = summarize_arguments({"path": "x", "content": "a b\n" * 100})
    assert long.startswith('path: "x", content: "a b\\na b\\n')
    assert long.endswith("… (422 more characters)")
    assert len(long) < 160


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"n": 3, "list": [1], "empty": ""}, 'n: 3, list: [1], empty: ""'),
        ({"a": "null", "b": None, "c": "1", "d": 1}, 'a: "null", b: null, c: "1", d: 1'),
        ({"command": "ls # list\nrm -rf ~"}, r'command: "ls # list\nrm -rf ~"'),
        ({"g": "1, h: 2"}, 'g: "1, h: 2"'),
        ({"x: y\n(harmless)": 1}, r'"x: y\n(harmless)": 1'),
        ({"k" * 6000: 1}, f'"{"k" * 79}… (5922 more characters): 1'),
    ],
)
def test_argument_summary_quotes_misleading_keys(arguments: dict[str, Any], shown: str) -> None:
    assert summarize_arguments(arguments) == shown


def test_every_decision_is_audited(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "audit.jsonl"
    approver = ScriptedApprover("yes", "no", "always")
    approvals = Approvals(approver=approver, audit=open_audit_log(log), channel="test")
    rounds = [call_delete_file(identity, path=f"/tmp/{identity}") for identity in "abcd"]
    run_agent(approvals, *rounds)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["decision"], line["by"]) for line in lines] == [
        ("allowed", "user"),
        ("denied", "user"),
        ("allowed", "user"),
        ("allowed", "session"),
    ]
    assert lines[0]["arguments"] == 'path: "/tmp/a"'
    assert lines[0]["digest"] == digest_call(rounds[0][0])
    assert {line["channel"] for line in lines} == {"test"}
    assert log.stat().st_mode & 0o077 == 0


def test_audit_log_contains_no_secret() -> None:
    records: list[AuditRecord] = []
    approvals = Approvals("full", audit=records.append)
    run_agent(approvals, call_delete_file(token="ghp_16C7e42F292c6912E7710c838347Ae178B4a"))
    assert "C7e42F292c6912" not in records[0].arguments
    assert "token" in records[0].arguments


def test_unwritable_audit_log_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="audit log"):
        open_audit_log(tmp_path)


@pytest.mark.parametrize("policy", ["full", "read_only", "ask"])
def test_policy_denials_are_audited(policy: Any) -> None:
    records: list[AuditRecord] = []
    run_agent(Approvals(policy, audit=records.append), call_delete_file())
    assert len(records) == 1
    assert records[0].decision == ("allowed" if policy == "full" else "denied")


def test_grant_expired_while_others_are_asked_is_not_redeemed() -> None:
    now = [1000.0]
    counted = RecordingTool()
    reads = AgentTool(tool=Tool(name="read"), handler=counted, options=ToolOptions(writes=False))

    def slowly(question: ApprovalRequest) -> ApprovalAnswer:
        now[0] += 200
        return "yes"

    records: list[AuditRecord] = []
    approvals = Approvals(
        ApprovalPolicy(timeout=300), slowly, clock=lambda: now[0], audit=records.append
    )
    calls = [make_call("read", str(number), n=number) for number in range(3)]
    result_texts, _ = run_agent(approvals, calls, tool=reads)
    assert [given["n"] for given in counted.calls] == [1, 2]
    assert "its approval expired" in result_texts[0]
    assert [record.decision for record in records].count("denied") == 1


def test_always_does_not_hold_for_a_changed_tool() -> None:
    """A server may reuse the name for another tool."""
    approvals = Approvals(approver=ScriptedApprover("always"))
    first = AgentTool(tool=Tool(name="m", description="Get the weather."), handler=RecordingTool())
    other = AgentTool(tool=Tool(name="m", description="Delete it all."), handler=RecordingTool())
    asyncio.run(approvals.ask(approvals.build_request(make_call("m"), first)))
    assert approvals.decide_by_policy(first)
    assert not approvals.decide_by_policy(other)


def test_audit_log_scrubs_before_shortening() -> None:
    records: list[AuditRecord] = []
    text = "x" * 60 + " ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    run_agent(Approvals("full", audit=records.append), call_delete_file(text=text))
    assert "ghp_16C7" not in records[0].arguments
