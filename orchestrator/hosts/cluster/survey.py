"""What must be known of a host before anything is started there."""

import ipaddress
import socket
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import WORK_DIRECTORY, Connection, Host
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.check import FILESYSTEM, filesystem_problem
from orchestrator.hosts.connection import Connections

_ANSWER_S = 30.0
_MARK = "taxmeter-survey:"
_SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
# Lines of a login script may come first. SSH_CONNECTION: our address and port as seen there, then the host's own. Last
# the ports on which somebody listens, as the kernel writes them.
_SCRIPT = f"""
{FILESYSTEM}
printf '{_MARK}%s|' "$SSH_CONNECTION"
ls /dev/nvidia[0-9]* 2>/dev/null | wc -l | tr -d '\\n'
printf '|'; if [ -f /etc/os-release ]; then printf yes; else printf no; fi
printf '|%s|' "$(filesystem_of "$1")"
sed -n 's/^ *[0-9]*: [0-9A-F]*:\\([0-9A-F]*\\) [0-9A-F:]* {_LISTENS} .*/\\1/p' {" ".join(_SOCKETS)} 2>/dev/null |
  tr '\\n' ' '
echo
"""


@dataclass(frozen=True)
class Survey:
    """A host that was reached."""

    ours: str | None
    """This machine's address as the host sees it: that of a jump host where there is one; null for this machine."""
    own: str | None
    """The address of the host on which it was reached; null for this machine."""
    has_gpus: bool
    has_os_release: bool
    listened: frozenset[int] = frozenset()
    """TCP ports on which somebody listens there."""
    filesystem: str | None = None
    """The kind that its work directory is on; null if it does not tell."""


def survey(name: str, host: Host, connections: Connections) -> Survey:
    """Asks a host.

    Raises:
        HostConnectionError: it was not reached.
        InfrastructureError: its answer cannot be understood, or its address or its work directory cannot be used.
    """
    if host.connection is Connection.LOCAL:
        done = subprocess.run(["sh", "-s"], input=_SCRIPT, capture_output=True, text=True, env={}, check=False)
        return parse(done.stdout)
    directory = host.work_directory or WORK_DIRECTORY
    found = parse(connections.run(name, ["sh", "-s", "--", directory], _ANSWER_S, stdin=_SCRIPT).stdout)
    problem = filesystem_problem(directory, found.filesystem)
    if problem is not None:
        raise InfrastructureError(problem)
    return found


def parse(text: str) -> Survey:
    """The answer of the script.

    Raises:
        InfrastructureError: it is none, or the host was reached by IPv6, which Ray is not used with here.
    """
    line = next((line for line in text.splitlines() if _MARK in line), None)
    if line is None:
        raise InfrastructureError("its shell gives no answer that can be understood")
    connection, gpus, release, kind, ports = line.partition(_MARK)[2].split("|")
    ours, own = _addresses(connection.split())
    listened = frozenset(int(port, 16) for port in ports.split())
    return Survey(ours, own, gpus.strip() not in ("", "0"), release.strip() == "yes", listened, kind or None)


def listened_here() -> frozenset[int]:
    """TCP ports on which somebody listens on this machine."""
    lines = [line.split() for path in _SOCKETS if Path(path).exists() for line in Path(path).read_text().splitlines()]
    return frozenset(int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[3] == _LISTENS)


def choose_address(surveys: Iterable[Survey], before: str | None) -> str:
    """This machine's address as the hosts are to call it: the one that most of them see.

    Args:
        surveys: of the hosts.
        before: the address that the cluster has; it is kept where it still can be.
    """
    found = [address for survey in surveys if (address := _of_this_machine(survey)) is not None]
    if before is not None and is_own_address(before) and (before in found or not found):
        return before
    return Counter(found).most_common(1)[0][0] if found else (_towards("192.0.2.1") or "127.0.0.1")


def is_own_address(address: str) -> bool:
    """Whether this machine has an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _of_this_machine(survey: Survey) -> str | None:
    """What the host sees, unless that is a jump host or a router in between; then what leads to the host from here."""
    if survey.ours is None or survey.own is None:
        return None
    return survey.ours if is_own_address(survey.ours) else _towards(survey.own)


def _towards(address: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # sends nothing: the kernel only chooses a way
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return None


def _addresses(connection: Sequence[str]) -> tuple[str | None, str | None]:
    if len(connection) != 4:
        return None, None
    for address in (connection[0], connection[2]):
        if ipaddress.ip_address(address.partition("%")[0]).version != 4:
            raise InfrastructureError(f"it was reached by IPv6 ({address}), which a cluster cannot use: give it IPv4")
    return connection[0], connection[2]
