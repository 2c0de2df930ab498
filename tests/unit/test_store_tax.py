"""The tax of one trial, from medians and facts."""

import math

import pytest

from orchestrator.store.tax import Regime, Times, cost_columns, floor_columns, floor_s, regime, tax_columns


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        # A floor of 1.1 times the rest of the latency, and of 0.9 times
        (1.1 / 2.1 + 1e-9, Regime.FRAMEWORK_BOUND),
        (1.1 / 2.1 - 1e-9, Regime.MIXED),
        (0.9 / 1.9 + 1e-9, Regime.MIXED),
        (0.9 / 1.9 - 1e-9, Regime.COMPUTE_BOUND),
    ],
)
def test_on_a_cpu_the_regimes_are_shares_of_the_latency(share: float, expected: Regime) -> None:
    load = 1 / (2 * share)
    assert regime("cpu", load, load) is expected
    assert floor_columns(1.0, share)["regime"] == expected.value


@pytest.mark.parametrize(
    ("boundedness", "expected"),
    [(1.11, Regime.FRAMEWORK_BOUND), (1.09, Regime.MIXED), (0.91, Regime.MIXED), (0.89, Regime.COMPUTE_BOUND)],
)
def test_on_a_gpu_the_regimes_are_of_dispatch_over_busy(boundedness: float, expected: Regime) -> None:
    assert regime("cuda", 1 / boundedness, 1 / boundedness) is expected


def test_an_interval_that_reaches_into_the_band_is_mixed() -> None:
    assert regime("cuda", 0.5, 0.95) is Regime.MIXED
    assert regime("cuda", 0.95, 4.0) is Regime.MIXED
    assert regime("cuda", 0.5, 4.0) is Regime.MIXED


def cpu(sync_s: float | None = 0.004, small_s: float | None = 0.0011, large_s: float | None = 0.0014) -> Times:
    return Times(sync_s=sync_s, small_twin_s=small_s, large_twin_s=large_s)


def test_what_grows_with_the_twin_is_no_floor() -> None:
    columns = tax_columns("cpu", cpu(), {"floor_valid": True, "floor_structure": "s"})
    assert columns["dispatch_floor_s"] == pytest.approx(0.001)
    assert (columns["dispatch_floor_small_s"], columns["dispatch_floor_large_s"]) == (0.0011, 0.0014)
    assert columns["dispatch_floor_structure"] == "s"
    assert columns["exposed_overhead_s"] == pytest.approx(0.001)
    assert columns["framework_fraction"] == pytest.approx(0.25)
    assert columns["latency_floor_log_ratio"] == pytest.approx(math.log(4))
    assert columns["regime"] == "compute-bound"
    assert "boundedness" not in columns


@pytest.mark.parametrize(("large_s", "expected"), [(None, 0.0011), (0.0010, 0.0011), (0.0011, 0.0011)])
def test_a_larger_twin_that_is_no_slower_takes_nothing_off(large_s: float | None, expected: float) -> None:
    assert floor_s(0.0011, large_s) == pytest.approx(expected)


def test_twins_that_are_all_arithmetic_have_no_floor() -> None:
    columns = tax_columns("cpu", cpu(large_s=0.0044), {"floor_valid": True})
    assert (columns["dispatch_floor_s"], columns["dispatch_floor_valid"]) == (None, False)
    assert "all arithmetic" in str(columns["dispatch_floor_problem"])
    assert "regime" not in columns


def test_a_trial_that_is_nothing_but_framework_keeps_its_number() -> None:
    columns = tax_columns("cpu", cpu(sync_s=0.0009), {"floor_valid": True})
    assert (columns["framework_fraction"], columns["regime"]) == (1.0, "framework-bound")
    assert columns["latency_floor_log_ratio"] == pytest.approx(math.log(0.9))


@pytest.mark.parametrize("valid", [None, False])
def test_a_floor_of_another_structure_says_nothing_about_the_trial(valid: bool | None) -> None:
    facts = {"floor_valid": valid, "floor_problem": "the twin dispatches 3 operations, the trial 4"}
    columns = tax_columns("cpu", cpu(), facts)
    assert columns["dispatch_floor_s"] == pytest.approx(0.001)
    assert columns["dispatch_floor_problem"] == facts["floor_problem"]
    assert "regime" not in columns
    assert "exposed_overhead_s" not in columns


def test_the_tax_of_parallel_regions_is_what_threads_add_to_the_small_twin() -> None:
    times = Times(sync_s=0.004, small_twin_s=0.0011, large_twin_s=0.0014, threaded_twin_s=0.0016)
    assert tax_columns("cpu", times, {"floor_valid": True})["parallel_region_tax_s"] == pytest.approx(0.0005)
    for facts in ({"floor_valid": True, "floor_threads_problem": "taken under pressure"}, {"floor_valid": False}):
        assert "parallel_region_tax_s" not in tax_columns("cpu", times, facts)
    assert "parallel_region_tax_s" not in tax_columns("cpu", cpu(), {"floor_valid": True})


GPU = Times(sync_s=0.012, pipelined_s=0.010, dispatch_s=0.009, graph_s=0.004)


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
