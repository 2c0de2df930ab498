"""Packed rows: every value comes out as it went in, however the rows were joined, cut or chosen in between."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.store import TRIALS
from orchestrator.store.storage.journal import PACKED, pack, unpack
from tests.storing import row

GUARD = {
    "guard": "load", "moment": "before", "policy": "wait", "outcome": "waited", "observed": 12.5, "limit": 100.0,
    "unit": "permille", "detail": "cores 0-1", "waited_s": 3.0,
}  # fmt: skip
_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=5),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    TRIALS.field("samples_sync_s").type: st.lists(st.floats(allow_nan=False) | st.none(), max_size=3),
    TRIALS.field("turn_samples").type: st.lists(st.integers(1, 2**31 - 1), max_size=3),
    pa.timestamp("us", "UTC"): st.just(datetime(2026, 11, 20, tzinfo=UTC)),
    TRIALS.field("guards").type: st.lists(st.just(GUARD) | st.just({**GUARD, "observed": None}), max_size=2),
    TRIALS.field("guard_flags").type: st.lists(st.text(max_size=5), max_size=2),
}


def random_rows(data: st.DataObject) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [row(f"t{number}") for number in range(data.draw(st.integers(0, 12)))]
    for one in rows:
        for name in data.draw(st.lists(st.sampled_from(TRIALS.names), max_size=25)):
            field = TRIALS.field(name)
            one[name] = data.draw(_VALUES[field.type] | st.none() if field.nullable else _VALUES[field.type])
    return pa.RecordBatch.from_pylist(rows, TRIALS)


@settings(max_examples=50)
@given(st.data())
def test_rows_come_out_as_they_went_in(data: st.DataObject) -> None:
    rows = random_rows(data)
    packed = pack(rows)
    packed.validate(full=True)
    assert packed.schema.equals(PACKED)
    assert unpack(packed).equals(rows)
    first = data.draw(st.integers(0, len(rows)))
    assert unpack(packed.slice(first)).equals(rows.slice(first))
    chosen = pa.array([number % 2 == 0 for number in range(len(rows))], pa.bool_())
    assert unpack(packed.filter(chosen)).equals(rows.filter(chosen))
    assert unpack(pa.concat_batches([packed.slice(first), packed])).equals(pa.concat_batches([rows.slice(first), rows]))
