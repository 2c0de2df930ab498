"""Which group of trials gets the next session: one whose widest interval is widest, or nearly so.

A group is what a session measures in turns. Its intervals are those that are shown later: of the ratio of each trial to
the baseline, over sessions, with variances that the groups of the task steady for each other (`moderation`). Whether
any of them excludes 1 plays no part: who stops when a result looks significant finds more of them than there are.

Of those that are nearly as wide the one comes next that has waited longest. A machine that is shared drifts over
minutes: sessions one after the other would agree with each other, and not with those of the next campaign.
"""

import math
import random
import statistics
from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from runners.contract import (
    Allocation,
    Begin,
    Line,
    PastSession,
    Status,
    Task,
    Trial,
    TrialRecord,
    canonical_json,
    repeated,
    repetition,
    sessions_of,
)
from runners.statistics.moderation import BETWEEN_CAMPAIGNS, Prior, Spread, fitted_prior, half_width

BASELINE = "eager"

LEAST_SESSIONS = 3
"""Of each group: with fewer nobody knows how much sessions scatter."""

NEARLY = 0.75
"""Of the widest interval: what is as wide as that takes its turn with it."""

PPM = 1_000_000

_MARGIN_S = 1.0

_MOST_FAILURES = 2
"""Sessions of a group that say nothing, one after the other, before it gets no more."""


def session_logs(trials: Sequence[Trial], measured: Mapping[str, float]) -> Dict[str, float]:
    """What one session says: the logarithm of the ratio of each trial to the baseline; of the baseline its latency.

    Without the baseline a session says nothing: another one in its place would change what is compared.

    Args:
        trials: of the group.
        measured: latencies by id of the trial, in seconds, of those that ended ok: the 10th percentiles of lone calls,
            of which ratios are taken.
    """
    baseline = min(trials, key=_standing).trial_id
    if baseline not in measured:
        return {}
    theirs = math.log(measured[baseline])
    return {name: math.log(ours) - theirs * (name != baseline) for name, ours in measured.items()}


def latency_of(record: TrialRecord) -> Optional[float]:
    """The 10th percentile of the lone calls of a trial, in seconds; null if it did not end ok, or the clock stood."""
    found = [series.durations_ns for series in record.series if series.mode == "sync" and series.durations_ns]
    if record.status is not Status.OK or not found:
        return None
    calls = found[0]
    return (statistics.quantiles(calls, n=10, method="inclusive")[0] if len(calls) > 1 else calls[0]) / 1e9 or None


class Group:
    """The trials of a session, and what its sessions have said so far."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = tuple(trials)
        self.rounds = 0
        """The latest."""
        self.latest = 0
        """Which session of the task its last one was."""
        self.last_s = 0.0
        """How long its last session took."""
        self.failures = 0
        """Sessions since the last one that said something."""
        self._cells: Dict[str, List[float]] = {}
        self._baseline = min(trials, key=_standing).trial_id

    def learn(self, round_number: int, seconds: float, logs: Mapping[str, float]) -> None:
        """Takes what a session said."""
        self.rounds, self.last_s = max(self.rounds, round_number), seconds
        self.failures = 0 if logs else self.failures + 1
        for name, log in logs.items():
            self._cells.setdefault(name, []).append(log)

    @property
    def ratios(self) -> List[List[float]]:
        """Of each trial but the baseline, where two sessions or more have it, one number of each."""
        return [logs for name, logs in self._cells.items() if name != self._baseline and len(logs) > 1]

    def width(self, prior: Optional[Prior]) -> float:
        """How far the widest of its intervals reaches from its ratio, as a logarithm; 0 if it has none.

        Where there is nothing to compare, it is the interval of the baseline's latency.
        """
        if self.ratios:
            return max(half_width(logs, prior, BETWEEN_CAMPAIGNS)[0] for logs in self.ratios)
        latency = self._cells.get(self._baseline, [])
        return half_width(latency, None)[0] if len(latency) > 1 else 0.0


class Allocator:
    """Spends the budget of a task."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self._groups = [Group(trials) for trials in sessions_of(allocation.trials)]
        self._sides = {(trial.trial_key, trial.replicate): trial.trial_id for trial in allocation.trials}
        self._group_of = {trial.trial_id: group for group in self._groups for trial in group.trials}
        self._sessions = 0
        for past in allocation.past:
            logs = {name: ppm / PPM for name, ppm in past.logs_ppm.items()}
            self.learn(past.group, past.round, past.taken_ms / 1e3, logs)

    def learn(self, trial_id: str, round_number: int, seconds: float, logs: Mapping[str, float]) -> None:
        """Takes what a session of the group of a trial of the allocation has said, as `session_logs` has it."""
        self._sessions += 1
        self._group_of[trial_id].latest = self._sessions
        self._group_of[trial_id].learn(round_number, seconds, logs)

    def saw(self, session: Sequence[Trial], records: Sequence[TrialRecord], seconds: float) -> None:
        """Learns from a session of the task.

        Args:
            session: its trials, of whatever round.
            records: theirs, in the same order.
            seconds: that it took.
        """
        measured = {}
        for trial, record in zip(session, records):
            latency_s = latency_of(record)
            if latency_s is not None:
                measured[self._sides[trial.trial_key, trial.replicate]] = latency_s
        original = self._sides[session[0].trial_key, session[0].replicate]
        self.learn(original, session[0].round, seconds, session_logs(self._group_of[original].trials, measured))

    def next_session(self, spent_s: float) -> Tuple[Tuple[Trial, Trial], ...]:
        """The trials of the next session, each with the one that it repeats; none if nothing is left to do.

        Args:
            spent_s: by this task; what earlier ones spent is known.
        """
        left_s = (self._allocation.budget_ms - self._allocation.spent_ms) / 1e3 - spent_s
        prior, precision = self._prior(), math.log1p(self._allocation.precision_ppm / PPM)
        able = [group for group in self._groups if group.last_s <= left_s and group.failures < _MOST_FAILURES]
        widths = [(group.width(prior), group) for group in able]
        wide = [(width, group) for width, group in widths if width > precision]
        if not wide:
            return ()
        widest = max(width for width, _ in wide)
        group = min((group for width, group in wide if width >= NEARLY * widest), key=lambda group: group.latest)
        trials = [(repeated(trial, group.rounds + 1), trial) for trial in group.trials]
        random.Random(trials[0][0].trial_id).shuffle(trials)  # noqa: S311 - an order, no secret
        return tuple(trials)

    def _prior(self) -> Optional[Prior]:
        cells = [logs for group in self._groups for logs in group.ratios]
        return fitted_prior([Spread(statistics.variance(logs), len(logs) - 1) for logs in cells])


