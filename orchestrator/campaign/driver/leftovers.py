"""What tasks left on their hosts: hosts that come back are made fit, and records that wait there are stored."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.boundary import validated
from orchestrator.campaign.driver.record_intake import RecordIntake
from orchestrator.errors import ForeignDataError, Say, StoreError
from orchestrator.scheduling import (
    Acknowledgement,
    Disposal,
    Found,
    HostStream,
    Leftover,
    Leftovers,
    Returned,
    Scheduler,
    acknowledge,
    is_there,
    read_leftovers,
    recover,
)
from orchestrator.store.ingest import Ingest
from orchestrator.store.origin import read_origin
from orchestrator.store.rows import RowBuilder
from runners.contract import Task

PING_S: Final = 15.0
"""A host that is there answers in well under a second, a busy one when Ray has a process there, which took 9 s where a
dozen processes wanted two cores; in more a frozen one is asked anew, if it comes back."""

PAUSE_S: Final = 3.0
"""Between two attempts."""

RECOVERY_S: Final = 60.0
"""Within that a host says the next thing of what is left there, or that there is no more."""

LEFTOVERS_S: Final = 120.0
"""A host that is up tells what waits there in seconds; one that is not must not hold up the others."""

MAX_WAITING_BYTES: Final = 4 * 2**20
"""Of records whose rows are not stored yet; nothing more is taken from anybody while there are more. In memory they are
ten times as large; the store writes so many in a second."""

BREAK_S: Final = 3.0
"""A driver that took nothing for so long was stopped, or had to wait itself: it cannot tell who was silent."""
Asked = TypeVar("Asked")
Item = TypeVar("Item")


class ListeningClock:
    """Counts the seconds in which a driver took what its hosts said; time in which it did not counts for nobody."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = clock()
        self.now_s = 0.0

    def tick(self) -> None:
        """Whoever listens calls it again and again."""
        now_s = self._clock()
        if now_s - self._last_s <= BREAK_S:
            self.now_s += now_s - self._last_s
        self._last_s = now_s

    def skip(self) -> None:
        """Nothing was taken until now."""
        self._last_s = self._clock()


class LeftoverIntake:
    """Makes rows of what waits on one host, and says what the host may forget."""

    def __init__(self, ingest: Ingest, tell: Say, *, nothing_runs: bool = False) -> None:
        """Takes nothing yet.

        Args:
            ingest: stores the rows.
            tell: takes a line for a person.
            nothing_runs: no trial is being tried again meanwhile.
        """
        self._nothing_runs = nothing_runs
        self._ingest = ingest
        self._tell = tell
        self._intakes: dict[Path, RecordIntake] = {}
        self._damaged: list[tuple[Leftover, str]] = []

    @property
    def is_settled(self) -> bool:
        """Whether every record was answered by the store."""
        for intake in self._intakes.values():
            intake.answered()
        return all(intake.is_settled for intake in self._intakes.values())

    def take(self, found: Found) -> None:
        """Takes what the host says next."""
        if isinstance(found, str):
            self._tell(found)
        elif isinstance(found, Leftover):
            try:
                self._intakes[found.directory] = self._intake(found)
            except (ForeignDataError, StoreError) as error:
                self._damaged.append((found, str(error)))
        elif found.directory in self._intakes:
            self._intakes[found.directory].take(found.data)

    def acknowledgements(self) -> list[Acknowledgement]:
        """What the host may forget, now that all is settled and it has said all. What is not stored stays there."""
        found = [Acknowledgement(left.directory, left.size, Disposal.SET_ASIDE) for left, _ in self._damaged]
        doubts = [(left.directory, problem) for left, problem in self._damaged]
        for intake in self._intakes.values():
            acknowledgement = intake.acknowledgement(is_well=intake.has_end)
            if acknowledgement is not None:
                found.append(acknowledgement)
                doubts += [] if intake.doubt is None else [(intake.directory, intake.doubt)]
        for directory, doubt in doubts:
            self._tell(f"{directory}: {doubt}; its records are kept there")
        return found

    def _intake(self, found: Leftover) -> RecordIntake:
        stored = read_origin(found.origin)
        task = validated(Task, found.task, "its task")
        # Its container could write there, but had no say in how the directory is called
        context, directory = stored.origin.context, found.directory
        if not context.campaign_id == task.campaign_id == directory.parent.name or context.task_id != task.task_id:
            raise StoreError(f"its origin and its task are not those of campaign {directory.parent.name}")
        builder = RowBuilder(stored.origin)
        builder.runs_on(stored.fingerprint)
        attempts = self._ingest.attempts(task.campaign_id) if self._nothing_runs else None
        return RecordIntake(found.directory, task, builder, self._ingest, attempts)


