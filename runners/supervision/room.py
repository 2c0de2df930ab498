"""Whether one more process fits beside those that live: in memory, on the host and on its GPUs."""

from typing import Callable, Dict, Optional, Tuple

from runners.system.gpu_state import GpuState
from runners.system.limits import free_memory_bytes
from runners.system.reading import parse_bytes, read_fields

_BYTES_PER_MIB = 2**20
_HOST = "memory"
_PRIVATE = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")


class Room:
    """Compares what is free with what the largest process of a session took, which is what the next may take."""

    def __init__(
        self,
        read_gpus: Callable[[], Tuple[GpuState, ...]],
        free_bytes: Callable[[], Optional[int]] = free_memory_bytes,
        limit_bytes: Optional[int] = None,
    ) -> None:
        """Looks at what is free before the first process.

        Args:
            read_gpus: reads the GPUs of the session; none for one on a CPU.
            free_bytes: of the host, null if it does not tell.
            limit_bytes: of all processes together, which nothing else keeps; null where a container does.
        """
        self._read_gpus, self._free_bytes, self._limit_bytes = read_gpus, free_bytes, limit_bytes
        self._private: Dict[int, int] = {}
        self._largest: Dict[str, float] = {}
        self._free = self._look()

    def shortage(self) -> Optional[str]:
        """Why no further process fits; None if one does, or nothing tells."""
        self._free = self._look()
        for place, largest in self._largest.items():
            free = self._free.get(place, largest)
            if free < largest:
                return "%d MiB of %s are free, and the largest of its session takes %d MiB" % (free, place, largest)
        return None

    def entered(self, pid: int) -> None:
        """A process is warmed up, and has taken what it needs: on the host at its peak, on a GPU what is gone."""
        taken = {place: self._free[place] - free for place, free in self._look().items() if place in self._free}
        self._private[pid] = peak_private_bytes(pid)
        taken[_HOST] = self._private[pid] / _BYTES_PER_MIB
        for place, size in taken.items():
            self._largest[place] = max(size, self._largest.get(place, 0.0))

    def left(self, pid: int) -> None:
        """A process has ended."""
        self._private.pop(pid, None)

    def _look(self) -> Dict[str, float]:
        free = {"gpu%d" % gpu.number: gpu.memory_free_mib for gpu in self._read_gpus()}
        left = None if self._limit_bytes is None else self._limit_bytes - sum(self._private.values())
        host = min((size for size in (self._free_bytes(), left) if size is not None), default=None)
        free[_HOST] = None if host is None else host / _BYTES_PER_MIB
        return {place: size for place, size in free.items() if size is not None}


def peak_private_bytes(pid: int, root: str = "/") -> int:
    """What a process had at its peak beside the pages that it shares, as far as the kernel tells."""
    status = read_fields(root, "/proc/%d/status" % pid)
    rollup = read_fields(root, "/proc/%d/smaps_rollup" % pid)
    resident, peak = (parse_bytes(status.get(name)) or 0 for name in ("VmRSS", "VmHWM"))
    private = sum(parse_bytes(rollup.get(name)) or 0 for name in _PRIVATE) if rollup else resident
    return private + max(0, peak - resident)
