"""The execution tax: against the best verified backend of the same work in the same rounds, and what floors explain."""

from collections.abc import Sequence

import pytest

from orchestrator.analysis.explanation import ExecutionTax, execution_of, execution_taxes
from tests.results import known

OURS, THEIRS = (0.010, 0.011, 0.012), (0.004, 0.005, 0.006)


def rows(
    backend: str, latencies: Sequence[float], floor_s: float | None = None, /, **more: object
) -> list[dict[str, object]]:
    values = {
        "status": "ok", "host": "lab1", "campaign_id": "c", "backend": backend, "backend_options": "{}",
        "environment": "cpu", "environment_id": "e1", "system_id": "s1", "isolation": "process", "method_version": 2,
        "protocol": "{}", "workload": "bert-base", "workload_options": "{}", "sequence_length": 128, "image_size": None,
        "batch": 1, "dtype": "float32", "device": "cpu", "threads": 2, "seed": 0,
        "dispatch_floor_s": floor_s, "dispatch_floor_valid": None if floor_s is None else True,
    }  # fmt: skip
    return [
        {**values, "round": number, "latency_sync_median_s": latency_s, **more}
        for number, latency_s in enumerate(latencies)
    ]


def of_first(*groups: list[dict[str, object]]) -> ExecutionTax | None:
    every = [row for group in groups for row in group]
    return execution_taxes(every).get(execution_of(every[0]))


def tax(*groups: list[dict[str, object]]) -> ExecutionTax:
    return known(of_first(*groups))


def test_it_is_what_the_best_backend_does_without_which_has_none_itself() -> None:
    found = tax(rows("eager", OURS, 0.003), rows("onnxruntime", THEIRS, 0.001), rows("openvino", OURS, 0.001))
    assert found.best == "onnxruntime"
    assert (found.seconds.value, found.seconds.low, found.seconds.high) == (pytest.approx(0.006),) * 3
    assert found.seconds.processes == 3
    assert found.share == pytest.approx(0.006 / 0.011)
    assert found.by_floors_s == pytest.approx(0.002)
    assert found.unexplained_s == pytest.approx(0.004)
    best = tax(rows("onnxruntime", THEIRS), rows("eager", OURS))
    assert (best.best, best.seconds.value, best.share) == ("onnxruntime", 0.0, 0.0)


def test_only_shared_rounds_count_and_without_both_floors_nothing_is_explained() -> None:
    found = tax(rows("eager", OURS, 0.003), rows("onnxruntime", THEIRS[:1]))
    assert (found.seconds.value, found.seconds.low, found.seconds.processes) == (pytest.approx(0.006), None, 1)
    assert (found.by_floors_s, found.unexplained_s) == (None, None)


@pytest.mark.parametrize(
    "other",
    [
        {"status": "wrong_output"},
        {"campaign_id": "d"},
        {"host": "lab2"},
        {"batch": 2},
        {"threads": 1},
        {"dtype": "bfloat16"},
        {"isolation": "docker"},
        {"backend": "dynamic_int8"},
    ],
)
def test_other_work_other_rounds_wrong_answers_and_fewer_bits_are_no_yardstick(other: dict[str, object]) -> None:
    assert of_first(rows("eager", OURS), rows("onnxruntime", THEIRS, **other)) is None


@pytest.mark.parametrize(
    ("target", "other", "best"),
    [
        ("dynamic_int8", rows("eager", THEIRS), "eager"),
        ("eager", rows("eager", THEIRS, environment="cpu-2022", environment_id="e2"), "eager in cpu-2022"),
        ("eager", rows("eager", THEIRS, backend_options='{"attention":"eager"}'), "eager attention=eager"),
    ],
    ids=["more bits", "another environment", "other options"],
)
def test_the_best_is_told_by_what_makes_it_another(target: str, other: list[dict[str, object]], best: str) -> None:
    assert tax(rows(target, OURS), other).best == best
