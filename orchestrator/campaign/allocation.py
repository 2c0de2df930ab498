"""What a campaign with a budget has learnt so far, from the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from orchestrator.config import Sweep
from orchestrator.planning import Plan, PlannedTask, allocation
from orchestrator.store import Store
from runners.contract import Allocation, PastSession, Status, sessions_of
from runners.statistics.allocation import PPM, session_logs

_SIDE: Final = ("trial_key", "replicate")
_COLUMNS: Final = (*_SIDE, "host", "task_id", "round", "status", "started_at", "finished_at", "latency_sync_p10_s")

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


def _allowed(planned: PlannedTask, seconds: float, last: Iterable[tuple[str, str]]) -> PlannedTask:
    known = planned.task.allocation
    if known is None:
        return planned
    environments = sum(host == planned.host for host, _ in last)
    return _replaced(planned, replace(known, budget_ms=known.spent_ms + round(1000 * seconds / environments)))


def _with_past(planned: PlannedTask, rows: Iterable[Row]) -> PlannedTask:
    known = planned.task.allocation
    if known is None:
        return planned
    sides = {(trial.trial_key, trial.replicate): trial.trial_id for trial in known.trials}
    groups = {trial.trial_id: group for group in sessions_of(known.trials) for trial in group}
    sessions: dict[tuple[str, int, datetime], list[Row]] = {}
    tasks: dict[str, list[Row]] = {}
    for row in rows:
        side = sides.get((row["trial_key"], row["replicate"]))
        if side is not None:
            sessions.setdefault((groups[side][0].trial_id, row["round"], row["started_at"]), []).append(row)
            if row["host"] == planned.host and row["task_id"] is not None:
                tasks.setdefault(row["task_id"], []).append(row)
    past = []
    for (group, number, _), some in sorted(sessions.items(), key=lambda item: item[0][2]):
        here = [row for row in some if row["host"] == planned.host]
        # A session of another host that stands for this one says nothing here, but its round is taken
        latencies = {sides[row["trial_key"], row["replicate"]]: _latency_s(row) for row in here}
        measured = {side: latency_s for side, latency_s in latencies.items() if latency_s}
        ppm = {name: round(log * PPM) for name, log in session_logs(groups[group], measured).items()}
        past.append(PastSession(group, number, _took_ms(here), ppm))
    spent_ms = sum(map(_took_ms, tasks.values()))
    return _replaced(planned, replace(known, past=tuple(past), spent_ms=spent_ms))


def _took_ms(rows: Sequence[Row]) -> int:
    """From the first start to the last end: what lies between sessions is spent, too."""
    ends = [row["finished_at"] for row in rows if row["finished_at"] is not None]
    return round((max(ends) - min(row["started_at"] for row in rows)).total_seconds() * 1000) if ends else 0


def _latency_s(row: Row) -> float | None:
    return row["latency_sync_p10_s"] if row["status"] == Status.OK.value else None


def _replaced(planned: PlannedTask, known: Allocation) -> PlannedTask:
    return replace(planned, task=replace(planned.task, allocation=known))
