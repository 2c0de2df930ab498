"""A Ray cluster on the hosts of an inventory: brought up, looked at, used, and taken down again.

Every host gets one container, which is a node of Ray; this machine gets one with the head, in which drivers run. All
of it carries the cluster's label, and nothing without that label is ever touched.
"""

from orchestrator.cluster.borrowing import borrowed, keep
from orchestrator.cluster.executing import execute_in_head
from orchestrator.cluster.looking import status
from orchestrator.cluster.mending import mend
from orchestrator.cluster.model import Agent, Cluster, ClusterStatus, NodeStatus
from orchestrator.cluster.starting import load, up
from orchestrator.cluster.stopping import down

__all__ = [
    "Agent",
    "Cluster",
    "ClusterStatus",
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
