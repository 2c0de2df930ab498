"""What dies, freezes or is cut off while a sweep runs on the lab: the sweep ends in time, and every trial has its row.

In each case nothing that was acknowledged is lost, no row is there twice, and no container is left.
"""

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.campaign.control import HostPhase
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from runners.contract import TaskFiles
from tests.lab.faults import kill_agent
from tests.lab.host import LabHost
from tests.lab.workshop import HOSTS, Workshop
from tests.project import sleeps

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

TRIALS = 6
"""Of each host in a sweep without faults."""
LONGER = sleeps(rounds=3, turn_ms=2500)

SILENCE_S = 10
"""Of the inventory, by default: so long a host may be silent until it counts as lost."""
NOTICED_S = SILENCE_S + 20
"""Until the driver says that a host is lost: what it is allowed, and what a busy machine adds."""
ENDED_S = 150
"""From the fault to the end of a sweep whose host has come back: the trials alone take half a minute."""


@dataclass
class Sweep:
    """A sweep that runs."""

    workshop: Workshop
    driver: "subprocess.Popen[bytes]"
    log: Path
    before: set[str]
    """Trials that had a row when the fault came."""

    def wait_for_phase(self, host: str, *phases: HostPhase, within_s: float) -> None:
        def is_so() -> bool:
            progress = self.workshop.progress_of(host)
            return progress is not None and progress.phase in phases

        self.workshop.wait_for(is_so, self.driver, self.log, within_s)

    def end(self, within_s: float = ENDED_S) -> int:
        """Its exit code; nothing of it is left then."""
        code = self.driver.wait(within_s)
        assert self.workshop.left_containers() == [], self.said()
        return code

    def said(self) -> str:
        return self.log.read_text()

    @contextmanager
    def times_of(self, *texts: str) -> Iterator[dict[str, float]]:
        """Seconds from now until the sweep said each text, as far as it has by the end."""
        times: dict[str, float] = {}
        began_s, ended = time.monotonic(), threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                said = self.said()
                for text in texts:
                    if text in said:
                        times.setdefault(text, round(time.monotonic() - began_s, 1))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield times
        finally:
            ended.set()
            watcher.join()


@contextmanager
def running(workshop: Workshop, log: Path, sweep: str = LONGER, *options: str, busy: str = "h2") -> Iterator[Sweep]:
    """A sweep of which some rows are stored, and of which a trial runs on the host `busy`."""
    driver = workshop.start(log, *workshop.sweep(sweep, *options))
    try:

        def is_busy() -> bool:
            progress = workshop.progress_of(busy)
            return progress is not None and progress.trial is not None and progress.done > 0

        workshop.wait_for(is_busy, driver, log)
        yield Sweep(workshop, driver, log, workshop.stored())
    finally:
        if driver.poll() is None:
            driver.send_signal(signal.SIGTERM)
            driver.wait(60)
        workshop.lab.up(hosts=3)


def assert_complete(workshop: Workshop, before: set[str], hosts: tuple[str, ...] = HOSTS) -> list[dict[str, object]]:
    """Every trial is ok in the end, whatever came before; returns the rows."""
    rows = workshop.rows()
    assert max(Counter((row["trial_id"], row["attempt"]) for row in rows).values()) == 1, "a row is there twice"
    last = {row["trial_id"]: row for row in sorted(rows, key=lambda row: int(str(row["attempt"])))}
    assert Counter((row["host"], row["status"]) for row in last.values()) == {(host, "ok"): TRIALS for host in hosts}
    assert before <= last.keys(), "what was acknowledged is lost"
    assert len({row["campaign_id"] for row in rows}) == 1
    return rows


def kill_engine(_: Workshop, host: LabHost) -> None:
    """It is started again by the host itself, which ends its containers."""
    host.kill_engine()


def kill_host(_: Workshop, host: LabHost) -> None:
    host.kill()
    time.sleep(3)
    host.start()


def freeze_host(_: Workshop, host: LabHost) -> None:
    """So long that Ray gives its node up."""
    host.pause()
    time.sleep(60)
    host.unpause()


