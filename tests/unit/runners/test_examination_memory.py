"""Memory of a process, on this system and on made-up ones; memory of a device, without one."""

import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from runners.examination.memory import device_memory, host_memory, own_memory

HOST = "pid:[4026531836]"
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
    small = host_memory(lambda size: touch(size), [(8 * MIB,)])
    large = host_memory(lambda size: touch(size), [(128 * MIB,)])
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


def test_a_peak_that_was_not_reset_is_unknown(tmp_path: Path) -> None:
    stubborn = STATUS.replace("2048 kB", "20480 kB")
    facts = host_memory(lambda: None, [()], system(tmp_path, status=stubborn))
    assert facts["memory_peak_rss_bytes"] is None
    assert facts["memory_pss_bytes"] == 669 * 1024
    assert facts["memory_problem"] == "the kernel did not reset the peak"


def test_a_system_without_proc_says_so(tmp_path: Path) -> None:
    facts = host_memory(lambda: None, [()], str(tmp_path))
    assert facts == {
        "memory_peak_rss_bytes": None,
        "memory_uss_bytes": None,
        "memory_pss_bytes": None,
        "memory_problem": "the peak cannot be reset: No such file or directory; /proc/self/smaps_rollup cannot be read",
    }


def test_a_kernel_without_a_peak_says_so(tmp_path: Path) -> None:
    facts = host_memory(lambda: None, [()], system(tmp_path, status="Name:\tpython\n"))
    assert (facts["memory_peak_rss_bytes"], facts["memory_problem"]) == (None, "/proc/self/status has no VmHWM")


def process(pid: int, used: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


@pytest.mark.parametrize(
    ("processes", "namespace", "used", "words"),
    [
        ([process(7, 5), process(42, 9)], HOST, 9, None),
        ([process(7, 5)], HOST, None, "NVML does not list this process"),
        ([process(42, None)], HOST, None, "does not say how much"),
        # The same number in a container is somebody else's
        ([process(42, 9)], "pid:[4026532881]", None, "not in the host's PID namespace"),
        ([process(42, 9)], None, None, "not in the host's PID namespace"),
        (None, HOST, None, "lists no processes"),
    ],
)
def test_own_memory_among_those_of_the_device(
    processes: list[Any] | None, namespace: str | None, used: int | None, words: str | None
) -> None:
    found, problem = own_memory(processes, 42, namespace)
    assert found == used
    assert problem is None if words is None else words in str(problem)


class Cuda:
    """Torch's view of one GPU; remembers in which order it was used."""

    def __init__(self, uuid: str | None) -> None:
        self.steps: list[str] = []
        self.properties = SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, _: int) -> SimpleNamespace:
        return self.properties

    def reset_peak_memory_stats(self) -> None:
        self.steps.append("reset")

    def max_memory_allocated(self) -> int:
        self.steps.append("read")
        return 1000

    def max_memory_reserved(self) -> int:
        return 4096


def with_cuda(monkeypatch: pytest.MonkeyPatch, uuid: str | None) -> Cuda:
    cuda = Cuda(uuid)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return cuda


def test_memory_of_the_allocator_and_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cuda = with_cuda(monkeypatch, "1")
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=70_000),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [process(os.getpid(), 60_000)],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    namespaces = tmp_path / "proc/self/ns"
    namespaces.mkdir(parents=True)
    (namespaces / "pid").symlink_to(HOST)
    facts = device_memory(
        lambda _: cuda.steps.append("call"), [(1,)], lambda: cuda.steps.append("wait"), root=str(tmp_path)
    )
    assert facts == {
        "memory_device_allocated_peak_bytes": 1000,
        "memory_device_reserved_peak_bytes": 4096,
        "memory_device_process_bytes": 60_000,
        "memory_device_used_bytes": 70_000,
        "memory_device_problem": None,
    }
    assert cuda.steps == ["reset", "call", "wait", "read"]


def test_without_nvml_the_allocator_still_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cuda(monkeypatch, "1")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    facts = device_memory(lambda: None, [()], None)
    assert facts["memory_device_allocated_peak_bytes"] == 1000
    assert (facts["memory_device_process_bytes"], facts["memory_device_used_bytes"]) == (None, None)
    assert facts["memory_device_problem"] == "the Python package nvidia-ml-py is not installed"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (None, "the environment lacks torch"),
        (SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)), "torch shows no CUDA device"),
    ],
)
def test_without_a_device_nothing_is_called(monkeypatch: pytest.MonkeyPatch, module: Any, problem: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)
    calls: list[int] = []
    facts = device_memory(calls.append, [(1,)], None)
    assert facts.pop("memory_device_problem") == problem
    assert set(facts.values()) == {None}
    assert calls == []
