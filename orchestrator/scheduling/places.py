"""Which scheduler serves which place of a driver."""

from orchestrator.hosts import DriverPlace
from orchestrator.scheduling.base import Scheduler
from orchestrator.scheduling.joined import JoinedCluster
from orchestrator.scheduling.nodes import ExistingCluster, RayCluster, ThisMachine


def scheduler_at(place: DriverPlace) -> Scheduler:
    """The scheduler of a campaign. Ray takes a second to import, which most commands do without."""
    from orchestrator.scheduling.ray import RayScheduler

    return RayScheduler(_cluster_at(place))


def _cluster_at(place: DriverPlace) -> RayCluster:
    if place.external is not None:
        return JoinedCluster(place.external)
    if place.head is not None:
        return ExistingCluster(place.head.ray_address, place.head.token_path)
    return ThisMachine()
