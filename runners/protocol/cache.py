"""Where references and artifacts are kept between trials, tasks and rounds."""

import os
import platform
import shutil
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Dict, Iterable

from runners.backends.base import Backend
from runners.contract import METHOD_VERSION, digest
from runners.contract.catalogue import workload_info


@dataclass(frozen=True)
class Entry:
    """One directory of the cache. It is complete from the moment it exists."""

    path: str

    @property
    def exists(self) -> bool:
        """Whether an earlier process published it."""
        return os.path.isdir(self.path)

    def file(self, name: str) -> str:
        """A file of the entry."""
        return os.path.join(self.path, name)

    def publish(self, directory: str) -> None:
        """Moves a finished directory to its place; another process may have been faster with the same content."""
        try:
            os.rename(directory, self.path)
        except OSError:
            if not self.exists:
                raise
            shutil.rmtree(directory)


@dataclass(frozen=True)
class CacheEntries:
    """The entries that one trial reads."""

    reference: Entry
    artifact: Entry
    reference_batch: int
    """The batch for which the reference is computed; smaller ones take its first rows."""


def entries(directory: str, backend: Backend, runner_sha256: str, reference_batch: int) -> CacheEntries:
    """Names the entries by a digest of all that decides their content.

    The number of threads is left out: it moves results by far less than the tolerances.
    """
    spec = backend.spec
    common: Dict[str, Any] = {
        "method": METHOD_VERSION,
        "runner": runner_sha256,
        "workload": spec.workload,
        "seed": spec.seed,
        "dtype": spec.dtype,
        "device": spec.device,
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    frameworks = workload_info(spec.workload).frameworks
    workload_versions = _versions(frameworks)
    artifact_versions = _versions({*frameworks, *backend.artifact_frameworks()})
    reference = dict(
        common,
        kind="reference",
        workload=replace(spec.workload, batch=reference_batch),
        versions=workload_versions,
    )
    artifact = dict(
        common,
        kind="artifact",
        workload=backend.artifact_workload(),
        versions=artifact_versions,
        made_by=backend.artifact_kind(),
        identity=backend.artifact_identity(),
    )
    return CacheEntries(
        reference_batch=reference_batch,
        reference=Entry(os.path.join(directory, "reference-" + digest(reference))),
        artifact=Entry(os.path.join(directory, "artifact-" + digest(artifact))),
    )


def _versions(distributions: Iterable[str]) -> Dict[str, str]:
    versions = {}
    for name in sorted(distributions):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    return versions
