"""What is stable about the processors."""

import re
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Optional, Set, Tuple

from runners.system.reading import (
    list_names,
    parse_bytes,
    parse_int,
    parse_list,
    read_flag,
    read_int,
    read_text,
)

_CPUS = "/sys/devices/system/cpu"
_FLAGS = re.compile(
    r"(sse4_2|f16c|fma|avx|avx2|avx_vnni.*|avx512.*|avx10.*|amx.*|fphp|asimd.*|sve.*|sme(?!p$).*|bf16|i8mm)"
)
_ARM_VENDORS = {0x41: "ARM", 0x48: "HiSilicon", 0x4E: "NVIDIA", 0x51: "Qualcomm", 0x61: "Apple", 0xC0: "Ampere"}
_ARM_PARTS = {
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0xC0, 0xAC3): "Ampere-1",
}


@dataclass(frozen=True)
class Cache:
    """One kind of cache; every cache of this kind on the machine is alike."""

    level: int
    type: str
    """`Data`, `Instruction` or `Unified`."""
    size_bytes: Optional[int]
    ways: Optional[int]
    shared_by: int
    """Hardware threads that share one such cache."""
    instances: int


@dataclass(frozen=True)
class Cpu:
    """Null where the kernel does not say: a virtual machine has no frequency scaling, ARM has no family."""

    vendor: Optional[str]
    model_name: Optional[str]
    family: Optional[int]
    model: Optional[int]
    stepping: Optional[int]
    microcode: Optional[str]
    sockets: Optional[int]
    cores: Optional[int]
    """Physical cores that are online, over all sockets."""
    threads: Optional[int]
    """Hardware threads that are online, whatever this process may use."""
    smt_active: Optional[bool]
    numa_nodes: Optional[int]
    """Nodes that have processors; memory of an accelerator can be a node too and is not counted."""
    caches: Tuple[Cache, ...]
    flags: Tuple[str, ...]
    """Vector and matrix extensions that the kernel reports, sorted."""
    max_frequency_hz: Optional[int]
    frequency_driver: Optional[str]
    governor: Optional[str]
    """Of all cores; several, sorted and joined with a comma, if they differ."""
    energy_preference: Optional[str]
    boost: Optional[bool]
    idle_driver: Optional[str]
    idle_governor: Optional[str]


def probe(root: str = "/") -> Cpu:
    """Reads the processors of the system below `root`."""
    info = _cpuinfo(root)
    first = info[0] if info else {}
    online = parse_list(read_text(root, _CPUS + "/online"))
    cores = _count_groups(root, online, ("core_cpus_list", "thread_siblings_list"))
    sockets = _count_groups(root, online, ("package_cpus_list", "core_siblings_list"))
    threads = len(online) or len(info) or None
    smt = read_flag(root, _CPUS + "/smt/active")
    cores = cores or _count_distinct(info, ("physical id", "core id"))
    vendor, model_name = _name(first)
    policies = _policies(root)
    return Cpu(
        vendor=vendor,
        model_name=model_name,
        family=parse_int(first.get("cpu family")),
        model=parse_int(first.get("model")) if "model" in first else _hex(first.get("CPU part")),
        stepping=parse_int(first.get("stepping")) if "stepping" in first else _arm_stepping(first),
        microcode=read_text(root, _CPUS + "/cpu0/microcode/version") or first.get("microcode"),
        sockets=sockets or _count_distinct(info, ("physical id",)),
        cores=cores,
        threads=threads,
        smt_active=threads > cores if smt is None and threads and cores else smt,
        numa_nodes=len(parse_list(read_text(root, "/sys/devices/system/node/has_cpu"))) or None,
        caches=_caches(root, online),
        flags=tuple(sorted(flag for flag in _words(first) if _FLAGS.fullmatch(flag))),
        max_frequency_hz=_max_frequency_hz(root, policies),
        frequency_driver=_joined(root, policies, "scaling_driver"),
        governor=_joined(root, policies, "scaling_governor"),
        energy_preference=_joined(root, policies, "energy_performance_preference"),
        boost=_boost(root),
        idle_driver=read_text(root, _CPUS + "/cpuidle/current_driver"),
        idle_governor=read_text(root, _CPUS + "/cpuidle/current_governor_ro"),
    )


