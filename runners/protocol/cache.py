"""Where references and artifacts are kept between trials, tasks, rounds and campaigns of a host."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Dict, Iterable, Iterator, List

from runners.backends.base import HEADERS, Backend
from runners.contract import METHOD_VERSION, CacheState, digest
from runners.contract.catalogue import workload_info
from runners.contract.catalogue.entries import CUDA
from runners.system import cpu, nvml

SCOPE_VARIABLE = "TAXMETER_CACHE_SCOPE"
"""Names what else decides the content of all entries: the environment, and the campaign that wants none of others."""

MAX_BYTES = 20 * 2**30
"""Of one cache, before a task begins."""

PARTIAL = ".partial-"
_MANIFEST = "manifest.json"
_LOCK = ".lock"
_PIECE_BYTES = 2**20


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

    def checked(self) -> CacheState:
        """Compares the entry with its manifest; removes it where it differs, else what the manifest does not name.

        Frameworks leave files beside what they read, and may read them the next time.
        """
        if not os.path.lexists(self.path):
            return CacheState.MISS
        if not _is_intact(self.path):
            _remove(self.path)
            return CacheState.REFUSED
        os.utime(self.path)
        return CacheState.HIT

    def publish(self, directory: str) -> None:
        """Moves a finished directory to its place; another process may have been faster with the same content."""
        seal(directory)
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
        "scope": os.environ.get(SCOPE_VARIABLE, ""),
        "processor": _processor(),
        "gpus": _gpus() if spec.device == CUDA else [],
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


@contextlib.contextmanager
def used(directory: str) -> Iterator[None]:
    """Holds a cache while a task uses it; who is alone with it first removes what nobody will read.

    Those are the least recently used entries above `MAX_BYTES`, what killed processes left, and headers that differ
    from their manifest. Of two tasks that run at once each sees what the other publishes.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if os.stat(directory).st_uid == os.geteuid():
        os.chmod(directory, 0o700)
    descriptor = os.open(os.path.join(directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if _has_locked(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            clean(directory, MAX_BYTES)
        _has_locked(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def clean(directory: str, limit_bytes: int) -> None:
    """Removes what killed processes left, damaged headers, and of the entries the least recently used above a limit."""
    Entry(os.path.join(directory, HEADERS)).checked()
    entries_by_age: List["os.DirEntry[str]"] = []
    for found in os.scandir(directory):
        if found.name.startswith(PARTIAL):
            _remove(found.path)
        elif found.name != _LOCK:
            entries_by_age.append(found)
    entries_by_age.sort(key=lambda found: found.stat(follow_symlinks=False).st_mtime, reverse=True)
    left_bytes = limit_bytes
    for found in entries_by_age:
        left_bytes -= sum(os.lstat(path).st_size for path in _files(found.path))
        if left_bytes < 0:
            _remove(found.path)


def seal(directory: str) -> None:
    """Writes the digests of all files below a directory into its manifest, which is seen whole or not at all."""
    found = {os.path.relpath(path, directory): _sha256(path) for path in _files(directory)}
    found.pop(_MANIFEST, None)
    temporary = os.path.join(directory, _MANIFEST + PARTIAL)
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.rename(temporary, os.path.join(directory, _MANIFEST))


def _has_locked(descriptor: int, kind: int) -> bool:
    """False if another task uses the cache, or its file system has no locks."""
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        return False
    return True


def _is_intact(directory: str) -> bool:
    try:
        with open(os.path.join(directory, _MANIFEST), "rb") as file:
            known = json.loads(file.read())
        present = {os.path.relpath(path, directory): path for path in _files(directory)}
        del present[_MANIFEST]
        for name in set(present) - set(known):
            os.unlink(present.pop(name))
        return all(name in present and _sha256(present[name]) == wanted for name, wanted in known.items())
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        # Whatever somebody wrote in place of a manifest
        return False


def _files(directory: str) -> List[str]:
    """All that is below a directory and is none itself; links are not followed."""
    if os.path.islink(directory) or not os.path.isdir(directory):
        return [directory]
    found = []
    for at, directories, names in os.walk(directory):
        found += [os.path.join(at, name) for name in names]
        found += [os.path.join(at, name) for name in directories if os.path.islink(os.path.join(at, name))]
    return found


def _sha256(path: str) -> str:
    summed = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        for piece in iter(functools.partial(file.read, _PIECE_BYTES), b""):
            summed.update(piece)
    return summed.hexdigest()


def _remove(path: str) -> None:
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
    else:
        shutil.rmtree(path)


@functools.lru_cache(maxsize=None)
def _processor() -> List[Any]:
    """What compiled code may depend on."""
    found = cpu.probe()
    return [found.vendor, found.model_name, found.family, found.model, found.stepping, found.flags]


@functools.lru_cache(maxsize=None)
def _gpus() -> List[Any]:
    found = nvml.probe()
    return [found.driver_version, [gpu.name for gpu in found.devices]]
