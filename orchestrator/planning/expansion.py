"""From a sweep, hosts and environments to tasks: a pure function, so that a plan can be printed before it runs."""

import random
from collections.abc import Sequence

from orchestrator.config.sweep import Sweep
from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.feasibility import ANY_SUITABLE, environment_problem, model_problem, newest_suitable
from orchestrator.planning.hosts import choose_hosts, place
from orchestrator.planning.identity import trial_key, visit, work_digest
from orchestrator.planning.model import EnvironmentPin, Plan, PlannedTask, PlanningHost, Skip
from orchestrator.planning.points import specifications, unique
from orchestrator.planning.slots import slot_of
from runners.contract import CONTRACT_VERSION, Task, Trial, TrialSpec
from runners.contract.catalogue import refusal


def plan(sweep: Sweep, hosts: Sequence[PlanningHost], campaign_id: str) -> Plan:
    """Expands a sweep on hosts.

    Args:
        sweep: the parameter space.
        hosts: the hosts that may take part, each with a pin for every environment of the sweep, and for every one
            that `any-suitable` may stand for.
        campaign_id: seeds the random order and stands in every trial's identity.
    """
    chosen = choose_hosts(sweep, hosts, lambda host: _able(sweep, host))
    tasks: list[PlannedTask] = []
    skips: list[Skip] = []
    visits: list[tuple[str, str, int, int]] = []
    for host, environment in [(one, name) for one in chosen.hosts for name in environments_on(sweep, one)]:
        pin, at = host.environments[environment], place(sweep, host)
        runnable, impossible = _divide(sweep, host, environment)
        skips += [
            Skip(host.name, environment, _trial(campaign_id, at, pin, sweep, spec, 1, 0, 0), reason)
            for spec, reason in impossible
        ]
        for round_number in range(1, sweep.rounds + 1):
            order = [(spec, copy) for spec in runnable for copy in range(_copies(sweep, spec))]
            random.Random(f"{campaign_id}/{at}/{environment}/{round_number}").shuffle(order)  # noqa: S311 - an order, no secret
            trials = tuple(
                _trial(campaign_id, at, pin, sweep, spec, round_number, position, copy)
                for position, (spec, copy) in enumerate(order)
            )
            visits += [(at, trial.trial_key, trial.round, trial.replicate) for trial in trials]
            if trials:
                task_id = f"{campaign_id}-{host.name}-{environment}-r{round_number}"
                task = Task(CONTRACT_VERSION, campaign_id, task_id, environment, trials, sweep.guards)
                tasks.append(PlannedTask(host.name, task, slot_of(host.slots, task).index if host.slots else 0))
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    places = {host.name: place(sweep, host) for host in chosen.hosts}
    digest = work_digest(sweep.name, visits)
    return Plan(tuple(tasks), tuple(skips), chosen.unmatched, digest, estimate_s(tasks), places)


def environments_on(sweep: Sweep, host: PlanningHost) -> tuple[str, ...]:
    """The environments of a sweep on a host; `any-suitable` stays only where nothing is suitable."""
    names = (_suitable(sweep, host)[0] or name if name == ANY_SUITABLE else name for name in sweep.environments)
    return tuple(dict.fromkeys(names))


def needed_environments(planned: Plan) -> dict[str, frozenset[str]]:
    """By host, the environments that a trial of the plan runs in: the others need not be built there."""
    needed: dict[str, frozenset[str]] = {}
    for one in planned.tasks:
        needed[one.host] = needed.get(one.host, frozenset()) | {one.task.environment}
    return needed


def _able(sweep: Sweep, host: PlanningHost) -> int:
    return sum(len(_divide(sweep, host, environment)[0]) for environment in environments_on(sweep, host))


def _divide(sweep: Sweep, host: PlanningHost, environment: str) -> tuple[list[TrialSpec], list[tuple[TrialSpec, str]]]:
    runnable: list[TrialSpec] = []
    impossible: list[tuple[TrialSpec, str]] = []
    lacking = _environment_reason(sweep, host, environment)
    # An axis may name one point twice, such as `all` threads and their number.
    for spec in unique(specifications(sweep, host)):
        reason = lacking or _impossible_reason(spec, host) or model_problem(spec, host.machine)
        if reason is None:
            runnable.append(spec)
        else:
            impossible.append((spec, reason))
    return runnable, impossible


def _suitable(sweep: Sweep, host: PlanningHost) -> tuple[str | None, str]:
    return newest_suitable(host.demands, host.unavailable, host.machine, sweep.device)


def _environment_reason(sweep: Sweep, host: PlanningHost, environment: str) -> str | None:
    if environment == ANY_SUITABLE:
        return f"no environment of the catalogue is suitable: {_suitable(sweep, host)[1]}"
    needs = host.demands.get(environment)
    problem = None if needs is None else environment_problem(needs, host.machine, sweep.device)
    return host.unavailable.get(environment) or problem


def _impossible_reason(spec: TrialSpec, host: PlanningHost) -> str | None:
    cores = host.cores_for(spec.device)
    if spec.threads > len(cores):
        whose = host.name if cores == host.cores else f"a GPU's slot of {host.name}"
        return f"{spec.threads} threads on {len(cores)} cores of {whose}"
    return refusal(spec)


def _copies(sweep: Sweep, spec: TrialSpec) -> int:
    return 1 + sweep.is_duplicated(spec.workload.name, spec.backend.name, spec.workload.batch)


def _trial(
    campaign_id: str,
    at: str,
    pin: EnvironmentPin,
    sweep: Sweep,
    spec: TrialSpec,
    round_number: int,
    order: int,
    replicate: int,
) -> Trial:
    key = trial_key(spec, pin)
    return visit(campaign_id, at, key, spec, round_number, order, replicate, sweep.timeout_s)
