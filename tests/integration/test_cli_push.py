"""`taxmeter results push`, and the commands that read what was pushed."""

import uuid
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from orchestrator.cli import run
from orchestrator.store import open_store
from tests.integration import store_example
from tests.object_service import ObjectService


@pytest.fixture
def results(tmp_path: Path) -> str:
    path = tmp_path / "results"
    store_example.make(path)
    return str(path)


@pytest.fixture
def url(object_service: ObjectService) -> str:
    bucket = f"lab-{uuid.uuid4().hex[:12]}"
    filesystem, _ = pafs.FileSystem.from_uri(object_service.url(bucket) + "&allow_bucket_creation=true")
    filesystem.create_dir(bucket)
    return object_service.url(f"{bucket}/results")


def said(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert run(["results", *command]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_push_says_what_it_did(results: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path / 'pushed'}"
    files = len(list(Path(results, "current").resolve().rglob("*.parquet")))
    first = said(capsys, "push", url, "--results", results)
    assert f"{files} files (" in first
    assert f"of this store is now at {url}" in first
    again = said(capsys, "push", url, "--results", results, "--prune", "--keep-days", "0")
    assert f"0 files (0.00 MB) uploaded, {files} were there already" in again
    assert f"of this store was already at {url}" in again


def test_every_command_that_reads_takes_a_url(
    results: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "push", url, "--results", results)
    for command in (
        ("ls",),
        ("show", "paper-1"),
        ("coverage", "paper-1"),
        ("sql", "SELECT workload, backend, count(*), sum(batch) FROM trials GROUP BY ALL ORDER BY ALL"),
        ("sql", "SELECT count(*), round(sum(duration_s), 9) FROM samples"),
    ):
        assert said(capsys, *command, "--results", url) == said(capsys, *command, "--results", results)
    for place, name in ((url, "pushed.csv"), (results, "local.csv")):
        said(capsys, "export", "--output", str(tmp_path / name), "--results", place)
    assert (tmp_path / "pushed.csv").read_text() == (tmp_path / "local.csv").read_text()
    assert "sound: every page was read" in said(capsys, "verify", "--results", url)


def test_the_reader_in_python_gives_the_same_from_a_url(results: str, url: str) -> None:
    assert run(["results", "push", url, "--results", results]) == 0
    pushed, local = open_store(url), open_store(results)
    condition = "status = 'ok' AND batch = 8"
    names = ["trial_id", "latency_sync_median_s", "samples_sync_s"]
    expected = local.trials(condition, names).arrow().sort_by("trial_id")
    assert len(expected)
    assert pushed.trials(condition, names).arrow().sort_by("trial_id") == expected
    assert pushed.trials(condition, names).polars().height == len(pushed.trials(condition)) == len(expected)
    assert pushed.systems().arrow().sort_by("system_id") == local.systems().arrow().sort_by("system_id")


def test_verify_finds_what_was_altered_in_the_object_store(
    results: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path / 'pushed'}"
    said(capsys, "push", url, "--results", results)
    part = next((tmp_path / "pushed").rglob("part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[100] ^= 16
    part.write_bytes(data)
    assert run(["results", "verify", "--results", url]) == 1
    assert f"{part.relative_to(tmp_path / 'pushed')} is altered" in capsys.readouterr().out


def test_a_pushed_store_merges_into_another(
    results: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "push", url, "--results", results)
    other, rows = str(tmp_path / "other"), len(open_store(results).trials().arrow())
    assert f"{rows} rows added, 0 were there already" in said(capsys, "merge", url, "--results", other)
    assert f"0 rows added, {rows} were there already" in said(capsys, "merge", url, "--results", other)
