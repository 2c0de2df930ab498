"""A session: processes that are alive together and take turns, one at a time, while all others are stopped.

Each is forked, builds, verifies and warms up by itself; then in every cycle each has one turn, in a random order; at
the end each verifies again and looks at what need not be timed, by itself once more. Its time passes only while it is
its turn. A process that dies, or has to be ended, ends nothing but itself.
"""

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

from runners.contract import Protocol, Stop
from runners.protocol.answer import Answer
from runners.protocol.turns import ENDS, GO, SPENT, Turns
from runners.supervision import kernel
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import Channel, Child, Ended, end_all, end_strays
from runners.supervision.room import Room

_TURNS_TO_FINISH = 3
"""A turn, and the calls after the last one that verify and count, take no longer than so many turns."""

_DYING_S = 1.0
"""For a process that the kernel has killed, until it is dead."""

_LOOK_S = 0.01


@dataclass(frozen=True)
class AfterTurns:
    """The series that a process times after its last turn: budget in seconds and least number of calls of each."""

    series: Tuple[Tuple[float, int], ...] = ()

    @classmethod
    def of(cls, protocol: Protocol, on_gpu: bool) -> "AfterTurns":
        """Those of a protocol."""
        series = [(protocol.pipelined_budget_ms, protocol.pipelined_min_samples)]
        if on_gpu:
            series.append((protocol.dispatch_budget_ms, protocol.sync_min_samples))
        return cls(tuple((budget_ms / 1000, calls) for budget_ms, calls in series if budget_ms))

    def seconds(self, longest_turn_s: float) -> float:
        """How long they may take, where a call takes at most half of the longest turn."""
        return sum(max(budget_s, calls * longest_turn_s / 2) for budget_s, calls in self.series)


class Allowance:
    """The time that the processes of one trial may take; it passes only while one of them runs."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds
        self.spent_s = 0.0

    @contextmanager
    def passing(self) -> Iterator[float]:
        """The time of the block; gives the deadline on the clock of `time.monotonic`."""
        start = time.monotonic()
        try:
            yield start + self.left_s
        finally:
            passed_s = time.monotonic() - start
            self.left_s -= passed_s
            self.spent_s += passed_s


class Member:
    """One process of a session."""

    def __init__(self, function: Callable[[Turns], Answer], allowance: Allowance, is_baseline: bool = False) -> None:
        """Starts nothing yet.

        Args:
            function: what the process does.
            allowance: its time.
            is_baseline: the others are compared with it, so that it is not what is left out.
        """
        self.function, self.allowance, self.is_baseline = function, allowance, is_baseline
        self.left_out: Optional[str] = None
        """Why it is not beside the others; null if it is."""
        self.paired: Optional[str] = None
        """Why it had its turns with the baseline alone; null if it had not."""
        self.first_cycle = 0
        """Of the baseline's turns the one that goes with its first."""
        self.beside = 0
        """At most so many others were alive while it ran."""
        self.turns = 0
        self.is_spent = False
        """Whether its timed calls have taken their budget."""
        self._longest_turn_s = 0.0
        self._child: Optional[Child] = None
        self._ended: Optional[Ended] = None

    @property
    def child(self) -> Child:
        """Its process, once it was started."""
        assert self._child is not None
        return self._child

    @property
    def ended(self) -> Ended:
        """Its end, once the session is over."""
        assert self._ended is not None
        return self._ended

    def is_short_of_time(self, after_turns: AfterTurns) -> bool:
        """Whether another turn might leave it no time to finish."""
        needed_s = _TURNS_TO_FINISH * self._longest_turn_s + after_turns.seconds(self._longest_turn_s)
        return self.turns > 0 and self.allowance.left_s < needed_s

    def start(self, interrupts: Interrupts, siblings: Sequence["Member"]) -> None:
        """Forks its process, beside those that live."""
        with self.allowance.passing():
            channel = Channel()
            turns = channel.turns()
            others = [member.child for member in siblings]
            self._child = Child(lambda: self.function(turns), interrupts, channel, others)

    def count_turn(self, seconds: float) -> None:
        """It has had a turn and lives."""
        self.turns += 1
        self.is_spent = self.child.report == SPENT[0]
        self._longest_turn_s = max(self._longest_turn_s, seconds)

    def end(self) -> None:
        """Kills what is left of its process, and keeps what it said."""
        with self.allowance.passing():
            self._ended = self.child.end()


class _Cut(Exception):  # noqa: N818 - a request, not an error
    """The supervisor has to end."""


