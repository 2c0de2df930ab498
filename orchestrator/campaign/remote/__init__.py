"""Campaigns on hosts that are reached over SSH: prepared by the user's process, driven in the head's container."""

from orchestrator.campaign.remote.caretaking import Charge, taking_care
from orchestrator.campaign.remote.handover import Handover, read_handover, refuse_results_elsewhere, write_handover
from orchestrator.campaign.remote.looking import Seen, is_remote, listed, look_at_hosts
from orchestrator.campaign.remote.preparation import Prepared, build_images, pinned, prepare_agents

__all__ = [
    "Charge",
    "Handover",
    "Prepared",
    "Seen",
    "build_images",
    "is_remote",
    "listed",
    "look_at_hosts",
    "pinned",
    "prepare_agents",
    "read_handover",
    "refuse_results_elsewhere",
    "taking_care",
    "write_handover",
]
