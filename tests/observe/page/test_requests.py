"""The list of requests, and the view of one request with its timeline."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.running_gateway import RunningGateway
from toolspeak import Finish, TextDelta

from .conftest import OpenInspector
from .inspector_page import (
    InspectorPage,
    add_records,
    make_record,
    run_inspected_gateway,
    send_request,
)
from .scripted_model import CALL

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPLY = ".detail .column:nth-child(3) .pane"
REPLY_FRAMES = ".detail .column:nth-child(3) .pane.frames"
RESPONSE_FRAMES = ".detail .column:nth-child(4) .pane.frames"
SLIDER = ".slider"
WIRES = {
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "ollama": "Ollama",
    "gemini": "Gemini",
}


def open_first(inspector: InspectorPage) -> None:
    inspector.page.locator("a.row").first.click()
    inspector.wait_for(".detail .columns")


def read_lengths(inspector: InspectorPage) -> tuple[int, int, int]:
    """Return how much is shown of the reply's text, of its frames and of the response."""
    read_length = "document.querySelector(`${pane} .pane-text`).textContent.length"
    script = f"panes => panes.map(pane => {read_length})"
    text, frames, response = inspector.page.evaluate(script, [REPLY, REPLY_FRAMES, RESPONSE_FRAMES])
    return text, frames, response


@pytest.mark.parametrize("wire", WIRES)
def test_request_of_each_api_can_be_replayed(
    open_inspector: OpenInspector, gateway: RunningGateway, wire: str
) -> None:
    inspector = open_inspector()
    inspector.wait_for(".first-steps", "No requests yet")
    assert "get_weather" in send_request(gateway, wire)
    inspector.wait_for("a.row .api", WIRES[wire])
    inspector.wait_for("a.row .calls", "get_weather")
    inspector.wait_for("a.row .status", "200")
    open_first(inspector)
    # The client's request, the plan, the prompt, the reply, its calls, and the response.
    inspector.wait_for(".detail .column:nth-child(1)", "What is the weather in Oslo?")
    inspector.wait_for(".detail .column:nth-child(2) .reasons", "is set to")
    inspector.wait_for(".message[data-role=user]", "What is the weather in Oslo?")
    inspector.wait_for(f"{REPLY} mark.mark-call", '"city": "Oslo"')
    inspector.wait_for(".detail .column:nth-child(3) .card-call", '"Oslo"')
    inspector.wait_for(".detail .column:nth-child(3) .note", "coerced")
    inspector.wait_for(".detail .column:nth-child(4) .card-call", "get_weather")
    # One slider controls all panes.
    whole = read_lengths(inspector)
    assert whole[0] == len(f"I will look.\n{CALL}")
    slider = inspector.page.locator(SLIDER)
    slider.focus()
    slider.press("Home")
    assert read_lengths(inspector)[:2] == (0, 0)
    shown = [read_lengths(inspector)]
    for _ in range(60):
        slider.press("ArrowRight")
        shown.append(read_lengths(inspector))
        assert all(after >= before for before, after in zip(shown[-2], shown[-1], strict=True))
        if shown[-1] == whole:
            break
    assert shown[-1] == whole
    # On a busy machine several chunks may arrive as one.
    assert len({text for text, _, _ in shown}) > 3
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    assert read_lengths(inspector) != whole
    inspector.page.get_by_role("button", name="End").click()
    assert read_lengths(inspector) == whole


