"""One browser for all tests of the inspector's page, and pages that fail the test on errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.running_gateway import RunningGateway

from .inspector_page import InspectorPage, run_inspected_gateway
from .scripted_model import reply_to

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OpenInspector = Callable[..., InspectorPage]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if find_spec("playwright") is None:
        pytest.skip("the package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("the program chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def gateway(browser: Browser, request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    """A gateway with the scripted model; the parameter is the pause between two chunks."""
    with run_inspected_gateway(reply_to, pause=getattr(request, "param", 0.002)) as gateway:
        yield gateway


@pytest.fixture
def open_inspector(browser: Browser, gateway: RunningGateway) -> Iterator[OpenInspector]:
    """Open pages of the inspector; at the end, check that none of them reported an error."""
    with ExitStack() as stack:

        def open_page(location: str = "", token: str = "token", **options: Any) -> InspectorPage:
            page = InspectorPage(browser, gateway.url, location, token, **options)
            return stack.enter_context(page)

        yield open_page
