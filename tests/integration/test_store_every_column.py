"""A row with a value in each column keeps all of them, from the journal to compacted Parquet."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from orchestrator.store import TRIALS, Store
from orchestrator.store.storage.compaction import compact

STARTED = datetime(2025, 11, 30, 23, 59, 50, 123456, tzinfo=UTC)


def trial(number: int) -> dict[str, object]:
    """A row in which each column has a value of its own; the later ones start in December."""
    row = {field.name: value(field.type, 100 * number + place) for place, field in enumerate(TRIALS)}
    started = STARTED + timedelta(seconds=4 * number)
    return {**row, "trial_id": f"t{number}", "campaign_id": "c", "status": "ok", "started_at": started}


def value(kind: pa.DataType, seed: int) -> object:
    """A value of a type, another one for each seed."""
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, 10 * seed + place) for place, field in enumerate(kind)}
    if pa.types.is_list(kind):
        return [value(kind.value_type, seed + place) for place in range(3)]
    if pa.types.is_timestamp(kind):
        return STARTED + timedelta(microseconds=seed)
    if pa.types.is_boolean(kind):
        return seed % 2 == 0
    if pa.types.is_integer(kind):
        return seed
    return json.dumps({"seed": seed}) if pa.types.is_string(kind) else seed * 1_000_003 / 1e9


def by_trial(table: pa.Table) -> dict[object, dict[str, object]]:
    return {row["trial_id"]: row for row in table.to_pylist()}


def test_every_value_is_kept_in_journal_parts_and_compacted_parts(tmp_path: Path) -> None:
    expected = {f"t{number}": trial(number) for number in range(5)}

    def batch_of(*names: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([expected[name] for name in names], TRIALS)

    store = Store.open(tmp_path / "results")
    with store.writer() as writer:
        writer.append_batches([batch_of("t0", "t3")])
        writer.append_batches([batch_of("t1", "t4")])
        assert by_trial(store.trials()) == {name: expected[name] for name in ("t0", "t1", "t3", "t4")}
        writer.seal()
        writer.append_batches([batch_of("t2")])
    # of November, which has two parts
    assert compact(store.layout, full=True).rows == 3
    assert by_trial(store.trials()) == expected
    plain = ds.dataset(os.path.realpath(store.layout.root / "current" / "trials"))
    assert by_trial(plain.to_table()) == expected
    for fragment in plain.get_fragments():
        assert fragment.physical_schema.equals(TRIALS, check_metadata=True)
    months = sorted(path.name for path in (store.layout.current / "trials").iterdir())
    assert months == ["month=2025-11", "month=2025-12"]
