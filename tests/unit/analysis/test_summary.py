"""What is compared with what, and what is never pooled."""

from typing import Any

import pyarrow as pa
import pytest

from orchestrator.analysis import Pairing
from orchestrator.analysis.summary import Flagged, Summary, SummaryCell, summarise
from orchestrator.store import TRIALS
from runners.contract import Status
from tests.results import known
from tests.storing import row as stored


def row(backend: str, number: int, latency_s: float | None, **more: object) -> dict[str, object]:
    samples = None if latency_s is None else [latency_s * 0.9, latency_s, latency_s * 3]
    values: dict[str, Any] = {
        "trial_key": backend, "round": number, "sequence_length": 128, "backend": backend, "environment_id": "e1",
        "host": "lab1", "isolation": "process", "system_id": "s1", "steady": True, "samples_sync_s": samples,
        "latency_sync_median_s": latency_s, "latency_sync_samples": samples and 3,
        "latency_sync_p10_s": latency_s and 0.92 * latency_s, **more,
    }  # fmt: skip
    return stored(f"{backend}-{number}-{sorted(more.items())}", **values)


def summary(*rows: dict[str, object]) -> Summary:
    return summarise(pa.Table.from_pylist(list(rows), schema=TRIALS))


def cells(*rows: dict[str, object]) -> tuple[SummaryCell, ...]:
    """Those of the only setting."""
    [setting] = summary(*rows).settings
    return setting.cells


def seen(cell: SummaryCell) -> tuple[float, int, int]:
    """The latency, its processes and its samples."""
    return known(cell.latency).value, known(cell.latency).processes, known(cell.latency).samples


def test_a_cell_has_the_median_of_its_processes_and_all_but_eager_a_ratio() -> None:
    eager, torchscript = cells(
        *(row("torchscript", number, value) for number, value in enumerate([0.5, 1.0, 2.0])),
        *(row("eager", number, value) for number, value in enumerate([1.0, 2.0, 4.0, 8.0])),
    )
    assert (eager.backend, eager.ratio, seen(eager)) == ("eager", None, (3.0, 4, 12))
    ratio = known(torchscript.ratio).estimate
    assert (ratio.value, ratio.processes) == pytest.approx((2.0, 3))


def with_floor(number: int, small: float, large: float, valid: bool = True, **more: object) -> dict[str, object]:
    floor = {"dispatch_floor_small_s": small, "dispatch_floor_large_s": large, "dispatch_floor_valid": valid}
    return row("eager", number, 1.0, dispatch_floor_structure="s", **floor, **more)


def test_a_structure_has_one_floor_in_a_campaign() -> None:
    taken = [with_floor(1, 0.11, 0.17), with_floor(2, 0.13, 0.14), with_floor(2, 0.30, 0.40, batch=2)]
    unproven = with_floor(9, 0.01, 0.01, False)
    # What is not proven does not count beside what is
    for cell in (*cells(*taken), cells(*taken, unproven)[0]):
        assert (known(cell.floor).value, known(cell.floor).low) == (pytest.approx(0.1), None)
        assert cell.floor_proven
    assert not cells(unproven)[0].floor_proven
    assert cells(row("eager", 1, 1.0))[0].floor is None


OTHER_SETTINGS = {
    "host": "lab2", "environment": "other", "environment_id": "e2", "image_digest": "sha256:1", "isolation": "docker",
    "system_id": "s2", "method_version": 2,
}  # fmt: skip
OTHER_SHAPES = {
    "batch": 2, "workload": "distilbert", "workload_options": '{"mask":"ptb"}', "sequence_length": 256,
    "dtype": "bfloat16", "threads": 1, "seed": 1, "protocol": '{"max_samples":1}',
}  # fmt: skip


@pytest.mark.parametrize(("column", "value"), OTHER_SETTINGS.items())
def test_settings_are_never_pooled_nor_compared(column: str, value: object) -> None:
    found = summary(row("eager", 1, 1.0), row("eager", 2, 3.0, **{column: value}), row("onnxruntime", 2, 1.0))
    assert len(found.settings) == 2
    every = [cell for setting in found.settings for cell in setting.cells]
    assert sorted(seen(cell)[0] for cell in every if cell.backend == "eager") == [1.0, 3.0]
    # The two rounds of the one setting do not pair, and the other setting is another thing.
    ratios = [cell.ratio for cell in every if cell.ratio is not None]
    assert [(one.estimate.value, one.estimate.low, one.pairing) for one in ratios] == [(1.0, None, Pairing.UNPAIRED)]


