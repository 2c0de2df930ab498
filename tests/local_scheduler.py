"""A scheduler that runs every task in this very process: for tests of what stands above the scheduling."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Generic

from orchestrator.errors import InfrastructureError
from orchestrator.scheduling import SchedulingHost, TaskEvent, TaskRequest, run_on_host
from orchestrator.scheduling.ray import Asked, Item


@dataclass
class LocalStream(Generic[Item]):
    """What this process says; it says all of it as soon as it is asked."""

    items: Iterator[Item]
    is_over: bool = field(default=False, init=False)
    problem: InfrastructureError | None = field(default=None, init=False)

    def take(self) -> Sequence[Item]:
        taken = []
        try:
            taken += list(self.items)
        except InfrastructureError as error:
            self.problem = error
        self.is_over = True
        return taken

    def drop(self) -> None:
        self.is_over = True


class LocalScheduler:
    """All hosts are this process; tasks run one after the other."""

    def __init__(self) -> None:
        self._queue: deque[TaskRequest] = deque()
        self._given_up: set[str] = set()
        self._said: Generator[TaskEvent | None, None, None] | None = None

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        return {}

    def stream(self, question: Callable[[Asked], Iterator[Item]], host: str, asked: Asked) -> LocalStream[Item]:
        return LocalStream(question(asked))

    def submit(self, request: TaskRequest) -> None:
        self._queue.append(request)

    def cancel(self, task_id: str) -> None:
        self._given_up.add(task_id)

    def take(self) -> Sequence[TaskEvent]:
        """One event at most."""
        self._said = self._said or self.events()
        try:
            event = next(self._said)
        except StopIteration:
            self._said = None
            return []
        return [] if event is None else [event]

    def events(self) -> Generator[TaskEvent | None, None, None]:
        """What happens to the tasks until all have ended; null where somebody should look around meanwhile."""
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
        """A task ends with the iterator of events."""
        self._queue.clear()
        if self._said is not None:
            self._said.close()
