"""The sampler of clocks: what it sums up, and the process that samples."""

import json
from dataclasses import replace
from typing import Any

import pytest

from runners.examination.clocks import ClockSampler, Sample, look, read_samples, summary
from runners.examination.gpu import NvmlDevice
from tests.conftest import PROJECT
from tests.scripted_nvml import NVMLError, nvml


def sample(**changes: Any) -> Sample:
    return replace(Sample(1980, 3201, 500_000, 60, None), **changes)


def test_means_and_shares() -> None:
    samples = [
        sample(reasons=0x0),
        sample(reasons=0x1),  # idle, as is expected of a framework-bound run
        sample(reasons=0x4, power_mw=700_000, temperature_c=71),
        sample(reasons=0x24, sm_clock_mhz=1480),
    ]
    assert summary(samples, None) == {
        "clock_sm_mean_mhz": 1855.0,
        "clock_memory_mean_mhz": 3201.0,
        "clock_power_mean_w": 550.0,
        "clock_temperature_max_c": 71,
        "clock_throttled_share": 0.25,
        "clock_power_capped_share": 0.5,
        "clock_samples": 4,
        "clock_problem": None,
    }


@pytest.mark.parametrize("mask", [0x8, 0x20, 0x40, 0x80])
def test_what_is_a_slowdown(mask: int) -> None:
    assert summary([sample(reasons=mask)], None)["clock_throttled_share"] == 1.0


def test_what_the_gpu_does_not_say_is_null() -> None:
    facts = summary([sample(reasons=None, power_mw=None), sample(reasons=None, power_mw=90_000)], None)
    assert (facts["clock_throttled_share"], facts["clock_power_mean_w"]) == (None, 90.0)


def test_no_sample_is_a_problem() -> None:
    assert summary([], None)["clock_problem"] == "the sampler gave no sample"
    assert summary([], "NVML does not start")["clock_problem"] == "NVML does not start"


def test_lines_of_the_sampler() -> None:
    line = json.dumps({"sm_clock_mhz": 1, "memory_clock_mhz": 2, "power_mw": 3, "temperature_c": 4, "reasons": None})
    assert read_samples(line + "\n\n" + line) == ([Sample(1, 2, 3, 4, None)] * 2, None)
    assert read_samples(line + "\nTraceback\nKeyError: 1\n[1]\n") == ([Sample(1, 2, 3, 4, None)], "[1]")


@pytest.mark.parametrize("lacking", ["nvmlDeviceGetCurrentClocksEventReasons", None])
def test_one_look(lacking: str | None) -> None:
    def refuse(_: object) -> int:
        raise NVMLError("Not Supported")

    functions = {
        "nvmlDeviceGetClockInfo": lambda _, clock: 1980 if clock == 1 else 3201,
        "nvmlDeviceGetTemperature": lambda *_: 31,
        "nvmlDeviceGetPowerUsage": lambda _: 76_000,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 4,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 8,
    }
    if lacking:
        functions[lacking] = refuse
    expected = Sample(1980, 3201, 76_000, 31, 8 if lacking else 4)
    assert look(NvmlDevice(nvml(**functions), "handle")) == expected


def test_the_sampling_process_finds_packages_where_its_environment_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "tests" / "fake_gpu"))
    with ClockSampler("34bf77d1-c686-6821-79a8-32d326c5039c") as sampler:
        pass
    assert (sampler.facts()["clock_sm_mean_mhz"], sampler.facts()["clock_problem"]) == (1980, None)


def test_the_sampling_process_says_why_it_has_nothing() -> None:
    # No GPU has this UUID, whatever else is here
    with ClockSampler("00000000-0000-0000-0000-000000000000") as sampler:
        pass
    facts = sampler.facts()
    assert facts["clock_samples"] == 0
    assert str(facts["clock_problem"]).startswith("NVML ")
