"""The roofline in a real browser: the measured roof has marks where its rows say, and none where none was measured."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.report.page import make_report, render_page
from orchestrator.store import Results, open_store
from tests.browser import draw_all, opened
from tests.machines import A100, CPU_ONLY, V100, System
from tests.systems import FIRST, ROOFS, World, make_systems
from tests.world import spec

DRAWN = """(plot) => {
  // The ends of each line of a roof, from its path in pixels
  const { xaxis, yaxis } = plot._fullLayout;
  return plot._fullData.filter((one) => one.name?.startsWith('roof')).map((trace) => {
    const path = plot.querySelector(`.scatterlayer .trace${trace.uid} .js-line`).getAttribute('d');
    const points = [...path.matchAll(/(-?[\\d.]+),(-?[\\d.]+)/g)].map(([, x, y]) => [10 ** xaxis.p2l(Number(x)), 10 ** yaxis.p2l(Number(y))]);
    return { name: trace.name, text: trace.text[0], colour: trace.line.color, first: points[0], last: points.at(-1), x: [...trace.x], y: [...trace.y] };
  });
}"""


def design(system: System) -> tuple:  # type: ignore[type-arg]
    half = "float16" if system.is_gpu else "float32"
    return tuple(spec("bert-base", batch, "eager", half, system.device) for batch in (1, 4, 16))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Results:
    world = World(systems=(V100, A100, CPU_ONLY), rounds=3, design=design, updated=(), roofs=(A100, CPU_ONLY))
    return open_store(make_systems(tmp_path_factory.mktemp("roofline") / "results", world).directory)


@pytest.fixture(scope="module")
def page_file(store: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    report = make_report(store, parse_conditions([f"campaign={FIRST}"]))
    path.write_text(render_page(report), encoding="utf-8")
    return path


@pytest.fixture
def shown(running: Browser, page_file: Path) -> Iterator[Page]:
    with opened(running, page_file) as found:
        found.page.locator("#filters").get_by_label("dtype").select_option("all")
        draw_all(found.page)
        yield found.page
        assert found.said == []


def panel(page: Page, title: str) -> Any:
    return page.locator("[data-chart=roofline] figure", has=page.locator("figcaption", has_text=title)).locator(".plot")


def rates(store: Results, host: str) -> tuple[float, float]:
    """Operations and bytes per second of the best configurations, from the rows alone."""
    time = "coalesce(median(busy_s), median(latency_pipelined_median_s))"
    dtype = "float32" if host == "epyc-01" else "float16"
    (products,) = store.sql(
        f"SELECT 2 * 8192.0 ** 3 / {time} FROM trials WHERE workload = 'op-gemm' AND flops > 1e12 AND status = 'ok' "
        f"AND host = '{host}' AND dtype = '{dtype}'"
    ).fetchall()
    triads = store.sql(
        f"SELECT 3 * if(dtype = 'float16', 2, 4) * {2**25} / {time} FROM trials WHERE workload = 'op-triad' "
        f"AND status = 'ok' AND host = '{host}' GROUP BY dtype"
    ).fetchall()
    return products[0], max(triads)[0]


@pytest.mark.parametrize(("host", "title"), [("a100-01", "A100-PCIE-40GB"), ("epyc-01", "EPYC 7763")])
def test_a_roof_is_drawn_where_its_rows_say(shown: Page, store: Results, host: str, title: str) -> None:
    arithmetic, bandwidth = rates(store, host)
    slanted, flat = panel(shown, title).evaluate(DRAWN)
    assert (slanted["name"], flat["name"]) == ("roof of memory", "roof of arithmetic")
    # In pixels, of which a panel has some hundred per decade or two
    assert flat["first"][1] == pytest.approx(arithmetic, rel=0.02)
    assert flat["last"][1] == pytest.approx(arithmetic, rel=0.02)
    for x, y in (slanted["first"], slanted["last"]):
        assert y == pytest.approx(bandwidth * x, rel=0.05)
    assert flat["first"][0] == pytest.approx(arithmetic / bandwidth, rel=0.05)
    assert slanted["last"] == pytest.approx(flat["first"], rel=0.05)
    # As data: exactly
    assert flat["y"] == pytest.approx([arithmetic] * len(flat["y"]), rel=1e-4)
    assert slanted["y"] == pytest.approx([bandwidth * x for x in slanted["x"]], rel=1e-4)


def test_the_roof_says_what_and_where_it_is_from(shown: Page, store: Results) -> None:
    arithmetic, bandwidth = rates(store, "a100-01")
    slanted, flat = panel(shown, "A100-PCIE-40GB").evaluate(DRAWN)
    assert flat["text"].startswith(
        f"<b>Roof of arithmetic: {arithmetic / 1e12:.0f} TFLOP/s</b><br>op-gemm, width=8192, float16, eager"
    )
    assert slanted["text"].startswith(f"<b>Roof of memory: {bandwidth / 1e12:.2f} TB/s</b><br>op-triad, float")
    assert flat["text"].endswith(f"3 processes<br>campaign {ROOFS}")
    table = shown.locator("#roofs table").inner_text()
    assert table.count(ROOFS) == 4
    assert f"{arithmetic / bandwidth:.0f} FLOP/B" in table
    assert shown.locator("[data-legend=roofline] .roof").inner_text() == "measured roof"


def test_points_tell_their_share_of_the_roof(shown: Page, store: Results) -> None:
    arithmetic, bandwidth = rates(store, "a100-01")
    points = panel(shown, "A100-PCIE-40GB").evaluate(
        "(plot) => plot._fullData.filter((one) => one.mode === 'markers').map((one) => [[...one.x], [...one.y], [...one.text]])"
    )
    (x, possible, said), (_, delivered, _) = points
    assert len(x) == 3
    for intensity, works, whole, text in zip(x, possible, delivered, said, strict=True):
        height = min(arithmetic, bandwidth * intensity)
        (found,) = re.findall(r"<br>([\d.]+) % of the roof, ([\d.]+) % over the call", text)
        shares = [float(one) for one in found]
        assert shares == pytest.approx([100 * works / height, 100 * whole / height], abs=0.6)


def test_without_a_measured_roof_none_is_drawn_and_the_page_says_how_to(shown: Page) -> None:
    plot = panel(shown, "V100-PCIE-32GB")
    assert plot.locator(".scatterlayer .point").count() > 0
    assert plot.evaluate(DRAWN) == []
    said = shown.locator("#roofs p").inner_text()
    assert said.startswith("No roof was measured of V100-PCIE-32GB, float16.")
    assert "sweeps/roofs.yaml" in said
    assert "sweeps/roofs_gpu.yaml" in said


def test_a_store_without_roofs_has_neither_lines_nor_legend(running: Browser, tmp_path: Path) -> None:
    made = make_systems(tmp_path / "results", World(systems=(CPU_ONLY,), rounds=2, design=design, updated=()))
    path = tmp_path / "report.html"
    path.write_text(render_page(make_report(open_store(made.directory))), encoding="utf-8")
    with opened(running, path) as found:
        draw_all(found.page)
        assert panel(found.page, "EPYC 7763").evaluate(DRAWN) == []
        assert found.page.locator("#roofs table").count() == 0
        assert found.page.locator("#roofs p").inner_text().startswith("No roof was measured of EPYC 7763. ")
        assert found.page.locator("[data-legend=roofline] .roof").count() == 0
        assert found.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_roof_has_the_colours_of_the_page_and_white_paper(running: Browser, page_file: Path, scheme: str) -> None:
    with opened(running, page_file, scheme=scheme, width=420) as found:
        page = found.page
        draw_all(page)
        muted = "() => getComputedStyle(document.documentElement).getPropertyValue('--muted').trim()"
        on_screen = page.evaluate(muted)
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        assert {one["colour"] for one in panel(page, "A100").evaluate(DRAWN)} == {on_screen}
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(muted) == "#545d69"
        assert {one["colour"] for one in panel(page, "A100").evaluate(DRAWN)} == {"#545d69"}
