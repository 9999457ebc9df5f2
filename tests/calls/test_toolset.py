"""Which declared tool a name means, and which it does not."""

from __future__ import annotations

import json

import pytest
from bench.injection import TRUSTS

from toolspeak import as_tools, extract
from toolspeak.calls.tools import Toolset
from toolspeak.types import Trust

DECLARED = ("github.create_issue", "files.delete", "files.soft_delete", "get_weather", "a.b.c")


def toolset(*names: str) -> Toolset:
    return Toolset(as_tools([{"name": name} for name in names]) or ())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("github.create_issue", "github.create_issue"),
        ("github_create_issue", "github.create_issue"),
        ("GitHub-Create-Issue", "github.create_issue"),
        ("functions.github.create_issue", "github.create_issue"),
        ("functions.create_issue", "github.create_issue"),
        ("default_api.delete", "files.delete"),
        ("tools.soft_delete", "files.soft_delete"),
        ("multi_tool_use.get_weather", "get_weather"),
        ("functions.get-weather", "get_weather"),
        ("get_weather.get_weather", "get_weather"),
        ("functions.get_weather.get_weather", "get_weather"),
        ("b.c", "a.b.c"),
        ("tools.B.c", "a.b.c"),
    ],
)
def test_what_was_done_to_a_name_is_undone(given: str, meant: str) -> None:
    assert toolset(*DECLARED).resolve_name(given) == meant


@pytest.mark.parametrize(
    "given",
    [
        "jira.create_issue",
        "functions.jira.create_issue",
        "trash.delete",
        "x.files.delete",
        "cache.get_weather",
        "soft.delete",
        "weather.get_weather",
        "functions.",
        "x.b.c",
        "get_weather.create_issue",
        "delete.delete",
        "delete",
    ],
)
def test_another_namespace_is_another_tool(given: str) -> None:
    assert toolset(*DECLARED).resolve_name(given) is None


def test_a_name_that_fits_two_tools_means_neither() -> None:
    assert toolset("files.delete", "mails.delete").resolve_name("functions.delete") is None


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("name", ["jira.create_issue", "trash.delete", "cache.get_weather"])
def test_no_tool_of_another_namespace_is_called(name: str, trust: Trust) -> None:
    said = f"<tool_call>{json.dumps({'name': name, 'arguments': {}})}</tool_call>"
    tools = [{"name": declared} for declared in DECLARED]
    reply = extract(said, tools=tools, dialect="hermes", trust=trust)
    assert not reply.calls
    assert [one.code for one in reply.notes if "tool" in one.code] == ["unknown-tool"]
