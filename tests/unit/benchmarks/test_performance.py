"""The benchmark of taxmeter itself runs."""

from pathlib import Path

from benchmarks.performance.keeping import ROWS, keep


def test_a_store_is_compacted_verified_and_merged_as_often_as_asked(tmp_path: Path) -> None:
    kept = keep(2, 2, tmp_path / "kept")
    assert (kept.campaigns, kept.rows) == (2, 2 * ROWS)
    assert min(kept.compact_s, kept.verify_s, kept.merge_s) > 0
