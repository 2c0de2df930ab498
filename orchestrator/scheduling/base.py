"""The interface of the schedulers: tasks go to hosts, and what happens there comes back as events."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, ExecutionSettings, PackedCode, TaskOutcome
from orchestrator.hosts.lock import HostLock
from orchestrator.scheduling.acknowledging import Acknowledgement
from orchestrator.scheduling.workers import WorkerProcess
from runners.contract import Task
from runners.system import Fingerprint

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
Replied = TypeVar("Replied", covariant=True)
Item = TypeVar("Item")


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
    slot: int = 0
    """Of the host's slots, counted from 0; tasks of one slot run one after the other."""
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


class Asking(Protocol[Replied]):
    """A question to a host that is on its way."""

    def reply(self) -> Replied | InfrastructureError | None:
        """The answer, or why there is none; null as long as neither is known. Never waits."""
        ...

    def drop(self) -> None:
        """Takes the question back. Never waits; whether the host has heard it meanwhile is unknown."""
        ...


class HostStream(Protocol[Replied]):
    """What a host says piece by piece, and is on its way."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        ...

    @property
    def problem(self) -> InfrastructureError | None:
        """Why it ended before its end."""
        ...

    def take(self) -> Sequence[Replied]:
        """What has come since the last time, in order. Never waits."""
        ...

    def drop(self) -> None:
        """Ends it. Never waits."""
        ...


class Scheduler(Protocol):
    """Runs tasks on hosts, one at a time in each slot of a host."""

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        """Makes the hosts ready.

        Returns:
            Those that are not part of the cluster now, and why; what is asked of them waits until they are.

        Raises:
            NoUsableHostError: no host is part of the cluster; says why, before any task starts.
            InfrastructureError: the cluster cannot be started.
        """
        ...

    def ask(
        self, question: Callable[[Asked], Answered], of: Mapping[str, Asked], timeout_s: float
    ) -> dict[str, Answered | InfrastructureError]:
        """Runs a short function on hosts, all at once and beside whatever runs there, and waits for the answers.

        Args:
            question: the function, of an installed module. It says what went wrong by an InfrastructureError.
            of: its argument, by the host that it runs on.
            timeout_s: for all of it.

        Returns:
            By host the answer, or why there is none.
        """
        ...

    def begin(self, question: Callable[[Asked], Answered], host: str, asked: Asked) -> Asking[Answered]:
        """Asks one host, as `ask`, and waits for nothing: it may be gone, and nobody knows for how long.

        Args:
            question: the function, of an installed module; its answer is not null.
            host: where it runs, as soon as the host is there.
            asked: its argument.
        """
        ...

    def stream(self, question: Callable[[Asked], Iterator[Item]], host: str, asked: Asked) -> HostStream[Item]:
        """Asks one host for something that is long, and waits for nothing. The host goes on as what it said is taken.

        Args:
            question: a generator function of an installed module; what it yields is small.
            host: where it runs, as soon as the host is there.
            asked: its argument.
        """
        ...

    def submit(self, request: TaskRequest) -> None:
        """Queues a task. Tasks of one slot of a host run in the order in which they were submitted."""
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
