"""The workspace tools in an agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolspeak import Request, ToolCall, ToolResult
from toolspeak.agent import Agent, ApprovalPolicy, Approvals
from toolspeak.agent.workspace import SHELL, workspace_tools


def test_tools_depend_on_options(folder: Path) -> None:
    reading = ["read_file", "list_files", "search"]
    assert [one.name for one in workspace_tools(folder)] == reading
    everything = workspace_tools(folder, writes=True, shell=True)
    assert [one.name for one in everything] == [*reading, "edit_file", SHELL]
    assert [one.options.writes for one in everything] == [False, False, False, True, True]
    assert all(one.tool.description for one in everything)


def create_model(*turns: Any) -> Callable[[Request], Any]:
    remaining = list(turns)

    def model(request: Request) -> Any:
        return remaining.pop(0)

    return model


def build_call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=f"{name}-{len(str(arguments))}", name=name, arguments=arguments)


def run_agent(agent: Agent) -> list[str]:
    run = agent.run_sync("Fix it")
    assert run.text == "Done."
    return [
        part.text
        for message in run.messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


def test_agent_works_in_a_folder(folder: Path) -> None:
    model = create_model(
        [build_call("search", pattern="return"), build_call("read_file", path="src/main.py")],
        [build_call("edit_file", path="src/main.py", old="return 1", new="return 2")],
        [build_call("read_file", path="../secret.txt")],
        [build_call(SHELL, command="cat src/main.py")],
        "Done.",
    )
    tools = workspace_tools(folder, writes=True, shell=True)
    results = run_agent(Agent(model, tools=tools, approval=Approvals("full", lambda _: "yes")))
    assert results[0].startswith("src/main.py:2:     return 1")
    assert results[1] == "def main():\n    return 1"
    assert results[2] == "[Changed src/main.py, line 2.]"
    assert results[3].startswith(
        "`read_file` failed: ../secret.txt leads out of the workspace folder"
    )
    assert results[4] == "def main():\n    return 2\n[Exit code 0.]"


def test_shell_is_always_asked_about(folder: Path) -> None:
    model = create_model([build_call(SHELL, command="touch made")], "Done.")
    policy = ApprovalPolicy(auto_approve=("*",), always_ask=(SHELL,))
    (result,) = run_agent(Agent(model, tools=workspace_tools(folder, shell=True), approval=policy))
    denied = "`shell` was not run: it needs approval, and there is no one to ask."
    assert result == f"{denied} Continue without it."
    assert not (folder / "made").exists()


def test_read_only_agent_does_not_edit(folder: Path) -> None:
    model = create_model(
        [build_call("edit_file", path="a", old="", new="x"), build_call("list_files")], "Done."
    )
    tools = workspace_tools(folder, writes=True)
    results = run_agent(Agent(model, tools=tools, approval="read_only"))
    assert "has read-only access" in results[0]
    assert "README.md" in results[1]
