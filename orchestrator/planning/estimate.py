"""How long a plan takes. An estimate."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.planning.model import PlannedTask
from runners.contract import STANDARD, GuardPolicy, Task, digest

# Measured with the quickstart on two cores. Beside its budgets a trial builds, traces or loads its model, verifies it
# and makes its minimum of calls.
OVERHEAD_PER_TRIAL_S = 2.6
# A reference or an export, which the first round makes and later rounds find in the cache.
PREPARATION_S = 1.4
# A dispatch floor beside its budget: another model is built, verified and warmed up, once per task and structure.
OVERHEAD_PER_FLOOR_S = 2.0
# Start of a task: container, imports, self-check.
START_OF_TASK_S = 8.0


def estimate_s(tasks: Sequence[PlannedTask]) -> float:
    """Wall time of the tasks in seconds, hosts and their slots in parallel: budgets plus measured overheads."""
    per_slot: dict[tuple[str, int], float] = {}
    prepared: set[tuple[str, str, str]] = set()
    for planned in tasks:
        seconds = START_OF_TASK_S + _floors_s(planned.task)
        for trial in planned.task.trials:
            protocol = trial.spec.protocol
            budget_ms = protocol.warmup_min_ms + protocol.sync_budget_ms + protocol.pipelined_budget_ms
            if trial.spec.device == "cuda":
                budget_ms += protocol.dispatch_budget_ms + protocol.graph_budget_ms
            budget_ms += 3 * protocol.energy_window_ms + _looking_ms(planned.task)
            seconds += budget_ms / 1000 + OVERHEAD_PER_TRIAL_S
            identity = (planned.host, planned.task.environment, trial.trial_key)
            if identity not in prepared:
                prepared.add(identity)
                seconds += PREPARATION_S
        slot = planned.host, planned.slot
        per_slot[slot] = per_slot.get(slot, 0.0) + seconds
    return max(per_slot.values(), default=0.0)


def _looking_ms(task: Task) -> int:
    """For which its guards watch the cores before each trial; that they wait is not expected."""
    return 0 if task.guards.load.policy is GuardPolicy.OFF else task.guards.load.window_ms


def _floors_s(task: Task) -> float:
    floors = {
        (digest([replace(spec.workload, batch=1), spec.backend, spec.dtype]), spec.protocol.floor_budget_ms)
        for spec in (trial.spec for trial in task.trials)
        if spec.device == "cpu" and spec.protocol.floor_budget_ms and spec.protocol.procedure == STANDARD
    }
    return sum(OVERHEAD_PER_FLOOR_S + budget_ms / 1000 for _, budget_ms in floors)
