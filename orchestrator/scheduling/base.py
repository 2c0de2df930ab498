"""The interface of the schedulers, and what runs on a host for each task."""

import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from orchestrator.delivery import Client, Destination, Heart, Origin, Recording, encode_rows
from orchestrator.errors import InfrastructureError, StoreError
from orchestrator.execution import (
    INSTALLED,
    ExecutionSettings,
    PackedCode,
    TaskOutcome,
    create_executor,
    stage,
    unpack,
)
from orchestrator.hosts.lock import HeldHostLock, HostLock
from orchestrator.scheduling.workers import WorkerProcess, this_worker
from runners.contract import Environment, Line, Task, Trial, TrialRecord
from runners.system import Fingerprint, collect

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
Replied = TypeVar("Replied", covariant=True)

_PATIENCE_S = 1.0
"""Before it is told that a task waits for another one to end."""


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
    origin: Origin
    destination: Destination
    """Where its rows go to."""
    code: Path = INSTALLED
    """Where the runner's package lies on the host; below it, if it is sent along."""
    packed: PackedCode | None = None
    """The runner's package for a host that does not have it."""
    slot: int = 0
    """Of the host's slots, counted from 0; tasks of one slot run one after the other."""
    lock: HostLock | None = None
    """Held while it runs, where others may measure too; null where the driver sees to that."""


@dataclass(frozen=True)
class HostObserved:
    """What a host is made of, read on it before a task starts."""

    host: str
    task_id: str
    fingerprint: Fingerprint
    worker: WorkerProcess | None = None
    """What runs the task; null if that is not to be ended."""


@dataclass(frozen=True)
class LineReceived:
    """A line of a task's records, while the task runs. Of a trial's record only what progress needs.

    Its row takes another way and may come later, or although this is never heard.
    """

    host: str
    task_id: str
    line: Line


@dataclass(frozen=True)
class TaskEnded:
    """A task is over; nothing of it is left running."""

    host: str
    task: Task
    outcome: TaskOutcome | None
    """Null if the task could not be run at all."""
    problem: str | None
    """What was at fault with the infrastructure; null if nothing was."""


@dataclass(frozen=True)
class HostNotice:
    """Something on a host that a person should know; the task goes on."""

    host: str
    task_id: str
    text: str


@dataclass(frozen=True)
class Tick:
    """Time has passed; whoever listens may look around."""


Event = HostObserved | LineReceived | HostNotice | TaskEnded | Tick


class Asking(Protocol[Replied]):
    """A question to a host that is on its way."""

    def reply(self) -> Replied | InfrastructureError | None:
        """The answer, or why there is none; null as long as neither is known. Never waits."""
        ...

    def drop(self) -> None:
        """Takes the question back. Never waits; whether the host has heard it meanwhile is unknown."""
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

    def submit(self, request: TaskRequest) -> None:
        """Queues a task. Tasks of one slot of a host run in the order in which they were submitted."""
        ...

    def cancel(self, task_id: str) -> None:
        """Gives a task up that nobody hears of any more. Nothing is waited for, and no event of it comes from now on.

        If its host lives, the task is ended there without a word.
        """
        ...

    def events(self) -> Iterator[Event]:
        """Yields what happens until every submitted task, later ones included, has ended; a tick every second."""
        ...

    def stop(self) -> None:
        """Ends running tasks, waits until nothing of them is left, and takes the cluster down."""
        ...


def run_on_host(request: TaskRequest) -> Generator[Event, None, None]:
    """Runs one task on the machine that this is called on, and delivers its rows. Closing the iterator ends the task.

    A task is over when all its rows are stored. If they cannot be, it ends with a problem that says where they are.
    """
    with Heart(request.destination, request.host, request.task.task_id):
        yield from _run(request)


def _run(request: TaskRequest) -> Iterator[Event]:
    host, task = request.host, request.task
    recording = Recording(request.origin)
    fingerprint = collect()
    recording.runs_on(fingerprint)
    yield HostObserved(host, task.task_id, fingerprint, this_worker())
    try:
        with Client(request.destination, host) as client:
            code = request.code if request.packed is None else unpack(request.packed, request.code)
            stage(task, request.directory, code)
            with nullcontext() if request.lock is None else request.lock.hold() as lock:
                if lock is not None:
                    yield from _until_held(request, lock)
                outcome = yield from _lines(request, recording, client)
            client.flush()
            yield from _notices(request, client)
    except InfrastructureError as error:
        yield TaskEnded(host, task, None, str(error))
        return
    if outcome.exit_code == 0:
        shutil.rmtree(request.directory)  # its rows are stored; a failed task's records stay for a person to read
    yield TaskEnded(host, task, outcome, None)


def _until_held(request: TaskRequest, lock: HeldHostLock) -> Iterator[HostNotice]:
    if lock.wait(_PATIENCE_S):
        return
    text = "another campaign measures there; this one waits for its turn"
    yield HostNotice(request.host, request.task.task_id, text)
    while not lock.wait(_PATIENCE_S):
        pass  # so that an interrupt is heard


def _lines(request: TaskRequest, recording: Recording, client: Client) -> Generator[Event, None, TaskOutcome]:
    trials = {trial.trial_id: trial for trial in request.task.trials}
    running = create_executor(request.execution).run(request.task, request.directory)
    try:
        while True:
            try:
                line = next(running)
            except StopIteration as end:
                outcome: TaskOutcome = end.value
                return outcome
            if isinstance(line, Environment):
                recording.saw(line)
            elif isinstance(line, TrialRecord):
                _deliver(trials, line, recording, client)
            yield LineReceived(request.host, request.task.task_id, _without_samples(line))
            yield from _notices(request, client)
    finally:
        running.close()


def _deliver(trials: Mapping[str, Trial], record: TrialRecord, recording: Recording, client: Client) -> None:
    if record.trial_id not in trials:
        raise InfrastructureError(f"the runner recorded {record.trial_id}, which is no trial of its task")
    try:
        parcel = encode_rows(recording.rows([(trials[record.trial_id], record)]))
    except StoreError as error:
        raise InfrastructureError(f"the record of {record.trial_id} gives no row: {error}") from error
    client.offer(parcel)
    if client.is_done:
        recording.delivered()


def _without_samples(line: Line) -> Line:
    if not isinstance(line, TrialRecord):
        return line
    return replace(line, series=(), facts={}, conditions_before={}, conditions_after={}, log_tail="")


def _notices(request: TaskRequest, client: Client) -> Iterator[HostNotice]:
    for text in client.take_problems():
        yield HostNotice(request.host, request.task.task_id, text)
