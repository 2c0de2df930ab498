"""The interface of the schedulers: tasks go to hosts, and what happens there comes back as events."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, ExecutionSettings, PackedCode, TaskOutcome
from orchestrator.hosts.lock import HostLock
from orchestrator.scheduling.host_calls import Acknowledgement, WorkerProcess
from runners.contract import Task
from runners.system import Fingerprint

Asked = TypeVar("Asked")
Item = TypeVar("Item")
Said = TypeVar("Said", covariant=True)


@dataclass(frozen=True)
class SchedulingHost:
    """A host as the scheduler addresses it."""

    name: str
    labels: Mapping[str, str]
    agent_cores: frozenset[int] = frozenset()
    """Cores that Ray keeps to; empty for all."""
    slots: int = 1
    """How many tasks may run there at once."""


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
    """At most `execution.PIECE_BYTES`."""


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


@dataclass(frozen=True)
class HostNotice:
    """Something on a host that a person should know; the task goes on."""

    host: str
    task_id: str
    text: str


@dataclass(frozen=True)
class Tick:
    """Time has passed; whoever listens may look around."""


TaskEvent = HostObserved | RecordPiece | HostNotice | TaskEnded
Event = TaskEvent | Tick


class HostStream(Protocol[Said]):
    """What a host says piece by piece, and is on its way."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        ...

    @property
    def problem(self) -> InfrastructureError | None:
        """Why it ended before its end."""
        ...

    def take(self) -> Sequence[Said]:
        """What has come since the last time, in order. Never waits."""
        ...

    def drop(self) -> None:
        """Ends it. Never waits."""
        ...


class Scheduler(Protocol):
    """Runs tasks on hosts, at most as many at once as a host has slots."""

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        """Makes the hosts ready.

        Returns:
            Those that are not part of the cluster now, and why; what is asked of them waits until they are.

        Raises:
            NoUsableHostError: no host is part of the cluster; says why, before any task starts.
            InfrastructureError: the cluster cannot be started.
        """
        ...

    def stream(self, question: Callable[[Asked], Iterator[Item]], host: str, asked: Asked) -> HostStream[Item]:
        """Asks one host for something, beside whatever runs there, and waits for nothing: it may be gone.

        Args:
            question: a generator function of an installed module; what it yields is small, and the host goes on as
                that is taken. It says what went wrong by an InfrastructureError.
            host: where it runs, as soon as the host is there.
            asked: its argument.
        """
        ...

    def submit(self, request: TaskRequest) -> None:
        """Starts a task, as soon as its host is there and has room for it."""
        ...

    def cancel(self, task_id: str) -> None:
        """Gives a task up that nobody hears of any more. Nothing is waited for, and no event of it comes from now on.

        If its host lives, the task is ended there without a word.
        """
        ...

    def events(self) -> Generator[Event, None, None]:
        """Yields what happens until every submitted task, later ones included, has ended; a tick every second."""
        ...

    def stop(self) -> None:
        """Ends running tasks, waits until nothing of them is left, and takes the cluster down."""
        ...
