"""What a reader of a page keeps over a reload, and when a page loads itself anew."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.cli.report import PageServer
from orchestrator.report.page.watch import Follower, Question
from orchestrator.store import Store, open_store
from tests.browser import Opened, opened
from tests.comparing import measured
from tests.results import CAMPAIGNS, make_store

EVERY_S = 1
FILE_EVERY_S = 4
"""A file loads itself anew whether anything is new or not, and what a test asks it meanwhile gets no answer."""
PATIENCE_MS = 4000
"""Longer than several looks, and longer than a reader must rest before a page loads itself anew."""


def row(number: int, backend: str = "eager", batch: int = 1) -> dict[str, object]:
    floor = {"dispatch_floor_structure": backend, "dispatch_floor_small_s": 1e-3, "dispatch_floor_valid": True}
    return measured(0.01 * batch, number, backend=backend, batch=batch, threads=2, **floor)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    rows = [
        row(number, backend, batch) for number in (1, 2) for backend in ("eager", "onnxruntime") for batch in (1, 8)
    ]
    return make_store(tmp_path / "results", *rows)


@pytest.fixture
def server(store: Store) -> Iterator[PageServer]:
    question = Question(
        open_store(store.layout.root), parse_conditions(f"campaign={CAMPAIGNS[0]}"), campaign_id=CAMPAIGNS[0]
    )
    with PageServer(Follower(question, EVERY_S, is_served=True), port=0) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def address_of(server: PageServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/"


@pytest.fixture
def shown(running: Browser, server: PageServer) -> Iterator[Opened]:
    with opened(running, address_of(server)) as found:
        found.page.set_viewport_size({"width": 1280, "height": 500})
        yield found


def loads(shown: Opened) -> int:
    return sum(not url.partition("#")[0].endswith("/version") for url in shown.requests)


def add(store: Store, number: int) -> None:
    with store.writer() as writer:
        writer.append([row(number)])


def replace(path: Path, html: str) -> None:
    """As `report --watch` does: a browser that reads half a page never asks again."""
    whole = path.with_suffix(".whole")
    whole.write_text(html, encoding="utf-8")
    whole.replace(path)


def await_trials(page: Page, count: int) -> None:
    page.wait_for_selector(f".tile b:text-is('{count}')")
    page.wait_for_selector("html[data-ready=yes]", state="attached")


def at_rest(page: Page) -> float:
    """Where the systems are, once nothing scrolls any more."""
    found: list[float] = []
    while len(found) < 3 or len(set(found[-3:])) > 1:
        found.append(page.evaluate("document.querySelector('#systems').getBoundingClientRect().top"))
        page.wait_for_timeout(250)
    return found[-1]


def test_a_page_stays_as_long_as_nothing_is_new(shown: Opened) -> None:
    for _ in range(2):
        shown.page.wait_for_event("request", lambda one: one.url.endswith("/version"))
    shown.page.wait_for_timeout(500)
    assert loads(shown) == 1
    assert shown.said == []


def test_new_rows_leave_the_reader_where_he_is(shown: Opened, store: Store) -> None:
    page = shown.page
    page.get_by_role("button", name="onnxruntime", exact=True).click()
    page.locator("#filters").get_by_label("batch").select_option("8")
    page.locator("#tax-scale").get_by_role("button", name="share").click()
    page.locator("#systems details[data-query] summary").click()
    page.locator("#summary details summary").last.click()
    page.locator("#cell-table").get_by_role("button", name="latency").click()
    # A link to a section must not throw the filters out of the address
    page.get_by_role("navigation").get_by_role("link", name="Systems").click()
    page.mouse.wheel(0, -60)
    before = at_rest(page)
    add(store, 3)
    await_trials(page, 9)
    assert loads(shown) == 2
    assert page.get_by_role("button", name="onnxruntime", exact=True).get_attribute("aria-pressed") == "false"
    assert page.locator("#filters").get_by_label("batch").input_value() == "8"
    assert page.locator("#tax-scale [aria-pressed=true]").inner_text() == "share"
    assert page.locator("#systems details[data-query]").get_attribute("open") is not None
    assert page.locator("#summary details").last.get_attribute("open") is not None
    assert page.locator("#cells details").get_attribute("open") is None
    assert page.locator("#cell-table th[aria-sort=ascending]").inner_text().strip() == "latency"
    assert page.evaluate("scrollY") > 500
    after = page.evaluate("document.querySelector('#systems').getBoundingClientRect().top")
    assert after == pytest.approx(before, abs=2)
    assert shown.said == []


def test_who_looks_at_samples_is_left_alone_and_finds_them_again(shown: Opened, store: Store) -> None:
    page = shown.page
    page.locator("#cell-table").get_by_role("button", name="Samples of").first.click()
    page.wait_for_selector("#samples[open]")
    title = page.locator("#samples-title").inner_text()
    add(store, 3)
    page.wait_for_timeout(PATIENCE_MS)
    assert loads(shown) == 1
    page.reload()
    await_trials(page, 9)
    page.wait_for_selector("#samples[open]")
    assert page.locator("#samples-title").inner_text() == title
    assert "3 processes" in page.locator("#samples-about").inner_text()
    page.get_by_role("button", name="Close").click()
    assert page.locator("#samples[open]").count() == 0


def test_another_visit_begins_anew(running: Browser, server: PageServer) -> None:
    with opened(running, address_of(server)) as found:
        found.page.locator("#summary details summary").last.click()
        found.page.evaluate("scrollTo(0, 900)")
        found.page.goto("about:blank")
        found.page.goto(address_of(server))
        found.page.wait_for_selector("html[data-ready=yes]", state="attached")
        assert found.page.evaluate("scrollY") == 0
        assert found.page.locator("#summary details").last.get_attribute("open") is None


def test_a_link_to_a_section_and_one_with_filters_both_work(running: Browser, server: PageServer) -> None:
    with opened(running, f"{address_of(server)}#systems") as found:
        top = "document.querySelector('#systems').getBoundingClientRect().top"
        assert abs(found.page.evaluate(top)) < 450
        found.page.evaluate("location.hash = '#?batch=8&without=backend:onnxruntime'")
        found.page.wait_for_selector("[data-chip=backends-1][aria-pressed=false]")
        assert found.page.locator("#filters").get_by_label("batch").input_value() == "8"


def test_a_page_outlives_its_server(shown: Opened, server: PageServer) -> None:
    page = shown.page
    page.route("**/version", lambda route: route.abort())
    page.wait_for_selector(".live:text('does not answer')")
    page.unroute("**/version")
    page.wait_for_selector(".live:text('looks every 1 s')")
    assert loads(shown) == 1


def test_a_saved_page_asks_nobody(running: Browser, server: PageServer, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "saved.html"
    path.write_text(server.follower.page()[0].html, encoding="utf-8")
    add(store, 3)
    with opened(running, path) as found:
        found.page.wait_for_timeout(PATIENCE_MS)
        assert found.requests == [path.resolve().as_uri()]
        assert "A copy" in found.page.locator(".live").inner_text()
        assert found.said == []


@contextmanager
def watched(running: Browser, path: Path, choice: str = "") -> Iterator[Opened]:
    """A file that loads itself anew, put to rest in the end: a browser that is closed meanwhile may never answer."""
    with opened(running, path.as_uri() + choice) as found:
        try:
            yield found
        finally:
            replace(path, "<p id=over>over</p>")
            found.page.locator("#over").wait_for()


def test_a_watched_file_keeps_the_reader_too(running: Browser, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    question = Question(open_store(store.layout.root), parse_conditions(f"campaign={CAMPAIGNS[0]}"))
    follower = Follower(question, FILE_EVERY_S)
    replace(path, follower.page()[0].html)
    # The address chooses: a click while the page loads itself anew would be lost
    with watched(running, path, "#?without=backend:onnxruntime") as found:
        page = found.page
        page.locator("#systems").scroll_into_view_if_needed()
        before = page.evaluate("scrollY")
        add(store, 3)
        replace(path, follower.page()[0].html)
        await_trials(page, 9)
        assert page.get_by_role("button", name="onnxruntime", exact=True).get_attribute("aria-pressed") == "false"
        assert page.evaluate("scrollY") == pytest.approx(before, abs=2)
        assert before > 500


def test_a_page_is_drawn_before_it_loads_itself_anew(running: Browser, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    question = Question(open_store(store.layout.root), parse_conditions(f"campaign={CAMPAIGNS[0]}"))
    page = Follower(question, FILE_EVERY_S).page()[0].html
    replace(path, page)
    how_it_was_left = "sessionStorage.left ??= document.documentElement.dataset.ready ?? 'undrawn'"
    with watched(running, path) as found:
        found.page.add_init_script(f"addEventListener('pagehide', () => {{ {how_it_was_left} }})")
        replace(path, page.replace(f'data-refresh="{FILE_EVERY_S}"', 'data-refresh="0.01"'))
        left = found.page.wait_for_function("() => sessionStorage.left").json_value()
    assert left == "yes"
