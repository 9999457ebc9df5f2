"""One browser for all tests of the page, and pages in it that are watched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.running_gateway import Running

from .site import Opened, gateway_behind
from .talk import answer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Opener = Callable[..., Opened]
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
def gateway(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A gateway before a model that does as it is told; a parameter says how slowly."""
    with gateway_behind(answer, pause=getattr(request, "param", 0.002)) as gateway:
        yield gateway


@pytest.fixture
def look(browser: Browser, gateway: Running) -> Iterator[Opener]:
    """Opens the page; whatever it should not have done fails the test in the end."""
    with ExitStack() as stack:

        def opened(where: str = "", token: str = "token", **options: Any) -> Opened:
            return stack.enter_context(Opened(browser, gateway.url, where, token, **options))

        yield opened
