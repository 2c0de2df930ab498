"""Six made-up systems, five of them after table 2 of the paper: their fingerprints, and how fast they are.

Nothing here was measured. Names, sizes and clocks are those of the real parts, so that texts have their real length and
filters have real models to tell apart; speeds are the peaks that vendors print.
"""

from dataclasses import dataclass, replace

from runners.system import Fingerprint, Limits
from runners.system.cpu import Cache, Cpu
from runners.system.kernel import Kernel, Machine, Memory, Virtualisation
from runners.system.nvml import Gpu

GIB = 2**30
_KERNEL = Kernel(
    release="5.15.0-119-generic", version="#129-Ubuntu SMP", architecture="x86_64",
    command_line="BOOT_IMAGE=* root=* ro quiet", clocksource="tsc",
    mitigations={"meltdown": "Mitigation: PTI", "spectre_v2": "Mitigation: Retpolines", "mds": "Not affected"},
    distribution="Ubuntu 22.04.4 LTS", libc="glibc 2.35",
)  # fmt: skip


@dataclass(frozen=True)
class System:
    """One host of the made-up lab."""

    host: str
    fingerprint: Fingerprint
    dispatch_us: float
    """Host time of one operator in eager, in microseconds: a property of the processor."""
    tflops: dict[str, float]
    """Peak by dtype, in 10^12 operations per second: of the GPU, or of the processor's eight cores."""
    kernel_us: float = 6.0
    """The shortest time that a kernel takes on the GPU, in microseconds."""
    gb_per_s: float = 600.0
    """Peak of the memory of the device, in 10^9 bytes per second."""

    @property
    def is_gpu(self) -> bool:
        """Whether trials run on a GPU here."""
        return bool(self.fingerprint.gpus)

    @property
    def device(self) -> str:
        """As the column has it."""
        return "cuda" if self.is_gpu else "cpu"


def with_driver(system: System, version: str, cuda: str) -> System:
    """The same machine after an update of its driver."""
    fingerprint = replace(system.fingerprint, gpu_driver_version=version, gpu_cuda_version=cuda)
    return replace(system, fingerprint=fingerprint)


def _cpu(
    model_name: str, number: tuple[int, int, int], microcode: str, cores: int, mhz: int, l3_mib: int, *, avx512: bool
) -> Cpu:
    intel = "Intel" in model_name
    family, model, stepping = number
    flags = ("avx", "avx2", *(("avx512bw", "avx512dq", "avx512f") if avx512 else ()), "f16c", "fma", "sse4_2")
    caches = (
        Cache(1, "Data", 32 * 1024, 8, 2, cores),
        Cache(1, "Instruction", 32 * 1024, 8, 2, cores),
        Cache(2, "Unified", (1024 if avx512 else 512) * 1024, 8, 2, cores),
        Cache(3, "Unified", l3_mib * 2**20, 16, 2 * cores, 1),
    )
    return Cpu(
        vendor="GenuineIntel" if intel else "AuthenticAMD", model_name=model_name, family=family, model=model,
        stepping=stepping, microcode=microcode, sockets=1, cores=cores, threads=2 * cores, smt_active=True,
        numa_nodes=1, caches=caches, flags=flags, max_frequency_hz=mhz * 1_000_000,
        frequency_driver="intel_pstate" if intel else "acpi-cpufreq", governor="performance",
        energy_preference="performance" if intel else None, boost=True,
        idle_driver="intel_idle" if intel else "acpi_idle", idle_governor="menu",
    )  # fmt: skip


def _gpu(
    name: str, capability: str, memory_gib: int, vbios: str, watts: int, clocks_mhz: tuple[int, int], ecc: bool | None
) -> Gpu:
    return Gpu(
        name=name, compute_capability=capability, memory_bytes=memory_gib * GIB, vbios=vbios,
        power_limit_mw=watts * 1000, persistence=True, ecc=ecc, mig=False if capability == "8.0" else None,
        compute_mode=0, pcie_generation_max=4 if capability.startswith("8") else 3, pcie_width_max=16,
        sm_clock_max_mhz=clocks_mhz[0], memory_clock_max_mhz=clocks_mhz[1],
    )  # fmt: skip


