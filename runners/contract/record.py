"""What a runner says: one line of `records.jsonl` is one of these values."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, Optional, Tuple, Union

from runners.contract.guards import GuardResult

FactValue = Union[bool, int, float, str, None]


class Status(str, Enum):
    """How a trial ended. Only `infrastructure_error` is tried again."""

    OK = "ok"
    WRONG_OUTPUT = "wrong_output"
    """The backend's output differs from the reference: its latency takes part in no comparison."""
    UNSUPPORTED = "unsupported"
    """The environment cannot serve this trial, and said so."""
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """The machine, the engine or the image is at fault, not the trial."""
    SKIPPED = "skipped"
    """Never started, for a reason known at plan time."""


class CacheState(str, Enum):
    """What a trial found in the cache of its host."""

    HIT = "hit"
    MISS = "miss"
    REFUSED = "refused"
    """It was not what its manifest says, and was made anew."""


class Stop(str, Enum):
    """Why a series ended."""

    CYCLES = "cycles"
    """All turns of the session were taken."""
    BUDGET = "budget"
    """The time was spent and the minimum was reached; of a session, by its slowest process."""
    SHORT = "short_series"
    """The trial's own time did not suffice for the least number of turns."""
    SAMPLES = "samples"
    """The largest number of samples was reached."""
    FIXED = "fixed"
    """The number of samples was set beforehand."""


class Interleaving(str, Enum):
    """How the processes of a session were measured."""

    TURNS = "turns"
    """Alive together, one of them at a time, for a turn each in every cycle."""
    PAIRS = "pairs"
    """In turns with the baseline alone, because not all fit beside each other. Its first turns, in which the others had
    theirs, are empty."""
    ALONE = "alone"
    """Its process took its turns with no other one, although the task has more trials of its session."""


@dataclass(frozen=True)
class Session:
    """Of which session a trial was: the trials of a round that differ in nothing but their backend."""

    session_id: str
    """New for each run of a session: of the same id are those that were measured within the same seconds."""
    interleaving: Interleaving
    processes: int
    """That took turns with each other, this one included; 0 if none lived until its first turn."""
    reason: Optional[str] = None
    """Why not with the others; null if `turns`."""


@dataclass(frozen=True)
class Series:
    """Raw samples of one timing mode, in the order in which they were taken."""

    mode: str
    """`warmup`, `sync`, `pipelined`, `dispatch`, `graph`, `floor`, `floor_large`, `floor_threads` or `legacy`."""
    calls_per_sample: int
    """1, or the number of back-to-back calls that one sample was divided by."""
    durations_ns: Tuple[int, ...]
    """Wall time per call in nanoseconds."""
    cpu_ns: Tuple[int, ...]
    """CPU time of the process per call in nanoseconds; above `durations_ns` when several threads work."""
    pressure_ns: Tuple[int, ...] = ()
    """Per sample (not per call): time in which some process of the machine waited for a CPU, by the kernel's
    pressure stall information. Empty where samples are too short to read it between them, or it is not there."""
    pressure_total_ns: Optional[int] = None
    """The same over the whole series; null where the kernel does not tell."""
    stopped: Optional[Stop] = None
    """Why it ended; null for the warm-up, which has its own rule."""
    turns: Tuple[int, ...] = ()
    """Samples of each turn, first to last; they add up to all samples. Turn i of two processes of one session was
    taken in the same cycle. Empty for a series that was taken at one stretch."""


