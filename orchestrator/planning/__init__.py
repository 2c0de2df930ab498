"""From a sweep, hosts and environments to tasks: pure, so that a plan can be printed before it runs."""

from orchestrator.pin import EnvironmentPin, Isolation
from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.expansion import (
    allocation,
    environments_on,
    needed_environments,
    plan,
    specifications,
    unique,
)
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
from orchestrator.planning.model import (
    Plan,
    PlannedTask,
    PlanningHost,
    Skip,
    trial_key,
    visit,
    work_digest,
)
from orchestrator.planning.slots import (
    NONE_USED,
    Slot,
    TooFewCoresError,
    choose_gpus,
    is_of_gpu,
    make_slots,
    slot_of,
    slots_at_once,
    used_of,
)
