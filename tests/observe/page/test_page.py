"""The page as such: who may see it, dark and light, phones, keys, and lost connections."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.gateway.running_gateway import Running
from toolspeak.observe.inspector.request_log import RequestLog

from .conftest import Opener
from .site import ask, made_up, record
from .test_approvals import put

VIEWS = ("#/requests", "#/requests/req_00007", "#/playground", "#/chat")


def test_the_token(look: Opener, gateway: Running) -> None:
    opened = look(token="")
    opened.sees(".token-form", "toolspeak serve")
    opened.page.get_by_label("Token or admin key").fill("wrong")
    opened.page.keyboard.press("Enter")
    opened.sees(".token-form", "toolspeak serve")
    opened.page.get_by_label("Token or admin key").fill("token")
    opened.page.keyboard.press("Enter")
    opened.sees(".first-steps")
    opened.problems.clear()  # Browsers say that there was a 401.
    # It is kept, and does not stay in the address.
    other = look("#/playground")
    other.sees(".playground")
    assert other.page.url == f"{gateway.url}/#/playground"
    other.page.reload()
    other.sees(".playground .card-call")


KEPT = "[sessionStorage.getItem('toolspeak.token'), localStorage.getItem('toolspeak.token')]"


def test_what_was_typed_goes_with_the_tab(look: Opener) -> None:
    opened = look(token="")
    field = opened.page.get_by_label("Token or admin key")
    field.fill("wrong")
    opened.page.keyboard.press("Enter")
    opened.sees(".token-form .problem", "Invalid token or key.")
    assert opened.page.evaluate(KEPT) == [None, None]
    field.fill("token")
    opened.page.keyboard.press("Enter")
    opened.sees(".first-steps")
    assert opened.page.evaluate(KEPT) == ["token", None]
    opened.page.reload()
    opened.sees(".first-steps")
    # The one of an address is for all tabs.
    opened.go("#token=token")
    opened.until(f"() => JSON.stringify({KEPT}) === '[null,\"token\"]'")
    opened.problems.clear()  # Browsers say that there was a 401.


@pytest.mark.parametrize("token", ["evil", "%", "%E2%82%AC", "%0A", ""])
def test_a_link_takes_no_good_token_away(look: Opener, gateway: Running, token: str) -> None:
    opened = look()
    opened.sees(".first-steps")
    opened.go(f"#/playground&token={token}")
    opened.sees(".playground")
    opened.page.goto("about:blank")
    opened.page.goto(f"{gateway.url}/#token={token}")
    opened.sees(".first-steps")
    assert opened.page.url == f"{gateway.url}/#/requests"
    assert opened.page.evaluate(KEPT) == [None, "token"]
    opened.problems = [one for one in opened.problems if "401" not in one]


def test_a_good_token_opens_the_form(look: Opener) -> None:
    """The address of a gateway that was started anew, in the tab of the one before."""
    opened = look(token="%")
    opened.sees(".token-form")
    opened.go("#token=token")
    opened.sees(".first-steps")
    opened.problems.clear()  # Browsers say that there was a 401.


@pytest.mark.parametrize(
    "where",
    ["#/constructor", "#/toString", "#/__proto__", "#/requests?has=constructor,calls,__proto__"],
)
def test_odd_addresses(look: Opener, gateway: Running, where: str) -> None:
    record(gateway, *map(made_up, range(4)))
    opened = look(where)
    opened.sees("a.row", "Question 3")


def test_it_is_off(look: Opener, gateway: Running) -> None:
    config = gateway.gateway.config
    gateway.gateway.reload(
        structs.replace(config, inspector=structs.replace(config.inspector, enabled=False))
    )
    opened = look()
    opened.sees(".empty", "The inspector is disabled")
    opened.sees(".empty", "inspector.enabled")
    opened.problems.clear()  # Browsers say that there was a 403.


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_dark_and_light(look: Opener, scheme: str) -> None:
    opened = look(color_scheme=scheme)
    opened.sees(".toolbar")
    brightness = (
        "() => { const canvas = document.createElement('canvas').getContext('2d');"
        "canvas.fillStyle = getComputedStyle(document.body).backgroundColor;"
        "canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data[0] }"
    )
    assert (opened.page.evaluate(brightness) < 60) == (scheme == "dark")
    opened.page.get_by_role("button", name="Switch theme").click()
    assert (opened.page.evaluate(brightness) < 60) == (scheme == "light")
    opened.page.reload()
    opened.sees(".toolbar")
    assert (opened.page.evaluate(brightness) < 60) == (scheme == "light")


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (colour, under) => {
    canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = ([r, g, b]) => {
    const of = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    return 0.2126 * of(r / 255) + 0.7152 * of(g / 255) + 0.0722 * of(b / 255);
  };
  const under = (element) => {
    const above = element.parentElement ? under(element.parentElement) : [255, 255, 255];
    return rgb(getComputedStyle(element).backgroundColor, above);
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((node) => node instanceof Text && node.data.trim());
    if (!text || !element.checkVisibility() || element.closest(":disabled, option")) continue;
    const back = under(element);
    const [one, other] = [light(rgb(getComputedStyle(element).color, back)), light(back)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) weak.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return weak;
}"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_everything_can_be_read(look: Opener, gateway: Running, scheme: str) -> None:
    ask(gateway, question="A misfit, please")
    record(gateway, *map(made_up, range(26)))
    put(gateway, is_echo=True, secrets=["a key, in $.content"])
    opened = look(color_scheme=scheme)
    opened.sees(".card-approval")
    for view in VIEWS:
        opened.go(view)
        opened.page.wait_for_timeout(250)
        assert opened.page.evaluate(CONTRAST) == [], view
    opened.go("#/requests?q=misfit")
    opened.page.locator("a.row").first.click()
    opened.sees(".detail .card-rejected, .detail .card-call")
    assert opened.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [390, 1024])
def test_nothing_is_wider_than_the_window(look: Opener, gateway: Running, width: int) -> None:
    record(gateway, *map(made_up, range(30)))
    opened = look(width=width)
    opened.sees("a.row")
    for view in VIEWS:
        opened.go(view)
        opened.page.wait_for_timeout(250)
        wide = (
            "[...document.querySelectorAll('html, body, main, .view, .column')]"
            ".filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.className)"
        )
        assert opened.page.evaluate(wide) == [], view


def test_what_is_typed_after_a_slash_is_searched_for(look: Opener, gateway: Running) -> None:
    """From the first letter on, also where another view has to go first."""
    record(gateway, *map(made_up, range(100)))
    opened = look()
    opened.sees("a.row", "Question 99")
    keyboard = opened.page.keyboard
    keyboard.press("j")
    keyboard.press("Enter")
    opened.sees(".detail h1", "Question 99")
    keyboard.press("/")
    keyboard.type("question 43")
    opened.sees(".request-count", "1 of 100")
    assert opened.page.locator("input.search").input_value() == "question 43"


def test_by_keys_alone(look: Opener, gateway: Running) -> None:
    record(gateway, *map(made_up, range(100)))
    ask(gateway)
    opened = look()
    opened.sees("a.row", "What is the weather")
    keyboard = opened.page.keyboard
    for key in ("j", "ArrowDown", "j", "k", "k"):
        keyboard.press(key)
    opened.sees("a.row[aria-selected=true]", "What is the weather")
    assert opened.page.locator(".list").get_attribute("aria-activedescendant")
    keyboard.press("Enter")
    opened.sees(".detail h1", "What is the weather")
    opened.sees(".detail .card-call")
    keyboard.press("ArrowLeft")
    opened.sees("button.live[aria-pressed=false]")
    keyboard.press("j")
    opened.sees(".detail h1", "Question 99")
    keyboard.press("Escape")
    opened.sees("a.row[aria-selected=true]", "Question 99")
    keyboard.press("/")
    keyboard.type("question 43")
    opened.sees(".request-count", "1 of 101")
    keyboard.press("Escape")
    keyboard.press("j")
    keyboard.press("Enter")
    opened.sees(".detail h1", "Question 43")
    keyboard.press("Escape")
    opened.sees(".request-count", "1 of 101")
    for letter, view in (("p", ".playground"), ("c", ".chat")):
        keyboard.press("g")
        keyboard.press(letter)
        opened.sees(view)
        keyboard.press("Escape")
    keyboard.press("g")
    keyboard.press("r")
    opened.sees(".requests")
    keyboard.press("?")
    opened.sees("dialog[open]", "Keyboard shortcuts")
    keyboard.press("Escape")
    opened.until("() => !document.querySelector('dialog').open")


def test_a_lost_connection_comes_back(look: Opener, gateway: Running) -> None:
    opened = look()
    opened.sees(".first-steps")
    opened.page.context.set_offline(True)
    gateway.gateway.is_stopping = True  # Ends what is open.
    opened.sees(".connection", "Reconnecting")
    gateway.gateway.is_stopping = False
    ask(gateway)
    opened.page.context.set_offline(False)
    opened.sees("a.row .calls", "get_weather")
    opened.until("() => !document.querySelector('.connection').textContent")
    opened.problems.clear()  # Browsers say that they are offline.


def test_a_gateway_that_was_started_anew(look: Opener, gateway: Running) -> None:
    """All of its requests are there, not only what is newer than what was seen before."""
    record(gateway, *map(made_up, range(5)))
    opened = look()
    opened.sees("a.row", "Question 4")
    opened.page.keyboard.press("j")
    opened.sees("a.row[aria-selected=true]")
    recorder = gateway.gateway.recorder
    assert recorder
    gateway.gateway.is_stopping = True  # Ends what is open.
    opened.sees(".connection", "Reconnecting")
    fresh = RequestLog()
    for number in (1, 2):
        one = made_up(number, "Anew")
        assert one.capture
        one.capture.key = f"req_new_{number}"
        fresh.finish(one)
    recorder.epoch, recorder.end = "another", fresh.finish
    recorder._log = fresh  # pyright: ignore[reportPrivateUsage]
    gateway.gateway.is_stopping = False
    opened.sees(".request-count", "2 requests")
    opened.sees("a.row", "Anew")
    assert opened.count("a.row") == 2
    # From there on it goes on as ever.
    record(gateway, made_up(6, "Later"))
    opened.sees("a.row", "Later")
    assert opened.count("a.row") == 3


def test_nothing_comes_from_elsewhere(look: Opener, gateway: Running) -> None:
    """`Opened` cuts off all other hosts, and fails if one is asked."""
    ask(gateway)
    opened = look()
    for view in VIEWS:
        opened.go(view)
        opened.page.wait_for_timeout(150)
    names = opened.page.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
    assert names
    assert all(name.startswith(f"{gateway.url}/") for name in names)
    opened.problems = [one for one in opened.problems if "404" not in one]


def test_it_needs_no_motion(look: Opener, gateway: Running) -> None:
    ask(gateway)
    opened = look(reduced_motion="reduce")
    opened.page.locator("a.row").first.click()
    opened.sees("mark.mark-call")
    opened.page.locator(".card-call button.name").first.click()
    lengths = "document.getAnimations().map(one => one.effect.getComputedTiming().duration)"
    assert all(length < 50 for length in opened.page.evaluate(lengths))
