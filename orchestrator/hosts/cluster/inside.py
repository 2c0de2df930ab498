"""Runs a command inside the head's container for somebody outside: with a lifeline, signals, and a terminal if wanted.

    python -m orchestrator.hosts.cluster.inside SIZE COMMAND...      SIZE is COLUMNSxROWS of a terminal, or `none`

Its standard input carries the numbers of signals, a line each, which the command gets. When it ends, whoever started
this is gone, and the command is told to end too.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading

GRACE_S = 60.0
"""That a command has for ending when nobody is there any more."""


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit code, 128 and the signal's number if one ended it."""
    size, *command = arguments
    copying = None
    if size == "none":
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    else:
        ours, theirs = pty.openpty()
        columns, rows = map(int, size.split("x"))
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        copying = threading.Thread(target=_copy, args=(ours,), daemon=True)
        copying.start()
    threading.Thread(target=_listen, args=(child,), daemon=True).start()
    code = child.wait()
    if copying is not None:
        # a process that the command left behind may still hold the terminal
        copying.join(1.0)
    return code if code >= 0 else 128 - code


def _listen(child: "subprocess.Popen[bytes]") -> None:
    for line in sys.stdin:
        if line.strip().isdigit() and child.poll() is None:
            child.send_signal(int(line))
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


def _copy(terminal: int) -> None:
    try:
        while data := os.read(terminal, 1 << 16):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except OSError:
        # how Linux says that nobody has the other end any more
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
