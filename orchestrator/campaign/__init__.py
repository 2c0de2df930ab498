"""One run of a sweep on an inventory: the only place where the scheduler and the store meet."""

from orchestrator.campaign.control import ControlFiles
from orchestrator.campaign.driver.campaign_run import run_campaign
from orchestrator.campaign.handover import drive
from orchestrator.campaign.progress import (
    CampaignPlanned,
    CampaignProgress,
    Notice,
    Observer,
    TrialBegun,
    TrialRecorded,
)
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.reproduce.reproduction import (
    Allowed,
    Reproduction,
    is_reproduction,
    refuse_another_method,
    targets,
)
from orchestrator.campaign.reproduce.run import ReproduceRequest, run_reproduction
from orchestrator.campaign.reproduce.stored import find
from orchestrator.campaign.resume import CampaignRequest, Choose, ResumeDecision, ResumePolicy, choose_campaign
from orchestrator.campaign.run import RunRequest, listed, look, run_sweep
from orchestrator.campaign.stored_plan import refuse_stored_code
