"""Everything that a campaign needs, decided before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.resume import Continuation
from orchestrator.config import Faults, Sweep
from orchestrator.store import Reproduces


@dataclass(frozen=True)
class CampaignOrder:
    """What to run, where, and what to note about it."""

    continuation: Continuation
    hosts: Sequence[ReadyHost]
    sweep_name: str
    sweep_document: str
    inventory_document: str
    git_commit: str | None
    reproduces: Reproduces | None = None
    """Null for a campaign that measures something of its own."""
    faults: Faults = field(default_factory=Faults)
    """How long hosts are waited for that do not answer."""
    sweep: Sweep | None = None
    """What is measured, to tell which trials a host that comes later can take; null where none can."""
