"""How files come and go in the store without a reader noticing."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from orchestrator.errors import StoreError
from orchestrator.files import at_once
from orchestrator.store import Store, system_row
from orchestrator.store.schema import SCHEMAS
from orchestrator.store.storage import generations
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.generations import OutdatedError, current_number, expire, prepare, replace
from orchestrator.store.storage.layout import exclusive, store_id
from tests.storing import CrashError, dying_at, names, plain_counts, row

STEPS = [
    (os, "fsync"),
    (os, "link"),
    (generations, "move"),
    (generations, "write_file"),
    (shutil, "rmtree"),
    (Path, "symlink_to"),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results")


def filled(store: Store) -> Store:
    """Two months, and a system."""
    with store.writer() as writer:
        writer.append([row("a"), row("b", month=12)])
        writer.put("systems", [system_row("s1", "h1", {"cpu_cores": 2}, {})])
    return store


def test_a_new_store_says_what_it_is_and_leads_people_to_its_tables(store: Store) -> None:
    filled(store)
    document = json.loads(store.layout.description.read_text())
    assert document == {"format": 1, "schema_version": 1, "store_id": store_id(store.layout)}
    assert store.layout.current_link.readlink() == Path("generations/000001")
    assert store.layout.root.joinpath("trials").readlink() == Path("current/trials")
    assert plain_counts(store) == {2}
    with store.writer():
        assert json.loads(store.layout.description.read_text()) == document


def test_who_resolved_a_generation_goes_on_reading_it(store: Store) -> None:
    filled(store)
    before = ds.dataset(os.path.realpath(store.layout.current_link) + "/trials", partitioning="hive")
    snapshot = store.layout.snapshot()
    removed = snapshot.names("trials")[0]
    other: dict[str, Path | bytes] = {"trials/month=2025-11/part-x.parquet": snapshot.parts()[0].read_bytes()}
    with exclusive(store.layout):
        number = replace(store.layout, [removed], other)
    assert number == current_number(store.layout) == 2
    assert before.to_table().num_rows == snapshot.dataset("trials").count_rows() == 2
    assert store.layout.parts()[0].name == "part-x.parquet"
    assert removed not in store.layout.snapshot().names("trials")
    assert plain_counts(store) == {2}


def test_a_file_is_named_by_its_content_and_what_is_gone_cannot_be_replaced(store: Store) -> None:
    filled(store)
    for table in SCHEMAS:
        for path in (store.layout.current / table).rglob("*.parquet"):
            assert path.name == f"part-{hashlib.sha256(path.read_bytes()).hexdigest()}.parquet"
    with exclusive(store.layout), pytest.raises(OutdatedError, match="was replaced meanwhile"):
        replace(store.layout, ["trials/month=2025-11/part-gone.parquet"], {})
    assert current_number(store.layout) == 1
    assert plain_counts(store) == {2}


def test_old_generations_are_deleted_after_their_grace_period_only(store: Store) -> None:
    filled(store)
    for number in range(3):
        with exclusive(store.layout):
            replace(store.layout, [], {f"systems/{number}.parquet": store.layout.parts()[0].read_bytes()})
    old = [store.layout.generations / f"{number:06d}" for number in (1, 2, 3)]
    # The third took the place of the second an hour ago, the fourth that of the third now.
    an_hour_ago = old[2].stat().st_mtime - 3600
    os.utime(old[2], (an_hour_ago, an_hour_ago))
    with exclusive(store.layout):
        assert expire(store.layout, 7200) == 0
        assert expire(store.layout, 1800) == 1
    assert [path.is_dir() for path in old] == [True, False, True]
    with store.writer(keep_s=0):
        pass
    assert [path.name for path in store.layout.generations.iterdir()] == ["000004"]
    assert names(store) == ["a", "b"]


def test_what_killed_processes_left_is_removed_except_that_of_a_living_compaction(store: Store) -> None:
    filled(store)
    layout = store.layout
    shutil.copytree(layout.current, layout.generations / "000002")
    layout.temporary.joinpath("part-torn.parquet").write_bytes(b"PAR1")
    shutil.copytree(layout.current, layout.temporary / "generation-000002")
    layout.merging.mkdir()
    layout.merging.joinpath("part-new.parquet").write_bytes(b"PAR1")
    with at_once(layout.compaction_lock) as is_mine:
        assert is_mine
        prepare(layout)
        assert [path.name for path in layout.merging.iterdir()] == ["part-new.parquet"]
    prepare(layout)
    assert list(layout.temporary.iterdir()) == []
    assert [path.name for path in layout.generations.iterdir()] == ["000001"]
    assert plain_counts(store) == {2}


def test_a_crash_at_any_step_of_the_making_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in count():
        store = Store.open(tmp_path / str(step))
        try:
            with dying_at(monkeypatch, step, STEPS):
                prepare(store.layout)
        except CrashError:
            assert names(store) == []
            assert names(filled(store)) == ["a", "b"]
            assert plain_counts(store) == {2}
            assert list(store.layout.temporary.iterdir()) == []
        else:
            break
    # A description, a generation with four tables, five links, and what lies between.
    assert step > 20


@pytest.mark.parametrize(("written", "schema"), [(2, 1), (1, 2)])
def test_a_store_of_another_version_is_refused_by_readers_and_writers(store: Store, written: int, schema: int) -> None:
    filled(store)
    store.layout.description.write_text(f'{{"format": {written}, "schema_version": {schema}, "store_id": "x"}}')
    said = rf"STORE.json: format {written} with schema {schema}, and this taxmeter knows format 1 with schema 1: use"
    for use in (store.trials, store.writer, store.systems):
        with pytest.raises(StoreError, match=said):
            use()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.mkdir, "current is a directory, as after a copy that followed links"),
        (lambda link: link.symlink_to("generations/000007"), "current leads to .*generations/000007"),
        (lambda link: link.symlink_to("elsewhere/000001"), "current leads to .*elsewhere/000001"),
        (lambda link: link.symlink_to("generations/first"), "current leads to .*generations/first"),
        (lambda link: None, r"current is missing, .* `ln -s generations/0+\d+ "),
    ],
    ids=["copied with its links resolved", "a generation that is gone", "elsewhere", "no number", "lost"],
)
def test_a_store_without_its_link_is_no_empty_one_and_keeps_its_rows(
    store: Store, damage: Callable[[Path], object], message: str
) -> None:
    filled(store)
    link = store.layout.current_link
    target = link.readlink()
    link.unlink()
    damage(link)
    for use in (store.trials, store.writer, lambda: compact(store.layout, full=True)):
        with pytest.raises(StoreError, match=message):
            use()
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        link.rmdir()
    link.symlink_to(target)
    assert names(store) == ["a", "b"]


def test_what_a_killed_process_left_of_the_next_generation_is_in_nobodys_way(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a")])
        number = int(store.layout.current.name) + 1
        (store.layout.generations / f"{number:06d}" / "trials").mkdir(parents=True)
        (store.layout.temporary / f"generation-{number:06d}").mkdir()
        (store.layout.temporary / "current").symlink_to("nowhere")
        writer.seal()
        with exclusive(store.layout):
            assert replace(store.layout, [], {}) == number
    assert names(store) == ["a"]
