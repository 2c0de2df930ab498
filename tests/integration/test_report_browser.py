"""The page of a report in a real browser: charts, filters, samples, keyboard, colours and print."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.report.page import make_report, render_page
from orchestrator.store import open_store
from tests.browser import Opened, draw_all, opened
from tests.integration.test_report_page import design
from tests.machines import A100, CPU_ONLY, V100
from tests.systems import NEW_DRIVER, World, make_systems

CHARTS = {
    "latency": ".scatterlayer .point",
    "tax": ".scatterlayer .point",
    "speedups": ".heatmaplayer image",
    "roofline": ".scatterlayer .point",
    "hardware": ".scatterlayer .point",
}
"""Marks of each chart."""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    made = make_systems(directory / "results", World(systems=(V100, A100, CPU_ONLY), rounds=4, design=design))
    report = make_report(open_store(made.directory), parse_conditions("campaign~*"), ["gpu=V100"])
    path = directory / "report.html"
    path.write_text(render_page(report), encoding="utf-8")
    return path


@pytest.fixture
def shown(running: Browser, page_file: Path) -> Iterator[Opened]:
    with opened(running, page_file) as found:
        yield found
        assert found.said == []
        assert found.requests == [page_file.resolve().as_uri()]


def marks(page: Page, chart: str) -> int:
    return page.locator(f"[data-chart={chart}] {CHARTS[chart]}").count()


def cells(page: Page) -> int:
    text = page.locator("#filters summary span").inner_text()
    return int(re.search(r"(\d+) of \d+ configurations", text)[1])  # type: ignore[index]


def test_each_chart_has_marks_a_panel_per_system_and_a_line_per_backend(shown: Opened) -> None:
    draw_all(shown.page)
    assert [chart for chart in CHARTS if not marks(shown.page, chart)] == []
    assert shown.page.locator("#problem").is_hidden()
    titles = shown.page.locator("[data-chart=latency] figcaption").all_inner_texts()
    assert [title.strip() for title in titles] == [
        "A100-PCIE-40GB, driver 535.54.03",
        f"A100-PCIE-40GB, driver {NEW_DRIVER}",
        "V100-PCIE-32GB",
    ]
    assert shown.page.locator("[data-chart=latency] .plot").first.locator(".scatterlayer .trace").count() == 4


def test_filters_change_every_chart_and_the_table(shown: Opened) -> None:
    page = shown.page
    draw_all(page)
    before, lines = cells(page), marks(page, "latency")
    page.get_by_role("button", name="torchscript", exact=True).click()
    draw_all(page)
    assert cells(page) < before
    assert marks(page, "latency") == lines * 3 // 4
    assert "torchscript" not in page.locator("#cell-table").inner_text()
    assert page.get_by_role("button", name="torchscript", exact=True).get_attribute("aria-pressed") == "false"
    page.locator("#filters").get_by_label("workload").select_option("funnel-small, 128 tokens")
    assert "bert-base" not in page.locator("#cell-table").inner_text()
    page.get_by_role("button", name="Reset", exact=True).click()
    assert cells(page) == before


def test_a_work_that_one_system_has_alone_says_so(shown: Opened) -> None:
    page = shown.page
    page.locator("#filters").get_by_label("dtype").select_option("float32")
    draw_all(page)
    assert page.locator("[data-chart=latency] figcaption").all_inner_texts() == ["EPYC 7763"]
    assert page.locator("#hardware").is_hidden()
    assert "No configuration" in page.locator("#absent").inner_text()


def test_the_address_keeps_the_choice(shown: Opened) -> None:
    page = shown.page
    page.locator("#filters").get_by_label("workload").select_option("funnel-small, 128 tokens")
    page.get_by_role("button", name="torchscript", exact=True).click()
    left = cells(page)
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    shown.requests.pop()
    assert cells(page) == left
    assert page.locator("#filters").get_by_label("workload").input_value() == "funnel-small, 128 tokens"


def test_a_click_on_a_point_shows_its_samples_of_both_modes(shown: Opened) -> None:
    page = shown.page
    draw_all(page)
    plot = page.locator("[data-chart=latency] .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".scatterlayer .point").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#samples[open]")
    assert page.locator("#samples-title").inner_text() == (
        "A100-PCIE-40GB, driver 535.54.03, bert-base, 128 tokens, dtype float16, device cuda, threads 4, eager, batch 1"
    )
    assert "4 processes, all 24 samples" in page.locator("#samples-about").inner_text()
    assert page.locator("#samples-plot .scatterlayer .point").count() == 24
    assert page.locator("#samples-table tbody tr").count() == 4
    assert "FROM samples" in page.locator("#samples-query").inner_text()
    page.locator("#samples-mode").get_by_role("button", name="one call at a time").click()
    assert "all 48 samples" in page.locator("#samples-about").inner_text()


def test_a_keyboard_is_enough(shown: Opened) -> None:
    page = shown.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    chip = page.get_by_role("button", name="torchscript", exact=True)
    chip.focus()
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "false"
    # The chip was made anew and has the focus again
    assert page.evaluate("document.activeElement.dataset.chip") == "backends-3"
    page.locator("#cell-table").get_by_role("button", name="Samples of").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#samples[open]")
    page.keyboard.press("Escape")
    assert page.locator("#samples[open]").count() == 0


def test_the_table_can_be_sorted(shown: Opened) -> None:
    page = shown.page
    sort = page.locator("#cell-table").get_by_role("button", name="latency")
    sort.click()
    head = page.locator("#cell-table thead").inner_text().split("\t")
    number = [one.strip() for one in head].index("latency")
    column = page.locator(f"#cell-table tbody tr td:nth-child({number + 1})")
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    values = [float(one.split()[0]) * units[one.split()[1]] for one in column.all_inner_texts() if one != "–"]
    assert values == sorted(values)
    assert page.locator("#cell-table th[aria-sort=ascending]").inner_text().strip() == "latency"


@pytest.mark.parametrize("width", [1280, 480])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(running: Browser, page_file: Path, width: int, scheme: str) -> None:
    with opened(running, page_file, width=width, scheme=scheme) as found:
        page = found.page
        draw_all(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        low = page.evaluate(CONTRASTS)
        assert low == []
        assert found.said == []


CONTRASTS = """() => {
  // WCAG 2.2: 4.5 for text, 3 for lines and markers (success criteria 1.4.3 and 1.4.11)
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const light = (hex) => {
    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
    const [r, g, b] = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [high, low] = [light(css(one)), light(css(other))].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const wanted = [
    ...["--ink", "--muted", "--accent", "--bad"].map((one) => [one, "--surface", 4.5]),
    ...["--ink", "--muted", "--accent"].map((one) => [one, "--page", 4.5]),
    ["--ink", "--mark", 4.5], ["--accent-ink", "--accent", 4.5],
    ...["--heat-slow", "--heat-mid", "--heat-fast", "--heat-open"].map((one) => ["--ink", one, 4.5]),
    ...[0, 1, 2, 3, 4, 5, 6, 7].map((one) => [`--s${one}`, "--surface", 3]),
  ];
  return wanted.filter(([one, other, least]) => contrast(one, other) < least).map(String);
}"""


def test_print_has_every_chart_on_white(shown: Opened, tmp_path: Path) -> None:
    page = shown.page
    page.emulate_media(color_scheme="dark", media="print")
    pdf = page.pdf(path=tmp_path / "report.pdf")
    assert pdf.startswith(b"%PDF")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--surface').trim()") == "#ffffff"
    assert all(marks(page, chart) for chart in CHARTS)
    assert page.locator("#filters").is_hidden()


def test_without_script_the_text_is_there(running: Browser, page_file: Path) -> None:
    context = running.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.resolve().as_uri())
    for part in ("#summary", "#systems", "#failures", "#flagged"):
        assert len(page.locator(part).inner_text()) > 60
    assert "JavaScript" in page.locator("body").inner_text()
    context.close()
