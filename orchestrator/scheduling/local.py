"""Runs every task in this very process: for tests of what stands above the schedulers."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.errors import InfrastructureError
from orchestrator.scheduling.base import Answered, Asked, Event, SchedulingHost, TaskRequest, run_on_host


class LocalScheduler:
    """All hosts are this process; tasks run one after the other."""

    def __init__(self) -> None:
        self._queue: deque[TaskRequest] = deque()

    def start(self, hosts: Sequence[SchedulingHost]) -> None:
        """See `Scheduler.start`. There is nothing to start."""

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

    def submit(self, request: TaskRequest) -> None:
        """See `Scheduler.submit`."""
        self._queue.append(request)

    def events(self) -> Iterator[Event]:
        """See `Scheduler.events`."""
        while self._queue:
            yield from run_on_host(self._queue.popleft())

    def stop(self) -> None:
        """See `Scheduler.stop`. A task ends with the iterator of events."""
        self._queue.clear()
