"""Runs every task in this very process: for tests of what stands above the schedulers."""

from collections import deque
from collections.abc import Iterator, Sequence

from orchestrator.scheduling.base import Event, SchedulingHost, TaskRequest, run_on_host


class LocalScheduler:
    """All hosts are this process; tasks run one after the other."""

    def __init__(self) -> None:
        self._queue: deque[TaskRequest] = deque()

    def start(self, hosts: Sequence[SchedulingHost]) -> None:
        """See `Scheduler.start`. There is nothing to start."""

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
