"""Runs tasks on a Ray cluster. Ray stays outside what is measured: it starts tasks and carries records back."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.labels import HOST_LABEL, SLOT
from orchestrator.scheduling.base import (
    Answered,
    Asked,
    Asking,
    Event,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
    Tick,
    run_on_host,
)
from orchestrator.scheduling.nodes import RayCluster, ThisMachine

TICK_S = 1.0

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
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InfrastructureError):
                return error.cause
            raise
        except self._ray.exceptions.RayError as error:
            return InfrastructureError(_one_line(error))

    def submit(self, request: TaskRequest) -> None:
        """See `Scheduler.submit`."""
        self._queues.setdefault((request.host, request.slot), deque()).append(request)

    def cancel(self, task_id: str) -> None:
        """See `Scheduler.cancel`."""
        for queue in self._queues.values():
            for request in [one for one in queue if one.task.task_id == task_id]:
                queue.remove(request)
        for stream, running in list(self._running.items()):
            if running.request.task.task_id == task_id:
                del self._running[stream]
                self.drop(stream)

    def events(self) -> Iterator[Event]:
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
    return TaskEnded(request.host, request.task, None, problem)


def _one_line(error: Exception) -> str:
    # What our own code raised there is told without Ray's account of where, and a death without its advice.
    cause = getattr(error, "cause", None)
    text = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
    return _DEATHS.get(type(error).__name__) or " ".join(text.split())[:500]
