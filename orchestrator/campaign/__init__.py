"""One run of a sweep on an inventory: the only place where the scheduler and the store meet."""

from orchestrator.campaign.driving.running import ray_scheduler, run_campaign
from orchestrator.campaign.files import ProjectFiles, drop_caches
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.preparing.hosts import reachable_hosts
from orchestrator.campaign.preparing.preparation import (
    ReadyHost,
    pins_without_building,
    prepare_hosts,
    reap_leftovers,
)
from orchestrator.campaign.progress import CampaignPlanned, CampaignProgress, Notice, TrialBegun, TrialRecorded
from orchestrator.campaign.remote import (
    Handover,
    is_remote,
    look_at_hosts,
    prepare_agents,
    read_handover,
    refuse_results_elsewhere,
    write_handover,
)
from orchestrator.campaign.reproducing.method import refuse_another_method
from orchestrator.campaign.reproducing.readying import make_ready, preview
from orchestrator.campaign.reproducing.repeating import continuation_of, order_again
from orchestrator.campaign.reproducing.reproduction import Reproduction, decide
from orchestrator.campaign.reproducing.stored import find
from orchestrator.campaign.reproducing.targets import Allowed, targets
from orchestrator.campaign.resuming.resume import Continuation, ResumePolicy, choose_campaign

__all__ = [
    "Allowed",
    "CampaignOrder",
    "CampaignPlanned",
    "CampaignProgress",
    "Continuation",
    "Handover",
    "Notice",
    "ProjectFiles",
    "ReadyHost",
    "Reproduction",
    "ResumePolicy",
    "TrialBegun",
    "TrialRecorded",
    "choose_campaign",
    "continuation_of",
    "decide",
    "drop_caches",
    "find",
    "is_remote",
    "look_at_hosts",
    "make_ready",
    "order_again",
    "pins_without_building",
    "prepare_agents",
    "prepare_hosts",
    "preview",
    "ray_scheduler",
    "reachable_hosts",
    "read_handover",
    "reap_leftovers",
    "refuse_another_method",
    "refuse_results_elsewhere",
    "run_campaign",
    "targets",
    "write_handover",
]
