"""`taxmeter results ls | show | log | sql`, as people type them."""

import io
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.store import open_store
from runners.contract import Status
from tests.conftest import Captured, Patch
from tests.results import CAMPAIGNS, make_store, refused, taxmeter, told, trial


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only read here."""
    directory = tmp_path_factory.mktemp("lab") / "results"
    make_store(
        directory,
        trial("a", finished_at=trial("a")["started_at"]),
        trial("b", status="oom", batch=8),
        trial("c", status="infrastructure_error"),
        trial("c", attempt=2, workload="gpt2", host="lab2", latency_sync_median_s=0.25, latency_sync_samples=2),
        trial("d", CAMPAIGNS[1], month=12, status="skipped", host=None),
        trial("e", CAMPAIGNS[1], month=12, status="infrastructure_error"),
    )
    return directory


def sql(directory: Path, *query: object) -> list[object]:
    return ["results", "sql", "--results", directory, *query]


def test_campaigns_are_listed_newest_first_with_how_their_trials_ended(directory: Path, capsys: Captured) -> None:
    lines = told(capsys, "results", "ls", "--results", directory).splitlines()
    assert lines[1].split()[:1] == [CAMPAIGNS[1]]
    assert lines[2].split() == f"{CAMPAIGNS[0]} 2025-11-20 00:00 night this store lab1 lab2 3 2 1 0 0 0 0 s".split()
    listed = told(capsys, "results", "ls", "--results", directory, "--format", "json")
    newest, oldest = map(json.loads, listed.splitlines())
    assert [newest[name] for name in ("ok", "failed", "skipped", "left_to_do", "duration_s")] == [0, 1, 1, 3, None]
    assert oldest["hosts"] == ["lab1", "lab2"]
    assert [oldest[name] for name in ("ok", "failed", "left_to_do")] == [2, 1, 0]


def test_a_campaign_is_shown_with_all_its_intervals(tmp_path: Path, capsys: Captured) -> None:
    rounds = [
        trial(f"r{number}", round=number, latency_sync_median_s=0.25 + number / 100, latency_sync_p10_s=0.2)
        for number in range(3)
    ]
    make_store(tmp_path / "results", *rounds)
    show = ("results", "show", CAMPAIGNS[0], "--results", tmp_path / "results")
    assert re.search(r"260 ms \[2\d\d, 2\d\d\] \(200 ms\)", told(capsys, *show, "--intervals"))
    assert "260 (200) ms ±" in told(capsys, *show)


def test_the_beginning_of_a_campaign_id_is_enough_if_it_is_the_only_one(directory: Path, capsys: Captured) -> None:
    place = ("--results", directory)
    assert "gpt2" in told(capsys, "results", "show", CAMPAIGNS[0][:15], *place)
    said = refused(capsys, "results", "show", "night", *place)
    assert f"night may be {CAMPAIGNS[1]}, {CAMPAIGNS[0]}; write more" in said
    assert "no campaign day; `taxmeter results ls` lists them" in refused(capsys, "results", "coverage", "day", *place)


def test_a_query_is_answered_as_table_csv_and_json(directory: Path, capsys: Captured) -> None:
    query = "SELECT workload, count(*) AS n, any_value(samples_sync_s) AS s FROM trials GROUP BY ALL ORDER BY ALL"
    question = sql(directory, query)
    assert "│ gpt2      │     1 │ [0.25, 0.5] │" in told(capsys, *question)
    lines = told(capsys, *question, "--format", "csv").splitlines()
    assert lines == ["workload,n,s", 'bert_base,5,"[0.25, 0.5]"', 'gpt2,1,"[0.25, 0.5]"']
    lines = told(capsys, *question, "--format", "json").splitlines()
    assert json.loads(lines[1]) == {"workload": "gpt2", "n": 1, "s": [0.25, 0.5]}
    assert "add --output FILE" in refused(capsys, *question, "--format", "parquet")


def test_a_query_comes_from_a_file_or_standard_input(
    directory: Path, tmp_path: Path, capsys: Captured, monkeypatch: Patch
) -> None:
    (tmp_path / "query.sql").write_text("SELECT 17 AS n\n")
    assert "17" in told(capsys, *sql(directory, "--file", tmp_path / "query.sql"))
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 18 AS n"))
    assert told(capsys, *sql(directory, "-", "--format", "csv")) == "n\n18\n"
    assert "give a query" in refused(capsys, *sql(directory))
    assert "none.sql: cannot be read" in refused(capsys, *sql(directory, "--file", tmp_path / "none.sql"))


def test_the_answer_goes_to_a_file_that_appears_whole(directory: Path, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "answer.parquet"
    assert taxmeter(*sql(directory, "FROM trials SELECT trial_id, started_at", "--output", output)) == ExitCode.OK
    assert pq.read_table(output).num_rows == 6
    another = sql(directory, "SELECT 1 AS n", "--output", output)
    assert "is there already; name another place, or add --force" in refused(capsys, *another)
    fails = sql(directory, "SELECT CAST(workload AS INTEGER) FROM trials", "--output", output, "--force")
    assert "Could not convert string" in refused(capsys, *fails)
    assert pq.read_table(output).num_rows == 6
    assert taxmeter(*another, "--force") == ExitCode.OK
    assert pq.read_table(output).to_pylist() == [{"n": 1}]
    assert "add --format" in refused(capsys, *sql(directory, "SELECT 1 AS n", "--output", tmp_path / "answer.xlsx"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.parquet"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM trials\nWHERE bach = 1", ("line 2, column 7", "did you mean batch", "`DESCRIBE trials`")),
        ("SELECT boundedness FROM trials", ("line 1, column 8", "not found in FROM clause; tax has it")),
        ("SELECT t.bach FROM trials t", ("line 1, column 10", '"bach"', "did you mean batch")),
        (
            "SELECT * FROM trails",
            ("line 1, column 15", "did you mean trials?", "samples, systems, environments", ", tax"),
        ),
        ("SELECT * FORM trials", ("line 1, column 15", "syntax error")),
        ("SELECT 'abc", ("line 1, column 8", "unterminated")),
        ("SELECT CAST(workload AS INTEGER) FROM trials", ("line 1, column 8", "Could not convert")),
        ("SELECT 1; SELECT 2", ("expected one query, found 2 statements",)),
        ("/* nothing */", ("expected one query, found no query",)),
        ("PIVOT trials ON backend USING count(*)", ("ON column IN",)),
    ],
)
def test_a_wrong_query_is_one_line_with_its_place(
    directory: Path, capsys: Captured, query: str, expected: tuple[str, ...]
) -> None:
    error = refused(capsys, *sql(directory, query))
    for part in expected:
        assert part in error


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{out}'",
        "COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
        "/* x */ EXPLAIN ANALYZE COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
        "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
        "COPY (PIVOT trials ON backend USING count(*)) TO '{part}' (USE_TMP_FILE false)",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{part}''')",
        "CREATE TABLE here AS SELECT 1",
        "CREATE OR REPLACE VIEW trials AS SELECT 1",
        "DROP VIEW trials",
        "INSERT INTO trials SELECT * FROM trials",
        "ATTACH '{out}'",
        "EXPORT DATABASE '{out}'",
        "INSTALL httpfs",
        "LOAD '{out}'",
        "SET enable_external_access = true",
        "PRAGMA enable_object_cache",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/proc/self/environ')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "CALL pragma_version()",
    ],
)
def test_a_query_reads_the_store_and_nothing_else(
    directory: Path, tmp_path: Path, capsys: Captured, query: str
) -> None:
    part = Path(open_store(directory).view().snapshot.files["trials"][0])
    content = part.read_bytes()
    before = sorted(tmp_path.rglob("*"))
    written = query.format(out=tmp_path / "out", part=part)
    refused(capsys, *sql(directory, written))
    assert sorted(tmp_path.rglob("*")) == before
    assert part.read_bytes() == content
    with pytest.raises(ConfigurationError):
        open_store(directory).sql(written)


def test_questions_about_the_tables_are_answered(directory: Path, capsys: Captured) -> None:
    for query in ("DESCRIBE latest", "SUMMARIZE systems", "SHOW TABLES", "EXPLAIN SELECT * FROM trials"):
        assert len(told(capsys, *sql(directory, query, "--format", "csv")).splitlines()) > 1
    pivot = "FROM (PIVOT trials ON status IN ('ok', 'oom') USING count(*) GROUP BY workload) ORDER BY ALL"
    answer = told(capsys, *sql(directory, pivot, "--format", "csv"))
    assert answer == "workload,ok,oom\nbert_base,1,1\ngpt2,1,0\n"


TRACEBACK = "Traceback\n\tfile\nValueError: no \x1b[31mred\u202e"


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    there = {"campaign": CAMPAIGNS[-1]}
    failed = {**there, "status": Status.CRASHED.value, "reason": "it raised ValueError", "log_tail": TRACEBACK}
    again = trial("abc", attempt=2, **there, status=Status.OK.value)
    make_store(tmp_path / "results", trial("abc", **failed), again, trial("abd", **failed), trial("xyz"))
    return tmp_path / "results"


def test_a_trial_is_shown_with_all_attempts_and_what_its_log_says(failing: Path, capsys: Captured) -> None:
    lines = told(capsys, "results", "log", "abc", "--results", failing).splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("abc")] == ["abc attempt 1", "abc attempt 2"]
    assert "  it raised ValueError" in lines
    expected = ["  | Traceback", "  |         file", r"  | ValueError: no red\u202e"]
    assert [line for line in lines if line.startswith("  |")][:3] == expected


def test_without_a_trial_each_reason_of_the_newest_campaign_is_shown_once(failing: Path, capsys: Captured) -> None:
    assert told(capsys, "results", "log", "--results", failing).count("it raised ValueError") == 1


@pytest.mark.parametrize(("name", "said"), [("ab", "the beginning of 2 trials"), ("q", "no trial q")])
def test_what_names_no_single_trial_is_one_line(failing: Path, capsys: Captured, name: str, said: str) -> None:
    assert said in refused(capsys, "results", "log", name, "--results", failing)
