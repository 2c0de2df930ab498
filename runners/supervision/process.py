"""Child processes: one is started and watched, stopped and continued, ended with everything that it left behind."""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from enum import Enum
from typing import Callable, Iterable, List, Optional

from runners.contract import Usage
from runners.protocol.answer import Answer
from runners.protocol.turns import DONE, READY, SPENT, Turns
from runners.supervision import child as body
from runners.supervision import kernel
from runners.supervision.interrupts import Interrupts

PRIVATE_NAMESPACE_VARIABLE = "TAXMETER_PRIVATE_PID_NAMESPACE"
_SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - of a container of our own
MAX_PRINTED_BYTES = 64 << 20
MAX_ANSWER_BYTES = 64 << 20

_LOG_TAIL_BYTES = 64 << 10
_READ_BYTES = 1 << 16
_READS_PER_WAKE = 64
_GRACE_S = 1.0
_PATIENCE_S = 10.0
_STOPPING_S = 0.0002
_REPORTS = READY + DONE + SPENT


class Stop(Enum):
    """Why the supervisor ended a child."""

    DEADLINE = "deadline"
    OUTPUT = "output"
    INTERRUPT = "interrupt"


@dataclass(frozen=True)
class Ended:
    """A child process after its end."""

    data: bytes
    """What it wrote as its answer; longer than MAX_ANSWER_BYTES if it wrote too much."""
    code: int
    """Exit code, or minus the signal that ended it."""
    stop: Optional[Stop]
    """Why we ended it; None if it ended by itself."""
    oom_kills: int
    """Processes that the kernel killed for memory meanwhile."""
    log_tail: str
    usage: Usage


class _Output:
    """The pipe that is a child's standard output: the end of the text is kept, the rest is counted."""

    def __init__(self) -> None:
        self.fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        self.total = 0
        self.tail = b""

    def drain(self) -> bool:
        """Reads some of what is there; False at the end of file."""
        for _ in range(_READS_PER_WAKE):
            try:
                block = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return True
            if not block:
                return False
            self.total += len(block)
            self.tail = (self.tail + block)[-_LOG_TAIL_BYTES:]
        return True


