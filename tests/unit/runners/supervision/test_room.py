"""Whether one more process of a session fits into memory."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runners.supervision.room import Room, peak_private_bytes
from runners.system.gpu_state import GpuState
from runners.system.limits import free_memory_bytes

GIB = 2**30
GPU = GpuState(0, *[None] * 9)


class Machine:
    """What is free, by place."""

    def __init__(self, host: int | None = 64 * GIB, *gpus: float) -> None:
        self.host, self.gpus = host, list(gpus)

    def room(self) -> Room:
        return Room(self.read_gpus, lambda: self.host)

    def read_gpus(self) -> tuple[GpuState, ...]:
        return tuple(replace(GPU, number=number, memory_free_mib=free) for number, free in enumerate(self.gpus))


def test_the_first_of_a_session_always_fits() -> None:
    assert Machine(1).room().shortage() is None


def test_a_gpu_must_have_free_what_the_largest_took() -> None:
    machine = Machine(64 * GIB, 80_000, 80_000)
    room = machine.room()
    for taken in (10_000, 30_000, 5_000):
        assert room.shortage() is None
        machine.gpus[1] -= taken
        room.entered(os.getpid())
    machine.gpus[1] = 30_000
    assert room.shortage() is None
    machine.gpus[1] = 29_999
    assert room.shortage() == "29999 MiB of gpu1 are free, and the largest of its session takes 30000 MiB"


def test_the_host_must_have_free_what_the_largest_had_at_its_peak() -> None:
    machine = Machine()
    room = machine.room()
    room.entered(os.getpid())
    assert room.shortage() is None
    machine.host = 1 << 20
    assert str(room.shortage()).startswith("1 MiB of memory are free, and the largest of its session takes ")


def test_without_a_container_all_processes_share_one_limit() -> None:
    own = peak_private_bytes(os.getpid())
    room = Room(tuple, lambda: 64 * GIB, limit_bytes=own + own // 2)
    room.entered(os.getpid())
    assert "of memory are free" in str(room.shortage())
    room.left(os.getpid())
    assert room.shortage() is None


def test_what_nothing_tells_is_no_shortage() -> None:
    machine = Machine(None)
    room = machine.room()
    room.entered(os.getpid())
    assert room.shortage() is None


@pytest.mark.parametrize(
    ("rollup", "expected"),
    [("Private_Clean: 100 kB\nPrivate_Dirty: 200 kB\nShared_Dirty: 900 kB\n", 800), (None, 1500)],
)
def test_the_peak_is_what_is_private_and_what_was_given_back(tmp_path: Path, rollup: str | None, expected: int) -> None:
    process = tmp_path / "proc" / "7"
    process.mkdir(parents=True)
    (process / "status").write_text("VmHWM:\t1500 kB\nVmRSS:\t1000 kB\n")
    if rollup is not None:
        (process / "smaps_rollup").write_text("7f00-7fff ---p 00000000 00:00 0 [rollup]\n" + rollup)
    assert peak_private_bytes(7, str(tmp_path)) == expected * 1024


def machine_with(root: Path, version: int, **files: str) -> str:
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    kind, controllers = ("cgroup2 cgroup2 rw", "0::/") if version == 2 else ("cgroup cgroup rw,memory", "4:memory:/")
    (root / "proc" / "self" / "mountinfo").write_text(f"31 23 0:27 / /sys/fs/cgroup rw - {kind}\n")
    (root / "proc" / "self" / "cgroup").write_text(controllers + "\n")
    group = root / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / name.replace("__", ".")).write_text(text)
    return str(root)


def test_what_is_free_is_the_least_of_machine_and_limits(tmp_path: Path) -> None:
    stat = "anon 5\ninactive_file 100000\n"
    limited = machine_with(tmp_path / "2", 2, memory__max="2000000", memory__current="1500000", memory__stat=stat)
    assert free_memory_bytes(limited) == 600_000
    of_version_1 = {"memory__limit_in_bytes": "2000000", "memory__usage_in_bytes": "1500000"}
    stat = "inactive_file 1\ntotal_inactive_file 100000\n"
    assert free_memory_bytes(machine_with(tmp_path / "1", 1, **of_version_1, memory__stat=stat)) == 600_000
    unlimited = machine_with(tmp_path / "0", 2, memory__max="max", memory__current="1500000")
    assert free_memory_bytes(unlimited) == 3000 * 1024
