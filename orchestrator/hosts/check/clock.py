"""How far the clock of a host is from this machine's."""

import os
import re
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.hosts.connection import Connections, HostConnectionError, end

_EXCHANGES = 5
_CLOCK = ["sh", "-c", "while read -r _; do date +taxmeter-clock:%s.%N; done"]
# a login shell may have printed something before
_TIME = re.compile(rb"taxmeter-clock:(.*)\n")


@dataclass(frozen=True)
class Skew:
    """The host's clock minus this machine's."""

    offset_s: float
    uncertainty_s: float
    """The truth lies within the offset plus or minus this."""


def measure_skew_of(ask: Callable[[], str]) -> Skew | None:
    """The skew as the quickest of some questions tells it; null if none tells it.

    Args:
        ask: a host for its time, in seconds since 1970.
    """
    found = []
    for _ in range(_EXCHANGES):
        asked = time.time()
        answer = ask()
        found.append(skew_of(asked, answer, time.time()))
    return min((skew for skew in found if skew is not None), key=lambda skew: skew.uncertainty_s, default=None)


def skew_of(asked: float, answered: str, received: float) -> Skew | None:
    """What one question tells; all in seconds since 1970, by this machine's clock but for the answer.

    Wherever in between the host looked at its clock, the middle is wrong by at most half of the time.
    """
    match = re.match(r"(\d+)(\.\d+)?", answered)
    if match is None:
        return None
    # a date without fractions: any moment of that second
    said, resolution = (float(match[0]), 0.0) if match[2] is not None else (float(match[0]) + 0.5, 0.5)
    return Skew(said - (asked + received) / 2, (received - asked) / 2 + resolution)


def measure_skew(connections: Connections, name: str, timeout_s: float) -> Skew | None:
    """Asks a host over one connection of SSH; null if it does not tell.

    Raises:
        HostConnectionError: the connection ended, or the time was up.
    """
    deadline = time.monotonic() + timeout_s
    process, said = connections.start(name, _CLOCK), b""

    def ask() -> str:
        nonlocal said
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        while (time_there := _TIME.search(said)) is None:
            readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise HostConnectionError(name, f"no answer about its time within {timeout_s:g} s")
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                return ""
            said += piece
        said = said[time_there.end() :]
        return time_there[1].decode("ascii", "replace")

    try:
        return measure_skew_of(ask)
    except BrokenPipeError:
        raise HostConnectionError(name, "the connection ended while it was asked for its time") from None
    finally:
        end(process)


def clock_here(_: None) -> str:
    """The time of this machine, as an answer."""
    return f"{time.time():.6f}"
