"""What a plan is made of, and the identity of what is measured, of each visit of it, and of the work as a whole."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from orchestrator.config import Exclusive
from orchestrator.pin import EnvironmentPin
from orchestrator.planning.feasibility import Demands, Machine
from orchestrator.planning.slots import Slot
from runners.contract import METHOD_VERSION, Known, Task, Trial, TrialSpec, canonical_json, digest
from runners.system import Topology


@dataclass(frozen=True)
class PlanningHost:
    """What planning needs to know about a host."""

    name: str
    labels: Mapping[str, str]
    cores: tuple[int, ...]
    """The cores that trials may use."""
    environments: Mapping[str, EnvironmentPin]
    """Also of `any-suitable` if the sweep names it, for the skips where nothing is suitable."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Environments that this host cannot have, and why; they have a pin all the same, for the identity of the skips."""
    machine: Machine | None = None
    """Null if nothing is known about it; then it is refused nothing."""
    demands: Mapping[str, Demands] = field(default_factory=dict)
    """What the environments need, those that `any-suitable` chooses from among them."""
    topology: Topology = field(default_factory=Topology)
    """Where its processors are, and those of its GPUs that trials may use."""
    slots: tuple[Slot, ...] = ()
    """What runs there at the same time on GPUs; without any, one slot has all cores and whatever GPU is seen."""
    exclusive: Exclusive = Exclusive.HOST
    """What the slots follow from."""
    hw_id: str | None = None
    """What its hardware is called in rows; null where nobody has looked."""

    def cores_for(self, device: str) -> tuple[int, ...]:
        """The cores of a trial: those of a slot on a GPU, all of them on processors.

        Args:
            device: `cpu` or `cuda`.
        """
        return self.slots[0].cores if device == "cuda" and len(self.slots) > 1 else self.cores


@dataclass(frozen=True)
class PlannedTask:
    """A task and where it runs."""

    host: str
    task: Task
    slot: int = 0
    """Of the host; tasks of different slots run at the same time."""


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
    places: Mapping[str, str] = field(default_factory=dict)
    """By host that takes part, what stands for it in the identity of its trials; without an entry its name."""

    @property
    def trials(self) -> int:
        """Number of trials to run; skips not counted."""
        return sum(len(planned.task.trials) for planned in self.tasks)


def trial_key(
    spec: TrialSpec, pin: EnvironmentPin, method_version: int = METHOD_VERSION, known: Known | None = None
) -> str:
    """Identity of what is measured: equal keys may be compared over time, different ones are different trials.

    Args:
        spec: what is measured.
        pin: of its environment.
        method_version: of the numbers.
        known: see `canonical_json`.
    """
    return digest(
        {
            "spec": spec,
            "method_version": method_version,
            "environment": pin.name,
            "isolation": pin.isolation,
            "lock_sha256": pin.lock_sha256,
            # Neither id nor digest: they depend on the engine and the registry, not on what is measured.
            "image": pin.content,
        },
        known,
    )[:32]


# A plan has a hundred thousand visits: their canonical text, that of `canonical_json`, is written at once


@lru_cache(maxsize=1000)
def _text(value: str) -> str:
    return canonical_json(value)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8")).hexdigest()


def work_digest(sweep_name: str, visits: Iterable[tuple[str, str, int, int]]) -> str:
    """Identity of the work of a plan, without the campaign's id and the order.

    Args:
        sweep_name: of the sweep.
        visits: place, key, round and replicate of each trial.
    """
    told = ",".join([f'[{_text(place)},"{key}",{number:d},{copy:d}]' for place, key, number, copy in sorted(visits)])
    return _digest(f'{{"sweep":{_text(sweep_name)},"visits":[{told}]}}')


def visit(
    campaign_id: str,
    place: str,
    key: str,
    spec: TrialSpec,
    round_number: int,
    order: int,
    replicate: int,
    timeout_s: int,
) -> Trial:
    """One visit of a specification, with its identity in the store.

    Args:
        campaign_id: the campaign that it belongs to.
        place: of `planning.place`: where it may run. A host's name, or what stands for several hosts; then the visit
            is the same whichever of them it runs on.
        key: of `trial_key`.
        spec: what is measured.
        round_number: 1 and up.
        order: its place in the round.
        replicate: 0, or 1 for the second half of an A/A pair.
        timeout_s: limit of the whole trial, in seconds.
    """
    identity = (
        f'{{"campaign":{_text(campaign_id)},"key":"{key}","place":{_text(place)},'
        f'"replicate":{replicate:d},"round":{round_number:d}}}'
    )
    return Trial(
        trial_id=_digest(identity)[:32],
        trial_key=key,
        round=round_number,
        order=order,
        replicate=replicate,
        attempt=1,
        timeout_s=timeout_s,
        spec=spec,
    )
