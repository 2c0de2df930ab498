"""Reaches the hosts of an inventory over SSH, with the system's own client; never asks, never trusts by itself."""

from collections.abc import Mapping

from orchestrator.config import Connection, Host
from orchestrator.hosts.connection.failures import HostConnectionError, Reason
from orchestrator.hosts.connection.process import Deadline, end
from orchestrator.hosts.connection.ssh import CommandOutput, Connections, EngineForward, for_each

__all__ = [
    "CommandOutput",
    "Connections",
    "Deadline",
    "EngineForward",
    "HostConnectionError",
    "Reason",
    "end",
    "for_each",
    "unreachable_reason",
]

_REACH_TIMEOUT_S = 10.0


def unreachable_reason(name: str, hosts: Mapping[str, Host]) -> str | None:
    """Why a host cannot be reached, in one line; None if it can. Tries for ten seconds at most.

    Args:
        name: of the host.
        hosts: with the host, and those that its connection goes through.
    """
    if hosts[name].connection is Connection.LOCAL:
        return None
    try:
        with Connections(hosts) as connections:
            connections.run(name, ["true"], _REACH_TIMEOUT_S)
    except HostConnectionError as error:
        return error.problem
    return None
