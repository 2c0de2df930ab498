"""The few things that need the Linux kernel directly."""

import ctypes
import fcntl
import os
from typing import Dict, List, Optional, Set

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_F_ADD_SEALS = 1033
_F_SEAL_SHRINK = 2


def become_subreaper() -> None:
    """Orphaned descendants of this process are from now on its own children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """This process gets the signal when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def answer_file() -> int:
    """An anonymous file that survives its writer and cannot be shortened."""
    descriptor = os.memfd_create("answer", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK)
    return descriptor


def read_file(descriptor: int, limit: int) -> bytes:
    """Up to `limit` bytes from the start of a file, wherever its position is."""
    data = b""
    while len(data) < limit:
        block = os.pread(descriptor, min(1 << 20, limit - len(data)), len(data))
        if not block:
            break
        data += block
    return data


def oom_kills() -> Optional[int]:
    """Processes of this control group that the kernel killed for memory; None if it does not say."""
    for path in _oom_counter_paths(_text("/proc/self/cgroup")):
        for line in _text(path).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def descendants(ancestor: int) -> List[int]:
    """All living processes below a process; those that are dead and not reaped are left out."""
    children: Dict[int, List[int]] = {}
    dead: Set[int] = set()
    for name in os.listdir("/proc"):
        # The name of a program may hold anything, so fields are counted from its closing parenthesis
        fields = _text("/proc/%s/stat" % name).rpartition(")")[2].split() if name.isdigit() else []
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(name))
            if fields[0] in "ZX":
                dead.add(int(name))
    found: List[int] = []
    queue = [ancestor]
    while queue:
        below = children.get(queue.pop(), [])
        queue.extend(below)
        found.extend(pid for pid in below if pid not in dead)
    return found


def _oom_counter_paths(own_groups: str) -> List[str]:
    paths = []
    for line in own_groups.splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths.append("/sys/fs/cgroup/memory%s/memory.oom_control" % group.rstrip("/"))
        if not controllers:
            paths.append("/sys/fs/cgroup%s/memory.events" % group.rstrip("/"))
    # In a container the group's path is often that of the host, while its files are mounted at the root
    return [*paths, "/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"]


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d) failed" % option)