class SessionRun:
    """One run of a session, from the first fork to the last end."""

    def __init__(
        self,
        members: Sequence[Member],
        protocol: Protocol,
        seed: str,
        interrupts: Interrupts,
        room: Room,
        after_turns: AfterTurns = AfterTurns(),
    ) -> None:
        """Starts nothing yet.

        Args:
            members: in the order in which they are started.
            protocol: of all of them.
            seed: of the order of their turns.
            interrupts: what may end the supervisor.
            room: asked before each start but the first.
            after_turns: what each process times at its end, for which it keeps time.
        """
        self._members, self._protocol, self._interrupts, self._room = members, protocol, interrupts, room
        self._after_turns = after_turns
        self._random = random.Random(seed)  # noqa: S311 - an order, no secret
        self._living: List[Member] = []
        self._oom_kills = 0

    def run(self) -> int:
        """Runs all members to their ends; returns how many took turns with each other.

        Raises:
            Interrupted: the supervisor has to end; all processes are dead and reaped.
        """
        self._oom_kills = kernel.oom_kills() or 0
        self._interrupts.child_starts()
        processes = 0
        try:
            for member in self._members:
                self._enter(member)
            processes = len(self._living)
            self._take_turns(self._living)
            self._measure_in_pairs()
            for member in list(self._living):
                self._go_on(member, ENDS[self._why_no_more(member)])
        except _Cut:
            pass  # `child_ended` says why
        finally:
            for member in self._living:
                member.end()
            end_all()
            self._interrupts.child_ended()
        return processes

    def _enter(self, member: Member) -> None:
        """Starts a process and lets it run until it is warmed up."""
        while self._living:
            shortage = self._room.shortage()
            if shortage is None:
                break
            given_up = self._living[-1] if member.is_baseline else member
            given_up.left_out = shortage
            if given_up is member:
                return
            self._leave(given_up)
        member.start(self._interrupts, self._living)
        self._living.append(member)
        self._watch(member)
        if member in self._living:
            self._room.entered(member.child.pid)

    def _measure_in_pairs(self) -> None:
        """Gives those that had no room beside all others their turns with the baseline, which goes on to live."""
        left_out = [member for member in self._members if member.left_out is not None]
        baselines = [member for member in self._living if member.is_baseline]
        if not left_out or not baselines:
            return
        for member in [member for member in self._living if member not in baselines]:
            self._go_on(member, ENDS[self._why_no_more(member)])
        [baseline] = baselines
        for member in left_out:
            reason, member.left_out = member.left_out, None
            self._enter(member)
            if member not in self._living:
                continue
            member.paired, member.first_cycle = reason, baseline.turns
            self._take_turns([member] if baseline not in self._living else [baseline, member], over=baseline)
            if member in self._living:
                self._go_on(member, ENDS[self._why_no_more(member)])

    def _take_turns(self, members: Sequence[Member], over: Optional[Member] = None) -> None:
        """Runs the cycles of some members.

        Args:
            members: that live.
            over: one whose budget is spent, and counts no more.
        """
        taking = list(members)
        for cycle in range(self._protocol.cycles):
            if cycle >= self._protocol.min_cycles and any(member.is_spent for member in taking if member is not over):
                return
            self._random.shuffle(taking)
            for member in taking:
                if not member.is_short_of_time(self._after_turns):
                    start = time.monotonic()
                    self._go_on(member, GO)
                    if member in self._living:
                        member.count_turn(time.monotonic() - start)
            taking = [member for member in taking if member in self._living and member.turns > cycle]

    def _why_no_more(self, member: Member) -> Stop:
        if member.turns >= self._protocol.cycles:
            return Stop.CYCLES
        return Stop.BUDGET if member.turns >= self._protocol.min_cycles else Stop.SHORT

    def _go_on(self, member: Member, command: bytes) -> None:
        member.child.go_on(command)
        self._watch(member)

    def _watch(self, member: Member) -> None:
        """Lets one process run until it reports, and stops it then, or until it has ended."""
        member.beside = max(member.beside, len(self._living) - 1)
        with member.allowance.passing() as deadline:
            member.child.watch(deadline, self._interrupts)
            member.child.pause()
        self._count_oom_kills(member)
        if self._interrupts.requested:
            raise _Cut
        if member.child.has_exited:
            self._leave(member)

    def _leave(self, member: Member) -> None:
        member.end()
        self._room.left(member.child.pid)
        self._living.remove(member)
        end_strays([living.child for living in self._living])

    def _count_oom_kills(self, active: Member) -> None:
        """Tells whose process the kernel killed for memory: of one that died while it was stopped, or of the active."""
        before, self._oom_kills = self._oom_kills, kernel.oom_kills() or 0
        killed = self._oom_kills - before
        give_up = time.monotonic() + _DYING_S
        while killed:
            for member in self._living:
                if killed and member is not active and member.child.was_killed and not member.child.oom_kills:
                    member.child.oom_kills += 1
                    killed -= 1
            # It is counted when the signal is sent; the process is dead when its memory is gone
            if active.child.was_killed or time.monotonic() > give_up:
                break
            time.sleep(_LOOK_S)
        active.child.oom_kills += killed
