"""One run of a sweep on an inventory: the only place where the scheduler and the store meet."""

from orchestrator.campaign.files import ProjectFiles, drop_caches
from orchestrator.campaign.preparation import (
    ReadyHost,
    pins_without_building,
    prepare_hosts,
    reachable_hosts,
    reap_leftovers,
)
from orchestrator.campaign.progress import CampaignPlanned, CampaignProgress, Notice, TrialBegun, TrialRecorded
from orchestrator.campaign.resume import Continuation, ResumePolicy, choose_campaign
from orchestrator.campaign.running import CampaignOrder, ray_scheduler, run_campaign

__all__ = [
    "CampaignOrder",
    "CampaignPlanned",
    "CampaignProgress",
    "Continuation",
    "Notice",
    "ProjectFiles",
    "ReadyHost",
    "ResumePolicy",
    "TrialBegun",
    "TrialRecorded",
    "choose_campaign",
    "drop_caches",
    "pins_without_building",
    "prepare_hosts",
    "ray_scheduler",
    "reachable_hosts",
    "reap_leftovers",
    "run_campaign",
]