def _cpuinfo(root: str) -> List[Dict[str, str]]:
    blocks = (read_text(root, "/proc/cpuinfo") or "").split("\n\n")
    parsed = []
    for block in blocks:
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if "processor" in fields:
            parsed.append(fields)
    return parsed


def _words(info: Dict[str, str]) -> Set[str]:
    return set(info.get("flags", info.get("Features", "")).split())


def _name(info: Dict[str, str]) -> Tuple[Optional[str], Optional[str]]:
    if "CPU implementer" not in info:
        return info.get("vendor_id"), info.get("model name")
    implementer, part = _hex(info["CPU implementer"]), _hex(info.get("CPU part"))
    if implementer is None or part is None:
        return None, info.get("model name")
    vendor = _ARM_VENDORS.get(implementer, "0x%02x" % implementer)
    return vendor, _ARM_PARTS.get((implementer, part), "%s part 0x%03x" % (vendor, part))


def _arm_stepping(info: Dict[str, str]) -> Optional[int]:
    variant, revision = _hex(info.get("CPU variant")), parse_int(info.get("CPU revision"))
    return None if variant is None or revision is None else variant * 16 + revision


def _hex(text: Optional[str]) -> Optional[int]:
    return int(text, 16) if text is not None and re.fullmatch(r"0x[0-9a-f]+", text) else None


def _count_distinct(info: List[Dict[str, str]], keys: Tuple[str, ...]) -> Optional[int]:
    return len({tuple(block[key] for key in keys) for block in info if all(key in block for key in keys)}) or None


def _count_groups(root: str, online: FrozenSet[int], names: Tuple[str, ...]) -> Optional[int]:
    # The file of one thread names its whole group, so a machine of 256 threads needs one read per group.
    grouped: Set[int] = set()
    groups = 0
    for cpu in sorted(online):
        if cpu in grouped:
            continue
        texts = (read_text(root, "%s/cpu%d/topology/%s" % (_CPUS, cpu, name)) for name in names)
        members = parse_list(next((text for text in texts if text), None))
        if not members:
            return None
        grouped |= members
        groups += 1
    return groups or None


def _caches(root: str, online: FrozenSet[int]) -> Tuple[Cache, ...]:
    covered: Dict[str, Set[int]] = {}
    instances: Dict[Tuple[int, str, Optional[int], Optional[int], int], int] = {}
    for cpu in sorted(online):
        directory = "%s/cpu%d/cache" % (_CPUS, cpu)
        for index in list_names(root, directory, r"index\d+"):
            if cpu in covered.setdefault(index, set()):
                continue
            path = directory + "/" + index
            level, kind = read_int(root, path + "/level"), read_text(root, path + "/type")
            sharing = parse_list(read_text(root, path + "/shared_cpu_list")) & online
            if level is None or kind is None or not sharing:
                continue
            covered[index] |= sharing
            size_bytes = parse_bytes(read_text(root, path + "/size"))
            ways = read_int(root, path + "/ways_of_associativity")
            cache = (level, kind, size_bytes, ways, len(sharing))
            instances[cache] = instances.get(cache, 0) + 1
    ordered = sorted(instances, key=lambda cache: (cache[0], cache[1], cache[2] or 0, cache[3] or 0, cache[4]))
    return tuple(Cache(*cache, instances=instances[cache]) for cache in ordered)


def _policies(root: str) -> List[str]:
    return [_CPUS + "/cpufreq/" + name for name in list_names(root, _CPUS + "/cpufreq", r"policy\d+")]


def _joined(root: str, policies: List[str], name: str) -> Optional[str]:
    values = {read_text(root, policy + "/" + name) for policy in policies} - {None}
    return ",".join(sorted(value for value in values if value)) or None


def _max_frequency_hz(root: str, policies: List[str]) -> Optional[int]:
    read = (read_int(root, policy + "/cpuinfo_max_freq") for policy in policies)
    return max((khz * 1000 for khz in read if khz), default=None)


def _boost(root: str) -> Optional[bool]:
    no_turbo = read_flag(root, _CPUS + "/intel_pstate/no_turbo")
    return read_flag(root, _CPUS + "/cpufreq/boost") if no_turbo is None else not no_turbo
