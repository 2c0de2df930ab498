"""The machines of an inventory: how each is reached, what it is, and the cluster that is made of them."""

from orchestrator.hosts.access import HostAccess, HostEngine, HostFacts, Hosts
from orchestrator.hosts.opening import OpenHosts, open_hosts

__all__ = ["HostAccess", "HostEngine", "HostFacts", "Hosts", "OpenHosts", "open_hosts"]
