"""One run of a sweep on an inventory: the only place where the scheduler and the store meet."""

from orchestrator.campaign.files import ProjectFiles, drop_caches
from orchestrator.campaign.hosts import reachable_hosts
from orchestrator.campaign.method import refuse_another_method
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.preparation import (
    ReadyHost,
    pins_without_building,
    prepare_hosts,
    reap_leftovers,
)
from orchestrator.campaign.progress import CampaignPlanned, CampaignProgress, Notice, TrialBegun, TrialRecorded
from orchestrator.campaign.readying import make_ready, preview
from orchestrator.campaign.remote import (
    Handover,
    is_remote,
    look_at_hosts,
    prepare_agents,
    read_handover,
    refuse_results_elsewhere,
    write_handover,
)
from orchestrator.campaign.repeating import continuation_of, order_again
from orchestrator.campaign.reproduction import Reproduction, decide
from orchestrator.campaign.resume import Continuation, ResumePolicy, choose_campaign
from orchestrator.campaign.running import ray_scheduler, run_campaign
from orchestrator.campaign.stored import find
from orchestrator.campaign.targets import Allowed, targets

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
