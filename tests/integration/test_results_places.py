"""`taxmeter results sql | export` take nobody's place, and leave no trace of short names of hosts."""

from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store
from tests.conftest import Captured
from tests.results import make_store, refused, taxmeter, trial


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("a"))


def export(store: Store, output: Path, *more: str) -> list[object]:
    return ["results", "export", "--results", store.layout.root, "--output", output, *more]


def query(store: Store, output: Path, *more: str) -> list[object]:
    return ["results", "sql", "SELECT 1", "--results", store.layout.root, "--output", output, *more]


def test_the_description_beside_a_file_takes_nobodys_place(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output, side = tmp_path / "x.csv", tmp_path / "x.csv.columns.json"
    side.write_text("mine")
    order = export(store, output, "--columns", "batch")
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
    assert taxmeter(*export(store, output)) == ExitCode.OK
    before = sorted(output.rglob("*"))
    assert "is a directory; name a file" in refused(capsys, *query(store, output, "--format", "csv", "--force"))
    assert sorted(output.rglob("*")) == before
    assert taxmeter(*export(store, output, "--force")) == ExitCode.OK


def test_nothing_is_written_into_a_store(store: Store, capsys: Captured) -> None:
    root = store.layout.root
    for order in (query(store, root / "trials" / "x.csv"), export(store, root / "export")):
        assert f"within the result store {root}" in refused(capsys, *order)
    assert not (root / "trials" / "x.csv").exists()
    assert not (root / "export").exists()
