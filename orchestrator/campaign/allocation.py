"""What a campaign with a budget has learnt so far, from the store, and whether it goes on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from orchestrator.config import Sweep
from orchestrator.planning import Plan, PlannedTask, allocation
from orchestrator.store import Store
from runners.contract import Allocation, Interleaving, PastSession, Status, Task, sessions_of
from runners.statistics.allocation import Allocator, Series, session_logs

_SIDE: Final = ("trial_key", "replicate")
_COLUMNS: Final = (
    *_SIDE,
    *("host", "round", "status", "started_at", "finished_at", "interleaving", "samples_sync_s", "turn_samples"),
)
_PPM: Final = 1_000_000

Row = Mapping[str, Any]


def with_past(plan: Plan, store: Store, campaign_id: str) -> Plan:
    """A plan whose tasks know the sessions that the store has of their trials."""
    if all(planned.task.allocation is None for planned in plan.tasks):
        return plan
    return replace(plan, tasks=tuple(tasks_with_past(plan.tasks, store, campaign_id)))


def tasks_with_past(tasks: Sequence[PlannedTask], store: Store, campaign_id: str) -> list[PlannedTask]:
    """Tasks that know the sessions that the store has of their trials."""
    rows = store.trials(list(_COLUMNS), campaign_id=campaign_id).to_pylist()
    return [_with_past(planned, rows) for planned in tasks]


def with_more(plan: Plan, sweep: Sweep, seconds: float, store: Store, campaign_id: str) -> Plan:
    """A plan that may spend more than it has, whatever its sweep says.

    Args:
        plan: of a campaign.
        sweep: says how precise it is to be.
        seconds: for further sessions on each host, shared by its environments.
        store: knows what was spent.
        campaign_id: of the campaign.
    """
    last: dict[tuple[str, str], int] = {}
    for number, planned in enumerate(plan.tasks):
        last[planned.host, planned.task.environment] = number
    tasks = list(plan.tasks)
    for (host, environment), number in last.items():
        theirs = [planned for planned in plan.tasks if (planned.host, planned.task.environment) == (host, environment)]
        first = [trial for planned in theirs for trial in planned.task.trials if trial.round == 1]
        tasks[number] = _replaced(tasks[number], allocation(sweep, first, 0))
    known = with_past(replace(plan, tasks=tuple(tasks)), store, campaign_id)
    return replace(known, tasks=tuple(_allowed(planned, seconds, last) for planned in known.tasks))


def goes_on(task: Task) -> bool:
    """Whether a task has a session left to measure beside its trials, by what its allocation knows."""
    return task.allocation is not None and bool(Allocator(task.allocation).next_session(0.0))


def _allowed(planned: PlannedTask, seconds: float, last: Iterable[tuple[str, str]]) -> PlannedTask:
    known = planned.task.allocation
    if known is None:
        return planned
    environments = sum(host == planned.host for host, _ in last)
    spent_ms = sum(session.taken_ms for session in known.past)
    return _replaced(planned, replace(known, budget_ms=spent_ms + round(1000 * seconds / environments)))


def _with_past(planned: PlannedTask, rows: Iterable[Row]) -> PlannedTask:
    known = planned.task.allocation
    if known is None:
        return planned
    sides = {(trial.trial_key, trial.replicate): trial.trial_id for trial in known.trials}
    by_round: dict[tuple[str, int], list[Row]] = {}
    groups = {trial.trial_id: group for group in sessions_of(known.trials) for trial in group}
    for row in rows:
        side = sides.get((row["trial_key"], row["replicate"]))
        if side is not None and row["host"] == planned.host:
            by_round.setdefault((groups[side][0].trial_id, row["round"]), []).append(row)
    past = []
    for (group, number), some in sorted(by_round.items(), key=lambda item: item[0][1]):
        measured = {sides[row["trial_key"], row["replicate"]]: _series(row) for row in some if _is_measured(row)}
        ends = [row["finished_at"] for row in some if row["finished_at"] is not None]
        taken = max(ends, default=some[0]["started_at"]) - min(row["started_at"] for row in some)
        logs = session_logs(groups[group], measured)
        ppm = {name: round(log * _PPM) for name, log in logs.items()}
        past.append(PastSession(group, number, round(taken.total_seconds() * 1000), ppm))
    return _replaced(planned, replace(known, past=tuple(past)))


def _is_measured(row: Row) -> bool:
    return row["status"] == Status.OK.value and bool(row["samples_sync_s"])


def _series(row: Row) -> Series:
    in_turns = row["interleaving"] == Interleaving.TURNS.value
    return Series(row["samples_sync_s"], row["turn_samples"] or () if in_turns else ())


def _replaced(planned: PlannedTask, known: Allocation) -> PlannedTask:
    return replace(planned, task=replace(planned.task, allocation=known))
