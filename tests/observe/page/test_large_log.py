"""The list of thousands of requests: only its visible rows are in the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.gateway.running_gateway import RunningGateway

from .conftest import OpenInspector
from .inspector_page import add_records, make_record, run_inspected_gateway
from .scripted_model import reply_to

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COUNT = 5000


@pytest.fixture
def gateway(browser: Browser) -> Iterator[RunningGateway]:
    with run_inspected_gateway(reply_to, max_requests=COUNT) as gateway:
        add_records(gateway, *map(make_record, range(COUNT)))
        yield gateway


def test_list_of_5000_requests_stays_responsive(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    inspector = open_inspector()
    inspector.wait_for(".request-count", "5,000 requests")
    inspector.record_long_tasks()
    max_rows = inspector.page.evaluate(
        """async () => {
          const list = document.querySelector(".list");
          let maxRows = 0;
          for (let at = 0; at < list.scrollHeight; at += 1200) {
            list.scrollTop = at;
            await new Promise(requestAnimationFrame);
            maxRows = Math.max(maxRows, document.querySelectorAll("a.row").length);
          }
          return maxRows;
        }"""
    )
    assert max_rows < 100
    inspector.wait_for("a.row", "Question 0")
    assert inspector.count("body *") < 2000
    for letter in "question 4321":
        inspector.page.get_by_label("Search").press(letter if letter != " " else "Space")
    inspector.wait_for(".request-count", "1 of 5,000")
    inspector.page.get_by_label("Search").fill("")
    inspector.wait_for(".request-count", "5,000 requests")
    assert inspector.read_longest_task() < 3000
    inspector.page.keyboard.press("Escape")
    for _ in range(40):
        inspector.page.keyboard.press("j")
    inspector.wait_for("a.row[aria-selected=true]", f"Question {COUNT - 40}")
    inspector.page.keyboard.press("End")
    inspector.wait_for("a.row[aria-selected=true]", "Question 0")
