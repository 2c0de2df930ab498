"""Guards of GPUs against a scripted NVML: no GPU is needed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from runners.contract import (
    NO_GUARDS,
    ClockRule,
    ClocksGuard,
    GpuProcessesGuard,
    GuardOutcome,
    GuardPolicy,
    ThrottlingGuard,
)
from runners.supervision.checks import ClocksCheck, GpuProcessesCheck, Reading, ThrottlingCheck
from runners.supervision.guarding import guarding_for
from runners.system.gpu_state import GpuState, read_gpus
from tests.scripted_nvml import NVMLError, nvml

MIB = 2**20


@dataclass
class Device:
    """What the scripted driver says of one GPU; None where it refuses."""

    uuid: str = "GPU-1"
    compute: tuple[int, ...] | None = ()
    graphics: tuple[int, ...] | None = ()
    used_mib: int | None = 4
    busy_percent: int | None = 0
    reasons: int | None = 0x1
    thermal_ns: int | None = 0
    clock_mhz: int | None = 1980
    default_clock_mhz: int | None = 1980
    power_limit_mw: int | None = 700_000


@dataclass
class Driver:
    """A scripted NVML. `versions` says whether it tells memory in use from what the driver keeps."""

    devices: list[Device] = field(default_factory=lambda: [Device()])
    versions: bool = True

    def library(self) -> SimpleNamespace:
        def told(value: object) -> Any:
            if value is None:
                raise NVMLError("Not Supported")
            return value

        def memory(device: Device, version: int | None = None) -> SimpleNamespace:
            if version is not None and not self.versions:
                raise NVMLError("Function Not Found")
            kept = 0 if version is not None else 600
            return SimpleNamespace(used=(told(device.used_mib) + kept) * MIB, free=0)

        def processes(pids: tuple[int, ...] | None) -> list[SimpleNamespace]:
            return [SimpleNamespace(pid=pid) for pid in told(pids)]

        return nvml(
            nvmlDeviceGetCount=lambda: len(self.devices),
            nvmlDeviceGetHandleByIndex=lambda index: self.devices[index],
            nvmlDeviceGetUUID=lambda device: device.uuid.encode(),
            nvmlDeviceGetComputeRunningProcesses=lambda device: processes(device.compute),
            nvmlDeviceGetGraphicsRunningProcesses=lambda device: processes(device.graphics),
            nvmlDeviceGetMemoryInfo=memory,
            nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=told(device.busy_percent)),
            nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: told(device.reasons),
            nvmlDeviceGetViolationStatus=lambda device, _: SimpleNamespace(violationTime=told(device.thermal_ns)),
            nvmlDeviceGetApplicationsClock=lambda device, clock: told(device.clock_mhz if clock == 1 else 2619),
            nvmlDeviceGetDefaultApplicationsClock=lambda device, _: told(device.default_clock_mhz),
            nvmlDeviceGetEnforcedPowerLimit=lambda device: told(device.power_limit_mw),
        )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", found.library())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return found


def neighbours(pause: Callable[[float], None] = lambda _: None, **limits: int) -> GpuProcessesCheck:
    return GpuProcessesCheck(GpuProcessesGuard(**limits), read_gpus, pause)


def seen(look: Callable[[tuple[GpuState, ...]], Reading | None]) -> Reading:
    reading = look(read_gpus())
    assert reading is not None
    return reading


def test_a_driver_that_does_not_tell_what_it_keeps_for_itself_is_asked_all_the_same(driver: Driver) -> None:
    driver.versions = False
    assert seen(neighbours(max_memory_mib=1000).before).observed == 604
    assert seen(neighbours().before).is_over


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        # The driver keeps memory for itself
        (Device(), Reading(4, 64, "MiB", "gpu0")),
        (Device(compute=(11, 12), graphics=(12,)), Reading(2, 0, "processes", "gpu0")),
        (Device(graphics=(7,)), Reading(1, 0, "processes", "gpu0")),
        (Device(used_mib=500), Reading(500, 64, "MiB", "gpu0")),
        (Device(busy_percent=30), Reading(300, 50, "permille", "gpu0")),
        (Device(compute=None, graphics=None, used_mib=500), Reading(500, 64, "MiB", "gpu0")),
    ],
)
def test_another_user_is_seen_by_process_memory_or_work(driver: Driver, device: Device, expected: Reading) -> None:
    driver.devices = [device]
    reading = seen(neighbours().before)
    assert (reading, reading.is_over) == (expected, device != Device())


def test_the_work_of_the_trial_before_is_no_neighbour(driver: Driver) -> None:
    driver.devices = [Device(busy_percent=97)]
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        driver.devices[0].busy_percent = 0

    assert not seen(neighbours(pause).before).is_over
    assert pauses == [1.0]


def test_at_the_end_what_was_busy_is_the_trial_itself_and_what_is_held_is_not(driver: Driver) -> None:
    driver.devices = [Device(busy_percent=97)]
    assert not seen(neighbours().after).is_over
    driver.devices = [Device(busy_percent=97, used_mib=900)]
    assert seen(neighbours().after).is_over


def test_a_neighbour_on_a_gpu_that_the_trial_cannot_see_is_none(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.devices = [Device(uuid="GPU-1"), Device(uuid="GPU-2", used_mib=900)]
    assert seen(neighbours().before).detail == "gpu1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert not seen(neighbours().before).is_over
    # Numbers are CUDA's, which counts in another order than NVML
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert seen(neighbours().before).is_over


def test_without_nvml_a_trial_on_a_gpu_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    guards = replace(NO_GUARDS, gpu_processes=GpuProcessesGuard(GuardPolicy.ERROR))
    verdict = guarding_for(guards, "cuda", lambda _: None).before()
    assert [(one.guard, one.outcome) for one in verdict.results] == [("gpu_processes", GuardOutcome.UNSEEN)]
    assert verdict.problem is None
    assert guarding_for(guards, "cpu", lambda _: None).before().results == ()


@pytest.mark.parametrize(
    ("reasons", "count"),
    [(0x1, 0), (0x2, 0), (0x4, 0), (0x10, 0), (0x8, 1), (0x20, 1), (0x40 | 0x8, 2), (0x80, 1), (0x1F7, 3)],
)
def test_heat_and_power_brake_are_throttling_and_a_power_limit_is_none(
    driver: Driver, reasons: int, count: int
) -> None:
    driver.devices = [Device(reasons=reasons)]
    reading = seen(ThrottlingCheck(ThrottlingGuard(), ()).before)
    assert (reading.observed, reading.unit, reading.is_over) == (count, "reasons", count > 0)


def test_how_long_heat_held_a_gpu_down_is_counted_over_the_trial(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    driver.devices = [Device(thermal_ns=5_000_000_000)]
    check = ThrottlingCheck(ThrottlingGuard(), (), str(tmp_path))
    check.start(read_gpus())
    now_s[0] += 10
    driver.devices = [Device(thermal_ns=6_000_000_000)]
    assert seen(check.after) == Reading(pytest.approx(100), 10, "permille", "heat of gpu0")  # type: ignore[arg-type]


def test_clocks_of_a_gpu_that_somebody_sets_meanwhile_are_named(driver: Driver, tmp_path: Any) -> None:
    check = ClocksCheck(ClocksGuard(), (), str(tmp_path))
    check.start(read_gpus())
    driver.devices = [Device(clock_mhz=1200, power_limit_mw=300_000)]
    assert seen(check.after).detail == (
        "gpu0 application clock 1980 MHz → 1200 MHz, gpu0 power limit 700000 mW → 300000 mW"
    )


@pytest.mark.parametrize(
    ("device", "count"),
    [(Device(), 1), (Device(clock_mhz=1200), 0), (Device(reasons=0x2), 0), (Device(clock_mhz=None), 0)],
)
def test_a_gpu_whose_clocks_must_be_fixed_has_them_set(
    driver: Driver, tmp_path: Any, device: Device, count: int
) -> None:
    driver.devices = [device]
    assert seen(ClocksCheck(ClocksGuard(require=ClockRule.FIXED), (), str(tmp_path)).before).observed == count


def test_what_a_driver_refuses_is_null(driver: Driver) -> None:
    driver.devices = [Device("GPU-1", *[None] * 9)]
    [state] = read_gpus()
    assert replace(state, memory_clock_setting_mhz=None) == GpuState(0, *[None] * 9)
