"""Campaigns whose hosts are silent or away, come back, are drained or replaced: a scripted scheduler, a real store."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.campaign import CampaignPlanned, Notice, TrialBegun
from orchestrator.campaign.control import CampaignPhase, CampaignProgressState, HostPhase, Request, RequestKind
from orchestrator.campaign.progress import CampaignProgress, TrialRecorded
from orchestrator.errors import InfrastructureError
from orchestrator.execution import FakeSettings
from orchestrator.scheduling import run_on_host
from orchestrator.scheduling.host_calls import remove_directories
from tests.results import known
from tests.scripted_campaign import BOUND_S, PATIENT, Frozen, Lab, ready, sweep


def state_of(lab: Lab) -> CampaignProgressState:
    return known(lab.control.state())


def freeze(scheduler: Frozen) -> None:
    """The host falls silent in the middle of its first task."""
    scheduler.frozen = {"h1"}


def remove(scheduler: Frozen) -> None:
    """The host is not there as the campaign starts, though it was made ready."""
    scheduler.absent = {"h1": "no node serves it"}


VICTIM = ("h1", "infrastructure_error", 1)


@pytest.mark.parametrize(
    ("fault", "why", "rows"),
    [
        (freeze, "no sign of life for 1 s", [VICTIM, *[("h1", "ok", 1)] * 3, ("h1", "ok", 2)]),
        # it had no task that could be lost
        (remove, "no node serves it", [("h1", "ok", 1)] * 4),
    ],
)
def test_a_lost_host_holds_nobody_up_and_is_used_again_when_it_is_back(
    lab: Lab, fault: Callable[[Frozen], None], why: str, rows: list[tuple[str, str, int]]
) -> None:
    scheduler, begun = Frozen(), time.monotonic()
    fault(scheduler)
    done: list[str] = []

    def note(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded) and progress.final:
            done.append(progress.host)

    scheduler.absent_until = lambda: done.count("h2") == 4
    lab.run(sweep(), scheduler, [ready("h1"), ready("h2")], note, faults=PATIENT)
    assert time.monotonic() - begun < BOUND_S
    assert done == ["h2"] * 4 + ["h1"] * 4
    assert lab.rows() == [*rows, *[("h2", "ok", 1)] * 4]
    [told] = [line for line in lab.notices().splitlines() if "h1 is lost" in line]
    assert told.startswith(f"h1 is lost: {why}; its trials wait until it is back")
    assert "h1 answers, and takes tasks" in lab.notices()
    # No storm: what was lost was submitted once more, and not before the host was back.
    assert len(scheduler.cancelled) == rows.count(VICTIM)
    assert [request.host for request in scheduler.submitted].count("h1") == 2 + rows.count(VICTIM)


# A victim has its first attempt and its second, which never ran.
@pytest.mark.parametrize(("fault", "second_attempts"), [(freeze, 1), (remove, 0)])
def test_a_host_that_stays_away_is_given_up_and_a_resume_measures_the_rest(
    lab: Lab, fault: Callable[[Frozen], None], second_attempts: int
) -> None:
    scheduler, begun = Frozen(), time.monotonic()
    fault(scheduler)
    scheduler.absent_until = lambda: False
    hosts = [ready("h1"), ready("h2")]
    campaign = lab.run(sweep(), scheduler, hosts)
    assert time.monotonic() - begun < BOUND_S
    second = [("h1", "infrastructure_error", 2)] * second_attempts
    assert lab.rows() == [*[VICTIM] * 4, *second, *[("h2", "ok", 1)] * 4]
    assert "h1 is given up: it did not come back within 2 s" in lab.notices()
    state = state_of(lab)
    assert (state.phase, state.done, state.left, state.failed) == (CampaignPhase.ENDED, 8, 0, 4)
    assert {host.name: host.phase for host in state.hosts} == {"h1": HostPhase.GIVEN_UP, "h2": HostPhase.DONE}
    assert lab.run(sweep(), Frozen(), hosts) == campaign
    assert [row[:2] for row in lab.rows()].count(("h1", "ok")) == 4


def test_a_resumed_campaign_does_not_wait_for_the_answer_of_a_host_that_is_not_there(lab: Lab) -> None:
    def stop(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded):
            raise KeyboardInterrupt

    hosts = [ready(name, lab.files.root / name) for name in ("h1", "h2")]
    with pytest.raises(KeyboardInterrupt):
        lab.run(sweep(), Frozen(), hosts, stop)
    scheduler = Frozen()
    remove(scheduler)
    asked: list[str] = []

    def is_back() -> bool:
        asked[:] = asked or scheduler.asked
        return True

    scheduler.absent_until = is_back
    lab.run(sweep(), scheduler, hosts, faults=PATIENT)
    assert set(asked) == {"h2"}, "what waits there is delivered; h1 delivers when it is back"
    assert lab.rows() == [("h1", "ok", 1)] * 4 + [("h2", "ok", 1)] * 4


class Unwilling(Frozen):
    """Of its hosts h2 removes nothing."""

    def stream(self, question: Any, host: str, asked: Any) -> Any:
        return super().stream(refuse if question is remove_directories and host == "h2" else question, host, asked)


def refuse(asked: Any) -> Iterator[str]:
    yield from ()
    raise InfrastructureError("its disk is stuck")


def away() -> Frozen:
    scheduler = Frozen()
    scheduler.absent, scheduler.absent_until = {"h2": "no node serves it"}, lambda: False
    return scheduler


@pytest.mark.parametrize("scheduler", [Unwilling(), away()], ids=["unwilling", "away"])
def test_a_host_that_was_not_cleared_at_the_end_is_known_here(lab: Lab, scheduler: Frozen) -> None:
    def leave(progress: CampaignProgress) -> None:
        if isinstance(progress, CampaignPlanned):
            for name in ("h1", "h2"):
                (lab.files.root / name / "campaigns" / progress.campaign_id / "code").mkdir(parents=True)

    campaign = lab.run(sweep(), scheduler, [ready(name, lab.files.root / name) for name in ("h1", "h2")], leave)
    assert (lab.files.root / "h2" / "campaigns" / campaign).exists()
    assert lab.files.campaign(campaign).exists(), "who else would know of it?"


def test_a_row_that_comes_late_is_stored_once(lab: Lab) -> None:
    """The lost host had measured on: the victim's row is there already, the next trial's is not."""
    scheduler = Frozen()
    freeze(scheduler)
    late: list[str] = []

    def measured_meanwhile() -> bool:
        if not late:
            late.extend(type(event).__name__ for event in run_on_host(scheduler.submitted[0]))
        return True

    scheduler.absent_until = measured_meanwhile
    lab.run(sweep(rounds=1), scheduler, [ready("h1")])
    assert lab.rows() == [("h1", "infrastructure_error", 1), ("h1", "ok", 1), ("h1", "ok", 2)]
    assert "say different things; the first stays in the store" in lab.notices()
    # The second trial had been measured by the lost task, so that only the victim ran again.
    assert [len(request.task.trials) for request in scheduler.submitted] == [2, 1]


def test_a_drained_host_ends_what_runs_and_starts_nothing(lab: Lab) -> None:
    def drain(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialBegun) and progress.host == "h1" and progress.trial.round == 1:
            lab.control.request(Request(RequestKind.DRAIN, ("h1", "h9")))

    hosts = [ready("h1"), ready("h2")]
    campaign = lab.run(sweep(rounds=3), Frozen(), hosts, drain)
    assert lab.rows() == [*[("h1", "ok", 1)] * 2, *[("h2", "ok", 1)] * 6]
    assert "h9 was to be drained, but takes no part in this campaign" in lab.notices()
    assert "4 trials of h1 are left: it was drained" in lab.notices()
    ends = [(host.phase, host.done, host.left) for host in state_of(lab).hosts]
    assert ends == [(HostPhase.DRAINED, 2, 4), (HostPhase.DONE, 6, 0)]
    assert lab.run(sweep(rounds=3), Frozen(), hosts) == campaign
    assert lab.rows().count(("h1", "ok", 1)) == 6


def test_draining_everything_ends_the_campaign_with_what_runs(lab: Lab) -> None:
    phases = set()

    def drain(progress: CampaignProgress) -> None:
        state = lab.control.state()
        phases.add(state.phase if state is not None else None)
        if isinstance(progress, TrialBegun):
            lab.control.request(Request(RequestKind.DRAIN))
            time.sleep(0.1)

    lab.run(sweep(rounds=3), Frozen(), [ready("h1"), ready("h2")], drain)
    assert len(lab.rows()) < 12
    assert {row[1] for row in lab.rows()} == {"ok"}
    assert CampaignPhase.DRAINING in phases


def test_a_stop_is_an_interrupt(lab: Lab) -> None:
    def stop(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded):
            lab.control.request(Request(RequestKind.STOP))
            time.sleep(0.1)

    with pytest.raises(KeyboardInterrupt):
        lab.run(sweep(rounds=5), Frozen(), [ready("h1")], stop)
    assert 0 < len(lab.rows()) < 10
    assert not lab.control.is_alive()
    assert state_of(lab).phase is CampaignPhase.ENDED
    lab.run(sweep(rounds=5), Frozen(), [ready("h1")])
    assert lab.rows() == [("h1", "ok", 1)] * 10


@pytest.mark.parametrize("targets", ["any", "each-host"])
def test_a_host_that_is_offered_takes_over_with_targets_any_alone(lab: Lab, targets: str) -> None:
    scheduler, begun = Frozen(), time.monotonic()
    freeze(scheduler)
    scheduler.absent_until = lambda: False

    def offer(progress: CampaignProgress) -> None:
        if isinstance(progress, Notice) and "h1 is lost" in progress.text:
            lab.control.offer(ready("h2"))

    lab.run(sweep(targets), scheduler, [ready("h1")], offer)
    assert time.monotonic() - begun < BOUND_S
    if targets == "each-host":
        assert {row[:2] for row in lab.rows()} == {("h1", "infrastructure_error")}
        return
    assert lab.rows() == [VICTIM, *[("h2", "ok", 1)] * 3, ("h2", "ok", 2)]
    assert "h2 takes 4 trials of h1" in lab.notices()
    trials = lab.store.trials(["trial_id", "attempt"]).to_pylist()
    assert len({(row["trial_id"], row["attempt"]) for row in trials}) == len(trials)


def test_others_see_how_a_campaign_is_and_which_trial_runs(lab: Lab) -> None:
    seen: list[tuple[bool, CampaignProgressState]] = []

    def look(progress: CampaignProgress) -> None:
        state = lab.control.state()
        if isinstance(progress, TrialRecorded) and state is not None:
            seen.append((lab.control.is_alive(), state))
        time.sleep(0.1 if isinstance(progress, TrialRecorded) else 0)

    campaign = lab.run(sweep(rounds=4), Frozen(), [ready("h1", settings=FakeSettings(0.2))], look)
    assert all(is_alive for is_alive, _ in seen)
    states = [state for _, state in seen]
    assert {state.campaign_id for state in states} == {campaign}
    assert all(state.done + state.left == 8 for state in states)
    assert (states[0].pid, states[0].place) == (os.getpid(), "this machine")
    assert states[0].results == str(lab.store.layout.root)
    hosts = [state.hosts[0] for state in states]
    assert HostPhase.RUNNING in {host.phase for host in hosts}
    expected = {f"synthetic-null python batch {batch} round {number}" for batch in (1, 2) for number in (1, 2, 3, 4)}
    assert set() < {host.trial for host in hosts} - {None} <= expected
    assert not lab.control.is_alive()
