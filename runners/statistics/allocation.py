"""Which group of trials gets the next session: the one whose widest interval is widest.

A group is what a session measures in turns. Its intervals are those that are shown later: of the ratio of each trial to
the baseline, over sessions, with variances that the groups of the task steady for each other (`moderation`). Whether
any of them excludes 1 plays no part: who stops when a result looks significant finds more of them than there are.
"""

import math
import random
import statistics
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from runners.contract import Allocation, Interleaving, Status, Trial, TrialRecord, repeated, sessions_of
from runners.statistics.moderation import Prior, Spread, fitted_prior, half_width

BASELINE = "eager"

LEAST_SESSIONS = 3
"""Of each group: with fewer nobody knows how much sessions scatter."""


class Series:
    """The lone calls of one process of a session, in seconds, with the calls of each of its turns."""

    def __init__(self, calls: Sequence[float], turns: Sequence[int]) -> None:
        self.median = statistics.median(calls)
        self.turns: List[Optional[float]] = []
        first = 0
        for count in turns:
            self.turns.append(statistics.median(calls[first : first + count]) if count else None)
            first += count


def session_logs(trials: Sequence[Trial], measured: Mapping[str, Series]) -> Dict[str, float]:
    """What one session says: the logarithm of the ratio of each trial to the baseline; of a lone trial of its latency.

    In turns it is the median over the cycles that both have, else of the medians of all calls.

    Args:
        trials: of the group, in their order.
        measured: by id of the trial, those that ended ok.
    """
    present = sorted((trial for trial in trials if trial.trial_id in measured), key=_is_no_baseline)
    if len(trials) == 1:
        return {trial.trial_id: math.log(measured[trial.trial_id].median) for trial in present}
    logs = {}
    for trial in present[1:]:
        ours, theirs = measured[trial.trial_id], measured[present[0].trial_id]
        cycles = [math.log(a) - math.log(b) for a, b in zip(ours.turns, theirs.turns) if a and b]
        logs[trial.trial_id] = statistics.median(cycles or [math.log(ours.median) - math.log(theirs.median)])
    return logs


def series_of(record: TrialRecord) -> Optional[Series]:
    """The lone calls of a trial; null if it did not end ok."""
    found = [series for series in record.series if series.mode == "sync" and series.durations_ns]
    if record.status is not Status.OK or not found:
        return None
    in_turns = record.session is not None and record.session.interleaving is Interleaving.TURNS
    return Series([ns / 1e9 for ns in found[0].durations_ns], found[0].turns if in_turns else ())


class Group:
    """The trials of a session, and what its sessions have said so far."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = tuple(trials)
        self.rounds = 0
        """The latest."""
        self.last_s = 0.0
        """How long its last session took."""
        self.cells: Dict[str, List[float]] = {}
        """By id of a trial, one number of each session."""

    def learn(self, round_number: int, seconds: float, logs: Mapping[str, float]) -> None:
        """Takes what a session said."""
        self.rounds, self.last_s = max(self.rounds, round_number), seconds
        for name, log in logs.items():
            self.cells.setdefault(name, []).append(log)

    def width(self, prior: Optional[Prior]) -> float:
        """How far the widest of its intervals reaches from its ratio, as a logarithm; 0 if it has none."""
        return max((half_width(logs, prior)[0] for logs in self.cells.values() if len(logs) > 1), default=0.0)


class Allocator:
    """Spends the budget of a task."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self._groups = [Group(trials) for trials in sessions_of(allocation.trials)]
        self._sides = {(trial.trial_key, trial.replicate): trial.trial_id for trial in allocation.trials}
        self._group_of = {trial.trial_id: group for group in self._groups for trial in group.trials}
        for past in allocation.past:
            logs = {name: ppm / 1e6 for name, ppm in past.logs_ppm.items()}
            self.learn(past.group, past.round, past.taken_ms / 1e3, logs)
        self.past_s = sum(past.taken_ms for past in allocation.past) / 1e3
        """What earlier tasks have spent."""

    def learn(self, trial_id: str, round_number: int, seconds: float, logs: Mapping[str, float]) -> None:
        """Takes what a session of the group of a trial of the allocation has said, as `session_logs` has it."""
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
            series = series_of(record)
            if series is not None:
                measured[self._sides[trial.trial_key, trial.replicate]] = series
        original = self._sides[session[0].trial_key, session[0].replicate]
        self.learn(original, session[0].round, seconds, session_logs(self._group_of[original].trials, measured))

    def next_session(self, spent_s: float) -> Tuple[Tuple[Trial, Trial], ...]:
        """The trials of the next session, each with the one that it repeats; none if nothing is left to do.

        Args:
            spent_s: by this task; what earlier ones spent is known.
        """
        left_s = self._allocation.budget_ms / 1e3 - self.past_s - spent_s
        prior, precision = self._prior(), math.log1p(self._allocation.precision_permille / 1e3)
        widths = [(group.width(prior), group) for group in self._groups if group.last_s <= left_s]
        wide = [(width, group) for width, group in widths if width > precision]
        if not wide:
            return ()
        _, group = max(wide, key=lambda found: found[0])
        trials = [(repeated(trial, group.rounds + 1), trial) for trial in group.trials]
        random.Random(trials[0][0].trial_id).shuffle(trials)  # noqa: S311 - an order, no secret
        return tuple(trials)

    def _prior(self) -> Optional[Prior]:
        cells = [logs for group in self._groups if len(group.trials) > 1 for logs in group.cells.values()]
        return fitted_prior([Spread(statistics.variance(logs), len(logs) - 1) for logs in cells if len(logs) > 1])


def _is_no_baseline(trial: Trial) -> bool:
    return trial.spec.backend.name != BASELINE or trial.replicate != 0
