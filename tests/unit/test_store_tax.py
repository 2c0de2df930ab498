"""The tax of one trial, from medians and facts."""

import pytest

from orchestrator.store.tax import Medians, cost_columns, regime, tax_columns


@pytest.mark.parametrize(
    ("boundedness", "expected"),
    [(None, None), (1.11, "framework-bound"), (1.1, "mixed"), (0.9, "mixed"), (0.89, "compute-bound")],
)
def test_the_dead_band_lies_between_the_regimes(boundedness: float | None, expected: str | None) -> None:
    assert regime(boundedness) == expected


def test_on_a_cpu_times_add_up() -> None:
    columns = tax_columns("cpu", Medians(sync_s=0.004, floor_s=0.001), {"floor_valid": True})
    assert columns["exposed_overhead_s"] == 0.001
    assert columns["framework_fraction"] == pytest.approx(0.25)
    assert columns["boundedness"] == pytest.approx(1 / 3)
    assert columns["regime"] == "compute-bound"


def test_a_trial_that_is_nothing_but_framework_is_framework_bound() -> None:
    columns = tax_columns("cpu", Medians(sync_s=0.001, floor_s=0.0011), {"floor_valid": True})
    assert (columns["framework_fraction"], columns["boundedness"], columns["regime"]) == (1.0, None, "framework-bound")


@pytest.mark.parametrize("valid", [None, False])
def test_a_floor_of_another_structure_says_nothing_about_the_trial(valid: bool | None) -> None:
    facts = {"floor_valid": valid, "floor_problem": "the twin dispatches 3 operations, the trial 4"}
    columns = tax_columns("cpu", Medians(sync_s=0.004, floor_s=0.001), facts)
    assert columns["dispatch_floor_s"] == 0.001
    assert columns["dispatch_floor_problem"] == facts["floor_problem"]
    assert "regime" not in columns
    assert "exposed_overhead_s" not in columns


GPU = Medians(sync_s=0.012, pipelined_s=0.010, dispatch_s=0.009, graph_s=0.004)


def test_on_a_gpu_the_slower_of_host_and_device_decides() -> None:
    columns = tax_columns("cuda", GPU, {"busy_s": 0.0035, "profiler_valid": True})
    assert columns["exposed_overhead_s"] == pytest.approx(0.0065)
    assert columns["exposed_overhead_graph_s"] == pytest.approx(0.006)
    assert columns["overhead_estimates_agree"] is True
    assert columns["framework_fraction"] == pytest.approx(0.65)
    assert columns["boundedness"] == pytest.approx(0.009 / 0.0035)
    assert columns["regime"] == "framework-bound"
    assert columns["tax_ratio"] == pytest.approx(2.5)


def test_estimates_that_differ_are_flagged() -> None:
    columns = tax_columns("cuda", GPU, {"busy_s": 0.0015, "profiler_valid": True})
    assert columns["overhead_estimates_agree"] is False


def test_a_profile_that_lost_kernels_is_not_used() -> None:
    columns = tax_columns("cuda", GPU, {"busy_s": 0.0035, "profiler_valid": False})
    assert columns["busy_s"] is None
    assert "regime" not in columns
    assert columns["exposed_overhead_graph_s"] == pytest.approx(0.006)


def test_cost_is_per_call() -> None:
    facts = {"flops_per_example": 22, "macs_per_example": 11}
    assert cost_columns(4, 2.0, facts) == {"flops": 88, "macs": 44, "achieved_flops_per_s": 44.0}
    assert cost_columns(4, 2.0, {}) == {"flops": None, "macs": None, "achieved_flops_per_s": None}
