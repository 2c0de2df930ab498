"""What a page of a report says: the numbers of the comparison, the answers of its own queries, and no request."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.tax import VIEWS
from orchestrator.errors import ConfigurationError
from orchestrator.report.page import Report, make_report, render_page
from orchestrator.report.page.cells import Against, Mode
from orchestrator.report.page.samples import sample_book
from orchestrator.store import open_store
from runners.contract import Status
from tests.machines import A100, CPU_ONLY, V100, System
from tests.results import make_store, trial
from tests.systems import NEW_DRIVER, Made, World, make_systems
from tests.world import BACKENDS, spec

Document = dict[str, Any]


def design(system: System) -> tuple:  # type: ignore[type-arg]
    half = "float16" if system.is_gpu else "float32"
    return (
        *(spec("bert-base", batch, backend, half, system.device) for backend in BACKENDS for batch in (1, 4, 16)),
        *(spec("funnel-small", batch, backend, half, system.device) for backend in BACKENDS[:2] for batch in (1, 4)),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("page") / "results"
    return make_systems(directory, World(systems=(V100, A100, CPU_ONLY), rounds=4, design=design))


@pytest.fixture(scope="module")
def report(made: Made) -> Report:
    return make_report(open_store(made.directory), (), ["host=v100-01"])


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return render_page(report)


def document_of(html: str) -> Document:
    """The data of a page."""
    packed = re.search(r'<script type="text/plain" id="data">([^<]+)<', html)
    assert packed is not None
    found: Document = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return found


@pytest.fixture(scope="module")
def document(html: str) -> Document:
    return document_of(html)


def filled(document: Document, name: str, where: str = "true", mode: Mode = Mode.PIPELINED) -> str:
    query: str = document["queries"][name]
    for key, value in {"where": where, "beside": where, "elsewhere": where, "metric": mode.metric.column}.items():
        query = query.replace(f"{{{key}}}", value)
    return query


def position(document: Document, system: str, work: str, backend: str, batch: int) -> int:
    cells = document["cells"]
    (found,) = (
        number
        for number in range(len(cells["batch"]))
        if document["places"][cells["place"][number]]["label"] == system
        and document["shapes"][cells["shape"][number]]["workload"] == work
        and document["backends"][cells["backend"][number]]["label"] == backend
        and cells["batch"][number] == batch
    )
    return int(found)


def test_hardware_is_compared_where_the_work_is_the_same(report: Report) -> None:
    page = report.page
    compared = {
        page.at.systems[page.at.places[one.place].system].label: one.ratios[Against.SYSTEM, Mode.SYNC].pairing.value
        for one in page.cells
        if (Against.SYSTEM, Mode.PIPELINED) in one.ratios
    }
    assert compared == dict.fromkeys(
        ("A100-PCIE-40GB, driver 535.54.03", f"A100-PCIE-40GB, driver {NEW_DRIVER}"), "unpaired"
    )


def test_the_queries_answer_with_the_numbers_of_the_page(made: Made, document: Document) -> None:
    results = open_store(made.directory)
    cell = position(document, "V100-PCIE-32GB", "bert-base", "torchscript", 4)
    cells = document["cells"]
    work, place = document["shapes"][cells["shape"][cell]], document["places"][cells["place"][cell]]
    where = f"{work['sql']} AND {place['sql']} AND batch = 4 AND dtype = 'float16'"
    backend = document["backends"][cells["backend"][cell]]["sql"]

    def answer(name: str, condition: str) -> dict[str, Any]:
        relation = results.sql(filled(document, name, condition), VIEWS)
        rows = relation.fetchall()
        assert len(rows) == 1
        return dict(zip(relation.columns, rows[0], strict=True))

    latency = answer("latency", f"{where} AND {backend}")
    assert latency["processes"] == cells["latency_pipelined_n"][cell] == 4
    assert latency["latency_s"] == pytest.approx(cells["latency_pipelined"][cell], rel=1e-4)
    tax = answer("tax", f"{where} AND {backend}")
    assert tax["overhead_s"] == pytest.approx(cells["overhead"][cell], rel=1e-4)
    assert tax["fraction"] == pytest.approx(cells["fraction"][cell], rel=1e-4)
    rates = answer("roofline", f"{where} AND {backend}")
    assert rates["flop_per_weight_byte"] == pytest.approx(cells["flops"][cell] / cells["weight_bytes"][cell], rel=1e-4)
    assert rates["kernel_rate"] == pytest.approx(cells["flops"][cell] / cells["busy"][cell], rel=1e-4)


def test_a_processor_has_the_floor_of_its_structure_and_the_query_the_same(made: Made, document: Document) -> None:
    cells = document["cells"]
    of_cpu = [at for at, device in enumerate(cells["device"]) if device == "cpu" and cells["overhead"][at] is not None]
    by_structure: dict[tuple[int, int], set[float]] = {}
    for at in of_cpu:
        by_structure.setdefault((cells["shape"][at], cells["backend"][at]), set()).add(cells["overhead"][at])
    assert len(by_structure) > 3
    assert {len(floors) for floors in by_structure.values()} == {1}
    relation = open_store(made.directory).sql(filled(document, "tax", "device = 'cpu'", Mode.SYNC), VIEWS)
    answers = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    for name, column in (("overhead", "overhead_s"), ("fraction", "fraction")):
        shown = sorted(cells[name][at] for at in of_cpu)
        assert sorted(one[column] for one in answers) == pytest.approx(shown, rel=1e-4)


def test_the_execution_tax_is_against_the_best_backend(document: Document) -> None:
    cells = document["cells"]
    best = position(document, "V100-PCIE-32GB", "bert-base", "cuda_graphs", 1)
    eager = position(document, "V100-PCIE-32GB", "bert-base", "eager", 1)
    assert (cells["execution"][best], cells["execution_share"][best]) == (0, 0)
    assert cells["execution_best"][eager] == "cuda_graphs"
    latencies = cells["latency_pipelined"]
    assert cells["execution"][eager] == pytest.approx(latencies[eager] - latencies[best], rel=0.05)
    assert cells["execution_floors"][eager] is None
    on_cpu = [at for at, device in enumerate(cells["device"]) if device == "cpu" and cells["execution_share"][at]]
    assert all(cells["execution_floors"][at] > 0 for at in on_cpu)
    assert on_cpu


@pytest.mark.parametrize("name", ["cells", "failures", "flagged", "systems", "samples"])
def test_every_other_query_is_answered(made: Made, document: Document, name: str) -> None:
    count = len(open_store(made.directory).sql(filled(document, name), VIEWS).fetchall())
    assert count > 0 or name == "flagged"


def test_what_failed_is_named_with_its_reason(report: Report, html: str) -> None:
    failures = {(one.status, one.host): one for one in report.page.failures}
    unsupported = failures[Status.UNSUPPORTED, "v100-01"]
    assert (unsupported.count, unsupported.trials) == (
        8,
        ("funnel-small, 128 tokens, float16, torchscript, batch 1, 4",),
    )
    skipped = failures[Status.SKIPPED, "epyc-01"]
    assert skipped.reason is not None
    assert skipped.reason in html
    # A configuration that never ran is a cell without numbers, beside those that ran
    cells = [one for one in report.page.cells if one.trials.statuses.get(Status.UNSUPPORTED)]
    assert {len(one.ok) for one in cells} == {0}
    assert {report.page.at.places[one.place].label for one in cells} == {one.label for one in report.page.at.places} - {
        f"A100-PCIE-40GB, driver {NEW_DRIVER}"
    }


def test_the_table_of_systems_marks_what_differs_and_nothing_else_and_shortens_long_lists(
    report: Report, html: str
) -> None:
    (driver,) = (one for one in report.page.hardware.fields if one.name == "gpu_driver_version")
    assert driver.differs
    assert driver.values == ("535.54.03", NEW_DRIVER, "", "535.54.03")
    row = re.search(r"<tr><th scope=\"row\">gpu_driver_version</th>(.*?)</tr>", html)
    assert row is not None
    assert re.findall(r"<td( class=\"differs\")?>", row[1]) == ["", ' class="differs"', ' class="differs"', ""]
    (same,) = (one for one in report.page.hardware.fields if one.name == "kernel.release")
    assert not same.differs
    (flags,) = (field for field in report.page.hardware.fields if field.name == "cpu.flags")
    assert flags.values[0] == "5 that all have, avx512bw, avx512dq, avx512f"
    assert flags.values[2] == "5 that all have"


def test_the_page_asks_nobody_for_anything(html: str) -> None:
    without_data = re.sub(r'<script type="text/plain"[^>]*>[^<]*</script>', "", html)
    assert set(re.findall(r"https?://[^\s\"'<>)]+", without_data)) == {"http://www.w3.org/2000/svg"}  # a name, no place
    assert re.findall(r"(?:src|href)=\"(?!#|data:)", without_data) == []
    assert re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|EventSource", without_data) == []
    assert "default-src 'none'" in html


def test_no_text_of_the_store_becomes_markup(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    make_store(
        tmp_path / "results",
        trial("one", host=hostile, cpu_model=hostile, gpu_name=None),
        trial("two", status="crashed", reason=hostile, host=hostile),
    )
    found = render_page(make_report(open_store(tmp_path / "results")))
    assert "<img" not in found
    assert "alert(1)</script>" not in found
    assert "&lt;img src=x onerror=alert(2)&gt;" in found


def test_samples_are_those_of_the_store(made: Made, report: Report) -> None:
    book = report.samples
    total = (
        open_store(made.directory)
        .sql("SELECT count(*) FROM samples WHERE status = 'ok' AND replicate = 0 AND mode IN ('sync', 'pipelined')")
        .fetchall()[0][0]
    )
    assert (book.kept, book.total, book.per_series) == (total, total, None)


def test_a_selection_is_a_condition_and_baselines_can_be_chosen(made: Made) -> None:
    results = open_store(made.directory)
    found = make_report(results, parse_conditions(["gpu=V100", "batch<=4"]), ["backend=onnxruntime"]).page
    assert {one.label for one in found.at.systems} == {"V100-PCIE-32GB"}
    assert found.sql == "gpu_name = 'Tesla V100-PCIE-32GB'\n  AND batch IN (1, 4)"
    labels = [one.label for one in found.at.backends]
    assert found.baselines == {Against.BACKEND: labels.index("onnxruntime"), Against.SYSTEM: None}
    for text, problem in (
        ("backend=egaer", "did you mean eager"),
        ("gpu=A100", "means 2 systems"),
        ("workload=bert-base", "expected backend or one of gpu"),
        ("batch>=4", "expected one value"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            make_report(results, (), [text])


def test_a_page_that_leaves_samples_out_says_so(made: Made, report: Report) -> None:
    moment = Snapshot.of(open_store(made.directory))
    page = report.page
    names = [one["campaign_id"] for one in page.campaigns]
    book = sample_book(moment, None, page.cells, names, report.samples.hosts, budget=report.samples.total // 2)
    assert book.per_series == 4
    assert book.total // 4 < book.kept <= book.total // 2
    assert "at most 4 of each series, evenly spaced in their order. Numbers" in render_page(Report(page, book))


def test_the_page_is_small(html: str) -> None:
    """Most of it is the charting library. The page of 100,000 trials is measured in benchmarks/report_page.py."""
    assert len(html.encode()) < 3e6
