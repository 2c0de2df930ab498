"""Peak memory of one call: of the process on the host, of the allocator and the process on the device."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from runners.contract.record import FactValue
from runners.system.gpu_state import read_gpus
from runners.system.reading import below, parse_bytes, read_fields

_BYTES_PER_MIB = 2**20
# The kernel counts resident pages per thread or CPU and adds them up with some delay
_COUNTING_SLACK_BYTES = 8 << 20


def host_memory(call: Callable[..., Any], ring: Sequence[Tuple[Any, ...]], root: str = "/") -> Dict[str, FactValue]:
    """Makes one call and reads what the kernel counted for this process.

    The peak is what was resident at once during the call, with the interpreter, libraries and weights.

    Args:
        call: what is examined.
        ring: its inputs; the first is used.
        root: where /proc lies.

    Returns:
        `memory_peak_rss_bytes` (`VmHWM`); after the call `memory_uss_bytes` (pages of this process alone) and
        `memory_pss_bytes` (with its share of common pages); `memory_problem`.
    """
    problems: List[str] = []
    reset = _reset_peak(root)
    call(*ring[0])
    peak = _status_bytes(root, "VmHWM")
    if reset is not None:
        problems.append(reset)
        peak = None
    elif peak is None:
        problems.append("/proc/self/status has no VmHWM")
    rollup = read_fields(root, "/proc/self/smaps_rollup")
    if not rollup:
        problems.append("/proc/self/smaps_rollup cannot be read")
    return {
        "memory_peak_rss_bytes": peak,
        "memory_uss_bytes": _sum(rollup, ("Private_Clean", "Private_Dirty", "Private_Hugetlb")),
        "memory_pss_bytes": parse_bytes(rollup.get("Pss")),
        "memory_problem": "; ".join(problems) or None,
    }


def device_used() -> Optional[int]:
    """Bytes in use on the GPU of this process, by all processes; null where NVML does not tell, or shows several."""
    gpus = read_gpus()
    used = gpus[0].memory_used_mib if len(gpus) == 1 else None
    return None if used is None else int(used * _BYTES_PER_MIB)


def device_memory(
    call: Callable[..., Any],
    ring: Sequence[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    before_bytes: Optional[int],
    allocates_by_torch: bool,
) -> Dict[str, FactValue]:
    """Makes one call and reads what the CUDA allocator of torch and the driver counted.

    Args:
        call: what is examined.
        ring: its inputs; the first is used.
        synchronize: waits for the device.
        before_bytes: `device_used` before this process used the device.
        allocates_by_torch: else the peaks of torch's allocator are of bound tensors alone, and null.

    Returns:
        `memory_device_allocated_peak_bytes` and `memory_device_reserved_peak_bytes` of torch's allocator;
        `memory_device_used_bytes` (the whole device with all its processes, after the call) and by how much that is
        more than before, `memory_device_process_bytes` (this process with its context and all frameworks, as long as
        nobody else comes or goes); `memory_device_before_bytes`; `memory_device_problem`.
    """
    import torch

    torch.cuda.reset_peak_memory_stats()
    call(*ring[0])
    if synchronize is not None:
        synchronize()
    used = device_used()
    known = used is not None and before_bytes is not None
    return {
        "memory_device_allocated_peak_bytes": torch.cuda.max_memory_allocated() if allocates_by_torch else None,
        "memory_device_reserved_peak_bytes": torch.cuda.max_memory_reserved() if allocates_by_torch else None,
        "memory_device_process_bytes": used - before_bytes if known else None,  # type: ignore[operator]
        "memory_device_used_bytes": used,
        "memory_device_before_bytes": before_bytes,
        "memory_device_problem": None if known else "NVML does not tell how much of the device is in use",
    }


def _reset_peak(root: str) -> Optional[str]:
    """Sets VmHWM back to what is resident now; says why if that fails."""
    try:
        with open(below(root, "/proc/self/clear_refs"), "w") as file:
            file.write("5")
    except OSError as error:
        return "the peak cannot be reset: %s" % error.strerror
    peak, resident = _status_bytes(root, "VmHWM"), _status_bytes(root, "VmRSS")
    if peak is not None and resident is not None and peak > resident + _COUNTING_SLACK_BYTES:
        return "the kernel did not reset the peak"
    return None


def _status_bytes(root: str, name: str) -> Optional[int]:
    return parse_bytes(read_fields(root, "/proc/self/status").get(name))


def _sum(fields: Dict[str, str], names: Sequence[str]) -> Optional[int]:
    values = [parse_bytes(fields[name]) for name in names if name in fields]
    known = [value for value in values if value is not None]
    return sum(known) if known else None