class Recovery:
    """The way back of one host: it answers, is made fit, what it has is stored, it takes tasks again. Never waits."""

    def __init__(
        self, scheduler: Scheduler, host: str, returned: Callable[[], Returned], intake: Callable[[], LeftoverIntake]
    ) -> None:
        """Asks nobody yet.

        Args:
            scheduler: reaches the host.
            host: its name.
            returned: what is to be done there, once it answers.
            intake: takes what it has.
        """
        self._scheduler = scheduler
        self._host = host
        self._returned = returned
        self._new_intake = intake
        self._ping: HostStream[str] | None = None
        self._stream: HostStream[Found] | None = None
        self._intake = intake()
        self._until_s = 0.0
        self._not_before_s = 0.0
        self.problem: str | None = None
        """Why it could not be taken up, though it answered."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has answered, and is being made fit."""
        return self._stream is not None

    def look(self, now_s: float, *, may_take: bool = True) -> list[Acknowledgement] | None:
        """Goes on as far as that is possible without waiting.

        Args:
            now_s: by the driver's monotonic clock.
            may_take: whether there is room for more records.

        Returns:
            What the host may forget, once it is fit; null until then.
        """
        if self._stream is None:
            self._look_for_answer(now_s)
        if self._stream is None:
            return None
        for piece in self._stream.take() if may_take else ():
            self._intake.take(piece)
            self._until_s = now_s + RECOVERY_S
        if self._stream.problem is not None:
            self.problem = str(self._stream.problem)
            self._again(now_s)
        elif self._stream.is_over:
            if self._intake.is_settled:
                self._stream = None
                return self._intake.acknowledgements()
        elif may_take and now_s > self._until_s:
            self.problem = f"it answers, but did not remove what was left there within {RECOVERY_S:.0f} s"
            self._again(now_s)
        return None

    def drop(self) -> None:
        """Takes back what was asked."""
        for stream in (self._ping, self._stream):
            if stream is not None and not stream.is_over:
                stream.drop()
        self._ping = self._stream = None

    def _look_for_answer(self, now_s: float) -> None:
        if self._ping is None:
            if now_s < self._not_before_s:
                return
            # First whether it is there: who is asked for more in vain may hear of it long after, beside another task.
            self._ping = self._scheduler.stream(is_there, self._host, self._host)
            self._until_s = now_s + PING_S
        if self._ping.take():
            self._ping = None
            self._stream = self._scheduler.stream(recover, self._host, self._returned())
            self._intake = self._new_intake()
            self._until_s = now_s + RECOVERY_S
        elif self._ping.problem is not None or now_s > self._until_s:
            self._again(now_s)

    def _again(self, now_s: float) -> None:
        self.drop()
        self._not_before_s = now_s + PAUSE_S


def store_leftovers_here(leftovers: Leftovers, ingest: Ingest, tell: Say) -> None:
    """Stores what waits on this machine, waiting for room on the disk.

    Raises:
        StoreError: the store takes nothing more.
    """
    intake = LeftoverIntake(ingest, tell, nothing_runs=True)
    for piece in read_leftovers(leftovers):
        _wait_for_room(ingest)
        intake.take(piece)
    _settle([intake], ingest)
    for problem in acknowledge(intake.acknowledgements()):
        tell(problem)


def store_leftovers(scheduler: Scheduler, leftovers: Mapping[str, Leftovers], ingest: Ingest, tell: Say) -> None:
    """Stores what waits on hosts, all at once; `tell` is told what could not be.

    Raises:
        StoreError: the store takes nothing more.
    """
    intakes = {host: LeftoverIntake(ingest, _prefixed(host, tell), nothing_runs=True) for host in leftovers}

    def take(host: str, found: Found) -> None:
        intakes[host].take(found)
        _wait_for_room(ingest)

    ended = ask(scheduler, read_leftovers, leftovers, LEFTOVERS_S, take, tell)
    _settle(intakes.values(), ingest)
    acknowledged = {host: intakes[host].acknowledgements() for host in sorted(ended)}
    acknowledge_on(scheduler, acknowledged, tell)


def acknowledge_on(scheduler: Scheduler, acknowledged: Mapping[str, list[Acknowledgement]], tell: Say) -> None:
    """Has hosts forget what is stored; `tell` is told what could not be done."""
    found = {host: some for host, some in acknowledged.items() if some}

    def tell_what_follows(problem: str) -> None:
        tell(f"{problem}; all that it measured is stored, and the next campaign on it removes the records there")

    ask(scheduler, acknowledge, found, RECOVERY_S, lambda host, problem: tell(f"{host}: {problem}"), tell_what_follows)


def ask(
    scheduler: Scheduler,
    question: Callable[[Asked], Iterator[Item]],
    of: Mapping[str, Asked],
    timeout_s: float,
    take: Callable[[str, Item], None],
    tell: Say,
) -> set[str]:
    """Asks hosts, all at once and beside whatever runs there, and waits for the end of what they say.

    Args:
        scheduler: reaches them.
        question: see `Scheduler.stream`.
        of: its argument, by the host that it runs on.
        timeout_s: for all of it; who still says something is heard to the end.
        take: takes what a host says.
        tell: told why a host did not come to its end.

    Returns:
        The hosts that did.
    """
    streams = {host: scheduler.stream(question, host, asked) for host, asked in of.items()}
    listening = ListeningClock()  # else one that was stopped itself would give up on everybody
    while waiting := [host for host, stream in streams.items() if not stream.is_over]:
        listening.tick()
        taken = [(host, item) for host in waiting for item in streams[host].take()]
        for host, item in taken:
            take(host, item)
        if not taken and listening.now_s > timeout_s:
            break
        if not taken:
            time.sleep(0.02)
    ended = set()
    for host, stream in streams.items():
        if not stream.is_over:
            stream.drop()
            tell(f"{host}: it gave no answer within {timeout_s:.0f} s")
        elif stream.problem is not None:
            tell(f"{host}: {stream.problem}")
        else:
            ended.add(host)
    return ended


def _prefixed(host: str, tell: Say) -> Say:
    return lambda text: tell(f"{host}: {text}")


def _wait_for_room(ingest: Ingest) -> None:
    while ingest.waiting_bytes > MAX_WAITING_BYTES:
        ingest.answered.wait(1.0)
        ingest.answered.clear()


def _settle(intakes: Iterable[LeftoverIntake], ingest: Ingest) -> None:
    """Waits until the store has answered for everything."""
    ingest.hurry()
    while not all(intake.is_settled for intake in intakes):
        ingest.answered.wait(0.05)
        ingest.answered.clear()
    if ingest.failure is not None:
        raise ingest.failure
