"""`taxmeter results drop`: one campaign goes, all else stays, and for a week it can be brought back."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store, open_store
from orchestrator.store.storage.generations import expire
from tests.conftest import Captured
from tests.results import CAMPAIGNS, make_store, refused, taxmeter, told, trial
from tests.storing import forge, names, plain_counts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    mixed = [trial("a"), trial("b", CAMPAIGNS[1]), trial("c", CAMPAIGNS[1], month=10)]
    return make_store(tmp_path / "results", *mixed)


def drop(store: Store, campaign: str) -> tuple[object, ...]:
    return "results", "drop", campaign, "--results", store.layout.root


def campaigns(store: Store) -> list[str]:
    return sorted(store.campaigns()["campaign_id"].to_pylist())


def test_a_campaign_goes_with_its_rows_and_comes_back_from_the_generation_before(
    store: Store, capsys: Captured
) -> None:
    before = store.layout.current
    assert f"{CAMPAIGNS[1]}: 2 rows were taken out" in told(capsys, *drop(store, CAMPAIGNS[1]))
    assert (names(store), campaigns(store), plain_counts(store)) == (["a"], [CAMPAIGNS[0]], {1})
    assert taxmeter("results", "verify", "--results", store.layout.root) == ExitCode.OK
    with store.writer() as writer:
        writer.append([trial("d")])
    assert before.is_dir()
    shutil.copytree(store.layout.root, store.layout.root.with_name("other"), symlinks=True)
    other = Store.open(store.layout.root.with_name("other"))
    other.layout.current_link.unlink()
    other.layout.current_link.symlink_to(f"generations/{before.name}")
    assert names(other) == ["a", "b", "c"]
    assert expire(store.layout, 0) == 1
    assert not before.is_dir()


def test_rows_of_a_killed_writer_and_of_nobodys_campaign_go_too(store: Store) -> None:
    writer = store.writer()
    writer.append([trial("e", "campaign-of-nobody")])
    writer.seal()
    writer.append([trial("f", "campaign-of-nobody")])
    assert writer._segment is not None
    writer._segment.close()
    assert taxmeter(*drop(store, "campaign-of-nobody")) == ExitCode.OK
    assert names(store) == ["a", "b", "c"]


def test_what_is_being_written_stays(store: Store, capsys: Captured) -> None:
    with store.writer() as writer:
        writer.append([trial("g", CAMPAIGNS[1])])
        said = refused(capsys, *drop(store, CAMPAIGNS[1]), code=ExitCode.TRIALS_FAILED)
        assert "is being written; stop its sweep first" in said
    assert names(store) == ["a", "b", "c", "g"]


def test_an_unknown_campaign_is_one_line(store: Store, capsys: Captured) -> None:
    assert f"; did you mean {CAMPAIGNS[1]}" in refused(capsys, *drop(store, CAMPAIGNS[1][:-3]))
    assert taxmeter("results", "drop", "c", "--results", store.layout.root / "no") == ExitCode.USAGE


def test_a_campaign_that_came_in_before_rows_were_judged_can_be_taken_out(store: Store, capsys: Captured) -> None:
    paths = (store.layout.current / "campaigns").iterdir()
    [path] = (path for path in paths if CAMPAIGNS[1] in str(pq.ParquetFile(path).read(["campaign_id"])))
    forge(path, started_at=datetime(2099, 1, 1, tzinfo=UTC))
    forge(store.layout.parts()[0], status="evil", backend_options="{bad")
    verify = ("results", "verify", "--results", store.layout.root)
    said = told(capsys, *verify, code=ExitCode.TRIALS_FAILED)
    assert "`taxmeter results drop` takes its campaign out" in said
    assert taxmeter(*drop(store, CAMPAIGNS[1])) == ExitCode.OK
    assert taxmeter(*verify) == ExitCode.OK
    assert names(store) == ["a"]


def test_where_a_campaign_comes_from_is_told(store: Store, tmp_path: Path, capsys: Captured) -> None:
    identities = set(store.campaigns()["origin_store"].to_pylist())
    assert taxmeter("results", "merge", store.layout.root, "--results", tmp_path / "lab") == ExitCode.OK
    merged = open_store(tmp_path / "lab").campaigns(columns=["origin", "origin_store"]).arrow().to_pylist()
    assert merged == [{"origin": "merged", "origin_store": identity} for identity in identities] * 2
    assert len(Store.open(tmp_path / "lab").own_campaigns()) == 0
    for place, origin in ((store.layout.root, "this store"), (tmp_path / "lab", "merged")):
        assert told(capsys, "results", "ls", "--results", place).count(origin) == 2