def goes_on(task: Task) -> bool:
    """Whether a task has a session left to measure beside its trials, by what its allocation knows.

    What ended for lack of time must not go on for the milliseconds that a clock was read later.
    """
    return task.allocation is not None and bool(Allocator(task.allocation).next_session(_MARGIN_S))


def past_of(task: Task, starts: Iterable[Sequence[Line]]) -> Allocation:
    """The allocation of a task that goes on where earlier starts of it stopped.

    Args:
        task: that has one, as it was planned.
        starts: the lines of each start.
    """
    assert task.allocation is not None
    known = {trial.trial_id: trial for trial in task.every_trial}
    sides = {(trial.trial_key, trial.replicate): trial.trial_id for trial in task.allocation.trials}
    groups = {trial.trial_id: group for group in sessions_of(task.allocation.trials) for trial in group}
    past, spent_ms = [], task.allocation.spent_ms
    for lines in starts:
        begun: Dict[Tuple[str, int], Dict[str, TrialRecord]] = {}
        rounds: Dict[Tuple[str, int], int] = {}
        for line in lines:
            if isinstance(line, Begin):
                again = repetition(line, task)
                if again is not None:
                    known[again.trial_id] = again
            if isinstance(line, (Begin, TrialRecord)) and line.trial_id in known:
                trial = known[line.trial_id]
                side = sides[trial.trial_key, trial.replicate]
                session = groups[side][0].trial_id, line.started_at_ns
                rounds[session] = trial.round
                begun.setdefault(session, {})
                if isinstance(line, TrialRecord):
                    begun[session][side] = line
        for (group, started), records in begun.items():
            measured = {side: found for side, record in records.items() if (found := latency_of(record)) is not None}
            logs = session_logs(groups[group], measured)
            ppm = {name: round(log * PPM) for name, log in logs.items()}
            past.append(PastSession(group, rounds[group, started], _took_ms(records.values()), ppm))
        spent_ms += _took_ms(record for records in begun.values() for record in records.values())
    return replace(task.allocation, past=(*task.allocation.past, *past), spent_ms=spent_ms)


def _took_ms(records: Iterable[TrialRecord]) -> int:
    ends = [(record.started_at_ns, record.finished_at_ns) for record in records]
    return (max(end for _, end in ends) - min(start for start, _ in ends)) // 1_000_000 if ends else 0


def _standing(trial: Trial) -> Tuple[bool, str, str, int]:
    """The baseline is the least: eager with the options that come first, and not its twin."""
    backend = trial.spec.backend
    return backend.name != BASELINE, backend.name, canonical_json(backend.options), trial.replicate
