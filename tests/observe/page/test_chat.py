"""The chat, with what the gateway does next to it."""

from __future__ import annotations

import pytest

from .conftest import Opener
from .site import Opened


def say(opened: Opened, text: str) -> None:
    opened.page.get_by_label("Your message").fill(text)
    opened.page.get_by_label("Your message").press("Enter")


def test_a_talk_with_tools(look: Opener) -> None:
    opened = look("#/chat")
    opened.page.locator(".section summary", has_text="Tools").click()
    opened.page.get_by_label("Result of get_weather").fill("light snow, and wind")
    say(opened, "What is the weather in Oslo?")
    opened.sees(".chat-log .card-call", '"Oslo"')
    opened.sees(".chat-message-assistant", "It is cold in Oslo.")
    assert opened.page.locator(".result textarea").input_value() == "light snow, and wind"
    # The other side of the last question.
    opened.sees(".models-view .message", "light snow, and wind")
    opened.sees(".models-view .pane", "It is cold in Oslo.")
    # And of the one before.
    opened.page.get_by_role("button", name="Model's view").first.click()
    opened.sees(".models-view .card-call", '"Oslo"')
    opened.page.get_by_role("link", name="Open request").click()
    opened.sees(".detail .columns")


def test_calls_wait_if_one_wants(look: Opener) -> None:
    opened = look("#/chat")
    opened.page.get_by_label("Run tools automatically").uncheck()
    say(opened, "What is the weather in Oslo?")
    opened.sees(".models-view mark.mark-call")
    assert opened.page.get_by_role("button", name="Send", exact=True).is_disabled()
    opened.page.get_by_label("Tool result").fill("light snow")
    opened.page.get_by_role("button", name="Send result").click()
    opened.sees(".chat-message-assistant", "It is cold in Oslo.")


@pytest.mark.parametrize("gateway", [0.05], indirect=True)
def test_it_can_be_stopped(look: Opener) -> None:
    opened = look("#/chat")
    say(opened, "slow, please")
    opened.sees(".chat-message-assistant", "Slowly does it.")
    opened.page.get_by_role("button", name="Stop").click()
    opened.sees(".chat-message-assistant", "Stopped.")
    opened.page.get_by_role("button", name="New chat").click()
    opened.sees(".chat-intro")
