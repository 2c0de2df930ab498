"""A running campaign as other processes see and steer it, through files in the project.

The driver holds the project's campaign and says how it goes; others read that, ask it to stop or to drain, and offer
hosts. Nothing of this is needed to go on with a campaign: that is in the store.

    control = ControlFiles(files.control)
    with control.driving():                    # the driver, around all of the campaign
        control.publish(state)                 # on changes, and as a sign of life
        for request in control.take_requests(): ...
        for host in control.take_offers(): ...

    control.state(), control.is_alive()        # anybody else, in this machine or in the head's container
    control.request(Request(RequestKind.DRAIN, ("h2",)))
"""

from orchestrator.campaign.control.files import ControlFiles
from orchestrator.campaign.control.state import (
    CampaignPhase,
    CampaignProgressState,
    HostPhase,
    HostProgress,
    Request,
    RequestKind,
)

__all__ = [
    "CampaignPhase",
    "CampaignProgressState",
    "ControlFiles",
    "HostPhase",
    "HostProgress",
    "Request",
    "RequestKind",
]
