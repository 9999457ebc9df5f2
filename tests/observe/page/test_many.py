"""Thousands of requests are as quick as ten."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.gateway.running_gateway import Running

from .conftest import Opener
from .site import gateway_behind, made_up, record
from .talk import answer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MANY = 5000


@pytest.fixture
def gateway(browser: Browser) -> Iterator[Running]:
    with gateway_behind(answer, keeps=MANY) as gateway:
        record(gateway, *map(made_up, range(MANY)))
        yield gateway


def test_five_thousand(look: Opener, gateway: Running) -> None:
    opened = look()
    opened.sees(".request-count", "5,000 requests")
    opened.watch_tasks()
    began = time.monotonic()
    most = opened.page.evaluate(
        """async () => {
          const list = document.querySelector(".list");
          let most = 0;
          for (let at = 0; at < list.scrollHeight; at += 1200) {
            list.scrollTop = at;
            await new Promise(requestAnimationFrame);
            most = Math.max(most, document.querySelectorAll("a.row").length);
          }
          return most;
        }"""
    )
    assert time.monotonic() - began < 10
    assert most < 100
    opened.sees("a.row", "Question 0")
    assert opened.count("body *") < 2000
    # Typing is as smooth.
    for letter in "question 4321":
        opened.page.get_by_label("Search").press(letter if letter != " " else "Space")
    opened.sees(".request-count", "1 of 5,000")
    opened.page.get_by_label("Search").fill("")
    opened.sees(".request-count", "5,000 requests")
    assert opened.longest_task() < 600
    # And so are keys.
    opened.page.keyboard.press("Escape")
    for _ in range(40):
        opened.page.keyboard.press("j")
    opened.sees("a.row[aria-selected=true]", f"Question {MANY - 40}")
    opened.page.keyboard.press("End")
    opened.sees("a.row[aria-selected=true]", "Question 0")
