"""What a driver says of its campaign, and what it can be asked."""

from dataclasses import dataclass
from enum import Enum


class HostPhase(Enum):
    """How a host of a running campaign is."""

    READY = "ready"
    """It takes tasks, and has none now."""
    RUNNING = "running"
    LOST = "lost"
    """It does not answer; its tasks wait for it."""
    DRAINED = "drained"
    """It takes no new tasks, because somebody asked for that; what runs there ends by itself."""
    GIVEN_UP = "given-up"
    """It was lost for too long, or failed too often: what is left there is not measured by this run."""
    DONE = "done"
    """Nothing is left for it."""


class CampaignPhase(Enum):
    """How a campaign is."""

    RUNNING = "running"
    DRAINING = "draining"
    """No host takes new tasks; what runs ends by itself."""
    STOPPING = "stopping"
    """What runs is being ended."""
    ENDED = "ended"
    """The driver has said its last word: finished, drained, or stopped."""


@dataclass(frozen=True)
class HostProgress:
    """One host of a running campaign."""

    name: str
    phase: HostPhase
    since_ns: int
    """When the phase began, in nanoseconds since 1970."""
    reason: str | None = None
    """Why it is in this phase, where that is not plain: of lost, drained and given-up."""
    task_id: str | None = None
    trial: str | None = None
    """What runs there now, in a few words: workload, backend, batch, round."""
    done: int = 0
    """Trials of this host with a final row, those that were in the store before included."""
    left: int = 0
    """Trials of this host without one."""
    failed: int = 0
    """Of those done by this run: whose status says that something went wrong."""
    already_done: int = 0
    """Of `done`, those that were in the store before this run."""


@dataclass(frozen=True)
class CampaignProgressState:
    """A running campaign, as its driver last saw it."""

    campaign_id: str
    sweep: str
    started_at_ns: int
    """When this run of it began, in nanoseconds since 1970."""
    beat_at_ns: int
    """When this was written."""
    phase: CampaignPhase
    hosts: tuple[HostProgress, ...]
    done: int
    """Trials with a final row, those that were in the store before this run included."""
    left: int
    """Trials without one."""
    failed: int
    """Of those done by this run: whose status says that something went wrong."""
    pid: int
    """Of the driver, in its own container if it has one: to tell runs apart, no proof of life."""
    place: str
    """`this machine`, or the container of the cluster's head."""
    results: str
    """The store's directory, absolute."""
    already_done: int = 0
    """Of `done`, those that were in the store before this run."""
    estimate_s: float | None = None
    """What the plan expected for what was left as this run began, in seconds; null if unknown."""


class RequestKind(Enum):
    """What a driver can be asked."""

    STOP = "stop"
    """As Ctrl-C there: what runs is ended, what is recorded stays."""
    DRAIN = "drain"
    """No new tasks for some hosts, or for all."""


@dataclass(frozen=True)
class Request:
    """What somebody asks of the driver."""

    kind: RequestKind
    hosts: tuple[str, ...] = ()
    """The hosts that are meant, by name; none means all. Of a stop always none."""
