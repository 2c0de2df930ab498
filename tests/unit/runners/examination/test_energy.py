"""The energy pass with scripted counters, and the counters on made-up systems."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners.examination import energy
from runners.examination.counters import EnergyCounter, EnergyUnavailable, NvmlEnergyCounter, RaplEnergyCounter
from runners.examination.energy import measure_energy
from tests.scripted_nvml import NVMLError, nvml

UUID = "11111111-2222-3333-4444-555555555555"


class Scripted(EnergyCounter):
    """A machine on which a call takes a second and a device draws what the script says."""

    source = "script"

    def __init__(self, watts: Iterator[float], fails_after: int | None = None) -> None:
        self.watts = watts
        self.now_s = 0.0
        self.joules = 1000.0
        self.calls: list[Any] = []
        self.slept_s: list[float] = []
        self.synchronized = 0
        self.reads = 0
        self.fails_after = fails_after

    def read_j(self) -> float:
        self.reads += 1
        if self.fails_after is not None and self.reads > self.fails_after:
            raise EnergyUnavailable("the GPU is lost")
        return self.joules

    def call(self, value: Any) -> None:
        self.calls.append(value)
        self.now_s += 1.0
        self.joules += next(self.watts)

    def synchronize(self) -> None:
        self.synchronized += 1

    def measure(self, window_ms: int, windows: int = 3) -> dict[str, Any]:
        ring = [("a",), ("b",), ("c",)]
        return measure_energy(
            self.call, ring, self.synchronize, self, window_ms, windows, lambda: self.now_s, self.slept_s.append
        )


def test_energy_of_a_call() -> None:
    script = Scripted(itertools.repeat(250.0))
    assert script.measure(10_000) == {
        "energy_per_call_j": 250.0,
        "energy_power_mean_w": 250.0,
        "energy_window_s": 10.0,
        "energy_windows": 3,
        "energy_source": "script",
        "energy_valid": True,
        "energy_problem": None,
    }
    assert script.calls == ["a", "b", "c"] * 10
    # Before and after each window: both readings see an idle queue
    assert script.synchronized == 6


def test_windows_start_at_different_phases_of_the_counter() -> None:
    script = Scripted(itertools.repeat(250.0))
    script.measure(10_000, windows=5)
    assert len(set(script.slept_s)) == 4
    assert all(0 <= pause <= 0.1 for pause in script.slept_s)


@pytest.mark.parametrize(
    ("later_w", "window_ms", "windows", "valid", "problem"),
    [
        (250.0, 5_000, 3, True, "a window lasted 5 s, less than the 10 s that are good"),
        (250.0, 1_000, 3, False, "a window lasted 1 s, less than 2 s"),
        (300.0, 10_000, 3, False, "the windows differ by 18.8 %, more than 5 %"),
        (260.0, 10_000, 3, True, None),
        (250.0, 10_000, 1, True, "a single window shows no spread"),
    ],
)
def test_short_windows_and_those_that_disagree_are_told(
    later_w: float, window_ms: int, windows: int, valid: bool, problem: str | None
) -> None:
    facts = Scripted(itertools.chain([250.0] * 20, itertools.repeat(later_w))).measure(window_ms, windows)
    assert (facts["energy_valid"], facts["energy_problem"]) == (valid, problem)
    assert facts["energy_per_call_j"] is not None


@pytest.mark.parametrize(
    ("later_w", "fails_after", "problem"),
    [(0.0, None, "the counter did not move during a window"), (250.0, 3, "the GPU is lost")],
)
def test_a_counter_that_stands_still_or_fails_measures_nothing(
    later_w: float, fails_after: int | None, problem: str
) -> None:
    facts = Scripted(itertools.chain([250.0] * 10, itertools.repeat(later_w)), fails_after).measure(10_000)
    assert (facts["energy_valid"], facts["energy_problem"], facts["energy_source"]) == (False, problem, "script")
    assert {facts["energy_per_call_j"], facts["energy_windows"]} == {None}


def zone(root: Path, name: str, domain: str, energy_uj: object, range_uj: int = 1_000_000) -> Path:
    directory = root / "sys/class/powercap" / name
    directory.mkdir(parents=True)
    (directory / "name").write_text(domain + "\n")
    (directory / "energy_uj").write_text(f"{energy_uj}\n")
    (directory / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return directory / "energy_uj"


def test_rapl_adds_packages_only(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 200)
    others = [
        zone(tmp_path, "intel-rapl:0:0", "core", 5),
        zone(tmp_path, "intel-rapl:2", "psys", 5),
        zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5),
    ]
    counter = RaplEnergyCounter(str(tmp_path))
    assert counter.source == "rapl package-0, package-1"
    before = counter.read_j()
    first.write_text("600\n")
    second.write_text("1200\n")
    for other in others:
        other.write_text("900000\n")
    assert counter.read_j() - before == pytest.approx(1500e-6)


def test_rapl_wraps_around(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0", 999_000)
    counter = RaplEnergyCounter(str(tmp_path))
    file.write_text("4000\n")
    assert counter.read_j() == pytest.approx(5000e-6)
    file.write_text("6000\n")
    assert counter.read_j() == pytest.approx(7000e-6)


def test_rapl_says_why_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(EnergyUnavailable, match="there is no RAPL in /sys/class/powercap"):
        RaplEnergyCounter(str(tmp_path))
    zone(tmp_path, "intel-rapl:0", "psys", 1)
    with pytest.raises(EnergyUnavailable, match="no package domain"):
        RaplEnergyCounter(str(tmp_path))
    zone(tmp_path, "intel-rapl:1", "package-0", "soon")
    with pytest.raises(EnergyUnavailable, match="energy_uj holds no number"):
        RaplEnergyCounter(str(tmp_path))
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    with pytest.raises(EnergyUnavailable, match="intel-rapl:1/energy_uj: No such file"):
        RaplEnergyCounter(str(tmp_path))


def scripted_nvml(monkeypatch: pytest.MonkeyPatch, *millijoules: int) -> list[str]:
    """Puts one GPU and what its counter says in the place of the driver; returns what is asked of it."""
    asked: list[str] = []
    total = iter(millijoules)

    def told(answer: Any) -> Any:
        if answer is None:
            raise NVMLError("Not Supported")
        return answer

    def handle(uuid: str) -> Any:
        asked.append(uuid)
        return told("device" if uuid == "GPU-" + UUID else None)

    library = nvml(
        nvmlInit=lambda: asked.append("init"),
        nvmlShutdown=lambda: asked.append("shutdown"),
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetTotalEnergyConsumption=lambda _: told(next(total, None)),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return asked


def test_nvml_counts_the_gpu_with_the_uuid_of_the_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted_nvml(monkeypatch, 1_000, 2_000, 7_500)
    properties = SimpleNamespace(uuid=UUID)
    cuda = {"is_available": lambda: True, "current_device": lambda: 0, "get_device_properties": lambda _: properties}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(**cuda)))
    counter = energy.counter_for("cuda")
    assert isinstance(counter, NvmlEnergyCounter)
    assert [counter.read_j(), counter.read_j()] == [2.0, 7.5]
    counter.close()
    assert asked == ["init", "GPU-" + UUID, "shutdown"]


@pytest.mark.parametrize(
    ("uuid", "problem", "asked"),
    [
        (UUID, "the GPU has no energy counter", ["init", "GPU-" + UUID, "shutdown"]),
        ("99", "NVML shows no device with the UUID 99", ["init", "GPU-99", "MIG-99", "shutdown"]),
        (None, "the UUID of the CUDA device is unknown", []),
    ],
)
def test_nvml_without_the_device_or_its_counter_says_so_and_ends_its_session(
    monkeypatch: pytest.MonkeyPatch, uuid: str | None, problem: str, asked: list[str]
) -> None:
    found = scripted_nvml(monkeypatch)
    with pytest.raises(EnergyUnavailable, match=problem):
        NvmlEnergyCounter(uuid)
    assert found == asked
