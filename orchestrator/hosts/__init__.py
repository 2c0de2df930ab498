"""The machines of an inventory: how each is reached, what it is, and the cluster that is made of them."""

from orchestrator.hosts.access import HostAccess, HostEngine, HostFacts, Hosts, SystemDescription
from orchestrator.hosts.opening import OpenHosts, describe_here, offered_key, open_hosts

__all__ = [
    "HostAccess",
    "HostEngine",
    "HostFacts",
    "Hosts",
    "OpenHosts",
    "SystemDescription",
    "describe_here",
    "offered_key",
    "open_hosts",
]
