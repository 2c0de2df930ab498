"""The one seam between taxmeter and a machine: how a host is asked, told and given things, whatever kind it is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import Base64Bytes

from orchestrator.config import ExecutorChoice, Host, HostState
from orchestrator.errors import InfrastructureError
from orchestrator.files import write_atomically
from orchestrator.hosts.calls import Answer, Argument
from orchestrator.hosts.check.clock import Skew
from orchestrator.hosts.check.engine import EngineFacts, Requirements, WantedImage
from orchestrator.hosts.check.findings import (
    Check,
    Finding,
    HostReport,
    failure,
    fine,
    judge,
    nothing,
    version_finding,
    warning,
)
from orchestrator.hosts.check.preflight import ENGINE_ROOTS, Preflight
from orchestrator.hosts.connection import Deadline
from orchestrator.hosts.engine import HostEngine
from orchestrator.planning import GpuFacts, Isolation
from runners.system import Fingerprint, Topology

MEMORY_SHARE: Final = 0.9
"""Of a host's memory, what a trial may take: beyond it the kernel would kill others instead of the trial."""
PLACE_S: Final = 600.0
"""For the files that are placed at once on a host."""
_NOT_LOOKED_AT: Final = nothing("-")


@dataclass(frozen=True)
class Interpreter:
    """A Python of a host in which trials run as they find it: no engine, no agent and nothing of ours is there."""

    python: str
    versions: Mapping[str, str]
    """Of every distribution that is installed, and `python`."""
    relay: Path
    """Socket of this machine through which its tasks go there."""


@dataclass(frozen=True)
class HostFacts:
    """What a host is, as it was looked at once for a command; null where it does not say."""

    host: str
    cores: tuple[int, ...]
    """Processors that processes of ours may use there."""
    memory_bytes: int | None
    """Of the machine, or what it is limited to where that is less."""
    architecture: str | None
    cpu_model: str | None
    gpus: tuple[GpuFacts, ...]
    """All that its driver shows, in the driver's order; those of `topology.gpus` by the same index."""
    gpu_driver_version: str | None
    gpu_reason: str | None
    """Why there is no GPU; null if there is one."""
    topology: Topology
    isolation: Isolation
    isolation_reason: str
    """Why trials run in containers, or without: for the rows."""
    engine: str | None
    """Address of the engine as processes on the host reach it; null for the usual one, or without an engine."""
    work_directory: str
    """Absolute; where the host keeps our files."""
    niceness: int = 0
    """At which processes of ours run there."""
    fingerprint: Fingerprint | None = None
    """Read where the rows of its trials are made; null for a host that has no agent yet."""
    interpreter: Interpreter | None = None
    """What the inventory names in place of an engine; null where environments are made for trials."""

    @property
    def trial_memory_bytes(self) -> int | None:
        """What a trial may take of its memory; null if its size is unknown."""
        return None if self.memory_bytes is None else int(self.memory_bytes * MEMORY_SHARE)


@dataclass(frozen=True)
class SystemDescription:
    """All that is read about a host, for people."""

    read: str
    """How it was read, and what that means for it."""
    document: Mapping[str, Any]
    """With `hw_id`, `system_id`, `fingerprint` and `conditions`."""


class Way(Enum):
    """How a host is reached, as the table shows it."""

    HERE = "here"
    SSH = "ok"
    RAY = "ray"


