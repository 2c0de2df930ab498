"""Where processors and GPUs sit: what is needed to give several GPUs of a machine cores of their own.

It tells two identical machines apart that were only assembled differently, so it is part of no identity.
"""

from dataclasses import dataclass
from typing import FrozenSet, List, Optional, Sequence, Tuple

from runners.system.reading import list_names, parse_list, read_int, read_text

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_PCI = "/sys/bus/pci/devices"


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node that has processors."""

    number: int
    cpus: str
    """As the kernel lists them, such as `0-15,64-79`."""


@dataclass(frozen=True)
class GpuPlace:
    """A GPU and where it is; null where neither driver nor kernel say."""

    uuid: Optional[str]
    """As `nvidia-smi -L` prints it, with `GPU-`."""
    pci_bus_id: Optional[str]
    """As /sys names it, such as `0000:3b:00.0`."""
    numa_node: Optional[int] = None
    """Null also where the kernel says -1: it does not know, or there is only one."""
    cpus: Optional[str] = None
    """The processors that are near to it, as the kernel lists them."""
    mig: Optional[bool] = None
    """Whether it is divided into parts (MIG)."""


@dataclass(frozen=True)
class Topology:
    """Of a machine. What is unknown is missing."""

    cores: Tuple[str, ...] = ()
    """The hardware threads of each physical core, as the kernel lists them, such as `0,64`."""
    nodes: Tuple[NumaNode, ...] = ()
    gpus: Tuple[GpuPlace, ...] = ()
    """In the driver's order, which is that of the PCI bus."""


def probe(root: str = "/", gpus: Sequence[GpuPlace] = ()) -> Topology:
    """Reads the topology of the system below `root`.

    Args:
        root: where its /sys is.
        gpus: what the driver says of its GPUs; the kernel is asked where they are.
    """
    return Topology(_cores(root), _nodes(root), tuple(_placed(root, gpu) for gpu in gpus))


def bus_id(text: Optional[str]) -> Optional[str]:
    """A PCI address as /sys names it, from what NVIDIA's tools say: `00000000:3B:00.0`."""
    if not text:
        return None
    domain, _, rest = text.strip().lower().partition(":")
    return "%s:%s" % (domain[-4:], rest)


def _cores(root: str) -> Tuple[str, ...]:
    found: List[str] = []
    seen: FrozenSet[int] = frozenset()
    for cpu in sorted(parse_list(read_text(root, _CPUS + "/online"))):
        if cpu in seen:
            continue
        directory = "%s/cpu%d/topology/" % (_CPUS, cpu)
        text = read_text(root, directory + "core_cpus_list") or read_text(root, directory + "thread_siblings_list")
        if text is None:
            return ()
        found.append(text)
        seen = seen | parse_list(text)
    return tuple(found)


def _nodes(root: str) -> Tuple[NumaNode, ...]:
    nodes = []
    for name in list_names(root, _NODES, r"node\d+"):
        cpus = read_text(root, "%s/%s/cpulist" % (_NODES, name))
        if cpus is not None:
            nodes.append(NumaNode(int(name[len("node") :]), cpus))
    return tuple(nodes)


def _placed(root: str, gpu: GpuPlace) -> GpuPlace:
    if gpu.pci_bus_id is None:
        return gpu
    directory = "%s/%s/" % (_PCI, gpu.pci_bus_id)
    node = read_int(root, directory + "numa_node")
    return GpuPlace(
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id,
        numa_node=None if node is None or node < 0 else node,
        cpus=read_text(root, directory + "local_cpulist"),
        mig=gpu.mig,
    )
