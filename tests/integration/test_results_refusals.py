"""Places that are no store, cannot be written, or are named in the wrong way: one line each, and nothing is left there."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.store import Store
from orchestrator.store.push import push
from orchestrator.store.query import tabular
from orchestrator.store.query.tabular import appearing, write_rows
from orchestrator.store.storage import layout
from tests.conftest import Captured, Patch
from tests.results import make_store, refused, taxmeter, told, trial


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("a"), trial("b", month=12))


@pytest.mark.parametrize("command", ["merge", "import", "compact"])
@pytest.mark.parametrize("url", ["file:///lab/results", "s3://lab/results"])
def test_what_writes_takes_no_url(
    store: Store, tmp_path: Path, monkeypatch: Patch, capsys: Captured, command: str, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    other = [store.layout.root] if command != "compact" else []
    said = refused(capsys, "results", command, *other, "--results", url)
    assert f"{url}: this command writes; give a directory with --results, then `taxmeter results push`" in said
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("inside", ["current", "generations/{}", "trials", "current/trials"])
def test_a_part_of_a_store_is_not_written_as_a_store(store: Store, capsys: Captured, inside: str) -> None:
    root = store.layout.root
    before = sorted(root.rglob("*"))
    place = root / inside.format(store.layout.current.name)
    for command in (["compact"], ["merge", root], ["push", "file:///nowhere"]):
        said = refused(capsys, "results", *command, "--results", place)
        assert f"is a part of the store {root}; give --results {root}" in said
    assert sorted(root.rglob("*")) == before


ARGUMENTS = {
    "sql": ["SELECT 1"],
    "export": ["--output", "out"],
    "push": ["file:///nowhere"],
    "import": ["photos"],
    "compare": ["--rows", "gpu"],
    "gate": ["--baseline", "campaign=previous"],
}
"""What commands need besides a store."""
MISSING = ("no such store", ["ls", "show", "coverage", "sql", "export", "verify", "compact", "push", "compare", "gate"])
FILE = ("is a file; give the directory of the result store", [*MISSING[1], "merge", "import"])
FOREIGN = ("is no result store", [*MISSING[1], "merge"])
EMPTY = ("is no result store", ["verify", "compact", "merge", "compare", "gate"])


@pytest.mark.parametrize(
    ("name", "words", "command"),
    [
        (name, words, command)
        for name, (words, commands) in {"none": MISSING, "file": FILE, "photos": FOREIGN, "empty": EMPTY}.items()
        for command in commands
    ],
)
def test_what_is_no_store_is_one_line_and_left_as_it_is(
    tmp_path: Path, monkeypatch: Patch, capsys: Captured, name: str, words: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("photos", "empty"):
        (tmp_path / directory).mkdir()
    (tmp_path / "photos" / "photo.jpg").write_bytes(b"x")
    (tmp_path / "file").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    group = () if command in ("compare", "gate") else ("results",)
    more = [name] if command == "merge" else ARGUMENTS.get(command, [])
    assert f"{name}: {words}" in refused(capsys, *group, command, *more, "--results", name)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_for_results_to_come_is_empty_and_a_foreign_one_is_not_pushed(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "README.md").write_text("where results will be")
    assert "no campaign yet" in told(capsys, "results", "ls", "--results", tmp_path)
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(ConfigurationError):
        push(Store.open(tmp_path).layout, f"file://{tmp_path}/pushed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "photo.jpg"]


def test_the_directory_of_a_pushed_store_is_read_by_its_url(store: Store, tmp_path: Path, capsys: Captured) -> None:
    pushed = tmp_path / "pushed"
    place = ("--results", store.layout.root)
    said = refused(capsys, "results", "push", pushed, *place)
    assert f"{pushed} is no URL; write file://{pushed} for a directory" in said
    assert taxmeter("results", "push", f"file://{pushed}", *place) == ExitCode.OK
    assert f"read it by its URL, file://{pushed}" in refused(capsys, "results", "ls", "--results", pushed)


@pytest.mark.parametrize("command", ["compact", "merge", "push"])
def test_a_store_that_cannot_be_written_says_what_to_do(
    store: Store, tmp_path: Path, monkeypatch: Patch, capsys: Captured, command: str
) -> None:
    make_store(tmp_path / "other", trial("z"))
    opened = os.open

    def read_only(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, mode)

    monkeypatch.setattr(layout.os, "open", read_only)
    more = {"merge": [tmp_path / "other"], "push": [f"file://{tmp_path}/pushed"]}.get(command, [])
    said = refused(capsys, "results", command, *more, "--results", store.layout.root)
    assert "Read-only file system; this command writes to the store: make it writable, or give a copy" in said


def test_an_output_that_cannot_be_written_is_one_line(
    store: Store, tmp_path: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    (tmp_path / "file").write_text("x")
    output = tmp_path / "file" / "rows.csv"
    for command in (["sql", "SELECT 1 AS a"], ["export"]):
        said = refused(capsys, "results", *command, "--output", output, "--results", store.layout.root)
        assert f"{output}: cannot be written" in said

    def refuse(_path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tabular, "_delete", refuse)
    with (
        pytest.raises(ConfigurationError, match="cannot be written: No space left"),
        appearing(tmp_path / "x.csv", force=False),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_full_disk_is_the_disks_error(form: str) -> None:
    rows = pa.table({"a": range(200_000)})
    with pytest.raises(OSError, match="No space left on device"):
        write_rows(rows.to_reader(), Path("/dev/full"), form)


def test_rows_that_cannot_be_read_are_not_the_fault_of_the_output(
    store: Store, tmp_path: Path, capsys: Captured
) -> None:
    query = "SELECT error('broken ' || trial_id) AS a FROM trials"
    output = tmp_path / "rows.parquet"
    assert taxmeter("results", "sql", query, "--output", output, "--results", store.layout.root) != ExitCode.OK
    said = capsys.readouterr().err
    assert "broken" in said
    assert "cannot be written" not in said
    assert not output.exists()


def test_the_parquet_of_a_query_has_units(store: Store, tmp_path: Path) -> None:
    output = tmp_path / "rows.parquet"
    query = "SELECT trial_id, latency_sync_median_s, 1 AS latency_pipelined_median_s, 2.5::DOUBLE AS mine FROM trials"
    assert taxmeter("results", "sql", query, "--output", output, "--results", store.layout.root) == ExitCode.OK
    schema = pq.read_schema(output)
    assert schema.field("latency_sync_median_s").metadata[b"unit"] == b"s"
    for name in ("mine", "latency_pipelined_median_s"):
        assert b"unit" not in (schema.field(name).metadata or {})
    assert len(pq.read_table(output)) == 2


def exporting(store: Store, output: Path, *more: str) -> list[object]:
    return ["results", "export", "--results", store.layout.root, "--output", output, *more]


def asking(store: Store, output: Path, *more: str) -> list[object]:
    return ["results", "sql", "SELECT 1", "--results", store.layout.root, "--output", output, *more]


def test_the_description_beside_a_file_takes_nobodys_place(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output, side = tmp_path / "x.csv", tmp_path / "x.csv.columns.json"
    side.write_text("mine")
    order = exporting(store, output, "--columns", "batch")
    assert "x.csv.columns.json" in refused(capsys, *order)
    assert side.read_text() == "mine"
    assert not output.exists()
    assert taxmeter(*order, "--force") == ExitCode.OK
    assert "batch" in side.read_text()
    side.unlink()
    side.mkdir()
    assert "is a directory; name a file" in refused(capsys, *order, "--force")


def test_a_file_never_takes_the_place_of_a_directory(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "export"
    assert taxmeter(*exporting(store, output)) == ExitCode.OK
    before = sorted(output.rglob("*"))
    assert "is a directory; name a file" in refused(capsys, *asking(store, output, "--format", "csv", "--force"))
    assert sorted(output.rglob("*")) == before
    assert taxmeter(*exporting(store, output, "--force")) == ExitCode.OK


def test_nothing_is_written_into_a_store(store: Store, capsys: Captured) -> None:
    root = store.layout.root
    for order in (asking(store, root / "trials" / "x.csv"), exporting(store, root / "export")):
        assert f"within the result store {root}" in refused(capsys, *order)
    assert not (root / "trials" / "x.csv").exists()
    assert not (root / "export").exists()
