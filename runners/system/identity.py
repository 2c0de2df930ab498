"""Two identities of a system, each the digest of a list of fields that stands here in full.

`hw_id` says that two machines are built alike and is the key to compare by. `system_id` says that they are set
up alike too. Neither holds a host name, a serial number, a GPU's UUID, a boot id, load or free memory.
"""

from typing import Any, Dict, Optional, Sequence

from runners.contract import canonical_json, digest
from runners.contract.record import FactValue
from runners.system.fingerprint import Fingerprint

IDENTITY_VERSION = 1
"""Version of the two field lists. It is digested with them: raise it with every change of a list."""

_LENGTH = 32


def hw_id(fingerprint: Fingerprint) -> str:
    """Identity of what a machine is built of: 32 hexadecimal characters."""
    return digest(hardware_fields(fingerprint))[:_LENGTH]


def system_id(fingerprint: Fingerprint) -> str:
    """Identity of a machine with its software and settings: 32 hexadecimal characters."""
    return digest(system_fields(fingerprint))[:_LENGTH]


def hardware_fields(fingerprint: Fingerprint) -> Dict[str, Any]:
    """What `hw_id` digests.

    Threads are not in it, because simultaneous multithreading is a setting; nor are the extensions of the
    instruction set, because what is seen of them depends on the kernel.
    """
    cpu = fingerprint.cpu
    return {
        "version": IDENTITY_VERSION,
        "architecture": fingerprint.kernel.architecture,
        "cpu_vendor": cpu.vendor,
        "cpu_model_name": cpu.model_name,
        "cpu_family": cpu.family,
        "cpu_model": cpu.model,
        "cpu_stepping": cpu.stepping,
        "cpu_sockets": cpu.sockets,
        "cpu_cores": cpu.cores,
        "cpu_numa_nodes": cpu.numa_nodes,
        "cpu_caches": [[c.level, c.type, c.size_bytes, c.ways, c.instances] for c in cpu.caches],
        "memory_gib": _whole_gib(fingerprint.memory.total_bytes),
        "gpus": _sorted_or_null(fingerprint, [[gpu.name, gpu.vbios] for gpu in fingerprint.gpus]),
    }


def system_fields(fingerprint: Fingerprint) -> Dict[str, Any]:
    """What `system_id` digests: the hardware and all settings that can move a measurement."""
    cpu, kernel = fingerprint.cpu, fingerprint.kernel
    settings = [
        [g.name, g.vbios, g.power_limit_mw, g.persistence, g.ecc, g.mig, g.compute_mode] for g in fingerprint.gpus
    ]
    return {
        "hardware": hardware_fields(fingerprint),
        "firmware": fingerprint.machine.firmware,
        "cpu_microcode": cpu.microcode,
        "cpu_flags": cpu.flags,
        "cpu_threads": cpu.threads,
        "cpu_smt_active": cpu.smt_active,
        "cpu_frequency_driver": cpu.frequency_driver,
        "cpu_governor": cpu.governor,
        "cpu_energy_preference": cpu.energy_preference,
        "cpu_boost": cpu.boost,
        "cpu_idle_driver": cpu.idle_driver,
        "cpu_idle_governor": cpu.idle_governor,
        "transparent_huge_pages": fingerprint.memory.transparent_huge_pages,
        "kernel_release": kernel.release,
        "kernel_version": kernel.version,
        "kernel_command_line": kernel.command_line,
        "kernel_clocksource": kernel.clocksource,
        "kernel_mitigations": kernel.mitigations,
        "libc": kernel.libc,
        "vm": fingerprint.virtualisation.vm,
        "limits": fingerprint.limits,
        "gpu_driver_version": fingerprint.gpu_driver_version,
        "gpu_settings": _sorted_or_null(fingerprint, settings),
    }


def hot_columns(fingerprint: Fingerprint) -> Dict[str, FactValue]:
    """The few fields that every row of a trial carries."""
    names = sorted({gpu.name for gpu in fingerprint.gpus if gpu.name is not None})
    virtualisation = fingerprint.virtualisation
    return {
        "cpu_model": fingerprint.cpu.model_name,
        "cpu_cores": fingerprint.cpu.cores,
        "cpu_threads": fingerprint.cpu.threads,
        "memory_bytes": fingerprint.memory.total_bytes,
        "kernel": fingerprint.kernel.release,
        "virtualisation": virtualisation.hypervisor or ("vm" if virtualisation.vm else None),
        "gpu_name": ", ".join(names) or None,
        "gpu_count": len(fingerprint.gpus) if _gpus_known(fingerprint) else None,
        "driver_version": fingerprint.gpu_driver_version,
    }


def _whole_gib(size_bytes: Optional[int]) -> Optional[int]:
    return None if size_bytes is None else (size_bytes + 2**29) // 2**30


def _gpus_known(fingerprint: Fingerprint) -> bool:
    return bool(fingerprint.gpus) or fingerprint.gpu_driver_version is not None


def _sorted_or_null(
    fingerprint: Fingerprint, rows: Sequence[Sequence[FactValue]]
) -> Optional[Sequence[Sequence[FactValue]]]:
    # The order of the slots is no property of the machine.
    return sorted(rows, key=canonical_json) if _gpus_known(fingerprint) else None
