"""What a campaign tells while it runs. Only the command line prints it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.planning import Plan
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
