"""What people see who read the store from Python."""

import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.store import TRIALS, open_store
from orchestrator.store.query.selection import Condition
from orchestrator.store.query.sql import connect
from orchestrator.store.query.view import View
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.layout import Layout, Snapshot
from tests.conftest import Patch
from tests.results import CAMPAIGNS, make_store, trial

OWN, OTHER = CAMPAIGNS


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.mark.parametrize("condition", ["batch = 8 AND status = 'ok'", (pc.field("batch") == 8)])
def test_sealed_and_unsealed_rows_are_read_once_in_every_form(directory: Path, condition: Condition) -> None:
    store = make_store(directory, trial("a"), trial("b", batch=8))
    with store.writer() as writer:
        writer.append([trial("c", batch=8), trial("a")])
        chosen = open_store(str(directory)).trials(condition, ["trial_id", "samples_sync_s"])
        assert chosen.arrow().schema.names == ["trial_id", "samples_sync_s"]
        assert sorted(chosen.arrow()["trial_id"].to_pylist()) == ["b", "c"]
        assert sorted(chosen.duckdb().fetchall()) == [("b", [0.25, 0.5]), ("c", [0.25, 0.5])]
        assert sorted(chosen.pandas()["trial_id"]) == ["b", "c"]
        assert chosen.polars()["samples_sync_s"].explode().sum() == 1.5
        assert len(chosen) == 2
        assert len(open_store(directory).trials()) == 3
        assert open_store(directory).sql("SELECT count(*), count(DISTINCT trial_id) FROM trials").fetchall() == [(3, 3)]


def test_of_some_campaigns_only_their_files_are_read_and_what_is_not_sealed(directory: Path) -> None:
    store = make_store(directory, trial("a"))
    with store.writer() as writer:
        writer.append([trial("b", OTHER), trial("c", OTHER)])
    with store.writer() as writer:
        writer.append([trial("d"), trial("e", OTHER)])
        whole = open_store(directory).view()
        ids = {
            campaign: sorted(whole.of_campaigns(campaigns).table("trials", ["trial_id"], None)["trial_id"].to_pylist())
            for campaign, campaigns in (("own", [OWN]), ("other", [OTHER]), ("both", [OWN, OTHER]), ("none", ["night"]))
        }
    assert ids == {"own": [*"ade"], "other": [*"bcde"], "both": [*"abcde"], "none": [*"de"]}
    assert whole.of_campaigns([OWN]).snapshot.files["campaigns"] == whole.snapshot.files["campaigns"] != ()


@pytest.mark.parametrize(
    "condition",
    [
        pc.field("workload") == "bert-3",
        pc.field("batch") > 5,
        pc.starts_with(pc.field("host"), pattern="no such"),
        pc.field("reason").is_null() & pc.field("trial_id").isin(["1", "6"]),
        ~pc.coalesce(pc.field("latency_sync_median_s") > 3.5, pc.scalar(value=False)),
        pc.scalar(value=False),
    ],
)
def test_of_several_row_groups_a_condition_chooses_the_same_rows_as_plain_arrow(
    directory: Path, monkeypatch: Patch, condition: pc.Expression
) -> None:
    monkeypatch.setattr("orchestrator.store.storage.parts.ROW_GROUP_ROWS", 3)
    rows = [
        trial(
            f"{number}",
            workload=f"bert-{number}",
            batch=number,
            latency_sync_median_s=float(number) if number else None,
        )
        for number in range(1, 9)
    ]
    make_store(directory, *rows)
    chosen = open_store(directory).trials(condition)
    [part] = chosen.view.snapshot.files["trials"]
    assert pq.read_metadata(part).num_row_groups == 3
    plain = ds.dataset([part], schema=TRIALS, format="parquet").to_table(filter=condition)
    assert chosen.arrow().equals(plain)


def test_units_and_types_come_with_the_rows(directory: Path) -> None:
    make_store(directory, trial("a", latency_sync_median_s=0.5))
    results = open_store(directory)
    assert results.trials().arrow().schema.equals(TRIALS, check_metadata=True)
    for condition in ("batch = 1", pc.field("batch") == 1):
        field = results.trials(condition, ["latency_sync_median_s"]).arrow().schema.field(0)
        assert field.metadata == {b"unit": b"s", b"better": b"lower"}


def test_only_the_wanted_columns_are_read(directory: Path, monkeypatch: Patch) -> None:
    make_store(directory, trial("a"))
    chosen = open_store(directory).trials(pc.field("batch") == 1, ["workload"])
    part = Path(chosen.view.snapshot.files["trials"][0])
    metadata = pq.read_metadata(part)
    paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    samples = metadata.row_group(0).column(paths.index("samples_sync_s.list.element"))
    content = bytearray(part.read_bytes())
    start = samples.dictionary_page_offset or samples.data_page_offset
    content[start : start + samples.total_compressed_size] = b"\xff" * samples.total_compressed_size
    part.write_bytes(content)
    assert chosen.arrow()["workload"].to_pylist() == ["bert_base"]
    assert chosen.duckdb().fetchall() == [("bert_base",)]
    assert open_store(directory).trials("batch = 1", ["workload"]).polars().height == 1


