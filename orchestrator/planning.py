"""From a sweep, hosts and environments to tasks: a pure function, so that a plan can be printed before it runs."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from orchestrator.sweep import BackendAxis, Sweep, WorkloadAxis
from runners.contract import (
    CONTRACT_VERSION,
    METHOD_VERSION,
    STANDARD,
    BackendSpec,
    Task,
    Trial,
    TrialSpec,
    WorkloadSpec,
    digest,
)
from runners.contract.catalogue import WORKLOADS, refusal

# Measured with the quickstart on two cores. Beside its budgets a trial builds, traces or loads its model, verifies it
# and makes its minimum of calls.
OVERHEAD_PER_TRIAL_S = 2.6
# A reference or an export, which the first round makes and later rounds find in the cache.
PREPARATION_S = 1.4
# A dispatch floor beside its budget: another model is built, verified and warmed up, once per task and structure.
OVERHEAD_PER_FLOOR_S = 2.0
# Start of a task: container, imports, self-check.
START_OF_TASK_S = 8.0


class Isolation(Enum):
    """What separates a task from its host."""

    DOCKER = "docker"
    PROCESS = "process"


@dataclass(frozen=True)
class EnvironmentPin:
    """One environment as one host provides it."""

    name: str
    isolation: Isolation
    reason: str
    """Why this isolation was taken."""
    lock_sha256: str
    image_id: str | None = None
    """Digest of the image's configuration. Null with `process`, and before the image is built."""
    image_digest: str | None = None
    """Digest by which a registry knows the image; for one that was never pushed, its `image_id`."""


@dataclass(frozen=True)
class PlanningHost:
    """What planning needs to know about a host."""

    name: str
    labels: Mapping[str, str]
    cores: tuple[int, ...]
    """The cores that trials may use."""
    environments: Mapping[str, EnvironmentPin]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Environments that this host cannot have, and why; they have a pin all the same, for the identity of the skips."""


@dataclass(frozen=True)
class PlannedTask:
    """A task and where it runs."""

    host: str
    task: Task


@dataclass(frozen=True)
class Skip:
    """A trial that cannot run, known before anything starts."""

    host: str
    environment: str
    trial: Trial
    reason: str


@dataclass(frozen=True)
class Plan:
    """All that a campaign will do."""

    tasks: tuple[PlannedTask, ...]
    skips: tuple[Skip, ...]
    unmatched: tuple[str, ...]
    """Hosts that lack the sweep's target labels, with the reason; they take no part."""
    digest: str
    """Identity of the work, without the campaign's own id and order: what a resume looks for."""
    estimate_s: float

    @property
    def trials(self) -> int:
        """Number of trials to run; skips not counted."""
        return sum(len(planned.task.trials) for planned in self.tasks)


def plan(sweep: Sweep, hosts: Sequence[PlanningHost], campaign_id: str) -> Plan:
    """Expands a sweep on hosts.

    Args:
        sweep: the parameter space.
        hosts: the hosts that may take part, each with a pin for every environment of the sweep.
        campaign_id: seeds the random order and stands in every trial's identity.
    """
    matching = [host for host in hosts if not _missing_labels(sweep.targets, host)]
    unmatched = tuple(f"{host.name}: {_missing_labels(sweep.targets, host)}" for host in hosts if host not in matching)
    tasks: list[PlannedTask] = []
    skips: list[Skip] = []
    visits: list[tuple[str, str, int, int]] = []
    for host, environment in itertools.product(matching, sweep.environments):
        pin = host.environments[environment]
        runnable, impossible = _divide(sweep, host, environment)
        skips += [
            Skip(host.name, environment, _trial(campaign_id, host.name, pin, sweep, spec, 1, 0, 0), reason)
            for spec, reason in impossible
        ]
        for round_number in range(1, sweep.rounds + 1):
            order = [(spec, copy) for spec in runnable for copy in range(_copies(sweep, spec))]
            random.Random(f"{campaign_id}/{host.name}/{environment}/{round_number}").shuffle(order)  # noqa: S311 - an order, no secret
            trials = tuple(
                _trial(campaign_id, host.name, pin, sweep, spec, round_number, position, copy)
                for position, (spec, copy) in enumerate(order)
            )
            visits += [(host.name, trial.trial_key, trial.round, trial.replicate) for trial in trials]
            if trials:
                task_id = f"{campaign_id}-{host.name}-{environment}-r{round_number}"
                tasks.append(PlannedTask(host.name, Task(CONTRACT_VERSION, campaign_id, task_id, environment, trials)))
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    work = {"sweep": sweep.name, "visits": [list(visit) for visit in sorted(visits)]}
    return Plan(tuple(tasks), tuple(skips), unmatched, digest(work), estimate_s(tasks))


def with_trials(task: Task, trials: tuple[Trial, ...]) -> Task:
    """The same task with other trials."""
    return Task(task.contract_version, task.campaign_id, task.task_id, task.environment, trials)