class Channel:
    """The two pipes between a supervisor and a child that takes turns."""

    def __init__(self) -> None:
        self._child_commands, self._commands = os.pipe2(os.O_CLOEXEC)
        self.reports, self._child_reports = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reports, False)
        os.set_blocking(self._commands, False)

    @property
    def own(self) -> List[int]:
        """The supervisor's ends."""
        return [self._commands, self.reports]

    def turns(self) -> Turns:
        """The child's end."""
        return Turns(self._child_commands, self._child_reports)

    def close_childs(self) -> None:
        """Leaves the child's ends to the child."""
        os.close(self._child_commands)
        os.close(self._child_reports)

    def tell(self, command: bytes) -> None:
        """Sends one command. A child that died or reads none gets none: its end is noticed by its death."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._commands, command)


class Child:
    """One forked process, from its fork to its end. It may be stopped while others run."""

    def __init__(
        self,
        function: Callable[[], Answer],
        interrupts: Interrupts,
        channel: Optional[Channel] = None,
        siblings: Iterable["Child"] = (),
    ) -> None:
        """Forks.

        Args:
            function: what the child does.
            interrupts: what may end the supervisor itself.
            channel: over which the child takes turns; it is closed with the child.
            siblings: the other living children; this one must not hold what is theirs.
        """
        self.stop: Optional[Stop] = None
        """Why it was ended."""
        self.report: Optional[int] = None
        """The byte that it said last, since it was told to go on."""
        self.oom_kills = 0
        """Processes of it that the kernel killed for memory; counted by whoever watches it."""
        self._channel = channel
        self._answer_fd = kernel.answer_file()
        self._output = _Output()
        foreign = [self._output.fd, *(channel.own if channel else ())]
        for sibling in siblings:
            foreign += sibling._held()
        supervisor = os.getpid()
        # What is buffered now would be printed twice
        sys.stdout.flush()
        sys.stderr.flush()
        interrupts.block()
        self.pid = os.fork()
        if self.pid == 0:
            body.live(_without(foreign, function), supervisor, self._answer_fd, self._output.write_fd, interrupts)
        interrupts.unblock()
        os.close(self._output.write_fd)
        if channel is not None:
            channel.close_childs()

    @property
    def has_exited(self) -> bool:
        """Whether it has ended; it is not reaped yet."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def was_killed(self) -> bool:
        """Whether it has ended by SIGKILL."""
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return seen is not None and seen.si_status == signal.SIGKILL and seen.si_code == os.CLD_KILLED

    def pause(self) -> None:
        """Stops it and its group; returns when all its threads stand still, or it has ended."""
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + _PATIENCE_S
        states = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.pid, states) is None and time.monotonic() < end:
            time.sleep(_STOPPING_S)

    def go_on(self, command: bytes) -> None:
        """Gives it a command and lets it run."""
        assert self._channel is not None
        self.report = None
        self._channel.tell(command)
        self._signal(signal.SIGCONT)

    def watch(self, deadline: float, interrupts: Interrupts) -> None:
        """Waits until it reports or has ended, and ends it where it has to end.

        Args:
            deadline: on the clock of `time.monotonic`.
            interrupts: what may end the supervisor itself.
        """
        reports = None if self._channel is None else self._channel.reports
        poller = select.poll()
        for descriptor in (self._output.fd, interrupts.wake_fd, interrupts.lifeline_fd, reports):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        act_at = deadline
        while not self.has_exited:
            for descriptor, _ in poller.poll(max(0.0, act_at - time.monotonic()) * 1000):
                if descriptor == interrupts.wake_fd:
                    interrupts.clear_wake()
                elif descriptor == interrupts.lifeline_fd:
                    if not interrupts.read_lifeline():
                        poller.unregister(descriptor)
                elif descriptor == reports:
                    said = os.read(descriptor, _READ_BYTES)
                    if not said:
                        poller.unregister(descriptor)
                    self.report = next((c for c in reversed(said) if c in _REPORTS), self.report)
                elif not self._output.drain():
                    poller.unregister(self._output.fd)
            late = time.monotonic() >= act_at
            if self.stop is None:
                self.stop = self._reason_to_stop(late, interrupts)
                if self.stop is not None:
                    gentle = self.stop is Stop.DEADLINE
                    self._signal(signal.SIGTERM if gentle else signal.SIGKILL)
                    act_at = time.monotonic() + (_GRACE_S if gentle else _PATIENCE_S)
                elif self.report is not None:
                    return
            elif late or interrupts.requested:
                self._signal(signal.SIGKILL)
                act_at = time.monotonic() + _PATIENCE_S

    def end(self) -> Ended:
        """Kills what is left of its group, reaps it, and takes what it said and wrote."""
        self._signal(signal.SIGKILL)
        _, status, used = os.wait4(self.pid, 0)
        self._output.drain()
        data = kernel.read_file(self._answer_fd, MAX_ANSWER_BYTES + 1)
        for descriptor in self._held():
            os.close(descriptor)
        return Ended(
            data=data,
            code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status),
            stop=self.stop,
            oom_kills=self.oom_kills,
            log_tail=self._output.tail.decode("utf-8", "replace"),
            usage=Usage(
                max_rss_bytes=used.ru_maxrss * 1024,
                user_cpu_s=used.ru_utime,
                system_cpu_s=used.ru_stime,
                voluntary_context_switches=used.ru_nvcsw,
                involuntary_context_switches=used.ru_nivcsw,
                major_page_faults=used.ru_majflt,
            ),
        )

    def _held(self) -> List[int]:
        return [self._output.fd, self._answer_fd, *(self._channel.own if self._channel else ())]

    def _reason_to_stop(self, late: bool, interrupts: Interrupts) -> Optional[Stop]:
        if interrupts.requested:
            return Stop.INTERRUPT
        if self._output.total > MAX_PRINTED_BYTES:
            return Stop.OUTPUT
        return Stop.DEADLINE if late else None

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # It has not made itself the leader of a group yet
            os.kill(self.pid, number)


def run_child(function: Callable[[], Answer], deadline: float, interrupts: Interrupts) -> Ended:
    """Runs a function in a forked process until it ends or has to end; no other child lives meanwhile.

    Args:
        function: what the child does.
        deadline: on the clock of `time.monotonic`.
        interrupts: what may end the supervisor itself.

    Raises:
        Interrupted: the supervisor has to end; the child is dead and reaped.
    """
    kills_before = kernel.oom_kills()
    interrupts.child_starts()
    child = Child(function, interrupts)
    child.watch(deadline, interrupts)
    child.oom_kills = (kernel.oom_kills() or 0) - (kills_before or 0)
    ended = child.end()
    end_all()
    interrupts.child_ended()
    return ended


def end_strays(living: Iterable[Child]) -> None:
    """Kills what dead children left behind while others live. What multiplies faster than that waits for `end_all`."""
    roots = [child.pid for child in living]
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        spared = set(roots).union(*(kernel.descendants(pid) for pid in roots))
        strays = [pid for pid in kernel.descendants(os.getpid()) if pid not in spared]
        if not strays:
            return
        _kill(strays)
        time.sleep(0.002)


def end_all() -> None:
    """Kills and reaps every descendant of this process, and whatever else was handed to it."""
    options = os.WNOHANG
    if os.environ.get(PRIVATE_NAMESPACE_VARIABLE) == "1":
        # The only thing that ends a fork bomb: everything in the container but us and its first process
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        options = 0
        # Files there count against the container's memory, and the next trial is not to pay for them
        for directory in _SCRATCH:
            _empty(directory)
    while True:
        if options:
            _kill(kernel.descendants(os.getpid()))
        try:
            if not os.wait4(-1, options)[0]:
                time.sleep(0.002)
        except ChildProcessError:
            return


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _without(descriptors: Iterable[int], function: Callable[[], Answer]) -> Callable[[], Answer]:
    """The function, in a process that has closed these descriptors."""

    def alone() -> Answer:
        for descriptor in descriptors:
            os.close(descriptor)
        return function()

    return alone


def _empty(directory: str) -> None:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
