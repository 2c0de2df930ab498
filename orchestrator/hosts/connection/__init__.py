"""Reaches the hosts of an inventory over SSH, with the system's own client; never asks, never trusts by itself."""

from orchestrator.hosts.connection.failures import HostConnectionError, reason
from orchestrator.hosts.connection.ssh import CommandOutput, Connections, Deadline, end, for_each, of_each
