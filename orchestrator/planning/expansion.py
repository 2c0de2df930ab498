"""From a sweep, hosts and environments to tasks: pure, so that a plan can be printed first."""

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from orchestrator.config import ANY, EACH_GPU_MODEL, Sweep, WorkloadAxis
from orchestrator.planning.estimate import estimate_s
from orchestrator.planning.feasibility import ANY_SUITABLE, environment_problem, model_problem, newest_suitable
from orchestrator.planning.model import Plan, PlannedTask, PlanningHost, Skip, trial_key, visit, work_digest
from orchestrator.planning.slots import slot_of
from runners.contract import (
    CONTRACT_VERSION,
    Allocation,
    BackendSpec,
    Known,
    Task,
    Trial,
    TrialSpec,
    WorkloadSpec,
    digest,
    shared_parts,
)
from runners.contract.catalogue import refusal
from runners.statistics.allocation import PPM

MAX_TRIALS = 1_000_000
"""Of a campaign; at a second each they take twelve days."""


def plan(sweep: Sweep, hosts: Sequence[PlanningHost], campaign_id: str) -> Plan:
    """Expands a sweep on hosts.

    Args:
        sweep: the parameter space.
        hosts: the hosts that may take part, each with a pin for every environment of the sweep, and for every one
            that `any-suitable` may stand for.
        campaign_id: seeds the random order and stands in every trial's identity.

    Raises:
        ConfigurationError: it would have more than `MAX_TRIALS` trials.
    """
    _refuse_endless(sweep, 1)
    chosen, unmatched = _choose_hosts(sweep, hosts)
    _refuse_endless(sweep, sum(len(environments_on(sweep, host)) for host in chosen))
    tasks: list[PlannedTask] = []
    skips: list[Skip] = []
    shared = _Shared(_all_shapes(sweep))
    for host in chosen:
        divided = {
            environment: _divide(sweep, host, environment, shared) for environment in environments_on(sweep, host)
        }
        able = sum(bool(runnable) for runnable, _ in divided.values())
        for environment, (runnable, impossible) in divided.items():
            part = _Part(sweep, host, environment, campaign_id, shared.known)
            skips += [Skip(host.name, environment, part.skipped(spec), reason) for spec, reason in impossible]
            if runnable:
                tasks += part.tasks(runnable, able)
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    places = {host.name: place(sweep, host) for host in chosen}
    visits = (
        (places[planned.host], trial.trial_key, trial.round, trial.replicate)
        for planned in tasks
        for trial in planned.task.trials
    )
    work = work_digest(sweep.name, visits)
    return Plan(tuple(tasks), tuple(skips), unmatched, work, estimate_s(tasks, shared.known), places)


def _refuse_endless(sweep: Sweep, places: int) -> None:
    """Refuses what nobody can plan, before it is expanded.

    Args:
        sweep: the parameter space.
        places: environments, of all hosts.

    Raises:
        ConfigurationError: it would have more than `MAX_TRIALS` trials.
    """
    shapes = sum(
        len(axis.name)
        * len(axis.batch)
        * len(axis.sequence_length or (0,))
        * len(axis.image_size or (0,))
        * math.prod(map(len, axis.options.values()))
        for axis in sweep.workloads
    )
    trials = shapes * len(sweep.backends) * len(sweep.dtypes) * len(sweep.threads) * sweep.planned_rounds * places
    if trials > MAX_TRIALS:
        raise sweep.error(
            f"{trials} trials, at most {MAX_TRIALS} can be planned; lower rounds, shorten an axis, or name fewer hosts",
            *(("rounds",) if "rounds" in sweep.model_fields_set else ()),
        )


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


