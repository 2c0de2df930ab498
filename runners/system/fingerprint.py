"""The fingerprint: all that is stable about a system. What changes by itself is in `conditions`."""

from dataclasses import dataclass
from typing import Optional, Tuple

from runners.system import cpu, kernel, limits, nvml, topology
from runners.system.cpu import Cpu
from runners.system.kernel import Kernel, Machine, Memory, Virtualisation
from runners.system.limits import Limits
from runners.system.nvml import Gpu, Gpus
from runners.system.reading import read_text
from runners.system.topology import GpuPlace, Topology


@dataclass(frozen=True)
class Private:
    """What tells two identical systems apart. It is part of no identity and can be left out of an export."""

    host_name: Optional[str]
    boot_id: Optional[str]
    gpu_uuids: Tuple[Optional[str], ...]
    """In the order of `gpus`."""
    topology: Optional[Topology] = None
    """Null where nobody looked."""


@dataclass(frozen=True)
class Fingerprint:
    """Numbers are integers in the unit that their name gives; null is unknown, and never 0."""

    cpu: Cpu
    memory: Memory
    machine: Machine
    kernel: Kernel
    virtualisation: Virtualisation
    limits: Limits
    """Of the process that looked."""
    gpus: Tuple[Gpu, ...]
    gpu_driver_version: Optional[str]
    gpu_cuda_version: Optional[str]
    gpu_reason: Optional[str]
    """Why `gpus` is empty; null if it is not."""
    private: Optional[Private]


def collect(root: str = "/") -> Fingerprint:
    """Reads the fingerprint of the system whose /proc, /sys and /etc are below `root`.

    Only below `/` are the process, its tools and NVML asked as well. Nothing needs root's rights, and what is
    missing is null.
    """
    gpus = nvml.probe() if root == "/" else Gpus((), (), None, None, "not asked below another root")
    return Fingerprint(
        cpu=cpu.probe(root),
        memory=kernel.probe_memory(root),
        machine=kernel.probe_machine(root),
        kernel=kernel.probe_kernel(root),
        virtualisation=kernel.probe_virtualisation(root),
        limits=limits.probe(root),
        gpus=gpus.devices,
        gpu_driver_version=gpus.driver_version,
        gpu_cuda_version=gpus.cuda_version,
        gpu_reason=gpus.reason,
        private=Private(
            host_name=read_text(root, "/proc/sys/kernel/hostname"),
            boot_id=read_text(root, "/proc/sys/kernel/random/boot_id"),
            gpu_uuids=gpus.uuids,
            topology=topology.probe(root, gpu_places(gpus)),
        ),
    )


def gpu_places(gpus: Gpus) -> Tuple[GpuPlace, ...]:
    """The GPUs as far as their driver tells where they are."""
    found = zip(gpus.devices, gpus.uuids, gpus.bus_ids)
    return tuple(GpuPlace(uuid, topology.bus_id(place), mig=gpu.mig) for gpu, uuid, place in found)
