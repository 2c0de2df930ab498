"""`taxmeter compare` and `taxmeter gate` as people call them."""

import csv
import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from orchestrator.analysis.comparison import COLUMNS
from orchestrator.errors import ExitCode
from orchestrator.store import Row
from tests.comparing import NEW, OLD, measured, rounds, store_of, system_of
from tests.conftest import Captured, Patch
from tests.results import refused, taxmeter, told

TIMES = [0.100, 0.101, 0.099, 0.1005, 0.0995]
COMPARE = ["compare", "--rows", "workload,batch", "--cols", "backend", "--baseline", "backend=eager"]
NEWEST = [*COMPARE, "--where", "campaign=newest"]
GATE = ["gate", "--baseline", "campaign=previous"]
DRIVERS = [system_of("s1", gpu_driver_version="535.54"), system_of("s2", gpu_driver_version="550.90")]


def scaled(factor: float) -> list[float]:
    return [factor * value for value in TIMES]


def rows_of(campaign: str, factor: float = 1.0, **more: object) -> list[Row]:
    failed = [
        measured(None, number, campaign=campaign, backend="tensorrt", status="unsupported", reason="no TensorRT here")
        for number in (1, 2, 3)
    ]
    return [
        *rounds(scaled(factor), campaign=campaign, **more),
        *rounds([1.2 * value for value in scaled(factor)], campaign=campaign, batch=8, **more),
        *rounds(scaled(0.4), campaign=campaign, backend="onnxruntime", **more),
        *rounds(scaled(factor)[::-1], campaign=campaign, replicate=1, **more),
        *failed,
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two campaigns, of which the second has another driver and an eager that is a fifth slower."""
    return two_campaigns(tmp_path / "results", DRIVERS)


def two_campaigns(place: Path, systems: Sequence[Row]) -> Path:
    rows = [*rows_of(OLD, system_id="s1"), *rows_of(NEW, 1.2, system_id="s2")]
    store_of(place, *rows, systems=systems)
    return place


def test_a_table_for_people(place: Path, capsys: Captured) -> None:
    shown = told(capsys, *NEWEST, "--results", place)
    for text in (
        "latency_sync: one call at a time, median. Median over processes [95 % interval].",
        "x: how many times better than backend=eager, above 1 is better [95 % interval, paired by round].",
        "120 ms [", "x3.00 [", "] faster", "3 unsupported", "no TensorRT here",
        "Verdicts: 1 faster, over 10 processes, 30 samples.", "Nothing else that is known differs",
        "Equivalent, or slightly: all of it lies within 3 %.", "Smallest difference that could have been found: ",
        "A/A, the same trial twice: 0 of 1 pair called different.",
    ):  # fmt: skip
        assert text in shown


@pytest.mark.parametrize("columns", [80, 200])
def test_it_fits_the_terminal(place: Path, capsys: Captured, columns: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr("orchestrator.cli.compare.wide_console", lambda: Console(width=columns))
    lines = told(capsys, *NEWEST, "--results", place).splitlines()
    assert max(map(len, lines)) <= columns
    assert any("onnxruntime" in line for line in lines)
    assert not any("…" in line for line in lines)


def test_two_sides_for_people(place: Path, capsys: Captured) -> None:
    shown = told(capsys, "compare", "campaign=previous", "campaign=newest", "--results", place)
    for text in (
        f"campaign=newest: campaign {NEW}, host lab1", "unpaired: no shared rounds", "x0.83 [", "slower", "equivalent",
        "What else differs, campaign left out", "gpu_driver_version: 535.54 → 550.90", "judged together (Holm)",
    ):  # fmt: skip
        assert text in shown


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--latest", "Of each cell only the newest campaign."),
        ("--without-flagged", "Without the trials that guards flagged as disturbed."),
        ("--pool=system", "POOLED on request over different system"),
    ],
)
def test_what_is_left_out_or_pooled_is_said(place: Path, capsys: Captured, option: str, said: str) -> None:
    for command in (NEWEST, [*GATE, "--candidate", "campaign=newest"]):
        assert taxmeter(*command, option, "--results", place) in (ExitCode.OK, ExitCode.TRIALS_FAILED)
        assert said in " ".join(capsys.readouterr().out.split())


def test_what_explains_a_difference_most_often_is_never_cut_off(tmp_path: Path, capsys: Captured) -> None:
    many = [{f"aspect_{number:02}": number + more for number in range(20)} for more in (0, 1)]
    systems = [
        system_of(name, gpu_driver_version=driver, **aspects)
        for name, driver, aspects in zip(("s1", "s2"), ("535.54", "550.90"), many, strict=True)
    ]
    place = two_campaigns(tmp_path / "results", systems)
    sides = ["campaign=previous", "campaign=newest", "--match", "workload,batch,backend"]
    shown = told(capsys, "compare", *sides, "--results", place)
    fields = shown.partition("What else differs")[2].splitlines()[2:]
    assert fields[0].strip() == "gpu_driver_version: 535.54 → 550.90"
    assert "and 9 more, which --format csv, json and parquet have" in " ".join(fields)


def test_rows_for_programs_have_the_same_columns_in_every_format(place: Path, tmp_path: Path, capsys: Captured) -> None:
    question = [*NEWEST, "--results", place]
    as_csv = list(csv.DictReader(io.StringIO(told(capsys, *question, "--format", "csv"))))
    as_json = [json.loads(line) for line in told(capsys, *question, "--format", "json").splitlines()]
    assert taxmeter(*question, "--output", tmp_path / "rows.parquet") == ExitCode.OK
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.names == COLUMNS.names == list(as_csv[0]) == list(as_json[0])
    # Others read these by name
    assert {"ratio", "ratio_low", "ratio_high", "verdict"} <= as_json[0].keys()
    assert table.schema.field("ratio").metadata[b"better"] == b"higher"
    rows = {(row["batch"], row["backend"]): row for row in table.to_pylist()}
    fast = rows[1, "onnxruntime"]
    assert fast["ratio"] == pytest.approx(3)
    assert (fast["verdict"], fast["pairing"], fast["pairs"]) == ("faster", "rounds", 5)
    assert (fast["unit"], fast["better"], fast["processes"], fast["samples"]) == ("s", "lower", 5, 15)
    expected = ("workload=bert_base batch=1 backend=eager", NEW, "bert_base")
    assert (fast["baseline"], fast["campaigns"], fast["workload"]) == expected
    assert (rows[1, "tensorrt"]["status"], rows[1, "tensorrt"]["reason"]) == ("unsupported:3", "no TensorRT here")
    assert [float(row["ratio"]) for row in as_csv if row["ratio"]] == pytest.approx([3])
    assert [row["ratio"] for row in as_json if row["ratio"]] == pytest.approx([3])


def test_a_file_that_is_there_is_kept(place: Path, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("mine")
    question = [*NEWEST, "--results", place, "--output", target]
    assert "--force" in refused(capsys, *question)
    assert target.read_text() == "mine"
    assert taxmeter(*question, "--force") == ExitCode.OK
    assert target.read_text().startswith("gpu,cpu,")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("compare", "--rows: name at least one axis"),
        ("compare --rows gpuu", "--rows and --cols: no axis is called gpuu; did you mean gpu"),
        ("compare gpu=A100", "expected two selections, found 1"),
        ("compare backend=eager backend=onnxruntime --rows gpu", "either two selections, or --rows"),
        ("compare --rows workload --match batch", "--match: is for two selections"),
        ("compare --rows workload --metric speed", "--metric: no metric is called speed"),
        ("compare --rows workload --pool driver", "--pool: driver cannot be pooled; these can: environment"),
        ("compare --rows workload --margin 'a lot'", "--margin: is 'a lot', expected a share such as 5%"),
        ("compare --rows workload --margin 0", "--margin: is 0, expected more than 0"),
        ("compare --rows workload --margin 3", "--margin: is 3, which is 300 %; write 3%"),
        ("compare --rows workload --where gpu=A100", "--where: no trial has gpu=A100; there are: no GPU"),
        ("compare --rows workload --format parquet", "Parquet cannot be printed"),
        ("gate --baseline backend=jax", "--baseline: no trial has backend=jax"),
        ("gate --baseline campaign=previous --where backend=tensorrt", "no trial of baseline has latency_sync"),
        ("gate --baseline campaign=newest", "there is nothing to compare"),
        ("gate --baseline campaign=previous --max-slowdown -5%", "--max-slowdown: is '-5%'"),
        ("gate --baseline campaign=previous --max-slowdown 5", "--max-slowdown: is 5, which is 500 %; write 5%"),
    ],
)
def test_what_is_wrong_is_one_line(place: Path, capsys: Captured, command: str, message: str) -> None:
    assert message in refused(capsys, *shlex.split(command), "--results", place)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing option '--baseline'"),
        (("--baseline", "campaign=previous", "--junit", "/nowhere/at/all.xml"), "cannot be written"),
    ],
)
def test_a_gate_without_a_baseline_or_a_place_for_its_report_is_a_usage_error(
    place: Path, capsys: Captured, arguments: tuple[str, ...], message: str
) -> None:
    assert taxmeter("gate", *arguments, "--results", place) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_store_without_trials_has_nothing_to_compare(tmp_path: Path, capsys: Captured) -> None:
    store_of(tmp_path / "results")
    said = refused(capsys, "compare", "--rows", "gpu", "--results", tmp_path / "results")
    assert "there is nothing to compare: the store has no trial" in said


def test_the_gate_fails_and_says_why_in_three_forms(place: Path, tmp_path: Path, capsys: Captured) -> None:
    junit, markdown = tmp_path / "gate.xml", tmp_path / "summary.md"
    markdown.write_text("# Before\n")
    files = ["--junit", junit, "--markdown", markdown]
    shown = told(capsys, *GATE, "--max-slowdown", "5%", *files, "--results", place, code=1)
    assert "failed: 2 cells are slower beyond doubt. 3 cells: 2 slower, 1 within the limit." in shown
    assert "gpu_driver_version: 535.54 → 550.90" in shown
    suite = ElementTree.parse(junit).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("testsuite", "3", "2", "0")
    failures = suite.findall("testcase/failure")
    assert len(failures) == 2
    assert "x0.833 [" in str(failures[0].get("message"))
    page = markdown.read_text()
    assert page.startswith("# Before\n## ❌ taxmeter gate: failed: 2 cells are slower beyond doubt.")
    assert "| batch=1 backend=eager | 100 ms [" in page
    assert "- gpu_driver_version: 535.54 → 550.90" in page


def test_the_gate_passes_what_is_not_proven(place: Path, capsys: Captured) -> None:
    gate = [*GATE, "--results", place]
    assert "passed: no slow-down beyond 30 % is proven." in told(capsys, *gate, "--max-slowdown", "30%")
    assert taxmeter(*gate, "--where", "backend=onnxruntime") == ExitCode.OK


def test_the_gate_tells_what_is_missing(tmp_path: Path, capsys: Captured) -> None:
    rows = [*rounds(TIMES, campaign=OLD), *rounds(TIMES, campaign=OLD, batch=8), *rounds(TIMES, campaign=NEW)]
    store_of(tmp_path / "results", *rows)
    junit = tmp_path / "gate.xml"
    gate = [*GATE, "--junit", junit, "--results", tmp_path / "results"]
    assert "batch=8: the candidate has no such trial" in told(capsys, *gate)
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("skipped"), len(suite.findall("testcase/skipped"))) == ("0", "1", 1)
    assert "failed: 1 cell is missing." in told(capsys, *gate, "--require-all", code=1)
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
