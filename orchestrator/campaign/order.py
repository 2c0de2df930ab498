"""Everything that a campaign needs, decided before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.campaign.preparation import ReadyHost
from orchestrator.campaign.resume import Continuation
from orchestrator.delivery import Reproduces


@dataclass(frozen=True)
class CampaignOrder:
    """What to run, where, and what to note about it."""

    continuation: Continuation
    hosts: Sequence[ReadyHost]
    sweep_name: str
    sweep_document: str
    inventory_document: str
    taxmeter_version: str
    git_commit: str | None
    reproduces: Reproduces | None = None
    """Null for a campaign that measures something of its own."""
