"""Starts a child process, watches it, ends it and everything that it left behind."""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from enum import Enum
from typing import Callable, Optional, Tuple

from runners.contract import Usage
from runners.protocol.answer import Answer
from runners.supervision import child, kernel
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


def run_child(function: Callable[[], Answer], deadline: float, interrupts: Interrupts) -> Ended:
    """Runs a function in a forked process until it ends or has to end.

    Args:
        function: what the child does.
        deadline: on the clock of `time.monotonic`.
        interrupts: what may end the supervisor itself.

    Raises:
        Interrupted: the supervisor has to end; the child is dead and reaped.
    """
    kills_before = kernel.oom_kills()
    answer_fd = kernel.answer_file()
    output = _Output()
    try:
        interrupts.child_starts()
        pid = _fork(function, answer_fd, output, interrupts)
        stop = _watch(pid, output, deadline, interrupts)
        status, usage = _end_all(pid)
        output.drain()
        data = kernel.read_file(answer_fd, MAX_ANSWER_BYTES + 1)
    finally:
        os.close(output.fd)
        os.close(answer_fd)
    interrupts.child_ended()
    return Ended(
        data=data,
        code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status),
        stop=stop,
        oom_kills=(kernel.oom_kills() or 0) - (kills_before or 0),
        log_tail=output.tail.decode("utf-8", "replace"),
        usage=usage,
    )


def _fork(function: Callable[[], Answer], answer_fd: int, output: _Output, interrupts: Interrupts) -> int:
    supervisor = os.getpid()
    # What is buffered now would be printed twice
    sys.stdout.flush()
    sys.stderr.flush()
    interrupts.block()
    pid = os.fork()
    if pid == 0:
        os.close(output.fd)
        child.live(function, supervisor, answer_fd, output.write_fd, interrupts)
    interrupts.unblock()
    os.close(output.write_fd)
    return pid


def _watch(pid: int, output: _Output, deadline: float, interrupts: Interrupts) -> Optional[Stop]:
    poller = select.poll()
    poller.register(output.fd, select.POLLIN)
    poller.register(interrupts.wake_fd, select.POLLIN)
    if interrupts.lifeline_fd is not None:
        poller.register(interrupts.lifeline_fd, select.POLLIN)
    stop: Optional[Stop] = None
    act_at = deadline
    while not _exited(pid):
        for descriptor, _ in poller.poll(max(0.0, act_at - time.monotonic()) * 1000):
            if descriptor == interrupts.wake_fd:
                interrupts.clear_wake()
            elif descriptor == interrupts.lifeline_fd:
                if not interrupts.read_lifeline():
                    poller.unregister(descriptor)
            elif not output.drain():
                poller.unregister(output.fd)
        late = time.monotonic() >= act_at
        if stop is None:
            stop = _reason_to_stop(late, output, interrupts)
            if stop is not None:
                gentle = stop is Stop.DEADLINE
                _signal_group(pid, signal.SIGTERM if gentle else signal.SIGKILL)
                act_at = time.monotonic() + (_GRACE_S if gentle else _PATIENCE_S)
        elif late or interrupts.requested:
            _signal_group(pid, signal.SIGKILL)
            act_at = time.monotonic() + _PATIENCE_S
    return stop


def _reason_to_stop(late: bool, output: _Output, interrupts: Interrupts) -> Optional[Stop]:
    if interrupts.requested:
        return Stop.INTERRUPT
    if output.total > MAX_PRINTED_BYTES:
        return Stop.OUTPUT
    return Stop.DEADLINE if late else None


def _exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # It has not made itself the leader of a group yet
        os.kill(pid, number)


def _end_all(pid: int) -> Tuple[int, Usage]:
    """Kills and reaps the child, its descendants and whatever else was handed to us."""
    if os.environ.get(PRIVATE_NAMESPACE_VARIABLE) == "1":
        # The only thing that ends a fork bomb: everything in the container but us and its first process
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        options = 0
        # Files there count against the container's memory, and the next trial is not to pay for them
        for directory in _SCRATCH:
            _empty(directory)
    else:
        options = os.WNOHANG
    result = None
    while True:
        if options:
            _kill_descendants()
        try:
            reaped, status, used = os.wait4(-1, options)
        except ChildProcessError:
            break
        if reaped == pid:
            result = status, used
        elif not reaped:
            time.sleep(0.002)
    assert result is not None
    status, used = result
    usage = Usage(
        max_rss_bytes=used.ru_maxrss * 1024,
        user_cpu_s=used.ru_utime,
        system_cpu_s=used.ru_stime,
        voluntary_context_switches=used.ru_nvcsw,
        involuntary_context_switches=used.ru_nivcsw,
        major_page_faults=used.ru_majflt,
    )
    return status, usage


def _empty(directory: str) -> None:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _kill_descendants() -> None:
    for pid in kernel.descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
