"""The journal under damage: what is read is what was written, or it is reported."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import TRIALS, Store
from orchestrator.store.storage.generations import prepare
from orchestrator.store.storage.journal import Segment, lock_leftover, read_segment
from orchestrator.store.storage.layout import Layout
from tests.storing import row

BATCHES = 12


def batch(number: int) -> pa.RecordBatch:
    timed = row(f"t{number:03d}", samples_sync_s=[0.001 * number + i for i in range(20)])
    return pa.RecordBatch.from_pylist([timed], TRIALS)


WRITTEN = {f"t{number:03d}": batch(number).to_pylist()[0] for number in range(BATCHES)}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "results")
    prepare(layout)
    return layout


def written(layout: Layout, count: int) -> tuple[Path, list[int]]:
    """A segment of so many batches, and where each of them ends, the first at nothing."""
    segment = Segment(layout)
    ends = [0]
    for number in range(count):
        segment.append(batch(number))
        ends.append(segment.path.stat().st_size)
    segment.close()
    return segment.path, ends


def read(path: Path) -> tuple[list[dict[str, object]], str | None]:
    content = read_segment(path)
    return content.table.to_pylist(), content.damage


def test_a_torn_tail_costs_only_the_torn_batch(layout: Layout) -> None:
    path, ends = written(layout, BATCHES)
    whole = path.read_bytes()
    chance = random.Random(1)
    for cut in [*ends, *(chance.randrange(len(whole)) for _ in range(60))]:
        path.write_bytes(whole[:cut])
        rows, damage = read(path)
        assert rows == list(WRITTEN.values())[: max(sum(end <= cut for end in ends) - 1, 0)]
        assert (damage is None) == (cut in ends)


def test_no_flipped_bit_passes_for_data(layout: Layout) -> None:
    segment, _ = written(layout, BATCHES)
    whole = segment.read_bytes()
    chance = random.Random(2)
    for _ in range(400):
        altered = bytearray(whole)
        altered[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        segment.write_bytes(altered)
        rows, damage = read(segment)
        assert all(row == WRITTEN[row["trial_id"]] for row in rows)
        assert damage is not None or len(rows) == BATCHES


def test_batches_behind_an_altered_one_are_kept(layout: Layout) -> None:
    segment, _ = written(layout, BATCHES)
    altered = bytearray(segment.read_bytes())
    altered[altered.index(b"t003")] ^= 1
    segment.write_bytes(altered)
    rows, damage = read(segment)
    assert [row["trial_id"] for row in rows] == [name for name in WRITTEN if name != "t003"]
    assert damage == "batch 4 is altered"


def test_many_small_batches_are_read_in_order(layout: Layout) -> None:
    content = read_segment(written(layout, 150)[0])
    assert content.table["trial_id"].to_pylist() == [f"t{number:03d}" for number in range(150)]
    # A batch costs memory for every column, however few rows it has.
    assert content.table["trial_id"].num_chunks < 30


def test_a_segment_is_locked_as_long_as_its_writer_lives(layout: Layout) -> None:
    open_segment = Segment(layout)
    assert lock_leftover(open_segment.path) is None
    open_segment.close()
    assert lock_leftover(open_segment.path) is not None


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["os.write", "os.fdatasync"])
def test_a_failed_write_leaves_no_torn_batch_behind(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, failure: BaseException, call: str
) -> None:
    open_segment = Segment(layout)
    open_segment.append(batch(0))

    def torn(descriptor: int, data: memoryview | bytes = b"") -> int:
        if call == "os.write" and len(data) > 100:
            return real_write(descriptor, data[: len(data) - 100])
        raise failure

    real_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(call, torn)
        with pytest.raises((StoreError, KeyboardInterrupt)):
            open_segment.append(batch(1))
    rows, damage = read(open_segment.path)
    assert [row["trial_id"] for row in rows] == ["t000"]
    assert damage is None
    assert open_segment.is_broken
    open_segment.close()


def other_columns(path: Path) -> None:
    fewer = pa.schema([field for field in TRIALS if field.name != "gpu_name"])
    with path.open("wb") as file, pa.ipc.new_stream(file, fewer) as stream:
        stream.write_batch(batch(1).select(fewer.names))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("make", "damage"),
    [(other_columns, "the columns are not those of the store"), (os.mkfifo, "x.arrows is no regular file")],
)
def test_what_is_no_journal_of_the_store_is_put_aside_whole(
    layout: Layout, make: Callable[[Path], None], damage: str
) -> None:
    path = layout.journal / "x.arrows"
    make(path)
    content = read_segment(path)
    assert len(content.table) == 0
    assert str(content.damage).endswith(damage)
    kind = path.stat().st_mode, path.stat().st_size
    with Store(layout).writer() as writer:
        [report] = writer.reports
    aside = layout.quarantine / path.name
    assert report.quarantined == aside
    assert (aside.stat().st_mode, aside.stat().st_size) == kind
    if make is other_columns:
        assert pa.ipc.open_stream(aside.read_bytes()).read_all().num_rows == 1