def specifications(
    sweep: Sweep,
    host: PlanningHost,
    environment: str | None = None,
    shapes: Sequence[Sequence[WorkloadSpec]] | None = None,
) -> Iterator[TrialSpec]:
    """The points of a sweep's parameter space on a host.

    Args:
        sweep: the parameter space.
        host: decides how many threads `all` are.
        environment: by default any.
        shapes: of each axis of workloads, where several hosts share them.
    """
    axes = _all_shapes(sweep) if shapes is None else shapes
    backends = [
        BackendSpec(backend.name, backend.all_options())
        for backend in sweep.backends
        if environment is None or not backend.environments or environment in backend.environments
    ]
    for workloads, backend, dtype, threads in itertools.product(axes, backends, sweep.dtypes, sweep.threads):
        for workload in workloads:
            yield TrialSpec(
                workload=workload,
                backend=backend,
                dtype=dtype,
                device=sweep.device,
                threads=len(host.cores_for(sweep.device)) if threads == "all" else threads,
                seed=sweep.seed,
                protocol=sweep.protocol,
            )


def unique(specs: Iterable[TrialSpec], known: Known | None = None) -> list[TrialSpec]:
    """The specifications without repetitions, in their order.

    Args:
        specs: with repetitions.
        known: gets the parts of the specifications; see `canonical_json`.
    """
    known, found = {} if known is None else known, dict[str, TrialSpec]()
    for spec in specs:
        found.setdefault(digest(spec, shared_parts([spec], known)), spec)
    return list(found.values())


def place(sweep: Sweep, host: PlanningHost) -> str:
    """What a sweep's targets see in a host: hosts of one place stand for each other, and one of them is measured."""
    if sweep.targets == ANY:
        return ANY
    # A model alone says nothing of a host with several: all of them, whatever their order.
    return ", ".join(_gpu_models(host)) if sweep.targets == EACH_GPU_MODEL else host.name


def allocation(sweep: Sweep, trials: Iterable[Trial], budget_ms: int) -> Allocation:
    """What a task may spend on further sessions.

    Args:
        sweep: says how precise it is to be.
        trials: one visit of each that may be repeated.
        budget_ms: of all sessions, those that were measured before included.
    """
    return Allocation(budget_ms, round(PPM * sweep.precision), tuple(trials))


@dataclass(frozen=True)
class _Shared:
    """What the specifications of a sweep share, on whatever host: each value once, and its text."""

    shapes: Sequence[Sequence[WorkloadSpec]]
    known: Known = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """One environment on one host of a campaign."""

    sweep: Sweep
    host: PlanningHost
    environment: str
    campaign_id: str
    known: Known
    """Of its specifications."""

    @cached_property
    def place(self) -> str:
        """What stands for the host in the identity of its trials."""
        return place(self.sweep, self.host)

    def skipped(self, spec: TrialSpec) -> Trial:
        """What stands for a specification that cannot run."""
        return visit(self.campaign_id, self.place, self._key(spec), spec, 1, 0, 0, self.sweep.timeout_s)

    def tasks(self, specs: Sequence[TrialSpec], environments: int) -> list[PlannedTask]:
        """A task for each round; with a budget one for all, which it shares with those of the other environments.

        Args:
            specs: that can run.
            environments: of the sweep that can run something on this host.
        """
        known = [(self._key(spec), spec, copy) for spec in specs for copy in range(_copies(self.sweep, spec))]
        rounds = [self._round(number, known) for number in range(1, self.sweep.planned_rounds + 1)]
        if self.sweep.budget is None:
            return [self._task(f"r{number}", trials) for number, trials in enumerate(rounds, 1)]
        budget_ms = round(1000 * self.sweep.budget / environments)
        everything = tuple(trial for trials in rounds for trial in trials)
        return [self._task("budget", everything, allocation(self.sweep, rounds[0], budget_ms))]

    def _key(self, spec: TrialSpec) -> str:
        return trial_key(spec, self.host.environments[self.environment], known=self.known)

    def _round(self, number: int, known: Sequence[tuple[str, TrialSpec, int]]) -> tuple[Trial, ...]:
        """All trials of a round, in a random order of their own.

        Args:
            number: of the round.
            known: key, specification and replicate of each.
        """
        order = list(known)
        seed = f"{self.campaign_id}/{self.place}/{self.environment}/{number}"
        random.Random(seed).shuffle(order)  # noqa: S311 - an order, no secret
        return tuple(
            visit(self.campaign_id, self.place, key, spec, number, position, copy, self.sweep.timeout_s)
            for position, (key, spec, copy) in enumerate(order)
        )

    def _task(self, name: str, trials: tuple[Trial, ...], spending: Allocation | None = None) -> PlannedTask:
        task_id = f"{self.campaign_id}-{self.host.name}-{self.environment}-{name}"
        task = Task(CONTRACT_VERSION, self.campaign_id, task_id, self.environment, trials, self.sweep.guards, spending)
        return PlannedTask(self.host.name, task, slot_of(self.host.slots, task).index if self.host.slots else 0)


