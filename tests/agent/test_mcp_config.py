"""Names of MCP tools, and the file that lists servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.mcp import load_servers
from toolspeak.agent.mcp.client import assign_names
from toolspeak.agent.mcp.transports import HttpEndpoint, StdioEndpoint
from toolspeak.config.document import ConfigError

LONG = "a" * 80


@pytest.mark.parametrize(
    ("server", "tools", "names"),
    [
        ("files", ["read"], ["files__read"]),
        ("my server!", ["read/file", "größe"], ["my_server__read_file", "my_server__gr__e"]),
        ("a__b", ["c"], ["a_b__c"]),
        ("_a_", ["_b"], ["a___b"]),
        ("日本", ["x"], ["mcp__x"]),
        ("", ["x"], ["mcp__x"]),
        ("s", [LONG], [f"s__{'a' * 52}_2b133101"]),
        # A name that needs no change is kept; the others get a hash.
        ("s", ["a.b", "a_b"], ["s__a_b_407e8e5c", "s__a_b"]),
        ("s", ["a.b", "a/b"], ["s__a_b_407e8e5c", "s__a_b_fb3c0e4c"]),
        # Even if a server declares a name that equals a hashed one.
        ("s", ["a.b", "a_b", "a_b_407e8e5c"], ["s__a_b_1b67b608", "s__a_b", "s__a_b_407e8e5c"]),
    ],
)
def test_names_are_valid_and_unique(server: str, tools: list[str], names: list[str]) -> None:
    found = assign_names(server, tools)
    assert [found[tool] for tool in tools] == names
    assert found == assign_names(server, reversed(tools))
    assert len({*found.values()}) == len(tools)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)


def load(folder: Path, value: Any, **options: Any) -> dict[str, Any]:
    file = folder / "mcp.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    environ = {"KEY": "secret", "EMPTY": "", "WHERE": "http://h"}
    servers = load_servers(file, environ=environ, **options)
    return {server.name: server for server in servers}


def test_usual_file_is_loaded(tmp_path: Path) -> None:
    files = {
        "command": "npx",
        "args": ["-y", "${NONE:-files}"],
        "env": {"KEY": "${KEY}", "OTHER": "${env:KEY}", "PORT": 80, "ON": True, "E": "${EMPTY}"},
        "cwd": "/tmp",
        "autoApprove": ["read"],
        "timeout": 5,
    }
    search = {"type": "http", "url": "${WHERE}/mcp", "headers": {"authorization": "Bearer ${KEY}"}}
    off = {"command": "${UNSET}", "disabled": True}
    found = load(tmp_path, {"mcpServers": {"files": files, "search": search, "off": off}})
    env = {"KEY": "secret", "OTHER": "secret", "PORT": "80", "ON": "true", "E": ""}
    assert list(found) == ["files", "search"]
    assert found["files"].endpoint == StdioEndpoint(
        command="npx", args=("-y", "files"), env=env, cwd="/tmp"
    )
    headers = {"authorization": "Bearer secret"}
    assert found["search"].endpoint == HttpEndpoint(url="http://h/mcp", headers=headers)
    assert "secret" not in repr(found)


def test_entry_options_override_common_options(tmp_path: Path) -> None:
    plain, own = {"url": "http://h"}, {"url": "http://h", "required": True, "trustHints": True}
    found = load(tmp_path, {"servers": {"a": plain, "b": own}, "inputs": []}, required=False)
    assert [(one.required, one.trust_hints) for one in found.values()] == [
        (False, False),
        (True, True),
    ]


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("{", ["is not JSON"]),
        ([], ["Expected `object`, got `list` - at `$`"]),
        ({}, ["Expected an object `mcpServers` or `servers` that maps names to servers"]),
        ({"mcpServers": []}, ["Expected an object `mcpServers` or `servers`"]),
        (
            {
                "mcpServers": {
                    "files": {"command": 5, "args": "x", "env": {"A": None}},
                    "none": {},
                    "both": {"command": "a", "url": "http://h"},
                    "old": {"type": "sse", "url": "http://h"},
                    "text": "npx",
                    "kind": {"type": "http", "command": "a"},
                    "empty": {"command": ""},
                    "unset": {"url": "http://h", "headers": {"k": "${UNSET}"}},
                    "input": {"url": "http://h", "headers": {"k": "${input:key}"}},
                    "own": {"url": "http://h", "required": "no"},
                    "header": {"url": "http://h", "headers": {"k": "a\nb"}},
                    "odd name": {"url": 1},
                }
            },
            [
                "Expected `str`, got `int` - at `$.mcpServers.files.command`",
                "Expected `array`, got `str` - at `$.mcpServers.files.args`",
                "got `null` - at `$.mcpServers.files.env.A`",
                "Expected either `command` or `url`, got neither - at `$.mcpServers.none`",
                "Expected either `command` or `url`, got both - at `$.mcpServers.both`",
                "use `http` - at `$.mcpServers.old`",
                "Expected `object`, got `str` - at `$.mcpServers.text`",
                "'http' is not a known value; known names: stdio - at `$.mcpServers.kind.type`",
                "Expected `str` of length >= 1 - at `$.mcpServers.empty.command`",
                "the variable UNSET is not set; set it, or remove this setting"
                " - at `$.mcpServers.unset.headers.k`",
                "Expected `${VARIABLE}`; write `$${` for a literal `${`"
                " - at `$.mcpServers.input.headers.k`",
                "got `str` - at `$.mcpServers.own.required`",
                "the value of header 'k' must be printable ASCII without line breaks"
                " - at `$.mcpServers.header.headers`",
                'Expected `str`, got `int` - at `$.mcpServers["odd name"].url`',
            ],
        ),
        (
            {"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "x"}}},
            ["the tools of 'a_b' and 'a b' would have the same names; rename one"],
        ),
    ],
)
def test_all_problems_are_reported_at_once(tmp_path: Path, value: Any, problems: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, value)
    found_problems = caught.value.problems
    assert len(found_problems) == len(problems), found_problems
    for problem in problems:
        assert any(problem in line for line in found_problems), (problem, found_problems)
    assert "mcp.json" in found_problems[0]


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: No such file"):
        load_servers(tmp_path / "none.json")
