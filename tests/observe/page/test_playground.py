"""The playground parses as one types."""

from __future__ import annotations

from .conftest import Opener

TEXT = (
    "<think>Which city?</think>Sure.\n"
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}</tool_call>\n'
    '<tool_call>{"name": "get_weather", "arguments": {"town": 3}}</tool_call>'
)


def test_it_parses_as_one_types(look: Opener) -> None:
    opened = look("#/playground")
    opened.sees(".playground .card-call", "get_weather")
    field = opened.page.get_by_label("Model output")
    field.fill("Nothing to see here.")
    opened.until("() => !document.querySelector('.card-call')")
    opened.sees(".parsed-reply", "No calls found.")
    field.fill("")
    field.press_sequentially(TEXT[: TEXT.rindex("\n")], delay=2)
    opened.sees(".playground .card-call", '"Oslo"')
    field.fill(TEXT)
    opened.sees(".card-rejected", "get_weather")
    opened.sees(".note", "coerced")
    opened.sees("mark.mark-call", '"Oslo"')
    opened.sees("mark.mark-rejected", "town")
    opened.sees("mark.mark-reasoning", "Which city?")
    assert opened.text(".pane[aria-label='Highlighted output'] .pane-text") == TEXT
    # Both ways.
    opened.page.locator(".card-rejected").hover()
    opened.sees("mark.mark-rejected.active")
    opened.page.locator(".pane mark.mark-call").first.hover()
    opened.sees(".card-call.active")
    opened.page.locator(".pane mark.mark-call").first.click()
    chosen = field.evaluate("it => it.value.slice(it.selectionStart, it.selectionEnd)")
    assert '"Oslo"' in chosen


def test_tools_that_are_none(look: Opener) -> None:
    opened = look("#/playground")
    opened.sees(".card-call")
    tools = opened.page.get_by_label("Tools, as JSON")
    tools.fill("[{")
    opened.sees(".problem", "Invalid JSON")
    tools.fill('[{"name": 7}]')
    opened.until("() => !/^$|Invalid JSON/.test(document.querySelector('.problem').textContent)")
    opened.problems.clear()  # Browsers say that there was a 400.
    tools.fill("[]")
    opened.until("() => document.querySelector('.problem').hidden")


def test_examples_trust_and_dialects(look: Opener) -> None:
    opened = look("#/playground")
    opened.page.get_by_label("Load an example").select_option("glm45")
    opened.sees(".card-call", "get_weather")
    opened.sees(".outcome", "Dialect: glm45")
    opened.page.get_by_label("Trust").select_option("strict")
    opened.page.get_by_label("Dialect").select_option("hermes")
    opened.until("() => !document.querySelector('.card-call')")


def test_it_is_still_there_later(look: Opener) -> None:
    opened = look("#/playground", permissions=["clipboard-read", "clipboard-write"])
    opened.page.get_by_label("Model output").fill("Keep this: ä 😀")
    opened.sees(".pane", "Keep this: ä 😀")
    opened.page.reload()
    opened.sees(".pane", "Keep this: ä 😀")
    opened.page.get_by_role("button", name="Copy link").click()
    opened.sees("button", "Copied")
    link = opened.page.evaluate("navigator.clipboard.readText()")
    other = look(link.removeprefix(f"{opened.url}/"))
    other.sees(".pane", "Keep this: ä 😀")
