"""What a reader sees of pages of all kinds: nothing covers or cuts anything, and what is empty says why."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.report.page import make_report, render_page
from orchestrator.store import Results, open_store
from runners.contract import TrialSpec
from tests.browser import Opened, draw_all, opened
from tests.comparing import measured, store_of
from tests.machines import A100, V100, System
from tests.systems import World, make_systems
from tests.world import BACKENDS, spec

CHARTS = ("latency", "tax", "speedups", "roofline", "hardware")


def world(directory: Path, points: Callable[[System], list[TrialSpec]], **changes: object) -> Results:
    usual = {"systems": (V100,), "updated": (), "rounds": 3, "design": points}
    return open_store(make_systems(directory, World(**{**usual, **changes})).directory)  # type: ignore[arg-type]


def whole(directory: Path) -> Results:
    def points(_: System) -> list[TrialSpec]:
        works = [spec("bert-base", batch, backend) for backend in BACKENDS for batch in (1, 4, 16)]
        return [*works, spec("funnel-small", 4, "torchscript")]

    return world(directory, points, systems=(V100, A100))


def one_trial(directory: Path) -> Results:
    return world(directory, lambda _: [spec("bert-base", 1)], rounds=1, duplicated=("", "", 0))


def one_backend(directory: Path) -> Results:
    return world(directory, lambda _: [spec("bert-base", batch) for batch in (1, 4)])


def no_baseline(directory: Path) -> Results:
    return world(directory, lambda _: [spec("bert-base", 1, backend) for backend in ("torchscript", "onnxruntime")])


def without_gpu(directory: Path) -> Results:
    return store_of(directory, *[measured(0.01 + 0.001 * number, number, batch=8) for number in (1, 2, 3)])


def all_failed(directory: Path) -> Results:
    ends = {"eager": ("oom", "no memory left: 12.0 GiB of 8.0 GiB"), "onnxruntime": ("crashed", "signal 11 " * 40)}
    return store_of(
        directory, *[measured(None, backend=name, status=end, reason=why) for name, (end, why) in ends.items()]
    )


EMPTY = {
    whole: {},
    one_trial: {"speedups": "eager is the only backend", "hardware": "one system"},
    one_backend: {"speedups": "eager is the only backend", "hardware": "one system"},
    no_baseline: {"speedups": "--baseline backend=NAME", "hardware": "one system"},
    without_gpu: {
        "speedups": "eager is the only backend",
        "hardware": "one system",
        "tax": "floor (CPU)",
        "roofline": "were not counted",
    },
    all_failed: {
        "latency": "no trial ended ok",
        "hardware": "one system",
        "tax": "floor (CPU)",
        "roofline": "were not counted",
    },
}
"""The charts without a panel, and a part of what they say instead."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[object, Path]:
    found: dict[object, Path] = {}
    for make in EMPTY:
        directory = tmp_path_factory.mktemp(make.__name__)
        found[make] = directory / "report.html"
        found[make].write_text(render_page(make_report(make(directory / "results"))), encoding="utf-8")
    return found


@pytest.fixture
def shown(running: Browser, pages: dict[object, Path]) -> Iterator[Opened]:
    with opened(running, pages[whole]) as found:
        draw_all(found.page)
        yield found


@pytest.mark.parametrize("make", list(EMPTY), ids=lambda one: one.__name__)
@pytest.mark.parametrize("width", [1280, 420])
def test_a_chart_has_numbers_along_its_axes_or_says_why_there_is_none(
    running: Browser, pages: dict[object, Path], make: Callable[[Path], Results], width: int
) -> None:
    with opened(running, pages[make], width=width) as found:
        page = found.page
        draw_all(page)
        said = {}
        for chart in CHARTS:
            box = page.locator(f"[data-chart={chart}]")
            if box.locator(".panel").count():
                for plot in box.locator(".plot").all():
                    ticks = [plot.locator(f".{axis}tick text").count() for axis in "xy"]
                    assert min(ticks) >= (1 if chart != "roofline" else 2), (chart, ticks)
            else:
                said[chart] = box.locator(".empty").inner_text()
        assert said.keys() == EMPTY[make].keys()
        assert all(part in said[chart] for chart, part in EMPTY[make].items())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#summary table:not(:has(tbody tr))").count() == 0
        assert found.said == []


