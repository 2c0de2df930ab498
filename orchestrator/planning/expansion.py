"""From a sweep, hosts and environments to tasks: a pure function, so that a plan can be printed before it runs."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.config import Sweep, WorkloadAxis
from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.feasibility import ANY_SUITABLE, environment_problem, model_problem, newest_suitable
from orchestrator.planning.identity import trial_key, visit, work_digest
from orchestrator.planning.model import Plan, PlannedTask, PlanningHost, Skip
from orchestrator.planning.slots import slot_of
from orchestrator.planning.targets import choose_hosts, place
from runners.contract import CONTRACT_VERSION, BackendSpec, Task, Trial, TrialSpec, WorkloadSpec, digest
from runners.contract.catalogue import WORKLOADS, refusal


def plan(sweep: Sweep, hosts: Sequence[PlanningHost], campaign_id: str) -> Plan:
    """Expands a sweep on hosts.

    Args:
        sweep: the parameter space.
        hosts: the hosts that may take part, each with a pin for every environment of the sweep, and for every one
            that `any-suitable` may stand for.
        campaign_id: seeds the random order and stands in every trial's identity.
    """
    chosen, unmatched = choose_hosts(sweep, hosts, lambda host: _able(sweep, host))
    tasks: list[PlannedTask] = []
    skips: list[Skip] = []
    for host in chosen:
        for environment in environments_on(sweep, host):
            part = _Part(sweep, host, environment, campaign_id)
            runnable, impossible = _divide(sweep, host, environment)
            skips += [Skip(host.name, environment, part.trial(spec), reason) for spec, reason in impossible]
            tasks += [part.task(round_number, runnable) for round_number in range(1, sweep.rounds + 1) if runnable]
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    places = {host.name: place(sweep, host) for host in chosen}
    visits = (
        (places[planned.host], trial.trial_key, trial.round, trial.replicate)
        for planned in tasks
        for trial in planned.task.trials
    )
    return Plan(tuple(tasks), tuple(skips), unmatched, work_digest(sweep.name, visits), estimate_s(tasks), places)


def environments_on(sweep: Sweep, host: PlanningHost) -> tuple[str, ...]:
    """The environments of a sweep on a host; `any-suitable` stays only where nothing is suitable."""
    names = (_suitable(sweep, host)[0] or name if name == ANY_SUITABLE else name for name in sweep.environments)
    return tuple(dict.fromkeys(names))


def needed_environments(planned: Plan) -> dict[str, frozenset[str]]:
    """By host, the environments that a trial of the plan runs in: the others need not be built there."""
    needed: dict[str, frozenset[str]] = {}
    for task in planned.tasks:
        needed[task.host] = needed.get(task.host, frozenset()) | {task.task.environment}
    return needed


def specifications(sweep: Sweep, host: PlanningHost) -> Iterator[TrialSpec]:
    """The points of a sweep's parameter space on a host."""
    for axis, backend, dtype, threads in itertools.product(
        sweep.workloads, sweep.backends, sweep.dtypes, sweep.threads
    ):
        for workload in _shapes(axis):
            yield TrialSpec(
                workload=workload,
                backend=BackendSpec(backend.name, backend.all_options()),
                dtype=dtype,
                device=sweep.device,
                threads=len(host.cores_for(sweep.device)) if threads == "all" else threads,
                seed=sweep.seed,
                protocol=sweep.protocol,
            )


def unique(specs: Iterable[TrialSpec]) -> list[TrialSpec]:
    """The specifications without repetitions, in their order."""
    found: dict[str, TrialSpec] = {}
    for spec in specs:
        found.setdefault(digest(spec), spec)
    return list(found.values())


@dataclass(frozen=True)
class _Part:
    """One environment on one host of a campaign."""

    sweep: Sweep
    host: PlanningHost
    environment: str
    campaign_id: str

    def trial(self, spec: TrialSpec, round_number: int = 1, order: int = 0, replicate: int = 0) -> Trial:
        where = place(self.sweep, self.host)
        key = trial_key(spec, self.host.environments[self.environment])
        return visit(self.campaign_id, where, key, spec, round_number, order, replicate, self.sweep.timeout_s)

    def task(self, round_number: int, specs: Sequence[TrialSpec]) -> PlannedTask:
        """All trials of a round, in a random order of their own."""
        order = [(spec, copy) for spec in specs for copy in range(_copies(self.sweep, spec))]
        seed = f"{self.campaign_id}/{place(self.sweep, self.host)}/{self.environment}/{round_number}"
        random.Random(seed).shuffle(order)  # noqa: S311 - an order, no secret
        trials = tuple(self.trial(spec, round_number, position, copy) for position, (spec, copy) in enumerate(order))
        task_id = f"{self.campaign_id}-{self.host.name}-{self.environment}-r{round_number}"
        task = Task(CONTRACT_VERSION, self.campaign_id, task_id, self.environment, trials, self.sweep.guards)
        return PlannedTask(self.host.name, task, slot_of(self.host.slots, task).index if self.host.slots else 0)


def _able(sweep: Sweep, host: PlanningHost) -> int:
    return sum(len(_divide(sweep, host, environment)[0]) for environment in environments_on(sweep, host))


def _divide(sweep: Sweep, host: PlanningHost, environment: str) -> tuple[list[TrialSpec], list[tuple[TrialSpec, str]]]:
    """What can run, and what cannot with its reason."""
    runnable: list[TrialSpec] = []
    impossible: list[tuple[TrialSpec, str]] = []
    lacking = _environment_reason(sweep, host, environment)
    # An axis may name one point twice, such as `all` threads and their number.
    for spec in unique(specifications(sweep, host)):
        reason = lacking or _cores_reason(spec, host) or refusal(spec) or model_problem(spec, host.machine)
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


def _cores_reason(spec: TrialSpec, host: PlanningHost) -> str | None:
    cores = host.cores_for(spec.device)
    if spec.threads <= len(cores):
        return None
    whose = host.name if cores == host.cores else f"a GPU's slot of {host.name}"
    return f"{spec.threads} threads on {len(cores)} cores of {whose}"


def _copies(sweep: Sweep, spec: TrialSpec) -> int:
    return 1 + sweep.is_duplicated(spec.workload.name, spec.backend.name, spec.workload.batch)


def _shapes(axis: WorkloadAxis) -> Iterator[WorkloadSpec]:
    for name in axis.name:
        info = WORKLOADS[name]
        sequences = axis.sequence_length or (info.sequence_length,)
        images = axis.image_size or (info.image_size,)
        points = itertools.product(axis.batch, sequences, images, axis.option_points(name))
        for batch, sequence_length, image_size, options in points:
            yield WorkloadSpec(name, batch, sequence_length, image_size, options)
