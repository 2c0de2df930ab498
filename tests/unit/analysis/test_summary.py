"""What is compared with what, and what is never pooled."""

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from orchestrator.analysis import Flagged, Pairing, Summary, Verdict, summarise
from orchestrator.store import TRIALS
from runners.contract import Status
from runners.statistics.moderation import BETWEEN_CAMPAIGNS


def row(backend: str, number: int, latency_s: float | None, **more: object) -> dict[str, object]:
    """One trial of round `number` whose samples have the median `latency_s`."""
    samples = None if latency_s is None else [latency_s * 0.9, latency_s, latency_s * 3]
    values = {
        "trial_id": f"{backend}-{number}-{sorted(more.items())}", "attempt": 1, "trial_key": backend, "campaign_id": "c",
        "round": number, "order": 1, "replicate": 0, "status": "ok", "workload": "bert_base", "batch": 1,
        "started_at": datetime(2026, 11, 20, tzinfo=UTC), "sequence_length": 128, "backend": backend,
        "backend_options": "{}", "dtype": "float32", "device": "cpu", "threads": 2, "seed": 0, "protocol": "{}",
        "method_version": 1, "contract_version": 1, "environment": "cpu", "environment_id": "e1", "host": "lab1",
        "isolation": "process", "system_id": "s1", "steady": True, "samples_sync_s": samples,
        "latency_sync_median_s": latency_s, "latency_sync_samples": samples and 3,
        "latency_sync_p10_s": latency_s and 0.92 * latency_s,
    }  # fmt: skip
    return {**values, **more}


def summary(*rows: dict[str, object]) -> Summary:
    return summarise(pa.Table.from_pylist(list(rows), schema=TRIALS))


def test_medians_and_ratios_to_eager_are_paired_by_round() -> None:
    found = summary(
        *(row("torchscript", number, value) for number, value in enumerate([0.5, 1.0, 2.0])),
        *(row("eager", number, value) for number, value in enumerate([1.0, 2.0, 4.0, 8.0])),
    )
    [setting] = found.settings
    eager, torchscript = setting.cells
    assert (eager.backend, eager.ratio) == ("eager", None)
    assert eager.latency is not None
    assert (eager.latency.value, eager.latency.processes, eager.latency.samples) == (3.0, 4, 12)
    assert torchscript.ratio is not None
    assert torchscript.ratio.estimate.value == pytest.approx(2.0)
    # No scatter: what lies between campaigns remains
    assert torchscript.ratio.estimate.low == pytest.approx(2.0 * math.exp(-1.96 * BETWEEN_CAMPAIGNS), rel=1e-5)
    assert torchscript.ratio.estimate.processes == 3
    assert torchscript.ratio.verdict is Verdict.FASTER


def with_floor(number: int, small: float, large: float, valid: bool = True, **more: object) -> dict[str, object]:
    floor = {"dispatch_floor_small_s": small, "dispatch_floor_large_s": large, "dispatch_floor_valid": valid}
    return row("eager", number, 1.0, dispatch_floor_structure="s", **floor, **more)


def test_a_structure_has_one_floor_in_a_campaign() -> None:
    taken = [with_floor(1, 0.11, 0.17), with_floor(2, 0.13, 0.14), with_floor(2, 0.30, 0.40, batch=2)]
    found = summary(*taken)
    cells = found.settings[0].cells
    assert [cell.floor and (cell.floor.value, cell.floor.low) for cell in cells] == [(pytest.approx(0.1), None)] * 2
    assert all(cell.floor_proven for cell in cells)
    doubtful = summary(*taken, with_floor(9, 0.01, 0.01, valid=False))
    (cell, _) = doubtful.settings[0].cells
    assert cell.floor_proven, "what is not proven does not count beside what is"
    assert cell.floor is not None
    assert cell.floor.value == pytest.approx(0.1)
    [cell] = summary(with_floor(9, 0.01, 0.01, valid=False)).settings[0].cells
    assert not cell.floor_proven
    assert summary(row("eager", 1, 1.0)).settings[0].cells[0].floor is None