def test_the_latency_of_a_lone_trial_can_be_read_off_its_axis(running: Browser, pages: dict[object, Path]) -> None:
    with opened(running, pages[one_trial]) as found:
        draw_all(found.page)
        ticks = found.page.locator("[data-chart=latency] .ytick text").all_text_contents()
        assert len(ticks) >= 3
        assert len(set(ticks)) == len(ticks)


def covered(page: Page, chart: str) -> list[str]:
    """What the buttons of a chart cover."""
    plot = page.locator(f"[data-chart={chart}] .plot").first
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 60, "y": 100})
    found: list[str] = plot.evaluate("""(plot) => {
      const bar = plot.querySelector(".modebar").getBoundingClientRect();
      const caption = document.createRange();
      caption.selectNodeContents(plot.closest(".panel").querySelector("figcaption"));
      const boxes = [...plot.querySelectorAll(".main-svg text, .plotbg, .bg")].map((one) => [one.textContent, one.getBoundingClientRect()]);
      for (const box of caption.getClientRects()) boxes.push(["caption", box]);
      const meet = (one) => one.width && one.left < bar.right && bar.left < one.right && one.top < bar.bottom && bar.top < one.bottom;
      return bar.width ? boxes.filter(([, box]) => meet(box)).map(([text]) => text) : ["no buttons"];
    }""")
    return found


@pytest.mark.parametrize("chart", CHARTS)
def test_the_buttons_of_a_chart_cover_nothing(shown: Opened, chart: str) -> None:
    assert covered(shown.page, chart) == []


def test_a_chart_is_saved_under_its_name(shown: Opened) -> None:
    plot = shown.page.locator("[data-chart=speedups] .plot").first
    plot.hover()
    with shown.page.expect_download() as waiting:
        plot.locator(".modebar-btn").first.click()
    assert waiting.value.suggested_filename == "taxmeter-speed-up-against-eager-on-a100-pcie-40gb.svg"
    assert shown.said == []


@pytest.mark.parametrize("width", [1280, 420])
def test_a_label_is_not_cut(running: Browser, pages: dict[object, Path], width: int) -> None:
    with opened(running, pages[whole], width=width) as found:
        page = found.page
        draw_all(page)
        plot = page.locator("[data-chart=speedups] .plot").first
        plot.scroll_into_view_if_needed()
        area = plot.locator(".nsewdrag").bounding_box()
        assert area is not None
        for across in (0.2, 0.5, 0.8):
            page.mouse.move(area["x"] + across * area["width"], area["y"] + area["height"] / 2)
            page.wait_for_selector("[data-chart=speedups] .hoverlayer .hovertext")
            label = plot.locator(".hoverlayer .hovertext").bounding_box()
            assert label is not None
            drawing = plot.locator(".main-svg").last.bounding_box()
            assert drawing is not None
            assert drawing["x"] - 1 <= label["x"]  # a line is half outside
            assert label["x"] + label["width"] <= drawing["x"] + drawing["width"] + 1


def test_on_paper_charts_fit_their_panels_and_tables_have_their_heads(shown: Opened, tmp_path: Path) -> None:
    page = shown.page
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 without its margins
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_timeout(500)
    assert page.locator("#filtered").inner_text().startswith("Filters: bert-base, 128 tokens")
    wide = page.evaluate("""[...document.querySelectorAll(".plot")].filter((plot) => plot.closest(".panel") &&
      plot.querySelector(".main-svg").getBoundingClientRect().right > plot.closest(".panel").getBoundingClientRect().right)
      .length""")
    assert wide == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    head = page.locator("#cell-table th").first
    assert "system" in head.evaluate("(one) => getComputedStyle(one, '::before').content")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("html[data-theme], html[data-printing]").count() == 0
