"""A Ray cluster that somebody else keeps, as a place where tasks run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.scheduling.base import SchedulingHost
from orchestrator.scheduling.nodes import Connected, connected


@dataclass(frozen=True)
class JoinedCluster:
    """Such a cluster; see `RayCluster`."""

    external: ExternalCluster

    def connect(self, hosts: Sequence[SchedulingHost]) -> Connected:
        """See `RayCluster.connect`. The labels of the inventory need not be labels of Ray there."""
        return connected(self.external.join(), [replace(host, labels={}) for host in hosts])

    def disconnect(self) -> None:
        """See `RayCluster.disconnect`."""
        self.external.leave()
