"""Runs tasks on a Ray cluster. Ray stays outside what is measured: it starts tasks and carries records back."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from orchestrator.errors import InfrastructureError
from orchestrator.hosts import DriverPlace
from orchestrator.hosts.cluster import HOST_LABEL, RELAY, SLOT
from orchestrator.scheduling.host_task import run_on_host
from orchestrator.scheduling.messages import SchedulingHost, TaskEnded, TaskEvent, TaskRequest
from orchestrator.scheduling.nodes import RayCluster, existing_cluster, joined_cluster, this_machine

Asked = TypeVar("Asked")
Item = TypeVar("Item")

TAKE_S = 1.0

_AHEAD: Final = 16
"""Items that a host is ahead of who takes them: it waits then, so that nothing has to be spilled."""

_DEATHS = {
    "NodeDiedError": "its node died, or was cut off",
    "WorkerCrashedError": "the process that ran it died",
}
"""By the name of Ray's error."""

STOP_DEADLINE_S = 30.0


@dataclass
class _Running:
    request: TaskRequest
    ended: TaskEnded | None = None


class HostStream(Generic[Item]):
    """What a host says piece by piece, and is on its way."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray = ray
        self._reference = reference
        self.is_over = False
        """Whether nothing more comes."""
        self.problem: InfrastructureError | None = None
        """Why it ended before its end."""

    def take(self) -> Sequence[Item]:
        """What has come since the last time, in order. Never waits."""
        taken: list[Item] = []
        while not self.is_over and len(taken) < _AHEAD:
            ready, _ = self._ray.wait([self._reference], timeout=0, fetch_local=False)
            if not ready:
                break
            try:
                taken.append(self._ray.get(next(self._reference)))
            except StopIteration:
                self.is_over = True
            except self._ray.exceptions.RayError as error:
                self.is_over = True
                self.problem = _infrastructure_error(error)
        return taken

    def drop(self) -> None:
        """Ends it. Never waits; whether the host has heard the question meanwhile is unknown."""
        if not self.is_over:
            self.is_over = True
            self._ray.cancel(self._reference, force=True)


class Scheduler:
    """Runs tasks on the nodes of a Ray cluster, at most as many at once as a host has slots."""

    def __init__(self, cluster: RayCluster = this_machine) -> None:
        """Starts nothing yet.

        Args:
            cluster: where tasks run; by default on this machine, for which a cluster is started and ended.
        """
        self._cluster = cluster
        self._connection = ExitStack()
        self._running: dict[Any, _Running] = {}
        self._ray: Any = None
        self._relayed: frozenset[str] = frozenset()

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        """Makes the hosts ready.

        Returns:
            Those that are not part of the cluster now, and why; what is asked of them waits until they are.

        Raises:
            NoUsableHostError: no host is part of the cluster, or it does not start; says why, before any task starts.
            InfrastructureError: there is no such cluster.
        """
        connected = self._connection.enter_context(self._cluster(hosts))
        self._ray = connected.ray
        self._relayed = frozenset(host.name for host in hosts if host.is_relayed)
        return connected.absent

    def stream(self, question: Callable[[Asked], Iterator[Item]], host: str, asked: Asked) -> HostStream[Item]:
        """Asks one host for something, beside whatever runs there, and waits for nothing: it may be gone.

        Args:
            question: a generator function of an installed module; what it yields is small, and the host goes on as
                that is taken. It says what went wrong by an InfrastructureError.
            host: where it runs, as soon as the host is there.
            asked: its argument.
        """
        return HostStream(self._ray, self._remote(question, host, asked))

    def submit(self, request: TaskRequest) -> None:
        """Starts a task, as soon as its host is there and has a free slot."""
        stream = self._remote(run_on_host, request.host, request, slots=1, name=request.task.task_id)
        self._running[stream] = _Running(request)

    def cancel(self, task_id: str) -> None:
        """Gives a task up that nobody hears of any more. Nothing is waited for, and no event of it comes from now on.

        If its host lives, the task is ended there without a word.
        """
        for stream, running in list(self._running.items()):
            if running.request.task.task_id == task_id:
                del self._running[stream]
                self._ray.cancel(stream, force=True)

    def take(self) -> Sequence[TaskEvent]:
        """What has happened to the tasks that were submitted and have not ended; waits a second for it, at most."""
        streams = list(self._running)
        self._ray.wait(streams, num_returns=1, timeout=TAKE_S, fetch_local=False)
        # One event of each that has some, so that none is kept waiting by another that talks much.
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0, fetch_local=False)
        return [event for stream in ready if (event := self._next_event(stream)) is not None]

    def stop(self) -> None:
        """Ends running tasks, waits until nothing of them is left, and takes the cluster down."""
        if self._ray is not None:
            self._cancel_running()
            self._ray = None
        self._connection.close()

    def _remote(
        self, question: Callable[[Asked], Iterator[Item]], host: str, asked: Asked, *, slots: int = 0, **more: Any
    ) -> Any:
        """Ray's stream of what a generator function says on the node of a host, or on the one that stands for it."""
        place: dict[str, Any] = {"label_selector": {HOST_LABEL: host}, "resources": {SLOT: slots} if slots else {}}
        if host in self._relayed:
            place = {"resources": {RELAY: 1}}
        options = {
            "num_cpus": 0,
            "max_retries": 0,
            "num_returns": "streaming",
            **place,
            "_generator_backpressure_num_objects": _AHEAD,
        }
        return self._ray.remote(question).options(**options, **more).remote(asked)

    def _next_event(self, stream: Any) -> TaskEvent | None:
        running = self._running[stream]
        try:
            event = self._ray.get(next(stream))
        except StopIteration:
            del self._running[stream]
            return running.ended or _failed(running.request, "the task ended without a word")
        except self._ray.exceptions.RayError as error:
            del self._running[stream]
            return _failed(running.request, f"Ray lost the task: {_one_line(error)}")
        if isinstance(event, TaskEnded):
            # Told only once the stream is over, because the slot is free only then.
            running.ended = event
            return None
        said: TaskEvent = event
        return said

    def _cancel_running(self) -> None:
        for stream in self._running:
            self._ray.cancel(stream)
        deadline = time.monotonic() + STOP_DEADLINE_S
        # A cancelled task removes its container before its stream ends: wait for that, then take Ray away.
        while self._running and time.monotonic() < deadline:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0, fetch_local=False)
            for stream in ready:
                try:
                    self._ray.get(next(stream))
                except (StopIteration, self._ray.exceptions.RayError):
                    del self._running[stream]
        self._running.clear()


def scheduler_at(place: DriverPlace) -> Scheduler:
    """The scheduler of a campaign that is driven from a place."""
    if place.external is not None:
        return Scheduler(partial(joined_cluster, place.external))
    if place.head is not None:
        return Scheduler(partial(existing_cluster, place.head.ray_address, place.head.token_path))
    return Scheduler()


def _failed(request: TaskRequest, problem: str) -> TaskEnded:
    return TaskEnded(request.host, request.task.task_id, None, problem, None)


def _infrastructure_error(error: Any) -> InfrastructureError:
    """What a host or Ray says went wrong; a defect of ours is raised as it is."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, InfrastructureError):
        return cause
    if cause is not None and not isinstance(cause, OSError):
        raise error
    return InfrastructureError(_one_line(error))


def _one_line(error: Exception) -> str:
    # What our own code raised there is told without Ray's account of where, and a death without its advice.
    cause = getattr(error, "cause", None)
    text = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
    return _DEATHS.get(type(error).__name__) or " ".join(text.split())[:500]
