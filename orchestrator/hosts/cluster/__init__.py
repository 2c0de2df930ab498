"""A Ray cluster on the hosts of an inventory: brought up, looked at, used, and taken down again.

Every host gets one container, which is a node of Ray; this machine gets one with the head, in which drivers run. All
of it carries the cluster's label, and nothing without that label is ever touched.
"""

from orchestrator.hosts.cluster.borrowing import borrowed, keep
from orchestrator.hosts.cluster.executing import execute_in_head
from orchestrator.hosts.cluster.looking import status
from orchestrator.hosts.cluster.mending import mend
from orchestrator.hosts.cluster.model import Agent, Cluster, ClusterStatus, NodeStatus
from orchestrator.hosts.cluster.starting import NoHostJoinedError, load, up
from orchestrator.hosts.cluster.stopping import down

__all__ = [
    "Agent",
    "Cluster",
    "ClusterStatus",
    "NoHostJoinedError",
    "NodeStatus",
    "borrowed",
    "down",
    "execute_in_head",
    "keep",
    "load",
    "mend",
    "status",
    "up",
]
