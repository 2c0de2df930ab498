"""Peak memory of one call: of the process on the host, of the allocator and the process on the device."""

import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from runners.contract.record import FactValue
from runners.examination.gpu import GpuUnavailable, gpu_of_torch, nvml_device
from runners.system.reading import below, parse_bytes, read_fields

# PROC_PID_INIT_INO of the kernel: the number of the first namespace, the same on every machine
_HOST_PID_NAMESPACE = "pid:[4026531836]"
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


def device_memory(
    call: Callable[..., Any],
    ring: Sequence[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    root: str = "/",
) -> Dict[str, FactValue]:
    """Makes one call and reads what the CUDA allocator of torch and the driver counted.

    Other frameworks allocate beside torch: only the driver's numbers cover them.

    Returns:
        `memory_device_allocated_peak_bytes` and `memory_device_reserved_peak_bytes` of torch's allocator;
        `memory_device_process_bytes` (this process, context included) and `memory_device_used_bytes` (the whole device
        with all its processes) of the driver, after the call; `memory_device_problem`.
    """
    facts: Dict[str, FactValue] = dict.fromkeys(
        (
            "memory_device_allocated_peak_bytes",
            "memory_device_reserved_peak_bytes",
            "memory_device_process_bytes",
            "memory_device_used_bytes",
            "memory_device_problem",
        )
    )
    try:
        gpu = gpu_of_torch()
    except GpuUnavailable as reason:
        facts["memory_device_problem"] = str(reason)
        return facts
    import torch

    torch.cuda.reset_peak_memory_stats()
    call(*ring[0])
    if synchronize is not None:
        synchronize()
    facts["memory_device_allocated_peak_bytes"] = torch.cuda.max_memory_allocated()
    facts["memory_device_reserved_peak_bytes"] = torch.cuda.max_memory_reserved()
    facts.update(_driver_facts(gpu.uuid, root))
    return facts


def _driver_facts(uuid: Optional[str], root: str) -> Dict[str, FactValue]:
    try:
        with nvml_device(uuid) as device:
            memory = device.ask("nvmlDeviceGetMemoryInfo")
            processes = device.ask("nvmlDeviceGetComputeRunningProcesses")
    except GpuUnavailable as reason:
        return {"memory_device_problem": str(reason)}
    used, problem = own_memory(processes, os.getpid(), _pid_namespace(root))
    return {
        "memory_device_process_bytes": used,
        "memory_device_used_bytes": None if memory is None else int(memory.used),
        "memory_device_problem": problem,
    }


def own_memory(
    processes: Optional[Sequence[Any]], pid: int, pid_namespace: Optional[str]
) -> Tuple[Optional[int], Optional[str]]:
    """The device memory of this process among those that NVML lists, or why it cannot be told.

    NVML numbers processes as the host does. In a namespace of its own a process has another number there, and its own
    number may be a stranger's.
    """
    if processes is None:
        return None, "the driver lists no processes"
    if pid_namespace != _HOST_PID_NAMESPACE:
        return None, "NVML numbers processes as the host does, and this process is not in the host's PID namespace"
    for process in processes:
        if process.pid == pid:
            if process.usedGpuMemory is None:
                return None, "the driver does not say how much memory a process uses"
            return int(process.usedGpuMemory), None
    return None, "NVML does not list this process"


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


def _pid_namespace(root: str) -> Optional[str]:
    try:
        return os.readlink(below(root, "/proc/self/ns/pid"))
    except OSError:
        return None
