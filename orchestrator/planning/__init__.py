"""From a sweep, hosts and environments to tasks: pure, so that a plan can be printed before it runs."""

from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.expansion import environments_on, needed_environments, plan, specifications, unique
from orchestrator.planning.feasibility import (
    ANY_SUITABLE,
    GIB,
    Demands,
    GpuFacts,
    Machine,
    environment_problem,
    model_problem,
    newest_suitable,
)
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
from orchestrator.planning.targets import place

__all__ = [
    "ANY_SUITABLE",
    "GIB",
    "NONE_USED",
    "ChosenGpus",
    "Demands",
    "EnvironmentPin",
    "GpuFacts",
    "Isolation",
    "Machine",
    "Plan",
    "PlannedTask",
    "PlanningHost",
    "Skip",
    "Slot",
    "TooFewCoresError",
    "choose_gpus",
    "environment_problem",
    "environments_on",
    "estimate_s",
    "is_of_gpu",
    "make_slots",
    "model_problem",
    "needed_environments",
    "newest_suitable",
    "place",
    "plan",
    "slot_of",
    "slots_at_once",
    "specifications",
    "trial_key",
    "unique",
    "used_of",
    "visit",
    "with_trials",
    "work_digest",
]
