"""What goes to a host for a task, and what comes back: requests and events."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.execution import INSTALLED, ExecutionSettings, PackedCode, TaskOutcome
from orchestrator.hosts.lock import HostLock
from orchestrator.scheduling.host_calls import Acknowledgement, WorkerProcess
from runners.contract import Task
from runners.system import Fingerprint


@dataclass(frozen=True)
class SchedulingHost:
    """A host as the scheduler addresses it."""

    name: str
    labels: Mapping[str, str]
    agent_cores: frozenset[int] = frozenset()
    """Cores that Ray keeps to; empty for all."""
    slots: int = 1
    """How many tasks may run there at once."""
    is_relayed: bool = False
    """Whether no node serves it: its tasks wait for it on the node beside the driver."""


@dataclass(frozen=True)
class TaskRequest:
    """A task with all that its host needs to run it."""

    host: str
    task: Task
    execution: ExecutionSettings
    directory: Path
    """The task's own directory on the host; it must not exist yet."""
    store_id: str
    """Of the store that its rows are for."""
    origin: object
    """What makes rows of its records, as JSON data; it waits beside them until they are stored."""
    code: Path = INSTALLED
    """Where the runner's package lies on the host; below it, if it is sent along."""
    packed: PackedCode | None = None
    """The runner's package for a host that does not have it."""
    lock: HostLock | None = None
    """Held while it runs, where others may measure too; null where the driver sees to that."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    """Earlier tasks of the host of which every row is stored."""
    fingerprint: Fingerprint | None = None
    """Of a host that is not the machine on which this is carried out; null where it is read there."""


@dataclass(frozen=True)
class HostObserved:
    """What a host is made of, read on it before a task starts."""

    host: str
    task_id: str
    fingerprint: Fingerprint
    worker: WorkerProcess | None = None
    """What runs the task; null if that is not to be ended."""


@dataclass(frozen=True)
class RecordPiece:
    """Bytes of a task's records, in their order. An empty one says that the task goes on."""

    host: str
    task_id: str
    sequence: int
    """Counted from 0 through the task, empty ones included."""
    offset: int
    """Of the first byte in the file."""
    data: bytes
    """At most `PIECE_BYTES` of `execution.records`."""


@dataclass(frozen=True)
class TaskEnded:
    """A task is over; nothing of it is left running."""

    host: str
    task_id: str
    outcome: TaskOutcome | None
    """Null if the task could not be run at all."""
    problem: str | None
    """What was at fault with the infrastructure; null if nothing was."""
    size: int | None
    """Of its records, all of which have come; null if nobody knows."""
    violation: str | None = None
    """What its container did to its directory that no runner does; null if nothing. Its records are set aside."""


@dataclass(frozen=True)
class HostNotice:
    """Something on a host that a person should know; the task goes on."""

    host: str
    task_id: str
    text: str


TaskEvent = HostObserved | RecordPiece | HostNotice | TaskEnded
