"""Made-up campaigns whose truth is known: turns of processes within sessions, on a machine that is not quiet.

What happens in a lab is in it: a machine whose speed drifts within seconds, a neighbour that computes now and then,
states of the machine that last for a campaign, processes that differ for good (memory layout), samples with a
log-normal scatter and a heavy tail.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.ratios import RATIO_COLUMNS, Priors, Ratio, Row, judged, ratio_of, twins_of
from orchestrator.analysis.statistics import Estimate
from runners.contract import Allocation, BackendSpec, Protocol, Trial, TrialSpec, WorkloadSpec
from runners.statistics.allocation import Allocator, session_logs

PRECISION_PPM: Final = 25_000
"""That of the quickstart."""
STATES_SIGMA: Final = 0.0084
"""Standard deviation of the logarithms of ratios between campaigns, as in nine real ones (docs/measured/turns.md)."""
Floats = NDArray[np.float64]
METRIC: Final = METRICS["latency_sync"]
_TURN_S: Final = 0.035
"""Of a turn with its settling call."""
_SESSION_S: Final = 8.0
_LATENCY_S: Final = 0.01
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Machine:
    """How the speed of a machine varies."""

    name: str
    drift_sigma: float = 0.07
    """Standard deviation of the logarithm of a drift (Ornstein and Uhlenbeck)."""
    drift_s: tuple[float, float] = (1.0, 10.0)
    """Its correlation time, of each session another one between these."""
    burst_share: float = 0.0
    """Of the time, in which a neighbour computes."""
    burst_factor: float = 1.42
    """How much longer calls then take."""
    burst_s: float = 2.0
    """How long that lasts on average."""


QUIET: Final = Machine("quiet")
BUSY: Final = Machine("busy", burst_share=0.2)


@dataclass(frozen=True)
class Noise:
    """How processes and their samples scatter."""

    process_cv: float
    """Between processes for good, relative: 0.01 to 0.05 in a lab."""
    sample_sigma: float = 0.05
    burst_share: float = 0.05
    """Of the samples that are prolonged."""
    burst_index: float = 2.5
    """Of their Pareto tail: the variance is infinite from 2 down."""
    samples: int = 5
    """Of a turn."""

    @property
    def process_sigma(self) -> float:
        """Standard deviation of the logarithm between processes."""
        return math.sqrt(math.log1p(self.process_cv**2))


@dataclass(frozen=True)
class Campaign:
    """A simulated campaign: groups of backends in which nothing differs, one of them with a twin of eager."""

    groups: int = 6
    backends: int = 3
    """Of a group, eager among them."""
    sessions: int = 3
    """Of each group, the first ones where there is a budget."""
    cycles: int = 40
    budget: int | None = None
    """Of sessions in all: after the first ones the next goes to the group with the widest interval."""

    @property
    def most_sessions(self) -> int:
        """Of one group."""
        return self.sessions if self.budget is None else self.budget - (self.groups - 1) * self.sessions


def samples_of(random: np.random.Generator, noise: Noise, *shape: int) -> Floats:
    """Samples of processes around 1: the last axis is that of the samples."""
    of_process = random.normal(0, noise.process_sigma, (*shape, 1))
    return np.asarray(np.exp(of_process) * _scatter(random, noise, (*shape, noise.samples)))


@lru_cache
def true_median(noise: Noise, seed: int = 1) -> float:
    """The median over all processes that there could be of their medians."""
    random = np.random.default_rng(seed)
    return float(np.median(np.median(samples_of(random, noise, 4_000_000 // noise.samples), -1)))


def ratios_of(
    random: np.random.Generator, machine: Machine, noise: Noise, campaign: Campaign
) -> tuple[list[Ratio], list[Ratio]]:
    """The ratios of a simulated campaign, and its A/A pairs, by the code that reads and judges real ones."""
    rows = _rows(random, machine, noise, campaign)
    priors = Priors(rows)
    sides: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        if row["replicate"] == 0:
            sides.setdefault((row["batch"], row["backend"]), []).append(row)
    found = [
        ratio_of(ours, sides[batch, "eager"], METRIC.reading, priors)
        for (batch, backend), ours in sides.items()
        if backend != "eager"
    ]
    pairs = [pair.ratio for pair in twins_of(priors, METRIC.reading)]
    return judged([ratio for ratio in found if ratio is not None]), pairs


def shifted(estimate: Estimate, factor: float) -> Estimate:
    """What the estimate of a ratio would be, had one side taken so many times as long: the scatter stays."""
    low, high = (None if end is None else end / factor for end in (estimate.low, estimate.high))
    return Estimate(estimate.value / factor, low, high, estimate.processes, estimate.samples, estimate.degrees)


def holds(estimate: Estimate, truth: float) -> bool:
    """Whether an interval has the truth in it."""
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def _rows(random: np.random.Generator, machine: Machine, noise: Noise, campaign: Campaign) -> list[Row]:
    trials = [_trials(campaign, group) for group in range(campaign.groups)]
    latencies = [_latencies(random, machine, noise, campaign, len(some)) * _states(random, some) for some in trials]
    sessions = [campaign.sessions] * campaign.groups if campaign.budget is None else _spent(campaign, trials, latencies)
    return [
        _row(latencies[group][session, process], group, session, trial.spec.backend.name, trial.replicate)
        for group, some in enumerate(trials)
        for session in range(sessions[group])
        for process, trial in enumerate(some)
    ]


@lru_cache
def _trials(campaign: Campaign, group: int) -> tuple[Trial, ...]:
    """The first has a twin of eager."""
    names = ["eager", *(f"backend{number}" for number in range(1, campaign.backends)), *(["eager"] * (group == 0))]
    trials = []
    for position, name in enumerate(names):
        spec = TrialSpec(WorkloadSpec("w", group), BackendSpec(name, {}), "float32", "cpu", 1, 0, Protocol())
        replicate = int(position >= campaign.backends)
        trials.append(Trial(f"{group} {position}", f"{group} {name}", 1, position, replicate, 1, 60, spec))
    return tuple(trials)


def _spent(campaign: Campaign, trials: Sequence[tuple[Trial, ...]], latencies: Sequence[Floats]) -> list[int]:
    """How many sessions each group gets, of a second each, by the code that chooses real ones."""
    assert campaign.budget is not None
    everything = tuple(trial for some in trials for trial in some)
    allocator = Allocator(Allocation(1000 * campaign.budget, PRECISION_PPM, everything))
    counts = [0] * campaign.groups

    def measure(group: int) -> None:
        session = latencies[group][counts[group]]
        measured = {trial.trial_id: float(found) for trial, found in zip(trials[group], session, strict=True)}
        counts[group] += 1
        allocator.learn(trials[group][0].trial_id, counts[group], 1.0, session_logs(trials[group], measured))

    for _ in range(campaign.sessions):
        for group in range(campaign.groups):
            measure(group)
    while pairs := allocator.next_session(float(sum(counts))):
        measure(pairs[0][1].spec.workload.batch)
    return counts


def _states(random: np.random.Generator, trials: Sequence[Trial]) -> Floats:
    """How many times as long each program takes in the state that the machine is in during the campaign."""
    sigma = STATES_SIGMA / math.sqrt(2)
    states = {name: random.normal(0, sigma) for name in sorted({trial.spec.backend.name for trial in trials})}
    return np.exp([states[trial.spec.backend.name] for trial in trials])


def _latencies(
    random: np.random.Generator, machine: Machine, noise: Noise, campaign: Campaign, processes: int
) -> Floats:
    """What ratios are taken of, the 10th percentiles of all calls in seconds, by session and process."""
    sessions = campaign.most_sessions
    shape = (sessions, processes, campaign.cycles)
    samples = _scatter(random, noise, (*shape, noise.samples))
    of_process = np.exp(random.normal(0, noise.process_sigma, (*shape[:2], 1)))
    of_machine = _speed(random, machine, sessions, processes * campaign.cycles)
    # In which order the processes of each cycle had their turns
    order = random.permuted(np.tile(np.arange(processes), (sessions, campaign.cycles, 1)), axis=-1)
    by_cycle = of_machine.reshape(sessions, campaign.cycles, processes)
    then = np.take_along_axis(by_cycle, np.argsort(order, axis=-1), axis=-1).swapaxes(1, 2)
    calls = _LATENCY_S * (of_process * then)[..., None] * samples
    return np.asarray(np.quantile(calls.reshape(*shape[:2], -1), 0.1, axis=-1))


def _speed(random: np.random.Generator, machine: Machine, sessions: int, steps: int) -> Floats:
    """How many times as long everything takes, turn after turn."""
    low, high = np.log(machine.drift_s)
    kept = np.exp(-_TURN_S / np.exp(random.uniform(low, high, sessions)))
    drift = np.empty((sessions, steps))
    drift[:, 0] = random.normal(0, machine.drift_sigma, sessions)
    shocks = random.normal(0, machine.drift_sigma, (sessions, steps)) * np.sqrt(1 - kept**2)[:, None]
    for step in range(1, steps):
        drift[:, step] = kept * drift[:, step - 1] + shocks[:, step]
    if not machine.burst_share:
        return np.exp(drift)
    share = machine.burst_share
    ends = 1 - math.exp(-_TURN_S / machine.burst_s)
    begins = ends * share / (1 - share)
    chances = random.random((sessions, steps))
    is_burst = np.empty((sessions, steps), dtype=np.bool_)
    is_burst[:, 0] = chances[:, 0] < share
    for step in range(1, steps):
        is_burst[:, step] = np.where(is_burst[:, step - 1], chances[:, step] >= ends, chances[:, step] < begins)
    return np.asarray(np.exp(drift) * np.where(is_burst, machine.burst_factor, 1.0))


def _scatter(random: np.random.Generator, noise: Noise, shape: tuple[int, ...]) -> Floats:
    within = random.normal(0, noise.sample_sigma, shape)
    is_long = random.random(shape) < noise.burst_share
    return np.asarray(np.exp(within) * (1 + np.where(is_long, random.pareto(noise.burst_index, shape), 0.0)))


_USUAL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(RATIO_COLUMNS),
    "campaign_id": "c",
    "host": "lab1",
    "device": "cpu",
    "status": "ok",
    "trial_key": "k",
    "cpu_time_per_call_s": None,
    "latency_sync_samples": 90,
}


def _row(latency_s: float, group: int, session: int, backend: str, replicate: int) -> Row:
    start = _START + timedelta(seconds=60 * session)
    return {
        **_USUAL, "batch": group, "round": session, "session_id": f"{group}-{session}", "backend": backend,
        "replicate": replicate, METRIC.column: latency_s, METRIC.reading.column: latency_s,
        "started_at": start, "finished_at": start + timedelta(seconds=_SESSION_S),
    }  # fmt: skip
