"""How far a host's clock is from this machine's, and how sure that is."""

import re
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.hosts.connection import Connections, HostConnectionError, Reason, end

_EXCHANGES = 5
_COMMAND = ["sh", "-c", "while read -r _; do date +%s.%N; done"]


@dataclass(frozen=True)
class Skew:
    """The host's clock minus this machine's."""

    offset_s: float
    uncertainty_s: float
    """The truth lies within the offset plus or minus this."""


@dataclass(frozen=True)
class Exchange:
    """One question and its answer. All in seconds since 1970: two of this machine's clock, one of the host's."""

    asked: float
    answered: str
    received: float


def skew_of(exchanges: Sequence[Exchange]) -> Skew | None:
    """The skew as the quickest exchange tells it; None if none tells it.

    Wherever in the exchange the host looked at its clock, the middle is wrong by at most half of its time.
    """
    known = [skew for skew in map(_skew, exchanges) if skew is not None]
    return min(known, key=lambda skew: skew.uncertainty_s, default=None)


def measure_skew(connections: Connections, name: str, timeout_s: float) -> Skew | None:
    """Asks a host for its time some times over one connection; None if it does not tell.

    Raises:
        HostConnectionError: the connection ended, or the time was up.
    """
    deadline = time.monotonic() + timeout_s
    process = connections.start(name, _COMMAND)
    assert process.stdin is not None
    assert process.stdout is not None
    exchanges = []
    try:
        for _ in range(_EXCHANGES):
            asked = time.time()
            process.stdin.write(b"\n")
            process.stdin.flush()
            readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise HostConnectionError(name, Reason.TIMEOUT, f"no answer about its time within {timeout_s:g} s")
            answer = process.stdout.readline()
            exchanges.append(Exchange(asked, answer.decode("ascii", "replace").strip(), time.time()))
    except BrokenPipeError:
        raise HostConnectionError(name, Reason.OTHER, "the connection ended while it was asked for its time") from None
    finally:
        end(process)
    return skew_of(exchanges)


def clock_here(_: None) -> str:
    """The time of this machine, as an answer of an exchange."""
    return f"{time.time():.6f}"


def measure_skew_of(ask: Callable[[], str]) -> Skew | None:
    """The same with a question that is asked some times."""
    return skew_of([Exchange(time.time(), ask(), time.time()) for _ in range(_EXCHANGES)])


def _skew(exchange: Exchange) -> Skew | None:
    match = re.match(r"(\d+)(\.\d+)?", exchange.answered)
    if match is None:
        return None
    said, resolution = float(match[0]), 0.0
    if match[2] is None:
        # a date without fractions: any moment of that second
        said, resolution = said + 0.5, 0.5
    middle = (exchange.asked + exchange.received) / 2
    return Skew(said - middle, (exchange.received - exchange.asked) / 2 + resolution)
