"""Between a driver and those who watch and steer it: says how the campaign is, and hears what is asked."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostPhase,
    HostProgress,
)
from orchestrator.campaign.driving.host_work import HostWork
from orchestrator.campaign.driving.task_tracker import TaskTracker
from orchestrator.planning import Plan
from runners.contract import Trial

PUBLISH_S: Final = 1.0
"""Between two accounts, if no host's phase changes: a sign of life, and no more writing than that."""

THIS_MACHINE: Final = "this machine"


@dataclass(frozen=True)
class About:
    """What stays the same while a campaign runs."""

    campaign_id: str
    sweep: str
    place: str
    """Where its driver runs: `this machine`, or a container."""
    results: str
    already_done: int
    """Trials that were in the store before."""
    estimate_s: float
    started_at_ns: int = field(default_factory=time.time_ns)


class Publisher:
    """Publishes the state of a campaign."""

    def __init__(
        self, control: ControlFiles, about: About, tracker: TaskTracker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._control = control
        self._about = about
        self._tracker = tracker
        self._clock = clock
        self._published_s = float("-inf")
        self._phases: dict[str, tuple[HostPhase, str | None, int]] = {}
        """By host its phase, the reason, and since when, in nanoseconds since 1970."""

    def publish(self, hosts: Mapping[str, HostWork], phase: CampaignPhase | None = None) -> None:
        """Says how the hosts are, if it is time for that or something has changed.

        Args:
            hosts: by name.
            phase: of the campaign; by default it runs or is drained, as its hosts say.
        """
        has_changed = self._note(hosts) or phase is not None
        if not has_changed and self._clock() - self._published_s < PUBLISH_S:
            return
        self._published_s = self._clock()
        about = self._about
        progress = tuple(self._host(host) for host in hosts.values())
        left = sum(host.left for host in progress)
        total = sum(host.total for host in hosts.values())
        self._control.publish(
            CampaignProgressState(
                about.campaign_id,
                about.sweep,
                about.started_at_ns,
                time.time_ns(),
                phase or _phase(hosts),
                progress,
                total - left,
                left,
                sum(host.failed for host in progress),
                os.getpid(),
                about.place,
                about.results,
                about.already_done,
                about.estimate_s,
            )
        )

    def _note(self, hosts: Mapping[str, HostWork]) -> bool:
        has_changed = False
        for name, host in hosts.items():
            known = self._phases.get(name)
            if known is None or known[:2] != (host.phase, host.reason):
                since_ns = known[2] if known is not None and known[0] is host.phase else time.time_ns()
                self._phases[name] = (host.phase, host.reason, since_ns)
                has_changed = True
        return has_changed

    def _host(self, host: HostWork) -> HostProgress:
        phase, reason, since_ns = self._phases[host.name]
        task_id = next(iter(host.running), None)
        trial = None if task_id is None else self._tracker.current(task_id)
        # What waits is not looked up trial by trial: of a row that came late, its task knows when it starts.
        left = sum(len(planned.task.trials) for planned in host.waiting)
        left += sum(len(self._tracker.open_trials(task.planned.task)) for task in host.running.values())
        return HostProgress(
            host.name,
            phase,
            since_ns,
            reason,
            task_id,
            None if trial is None else trial_text(trial),
            host.total - left,
            left,
            self._tracker.failed.get(host.name, 0),
        )


def totals(plan: Plan) -> dict[str, int]:
    """By host, the trials that a plan has for it; skips not counted."""
    count: dict[str, int] = {}
    for planned in plan.tasks:
        count[planned.host] = count.get(planned.host, 0) + len(planned.task.trials)
    return count


def trial_text(trial: Trial) -> str:
    """A trial in a few words."""
    spec = trial.spec
    return f"{spec.workload.name} {spec.backend.name} batch {spec.workload.batch} round {trial.round}"


def _phase(hosts: Mapping[str, HostWork]) -> CampaignPhase:
    is_drained = bool(hosts) and all(host.is_drained for host in hosts.values())
    return CampaignPhase.DRAINING if is_drained else CampaignPhase.RUNNING