def test_options_of_a_workload_are_shapes_of_their_own() -> None:
    found = summary(
        row("eager", 1, 1.0, workload="bert-base", workload_options='{"mask":"none","size":"full"}'),
        row("eager", 1, 3.0, workload="bert-base", workload_options='{"mask":"ptb","size":"full"}', trial_key="k2"),
    )
    assert [cell.shape.options for cell in found.settings[0].cells] == ["", "mask=ptb"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("host", "lab2"),
        ("environment", "other"),
        ("environment_id", "e2"),
        ("image_digest", "sha256:1"),
        ("isolation", "docker"),
        ("system_id", "s2"),
        ("method_version", 2),
    ],
)
def test_settings_are_never_pooled_nor_compared(column: str, value: object) -> None:
    found = summary(row("eager", 1, 1.0), row("eager", 2, 3.0, **{column: value}), row("onnxruntime", 2, 1.0))
    assert len(found.settings) == 2
    cells = [cell for one in found.settings for cell in one.cells]
    assert sorted(cell.latency.value for cell in cells if cell.latency and cell.backend == "eager") == [1.0, 3.0]
    # The two rounds of the one setting do not pair, and the other setting is another thing.
    ratios = [cell.ratio for cell in cells if cell.ratio is not None]
    assert [(one.estimate.value, one.estimate.low, one.pairing) for one in ratios] == [(1.0, None, Pairing.UNPAIRED)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("batch", 2),
        ("workload", "distilbert"),
        ("sequence_length", 256),
        ("dtype", "bfloat16"),
        ("threads", 1),
        ("seed", 1),
        ("protocol", '{"max_samples":1}'),
    ],
)
def test_shapes_are_lines_of_their_own(column: str, value: object) -> None:
    found = summary(row("eager", 1, 1.0), row("onnxruntime", 1, 0.5, **{column: value}))
    first, second = found.settings[0].cells
    assert (first.shape, first.batch) != (second.shape, second.batch)
    assert (first.ratio, second.ratio) == (None, None)


def test_options_and_keys_are_cells_of_their_own() -> None:
    options = '{"threads":1}'
    found = summary(
        row("onnxruntime", 1, 1.0),
        row("onnxruntime", 1, 2.0, backend_options=options),
        row("onnxruntime", 2, 3.0, trial_key="another"),
    )
    cells = found.settings[0].cells
    assert sorted((cell.backend, cell.latency.value) for cell in cells if cell.latency) == [
        ("onnxruntime", 1.0),
        ("onnxruntime", 3.0),
        ("onnxruntime threads=1", 2.0),
    ]


def test_a_wrong_output_takes_part_in_nothing() -> None:
    found = summary(
        row("eager", 1, 1.0),
        row("eager", 2, 1.0),
        row("onnxruntime", 1, 0.1, status="wrong_output", reason="baked input"),
        row("onnxruntime", 2, 0.5),
    )
    cell = found.settings[0].cells[1]
    assert cell.latency is not None
    assert (cell.latency.value, cell.latency.processes) == (0.5, 1)
    assert cell.ratio is not None
    assert cell.ratio.estimate.value == pytest.approx(2.0)
    assert cell.failures == {Status.WRONG_OUTPUT: 1}


def test_the_second_half_of_an_aa_pair_is_for_the_noise_floor_alone() -> None:
    found = summary(
        *(row("eager", number, 1.0 + number) for number in range(3)),
        *(row("eager", number, (1.0 + number) / 1.1, replicate=1) for number in range(3)),
    )
    (one,) = found.settings
    assert one.cells[0].latency is not None
    assert (one.cells[0].latency.value, one.cells[0].latency.processes) == (2.0, 3)
    (twin,) = one.twins
    assert (twin.row["backend"], twin.row["batch"]) == ("eager", 1)
    assert twin.ratio.estimate.value == pytest.approx(1.1)


def test_only_the_last_attempt_counts() -> None:
    failed = row("eager", 1, None, status="infrastructure_error", trial_id="t")
    found = summary(failed, row("eager", 1, 1.0, trial_id="t", attempt=2))
    assert found.totals == {Status.OK: 1}
    assert found.retried == 1
    assert found.failures == ()


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


def test_an_unsteady_process_is_counted() -> None:
    found = summary(row("eager", 1, 1.0, steady=False), row("eager", 2, 1.0))
    assert found.settings[0].cells[0].unsteady == 1


def test_nothing_at_all_is_a_summary_too() -> None:
    found = summary()
    assert (found.settings, found.failures, found.totals) == ((), (), {})


def test_several_campaigns_are_refused() -> None:
    with pytest.raises(ValueError, match="one campaign"):
        summary(row("eager", 1, 1.0), row("eager", 1, 1.0, campaign_id="d"))


def test_flagged_trials_are_counted_by_guard_and_stay_in_the_numbers() -> None:
    rows = [
        row("eager", 1, 1.0, guard_flags=[]),
        row("eager", 2, 1.0, guard_flags=["load"]),
        row("eager", 3, 1.0, guard_flags=["load", "throttling"]),
        row("eager", 4, 1.0),
    ]
    found = summary(*rows)
    assert found.flagged == Flagged(trials=2, watched=3, by_guard={"load": 2, "throttling": 1})
    [cell] = found.settings[0].cells
    assert cell.latency is not None
    assert cell.latency.processes == 4