def _fingerprint(cpu: Cpu, memory_gib: int, board: str, firmware: str, gpu: Gpu | None) -> Fingerprint:
    return Fingerprint(
        cpu=cpu,
        memory=Memory(memory_gib * GIB, 0, 0, 2 * 2**20, "madvise"),
        machine=Machine(vendor="Supermicro", product=board, board=board, firmware=firmware),
        kernel=_KERNEL,
        virtualisation=Virtualisation(vm=False, hypervisor="none", container="none"),
        limits=Limits(2, None, None, f"0-{(cpu.threads or 1) - 1}", "0", None, False),
        gpus=() if gpu is None else (gpu,),
        gpu_driver_version=None if gpu is None else "535.54.03",
        gpu_cuda_version=None if gpu is None else "12.2",
        gpu_reason="NVML does not start: NVML Shared Library Not Found" if gpu is None else None,
        private=None,
    )


V100 = System(
    "v100-01",
    _fingerprint(
        _cpu("Intel(R) Xeon(R) Gold 6242 CPU @ 2.80GHz", (6, 85, 7), "0x5003604", 16, 3900, 22, avx512=True),
        192, "X11DPG-QT", "American Megatrends 3.8a",
        _gpu("Tesla V100-PCIE-32GB", "7.0", 32, "88.00.7E.00.03", 250, (1380, 877), True),
    ),
    dispatch_us=34, tflops={"float16": 112, "float32": 14}, kernel_us=5.5, gb_per_s=900,
)  # fmt: skip
RTX_2080_TI = System(
    "2080ti-01",
    _fingerprint(
        _cpu("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", (6, 79, 1), "0xb000040", 10, 3100, 25, avx512=False),
        64, "X10DRG-Q", "American Megatrends 3.2",
        _gpu("NVIDIA GeForce RTX 2080 Ti", "7.5", 11, "90.02.17.00.58", 250, (2100, 7000), None),
    ),
    dispatch_us=46, tflops={"float16": 54, "float32": 13.4},
)  # fmt: skip
RTX_8000 = System(
    "rtx8000-01",
    _fingerprint(
        _cpu("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", (6, 79, 1), "0xb000040", 10, 3100, 25, avx512=False),
        128, "X10DRG-Q", "American Megatrends 3.2",
        _gpu("Quadro RTX 8000", "7.5", 48, "90.02.30.00.04", 260, (2100, 7001), True),
    ),
    dispatch_us=46, tflops={"float16": 65, "float32": 16.3},
)  # fmt: skip
RTX_3090 = System(
    "3090-01",
    _fingerprint(
        _cpu("AMD EPYC 7282 16-Core Processor", (23, 49, 0), "0x8301055", 16, 2800, 64, avx512=False),
        128, "H12SSL-i", "American Megatrends 2.4",
        _gpu("NVIDIA GeForce RTX 3090", "8.6", 24, "94.02.42.00.A9", 350, (2100, 9751), None),
    ),
    dispatch_us=42, tflops={"float16": 71, "float32": 35.6}, kernel_us=4.5,
)  # fmt: skip
A100 = System(
    "a100-01",
    _fingerprint(
        _cpu("Intel(R) Xeon(R) Platinum 8339HC CPU @ 1.80GHz", (6, 85, 11), "0x700001e", 24, 3800, 33, avx512=True),
        512, "X12QCH+", "American Megatrends 1.4",
        _gpu("NVIDIA A100-PCIE-40GB", "8.0", 40, "92.00.25.00.08", 250, (1410, 1215), True),
    ),
    dispatch_us=38, tflops={"float16": 312, "float32": 19.5}, kernel_us=4.5, gb_per_s=1555,
)  # fmt: skip
CPU_ONLY = System(
    "epyc-01",
    _fingerprint(
        _cpu("AMD EPYC 7763 64-Core Processor", (25, 1, 1), "0xa0011d5", 64, 3500, 256, avx512=False),
        256, "H12DSU-iN", "American Megatrends 2.6", None,
    ),
    dispatch_us=4.6, tflops={"float16": 0.3, "float32": 1.1}, gb_per_s=160,
)  # fmt: skip
SYSTEMS = (V100, RTX_2080_TI, RTX_8000, RTX_3090, A100, CPU_ONLY)
