"""Requests appear as they happen, open, and can be replayed."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from tests.gateway.running_gateway import Running

from .conftest import Opener
from .site import Opened, ask, made_up, record
from .talk import CALL

TEXT = ".detail .column:nth-child(3) .pane"
FRAMES = ".detail .column:nth-child(3) .pane.frames"
RECEIVED = ".detail .column:nth-child(4) .pane.frames"
SLIDER = ".slider"
WIRES = {
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "ollama": "Ollama",
    "gemini": "Gemini",
}


def open_first(opened: Opened) -> None:
    opened.page.locator("a.row").first.click()
    opened.sees(".detail .columns")


def lengths(opened: Opened) -> tuple[int, int, int]:
    """How much is shown of the text, of its frames, and of what the client got."""
    script = "all => all.map(one => document.querySelector(`${one} .pane-text`).textContent.length)"
    text, frames, received = opened.page.evaluate(script, [TEXT, FRAMES, RECEIVED])
    return text, frames, received


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_through_each_api(look: Opener, gateway: Running, wire: str) -> None:
    opened = look()
    opened.sees(".first-steps", "No requests yet")
    assert "get_weather" in ask(gateway, wire)
    opened.sees("a.row .api", WIRES[wire])
    opened.sees("a.row .calls", "get_weather")
    opened.sees("a.row .status", "200")
    open_first(opened)
    # What was sent, how the model was asked, what it wrote, what was made of it, what came back.
    opened.sees(".detail .column:nth-child(1)", "What is the weather in Oslo?")
    opened.sees(".detail .column:nth-child(2) .reasons", "the configuration sets")
    opened.sees(".message[data-role=user]", "What is the weather in Oslo?")
    opened.sees(f"{TEXT} mark.mark-call", '"city": "Oslo"')
    opened.sees(".detail .column:nth-child(3) .card-call", '"Oslo"')
    opened.sees(".detail .column:nth-child(3) .note", "coerced")
    opened.sees(".detail .column:nth-child(4) .card-call", "get_weather")
    # All of it is under one slider.
    whole = lengths(opened)
    assert whole[0] == len(f"I will look.\n{CALL}")
    slider = opened.page.locator(SLIDER)
    slider.focus()
    slider.press("Home")
    assert lengths(opened)[:2] == (0, 0)
    seen = [lengths(opened)]
    for _ in range(60):
        slider.press("ArrowRight")
        seen.append(lengths(opened))
        assert all(after >= before for before, after in zip(seen[-2], seen[-1], strict=True))
        if seen[-1] == whole:
            break
    assert seen[-1] == whole
    # On a busy machine several pieces come as one.
    assert len({text for text, _, _ in seen}) > 3
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    assert lengths(opened) != whole
    opened.page.get_by_role("button", name="End").click()
    assert lengths(opened) == whole


@pytest.mark.parametrize("gateway", [0.03], indirect=True)
def test_it_plays(look: Opener, gateway: Running) -> None:
    ask(gateway)
    opened = look()
    open_first(opened)
    whole = lengths(opened)
    opened.page.get_by_label("Speed").select_option("0.25")
    opened.page.get_by_role("button", name="Play").click()
    opened.until(f"() => document.querySelector('{TEXT}').textContent.length < {whole[0]}")
    opened.sees("button[aria-label=Pause]")
    opened.page.get_by_label("Speed").select_option("5")
    opened.sees("button[aria-label=Play]")
    assert lengths(opened) == whole


def test_every_turn_is_there(look: Opener, gateway: Running) -> None:
    ask(gateway, "anthropic", "A misfit, please")
    opened = look()
    opened.sees("a.row .retries", "1")
    open_first(opened)
    tabs = opened.page.get_by_role("tab")
    assert tabs.count() >= 2
    assert "retry: invalid-call" in tabs.nth(1).inner_text()
    opened.sees(".reason", "Retry. Previous reply: a call that cannot be parsed")
    tabs.first.click()
    opened.sees(".detail .column:nth-child(3) .card-rejected", "city")
    opened.sees(f"{TEXT} mark.mark-rejected", "town")
    tabs.first.press("ArrowDown")
    opened.sees("[role=tab][aria-selected=true]", "retry")


def test_a_call_and_its_place_are_linked(look: Opener, gateway: Running) -> None:
    ask(gateway)
    opened = look()
    open_first(opened)
    card = opened.page.locator(".detail .column:nth-child(3) .card-call")
    card.get_by_role("button", name="get_weather").click()
    opened.sees("mark.mark-call.flash")
    opened.page.locator(".pane mark.mark-call").first.click()
    opened.sees(".card-call.flash")
    card.hover()
    opened.sees("mark.mark-call.active")
    opened.page.locator(".pane mark.mark-call").first.hover()
    opened.sees("#tip", "get_weather")


def test_what_can_be_taken_along(look: Opener, gateway: Running, tmp_path: Path) -> None:
    ask(gateway)
    opened = look(permissions=["clipboard-read", "clipboard-write"])
    open_first(opened)
    address = opened.page.url
    opened.page.get_by_role("button", name="Copy as curl").click()
    opened.sees("button", "Copied")
    assert opened.page.evaluate("navigator.clipboard.readText()").startswith("curl -gsN http://")
    opened.page.get_by_role("button", name="Copy link").click()
    opened.until("async address => await navigator.clipboard.readText() === address", address)
    with opened.page.expect_download() as saved:
        opened.page.get_by_role("button", name="Download JSON").click()
    saved.value.save_as(tmp_path / "it.json")
    assert '"attempts"' in (tmp_path / "it.json").read_text()
    # The link holds for others who have the token.
    other = look(address.removeprefix(f"{gateway.url}/"))
    other.sees("h1", "What is the weather in Oslo?")


def test_one_that_is_gone(look: Opener) -> None:
    opened = look("#/requests/req_none")
    opened.sees(".empty", "the last 1,000 requests")
    opened.problems.clear()  # Browsers say that there was a 404.


@pytest.mark.parametrize("gateway", [0.03], indirect=True)
def test_one_that_runs(look: Opener, gateway: Running) -> None:
    """It is followed, and nothing jumps: what one has opened or moved stays."""
    opened = look()
    asking = threading.Thread(target=ask, args=(gateway, "openai_chat", "slow"))
    asking.start()
    opened.sees("a.row[data-state=running]")
    open_first(opened)
    opened.sees(".state", "running")
    opened.until(f"() => document.querySelector('{TEXT}').textContent.length > 40")
    opened.page.locator(SLIDER).focus()
    opened.page.locator(SLIDER).press("Home")
    opened.page.locator(".section summary", has_text="Request body").click()
    opened.sees(".state", "200")
    asking.join()
    assert opened.page.locator(SLIDER).input_value() == "0"
    assert lengths(opened)[0] == 0
    opened.page.get_by_role("button", name="End").click()
    assert lengths(opened)[0] == len("Slowly does it. " * 30)
    # It is still open.
    opened.sees(".body-view .json", '"messages"')


def test_a_megabyte_does_not_hold_it_up(look: Opener, gateway: Running) -> None:
    ask(gateway, "openai_chat", "long")
    opened = look()
    opened.watch_tasks()
    open_first(opened)
    text = f"document.querySelector('{TEXT} .pane-text').textContent.length"
    assert opened.page.evaluate(text) == 40_000
    opened.page.locator(f"{TEXT} .pane-more").first.click()
    opened.until(f"() => {text} > 1_000_000")
    assert opened.longest_task() < 1500


def test_the_filter_is_in_the_address(look: Opener, gateway: Running) -> None:
    record(gateway, *map(made_up, range(60)))
    opened = look("#/requests?q=question&api=anthropic&has=calls")
    opened.sees(".request-count", "6 of 60")
    opened.page.get_by_label("Mode").select_option("prompt")
    opened.sees(".request-count", "2 of 60")
    assert opened.page.url.endswith("#/requests?q=question&api=anthropic&mode=prompt&has=calls")
    opened.page.get_by_label("Search").fill("model-0 question 7")
    opened.sees(".request-count", "1 of 60")
    opened.page.get_by_label("Search").fill("nothing like it")
    opened.page.get_by_role("button", name="Show all").click()
    opened.sees(".request-count", "60 requests")
    opened.page.get_by_role("button", name="failed").click()
    opened.sees(".request-count", "3 of 60")
    opened.page.get_by_role("button", name="retried").click()
    opened.sees(".request-count", "2 of 60")
    assert opened.page.url.endswith("#/requests?has=failed,retried")


def test_what_one_looks_at_stays_where_it_is(look: Opener, gateway: Running) -> None:
    record(gateway, *map(made_up, range(200)))
    opened = look()
    opened.sees("a.row", "Question 199")
    opened.page.locator(".list").evaluate("list => { list.scrollTop = 1000 }")
    opened.sees("a.row", "Question 165")
    place = "() => document.getElementById('row-req_00165').getBoundingClientRect().top"
    before = opened.page.evaluate(place)
    record(gateway, *map(made_up, range(200, 212)))
    opened.sees("button.new-requests", "12 new")
    assert opened.page.evaluate(place) == before
    opened.page.locator("button.new-requests").click()
    opened.sees("a.row", "Question 211")
    # At the top all that is new appears, unless it is paused.
    record(gateway, made_up(212))
    opened.sees("a.row", "Question 212")
    opened.page.get_by_role("button", name="Pause").click()
    record(gateway, made_up(213))
    opened.sees("button.new-requests", "1 new")
    assert not re.search("Question 213", opened.text(".list"))
    opened.page.get_by_role("button", name="Paused").click()
    opened.sees("a.row", "Question 213")


def test_a_row_tells_more_while_it_runs(look: Opener, gateway: Running) -> None:
    """It stays the same row: only the texts that have changed are other ones."""
    record(gateway, *map(made_up, range(3)))
    first = made_up(1001)
    kept = first.capture
    assert kept
    first.model = first.upstream_model = first.mode = kept.user_message = ""
    first.ended, first.has_replied, first.replaced_reply = 0.0, False, None
    recorder = gateway.gateway.recorder
    assert recorder
    ring = recorder._log  # pyright: ignore[reportPrivateUsage]
    gateway.loop.call_soon_threadsafe(ring.active.update, {kept.key: first})
    opened = look()
    opened.sees("a.row[data-state=running]")
    opened.page.evaluate(
        """() => {
          window.row = document.getElementById("row-req_01001");
          window.changes = [];
          new MutationObserver((all) => changes.push(...all.map(({ type, target }) =>
            type === "childList" ? target.className : target.nodeName))).observe(
              document.querySelector(".list"), { childList: true, subtree: true });
        }"""
    )
    first.mode = "native"
    opened.sees("#row-req_01001", "native")
    kept.user_message, first.retries = "Now known", ["upstream", "upstream"]
    opened.sees("#row-req_01001", "Now known")
    opened.sees("#row-req_01001 .retries", "2")
    assert opened.page.evaluate("row === document.getElementById('row-req_01001')")
    changed = set(opened.page.evaluate("changes"))
    assert changed == {"cell mode", "cell user-message", "cell retries"}


def test_the_active_row_is_one_that_is_there(look: Opener, gateway: Running) -> None:
    record(gateway, *map(made_up, range(300)))
    opened = look()
    opened.sees("a.row", "Question 299")
    active = "document.querySelector('.list').getAttribute('aria-activedescendant')"
    opened.page.keyboard.press("j")
    assert opened.page.evaluate(active) == "row-req_00299"
    scroll = "top => { document.querySelector('.list').scrollTop = top }"
    opened.page.evaluate(scroll, 5000)
    opened.until("() => !document.getElementById('row-req_00299')")
    assert opened.page.evaluate(active) is None
    opened.page.evaluate(scroll, 0)
    opened.sees("#row-req_00299")
    assert opened.page.evaluate(active) == "row-req_00299"