def _choose_hosts(sweep: Sweep, hosts: Sequence[PlanningHost]) -> tuple[tuple[PlanningHost, ...], tuple[str, ...]]:
    """The hosts that take part, and a line about each of the others.

    Where one host of several is enough, it is the one on which most of the sweep can run, the first of equals.
    """
    reasons = {host.name: _unwanted(sweep, host) for host in hosts}
    by_place: dict[str, list[PlanningHost]] = {}
    for host in hosts:
        if reasons[host.name] is None:
            by_place.setdefault(place(sweep, host), []).append(host)
    enough = "measured, and targets are any" if sweep.targets == ANY else "measured, and has the same model of GPU"
    for members in by_place.values():
        best = max(members, key=lambda host: _able(sweep, host)) if len(members) > 1 else members[0]
        reasons |= {host.name: f"{best.name} is {enough}" for host in members if host is not best}
    return (
        tuple(host for host in hosts if reasons[host.name] is None),
        tuple(f"{name}: {reason}" for name, reason in reasons.items() if reason is not None),
    )


def _unwanted(sweep: Sweep, host: PlanningHost) -> str | None:
    if isinstance(sweep.targets, dict):
        labels = {**host.labels, **(host.machine.labels() if host.machine else {})}
        missing = [
            f"label {name} is {labels.get(name, 'not set')}, not {value}"
            for name, value in sorted(sweep.targets.items())
            if not _matches(labels.get(name), value)
        ]
        return "; ".join(missing) or None
    if sweep.targets == EACH_GPU_MODEL and not _gpu_models(host):
        return f"it has no GPU, and targets are {EACH_GPU_MODEL}"
    return None


def _matches(label: str | None, wanted: str) -> bool:
    """Whether a label is the one that is wanted, which may be a pattern; upper and lower case are alike."""
    return label is not None and fnmatchcase(label.lower(), wanted.lower())


def _gpu_models(host: PlanningHost) -> list[str]:
    return list(host.machine.gpu_models) if host.machine else []


def _able(sweep: Sweep, host: PlanningHost) -> int:
    shared = _Shared(_all_shapes(sweep))
    return sum(len(_divide(sweep, host, environment, shared)[0]) for environment in environments_on(sweep, host))


def _divide(
    sweep: Sweep, host: PlanningHost, environment: str, shared: _Shared
) -> tuple[list[TrialSpec], list[tuple[TrialSpec, str]]]:
    """What can run, and what cannot with its reason."""
    runnable: list[TrialSpec] = []
    impossible: list[tuple[TrialSpec, str]] = []
    lacking = _environment_reason(sweep, host, environment)
    # An axis may name one point twice, such as `all` threads and their number.
    for spec in unique(specifications(sweep, host, environment, shared.shapes), shared.known):
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


def _all_shapes(sweep: Sweep) -> list[list[WorkloadSpec]]:
    return [list(_shapes(axis)) for axis in sweep.workloads]


def _shapes(axis: WorkloadAxis) -> Iterator[WorkloadSpec]:
    for name in axis.name:
        defaults = axis.default_sizes(name)
        sequences = axis.sequence_length or (defaults[0],)
        images = axis.image_size or (defaults[1],)
        points = itertools.product(axis.batch, sequences, images, axis.option_points(name))
        for batch, sequence_length, image_size, options in points:
            yield WorkloadSpec(name, batch, sequence_length, image_size, options, axis.source)
