"""What checks make of the record of a trial."""

import time
from dataclasses import replace

import pytest

from runners.check import accuracy
from runners.check.cells import problems_of
from runners.check.running import Context, Findings, Size
from runners.check.subjects import BERT, PROTOCOL, spec_of
from runners.check.transition import point_of
from runners.contract import GuardMoment, GuardOutcome, GuardPolicy, GuardResult, Series, Status, TrialRecord
from runners.contract.record import FactValue


def record(**facts: FactValue) -> TrialRecord:
    """Of a trial without a fault: 2 ms alone, 1.5 ms of them the device's."""
    series = tuple(
        Series(mode=mode, calls_per_sample=1, durations_ns=(microseconds * 1000,), cpu_ns=(1,))
        for mode, microseconds in (("sync", 2000), ("pipelined", 1800), ("dispatch", 900), ("graph", 1600))
    )
    good: dict[str, FactValue] = {
        "busy_s": 0.0015,
        "profiler_valid": True,
        "memory_device_process_bytes": 1 << 20,
        "clock_sync_sm_mhz": 1980,
        "energy_power_mean_w": 400.0,
    }
    guard = GuardResult(
        "load", GuardMoment.BEFORE, GuardPolicy.FLAG, GuardOutcome.PASSED, 0, 100, "permille", None, 0.0
    )
    return TrialRecord("id", 1, Status.OK, None, 0, 1, series=series, facts={**good, **facts}, guards=(guard,))


@pytest.mark.parametrize(
    ("facts", "problems"),
    [
        ({}, []),
        ({"energy_power_mean_w": None, "energy_problem": "not supported"}, ["no energy: not supported"]),
        ({"energy_power_mean_w": None, "examination_problem": "crashed"}, ["no energy: crashed"]),
        ({"clock_sync_sm_mhz": None}, ["no SM clock beside the timed calls"]),
        ({"busy_s": 0.0023}, ["the device is busy for longer than a call takes"]),
    ],
)
def test_what_is_not_as_on_every_gpu_is_a_problem(facts: dict[str, FactValue], problems: list[str]) -> None:
    spec = spec_of(BERT, protocol=replace(PROTOCOL, energy_window_ms=2000))
    assert problems_of(spec, record(**facts)) == problems


def test_boundedness_is_unknown_where_dispatch_or_busy_time_is_not_right() -> None:
    assert point_of(record())["boundedness"] == 0.6
    waits = point_of(record(dispatch_problem="a call waits for the device 1 times"))
    assert (waits["dispatch"], waits["busy"], waits["boundedness"]) == (None, 1500, None)
    assert point_of(record(profiler_valid=False))["boundedness"] is None


def test_what_there_was_no_time_for_is_a_problem() -> None:
    found = Findings()
    accuracy._one(found, Context("out", Size(), time.monotonic()), "bert", spec_of(BERT), tf32=False)
    assert found.problems == ["bert: no time was left"]
