"""Approvals on the page: visible in every view, and answered only by their buttons."""

from __future__ import annotations

from tests.gateway.running_gateway import RunningGateway

from .conftest import OpenInspector
from .inspector_page import HEADERS, HTTP, request_approval

GUARD_MS = 800
"""A click so soon after the approval appeared was meant for something else."""


def read_answer(gateway: RunningGateway, identity: str) -> str | None:
    url = f"{gateway.url}/inspector/api/approvals/{identity}"
    return HTTP.get(url, headers=HEADERS).json()["answer"]


def test_approval_in_any_view_is_answered_by_its_button(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    inspector = open_inspector("#/playground")
    inspector.wait_for(".playground")
    inspector.set_clock(0)
    identity = request_approval(gateway)
    inspector.wait_for(".badge", "1 to approve")
    inspector.wait_until("() => document.title === '(1) Toolspeak'")
    inspector.wait_for(".card-approval", "from the MCP server files, requested by an agent")
    inspector.wait_for(".card-approval", '"one\\ntwo"')
    inspector.wait_for(".expiry", "1:")
    inspector.set_clock(GUARD_MS - 1)
    inspector.page.get_by_role("button", name="Always allow").click()
    assert read_answer(gateway, identity) is None
    inspector.navigate("#/requests")
    inspector.set_clock(GUARD_MS)
    inspector.page.get_by_role("button", name="Always allow").click()
    inspector.wait_for(".approval-result", "Allowed for the rest of the agent's session.")
    assert read_answer(gateway, identity) == "always"
    inspector.wait_until("() => document.title === 'Toolspeak'")


def test_approval_of_echo_with_secrets_shows_warnings(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    secrets = ["the key of OpenAI, in $.content"]
    request_approval(gateway, can_always=False, is_echo=True, secrets=secrets)
    inspector = open_inspector()
    inspector.wait_for(".warning", "repeats one from a tool result")
    inspector.wait_for(".warning", "the key of OpenAI, in $.content")
    assert inspector.page.get_by_role("button", name="Always allow").count() == 0


def test_keys_answer_an_approval_only_on_its_buttons(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    identity = request_approval(gateway)
    inspector = open_inspector()
    inspector.wait_for(".card-approval")
    inspector.set_clock(GUARD_MS + 60_000)
    for key in ("y", "a", "n", "Enter", " ", "j", "Enter", "Escape"):
        inspector.page.keyboard.press(key)
    assert read_answer(gateway, identity) is None
    # A shortcut leads to the approval, not to one of its buttons.
    for key in ("g", "a", "Enter", " "):
        inspector.page.keyboard.press(key)
    assert read_answer(gateway, identity) is None
    for _ in range(20):
        if inspector.page.evaluate("document.activeElement.textContent") == "Deny":
            break
        inspector.page.keyboard.press("Tab")
    inspector.page.keyboard.press("Enter")
    inspector.wait_for(".approval-result", "Denied.")
    assert read_answer(gateway, identity) == "no"


def test_approval_answered_elsewhere_disappears(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    identity = request_approval(gateway)
    inspector = open_inspector()
    inspector.wait_for(".card-approval")
    url = f"{gateway.url}/inspector/api/approvals/{identity}"
    HTTP.post(url, json={"answer": "no"}, headers=HEADERS)
    inspector.wait_until("() => document.querySelector('.approvals').hidden")
    assert inspector.count(".card-approval") == 0


def test_arguments_of_any_length_are_shown_completely(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    """Nothing is shortened, folded or rounded, so the user approves only what was visible."""
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
    inspector = open_inspector()
    inspector.wait_for(".first-steps")
    request_approval(gateway, arguments=arguments)
    inspector.wait_for(".card-approval")
    shown = inspector.read_text(".card-approval .approval-arguments")
    for text in (command, '"danger"', '"all"', "item 299", "x⟨202E⟩end", "long key"):
        assert text in shown, text
    assert 'account": 12345678901234567891\n' in shown
    assert 'amount": 0.1\n' in shown
    assert "…" not in shown
    assert inspector.count(".approval-arguments :is(details, button)") == 0
    # The box scrolls, and the buttons stay visible.
    box = inspector.page.locator(".approval-arguments")
    assert box.evaluate("box => box.scrollHeight > box.clientHeight")
    box.focus()
    inspector.page.keyboard.press("End")
    inspector.wait_until("() => document.querySelector('.approval-arguments').scrollTop > 0")
    assert inspector.page.get_by_role("button", name="Allow once").is_visible()


def test_numbers_that_javascript_would_round_are_exact(open_inspector: OpenInspector) -> None:
    inspector = open_inspector()
    script = """async () => {
      const { parseExact, expandedJson } = await import("/inspector/json_view.js");
      const render = (json) => expandedJson(parseExact(json)).textContent;
      return ["9007199254740993", "-1e400", "1e-400", "0.1000000000000000055", "12.50", "1.5e-7",
        "1.2345678901234568e-05", "100000000000000000000000", "-0.0"].map(render);
    }"""
    assert inspector.page.evaluate(script) == [
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
