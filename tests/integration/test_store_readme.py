"""What the README of the results says is tried out."""

import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import (
    CAMPAIGNS,
    ENVIRONMENTS,
    SYSTEMS,
    TRIALS,
    Store,
    campaign_row,
    environment_row,
    system_row,
)
from orchestrator.store.query.selection import open_store
from runners.contract import Status
from tests.integration import store_example

README = Path(__file__).parents[2] / "results" / "README.md"
TEXT = README.read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
[PRELUDE] = (one for one in SNIPPETS if "def medians" in one)
QUESTIONS = {
    int(number): text for number, text in re.findall(r"^### (\d+)\. (.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL)
}
LIBRARIES = ("pyarrow", "pandas", "Polars")

EAGER, ORT = "eager", "onnxruntime"
EXPECTED: dict[int, list[tuple[object, ...]]] = {
    1: [
        *[("bert-base", 1, EAGER, "EPYC", 0.01125), ("bert-base", 1, EAGER, "Xeon", 0.0225)],
        *[("bert-base", 1, ORT, "EPYC", 0.005), ("bert-base", 1, ORT, "Xeon", 0.010)],
        *[("bert-base", 8, EAGER, "EPYC", 0.050), ("bert-base", 8, EAGER, "Xeon", 0.100)],
        *[("bert-base", 8, ORT, "EPYC", 0.032), ("bert-base", 8, ORT, "Xeon", 0.064)],
    ],
    2: [("bert-base", 1, EAGER, 0.6), ("bert-base", 1, ORT, 0.5), ("bert-base", 8, EAGER, 0.2)],
    3: [("bert-base", 1, EAGER, 1.8), ("bert-base", 1, ORT, 2.0), ("bert-base", 8, EAGER, 2.0), ("bert-base", 8, ORT, 2.0)],
    4: [("lab1", "570.1", "580.2", "6.1.0", "6.2.0")],
    5: [("crashed", EAGER, None, 1), ("oom", EAGER, "no memory left", 2), ("skipped", ORT, "not in this environment", 1)],
    6: [
        *[(1, 0.011), (1, 0.010), (1, 0.009)],
        *[(2, 0.0165), (2, 0.015), (2, 0.0135)],
        *[(3, 0.01375), (3, 0.0125), (3, 0.01125)],
    ],
    # Of batch 1: 2, 3, 2 on each of two hosts, and 1.6; of batch 8: 1.25, 1.875, 1.25 on each.
    7: [("bert-base", 1, 7, 2.0), ("bert-base", 8, 6, 1.25)],
    10: [
        ("cpu", "2.13.0", "3.11.2", "570.1", 12),
        ("cpu", "2.13.0", "3.11.2", None, 13),
        ("cpu-next", "2.14.0", "3.12.1", "580.2", 2),
    ],
}  # fmt: skip


def expected(number: int) -> list[tuple[object, ...]]:
    """The answer to a question, found in the rows one by one."""
    if number in EXPECTED:
        return EXPECTED[number]
    rows: list[dict[str, Any]] = [row for row in store_example.trials() if row["status"] == "ok"]
    if number == 8:
        shown = ("workload", "batch", "backend", "system_id", "started_at", "latency_sync_median_s")
        last = {(row["trial_key"], row["system_id"]): tuple(row[name] for name in shown) for row in rows}
        return sorted(last.values())
    assert number == 9
    groups = defaultdict(list)
    for row in rows:
        key = row["workload"], row["backend"], row["system_id"], row["batch"]
        groups[key].append(row["throughput_examples_per_s"])
    return [(*key, statistics.median(values)) for key, values in sorted(groups.items())]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("readme")
    store_example.make(directory / "results")
    return directory


@pytest.fixture
def results(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example store, in the `results` of the working directory."""
    monkeypatch.chdir(made)


def executed(*snippets: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(compile(snippet, str(README), "exec"), names)
    return names


def rows_of(answer: Any) -> list[tuple[object, ...]]:
    """The rows of a table of any of the libraries, in order."""
    if isinstance(answer, duckdb.DuckDBPyRelation):
        answer = answer.to_arrow_table()
    table = answer if isinstance(answer, pa.Table) else pa.table(answer) if hasattr(answer, "columns") else None
    assert table is not None
    return [
        tuple(row.values()) for row in table.select([n for n in table.column_names if "index" not in n]).to_pylist()
    ]


def require_equal(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == tuple(pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for value in other)


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("number", QUESTIONS)
def test_the_sql_answers_the_question(number: int) -> None:
    (query,) = re.findall(r"^```sql\n(.*?)^```", QUESTIONS[number], re.MULTILINE | re.DOTALL)
    require_equal(rows_of(executed(PRELUDE, f'answer = duckdb.sql("""{query}""")')["answer"]), expected(number))
    require_equal(rows_of(open_store("results").sql(query)), expected(number))


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("number", QUESTIONS)
def test_each_library_gives_the_same_answer(number: int, library: str) -> None:
    (snippet,) = re.findall(rf"^```python\n(# {library}\n.*?)^```", QUESTIONS[number], re.MULTILINE | re.DOTALL)
    require_equal(rows_of(executed(PRELUDE, snippet)["answer"]), expected(number))


@pytest.mark.usefixtures("results")
def test_the_python_interface_is_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = (one for one in SNIPPETS if "open_store" in one)
    executed(snippet)
    few, totals = capsys.readouterr().out.splitlines()
    assert len(set(few.split())) == 1
    fast = [row for row in store_example.trials() if row["status"] == "ok" and row["latency_sync_median_s"] < 0.02]
    assert int(few.split()[0]) == len(fast)
    assert totals == "[('paper', 24, 24), ('paper', 7, 3)]"


@pytest.mark.usefixtures("results")
def test_the_lines_for_the_shell_count_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    plain, sql = re.findall(r"^```sh\n(.*)\n```", TEXT, re.MULTILINE)
    python, *arguments = shlex.split(plain)
    assert python == ".venv/bin/python", "a bare python has no pyarrow"
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True)
    assert done.stdout == "31\n"
    assert run(shlex.split(sql)[1:]) == ExitCode.OK
    told = capsys.readouterr().out
    for status, count in (("ok", 27), ("oom", 2), ("crashed", 1), ("skipped", 1)):
        assert re.search(rf"\b{status}\W+{count}\b", told), status


@pytest.mark.usefixtures("results")
def test_the_fingerprint_is_read_by_each_library(capsys: pytest.CaptureFixture[str]) -> None:
    section = TEXT.partition("## The fingerprint")[2].partition("\n## ")[0]
    (query,) = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    rows = executed(PRELUDE, f'answer = duckdb.sql("""{query}""")')["answer"].fetchall()
    assert rows[0] == ("474f4d9e", "performance", 3.7, None, "Not affected", [700_000, 700_000])
    assert open_store("results").sql(query).fetchall() == rows
    for library in LIBRARIES:
        (snippet,) = re.findall(rf"^```python\n(# {library}\n.*?)^```", section, re.MULTILINE | re.DOTALL)
        executed(PRELUDE, snippet)
        assert capsys.readouterr().out.count("performance") == 3


@pytest.mark.usefixtures("results")
def test_disturbed_trials_are_left_out_by_each_library(capsys: pytest.CaptureFixture[str]) -> None:
    section = TEXT.partition("## Disturbed trials")[2].partition("\n## ")[0]
    quiet, seen = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    rows = executed(PRELUDE, f'answer = duckdb.sql("""{quiet}""")')["answer"].fetchall()
    assert sum(row[-1] for row in rows) == 26
    assert open_store("results").sql(quiet).fetchall() == rows
    for library in LIBRARIES:
        (snippet,) = re.findall(rf"^```python\n(# {library}\n.*?)^```", section, re.MULTILINE | re.DOTALL)
        executed(PRELUDE, snippet)
        assert capsys.readouterr().out == "26\n"
    assert open_store("results").sql(seen).fetchall() == [
        ("lab1", "load", "after", "flagged", "permille", 1, 700.0),
        ("lab1", "load", "after", "passed", "permille", 1, 20.0),
    ]


@pytest.fixture
def eras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign of `eras`, in which one trial of round 3 failed, beside one of another sweep."""
    versions = {
        "cpu-2022": {"python": "3.9.2", "torch": "1.12.1", "transformers": "4.25.1", "onnxruntime": "1.7.0"},
        "cpu": {"python": "3.11.2", "torch": "2.13.0+cpu", "transformers": "5.23.0", "onnxruntime": "1.31.1"},
    }
    latencies = {"cpu-2022": [0.3, 0.4, 0.5], "cpu": [0.2, 0.1, None]}
    texts = {"sweep_document": "", "inventory_document": "", "plan_digest": "p", "taxmeter_version": "1"}
    started = datetime(2025, 11, 20, tzinfo=UTC)
    with Store.open(tmp_path / "results").writer() as writer:
        writer.put("systems", [system_row("s1", "h1", {}, {})])
        for name, one in versions.items():
            writer.put("environments", [environment_row(name, name, one, {}, image_digest=None, lock_sha256=None)])
        for campaign, sweep in (("c1", "eras"), ("c2", "other")):
            writer.put_campaign(campaign_row(campaign, started, sweep, planned_trials=6, git_commit=None, **texts))
        for campaign, name, round_ in product(("c1", "c2"), versions, (1, 2, 3)):
            latency_s = latencies[name][round_ - 1]
            row = store_example.SHARED | {
                "trial_id": f"{campaign}-{name}-{round_}", "trial_key": name, "campaign_id": campaign, "batch": 1,
                "environment": name, "environment_id": name, "system_id": "s1", "backend": EAGER, "order": 1,
                "round": round_, "started_at": started, "status": "oom" if latency_s is None else "ok",
                "latency_sync_median_s": latency_s,
            }  # fmt: skip
            writer.append([row])
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("eras")
def test_the_eras_are_told_by_their_versions_and_compared_within_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = (one for one in SNIPPETS if "'eras'" in one)
    names = executed(PRELUDE, snippet)
    printed = capsys.readouterr().out
    for shown in ("cpu-2022", "1.12.1", "2.13.0+cpu", "times_as_fast"):
        assert shown in printed
    assert names["versions"].fetchall() == [
        ("bert-base", EAGER, "cpu", "3.11.2", "2.13.0+cpu", "5.23.0", "1.31.1", 2),
        ("bert-base", EAGER, "cpu-2022", "3.9.2", "1.12.1", "4.25.1", "1.7.0", 3),
    ]
    # of the pairs 0.3/0.2 and 0.4/0.1; round 3 has no partner
    [row] = names["change"].fetchall()
    assert row == ("bert-base", 1, EAGER, 2, "docker", "s1", 2, *map(pytest.approx, (350, 150, 2.75)))


@pytest.mark.usefixtures("results")
def test_a_pushed_store_is_read_by_its_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path}/pushed"
    assert run(["results", "push", url]) == ExitCode.OK
    capsys.readouterr()
    (snippet,) = (one for one in SNIPPETS if "latest.json" in one)
    executed(re.sub(r'"s3://.*?"', f'"{url}"', snippet))
    assert capsys.readouterr().out == "31\n"


def test_every_snippet_is_tried() -> None:
    assert sorted(QUESTIONS) == list(range(1, 11))
    assert len(SNIPPETS) == 1 + 1 + len(LIBRARIES) * len(QUESTIONS) + 3 + 3 + 1 + 1


@pytest.mark.usefixtures("results")
def test_the_views_have_the_columns_that_are_listed() -> None:
    (row,) = re.findall(r"^\| `samples` \|(.*)\|$", TEXT, re.MULTILINE)
    columns = set(open_store("results").sql("FROM samples").columns)
    assert set(re.findall(r"`(\w+)`", row)) <= columns
    assert open_store("results").sql("SELECT count(*) FROM latest").fetchall() == [(11,)]


def test_every_command_that_is_shown_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted(set(re.findall(r"taxmeter results (\w+)", TEXT))):
        assert run(["results", command, "--help"]) == ExitCode.OK
    assert "--anonymise" in capsys.readouterr().out


def test_every_column_is_listed_with_its_unit() -> None:
    section = TEXT.partition("## Columns of `trials`")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \| [^|]*\|$", section, re.MULTILINE))
    units = {}
    for field in TRIALS:
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        better = f", {metadata['better']} is better" if "better" in metadata else ""
        units[field.name] = metadata.get("unit", "") + better
    assert {name: unit.strip() for name, unit in listed.items()} == units


@pytest.mark.parametrize(
    ("name", "schema"), [("systems", SYSTEMS), ("environments", ENVIRONMENTS), ("campaigns", CAMPAIGNS)]
)
def test_the_columns_of_the_small_tables_are_listed(name: str, schema: pa.Schema) -> None:
    section = TEXT.partition(f"### `{name}`")[2].partition("\n### ")[0]
    listed = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in section.splitlines() if "|" in line))
    assert sorted(listed) == sorted(schema.names)


def test_every_status_is_explained() -> None:
    section = TEXT.partition("## What a row says")[2].partition("\n## ")[0]
    assert re.findall(r"^  \| `(\w+)` \|", section, re.MULTILINE) == [status.value for status in Status]


def test_a_column_with_a_unit_in_its_name_says_so_in_its_metadata() -> None:
    for field in TRIALS:
        unit = (field.metadata or {}).get(b"unit", b"").decode()
        if field.name.endswith("_per_s"):
            assert unit.endswith("s/s")
        elif field.name.endswith("_s"):
            assert unit == "s"
        elif field.name.endswith("_bytes"):
            assert unit == "bytes"
