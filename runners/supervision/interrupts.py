"""What may end the supervisor from outside: signals, and the end of the orchestrator."""

import os
import select
import signal
import time
from types import FrameType
from typing import List, Optional

LIFELINE_VARIABLE = "TAXMETER_LIFELINE"
_ENDING = (signal.SIGTERM, signal.SIGINT)
EXIT_ORPHANED = 75


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """The supervisor has to end; nothing of the running trial is recorded."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Interrupts:
    """Turns signals and the lifeline into descriptors that a poll loop can wait for.

    While no child runs, a signal ends the process at once. While one runs, the signal is kept until the poll
    loop has killed the child: its death, too, is announced on `wake_fd`.
    """

    def __init__(self) -> None:
        self.wake_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.lifeline_fd: Optional[int] = 0 if os.environ.get(LIFELINE_VARIABLE) == "stdin" else None
        self._child_runs = False
        self._signal: Optional[int] = None
        self._orphaned = False

    def install(self) -> None:
        """Takes over the signals of this process."""
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in _ENDING:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, self._on_child)

    def reset_in_child(self) -> None:
        """Gives a forked child the default behaviour back; signals are blocked since before the fork."""
        signal.set_wakeup_fd(-1)
        for number in (*_ENDING, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.close(self.wake_fd)
        os.close(self._write_fd)
        self.unblock()

    def block(self) -> None:
        """Holds signals back, so that none finds a half-made child."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._handled())

    def unblock(self) -> None:
        """Lets signals through again."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handled())

    def child_starts(self) -> None:
        """From now on a signal is kept."""
        self._child_runs = True

    def child_ended(self) -> None:
        """Acts on what was kept.

        Raises:
            Interrupted: the supervisor has to end.
        """
        self._child_runs = False
        if self._signal is not None:
            raise Interrupted(128 + self._signal, "ended by %s" % signal.Signals(self._signal).name)
        if self._orphaned:
            raise self._orphan()

    @property
    def requested(self) -> bool:
        """Whether the supervisor has to end."""
        return self._signal is not None or self._orphaned

    def clear_wake(self) -> None:
        """Empties the wake-up pipe; call it when `wake_fd` is readable."""
        os.read(self.wake_fd, 4096)

    def read_lifeline(self) -> bool:
        """Reads what there is; False at the end of file. Call it when `lifeline_fd` is readable."""
        if self.lifeline_fd is not None and not os.read(self.lifeline_fd, 4096):
            self._orphaned = True
        return not self._orphaned

    def pause(self, seconds: float) -> None:
        """Waits while no child runs; a signal ends the process meanwhile.

        Raises:
            Interrupted: the orchestrator is gone.
        """
        end = time.monotonic() + seconds
        poller = select.poll()
        if self.lifeline_fd is not None:
            poller.register(self.lifeline_fd, select.POLLIN)
        while True:
            left_s = end - time.monotonic()
            if left_s <= 0:
                return
            # Rounded up, or the last part of a millisecond would be waited for in many steps
            if poller.poll(left_s * 1000 + 1) and not self.read_lifeline():
                raise self._orphan()

    def _orphan(self) -> Interrupted:
        return Interrupted(EXIT_ORPHANED, "the orchestrator is gone")

    def _handled(self) -> List[signal.Signals]:
        return [*_ENDING, signal.SIGCHLD]

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        if not self._child_runs:
            os._exit(128 + number)
        self._signal = number

    def _on_child(self, number: int, frame: Optional[FrameType]) -> None:
        """Nothing to do: that there is a handler makes the interpreter write to the wake-up pipe."""