@pytest.mark.parametrize(
    ("condition", "columns", "expected"),
    [
        ("bach = 1", None, "did you mean batch"),
        (pc.field("bach") == 1, None, "`trials` has no column bach; did you mean batch"),
        (pc.field("batch") == "one", None, "does not fit the columns of `trials`"),
        ("batch =", None, "syntax error"),
        ("true) OR (true", None, "syntax error"),
        (None, ["latency"], "`trials` has no column latency; did you mean latency_"),
    ],
)
def test_a_wrong_condition_is_one_line_with_the_near_names(
    directory: Path, condition: Condition | None, columns: list[str] | None, expected: str
) -> None:
    make_store(directory, trial("a"))
    for read in (lambda one: one.arrow(), lambda one: one.duckdb(), len):
        with pytest.raises(ConfigurationError) as caught:
            read(open_store(directory).trials(condition, columns))
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_other_tables_are_selections_too(directory: Path) -> None:
    make_store(directory, trial("a"))
    results = open_store(directory)
    chosen = results.environments("environment = 'cpu'", ["versions"])
    assert chosen.arrow()["versions"].to_pylist() == ['{"python":"3.11.2"}']
    assert len(results.campaigns(pc.field("planned_trials") > 3)) == 0
    assert results.systems().duckdb().project("fingerprint ->> '$.kernel.release' IS NOT NULL").fetchall() == [(True,)]


def test_a_row_that_is_sealed_while_the_store_is_opened_is_seen_once(directory: Path, monkeypatch: Patch) -> None:
    store = make_store(directory, trial("a"))
    with store.writer() as writer:
        writer.append([trial("b")])
        snapshot = type(store.layout).snapshot

        def sealing_first(layout: object) -> object:
            writer.seal()
            return snapshot(layout)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(Layout, "snapshot", sealing_first)
            view = open_store(directory).view()
    assert len(view.unsealed) == 0
    assert len(view.snapshot.files["trials"]) == 2


def test_a_selection_and_a_connection_do_not_change_when_the_store_does(directory: Path) -> None:
    store = make_store(directory, trial("a"))
    with store.writer() as writer:
        writer.append([trial("b")])
    chosen, connection = open_store(directory).trials(), open_store(directory).connect()
    with store.writer() as writer:
        writer.append([trial("c")])
    assert compact(store.layout, full=True).parts_after == 1
    assert len(chosen) == 2
    assert connection.sql("SELECT count(*) FROM trials").fetchall() == [(2,)]
    assert len(open_store(directory).trials()) == 3


def test_the_samples_of_all_modes_are_rows(directory: Path) -> None:
    # Of a series that was extended, the last samples have no pressure.
    measured = trial(
        "a", samples_sync_s=[0.5, 0.25, 0.75], samples_sync_cpu_s=[0.1, 0.2, 0.3],
        samples_sync_pressure_s=[0.0, 0.125], samples_floor_s=[0.01], samples_floor_cpu_s=[],
    )  # fmt: skip
    make_store(directory, measured, trial("failed", status="oom", samples_sync_s=None))
    query = "SELECT mode, position, duration_s, cpu_s, pressure_s FROM samples WHERE trial_id = 'a' ORDER BY ALL"
    results = open_store(directory)
    assert results.sql(query).fetchall() == [
        ("floor", 1, 0.01, None, None),
        ("sync", 1, 0.5, 0.1, 0.0),
        ("sync", 2, 0.25, 0.2, 0.125),
        ("sync", 3, 0.75, 0.3, None),
    ]
    assert results.sql("SELECT count(*) FROM samples WHERE trial_id = 'failed'").fetchall() == [(0,)]


def test_latest_has_one_row_per_key_and_system_whatever_its_status(directory: Path) -> None:
    make_store(
        directory,
        trial("old", month=10),
        trial("new", month=12, status="crashed"),
        trial("elsewhere", month=9, system_id="s2"),
        trial("other-key", month=9, trial_key="k2"),
        trial("nowhere", month=9, system_id=None),
        trial("again", month=11, trial_key="tie"),
        trial("again", month=11, trial_key="tie", attempt=2),
    )
    found = open_store(directory).sql("SELECT trial_id, attempt, status FROM latest").fetchall()
    others = [(name, 1, "ok") for name in ("elsewhere", "other-key", "nowhere")]
    assert Counter(found) == Counter([("new", 1, "crashed"), ("again", 2, "ok"), *others])


def test_an_empty_store_and_a_missing_one(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such store"):
        open_store(directory)
    directory.mkdir()
    results = open_store(directory)
    assert results.trials("batch = 1").arrow().schema.equals(TRIALS)
    for name in ("samples", "latest", "systems"):
        assert results.sql(f"SELECT count(*) FROM {name}").fetchall() == [(0,)]


def test_a_path_with_wildcards_is_taken_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "lab[1] *it's"
    make_store(directory, trial("a"))
    assert open_store(directory).sql("SELECT trial_id FROM trials").fetchall() == [("a",)]


def test_a_missing_library_is_named(directory: Path, monkeypatch: Patch) -> None:
    make_store(directory, trial("a"))
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigurationError, match=f"{name} is not installed"):
            getattr(open_store(directory).trials(), name)()


def test_a_damaged_file_is_named(directory: Path) -> None:
    store = make_store(directory, trial("a"))
    shutil.copy(store.layout.parts()[0], directory / "whole")
    store.layout.parts()[0].write_bytes((directory / "whole").read_bytes()[:-9])
    for read in (lambda: open_store(directory).trials().arrow(), lambda: open_store(directory).sql("FROM trials")):
        with pytest.raises(StoreError, match="read"):
            read()


def test_a_file_system_that_duckdb_does_not_know_is_read_through_arrow(tmp_path: Path) -> None:
    store = make_store(tmp_path / "results", trial("a"), trial("b", batch=8))
    snapshot = store.layout.snapshot()
    inner = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    files = {table: tuple(path[len(str(tmp_path)) + 1 :] for path in paths) for table, paths in snapshot.files.items()}
    view = View(Snapshot("results", inner, files), TRIALS.empty_table())
    rows = connect(view).sql("SELECT trial_id, cpu_model FROM trials WHERE batch = 8").fetchall()
    assert rows == [("b", None)]
    assert connect(view).sql("SELECT count(*) FROM latest").fetchall() == [(1,)]
