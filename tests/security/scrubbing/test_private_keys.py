"""Private keys are replaced whatever a tool prints before and after each of their lines."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import pytest

from tests.security.scrubbing.support import make_text, scrub_in_chunks
from toolspeak.security.scrubbing import scrub

CHANCE = random.Random(3)
WORDS = [make_text("", 64, CHANCE) for _ in range(12)] + ["k7Qz9xyzABCD"]
KEYS = {
    "pem": ["-----BEGIN RSA PRIVATE KEY-----", *WORDS, "-----END RSA PRIVATE KEY-----"],
    "encrypted": [
        "-----BEGIN RSA PRIVATE KEY-----",
        "Proc-Type: 4,ENCRYPTED",
        "DEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF",
        "",
        *WORDS,
        "-----END RSA PRIVATE KEY-----",
    ],
    "pgp": [
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        "Version: GnuPG v2",
        "",
        *WORDS,
        "=aB3d",
        "-----END PGP PRIVATE KEY BLOCK-----",
    ],
    "putty": ["Private-Lines: 13", *WORDS, "Private-MAC: 0123456789abcdef"],
}
LINES: dict[str, Callable[[int, str], str]] = {
    "cat -n": lambda number, line: f"{number:6}\t{line}",
    "arrow": lambda number, line: f"{number:5}→{line}",
    "grep": lambda number, line: f"id_rsa:{line}",
    "grep -n": lambda number, line: f"/home/bob/.ssh/id_rsa:{number}:{line}",
    "grep -A": lambda number, line: f"id_rsa-{number}-{line}",
    "git grep": lambda number, line: f"HEAD~2:conf/Server1ProductionKeys/id_rsa:{number}:{line}",
    "git blame": lambda number, line: f"^a1b2c3d (Bob 2024-01-02 03:04:05 +0100 {number:2}) {line}",
    "quote": lambda number, line: f"> > {line}",
    "diff": lambda number, line: f"+{line}",
    "numbered diff": lambda number, line: f"{number:4} +{line}",
    "time": lambda number, line: f"2024-01-02T03:04:{number:02}.123456789Z {line}",
    "syslog": lambda number, line: f"Jan  2 03:04:{number:02} web-1 app[123]: {line}",
    "compose": lambda number, line: f"web_1  | {line}",
    "container log": lambda number, line: json.dumps(
        {"log": f"{line}\n", "stream": "stdout", "time": f"2024-01-01T00:00:{number:02}Z"}
    ),
    "message": lambda number, line: f'level=info msg="{line}" n={number}',
    "cat -A": lambda number, line: f"{line}$",
    "code": lambda number, line: f'{number:4}\t    "{line}\\n"',
    "comment": lambda number, line: f"// {line}",
    "table": lambda number, line: f"| {number} | {line} |",
    "html": lambda number, line: f'<p id="{number}">{line}</p>',
}


def print_key(key: str, tool: str) -> str:
    lines = [LINES[tool](number, line) for number, line in enumerate(KEYS[key], 1)]
    return "\n".join(["first words", *lines, "last words", ""])


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("tool", LINES)
def test_private_key_with_text_around_its_lines_is_replaced(key: str, tool: str) -> None:
    text = print_key(key, tool)
    out = scrub(text).text
    assert out.startswith("first words\n")
    assert out.endswith("last words\n")
    assert out.count("*[REDACTED]") == 1
    assert not [word for word in WORDS if word[4:] in out]
    for size in (1, 7, 100, 700):
        assert scrub_in_chunks(text, size) == out


@pytest.mark.parametrize(
    "tool", ["cat -n", "grep -n", "git blame", "time", "syslog", "container log"]
)
def test_private_key_with_text_around_its_lines_keeps_that_text(tool: str) -> None:
    text = print_key("pem", tool)
    expected = re.sub("|".join(WORDS[1:]), "", text)
    expected = expected.replace(WORDS[0], f"{WORDS[0][:4]}*[REDACTED]")
    assert scrub(text).text == expected


@pytest.mark.parametrize("tool", LINES)
def test_private_key_inside_json_keeps_json_valid(tool: str) -> None:
    text = json.dumps({"content": print_key("pem", tool), "other": 1})
    out = scrub(text).text
    assert list(json.loads(out)) == ["content", "other"]
    assert not [word for word in WORDS if word[4:] in out]


@pytest.mark.parametrize("tool", LINES)
def test_certificate_with_text_around_its_lines_is_unchanged(tool: str) -> None:
    lines = ["-----BEGIN CERTIFICATE-----", *WORDS, "-----END CERTIFICATE-----"]
    text = "\n".join(LINES[tool](number, line) for number, line in enumerate(lines, 1))
    assert scrub(text).text == text
