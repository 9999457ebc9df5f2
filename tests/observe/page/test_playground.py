"""The playground view: it parses text while the user types."""

from __future__ import annotations

from .conftest import OpenInspector

TEXT = (
    "<think>Which city?</think>Sure.\n"
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}</tool_call>\n'
    '<tool_call>{"name": "get_weather", "arguments": {"town": 3}}</tool_call>'
)


def test_playground_while_typing_shows_calls_and_highlights(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/playground")
    inspector.wait_for(".playground .card-call", "get_weather")
    field = inspector.page.get_by_label("Model output")
    field.fill("Nothing to see here.")
    inspector.wait_until("() => !document.querySelector('.card-call')")
    inspector.wait_for(".parsed-reply", "No calls found.")
    field.fill("")
    field.press_sequentially(TEXT[: TEXT.rindex("\n")], delay=2)
    inspector.wait_for(".playground .card-call", '"Oslo"')
    field.fill(TEXT)
    inspector.wait_for(".card-rejected", "get_weather")
    inspector.wait_for(".note", "coerced")
    inspector.wait_for("mark.mark-call", '"Oslo"')
    inspector.wait_for("mark.mark-rejected", "town")
    inspector.wait_for("mark.mark-reasoning", "Which city?")
    assert inspector.read_text(".pane[aria-label='Highlighted output'] .pane-text") == TEXT
    # A card marks its text, and a text its card.
    inspector.page.locator(".card-rejected").hover()
    inspector.wait_for("mark.mark-rejected.active")
    inspector.page.locator(".pane mark.mark-call").first.hover()
    inspector.wait_for(".card-call.active")
    inspector.page.locator(".pane mark.mark-call").first.click()
    selected = field.evaluate(
        "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    )
    assert '"Oslo"' in selected


def test_playground_with_invalid_tools_shows_the_problem(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/playground")
    inspector.wait_for(".card-call")
    tools = inspector.page.get_by_label("Tools, as JSON")
    tools.fill("[{")
    inspector.wait_for(".problem", "Invalid JSON")
    tools.fill('[{"name": 7}]')
    inspector.wait_until(
        "() => !/^$|Invalid JSON/.test(document.querySelector('.problem').textContent)"
    )
    inspector.ignore_problems(400)
    tools.fill("[]")
    inspector.wait_until("() => document.querySelector('.problem').hidden")


def test_playground_options_change_the_result(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/playground")
    inspector.page.get_by_label("Load an example").select_option("glm45")
    inspector.wait_for(".card-call", "get_weather")
    inspector.wait_for(".outcome", "Dialect: glm45")
    inspector.page.get_by_label("Trust").select_option("strict")
    inspector.page.get_by_label("Dialect").select_option("hermes")
    inspector.wait_until("() => !document.querySelector('.card-call')")


def test_playground_text_survives_reload_and_is_in_the_link(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/playground", permissions=["clipboard-read", "clipboard-write"])
    inspector.page.get_by_label("Model output").fill("Keep this: ä 😀")
    inspector.wait_for(".pane", "Keep this: ä 😀")
    inspector.page.reload()
    inspector.wait_for(".pane", "Keep this: ä 😀")
    inspector.page.get_by_role("button", name="Copy link").click()
    inspector.wait_for("button", "Copied")
    link = inspector.page.evaluate("navigator.clipboard.readText()")
    other = open_inspector(link.removeprefix(f"{inspector.url}/"))
    other.wait_for(".pane", "Keep this: ä 😀")
