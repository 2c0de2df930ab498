"""What a reader sees of pages of all kinds: nothing covers or cuts anything, and what is empty says why."""

import re
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
"""The charts without a panel, which are hidden, and a part of why at the end of the page."""


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
def test_a_chart_has_numbers_along_its_axes_or_is_hidden_and_the_page_says_why(
    running: Browser, pages: dict[object, Path], make: Callable[[Path], Results], width: int
) -> None:
    with opened(running, pages[make], width=width) as found:
        page = found.page
        draw_all(page)
        hidden = {chart for chart in CHARTS if page.locator(f"#{chart}").is_hidden()}
        for chart in set(CHARTS) - hidden:
            assert page.locator(f"nav [href='#{chart}']").is_visible()
            for plot in page.locator(f"[data-chart={chart}] .plot").all():
                ticks = [plot.locator(f".{axis}tick text").count() for axis in "xy"]
                assert min(ticks) >= (1 if chart != "roofline" else 2), (chart, ticks)
        if make is one_trial:
            ticks_of_latency = page.locator("[data-chart=latency] .ytick text").all_text_contents()
            assert len(ticks_of_latency) == len(set(ticks_of_latency)) >= 3
        assert hidden == EMPTY[make].keys()
        said = page.locator("#absent").text_content() or ""
        assert all(part in said for part in EMPTY[make].values())
        assert page.locator("nav a[hidden]").count() >= len(hidden)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#summary table:not(:has(tbody tr))").count() == 0
        assert found.said == []


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


LABEL = """() => {
  const box = document.querySelector("[data-chart=speedups] .hoverlayer .hovertext")?.getBoundingClientRect();
  return box?.width && box.toJSON();
}"""
"""The box of a label, once there is one."""


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
            label = page.wait_for_function(LABEL).json_value()  # at once: a busy machine draws it again
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


OUTSIDE = """() => {
  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const said = [];
  for (const box of document.querySelectorAll(".panels")) {
    const frames = [...box.querySelectorAll(".panel")].map((one) => one.getBoundingClientRect());
    frames.forEach((one, i) => frames.slice(i + 1).forEach((other) => { if (meets(one, other)) said.push(`${box.dataset.chart}: panels on each other`); }));
  }
  for (const plot of document.querySelectorAll(".panels .plot")) {
    const frame = plot.closest(".panel").getBoundingClientRect();
    for (const svg of plot.querySelectorAll(".main-svg")) {
      const one = svg.getBoundingClientRect();
      const inside = one.left >= frame.left - 1 && one.right <= frame.right + 1 && one.top >= frame.top - 1 && one.bottom <= frame.bottom + 1;
      if (!inside) said.push(`${plot.dataset.name}: ${one.width} x ${one.height} in ${frame.width} x ${frame.height}`);
    }
  }
  return said;
}"""
"""Drawings that reach out of their frames, and frames that lie on each other."""


@pytest.mark.parametrize("width", [1400, 420])
def test_every_drawing_is_within_its_frame_under_every_filter(
    running: Browser, pages: dict[object, Path], width: int
) -> None:
    with opened(running, pages[whole], width=width) as found:
        page = found.page
        page.evaluate("document.querySelector('#filters details').open = true")
        seen = 0

        def check(filtered: str) -> None:
            nonlocal seen
            # Without waiting: what is drawn at once must fit, too
            assert (filtered, page.evaluate(OUTSIDE)) == (filtered, [])
            draw_all(page)
            assert (filtered, page.evaluate(OUTSIDE)) == (filtered, [])
            seen += page.locator(".panels .main-svg").count() > 0

        check("none")
        selects = page.locator("#filters select")
        for number in range(selects.count()):
            for option in selects.nth(number).locator("option").evaluate_all("all => all.map(one => one.value)"):
                selects.nth(number).select_option(option)
                check(f"{selects.nth(number).get_attribute('aria-label')}={option}")
            page.locator("#filters").get_by_role("button", name="Reset").click()
        for chip in page.locator("#filters .chip").evaluate_all("all => all.map(one => one.dataset.chip)"):
            page.locator(f"[data-chip={chip}]").click()
            check(f"without {chip}")
            page.locator(f"[data-chip={chip}]").click()
        page.locator("#tax-scale button").last.click()
        check("shares")
        page.set_viewport_size({"width": width - 60, "height": 900})
        page.wait_for_timeout(300)
        check("a narrower window")
        assert seen > 12
        assert found.said == []


def quickstart(directory: Path) -> Results:
    """Three workloads as a first sweep has them: faster, equal, slower, undecided, and one that failed."""
    factors = {
        "onnxruntime": (0.6, 0.61, 0.6, 0.59),
        "torchscript": (1.0, 1.001, 0.999, 1.0),
        "openvino": (0.5, 1.5, 3, 1),
    }
    rows = []
    for workload, latency_s in (("bert-base", 0.2), ("resnet50", 0.08), ("gpt2", 0.3)):
        for batch in (1, 8):
            for number in range(4):
                common = {"workload": workload, "batch": batch}
                rows.append(measured(latency_s * batch**0.7 * (1 + 0.001 * number), number + 1, **common))
                for backend, factor in factors.items():
                    value = latency_s * batch**0.7 * factor[number]
                    rows.append(measured(value, number + 1, backend=backend, **common))
            rows.append(measured(None, 1, backend="tensorrt", status="oom", reason="no memory left", **common))
    return store_of(directory, *rows)


@pytest.mark.parametrize("width", [1400, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_has_every_workload_and_backend(
    running: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_page(make_report(quickstart(tmp_path / "results"))), encoding="utf-8")
    with opened(running, path, width=width, scheme=scheme) as found:
        page = found.page
        works = page.locator("#overview .work")
        assert works.count() == 3
        for work in works.all():
            box = work.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 900
            assert box["x"] + box["width"] <= width
            assert work.locator(".lane").count() == 2 * 4
            assert work.locator(".dot.faster").count() == 2
            assert work.locator(".interval.undecided").count() == 2
            assert work.locator("em").all_inner_texts() == ["oom", "oom"]
        grey = page.evaluate("getComputedStyle(document.querySelector('.interval.undecided')).backgroundColor")
        assert len(set(re.findall(r"\d+", grey))) == 3  # a grey of the page, which is a little blue
        assert max(map(int, re.findall(r"\d+", grey))) - min(map(int, re.findall(r"\d+", grey))) < 32
        works.get_by_role("button", name="resnet50").click()
        assert "resnet50" in page.locator("#latency h2").inner_text()
        assert "one of 3 workloads" in page.locator("#latency h2").inner_text()
        assert found.said == []


def test_the_tax_chart_draws_the_floor(running: Browser, tmp_path: Path) -> None:
    floor = {"dispatch_floor_structure": "one", "dispatch_floor_small_s": 1e-3, "dispatch_floor_valid": True}
    rows = [measured(0.02 * batch, number, batch=batch, **floor) for batch in (1, 8) for number in (1, 2, 3)]
    path = tmp_path / "report.html"
    path.write_text(render_page(make_report(store_of(tmp_path / "results", *rows))), encoding="utf-8")
    with opened(running, path) as found:
        draw_all(found.page)
        drawn = found.page.locator("[data-chart=tax] .plot").evaluate(
            "(plot) => plot._fullData.map((one) => [one.name, plot._fullLayout.yaxis.type, [...one.y]])"
        )
        assert drawn == [
            ["eager: framework", "log", pytest.approx([0.001, 0.001])],
            ["eager: latency", "log", pytest.approx([0.02, 0.16])],
        ]
        assert found.said == []
