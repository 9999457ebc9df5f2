"""Approvals are seen in every view, and answered by nothing but their buttons."""

from __future__ import annotations

import time
from typing import Any

from tests.gateway.running_gateway import Running

from .conftest import Opener
from .site import HTTP, TOKEN

HEADERS = {"authorization": f"Bearer {TOKEN}"}


def put(gateway: Running, **more: Any) -> str:
    asked = {
        "tool": "write_file",
        "arguments": {"path": "notes.md", "content": "one\ntwo"},
        "source": "the MCP server files",
        "agent": "an agent",
        "expires_at": time.time() + 100,
        "can_always": True,
        **more,
    }
    url = f"{gateway.url}/inspector/api/approvals"
    return HTTP.post(url, json=asked, headers=HEADERS).json()["id"]


def answer_to(gateway: Running, identity: str) -> str | None:
    url = f"{gateway.url}/inspector/api/approvals/{identity}"
    return HTTP.get(url, headers=HEADERS).json()["answer"]


def test_one_is_answered(look: Opener, gateway: Running) -> None:
    opened = look("#/playground")
    opened.sees(".playground")
    identity = put(gateway)
    opened.sees(".badge", "1 to approve")
    opened.until("() => document.title === '(1) Toolspeak'")
    opened.sees(".card-approval", "from the MCP server files, requested by an agent")
    opened.sees(".card-approval", '"one\\ntwo"')
    opened.sees(".expiry", "1:")
    # A click in the moment it appears was meant for something else.
    opened.page.get_by_role("button", name="Always allow").click()
    assert answer_to(gateway, identity) is None
    opened.go("#/requests")
    opened.page.wait_for_timeout(800)
    opened.page.get_by_role("button", name="Always allow").click()
    opened.sees(".approval-result", "Allowed for the rest of the agent's session.")
    assert answer_to(gateway, identity) == "always"
    opened.until("() => document.title === 'Toolspeak'")


def test_warnings(look: Opener, gateway: Running) -> None:
    put(gateway, can_always=False, is_echo=True, secrets=["the key of OpenAI, in $.content"])
    opened = look()
    opened.sees(".warning", "repeats one from a tool result")
    opened.sees(".warning", "the key of OpenAI, in $.content")
    assert opened.page.get_by_role("button", name="Always allow").count() == 0


def test_keys_alone_answer_nothing_by_chance(look: Opener, gateway: Running) -> None:
    identity = put(gateway)
    opened = look()
    opened.sees(".card-approval")
    opened.page.wait_for_timeout(900)
    for key in ("y", "a", "n", "Enter", " ", "j", "Enter", "Escape"):
        opened.page.keyboard.press(key)
    assert answer_to(gateway, identity) is None
    # Those who mean it reach the buttons.
    for key in ("g", "a", "Enter", " "):
        opened.page.keyboard.press(key)
    assert answer_to(gateway, identity) is None
    for _ in range(20):
        if opened.page.evaluate("document.activeElement.textContent") == "Deny":
            break
        opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Enter")
    opened.sees(".approval-result", "Denied.")
    assert answer_to(gateway, identity) == "no"


def test_somebody_else_was_quicker(look: Opener, gateway: Running) -> None:
    identity = put(gateway)
    opened = look()
    opened.sees(".card-approval")
    url = f"{gateway.url}/inspector/api/approvals/{identity}"
    HTTP.post(url, json={"answer": "no"}, headers=HEADERS)
    opened.until("() => document.querySelector('.approvals').hidden")
    assert opened.count(".card-approval") == 0


def test_all_that_would_run_is_seen(look: Opener, gateway: Running) -> None:
    """Nothing is cut, folded or rounded: who says yes has seen it."""
    command = "a" * 590 + " ; rm -rf ~"
    options = {f"option_{number}": number for number in range(149)} | {"danger": [["all"]]}
    arguments = {
        "command": command,
        "options": options,
        "list": [f"item {number}" for number in range(300)],
        "account": 12345678901234567891,
        "amount": 0.1,
        "script": "x" * 50_000 + "\u202eend",
        "long " * 200 + "key": True,
    }
    opened = look()
    opened.sees(".first-steps")
    put(gateway, arguments=arguments)
    opened.sees(".card-approval")
    shown = opened.text(".card-approval .approval-arguments")
    for text in (command, '"danger"', '"all"', "item 299", "x⟨202E⟩end", "long key"):
        assert text in shown, text
    assert 'account": 12345678901234567891\n' in shown
    assert 'amount": 0.1\n' in shown
    assert "…" not in shown
    assert opened.count(".approval-arguments :is(details, button)") == 0
    # All of it can be reached, and the buttons stay in sight.
    box = opened.page.locator(".approval-arguments")
    assert box.evaluate("box => box.scrollHeight > box.clientHeight")
    box.focus()
    opened.page.keyboard.press("End")
    opened.until("() => document.querySelector('.approval-arguments').scrollTop > 0")
    assert opened.page.get_by_role("button", name="Allow once").is_visible()


def test_numbers_are_exact_wherever_javascript_would_round(look: Opener) -> None:
    opened = look()
    script = """async () => {
      const { parseExact, expandedJson } = await import("/inspector/json_view.js");
      const of = (written) => expandedJson(parseExact(written)).textContent;
      return ["9007199254740993", "-1e400", "1e-400", "0.1000000000000000055", "12.50", "1.5e-7",
        "1.2345678901234568e-05", "100000000000000000000000", "-0.0"].map(of);
    }"""
    assert opened.page.evaluate(script) == [
        "9007199254740993",
        "-1e400",
        "1e-400",
        "0.1000000000000000055",
        "12.5",
        "1.5e-7",
        "0.000012345678901234568",
        "1e+23",
        "0",
    ]
