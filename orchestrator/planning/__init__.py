"""From a sweep, hosts and environments to tasks: pure, so that a plan can be printed before it runs."""

from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.expansion import environments_on, needed_environments, plan
from orchestrator.planning.identity import trial_key, visit
from orchestrator.planning.model import (
    EnvironmentPin,
    Isolation,
    Plan,
    PlannedTask,
    PlanningHost,
    Skip,
    with_trials,
)

__all__ = [
    "EnvironmentPin",
    "Isolation",
    "Plan",
    "PlannedTask",
    "PlanningHost",
    "Skip",
    "environments_on",
    "estimate_s",
    "needed_environments",
    "plan",
    "trial_key",
    "visit",
    "with_trials",
]