@pytest.mark.parametrize(("column", "value"), OTHER_SHAPES.items())
def test_shapes_are_lines_of_their_own(column: str, value: object) -> None:
    first, second = cells(row("eager", 1, 1.0), row("onnxruntime", 1, 0.5, **{column: value}))
    assert (first.shape, first.batch) != (second.shape, second.batch)
    assert (first.ratio, second.ratio) == (None, None)


def test_options_and_keys_are_cells_of_their_own() -> None:
    found = cells(
        row("onnxruntime", 1, 1.0),
        row("onnxruntime", 1, 2.0, backend_options='{"threads":1}'),
        row("onnxruntime", 2, 3.0, trial_key="another"),
    )
    names = ["onnxruntime", "onnxruntime", "onnxruntime threads=1"]
    assert sorted((cell.backend, seen(cell)[0]) for cell in found) == list(zip(names, (1.0, 3.0, 2.0), strict=True))


def test_a_wrong_output_takes_part_in_nothing() -> None:
    _, cell = cells(
        *(row("eager", number, 1.0) for number in (1, 2)),
        row("onnxruntime", 1, 0.1, status="wrong_output", reason="baked input"),
        row("onnxruntime", 2, 0.5),
    )
    assert (seen(cell)[:2], cell.failures) == ((0.5, 1), {Status.WRONG_OUTPUT: 1})
    assert known(cell.ratio).estimate.value == pytest.approx(2.0)


def test_the_second_half_of_an_aa_pair_is_for_the_noise_floor_alone() -> None:
    found = summary(
        *(row("eager", number, 1.0 + number) for number in range(3)),
        *(row("eager", number, (1.0 + number) / 1.1, replicate=1) for number in range(3)),
    )
    [one] = found.settings
    assert seen(one.cells[0])[:2] == (2.0, 3)
    [twin] = one.twins
    assert (twin.row["backend"], twin.row["batch"]) == ("eager", 1)
    assert twin.ratio.estimate.value == pytest.approx(1.1)


def test_only_the_last_attempt_counts() -> None:
    failed = row("eager", 1, None, status="infrastructure_error", trial_id="t")
    found = summary(failed, row("eager", 1, 1.0, trial_id="t", attempt=2))
    assert (found.totals, found.retried, found.failures) == ({Status.OK: 1}, 1, ())


def test_failures_are_grouped_by_reason() -> None:
    found = summary(
        row("eager", 1, 1.0),
        *(row("tensorrt", 1, None, status="skipped", reason="no GPU", batch=batch, host=None) for batch in (8, 2)),
        row("tensorrt", 2, None, status="skipped", reason="no GPU", batch=2, host=None),
        row("onnxruntime", 1, None, status="oom", reason="killed at 4 GiB"),
    )
    skipped, oom = found.failures
    assert (skipped.status, skipped.reason, skipped.count) == (Status.SKIPPED, "no GPU", 3)
    assert skipped.trials == ("bert_base tensorrt batch 2, 8",)
    assert (oom.status, oom.host, oom.count) == (Status.OOM, "lab1", 1)
    assert found.totals == {Status.OK: 1, Status.SKIPPED: 3, Status.OOM: 1}
    assert [one.row["host"] for one in found.settings] == ["lab1"]


def test_several_campaigns_are_refused() -> None:
    with pytest.raises(ValueError, match="one campaign"):
        summary(row("eager", 1, 1.0), row("eager", 1, 1.0, campaign_id="d"))


def test_flagged_and_unsteady_trials_are_counted_and_stay_in_the_numbers() -> None:
    flags: tuple[list[str] | None, ...] = ([], ["load"], ["load", "throttling"], None)
    rows = [row("eager", number, 1.0, guard_flags=found, steady=number > 0) for number, found in enumerate(flags)]
    assert summary(*rows).flagged == Flagged(trials=2, watched=3, by_guard={"load": 2, "throttling": 1})
    [cell] = cells(*rows)
    assert (seen(cell)[1], cell.unsteady) == (4, 1)
