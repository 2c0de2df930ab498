"""From a sweep, hosts and environments to tasks: pure, so that a plan can be printed before it runs."""

from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.expansion import environments_on, needed_environments, plan
from orchestrator.planning.hosts import place
from orchestrator.planning.identity import trial_key, visit, work_digest
from orchestrator.planning.model import (
    EnvironmentPin,
    Isolation,
    Plan,
    PlannedTask,
    PlanningHost,
    Skip,
    with_trials,
)
from orchestrator.planning.slots import (
    NONE_USED,
    ChosenGpus,
    Slot,
    TooFewCoresError,
    choose_gpus,
    is_of_gpu,
    make_slots,
    slot_of,
    slots_at_once,
    used_of,
)

__all__ = [
    "NONE_USED",
    "ChosenGpus",
    "EnvironmentPin",
    "Isolation",
    "Plan",
    "PlannedTask",
    "PlanningHost",
    "Skip",
    "Slot",
    "TooFewCoresError",
    "choose_gpus",
    "environments_on",
    "estimate_s",
    "is_of_gpu",
    "make_slots",
    "needed_environments",
    "place",
    "plan",
    "slot_of",
    "slots_at_once",
    "trial_key",
    "used_of",
    "visit",
    "with_trials",
    "work_digest",
]
