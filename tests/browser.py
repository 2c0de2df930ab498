"""A real browser that opens pages of reports, and remembers all that it was asked to say or to fetch."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = 120_000
"""Machines that run tests are busy."""


@dataclass
class Opened:
    """A page, and what happened on it."""

    page: Page
    said: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and exceptions that nobody caught."""
    requests: list[str] = field(default_factory=list)
    """Addresses, that of the page itself among them."""


def program() -> str | None:
    """The browser of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def require_browser() -> str:
    """The browser; skips where there is none, and fails where one is required."""
    found = program()
    if found is None:
        if os.environ.get("TAXMETER_REQUIRE_BROWSER") == "1":
            pytest.fail("TAXMETER_REQUIRE_BROWSER=1, but there is no chromium on PATH")
        pytest.skip("there is no chromium on PATH (Debian: apt-get install chromium)")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser, with a profile of its own that goes with it."""
    path = require_browser()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(OPTIONS), timeout=PATIENCE_MS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(running: Browser, address: str | Path, *, width: int = 1280, scheme: str = "light") -> Iterator[Opened]:
    """A page in a fresh context, once its charts can be drawn."""
    url = address.resolve().as_uri() if isinstance(address, Path) else address
    context = running.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.said.append(message.text) if message.type != "log" else None)
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    try:
        found.page.goto(url)
        found.page.wait_for_selector("html[data-ready]", state="attached")
        yield found
    finally:
        context.close()


def draw_all(page: Page) -> None:
    """Brings every panel into view once, so that it is drawn."""
    page.evaluate("document.querySelectorAll('.panels .plot').forEach(one => one.dataset.wanted = '1')")
    for plot in page.query_selector_all(".panels .plot"):
        plot.scroll_into_view_if_needed()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.panels .plot')].every(one => one.querySelector('.main-svg'))"
    )