def cut_network(_: Workshop, host: LabHost) -> None:
    host.disconnect()
    time.sleep(SILENCE_S + 8)
    host.connect()


def cut_network_for_long(_: Workshop, host: LabHost) -> None:
    """So long that Ray gives its node up."""
    host.disconnect()
    time.sleep(60)
    host.connect()


FAULTS = [
    kill_agent,
    *(
        pytest.param(fault, marks=pytest.mark.long)
        for fault in (kill_engine, kill_host, freeze_host, cut_network, cut_network_for_long)
    ),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_that_fails_and_comes_back_finishes_its_trials(
    with_cluster: Workshop, fault: Callable[[Workshop, LabHost], None], tmp_path: Path
) -> None:
    workshop = with_cluster
    with running(workshop, tmp_path / "log") as sweep, sweep.times_of("h2 is lost: ") as times:
        fault(workshop, workshop.lab.host("h2"))
        assert sweep.end() == ExitCode.OK, sweep.said()
    print(f"{fault.__name__}: seconds until it was told: {times}")
    assert times["h2 is lost: "] < NOTICED_S
    rows = assert_complete(workshop, sweep.before)
    failed = [row for row in rows if row["status"] != "ok"]
    assert {(row["host"], row["status"]) for row in failed} <= {("h2", "infrastructure_error")}
    assert len(failed) <= 1, "one trial ran as it happened"
    assert "h2 is lost: " in sweep.said()


def cut_network_briefly(_: Workshop, host: LabHost) -> None:
    """What is lost meanwhile TCP sends again after 6.2 s at the latest; the next time would be after 12.6 s."""
    host.disconnect()
    time.sleep(5)
    host.connect()


def freeze_driver(workshop: Workshop, _: LabHost) -> None:
    """Its hosts measure on, and it must not take its own pause for their silence."""
    process = workshop.driver_process()
    os.kill(process, signal.SIGSTOP)
    time.sleep(60)
    os.kill(process, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize("pause", [cut_network_briefly, freeze_driver])
def test_a_pause_that_is_allowed_costs_nothing(
    with_cluster: Workshop, pause: Callable[[Workshop, LabHost], None], tmp_path: Path
) -> None:
    workshop = with_cluster
    with running(workshop, tmp_path / "log") as sweep:
        pause(workshop, workshop.lab.host("h2"))
        assert sweep.end() == ExitCode.OK, sweep.said()
    rows = assert_complete(workshop, sweep.before)
    assert len(rows) == len(HOSTS) * TRIALS, "no trial was measured again"
    assert " is lost: " not in sweep.said()


@pytest.mark.long
def test_a_host_that_freezes_is_noticed_by_its_silence_and_does_not_hold_up_the_others(
    with_cluster: Workshop, tmp_path: Path
) -> None:
    workshop = with_cluster
    workshop.edit = lambda inventory: f"{inventory}faults: {{return_s: 20}}\n"
    with running(workshop, tmp_path / "log") as sweep:
        workshop.lab.host("h2").pause()
        sweep.wait_for_phase("h2", HostPhase.LOST, within_s=NOTICED_S)
        assert sweep.end() == ExitCode.TRIALS_FAILED, sweep.said()
    assert "h2 is given up" in sweep.said()
    statuses = Counter((row["host"], row["status"]) for row in workshop.rows())
    assert {name: statuses[(name, "ok")] for name in ("h1", "h3")} == {"h1": TRIALS, "h3": TRIALS}
    assert statuses[("h2", "infrastructure_error")] + statuses[("h2", "ok")] >= TRIALS
    assert {status for _, status in statuses} == {"ok", "infrastructure_error"}

    workshop.run(LONGER)
    assert_complete(workshop, sweep.before)
    assert workshop.left_containers() == []


@pytest.mark.long
def test_a_container_that_is_killed_costs_the_trial_that_ran(with_cluster: Workshop, tmp_path: Path) -> None:
    workshop = with_cluster
    with running(workshop, tmp_path / "log") as sweep:
        with workshop.lab.host("h2").engine() as engine:
            [container] = engine.containers.list(filters={"label": LABEL}, ignore_removed=True)
            container.kill()
        assert sweep.end() == ExitCode.TRIALS_FAILED, sweep.said()
    statuses = Counter((row["host"], row["status"]) for row in workshop.rows())
    assert statuses == {("h1", "ok"): TRIALS, ("h3", "ok"): TRIALS, ("h2", "ok"): TRIALS - 1, ("h2", "crashed"): 1}
    assert len({row["trial_id"] for row in workshop.rows()}) == 3 * TRIALS


@pytest.mark.long
def test_what_is_stored_and_stays_on_a_host_lost_after_its_last_task_is_removed_by_the_next_campaign(
    with_cluster: Workshop, tmp_path: Path
) -> None:
    workshop = with_cluster
    h1, h2 = workshop.lab.host("h1"), workshop.lab.host("h2")
    with running(workshop, tmp_path / "log") as sweep:
        h2.pause()
        sweep.wait_for_phase("h1", HostPhase.DONE, within_s=ENDED_S)
        kill_agent(workshop, h1)
        h2.unpause()
        assert sweep.end() == ExitCode.OK, sweep.said()
    rows = assert_complete(workshop, sweep.before)
    said = " ".join(sweep.said().split())
    assert "h1: it gave no answer within 60 s; all that it measured is stored, and the next campaign" in said
    assert records_on(h1) != []
    workshop.run(sleeps(rounds=1))
    assert [records_on(workshop.lab.host(name)) for name in HOSTS] == [[], [], []]
    assert len(workshop.rows()) == len(rows) + 2 * len(HOSTS), "no row is there twice"


def records_on(host: LabHost) -> list[str]:
    """Files of records that the agent of a host keeps."""
    return host.sh(f"find /var/lib/taxmeter -name {Path(TaskFiles('').records).name}").split()


@pytest.mark.long
def test_another_host_takes_the_place_of_one_that_stays_away(with_cluster: Workshop, tmp_path: Path) -> None:
    workshop = with_cluster
    anywhere = LONGER.replace("name: sleeps", "name: sleeps\ntargets: any")
    with running(workshop, tmp_path / "log", anywhere, busy="h1") as sweep:
        workshop.lab.host("h1").kill()
        assert sweep.end() == ExitCode.OK, sweep.said()
    rows = workshop.rows()
    assert max(Counter((row["trial_id"], row["attempt"]) for row in rows).values()) == 1
    finished = {row["trial_id"]: str(row["host"]) for row in rows if row["status"] == "ok"}
    assert len(finished) == TRIALS
    assert sweep.before <= finished.keys()
    assert set(finished.values()) == {"h1", "h2"}
    assert "h2 is made ready in place of h1" in sweep.said()


@pytest.mark.long
def test_a_lost_head_is_told_and_the_next_run_goes_on(with_cluster: Workshop, tmp_path: Path) -> None:
    workshop = with_cluster
    with running(workshop, tmp_path / "log") as sweep:
        workshop.remove_head()
        assert sweep.end() == ExitCode.TRIALS_FAILED, sweep.said()
    said = " ".join(sweep.said().split())
    assert "the head of the cluster ended" in said
    assert "what was measured is in the store; run the same command again to go on" in said
    workshop.run(LONGER)
    assert_complete(workshop, sweep.before)
    assert workshop.left_containers() == []


@pytest.mark.long
def test_ctrl_c_is_heard_while_a_host_is_lost(with_cluster: Workshop, tmp_path: Path) -> None:
    workshop = with_cluster
    with running(workshop, tmp_path / "log") as sweep:
        workshop.lab.host("h2").pause()
        sweep.wait_for_phase("h2", HostPhase.LOST, within_s=NOTICED_S)
        time.sleep(3)  # the caretaker tries to reach it
        sweep.driver.send_signal(signal.SIGINT)
        assert sweep.driver.wait(45) == ExitCode.INTERRUPTED, sweep.said()
        workshop.lab.host("h2").unpause()
        assert workshop.left_containers() == []
    workshop.run(LONGER)
    assert_complete(workshop, sweep.before)
