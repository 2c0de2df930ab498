"""What stands under the charts answers with their numbers: of every cell, and of no cell more."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser

from orchestrator.cli import taxmeter as commands
from orchestrator.report.page import make_report, render_page
from orchestrator.report.page.cells import Mode
from orchestrator.report.page.payload import payload
from orchestrator.store import Results, Row
from tests.browser import opened
from tests.comparing import NEW, OLD, rounds, store_of, system_of

FAST, SLOW = [0.010, 0.011, 0.0105], [0.030, 0.033, 0.031]
LONG = '{"sync_min_samples":1000}'


def rows() -> Iterator[Row]:
    """Cells that differ in what is never pooled, ratios with and without shared rounds, and two systems."""
    for number, changes in enumerate(
        ({}, {"protocol": LONG}, {"seed": 7}, {"isolation": "docker"}, {"sequence_length": 128})
    ):
        factor, more = 1 + len(str(changes)) / 50, {"trial_key": f"key-{number}", **changes}
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


def test_the_query_of_latencies_has_the_numbers_of_its_chart(results: Results, document: dict[str, Any]) -> None:
    query = document["queries"]["latency"].replace("{metric}", Mode.SYNC.metric.column)
    relation = results.sql(query.replace("{where}", document["sql"]))
    answer = [row[relation.columns.index("latency_s")] for row in relation.fetchall()]
    shown = [value for value in document["cells"]["latency_sync"] if value is not None]
    assert sorted(answer) == pytest.approx(sorted(shown), rel=1e-4)
    assert len(shown) >= 6


@pytest.mark.parametrize(("name", "end"), [("speedups", "backend"), ("hardware", "system")])
def test_the_command_of_a_chart_has_its_ratios_and_verdicts(document: dict[str, Any], name: str, end: str) -> None:
    words = shlex.split(document["commands"][name].replace("{mode}", "latency_sync"))
    done = CliRunner().invoke(commands, [*words[1:], "--format", "json"])
    assert done.exit_code == 0, done.output
    answer = [json.loads(line) for line in done.stdout.splitlines()]
    told = sorted(
        (*(float(f"{row[column]:.5g}") for column in ("ratio", "ratio_low", "ratio_high")), row["verdict"])
        for row in answer
        if row.get("ratio") is not None
    )
    columns = [document["cells"][f"latency_sync_{end}{part}"] for part in ("", "_low", "_high", "_verdict")]
    shown = sorted(
        (*values, document["verdicts"][verdict])
        for *values, verdict in zip(*columns, strict=True)
        if verdict is not None
    )
    assert told == shown
    assert len(shown) >= 6
    if name == "speedups":
        pairing = {row["backend"]: row["pairing"] for row in answer if row.get("pairing")}
        assert pairing == {
            "onnxruntime": "rounds",
            "openvino": "unpaired",
            "tensorrt": "unpaired",
            "torchscript": "turns",
        }


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