def estimate_s(tasks: Sequence[PlannedTask]) -> float:
    """Wall time of the tasks in seconds, hosts in parallel: budgets plus measured overheads. An estimate."""
    per_host: dict[str, float] = {}
    prepared: set[tuple[str, str, str]] = set()
    for planned in tasks:
        seconds = START_OF_TASK_S + _floors_s(planned.task)
        for trial in planned.task.trials:
            protocol = trial.spec.protocol
            budget_ms = protocol.warmup_min_ms + protocol.sync_budget_ms + protocol.pipelined_budget_ms
            if trial.spec.device == "cuda":
                budget_ms += protocol.dispatch_budget_ms + protocol.graph_budget_ms
            budget_ms += 3 * protocol.energy_window_ms
            seconds += budget_ms / 1000 + OVERHEAD_PER_TRIAL_S
            identity = (planned.host, planned.task.environment, trial.trial_key)
            if identity not in prepared:
                prepared.add(identity)
                seconds += PREPARATION_S
        per_host[planned.host] = per_host.get(planned.host, 0.0) + seconds
    return max(per_host.values(), default=0.0)


def _floors_s(task: Task) -> float:
    floors = {
        (digest([replace(spec.workload, batch=1), spec.backend, spec.dtype]), spec.protocol.floor_budget_ms)
        for spec in (trial.spec for trial in task.trials)
        if spec.device == "cpu" and spec.protocol.floor_budget_ms and spec.protocol.procedure == STANDARD
    }
    return sum(OVERHEAD_PER_FLOOR_S + budget_ms / 1000 for _, budget_ms in floors)


def trial_key(spec: TrialSpec, pin: EnvironmentPin) -> str:
    """Identity of what is measured: equal keys may be compared over time, different ones are different trials."""
    return digest(
        {
            "spec": spec,
            "method_version": METHOD_VERSION,
            "environment": pin.name,
            "isolation": pin.isolation,
            "lock_sha256": pin.lock_sha256,
            "image": pin.image_digest,
        }
    )[:32]


def _missing_labels(targets: Mapping[str, str], host: PlanningHost) -> str | None:
    missing = [
        f"label {name} is {host.labels.get(name, 'not set')}, not {value}"
        for name, value in sorted(targets.items())
        if host.labels.get(name) != value
    ]
    return "; ".join(missing) or None


def unique(specs: Iterable[TrialSpec]) -> list[TrialSpec]:
    """The specifications without repetitions, in their order."""
    return list({digest(spec): spec for spec in reversed(list(specs))}.values())[::-1]


def _divide(sweep: Sweep, host: PlanningHost, environment: str) -> tuple[list[TrialSpec], list[tuple[TrialSpec, str]]]:
    runnable: list[TrialSpec] = []
    impossible: list[tuple[TrialSpec, str]] = []
    # An axis may name one point twice, such as `all` threads and their number.
    for spec in unique(_specs(sweep, host)):
        reason = host.unavailable.get(environment) or _impossible_reason(spec, host)
        if reason is None:
            runnable.append(spec)
        else:
            impossible.append((spec, reason))
    return runnable, impossible


def _specs(sweep: Sweep, host: PlanningHost) -> Iterator[TrialSpec]:
    points = itertools.product(sweep.workloads, sweep.backends, sweep.dtypes, sweep.threads)
    for axis, backend, dtype, threads in points:
        for workload in _shapes(axis):
            yield TrialSpec(
                workload=workload,
                backend=_backend(backend),
                dtype=dtype,
                device=sweep.device,
                threads=len(host.cores) if threads == "all" else threads,
                seed=sweep.seed,
                protocol=sweep.protocol.contract(),
            )


def _shapes(axis: WorkloadAxis) -> Iterator[WorkloadSpec]:
    for name in axis.name:
        info = WORKLOADS[name]
        sequences = axis.sequence_length or (info.sequence_length,)
        images = axis.image_size or (info.image_size,)
        points = itertools.product(axis.batch, sequences, images, axis.option_points(name))
        for batch, sequence_length, image_size, options in points:
            yield WorkloadSpec(name, batch, sequence_length, image_size, options)


def _backend(axis: BackendAxis) -> BackendSpec:
    return BackendSpec(axis.name, axis.all_options())


def _impossible_reason(spec: TrialSpec, host: PlanningHost) -> str | None:
    if spec.threads > len(host.cores):
        return f"{spec.threads} threads on {len(host.cores)} cores of {host.name}"
    return refusal(spec)


def _copies(sweep: Sweep, spec: TrialSpec) -> int:
    return 1 + sweep.is_duplicated(spec.workload.name, spec.backend.name, spec.workload.batch)


def _trial(
    campaign_id: str,
    host: str,
    pin: EnvironmentPin,
    sweep: Sweep,
    spec: TrialSpec,
    round_number: int,
    order: int,
    replicate: int,
) -> Trial:
    key = trial_key(spec, pin)
    identity = {"campaign": campaign_id, "host": host, "key": key, "round": round_number, "replicate": replicate}
    return Trial(
        trial_id=digest(identity)[:32],
        trial_key=key,
        round=round_number,
        order=order,
        replicate=replicate,
        attempt=1,
        timeout_s=sweep.timeout_s,
        spec=spec,
    )
