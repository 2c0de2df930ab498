"""Moves what waits for a host that is lost or drained to one that was offered in its place."""

from collections.abc import Collection, Iterable

from orchestrator.campaign.driving.tasks import restarted
from orchestrator.campaign.driving.work import HostWork
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.planning import Plan, PlannedTask
from orchestrator.planning.slots import slot_of, slots_at_once


def trials_of(alone: Plan) -> frozenset[str]:
    """Ids of the trials of a plan. Of one for a host alone, they tell which of another's trials it can take.

    An id holds the place of its host, so it is shared only by hosts that stand for each other.
    """
    return frozenset(trial.trial_id for one in alone.tasks for trial in one.task.trials)


def slots_on(host: ReadyHost, planned: Plan) -> int:
    """How many tasks of a plan run at once on a host."""
    tasks = [one.task for one in planned.tasks if one.host == host.planning.name]
    return slots_at_once(host.planning.slots, tasks) if host.planning.slots else 1


def move(sources: Iterable[HostWork], target: HostWork, ready: ReadyHost, able: Collection[str]) -> dict[str, int]:
    """Moves waiting trials to a host that can take them.

    Args:
        sources: hosts that start nothing now.
        target: where the trials go to.
        ready: the same host.
        able: ids of the trials that it can take.

    Returns:
        By source, how many trials were moved.
    """
    moved: dict[str, int] = {}
    for source in sources:
        kept: list[PlannedTask] = []
        for planned in source.waiting:
            task = planned.task
            going = tuple(trial for trial in task.trials if trial.trial_id in able)
            staying = tuple(trial for trial in task.trials if trial.trial_id not in able)
            if going:
                origin = f"{task.campaign_id}-{target.name}-{task.environment}-r{going[0].round}"
                new = restarted(task, going, origin)
                slot = slot_of(ready.planning.slots, new).index if ready.planning.slots else 0
                target.waiting.append(PlannedTask(target.name, new, slot))
                moved[source.name] = moved.get(source.name, 0) + len(going)
            if staying:
                kept.append(PlannedTask(source.name, restarted(task, staying) if going else task, planned.slot))
        source.waiting.clear()
        source.waiting.extend(kept)
        source.total -= moved.get(source.name, 0)
        target.total += moved.get(source.name, 0)
    return moved
