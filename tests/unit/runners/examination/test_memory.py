"""Memory of a process, on this system and on made-up ones; memory of a device, without one."""

import mmap
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners.examination.memory import device_memory, device_used, host_memory
from tests.scripted_nvml import nvml

STATUS = "Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t  2000 kB\n"
ROLLUP = """55b4f65cb000-7ffff90c4000 ---p 00000000 00:00 0   [rollup]
Rss:                2148 kB
Pss:                 669 kB
Private_Clean:       100 kB
Private_Dirty:       200 kB
Private_Hugetlb:      50 kB
"""
MIB = 1 << 20


def touch(size: int) -> None:
    """Makes memory resident and gives it back."""
    with mmap.mmap(-1, size) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


def system(root: Path, **files: str) -> str:
    directory = root / "proc/self"
    directory.mkdir(parents=True)
    for name, text in ({"status": STATUS, "smaps_rollup": ROLLUP, "clear_refs": ""} | files).items():
        (directory / name).write_text(text)
    return str(root)


def test_the_peak_is_that_of_the_call() -> None:
    touch(256 * MIB)
    small, large = (host_memory(touch, [(size * MIB,)]) for size in (8, 128))
    assert small["memory_problem"] is None
    difference = large["memory_peak_rss_bytes"] - small["memory_peak_rss_bytes"]  # type: ignore[operator]
    assert 80 * MIB < difference < 160 * MIB
    assert 0 < large["memory_uss_bytes"] <= large["memory_pss_bytes"] < large["memory_peak_rss_bytes"]  # type: ignore[operator]


def test_numbers_are_bytes(tmp_path: Path) -> None:
    calls: list[Any] = []
    facts = host_memory(lambda *inputs: calls.append(inputs), [(1, 2), (3, 4)], system(tmp_path))
    assert facts == {
        "memory_peak_rss_bytes": 2048 * 1024,
        "memory_uss_bytes": 350 * 1024,
        "memory_pss_bytes": 669 * 1024,
        "memory_problem": None,
    }
    assert calls == [(1, 2)]
    assert (tmp_path / "proc/self/clear_refs").read_text() == "5"


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (STATUS.replace("2048 kB", "20480 kB"), "the kernel did not reset the peak"),
        ("Name:\tpython\n", "/proc/self/status has no VmHWM"),
    ],
)
def test_a_peak_that_was_not_reset_or_is_not_told_is_unknown(tmp_path: Path, status: str, problem: str) -> None:
    facts = host_memory(lambda: None, [()], system(tmp_path, status=status))
    assert (facts["memory_peak_rss_bytes"], facts["memory_problem"]) == (None, problem)
    assert facts["memory_pss_bytes"] == 669 * 1024


def test_a_system_without_proc_says_so(tmp_path: Path) -> None:
    facts = host_memory(lambda: None, [()], str(tmp_path))
    problem = "the peak cannot be reset: No such file or directory; /proc/self/smaps_rollup cannot be read"
    assert facts.pop("memory_problem") == problem
    assert facts == dict.fromkeys(("memory_peak_rss_bytes", "memory_uss_bytes", "memory_pss_bytes"))


class Cuda:
    """Torch's view of one GPU; remembers in which order it was used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, used: list[int] | None) -> None:
        self.steps: list[str] = []
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=self))
        if used is None:
            monkeypatch.setitem(sys.modules, "pynvml", None)
            return
        answers = nvml(
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=int,
            nvmlDeviceGetMemoryInfo=lambda *_: SimpleNamespace(used=used.pop(0), free=0),
        )
        monkeypatch.setitem(sys.modules, "pynvml", answers)

    def reset_peak_memory_stats(self) -> None:
        self.steps.append("reset")

    def max_memory_allocated(self) -> int:
        self.steps.append("read")
        return 1000

    def max_memory_reserved(self) -> int:
        return 4096

    def facts(self, by_torch: bool = True) -> dict[str, object]:
        call, wait, before = lambda _: self.steps.append("call"), lambda: self.steps.append("wait"), device_used()
        return dict(device_memory(call, [(1,)], wait, before, by_torch))


def test_memory_of_a_process_is_what_is_in_use_less_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch, [70 * MIB, 600 * MIB])
    assert cuda.facts() == {
        "memory_device_allocated_peak_bytes": 1000,
        "memory_device_reserved_peak_bytes": 4096,
        "memory_device_process_bytes": 530 * MIB,
        "memory_device_used_bytes": 600 * MIB,
        "memory_device_before_bytes": 70 * MIB,
        "memory_device_problem": None,
    }
    assert cuda.steps == ["reset", "call", "wait", "read"]


def test_of_a_framework_that_allocates_beside_torch_the_driver_alone_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Cuda(monkeypatch, [70 * MIB, 600 * MIB]).facts(by_torch=False)
    assert (facts["memory_device_allocated_peak_bytes"], facts["memory_device_reserved_peak_bytes"]) == (None, None)
    assert facts["memory_device_process_bytes"] == 530 * MIB


def test_without_nvml_the_allocator_still_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Cuda(monkeypatch, None).facts()
    assert facts["memory_device_allocated_peak_bytes"] == 1000
    assert (facts["memory_device_process_bytes"], facts["memory_device_used_bytes"]) == (None, None)
    assert facts["memory_device_problem"] == "NVML does not tell how much of the device is in use"
