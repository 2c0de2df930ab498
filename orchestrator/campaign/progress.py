"""What a campaign tells while it runs, which only the command line prints, and where its time goes."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.planning import Plan
from orchestrator.store import Stage, Store
from runners.contract import Trial, TrialRecord


@dataclass(frozen=True)
class CampaignPlanned:
    """Told once, before the first trial."""

    campaign_id: str
    plan: Plan
    """What is left to do."""
    already_done: int


@dataclass(frozen=True)
class TrialBegun:
    """A trial runs now."""

    host: str
    trial: Trial


@dataclass(frozen=True)
class TrialRecorded:
    """A trial's row is on disk."""

    host: str
    trial: Trial
    record: TrialRecord
    final: bool
    """False if the trial will be tried again."""


@dataclass(frozen=True)
class Notice:
    """Something that a person should know; the campaign goes on."""

    text: str


CampaignProgress = CampaignPlanned | TrialBegun | TrialRecorded | Notice
Observer = Callable[[CampaignProgress], None]


def trial_text(trial: Trial) -> str:
    """A trial in a few words."""
    spec = trial.spec
    return f"{spec.workload.name} {spec.backend.name} batch {spec.workload.batch} round {trial.round}"


def one_at_a_time(observe: Observer) -> Observer:
    """An observer that several threads may tell; `observe` itself hears one of them after the other."""
    lock = threading.RLock()

    def told(progress: CampaignProgress) -> None:
        with lock:
            observe(progress)

    return told


class StageClock:
    """Adds up the seconds of each stage: every second from its making on belongs to one."""

    def __init__(
        self,
        stage: Stage = Stage.LOOKING,
        *spent: Mapping[Stage, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins now.

        Args:
            stage: the first.
            spent: seconds of before, to be added.
            clock: in seconds.
        """
        self._clock = clock
        self._seconds = {stage: sum(some.get(stage, 0.0) for some in spent) for stage in Stage}
        self._stage, self._since_s = stage, clock()

    def enter(self, stage: Stage) -> None:
        """From now on it is in this stage."""
        now_s = self._clock()
        self._seconds[self._stage] += now_s - self._since_s
        self._stage, self._since_s = stage, now_s

    def seconds(self) -> dict[Stage, float]:
        """Of each stage, until now."""
        self.enter(self._stage)
        return dict(self._seconds)


def spent_before(store: Store, campaign_id: str) -> dict[Stage, float]:
    """Seconds of the stages of a campaign by its row; nothing of one that has not ended yet."""
    rows = store.campaigns().select(["campaign_id", *(stage.value for stage in Stage)]).to_pylist()
    found = [row for row in rows if row["campaign_id"] == campaign_id]
    return {stage: row[stage.value] for row in found for stage in Stage if row[stage.value] is not None}