class HostAccess(ABC):
    """One host of the inventory. Every failure is an InfrastructureError whose text does not name the host."""

    way: Way

    def __init__(self, name: str, settings: Host, work_directory: str) -> None:
        """Asks nothing yet.

        Args:
            work_directory: where it keeps our files, unless the settings name another place.
        """
        self.name = name
        self.settings = settings
        self.work_directory = settings.work_directory or work_directory
        self._facts: HostFacts | None = None

    def facts(self) -> HostFacts:
        """What it is. It is looked at once; later calls give the same answer. Nothing is changed there.

        Raises:
            InfrastructureError: it cannot be reached, or cannot be used; says why and what to do.
        """
        if self._facts is None:
            self._facts = self.read_facts()
        return self._facts

    @abstractmethod
    def read_facts(self) -> HostFacts:
        """Looks at it; see `facts`."""

    @abstractmethod
    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """Runs a function of an installed module there, in a process beside what it measures.

        Args:
            function: of a module of ours. It says what went wrong by an InfrastructureError.
            argument: a frozen dataclass or a plain value of JSON; so is the answer.

        Raises:
            InfrastructureError: what the function raised, or why there is no answer.
        """

    @abstractmethod
    def engine(self) -> AbstractContextManager[HostEngine]:
        """Its engine, for as long as the block lasts."""

    def place(self, files: Mapping[str, bytes], directory: PurePosixPath) -> None:
        """Writes files below a directory there, which is made; each is whole or not there."""
        self.call(write_files, PlacedFiles(directory, files), PLACE_S)

    def slots(self) -> int | None:
        """How many tasks may run there at once by what its Ray node offers; null where that is for us to choose."""
        return None

    def check(self, wanted: Requirements, timeout_s: float) -> HostReport:
        """Says whether it can be used, and what may disturb a measurement there. Nothing is changed there."""
        deadline, is_here = Deadline(timeout_s), self.way is Way.HERE
        is_active = self.settings.state is HostState.ACTIVE
        try:
            seen = self.preflight(deadline, (*ENGINE_ROOTS, self.work_directory))
        except InfrastructureError as error:
            unreached = {Check.SSH: failure("no", str(error))}
            return HostReport(self.name, is_active, dict.fromkeys(Check, _NOT_LOOKED_AT) | unreached)
        engine, engine_finding = self._checked_engine(seen, wanted, deadline)
        if engine is not None and engine.root is not None and engine.root not in seen.free_bytes:
            # it was reached a moment ago; that nothing is known about this disk stands in the table
            with suppress(InfrastructureError):
                again = self.preflight(deadline, (*ENGINE_ROOTS, self.work_directory, engine.root))
                seen = replace(seen, free_bytes=again.free_bytes)
        skew, clock_problem = None, None
        if not is_here:
            try:
                skew = self.skew(deadline)
                clock_problem = "it has no `date +%s`, so its clock is unknown" if skew is None else None
            except InfrastructureError as error:
                clock_problem = f"its clock could not be read: {error}"
        reached = (nothing if is_here else fine)(self.way.value)
        if seen.system != "Linux":
            reached = failure(seen.system, f"it runs {seen.system}, but trials need Linux")
        findings = {Check.SSH: reached, Check.ENGINE: engine_finding}
        # the files of this machine's own trials are the project's, wherever that is
        own_directory = self.work_directory if self.way is Way.SSH else None
        findings |= judge(self.settings, seen, engine, skew, wanted, self.work_directory, own_directory)
        if clock_problem is not None:
            findings[Check.CLOCK] = warning("?", clock_problem)
        return HostReport(self.name, is_active, findings, seen, engine, skew)

    def _checked_engine(
        self, seen: Preflight, wanted: Requirements, deadline: Deadline
    ) -> tuple[EngineFacts | None, Finding]:
        """Hosts that get agents need an engine; others can do without, unless the inventory says otherwise."""
        executor, has_agent = self.settings.executor, self.way is Way.SSH
        if self.settings.python is not None or (not has_agent and executor is ExecutorChoice.PROCESS):
            return None, nothing("not used")
        try:
            found = self.engine_facts(seen, wanted.images, bool(seen.gpus), deadline)
        except InfrastructureError as error:
            if has_agent:
                return None, failure("no", str(error))
            if executor is ExecutorChoice.DOCKER:
                return None, failure("no", f"{error}; or write `executor: auto`")
            return None, warning("no", f"{error}; until then trials run in virtual environments")
        return found, version_finding(found, has_agent)

    @abstractmethod
    def preflight(self, deadline: Deadline, directories: tuple[str, ...]) -> Preflight:
        """What a shell sees there; of these directories also the disks."""

    @abstractmethod
    def engine_facts(
        self, seen: Preflight, wanted: Mapping[str, WantedImage], with_gpus: bool, deadline: Deadline, /
    ) -> EngineFacts:
        """What its engine says."""

    @abstractmethod
    def skew(self, deadline: Deadline, /) -> Skew | None:
        """Of its clock; null if it does not tell."""

    @abstractmethod
    def describe(self, timeout_s: float) -> SystemDescription:
        """The full fingerprint and its conditions, however they can be read there. Nothing is installed or written.

        Raises:
            InfrastructureError: it was not reached, or has neither a Python nor an image to run the code in.
        """


@dataclass(frozen=True)
class PlacedFiles:
    """Files on their way to a host."""

    directory: PurePosixPath
    files: Mapping[str, Base64Bytes]
    """Content by path below the directory."""


def write_files(placed: PlacedFiles) -> None:
    """Writes files on the machine of this process; see `HostAccess.place`."""
    refuse_outside(placed.files)
    try:
        for name, content in placed.files.items():
            write_atomically(Path(placed.directory, name), content)
    except OSError as error:
        raise InfrastructureError(f"{placed.directory} cannot be written: {error.strerror or error}") from error


def refuse_outside(names: Iterable[str]) -> None:
    """Refuses paths that lead out of the directory that they are relative to."""
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise InfrastructureError(f"{name} is no place below a directory")
