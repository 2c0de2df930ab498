"""How long tasks take: turns and budgets plus measured overheads."""

from collections import Counter
from collections.abc import Collection, Sequence

from orchestrator.planning.model import PlannedTask
from runners.contract import STANDARD, GuardPolicy, Known, Task, TrialSpec, sessions_of
from runners.contract.catalogue import BACKENDS

# Measured with the quickstart on two idle cores, 0.8 to 1.1 s. Beside its budgets a trial builds, traces or loads its
# model, verifies it and makes the untimed call of each turn.
OVERHEAD_PER_TRIAL_S = 1.1
# A reference or an export, which the first round makes and later rounds find in the cache.
PREPARATION_S = 1.4
# The examination on a GPU beside its budgets: a context and a model again, utilisation's window, a profile of 16 calls.
EXAMINATION_S = 8.0
# A dispatch floor beside the budgets of its twins: they are built, verified and warmed up, once per task and structure.
OVERHEAD_PER_FLOOR_S = 2.0
TWINS_PER_FLOOR = 3
# Start of a task: container, imports, self-check.
START_OF_TASK_S = 8.0


def estimate_s(tasks: Sequence[PlannedTask], known: Known | None = None) -> float:
    """Wall time of the tasks in seconds, hosts and slots in parallel: turns and budgets plus measured overheads.

    Args:
        tasks: of all hosts.
        known: of their specifications' parts; see `canonical_json`.
    """
    per_slot: dict[tuple[str, int], float] = {}
    specs = {id(trial.spec): trial.spec for planned in tasks for trial in planned.task.trials}
    processes_ms = {name: _processes_ms(spec) for name, spec in specs.items()}
    floors = {name: _floor(spec) for name, spec in specs.items()}
    groups: Known = {}
    for planned in tasks:
        trials = planned.task.trials
        visits = Counter(id(trial.spec) for trial in trials)
        seconds = START_OF_TASK_S + len(sessions_of(trials, groups, known)) * _looking_ms(planned.task) / 1000
        seconds += _floors_s({floors[name] for name in visits}) + OVERHEAD_PER_TRIAL_S * len(trials)
        seconds += sum(processes_ms[name] * count for name, count in visits.items()) / 1000
        new = {trial.trial_key: trial.spec for trial in trials if trial.round == 1}
        seconds += PREPARATION_S * len(new) + sum(_compiling_s(spec) for spec in new.values())
        if planned.task.allocation is not None:
            left_ms = planned.task.allocation.budget_ms - planned.task.allocation.spent_ms
            seconds = max(seconds, START_OF_TASK_S + left_ms / 1000)
        slot = planned.host, planned.slot
        per_slot[slot] = per_slot.get(slot, 0.0) + seconds
    return max(per_slot.values(), default=0.0)


def _processes_ms(spec: TrialSpec) -> float:
    """What a trial spends in warm-up, turns and series; a call longer than a turn is not known beforehand."""
    protocol = spec.protocol
    if protocol.procedure != STANDARD:
        return protocol.warmup_min_ms
    spent_ms: float = protocol.warmup_min_ms + protocol.cycles * protocol.turn_ms + protocol.pipelined_budget_ms
    if spec.device == "cuda":
        # It builds and warms up twice
        again_ms = protocol.warmup_min_ms + 1000 * (EXAMINATION_S + OVERHEAD_PER_TRIAL_S)
        spent_ms += protocol.dispatch_budget_ms + protocol.graph_budget_ms + again_ms
    return spent_ms + 3 * protocol.energy_window_ms


def _compiling_s(spec: TrialSpec) -> float:
    """For which its backend compiles, if no cache holds it: the model, and its floor's twins, which take as long."""
    compile_s = BACKENDS[spec.backend.name].compile_s + float(spec.backend.options.get("tuning_budget_s", 0))
    return compile_s if _floor(spec) is None else 2 * compile_s


def _looking_ms(task: Task) -> int:
    """For which its guards watch the cores before each session; that they wait is not expected."""
    return 0 if task.guards.load.policy is GuardPolicy.OFF else task.guards.load.window_ms


def _floor(spec: TrialSpec) -> tuple[int, object] | None:
    """Its budget, and what trials share that have one dispatch floor; null where none is measured."""
    workload, backend, protocol = spec.workload, spec.backend, spec.protocol
    if spec.device != "cpu" or not protocol.floor_budget_ms or protocol.procedure != STANDARD:
        return None
    options = tuple(tuple(sorted(options.items())) for options in (workload.options, backend.options))
    sizes = workload.sequence_length, workload.image_size
    return protocol.floor_budget_ms, (workload.name, workload.source, sizes, backend.name, options, spec.dtype)


def _floors_s(floors: Collection[tuple[int, object] | None]) -> float:
    return sum(OVERHEAD_PER_FLOOR_S + TWINS_PER_FLOOR * floor[0] / 1000 for floor in floors if floor is not None)
