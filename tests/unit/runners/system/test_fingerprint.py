"""Fingerprint, identities and conditions on two small trees of /proc and /sys."""

import dataclasses
import re
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from runners import system
from runners.contract import canonical_json, decode, encode
from runners.system import Fingerprint, Private, collect, hot_columns, hw_id, read_conditions, system_id
from runners.system.cpu import Cache
from runners.system.nvml import Gpu

CPU = "sys/devices/system/cpu"
GROUP = "sys/fs/cgroup/bench.slice"
GPU = Gpu("NVIDIA A", "9.0", 2**36, "96.00", 700_000, True, True, False, 0, 5, 16, 1980, 2619)


def cpuinfo(threads: list[tuple[int, int]], flags: str) -> str:
    block = (
        "processor : {0}\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\nmodel name : Xeon 8358\n"
        "stepping : 6\nmicrocode : 0xd0003a5\ncpu MHz : {3}.500\nphysical id : {1}\ncore id : {2}\nflags : {4}\n"
    )
    return "\n".join(block.format(i, s, c, 2600 + i, flags) for i, (s, c) in enumerate(threads))


def bare_metal() -> dict[str, str]:
    """Two sockets of two cores of two threads: threads 0-3 are the first of each core, 4-7 the second."""
    sockets = {0: "0,1,4,5", 1: "2,3,6,7"}
    tree = {
        "proc/cpuinfo": cpuinfo(
            [(i % 4 // 2, i % 2) for i in range(8)], "sse4_2 smep avx2 avx512f amx_tile aperfmperf"
        ),
        "proc/meminfo": "MemTotal:  65802256 kB\nMemFree: 1 kB\nMemAvailable:   60000000 kB\nSwapTotal: 1000 kB\n"
        "SwapFree: 400 kB\nHugePages_Total:       2\nHugepagesize:       2048 kB\n",
        "proc/cmdline": "BOOT_IMAGE=(hd0,gpt2)/vmlinuz root=UUID=1f0c1c4e-2b7e-4a5f-9d3e-6f0a8b1c2d3e ro quiet "
        "isolcpus=2-3 resume=/dev/sda2 crypt=LABEL=disk",
        "proc/sys/kernel/osrelease": "6.8.0-40-generic\n",
        "proc/sys/kernel/version": "#40-Ubuntu SMP PREEMPT_DYNAMIC\n",
        "proc/sys/kernel/arch": "x86_64\n",
        "proc/sys/kernel/hostname": "node7\n",
        "proc/sys/kernel/random/boot_id": "b00t\n",
        "proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n",
        "proc/self/cgroup": "0::/bench.slice/run.scope\n",
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
        "proc/1/cgroup": "0::/init.scope\n",
        "proc/loadavg": "0.25 0.10 0.05 1/100 999\n",
        "proc/stat": "cpu  1 2 3 4 5 6 7 42 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n",
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=9\n",
        "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=9\n",
        "etc/os-release": 'ID=ubuntu\nPRETTY_NAME="Ubuntu 24.04"\n',
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/devices/system/node/online": "0-2\n",
        "sys/devices/system/node/has_cpu": "0-1\n",
        "sys/class/dmi/id/bios_version": "2.1.4\n",
        "sys/class/thermal/thermal_zone0/temp": "41000\n",
        "sys/class/hwmon/hwmon0/name": "coretemp\n",
        "sys/class/hwmon/hwmon0/temp1_input": "53000\n",
        "sys/class/hwmon/hwmon1/name": "nvme\n",
        "sys/class/hwmon/hwmon1/temp1_input": "99000\n",
        CPU + "/online": "0-7\n",
        CPU + "/smt/active": "1\n",
        CPU + "/vulnerabilities/meltdown": "Not affected\n",
        CPU + "/intel_pstate/no_turbo": "0\n",
        CPU + "/cpu0/microcode/version": "0xd0003a5\n",
        GROUP + "/memory.max": "8589934592\n",
        GROUP + "/cpu.max": "150000 100000\n",
        GROUP + "/run.scope/memory.max": "max\n",
        GROUP + "/run.scope/memory.oom.group": "1\n",
        GROUP + "/run.scope/cpu.max": "max 100000\n",
        GROUP + "/run.scope/cpu.stat": "usage_usec 9\nthrottled_usec 321\n",
        GROUP + "/run.scope/pids.max": "512\n",
    }
    for cpu in range(8):
        core, socket = f"{cpu % 4},{cpu % 4 + 4}", sockets[cpu % 4 // 2]
        tree[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = core
        tree[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = socket
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Data", "48K", core), (3, "Unified", "49152K", socket)]
        ):
            path = f"{CPU}/cpu{cpu}/cache/index{index}/"
            tree |= {
                path + "level": str(level),
                path + "type": kind,
                path + "size": size,
                path + "shared_cpu_list": shared,
            }
            tree[path + "ways_of_associativity"] = "12"
        policy = f"{CPU}/cpufreq/policy{cpu}/"
        tree |= {policy + "scaling_governor": "performance", policy + "scaling_driver": "intel_pstate"}
        tree |= {policy + "cpuinfo_max_freq": "3400000", policy + "scaling_cur_freq": "1000000"}
    return tree


def virtual_machine() -> dict[str, str]:
    """One socket without frequency scaling or topology files, control groups of version 1, inside Docker."""
    mount = "sys/fs/cgroup/"
    return {
        "proc/cpuinfo": cpuinfo([(0, 0), (0, 1)], "fma avx2 hypervisor"),
        "proc/meminfo": "MemTotal:        4028440 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/sys/kernel/osrelease": "5.10.0\n",
        "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:pids:/docker/abc\n0::/\n",
        "proc/self/mountinfo": "1 0 0:1 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "2 0 0:2 /docker /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
        "4 0 0:3 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n",
        ".dockerenv": "",
        CPU + "/online": "0-1\n",
        mount + "memory/memory.limit_in_bytes": "9223372036854771712\n",
        mount + "cpu/cpu.cfs_quota_us": "-1\n",
        mount + "cpu/cpu.cfs_period_us": "100000\n",
        mount + "cpu/abc/cpu.cfs_quota_us": "50000\n",
        mount + "cpu/abc/cpu.cfs_period_us": "100000\n",
        mount + "cpu/abc/cpu.stat": "nr_periods 1\nthrottled_time 5000\n",
        mount + "unified/cgroup.procs": "1\n",
    }


def write(root: Path, tree: dict[str, str]) -> str:
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Fingerprint:
    return collect(write(tmp_path_factory.mktemp("metal"), bare_metal()))


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Fingerprint:
    return collect(write(tmp_path_factory.mktemp("vm"), virtual_machine()))


def test_bare_metal_topology_and_settings(metal: Fingerprint) -> None:
    cpu = metal.cpu
    assert (cpu.sockets, cpu.cores, cpu.threads, cpu.smt_active, cpu.numa_nodes) == (2, 4, 8, True, 2)
    assert cpu.caches == (
        Cache(1, "Data", 48 * 1024, 12, shared_by=2, instances=4),
        Cache(3, "Unified", 48 * 2**20, 12, shared_by=4, instances=2),
    )
    assert cpu.flags == ("amx_tile", "avx2", "avx512f", "sse4_2")
    assert (cpu.governor, cpu.frequency_driver, cpu.boost) == ("performance", "intel_pstate", True)
    assert cpu.max_frequency_hz == 3_400_000_000
    assert metal.virtualisation == system.fingerprint.Virtualisation(vm=False, hypervisor="none", container="none")
    assert metal.memory.transparent_huge_pages == "madvise"
    assert metal.kernel.distribution == "Ubuntu 24.04"


def test_command_line_names_no_disk(metal: Fingerprint) -> None:
    assert metal.kernel.command_line == "BOOT_IMAGE=* root=* ro quiet isolcpus=2-3 resume=* crypt=*"


def test_limits_of_version_2_are_the_tightest_of_all_ancestors(metal: Fingerprint) -> None:
    assert metal.limits == system.Limits(2, 8 * 2**30, 1500, "0-3", "0-1", 512, oom_group=True)


def test_limits_of_version_1_inside_a_container(vm: Fingerprint) -> None:
    assert vm.limits == system.Limits(1, None, 500, None, None, None, oom_group=None)


def test_virtual_machine_has_nulls_where_nothing_is_known(vm: Fingerprint) -> None:
    assert (vm.cpu.sockets, vm.cpu.cores, vm.cpu.threads) == (1, 2, 2)
    assert vm.virtualisation == system.fingerprint.Virtualisation(vm=True, hypervisor=None, container="docker")
    unknown = (vm.cpu.governor, vm.cpu.boost, vm.cpu.max_frequency_hz, vm.cpu.numa_nodes, vm.kernel.command_line)
    assert unknown == (None,) * len(unknown)
    assert hot_columns(vm)["virtualisation"] == "vm"
    assert hot_columns(vm)["gpu_count"] is None


def test_an_empty_tree_is_all_unknown(tmp_path: Path) -> None:
    fingerprint = collect(str(tmp_path))
    assert set(hot_columns(fingerprint).values()) == {None}
    assert set(read_conditions(str(tmp_path)).values()) == {None}
    assert re.fullmatch("[0-9a-f]{32}", hw_id(fingerprint))


def test_canonical_text_is_rfc_8785_and_reads_back(metal: Fingerprint, vm: Fingerprint) -> None:
    for fingerprint in (metal, vm, with_gpu(metal), collect()):
        plain = encode(fingerprint)
        assert canonical_json(fingerprint).encode() == rfc8785.dumps(plain)
        assert decode(Fingerprint, plain) == fingerprint


def with_gpu(fingerprint: Fingerprint, *gpus: Gpu) -> Fingerprint:
    return dataclasses.replace(fingerprint, gpus=gpus or (GPU,), gpu_driver_version="570.1", gpu_reason=None)


@pytest.mark.parametrize(
    ("path", "text", "hardware_changes", "system_changes"),
    [
        ("proc/sys/kernel/hostname", "another\n", False, False),
        ("proc/sys/kernel/random/boot_id", "another\n", False, False),
        ("proc/loadavg", "9.00 9.00 9.00 9/100 999\n", False, False),
        ("proc/cmdline", bare_metal()["proc/cmdline"].replace("1f0c1c4e", "00000000"), False, False),
        ("proc/meminfo", bare_metal()["proc/meminfo"].replace("MemFree: 1 ", "MemFree: 9 "), False, False),
        ("proc/meminfo", bare_metal()["proc/meminfo"].replace("65802256", "65801256"), False, False),
        ("proc/cpuinfo", bare_metal()["proc/cpuinfo"].replace("cpu MHz : 26", "cpu MHz : 11"), False, False),
        ("proc/sys/kernel/osrelease", "6.9.0\n", False, True),
        ("proc/cmdline", "mitigations=off\n", False, True),
        (CPU + "/vulnerabilities/meltdown", "Mitigation: PTI\n", False, True),
        (CPU + "/cpu0/microcode/version", "0xd0003b9\n", False, True),
        (CPU + "/smt/active", "0\n", False, True),
        (CPU + "/intel_pstate/no_turbo", "1\n", False, True),
        (CPU + "/cpufreq/policy3/scaling_governor", "powersave\n", False, True),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n", False, True),
        (GROUP + "/cpu.max", "200000 100000\n", False, True),
        ("proc/cpuinfo", bare_metal()["proc/cpuinfo"].replace("8358", "8380"), True, True),
        ("proc/cpuinfo", bare_metal()["proc/cpuinfo"].replace("stepping : 6", "stepping : 7"), True, True),
        ("proc/meminfo", bare_metal()["proc/meminfo"].replace("65802256", "131604512"), True, True),
        (CPU + "/cpu0/cache/index1/size", "32768K\n", True, True),
    ],
)
def test_what_moves_which_identity(
    metal: Fingerprint, tmp_path: Path, path: str, text: str, hardware_changes: bool, system_changes: bool
) -> None:
    tree = bare_metal()
    assert path in tree
    assert tree[path] != text
    changed = collect(write(tmp_path, {**tree, path: text}))
    assert (hw_id(changed) != hw_id(metal)) is hardware_changes
    assert (system_id(changed) != system_id(metal)) is system_changes


def test_gpus_in_the_identities(metal: Fingerprint) -> None:
    base = with_gpu(metal)
    other_model = with_gpu(metal, dataclasses.replace(GPU, name="NVIDIA B"))
    two = with_gpu(metal, GPU, GPU)
    none = dataclasses.replace(metal, gpu_driver_version="570.1")
    assert len({hw_id(f) for f in (metal, base, other_model, two, none)}) == 5
    capped = with_gpu(metal, dataclasses.replace(GPU, power_limit_mw=300_000))
    driver = dataclasses.replace(base, gpu_driver_version="580.2")
    assert {hw_id(capped), hw_id(driver)} == {hw_id(base)}
    assert len({system_id(f) for f in (base, other_model, capped, driver)}) == 4
    swapped = [dataclasses.replace(GPU, name="NVIDIA B"), GPU]
    assert system_id(with_gpu(metal, *swapped)) == system_id(with_gpu(metal, *reversed(swapped)))
    assert hot_columns(two) | {"gpu_name": "NVIDIA A", "gpu_count": 2, "driver_version": "570.1"} == hot_columns(two)
    assert hot_columns(none)["gpu_count"] == 0


_TEXT = st.none() | st.text()


@given(private=st.none() | st.builds(Private, host_name=_TEXT, boot_id=_TEXT, gpu_uuids=st.tuples(_TEXT)))
def test_nothing_private_is_in_an_identity(metal: Fingerprint, private: Private | None) -> None:
    changed = dataclasses.replace(metal, private=private)
    assert (hw_id(changed), system_id(changed)) == (hw_id(metal), system_id(metal))


def test_conditions_of_bare_metal(tmp_path: Path) -> None:
    assert read_conditions(write(tmp_path, bare_metal())) == {
        "load_1m": 0.25,
        "pressure_cpu_some_us": 1234,
        "pressure_memory_some_us": 77,
        "pressure_io_some_us": None,
        "cpu_steal_jiffies": 42,
        "cpu_throttled_us": 321,
        "temperature_max_millidegrees_c": 53000,
        "memory_available_bytes": 60_000_000 * 1024,
        "swap_used_bytes": 600 * 1024,
        "cpu_clock_khz_min": 2_600_500,
        "cpu_clock_khz_max": 2_607_500,
        "cpu_clock_khz_mean": 2_604_000,
    }


def test_conditions_of_a_virtual_machine(tmp_path: Path) -> None:
    conditions = read_conditions(write(tmp_path, virtual_machine()))
    assert conditions["cpu_throttled_us"] == 5
    assert conditions["swap_used_bytes"] == 0
    assert conditions["cpu_clock_khz_mean"] is None, "a nominal clock is not a measured one"


def test_clock_from_cpufreq_where_cpuinfo_has_none(tmp_path: Path) -> None:
    tree = {**bare_metal(), "proc/cpuinfo": "processor : 0\nFeatures : asimd sve\n"}
    assert read_conditions(write(tmp_path, tree))["cpu_clock_khz_max"] == 1_000_000


def test_an_arm_processor_has_a_name(tmp_path: Path) -> None:
    info = "processor : 0\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU variant : 0x1\nCPU revision : 2\n"

    def probe(part: str) -> Fingerprint:
        return collect(write(tmp_path / part, {"proc/cpuinfo": info + "CPU part : " + part}))

    grace, unknown = probe("0xd4f").cpu, probe("0x123").cpu
    assert (grace.vendor, grace.model_name, grace.model, grace.stepping) == ("ARM", "Neoverse-V2", 0xD4F, 0x12)
    assert grace.flags == ("asimd", "sve")
    assert unknown.model_name == "ARM part 0x123"
