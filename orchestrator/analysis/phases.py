"""Where the time of trials went: their phases, added up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from orchestrator.analysis.axes import grouped
from orchestrator.store import Stage
from runners.contract import Phases

_SHARED: Final = ("others_s", "session_s")
"""What a trial waits for others is their own time; what belongs to a session stands in the row of each trial of it."""
_OWN: Final = tuple(phase.name for phase in fields(Phases) if phase.name.endswith("_s") and phase.name not in _SHARED)
_PLACE: Final = ("campaign_id", "host", "slot")


@dataclass(frozen=True)
class TimeSpent:
    """Of some trials, in seconds of the machines that they ran on."""

    trials: int
    by_phase: Mapping[str, float]
    """As columns are called, those in which any time went."""
    between_s: float
    """From the first start to the last end of a campaign on a host, without its trials: starts of tasks, and pauses."""
    stages: Mapping[str, float]
    """Of the campaigns that the trials are of, as a whole: the columns of `Stage`, those in which any time went."""

    @property
    def total_s(self) -> float:
        return sum(self.by_phase.values()) + self.between_s


def phase_columns() -> list[str]:
    return [*_PLACE, "session_id", "started_at", "finished_at", *_OWN, *_SHARED]


def time_spent(rows: Sequence[Mapping[str, Any]], campaigns: Iterable[Mapping[str, Any]] = ()) -> TimeSpent:
    """Adds up the phases of trials, and the stages of their campaigns.

    Args:
        rows: with the columns of `phase_columns`; of trials that never started nothing is counted.
        campaigns: with `campaign_id` and the columns of `Stage`; of those that have not ended nothing is counted.
    """
    ids = {row["campaign_id"] for row in rows}
    theirs = [row for row in campaigns if row["campaign_id"] in ids]
    stages = {stage.value: _sum(row[stage.value] for row in theirs) for stage in Stage}
    ran = [row for row in rows if row["finished_at"] is not None and row["session_s"] is not None]
    by_phase = {name: _sum(row[name] for row in ran) for name in _OWN}
    # The least: of several records each counts the time in which those before it were written
    sessions = grouped(ran, lambda row: (*(row[name] for name in _PLACE), row["session_id"] or row["started_at"]))
    by_phase["session_s"] = sum(min(row["session_s"] for row in some) for some in sessions.values())
    places = grouped(ran, lambda row: tuple(row[name] for name in _PLACE))
    passed_s = sum(
        (max(row["finished_at"] for row in some) - min(row["started_at"] for row in some)).total_seconds()
        for some in places.values()
    )
    found, stages = ({name: some[name] for name in some if some[name]} for some in (by_phase, stages))
    return TimeSpent(len(ran), found, max(0.0, passed_s - sum(found.values())), stages)


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)
