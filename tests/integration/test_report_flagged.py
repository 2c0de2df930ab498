"""Trials that guards flagged: the page tells and counts them, marks what has some, and can leave them out."""

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.errors import ConfigurationError
from orchestrator.report.page import make_report, render_page
from orchestrator.report.page.cells import Mode, PageCell
from orchestrator.store import Results, Row
from tests.browser import draw_all, opened
from tests.comparing import measured, store_of
from tests.integration.test_report_page import document_of
from tests.results import taxmeter

LATENCIES = {("eager", 1): 0.010, ("eager", 4): 0.020, ("onnxruntime", 1): 0.005, ("onnxruntime", 4): 0.012}
ROUNDS = 4
DISTURBED = {("onnxruntime", 4, 2): ("load", "throttling"), ("eager", 1, 3): ("load",)}
"""The guards that flag a visit; such a visit takes three times as long."""
SEEN = {
    "load": {"observed": 700.0, "limit": 100.0, "unit": "permille", "detail": "cores 0-1"},
    "throttling": {"observed": 3.0, "limit": 0.0, "unit": "events", "detail": "cpu0, cpu1: thermal_throttle"},
}


def guarded(*flags: str) -> Row:
    fields = {"moment": "after", "policy": "flag", "waited_s": 0.0}
    quiet = {"guard": "clocks", "outcome": "passed", "observed": 0.0, "limit": 0.0, "unit": "settings", "detail": None}
    seen = [{"guard": one, "outcome": "flagged", **SEEN[one], **fields} for one in flags]
    return {"guards": [{**quiet, **fields}, *seen], "guard_flags": list(flags)}


def visit(backend: str, batch: int, number: int, **more: object) -> Row:
    flags = DISTURBED.get((backend, batch, number), ())
    latency_s = LATENCIES[backend, batch] * (1 + 0.001 * number) * (3 if flags else 1)
    return measured(latency_s, number, **{"backend": backend, "batch": batch, **guarded(*flags), **more})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    rows = [visit(backend, batch, number) for backend, batch in LATENCIES for number in range(1, ROUNDS + 1)]
    # A second half of an A/A pair, a trial that failed, and one that nobody watched
    rows.append(visit("eager", 4, 1, replicate=1, **guarded("load")))
    rows.append(measured(None, 1, backend="eager", batch=8, status="oom", reason="no memory", **guarded("load")))
    rows.append(visit("eager", 4, 5, host="lab2", guards=None, guard_flags=None))
    return store_of(tmp_path_factory.mktemp("flagged") / "results", *rows)


def cell_of(cells: tuple[PageCell, ...], backend: int, batch: int) -> PageCell:
    (found,) = (one for one in cells if (one.backend, one.batch) == (backend, batch))
    return found


def test_they_are_counted_by_guard_and_host_and_the_page_and_its_query_tell_the_same(results: Results) -> None:
    page = make_report(results).page
    assert (page.disturbed.trials, page.disturbed.watched) == (4, 18)
    groups = {(one.guard, one.host): (one.count, one.watched) for one in page.disturbed.groups}
    assert groups == {("load", "lab1"): (4, 18), ("throttling", "lab1"): (1, 18)}
    (load,) = (one for one in page.disturbed.groups if one.guard == "load")
    assert load.seen == "cores 0-1: 70 %, at most 10 % passes"
    assert [one.rpartition(", float32, ")[2] for one in load.what] == ["eager, batch 1, 4, 8", "onnxruntime, batch 4"]
    (throttling,) = (one for one in page.disturbed.groups if one.guard == "throttling")
    assert throttling.seen == "cpu0, cpu1: thermal_throttle"
    html = render_page(make_report(results))
    assert "<b>4</b> <span>of 18 watched</span>" in html
    section = html[html.index('id="flagged"') :]
    assert [part for part in ("4 of 18", load.seen, "count in every number") if part not in section] == []
    document = document_of(html)
    query = document["queries"]["flagged"].replace("{where}", document["sql_of_all"])
    assert results.sql(query).fetchall() == [("load", "lab1", 4), ("throttling", "lab1", 1)]


def test_they_count_in_every_number_unless_they_are_left_out(results: Results) -> None:
    with_them, without = make_report(results).page, make_report(results, without_flagged=True).page
    assert with_them.disturbed == without.disturbed
    base = 0.012
    for page, expected, processes, flagged in (
        (with_them, float(np.median([base * 1.001, base * 1.002 * 3, base * 1.003, base * 1.004])), 4, 1),
        (without, base * 1.003, 3, 0),
    ):
        cell = cell_of(page.cells, 1, 4)
        latency = cell.of[Mode.SYNC].estimate
        assert latency is not None
        assert (latency.processes, cell.trials.flagged) == (processes, flagged)
        assert latency.value == pytest.approx(expected)
        document = document_of(render_page(make_report(results, without_flagged=page.without_flagged)))
        query = document["queries"]["latency"].replace("{metric}", Mode.SYNC.metric.column)
        answer = results.sql(query.replace("{where}", f"{document['sql']} AND backend = 'onnxruntime' AND batch = 4"))
        (row,) = [dict(zip(answer.columns, one, strict=True)) for one in answer.fetchall()]
        assert (row["processes"], row["latency_s"]) == (processes, pytest.approx(expected))
    assert "left out of every number" in render_page(make_report(results, without_flagged=True))


def test_a_selection_of_flagged_trials_alone_cannot_do_without_them(tmp_path: Path) -> None:
    results = store_of(tmp_path / "results", visit("eager", 1, 3))
    assert make_report(results).page.disturbed.trials == 1
    with pytest.raises(ConfigurationError, match="guards flagged all 1 trials"):
        make_report(results, without_flagged=True)


def test_a_selection_without_guards_says_that_nothing_is_known(tmp_path: Path) -> None:
    results = store_of(tmp_path / "results", measured(0.01))
    assert "No trial had guards" in render_page(make_report(results))


def test_the_command_leaves_them_out(results: Results, tmp_path: Path) -> None:
    pages = {}
    for options in ((), ("--without-flagged",)):
        target = tmp_path / "page.html"
        place = results.place
        assert taxmeter("report", "--where", "campaign~*", *options, "--results", place, "--output", target) == 0
        document = document_of(target.read_text())
        pages[options] = sum(document["cells"]["latency_sync_n"])
    assert pages == {(): 17, ("--without-flagged",): 15}


def test_they_are_marked_where_they_show(running: Browser, results: Results, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_page(make_report(results, parse_conditions("host=lab1"))), encoding="utf-8")
    with opened(running, path) as shown:
        page = shown.page
        draw_all(page)
        flags = page.locator("[data-chart=latency] .textpoint text").all_text_contents()
        assert sorted(one for one in flags if one) == ["⚑", "⚑"]
        numbers = page.locator("[data-chart=speedups] .heatmap-label text").all_text_contents()
        assert [one.endswith("⚑") for one in numbers].count(True) == 1
        assert page.locator("#cell-table").get_by_text("⚑ 1 flagged").count() == 2
        page.locator("#cell-table").get_by_role("button", name="onnxruntime, batch 4").click()
        page.wait_for_selector("#samples[open]")
        assert "⚑: guards flagged 1 process as disturbed." in page.locator("#samples-about").inner_text()
        assert page.locator("#samples-table tbody th").all_inner_texts() == [
            *("round 1, lab1", "round 2, lab1, ⚑", "round 3, lab1", "round 4, lab1")
        ]
        assert shown.said == []