@pytest.mark.parametrize("gateway", [0.03], indirect=True)
def test_playback_shows_the_reply_in_time(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    send_request(gateway)
    inspector = open_inspector()
    open_first(inspector)
    whole = read_lengths(inspector)
    inspector.page.get_by_label("Speed").select_option("0.25")
    inspector.page.get_by_role("button", name="Play").click()
    inspector.wait_until(f"() => document.querySelector('{REPLY}').textContent.length < {whole[0]}")
    inspector.wait_for("button[aria-label=Pause]")
    inspector.page.get_by_label("Speed").select_option("5")
    inspector.wait_for("button[aria-label=Play]")
    assert read_lengths(inspector) == whole


def test_request_with_a_retry_shows_every_attempt(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    send_request(gateway, "anthropic", "An invalid call, please")
    inspector = open_inspector()
    inspector.wait_for("a.row .retries", "1")
    open_first(inspector)
    tabs = inspector.page.get_by_role("tab")
    assert tabs.count() >= 2
    assert "retry: invalid-call" in tabs.nth(1).inner_text()
    inspector.wait_for(".reason", "Retry. Previous reply: a call that cannot be parsed")
    tabs.first.click()
    inspector.wait_for(".detail .column:nth-child(3) .card-rejected", "city")
    inspector.wait_for(f"{REPLY} mark.mark-rejected", "town")
    tabs.first.press("ArrowDown")
    inspector.wait_for("[role=tab][aria-selected=true]", "retry")


def make_attempt(
    start: float, *, text: str = "", calls: int = 0, is_sent: bool = True, is_over: bool = True
) -> dict[str, Any]:
    """Return the part of an attempt that decides whether the page opens on it."""
    end = start + 5 if is_over else None
    raw = "{}" if is_sent and (text or calls) else ""
    return {"start_ms": start, "end_ms": end, "text": text, "raw": raw, "calls": [{}] * calls}


@pytest.mark.parametrize(
    ("attempts", "time", "expected"),
    [
        # A small model's decision, and the calls that follow from it.
        ([make_attempt(0, text="{}"), make_attempt(9, calls=1, is_sent=False)], None, 0),
        # Calls that follow from the question alone.
        ([make_attempt(0, calls=1, is_sent=False)], None, 0),
        # The second upstream failed before its first byte.
        ([make_attempt(0, text="Hi"), make_attempt(9)], None, 0),
        ([make_attempt(0), make_attempt(9)], None, 1),
        # Retries, and native calls without any text after a selection of tools.
        ([make_attempt(0, text="no"), make_attempt(9, text="yes")], None, 1),
        ([make_attempt(0, text="f"), make_attempt(9, calls=1)], None, 1),
        # In progress, and in a replay: the attempt at that time.
        ([make_attempt(0, text="no"), make_attempt(9, is_over=False)], None, 1),
        ([make_attempt(0, text="a"), make_attempt(9), make_attempt(18, text="b")], 10, 1),
        ([make_attempt(3, text="a")], 0, 0),
        ([], None, 0),
    ],
)
def test_page_opens_on_the_attempt_in_which_the_model_wrote(
    open_inspector: OpenInspector, attempts: list[dict[str, Any]], time: float | None, expected: int
) -> None:
    script = """async ([attempts, time]) => {
      const { attemptAt } = await import("/inspector/timeline.js");
      return attemptAt(attempts, time ?? Infinity);
    }"""
    assert open_inspector().page.evaluate(script, [attempts, time]) == expected


def test_decisions_of_a_small_model_are_labelled_and_shown(browser: Browser) -> None:
    turn = [TextDelta('{"city": "Rome"}'), Finish("stop")]
    model: dict[str, Any] = {"tools": "constrained", "weak": True, "dialect": ""}
    with run_inspected_gateway(turn, **model) as gateway:
        send_request(gateway, question="Is the weather nicer in Oslo than on our trip to Rome?")
        with InspectorPage(browser, gateway.url, "", "token") as inspector:
            open_first(inspector)
            tabs = inspector.page.get_by_role("tab")
            labels = [tab.inner_text().splitlines()[0] for tab in tabs.all()]
            assert labels == ["1 decision", "2 calls from decisions"]
            inspector.wait_for("[role=tab][aria-selected=true]", "1 decision")
            inspector.wait_for(f"{REPLY}", '"city": "Rome"')
            inspector.wait_for(".reason", "A small model makes one decision")
            # An attempt that is not selected has an outline, which the response has not.
            outline = "node => getComputedStyle(node).boxShadow"
            assert "inset" in tabs.nth(1).evaluate(outline)
            assert inspector.page.locator("div.timeline-row").evaluate(outline) == "none"
            tabs.nth(1).click()
            inspector.wait_for(".reason", "The model is not asked again")


def test_call_and_its_text_are_linked(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    send_request(gateway)
    inspector = open_inspector()
    open_first(inspector)
    card = inspector.page.locator(".detail .column:nth-child(3) .card-call")
    card.get_by_role("button", name="get_weather").click()
    inspector.wait_for("mark.mark-call.flash")
    inspector.page.locator(".pane mark.mark-call").first.click()
    inspector.wait_for(".card-call.flash")
    card.hover()
    inspector.wait_for("mark.mark-call.active")
    inspector.page.locator(".pane mark.mark-call").first.hover()
    inspector.wait_for("#tip", "get_weather")


def test_request_can_be_copied_linked_and_downloaded(
    open_inspector: OpenInspector, gateway: RunningGateway, tmp_path: Path
) -> None:
    send_request(gateway)
    inspector = open_inspector(permissions=["clipboard-read", "clipboard-write"])
    open_first(inspector)
    address = inspector.page.url
    inspector.page.get_by_role("button", name="Copy as curl").click()
    inspector.wait_for("button", "Copied")
    assert inspector.page.evaluate("navigator.clipboard.readText()").startswith("curl -gsN http://")
    inspector.page.get_by_role("button", name="Copy link").click()
    inspector.wait_until(
        "async address => await navigator.clipboard.readText() === address", address
    )
    with inspector.page.expect_download() as saved:
        inspector.page.get_by_role("button", name="Download JSON").click()
    saved.value.save_as(tmp_path / "request.json")
    assert '"attempts"' in (tmp_path / "request.json").read_text()
    # The link works in another tab that has the token.
    other = open_inspector(address.removeprefix(f"{gateway.url}/"))
    other.wait_for("h1", "What is the weather in Oslo?")


def test_dropped_request_names_the_limit(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/requests/req_none")
    inspector.wait_for(".empty", "the last 1,000 requests")
    inspector.ignore_problems(404)


@pytest.mark.parametrize("gateway", [0.03], indirect=True)
def test_active_request_is_updated_in_place(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    """The slider and the sections stay as the user has left them."""
    inspector = open_inspector()
    client = threading.Thread(target=send_request, args=(gateway, "openai_chat", "slow"))
    client.start()
    inspector.wait_for("a.row[data-state=running]")
    open_first(inspector)
    inspector.wait_for(".state", "running")
    inspector.wait_until(f"() => document.querySelector('{REPLY}').textContent.length > 40")
    inspector.page.locator(SLIDER).focus()
    inspector.page.locator(SLIDER).press("Home")
    inspector.page.locator(".section summary", has_text="Request body").click()
    inspector.wait_for(".state", "200")
    client.join()
    assert inspector.page.locator(SLIDER).input_value() == "0"
    assert read_lengths(inspector)[0] == 0
    inspector.page.get_by_role("button", name="End").click()
    assert read_lengths(inspector)[0] == len("Slowly does it. " * 30)
    # The section is still open.
    inspector.wait_for(".body-view .json", '"messages"')


def test_reply_of_a_megabyte_is_shown_in_parts(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    send_request(gateway, "openai_chat", "long")
    inspector = open_inspector()
    inspector.record_long_tasks()
    open_first(inspector)
    text = f"document.querySelector('{REPLY} .pane-text').textContent.length"
    assert inspector.page.evaluate(text) == 40_000
    inspector.page.locator(f"{REPLY} .pane-more").first.click()
    inspector.wait_until(f"() => {text} > 1_000_000")
    assert inspector.read_longest_task() < 5000


def test_filter_is_part_of_the_location(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    add_records(gateway, *map(make_record, range(60)))
    inspector = open_inspector("#/requests?q=question&api=anthropic&has=calls")
    inspector.wait_for(".request-count", "6 of 60")
    inspector.page.get_by_label("Mode").select_option("prompt")
    inspector.wait_for(".request-count", "2 of 60")
    assert inspector.page.url.endswith("#/requests?q=question&api=anthropic&mode=prompt&has=calls")
    inspector.page.get_by_label("Search").fill("model-0 question 7")
    inspector.wait_for(".request-count", "1 of 60")
    inspector.page.get_by_label("Search").fill("nothing like it")
    inspector.page.get_by_role("button", name="Show all").click()
    inspector.wait_for(".request-count", "60 requests")
    inspector.page.get_by_role("button", name="failed").click()
    inspector.wait_for(".request-count", "3 of 60")
    inspector.page.get_by_role("button", name="retried").click()
    inspector.wait_for(".request-count", "2 of 60")
    assert inspector.page.url.endswith("#/requests?has=failed,retried")


def test_scrolled_list_stays_in_place_when_requests_arrive(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    add_records(gateway, *map(make_record, range(200)))
    inspector = open_inspector()
    inspector.wait_for("a.row", "Question 199")
    inspector.page.locator(".list").evaluate("list => { list.scrollTop = 1000 }")
    inspector.wait_for("a.row", "Question 165")
    place = "() => document.getElementById('row-req_00165').getBoundingClientRect().top"
    before = inspector.page.evaluate(place)
    add_records(gateway, *map(make_record, range(200, 212)))
    inspector.wait_for("button.new-requests", "12 new")
    assert inspector.page.evaluate(place) == before
    inspector.page.locator("button.new-requests").click()
    inspector.wait_for("a.row", "Question 211")
    # At the top, new requests appear at once, unless the list is paused.
    add_records(gateway, make_record(212))
    inspector.wait_for("a.row", "Question 212")
    inspector.page.get_by_role("button", name="Pause").click()
    add_records(gateway, make_record(213))
    inspector.wait_for("button.new-requests", "1 new")
    assert not re.search("Question 213", inspector.read_text(".list"))
    inspector.page.get_by_role("button", name="Paused").click()
    inspector.wait_for("a.row", "Question 213")


def test_row_of_active_request_is_updated_cell_by_cell(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    """The row stays the same element: only the cells with other texts change."""
    add_records(gateway, *map(make_record, range(3)))
    record = make_record(1001)
    capture = record.capture
    assert capture
    record.model = record.upstream_model = record.mode = capture.user_message = ""
    record.ended, record.has_replied, record.replaced_reply = 0.0, False, None
    recorder = gateway.gateway.recorder
    assert recorder
    log = recorder._log  # pyright: ignore[reportPrivateUsage]
    gateway.loop.call_soon_threadsafe(log.active.update, {capture.key: record})
    inspector = open_inspector()
    inspector.wait_for("a.row[data-state=running]")
    inspector.page.evaluate(
        """() => {
          window.row = document.getElementById("row-req_01001");
          window.changes = [];
          new MutationObserver((records) => changes.push(...records.map(({ type, target }) =>
            type === "childList" ? target.className : target.nodeName))).observe(
              document.querySelector(".list"), { childList: true, subtree: true });
        }"""
    )
    record.mode = "native"
    inspector.wait_for("#row-req_01001", "native")
    capture.user_message, record.retries = "Now known", ["upstream", "upstream"]
    inspector.wait_for("#row-req_01001", "Now known")
    inspector.wait_for("#row-req_01001 .retries", "2")
    assert inspector.page.evaluate("row === document.getElementById('row-req_01001')")
    changed = set(inspector.page.evaluate("changes"))
    assert changed == {"cell mode", "cell user-message", "cell retries"}


def test_active_descendant_of_the_list_exists(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    add_records(gateway, *map(make_record, range(300)))
    inspector = open_inspector()
    inspector.wait_for("a.row", "Question 299")
    active = "document.querySelector('.list').getAttribute('aria-activedescendant')"
    inspector.page.keyboard.press("j")
    assert inspector.page.evaluate(active) == "row-req_00299"
    scroll = "top => { document.querySelector('.list').scrollTop = top }"
    inspector.page.evaluate(scroll, 5000)
    inspector.wait_until("() => !document.getElementById('row-req_00299')")
    assert inspector.page.evaluate(active) is None
    inspector.page.evaluate(scroll, 0)
    inspector.wait_for("#row-req_00299")
    assert inspector.page.evaluate(active) == "row-req_00299"
