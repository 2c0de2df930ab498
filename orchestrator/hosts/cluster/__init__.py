"""A Ray cluster on the hosts of an inventory: brought up, looked at, used, and taken down again.

Every host gets one container, which is a node of Ray; this machine gets one with the head, in which drivers run. All
of it carries the cluster's label, and nothing without that label is ever touched.
"""

from orchestrator.hosts.cluster.commands import execute_in_head
from orchestrator.hosts.cluster.lifecycle import down, keep, status, up
from orchestrator.hosts.cluster.plan import ensure_agent_image
from orchestrator.hosts.cluster.settings import CODE_VARIABLE, HOST_LABEL, RELAY, RELAY_SLOTS, SLOT
from orchestrator.hosts.cluster.state import Cluster, ClusterStatus, NodeStatus
