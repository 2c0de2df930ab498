"""What a system is, as one document: also of a system whose files are mounted into a container that looks."""

import dataclasses
import platform
from dataclasses import dataclass
from typing import Any, Dict, Optional

from runners.contract import encode
from runners.system import nvml, topology
from runners.system.conditions import read
from runners.system.fingerprint import Fingerprint, collect, gpu_places
from runners.system.identity import hw_id, system_id


@dataclass(frozen=True)
class SystemRoot:
    """A system to look at."""

    root: str = "/"
    """Where its files are."""
    host_name: Optional[str] = None
    """Its name, where `root` is not `/`: in a container the kernel tells the container's."""


def describe_system(system: SystemRoot) -> Dict[str, Any]:
    """The document with `hw_id`, `system_id`, `fingerprint` and `conditions` of a system."""
    fingerprint = collect(system.root) if system.root == "/" else _collect_mounted(system)
    return {
        "hw_id": hw_id(fingerprint),
        "system_id": system_id(fingerprint),
        "fingerprint": encode(fingerprint),
        "conditions": read(system.root),
    }


def fingerprint_of_system(system: SystemRoot) -> Fingerprint:
    """The fingerprint of this very system."""
    return collect(system.root)


def _collect_mounted(system: SystemRoot) -> Fingerprint:
    """Below another root neither the running kernel nor the driver is asked, but here they are the host's own."""
    fingerprint, gpus = collect(system.root), nvml.probe()
    kernel, private = fingerprint.kernel, fingerprint.private
    assert private is not None
    return dataclasses.replace(
        fingerprint,
        kernel=dataclasses.replace(kernel, architecture=kernel.architecture or platform.machine()),
        gpus=gpus.devices,
        gpu_driver_version=gpus.driver_version,
        gpu_cuda_version=gpus.cuda_version,
        gpu_reason=gpus.reason,
        private=dataclasses.replace(
            private,
            host_name=system.host_name,
            gpu_uuids=gpus.uuids,
            topology=topology.probe(system.root, gpu_places(gpus)),
        ),
    )
