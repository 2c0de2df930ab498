"""Runs tasks on a Ray cluster. Ray stays outside what is measured: it starts tasks and carries records back."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster import HOST_LABEL, SLOT
from orchestrator.scheduling.base import (
    Answered,
    Asked,
    Asking,
    Event,
    Item,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
    Tick,
)
from orchestrator.scheduling.host_task import run_on_host
from orchestrator.scheduling.nodes import RayCluster, ThisMachine

TICK_S = 1.0

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


class _Asked(Generic[Answered]):
    """A question that Ray carries to a host."""

    def __init__(self, scheduler: "RayScheduler", reference: Any) -> None:
        self._scheduler = scheduler
        self._reference = reference

    def reply(self) -> Answered | InfrastructureError | None:
        """See `Asking.reply`."""
        known: Answered | InfrastructureError | None = self._scheduler.answer_to(self._reference)
        return known

    def drop(self) -> None:
        """See `Asking.drop`."""
        self._scheduler.drop(self._reference)


class _RayStream(Generic[Item]):
    """What a host says piece by piece."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray = ray
        self._reference = reference
        self.is_over = False
        self.problem: InfrastructureError | None = None

    def take(self) -> Sequence[Item]:
        """See `HostStream.take`."""
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
        """See `HostStream.drop`."""
        self.is_over = True
        self._ray.cancel(self._reference, force=True)


class RayScheduler:
    """Runs tasks on the nodes of a cluster: one of this machine alone, or one that is there already."""

    def __init__(self, cluster: RayCluster | None = None) -> None:
        """Starts nothing yet.

        Args:
            cluster: where tasks run; by default on this machine, for which a cluster is started and ended.
        """
        self._cluster = cluster or ThisMachine()
        self._queues: dict[tuple[str, int], deque[TaskRequest]] = {}
        self._running: dict[Any, _Running] = {}
        self._ray: Any = None

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        """See `Scheduler.start`."""
        try:
            connected = self._cluster.connect(hosts)
        except BaseException:
            self.stop()
            raise
        self._ray = connected.ray
        return connected.absent

    def ask(
        self, question: Callable[[Asked], Answered], of: Mapping[str, Asked], timeout_s: float
    ) -> dict[str, Answered | InfrastructureError]:
        """See `Scheduler.ask`."""
        asked = {self._ask(question, host, argument): host for host, argument in of.items()}
        answers: dict[str, Answered | InfrastructureError] = {}
        waiting, deadline = list(asked), time.monotonic() + timeout_s
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            # in short steps, so that an interrupt is heard
            ready, waiting = self._ray.wait(waiting, num_returns=1, timeout=min(1.0, left_s))
            for reference in ready:
                answers[asked[reference]] = self._answer(reference)
        for reference in waiting:
            self.drop(reference)
            answers[asked[reference]] = InfrastructureError(f"it gave no answer within {timeout_s:.0f} s")
        return answers

    def begin(self, question: Callable[[Asked], Answered], host: str, asked: Asked) -> Asking[Answered]:
        """See `Scheduler.begin`."""
        return _Asked(self, self._ask(question, host, asked))

    def _ask(self, question: Callable[[Asked], Answered], host: str, asked: Asked) -> Any:
        remote = self._ray.remote(num_cpus=0, max_retries=0)(question)
        return remote.options(label_selector={HOST_LABEL: host}).remote(asked)

    def stream(self, question: Callable[[Asked], Iterator[Item]], host: str, asked: Asked) -> _RayStream[Item]:
        """See `Scheduler.stream`."""
        remote = self._ray.remote(num_cpus=0, max_retries=0)(question)
        options = {
            "num_returns": "streaming",
            "label_selector": {HOST_LABEL: host},
            "_generator_backpressure_num_objects": _AHEAD,
        }
        return _RayStream(self._ray, remote.options(**options).remote(asked))

    def answer_to(self, reference: Any) -> Any:
        """The answer, or why there is none; null as long as neither is known."""
        if self._ray is None:
            return None
        ready, _ = self._ray.wait([reference], timeout=0)
        return self._answer(reference) if ready else None

    def drop(self, reference: Any) -> None:
        """Ends what was asked, if its host still hears of it."""
        if self._ray is not None:
            self._ray.cancel(reference, force=True)

    def _answer(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return _infrastructure_error(error)

    def submit(self, request: TaskRequest) -> None:
        """See `Scheduler.submit`."""
        self._queues.setdefault((request.host, request.slot), deque()).append(request)

    def cancel(self, task_id: str) -> None:
        """See `Scheduler.cancel`."""
        for queue in self._queues.values():
            for request in [request for request in queue if request.task.task_id == task_id]:
                queue.remove(request)
        for stream, running in list(self._running.items()):
            if running.request.task.task_id == task_id:
                del self._running[stream]
                self.drop(stream)

    def events(self) -> Generator[Event, None, None]:
        """See `Scheduler.events`."""
        ticked_at = time.monotonic()
        while self._launch_ready() or self._running:
            streams = list(self._running)
            self._ray.wait(streams, num_returns=1, timeout=TICK_S, fetch_local=False)
            # One event of each that has some, so that none is kept waiting by another that talks much.
            ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0, fetch_local=False)
            for stream in ready:
                if stream in self._running:  # else given up meanwhile
                    yield from self._next_event(stream)
            if time.monotonic() - ticked_at >= TICK_S:
                ticked_at = time.monotonic()
                yield Tick()

    def stop(self) -> None:
        """See `Scheduler.stop`."""
        self._queues.clear()
        if self._ray is not None:
            self._cancel_running()
            self._ray = None
        self._cluster.disconnect()

    def _launch_ready(self) -> bool:
        busy = {(running.request.host, running.request.slot) for running in self._running.values()}
        for place, queue in self._queues.items():
            if queue and place not in busy:
                request = queue.popleft()
                self._running[self._launch(request)] = _Running(request)
        return bool(self._running)

    def _launch(self, request: TaskRequest) -> Any:
        remote = self._ray.remote(num_cpus=0, resources={SLOT: 1}, max_retries=0)(run_on_host)
        options = {
            "num_returns": "streaming",
            "label_selector": {HOST_LABEL: request.host},
            "name": request.task.task_id,
            "_generator_backpressure_num_objects": _AHEAD,
        }
        return remote.options(**options).remote(request)

    def _next_event(self, stream: Any) -> Iterator[Event]:
        running = self._running[stream]
        try:
            event = self._ray.get(next(stream))
        except StopIteration:
            del self._running[stream]
            yield running.ended or _failed(running.request, "the task ended without a word")
            return
        except self._ray.exceptions.RayError as error:
            del self._running[stream]
            yield _failed(running.request, f"Ray lost the task: {_one_line(error)}")
            return
        if isinstance(event, TaskEnded):
            # Told only once the stream is over, because the slot is free only then.
            running.ended = event
        else:
            yield event

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


def _failed(request: TaskRequest, problem: str) -> TaskEnded:
    return TaskEnded(request.host, request.task.task_id, None, problem, None)


def _infrastructure_error(error: Any) -> InfrastructureError:
    """What a host or Ray says went wrong; a defect of ours is raised as it is."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, InfrastructureError):
        return cause
    if cause is not None:
        raise error
    return InfrastructureError(_one_line(error))


def _one_line(error: Exception) -> str:
    # What our own code raised there is told without Ray's account of where, and a death without its advice.
    cause = getattr(error, "cause", None)
    text = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
    return _DEATHS.get(type(error).__name__) or " ".join(text.split())[:500]
