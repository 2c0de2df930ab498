"""The queries under the charts answer with the numbers of the charts: of every cell, and of no cell more."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from orchestrator.report.page import make_report, render_page
from orchestrator.report.page.model import Mode
from orchestrator.report.page.payload import payload
from orchestrator.store import Results, Row
from tests.browser import opened
from tests.comparing import NEW, OLD, rounds, store_of, system_of

FAST, SLOW = [0.010, 0.011, 0.0105], [0.030, 0.033, 0.031]
LONG = '{"sync_min_samples":1000}'
VALUES = {"latency": ("latency_s", ""), "speedups": ("speedup", "_backend"), "hardware": ("speedup", "_system")}
"""By the name of the query: the column of its answer, and the end of that of the page."""


def rows() -> Iterator[Row]:
    """Cells that differ in what is never pooled, ratios with and without shared rounds, and two systems."""
    for changes in ({}, {"protocol": LONG}, {"seed": 7}, {"isolation": "docker"}, {"sequence_length": 128}):
        factor, more = 1 + len(str(changes)) / 50, {"trial_key": str(changes), **changes}
        yield from rounds([factor * value for value in SLOW], system_id="s1", **more)
        yield from rounds(FAST, system_id="s1", backend="onnxruntime", **more)
        yield from rounds([value / factor for value in FAST], system_id="s2", host="lab2", **more)
    # Of another campaign: unpaired, and with one shared round of three also
    yield from rounds(FAST, system_id="s1", backend="openvino", campaign=NEW)
    yield from rounds(FAST, system_id="s1", backend="tensorrt", campaign=NEW)
    yield from rounds(FAST[:1], system_id="s1", backend="tensorrt", campaign=OLD)
    # In turns, one cycle of which a neighbour made longer for one of the two
    for backend, factor in (("eager", 1.0), ("torchscript", 0.7)):
        for number, jump in enumerate((1.0, 1.2, 1.1), 1):
            turns = [0.03 * factor, 0.031 * factor * jump, 0.032 * factor]
            samples = {"samples_sync_s": [one for turn in turns for one in (0.9 * turn, turn, 2 * turn)]}
            session = {"session_id": f"s{number}", "interleaving": "turns", "turn_samples": [3, 3, 3]}
            [one] = rounds([turns[1]], system_id="s1", backend=backend, workload="vit", **session, **samples)
            yield {**one, "round": number, "trial_id": f"{one['trial_id']}-{number}"}
    # On the other system in two environments, of which one has the name of that on the baseline
    for name, identity in (("cpu", "e" * 32), ("cpu-2022", "f" * 32)):
        more = {"environment": name, "environment_id": identity, "batch": 8}
        yield from rounds(SLOW if name == "cpu" else FAST, system_id="s2", host="lab2", **more)
    yield from rounds(SLOW, system_id="s1", environment="cpu", environment_id="d" * 32, batch=8)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    place = tmp_path_factory.mktemp("queries") / "the lab's $results"
    return store_of(place, *rows(), systems=[system_of("s1"), system_of("s2")])


@pytest.fixture(scope="module")
def document(results: Results) -> dict[str, Any]:
    report = make_report(results, (), ["system=s1"])
    return payload(report.page, report.samples)


@pytest.mark.parametrize("name", VALUES)
def test_a_query_has_the_numbers_of_its_chart(results: Results, document: dict[str, Any], name: str) -> None:
    column, end = VALUES[name]
    query = document["queries"][name].replace("{metric}", Mode.SYNC.metric.column)
    for place in ("where", "beside", "elsewhere"):
        query = query.replace(f"{{{place}}}", document["sql"])
    relation = results.sql(query)
    answer = [dict(zip(relation.columns, one, strict=True)) for one in relation.fetchall()]
    shown = [value for value in document["cells"][f"latency_sync{end}"] if value is not None]
    assert sorted(one[column] for one in answer) == pytest.approx(sorted(shown), rel=1e-4)
    assert len(shown) >= 6
    if name == "speedups":
        pairing = {one["backend"]: one["pairing"] for one in answer}
        assert pairing == {
            "onnxruntime": "rounds", "openvino": "unpaired", "tensorrt": "unpaired", "torchscript": "turns",
        }  # fmt: skip


def test_the_command_asks_the_store_of_the_page(running: Browser, results: Results, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_page(make_report(results)), encoding="utf-8")
    with opened(running, path) as shown:
        page = shown.page
        page.evaluate(
            "Object.defineProperty(navigator, 'clipboard', { value: { writeText: (text) => { document.copied = text; } } })"
        )
        page.locator("#latency details[data-query] summary").click()
        query = page.locator("#latency details[data-query] pre").inner_text()
        page.locator("#latency").get_by_role("button", name="Copy as taxmeter").click()
        command = page.evaluate("document.copied")
    words = subprocess.run(
        ["/bin/sh", "-c", command.replace("taxmeter", 'printf "%s\\n"', 1)], capture_output=True, text=True, check=True
    ).stdout
    assert words == "\n".join(["results", "sql", "--results", results.place, query, ""])
