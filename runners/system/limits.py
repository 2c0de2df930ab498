"""What this process may use: control groups of both versions, and its processors."""

from dataclasses import dataclass
from typing import Callable, List, Optional, Tuple

from runners.system.reading import exists, parse_bytes, parse_int, read_fields, read_flag, read_int, read_text

_NO_LIMIT = 2**53
"""Version 1 writes a number near 2**63 where there is no limit."""


@dataclass(frozen=True)
class Limits:
    """The tightest limit of the process's control group and of its visible ancestors.

    Null means that there is no limit, unless `cgroup_version` is null too: then nothing is known.
    """

    cgroup_version: Optional[int]
    """1 where any controller is still mounted as version 1."""
    memory_bytes: Optional[int]
    cpu_millicores: Optional[int]
    """Processor time per time: 1500 is one and a half cores."""
    cpus: Optional[str]
    """Processors that this process may run on, as the kernel lists them: `0-3,8`."""
    memory_nodes: Optional[str]
    pids: Optional[int]
    oom_group: Optional[bool]
    """An out-of-memory kill takes the whole control group; null on version 1, which cannot."""


def probe(root: str = "/") -> Limits:
    """Reads the limits of this process as the system below `root` states them."""
    mounts = _mounts(root)
    status = read_fields(root, "/proc/self/status")
    memory = controller_directories(root, "memory")
    version = None if not mounts else 1 if any(mount.controllers is not None for mount in mounts) else 2
    return Limits(
        cgroup_version=version,
        memory_bytes=_tightest(memory, lambda path: _memory_bytes(root, path)),
        cpu_millicores=_tightest(controller_directories(root, "cpu"), lambda path: _cpu_millicores(root, path)),
        cpus=status.get("Cpus_allowed_list"),
        memory_nodes=status.get("Mems_allowed_list"),
        pids=_tightest(controller_directories(root, "pids"), lambda path: read_int(root, path + "/pids.max")),
        oom_group=_any([read_flag(root, path + "/memory.oom.group") for path in memory]),
    )


def free_memory_bytes(root: str = "/") -> Optional[int]:
    """What this process and its children may still take: of the machine, and of the limits of its control groups.

    The pages of files that a group no longer uses count as free: the kernel gives them back before it kills.
    """
    available = parse_bytes(read_fields(root, "/proc/meminfo").get("MemAvailable"))
    groups = [_free_in_group(root, path) for path in controller_directories(root, "memory")]
    return min((free for free in (available, *groups) if free is not None), default=None)


def controller_directories(root: str, controller: str) -> List[str]:
    """Directories that bind this process for one controller, its own first, then each visible ancestor."""
    mounts = _mounts(root)
    owner = next((mount for mount in mounts if controller in (mount.controllers or ())), None)
    owner = owner or next((mount for mount in mounts if mount.controllers is None), None)
    if owner is None:
        return []
    group = _group(root, controller if owner.controllers is not None else None)
    relative = _relative(group, owner.group_root)
    directories = []
    while relative:
        directories.append(owner.path + relative)
        relative = relative.rpartition("/")[0]
    directories.append(owner.path)
    return [path for path in directories if exists(root, path)]


@dataclass(frozen=True)
class _Mount:
    group_root: str
    path: str
    controllers: Optional[Tuple[str, ...]]
    """Null for the one hierarchy of version 2."""


def _mounts(root: str) -> List[_Mount]:
    mounts = []
    for line in (read_text(root, "/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(), after.split()
        if len(place) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            mounts.append(_Mount(place[3], place[4], None))
        elif kind[0] == "cgroup":
            mounts.append(_Mount(place[3], place[4], tuple(kind[2].split(","))))
    return mounts


def _group(root: str, controller: Optional[str]) -> str:
    for line in (read_text(root, "/proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" if controller is None else controller in controllers.split(","):
            return path
    return "/"


def _relative(group: str, group_root: str) -> str:
    # A container may see its own group mounted at the top while /proc still names it from the host's top.
    prefix = group_root.rstrip("/")
    if group != prefix and not group.startswith(prefix + "/"):
        return ""
    relative = group[len(prefix) :].rstrip("/")
    return "" if relative.startswith("/..") else relative


def _memory_bytes(root: str, path: str) -> Optional[int]:
    limit = read_int(root, path + "/memory.max")
    limit = read_int(root, path + "/memory.limit_in_bytes") if limit is None else limit
    return None if limit is None or limit >= _NO_LIMIT else limit


def _free_in_group(root: str, path: str) -> Optional[int]:
    limit, used = _memory_bytes(root, path), read_int(root, path + "/memory.current")
    used = read_int(root, path + "/memory.usage_in_bytes") if used is None else used
    if limit is None or used is None:
        return None
    counted = read_fields(root, path + "/memory.stat", " ")
    unused = parse_int(counted.get("total_inactive_file", counted.get("inactive_file")))
    return max(0, limit - used + (unused or 0))


def _cpu_millicores(root: str, path: str) -> Optional[int]:
    quota, _, period = (read_text(root, path + "/cpu.max") or "").partition(" ")
    quota_us = parse_int(quota) if quota else read_int(root, path + "/cpu.cfs_quota_us")
    period_us = parse_int(period) if period else read_int(root, path + "/cpu.cfs_period_us")
    return quota_us * 1000 // period_us if quota_us and period_us and quota_us > 0 else None


def _tightest(directories: List[str], limit_of: Callable[[str], Optional[int]]) -> Optional[int]:
    limits = (limit_of(path) for path in directories)
    return min((limit for limit in limits if limit is not None), default=None)


def _any(flags: List[Optional[bool]]) -> Optional[bool]:
    known = [flag for flag in flags if flag is not None]
    return any(known) if known else None
