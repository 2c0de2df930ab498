"""`taxmeter results sql | export` take nobody's place, and leave no trace of short names of hosts."""

from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store
from tests.results import make_store, taxmeter, trial

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("a"))


def export(store: Store, output: Path, *more: str) -> int:
    return taxmeter("results", "export", "--results", store.layout.root, "--output", output, *more)


def test_the_description_beside_a_file_takes_nobodys_place(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output, side = tmp_path / "x.csv", tmp_path / "x.csv.columns.json"
    side.write_text("mine")
    assert export(store, output, "--columns", "batch") == ExitCode.USAGE
    assert "x.csv.columns.json" in capsys.readouterr().err
    assert side.read_text() == "mine"
    assert not output.exists()
    assert export(store, output, "--columns", "batch", "--force") == ExitCode.OK
    assert "batch" in side.read_text()
    side.unlink()
    side.mkdir()
    assert export(store, output, "--columns", "batch", "--force") == ExitCode.USAGE
    assert "is a directory; name a file" in capsys.readouterr().err


def test_a_file_never_takes_the_place_of_a_directory(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "export"
    assert export(store, output) == ExitCode.OK
    before = sorted(output.rglob("*"))
    query = ("results", "sql", "SELECT 1", "--results", store.layout.root, "--format", "csv")
    assert taxmeter(*query, "--output", output, "--force") == ExitCode.USAGE
    assert "is a directory; name a file" in capsys.readouterr().err
    assert sorted(output.rglob("*")) == before
    assert export(store, output, "--force") == ExitCode.OK


def test_nothing_is_written_into_a_store(store: Store, capsys: Captured) -> None:
    inside = store.layout.root / "trials" / "x.csv"
    query = ("results", "sql", "SELECT 1", "--results", store.layout.root)
    assert taxmeter(*query, "--output", inside) == ExitCode.USAGE
    assert f"within the result store {store.layout.root}" in capsys.readouterr().err
    assert export(store, store.layout.root / "export") == ExitCode.USAGE
    assert not inside.exists()
    assert not (store.layout.root / "export").exists()