@dataclass(frozen=True)
class Phases:
    """Seconds, from the start of a trial to its record: all of them together, but for what rounding takes.

    Null for a phase that was not reached.
    """

    reference_s: Optional[float] = None
    """Eager in float64 and in the trial's dtype, in a process of its own; null if an earlier trial did it."""
    artifact_s: Optional[float] = None
    """Ahead-of-time work of the backend (such as an export), in a process of its own."""
    reference_cache: Optional[CacheState] = None
    artifact_cache: Optional[CacheState] = None
    """Null if the backend has no artifact."""
    build_s: Optional[float] = None
    """Construction of the model and its weights."""
    load_s: Optional[float] = None
    """What the backend does to make the model callable: tracing, freezing, creating a session."""
    inputs_s: Optional[float] = None
    """Making the inputs that calls get in turn."""
    first_call_s: Optional[float] = None
    verify_s: Optional[float] = None
    """Reading the reference, the further calls whose outputs are looked at, and both comparisons."""
    warmup_s: Optional[float] = None
    timed_s: Optional[float] = None
    """All timed series, in turns and after them."""
    facts_s: Optional[float] = None
    """What is noted of the model and its calls: parameters, operations, memory."""
    examine_s: Optional[float] = None
    """The passes after timing (profiler, graph, energy), in a process of their own."""
    floor_s: Optional[float] = None
    """All of the dispatch floor: preparation and measurement; null if an earlier trial of the task did it."""
    process_s: Optional[float] = None
    """What its processes took beside all that: fork, stops between turns, tear-down; all of one that said nothing."""
    others_s: Optional[float] = None
    """While it waited for the processes of the other trials of its session."""
    session_s: Optional[float] = None
    """What belongs to its session: guards, conditions, records on the disk."""

    @property
    def total_s(self) -> float:
        """All of them together."""
        return float(sum(self.seconds.values()))

    @property
    def seconds(self) -> Dict[str, float]:
        """Those that were reached, by name."""
        return {name: found for name, found in vars(self).items() if found is not None and name.endswith("_s")}


@dataclass(frozen=True)
class Verification:
    """The backend's outputs against eager in float64, over two inputs; the worst of both."""

    passed: bool
    max_abs_error: float
    relative_l2: float
    cosine: float
    eager_max_abs_error: float
    """Eager's own error in the trial's dtype: the yardstick."""
    eager_relative_l2: float
    inputs_distinguished: bool
    """The two inputs gave different outputs: the input was not baked into the graph."""
    after_timing: bool
    """The check was made again after timing, and `passed` holds for both."""


@dataclass(frozen=True)
class Usage:
    """What the trial's process consumed, as the kernel counted it."""

    max_rss_bytes: int
    user_cpu_s: float
    system_cpu_s: float
    voluntary_context_switches: int
    involuntary_context_switches: int
    major_page_faults: int


@dataclass(frozen=True)
class Environment:
    """What is installed and running where the trials run, observed from inside."""

    type: str = field(default="environment", init=False)
    task_id: str
    versions: Dict[str, str]
    """Every installed distribution and its version, `python` included."""
    facts: Dict[str, FactValue]
    """Build strings of the framework and limits of the container."""
    runner_sha256: str
    """Digest of the runner's own source."""


@dataclass(frozen=True)
class Begin:
    type: str = field(default="begin", init=False)
    trial_id: str
    attempt: int
    started_at_ns: int
    """Nanoseconds since the epoch."""
    repeats: Optional[str] = None
    """Id of the trial of the task's allocation that it repeats; null for a trial of the task."""
    round: Optional[int] = None
    """Of a repetition."""


@dataclass(frozen=True)
class TrialRecord:
    """All that is known about one trial, whatever became of it."""

    type: str = field(default="record", init=False)
    trial_id: str
    attempt: int
    status: Status
    reason: Optional[str]
    """One line for a person; null if `ok`."""
    started_at_ns: int
    finished_at_ns: int
    phases: Phases = Phases()
    series: Tuple[Series, ...] = ()
    session: Optional[Session] = None
    """Null for the procedure `legacy`, and for a trial that never reached one."""
    steady: Optional[bool] = None
    """Warm-up ended because the latency was steady, not because of its cap."""
    verification: Optional[Verification] = None
    facts: Dict[str, FactValue] = field(default_factory=dict)
    """Metrics and properties named by backend and workload, such as `parameters` or `onnx_provider`."""
    conditions_before: Dict[str, FactValue] = field(default_factory=dict)
    conditions_after: Dict[str, FactValue] = field(default_factory=dict)
    guards: Tuple[GuardResult, ...] = ()
    """What was watched around the trial, in the order in which it was looked at; a guard that is off has no entry."""
    usage: Optional[Usage] = None
    exit_code: Optional[int] = None
    """Exit code of the trial's process; minus the signal that ended it; null if it never ran."""
    log_tail: str = ""
    """The end of what the trial printed; empty if `ok`."""


@dataclass(frozen=True)
class End:
    type: str = field(default="end", init=False)
    task_id: str
    records: int


Line = Union[Environment, Begin, TrialRecord, End]
