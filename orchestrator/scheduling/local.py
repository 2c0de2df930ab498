"""Runs every task in this very process: for tests of what stands above the schedulers."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Generic

from orchestrator.errors import InfrastructureError
from orchestrator.scheduling.base import Answered, Asked, Asking, Event, Item, SchedulingHost, TaskRequest
from orchestrator.scheduling.host_task import run_on_host


@dataclass(frozen=True)
class AnsweredAtOnce(Generic[Answered]):
    """A question that was answered as it was asked."""

    answer: Answered | InfrastructureError

    def reply(self) -> Answered | InfrastructureError:
        """See `Asking.reply`."""
        return self.answer

    def drop(self) -> None:
        """See `Asking.drop`. There is nothing to take back."""


@dataclass
class LocalStream(Generic[Item]):
    """What this process says; it says all of it as soon as it is asked."""

    items: Iterator[Item]
    is_over: bool = field(default=False, init=False)
    problem: InfrastructureError | None = field(default=None, init=False)

    def take(self) -> Sequence[Item]:
        """See `HostStream.take`."""
        taken = []
        try:
            taken += list(self.items)
        except InfrastructureError as error:
            self.problem = error
        self.is_over = True
        return taken

    def drop(self) -> None:
        """See `HostStream.drop`."""
        self.is_over = True


class LocalScheduler:
    """All hosts are this process; tasks run one after the other."""

    def __init__(self) -> None:
        self._queue: deque[TaskRequest] = deque()
        self._given_up: set[str] = set()

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:  # noqa: ARG002 - the interface
        """See `Scheduler.start`. There is nothing to start."""
        return {}

    def ask(
        self,
        question: Callable[[Asked], Answered],
        of: Mapping[str, Asked],
        timeout_s: float,  # noqa: ARG002 - the interface
    ) -> dict[str, Answered | InfrastructureError]:
        """See `Scheduler.ask`."""
        answers: dict[str, Answered | InfrastructureError] = {}
        for host, asked in of.items():
            try:
                answers[host] = question(asked)
            except InfrastructureError as error:
                answers[host] = error
        return answers

    def begin(self, question: Callable[[Asked], Answered], host: str, asked: Asked) -> Asking[Answered]:
        """See `Scheduler.begin`. The answer is there at once."""
        return AnsweredAtOnce(self.ask(question, {host: asked}, 0.0)[host])

    def stream(
        self,
        question: Callable[[Asked], Iterator[Item]],
        host: str,  # noqa: ARG002 - the interface
        asked: Asked,
    ) -> LocalStream[Item]:
        """See `Scheduler.stream`."""
        return LocalStream(question(asked))

    def submit(self, request: TaskRequest) -> None:
        """See `Scheduler.submit`."""
        self._queue.append(request)

    def cancel(self, task_id: str) -> None:
        """See `Scheduler.cancel`."""
        self._given_up.add(task_id)

    def events(self) -> Generator[Event, None, None]:
        """See `Scheduler.events`. The only ticks are those of a task: nothing happens here between two of them."""
        while self._queue:
            request = self._queue.popleft()
            if request.task.task_id in self._given_up:
                continue
            with closing(run_on_host(request)) as running:
                for event in running:
                    yield event
                    if request.task.task_id in self._given_up:
                        break

    def stop(self) -> None:
        """See `Scheduler.stop`. A task ends with the iterator of events."""
        self._queue.clear()
