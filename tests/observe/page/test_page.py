"""The page as a whole: its token, themes, widths, keys and connection."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.gateway.running_gateway import RunningGateway
from toolspeak.observe.inspector.request_log import RequestLog

from .conftest import OpenInspector
from .inspector_page import InspectorPage, add_records, make_record, request_approval, send_request

VIEWS = ("#/requests", "#/requests/req_00007", "#/playground", "#/chat")


def open_view(inspector: InspectorPage, location: str) -> None:
    inspector.navigate(location)
    inspector.wait_for_view(location)


def test_token_form_with_a_wrong_token_asks_again(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    inspector = open_inspector(token="")
    inspector.wait_for(".token-form", "toolspeak serve")
    inspector.page.get_by_label("Token or admin key").fill("wrong")
    inspector.page.keyboard.press("Enter")
    inspector.wait_for(".token-form", "toolspeak serve")
    inspector.page.get_by_label("Token or admin key").fill("token")
    inspector.page.keyboard.press("Enter")
    inspector.wait_for(".first-steps")
    inspector.ignore_problems(401)
    # The token is stored, and removed from the address.
    other = open_inspector("#/playground")
    other.wait_for(".playground")
    assert other.page.url == f"{gateway.url}/#/playground"
    other.page.reload()
    other.wait_for(".playground .card-call")


STORED_TOKENS = (
    "[sessionStorage.getItem('toolspeak.token'), localStorage.getItem('toolspeak.token')]"
)


def test_typed_token_is_stored_for_the_tab(open_inspector: OpenInspector) -> None:
    inspector = open_inspector(token="")
    field = inspector.page.get_by_label("Token or admin key")
    field.fill("wrong")
    inspector.page.keyboard.press("Enter")
    inspector.wait_for(".token-form .problem", "This token or key is wrong.")
    assert inspector.page.evaluate(STORED_TOKENS) == [None, None]
    field.fill("token")
    inspector.page.keyboard.press("Enter")
    inspector.wait_for(".first-steps")
    assert inspector.page.evaluate(STORED_TOKENS) == ["token", None]
    inspector.page.reload()
    inspector.wait_for(".first-steps")
    # A token in the address is stored for all tabs.
    inspector.navigate("#token=token")
    inspector.wait_until(f"() => JSON.stringify({STORED_TOKENS}) === '[null,\"token\"]'")
    inspector.ignore_problems(401)


@pytest.mark.parametrize("token", ["evil", "%", "%E2%82%AC", "%0A", ""])
def test_link_with_a_wrong_token_keeps_the_valid_one(
    open_inspector: OpenInspector, gateway: RunningGateway, token: str
) -> None:
    inspector = open_inspector()
    inspector.wait_for(".first-steps")
    inspector.navigate(f"#/playground&token={token}")
    inspector.wait_for(".playground")
    inspector.page.goto("about:blank")
    inspector.page.goto(f"{gateway.url}/#token={token}")
    inspector.wait_for(".first-steps")
    assert inspector.page.url == f"{gateway.url}/#/requests"
    assert inspector.page.evaluate(STORED_TOKENS) == [None, "token"]
    inspector.ignore_problems(401)


def test_link_with_a_valid_token_closes_the_token_form(open_inspector: OpenInspector) -> None:
    """A user opens the link of a restarted gateway in the tab of the earlier one."""
    inspector = open_inspector(token="%")
    inspector.wait_for(".token-form")
    inspector.navigate("#token=token")
    inspector.wait_for(".first-steps")
    inspector.ignore_problems(401)


@pytest.mark.parametrize(
    "location",
    ["#/constructor", "#/toString", "#/__proto__", "#/requests?has=constructor,calls,__proto__"],
)
def test_unknown_location_shows_the_requests(
    open_inspector: OpenInspector, gateway: RunningGateway, location: str
) -> None:
    add_records(gateway, *map(make_record, range(4)))
    inspector = open_inspector(location)
    inspector.wait_for("a.row", "Question 3")


def test_disabled_inspector_names_the_setting(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    config = gateway.gateway.config
    gateway.gateway.reload(
        structs.replace(config, inspector=structs.replace(config.inspector, enabled=False))
    )
    inspector = open_inspector()
    inspector.wait_for(".empty", "The inspector is off")
    inspector.wait_for(".empty", "inspector.enabled")
    inspector.ignore_problems(403)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_theme_of_the_system_can_be_switched(open_inspector: OpenInspector, scheme: str) -> None:
    inspector = open_inspector(color_scheme=scheme)
    inspector.wait_for(".toolbar")
    brightness = (
        "() => { const canvas = document.createElement('canvas').getContext('2d');"
        "canvas.fillStyle = getComputedStyle(document.body).backgroundColor;"
        "canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data[0] }"
    )
    assert (inspector.page.evaluate(brightness) < 60) == (scheme == "dark")
    inspector.page.get_by_role("button", name="Switch theme").click()
    assert (inspector.page.evaluate(brightness) < 60) == (scheme == "light")
    inspector.page.reload()
    inspector.wait_for(".toolbar")
    assert (inspector.page.evaluate(brightness) < 60) == (scheme == "light")


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (colour, under) => {
    canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = ([r, g, b]) => {
    const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    return 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  };
  const background = (element) => {
    const behind = element.parentElement ? background(element.parentElement) : [255, 255, 255];
    return rgb(getComputedStyle(element).backgroundColor, behind);
  };
  const weakTexts = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((node) => node instanceof Text && node.data.trim());
    if (!text || !element.checkVisibility() || element.closest(":disabled, option")) continue;
    const behind = background(element);
    const front = rgb(getComputedStyle(element).color, behind);
    const [one, other] = [luminance(front), luminance(behind)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) weakTexts.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return weakTexts;
}"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_text_in_every_view_has_enough_contrast(
    open_inspector: OpenInspector, gateway: RunningGateway, scheme: str
) -> None:
    send_request(gateway, question="An invalid call, please")
    add_records(gateway, *map(make_record, range(26)))
    request_approval(gateway, is_echo=True, secrets=["a key, in $.content"])
    inspector = open_inspector(color_scheme=scheme)
    inspector.wait_for(".card-approval")
    for view in VIEWS:
        open_view(inspector, view)
        assert inspector.page.evaluate(CONTRAST) == [], view
    inspector.navigate("#/requests?q=invalid")
    inspector.page.locator("a.row").first.click()
    inspector.wait_for(".detail .card-rejected, .detail .card-call")
    assert inspector.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [390, 1024])
def test_views_in_narrow_windows_do_not_overflow(
    open_inspector: OpenInspector, gateway: RunningGateway, width: int
) -> None:
    add_records(gateway, *map(make_record, range(30)))
    inspector = open_inspector(width=width)
    inspector.wait_for("a.row")
    for view in VIEWS:
        open_view(inspector, view)
        overflowing = (
            "[...document.querySelectorAll('html, body, main, .view, .column')]"
            ".filter(element => element.scrollWidth > element.clientWidth + 1)"
            ".map(element => element.className)"
        )
        assert inspector.page.evaluate(overflowing) == [], view


def test_text_typed_after_slash_goes_to_the_search(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    """No letter is lost while the page changes from another view to the list."""
    add_records(gateway, *map(make_record, range(100)))
    inspector = open_inspector()
    inspector.wait_for("a.row", "Question 99")
    keyboard = inspector.page.keyboard
    keyboard.press("j")
    keyboard.press("Enter")
    inspector.wait_for(".detail h1", "Question 99")
    keyboard.press("/")
    keyboard.type("question 43")
    inspector.wait_for(".request-count", "1 of 100")
    assert inspector.page.locator("input.search").input_value() == "question 43"


def test_page_can_be_used_by_keyboard(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    add_records(gateway, *map(make_record, range(100)))
    send_request(gateway)
    inspector = open_inspector()
    inspector.wait_for("a.row", "What is the weather")
    keyboard = inspector.page.keyboard
    for key in ("j", "ArrowDown", "j", "k", "k"):
        keyboard.press(key)
    inspector.wait_for("a.row[aria-selected=true]", "What is the weather")
    assert inspector.page.locator(".list").get_attribute("aria-activedescendant")
    keyboard.press("Enter")
    inspector.wait_for(".detail h1", "What is the weather")
    inspector.wait_for(".detail .card-call")
    keyboard.press("ArrowLeft")
    inspector.wait_for("button.live[aria-pressed=false]")
    keyboard.press("j")
    inspector.wait_for(".detail h1", "Question 99")
    keyboard.press("Escape")
    inspector.wait_for("a.row[aria-selected=true]", "Question 99")
    keyboard.press("/")
    keyboard.type("question 43")
    inspector.wait_for(".request-count", "1 of 101")
    keyboard.press("Escape")
    keyboard.press("j")
    keyboard.press("Enter")
    inspector.wait_for(".detail h1", "Question 43")
    keyboard.press("Escape")
    inspector.wait_for(".request-count", "1 of 101")
    for letter, view in (("p", ".playground"), ("c", ".chat")):
        keyboard.press("g")
        keyboard.press(letter)
        inspector.wait_for(view)
        keyboard.press("Escape")
    keyboard.press("g")
    keyboard.press("r")
    inspector.wait_for(".requests")
    keyboard.press("?")
    inspector.wait_for("dialog[open]", "Keyboard shortcuts")
    keyboard.press("Escape")
    inspector.wait_until("() => !document.querySelector('dialog').open")


def test_lost_connection_is_restored(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    inspector = open_inspector()
    inspector.wait_for(".first-steps")
    inspector.page.context.set_offline(True)
    gateway.gateway.is_stopping = True  # Ends the open streams.
    inspector.wait_for(".connection", "Reconnecting")
    gateway.gateway.is_stopping = False
    send_request(gateway)
    inspector.page.context.set_offline(False)
    inspector.wait_for("a.row .calls", "get_weather")
    inspector.wait_until("() => !document.querySelector('.connection').textContent")
    inspector.problems.clear()  # The browser reports that it is offline.


def test_restarted_gateway_replaces_all_requests(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    """Its requests are shown even if they are older than those of the earlier gateway."""
    add_records(gateway, *map(make_record, range(5)))
    inspector = open_inspector()
    inspector.wait_for("a.row", "Question 4")
    inspector.page.keyboard.press("j")
    inspector.wait_for("a.row[aria-selected=true]")
    recorder = gateway.gateway.recorder
    assert recorder
    gateway.gateway.is_stopping = True  # Ends the open streams.
    inspector.wait_for(".connection", "Reconnecting")
    log = RequestLog()
    for number in (1, 2):
        record = make_record(number, "Restarted")
        assert record.capture
        record.capture.key = f"req_new_{number}"
        log.finish(record)
    recorder.epoch, recorder.end = "another", log.finish
    recorder._log = log  # pyright: ignore[reportPrivateUsage]
    gateway.gateway.is_stopping = False
    inspector.wait_for(".request-count", "2 requests")
    inspector.wait_for("a.row", "Restarted")
    assert inspector.count("a.row") == 2
    # Later requests are added as before.
    add_records(gateway, make_record(6, "Later"))
    inspector.wait_for("a.row", "Later")
    assert inspector.count("a.row") == 3


def test_page_loads_nothing_from_other_hosts(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    """`InspectorPage` also blocks all other hosts, and fails the test if one is requested."""
    send_request(gateway)
    add_records(gateway, make_record(7))
    inspector = open_inspector()
    for view in VIEWS:
        open_view(inspector, view)
    names = inspector.page.evaluate(
        "performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert names
    assert all(name.startswith(f"{gateway.url}/") for name in names)


def test_page_with_reduced_motion_has_no_long_animations(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    send_request(gateway)
    inspector = open_inspector(reduced_motion="reduce")
    inspector.page.locator("a.row").first.click()
    inspector.wait_for("mark.mark-call")
    inspector.page.locator(".card-call button.name").first.click()
    durations = (
        "document.getAnimations().map(animation => animation.effect.getComputedTiming().duration)"
    )
    assert all(duration < 50 for duration in inspector.page.evaluate(durations))
