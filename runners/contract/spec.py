"""What the orchestrator asks of a runner: tasks, trials and how to measure them.

Every value is an integer, a string, a boolean or null. Floating-point numbers are kept out on purpose: the
digest of a specification must be the same on every machine and in every JSON library.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, Optional, Tuple, Union

from runners.contract.guards import NO_GUARDS, Guards

CONTRACT_VERSION = 1
"""Version of the documents that cross the boundary. A runner refuses a task of another version."""

METHOD_VERSION = 2
"""Version of what the measured numbers mean. It is part of every trial key: raise it with the method."""

TWIN_GROWTH = 4
"""How many times the elements of the small twin of a dispatch floor the large one has, and the arithmetic with them."""

OptionValue = Union[bool, int, str]


@dataclass(frozen=True)
class WorkloadSpec:
    """A model or an operator with the shape of its input."""

    name: str
    batch: int
    sequence_length: Optional[int] = None
    """Tokens per example; null where the workload has no sequence."""
    image_size: Optional[int] = None
    """Height and width in pixels; null where the workload has no image."""
    options: Dict[str, OptionValue] = field(default_factory=dict)
    """What else the catalogue lets one choose about this workload, such as `layers` or `mask`."""
    source: Optional[str] = None
    """Of a model outside of the catalogue: the text of its file, which `options` name. Null for all others."""


@dataclass(frozen=True)
class BackendSpec:
    """How the workload is executed."""

    name: str
    options: Dict[str, OptionValue]


STANDARD = "standard"
LEGACY = "legacy"
PROCEDURES = (STANDARD, LEGACY)


@dataclass(frozen=True)
class Protocol:
    """How long and how often to measure. The rules are in docs/measurement.md."""

    procedure: str = STANDARD
    """`standard`, or `legacy`: the procedure of the paper's own scripts, for comparison with its tables."""
    warmup_min_calls: int = 3
    warmup_min_ms: int = 500
    warmup_max_ms: int = 10_000
    """Warm-up ends here even if the latency is not steady; the record then says so."""
    turn_ms: int = 120
    """A process calls for so long, and at least once, before the next process of its session has its turn."""
    cycles: int = 10
    """Turns of each process of a session."""
    min_cycles: int = 5
    """After so many turns a session may end early, by `sync_budget_ms`. A series of fewer is called short."""
    sync_budget_ms: int = 5_000
    """What the timed calls of one process may take in all its turns; the slowest process of a session decides."""
    sync_min_samples: int = 10
    """Of single calls that are timed at one stretch: the series `dispatch` and `floor`."""
    pipelined_budget_ms: int = 0
    """0: not measured. A sweep that does not say measures it on a GPU."""
    pipelined_min_samples: int = 5
    pipelined_block_ms: int = 100
    """A pipelined sample is a block of back-to-back calls of about this length, divided by their number."""
    dispatch_budget_ms: int = 1_000
    """On a GPU: host time until a call returns. 0: not measured."""
    graph_budget_ms: int = 1_000
    """On a GPU: the same kernels replayed as one CUDA graph. 0: not measured."""
    floor_budget_ms: int = 200
    """On a CPU: the same structure with next to no arithmetic, so long for each of its twins. 0: not measured."""
    profile_calls: int = 10
    """On a GPU: calls under the profiler, in a pass of their own. 0: none."""
    energy_window_ms: int = 0
    """Length of one of three windows of the energy pass; 10 s and more are meaningful. 0: not measured."""
    legacy_warmups: int = 10
    legacy_passes: int = 100
    """Of the procedure `legacy`: passes whose mean is the one sample."""
    max_samples: int = 10_000
    """Per series; each turn has an equal share of them. Very short calls end a turn here before its time is over."""


@dataclass(frozen=True)
class TrialSpec:
    """One point of a sweep: everything that decides what is measured, and nothing else."""

    workload: WorkloadSpec
    backend: BackendSpec
    dtype: str
    """`float32`, `float16` or `bfloat16`."""
    device: str
    """`cpu`, or `cuda`: the first GPU that the process sees."""
    threads: int
    """Intra-operator threads of the framework."""
    seed: int
    """Seed of weights and inputs."""
    protocol: Protocol


@dataclass(frozen=True)
class Trial:
    """One visit of a trial specification: a process of its own."""

    trial_id: str
    """Identity of this visit within the store; stable over attempts and resumes."""
    trial_key: str
    """Identity of what is measured: specification, environment pin and method version."""
    round: int
    order: int
    """Position in the randomised order of its round."""
    replicate: int
    """0, or 1 for the second half of an A/A pair."""
    attempt: int
    """1 at first; a trial is tried again only after an infrastructure error."""
    timeout_s: int
    """Wall time of the trial's own processes, preparation included. While others have their turn it stands still."""
    spec: TrialSpec
    alone: bool = False
    """In no session with others: when a start ends, nobody knows which trial of a session ended it."""


@dataclass(frozen=True)
class PastSession:
    """What an earlier task of the campaign has learnt of one session."""

    group: str
    """Id of the first trial of its group in `Allocation.trials`."""
    round: int
    taken_ms: int
    logs_ppm: Dict[str, int] = field(default_factory=dict)
    """By id of the trial in `Allocation.trials` what `session_logs` gives, in millionths."""


@dataclass(frozen=True)
class Allocation:
    """What a task may spend on further sessions: the next one always goes to the group with the widest interval."""

    budget_ms: int
    """Of the whole task, and of the tasks before it that did the same."""
    precision_ppm: int
    """No group needs more whose intervals reach no further than this from their ratios."""
    trials: Tuple[Trial, ...]
    """One visit of each trial that may be repeated, in its first round."""
    past: Tuple[PastSession, ...] = ()
    spent_ms: int = 0
    """By the tasks before it, from their first session to the end of their last."""

    @cached_property
    def repeatable(self) -> Dict[str, Trial]:
        """Its trials by id."""
        return {trial.trial_id: trial for trial in self.trials}


@dataclass(frozen=True)
class Task:
    """What one container, or one process, is given to do."""

    contract_version: int
    campaign_id: str
    task_id: str
    environment: str
    trials: Tuple[Trial, ...]
    guards: Guards = NO_GUARDS
    """What is watched around each trial. A sweep that says nothing about them has those of `Guards()`."""
    allocation: Optional[Allocation] = None
    """What follows when the trials are done; null if nothing does."""

    @cached_property
    def every_trial(self) -> Tuple[Trial, ...]:
        """Its trials and those that it may repeat: all of what it needs is known from them."""
        known = {trial.trial_id for trial in self.trials}
        repeatable = () if self.allocation is None else self.allocation.trials
        return (*self.trials, *(trial for trial in repeatable if trial.trial_id not in known))
