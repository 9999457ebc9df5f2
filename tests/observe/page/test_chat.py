"""The chat view, with the model's view of each message beside it."""

from __future__ import annotations

import pytest

from .conftest import OpenInspector
from .inspector_page import InspectorPage


def send(inspector: InspectorPage, text: str) -> None:
    inspector.page.get_by_label("Your message").fill(text)
    inspector.page.get_by_label("Your message").press("Enter")


def test_chat_with_tools_shows_the_models_view(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/chat")
    inspector.page.locator(".section summary", has_text="Tools").click()
    inspector.page.get_by_label("Result of get_weather").fill("light snow, and wind")
    send(inspector, "What is the weather in Oslo?")
    inspector.wait_for(".chat-log .card-call", '"Oslo"')
    inspector.wait_for(".chat-message-assistant", "It is cold in Oslo.")
    assert inspector.page.locator(".result textarea").input_value() == "light snow, and wind"
    # The request of the last reply, then the one before.
    inspector.wait_for(".models-view .message", "light snow, and wind")
    inspector.wait_for(".models-view .pane", "It is cold in Oslo.")
    inspector.page.get_by_role("button", name="Model's view").first.click()
    inspector.wait_for(".models-view .card-call", '"Oslo"')
    inspector.page.get_by_role("link", name="Open request").click()
    inspector.wait_for(".detail .columns")


def test_chat_without_automatic_tools_waits_for_a_result(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/chat")
    inspector.page.get_by_label("Run tools automatically").uncheck()
    send(inspector, "What is the weather in Oslo?")
    inspector.wait_for(".models-view mark.mark-call")
    assert inspector.page.get_by_role("button", name="Send", exact=True).is_disabled()
    inspector.page.get_by_label("Tool result").fill("light snow")
    inspector.page.get_by_role("button", name="Send result").click()
    inspector.wait_for(".chat-message-assistant", "It is cold in Oslo.")


@pytest.mark.parametrize("gateway", [0.05], indirect=True)
def test_chat_while_a_reply_arrives_can_be_stopped(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/chat")
    send(inspector, "slow, please")
    inspector.wait_for(".chat-message-assistant", "Slowly does it.")
    inspector.page.get_by_role("button", name="Stop").click()
    inspector.wait_for(".chat-message-assistant", "Stopped.")
    inspector.page.get_by_role("button", name="New chat").click()
    inspector.wait_for(".chat-intro")
