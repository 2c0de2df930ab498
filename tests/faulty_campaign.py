"""A campaign on real Ray of which something is killed or frozen, in a process of its own, as a campaign has it.

python -m tests.faulty_campaign SCENARIO DIRECTORY       prints what came of it as one line of JSON
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from orchestrator.campaign import CampaignRequest, Notice, ResumePolicy, choose_campaign
from orchestrator.campaign.control import ControlFiles
from orchestrator.campaign.driver.campaign_run import run_campaign
from orchestrator.campaign.progress import CampaignProgress
from orchestrator.config import Faults
from orchestrator.execution import FakeSettings
from orchestrator.files import ProjectFiles
from orchestrator.scheduling import HostObserved, RecordPiece, SchedulingHost, TaskEvent
from orchestrator.scheduling.nodes import RayCluster, existing_cluster, this_machine
from orchestrator.scheduling.ray import Scheduler
from orchestrator.store import Store
from tests.ray_nodes import RayNodes
from tests.scripted_campaign import ready, sweep

TRIALS = 6
"""On each host."""


class Watched(Scheduler):
    """Tells of every event before the campaign hears of it."""

    def __init__(self, cluster: RayCluster, tell: Callable[[TaskEvent], None]) -> None:
        super().__init__(cluster)
        self._tell = tell

    def take(self) -> Sequence[TaskEvent]:
        events = super().take()
        for event in events:
            self._tell(event)
        return events


class Scenario:
    """What is done to a campaign, once: when the second trial of `h1` begins, or when `h1` is not there from the start."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.control = ControlFiles(ProjectFiles(directory).control)
        self.worker: int | None = None
        """The process that served `h1` first."""
        self.nodes: RayNodes | None = None
        self.begun = 0
        self.struck_s: float | None = None

    def take(self, event: TaskEvent) -> None:
        if isinstance(event, HostObserved) and event.host == "h1" and event.worker is not None:
            self.worker = self.worker or event.worker.pid
        if isinstance(event, RecordPiece) and event.host == "h1" and self.struck_s is None:
            self.begun += event.data.count(b'{"type":"begin"')
            if self.begun >= 2 and NAME != "start_node":
                self.strike()

    def strike(self) -> None:
        self.struck_s = time.monotonic()
        getattr(self, NAME)()

    def kill_worker(self) -> None:
        assert self.worker is not None
        os.kill(self.worker, signal.SIGKILL)

    def freeze_worker(self) -> None:
        assert self.worker is not None
        os.kill(self.worker, signal.SIGSTOP)

    def freeze_node(self) -> None:
        """For long enough to be lost; Ray itself does not notice."""
        assert self.nodes is not None
        self.nodes.signal("h1", signal.SIGSTOP)
        threading.Timer(14, self.nodes.signal, ("h1", signal.SIGCONT)).start()

    def start_node(self) -> None:
        """It was killed before the campaign began, and is started anew when the campaign has noticed."""
        assert self.nodes is not None
        self.nodes.start("h1")
        threading.Thread(target=self.nodes.wait, args=("h1",)).start()


NAME = sys.argv[1] if len(sys.argv) > 1 else ""
HERE = NAME in ("kill_worker", "freeze_worker")
"""On this machine alone, with the cluster that a campaign starts by itself."""


def campaign(scenario: Scenario, cluster: RayCluster) -> None:
    directory, told = scenario.directory, []
    store = Store.open(directory / "results")
    names, wanted = ["h1"] if HERE else ["h1", "h2"], sweep(rounds=TRIALS // 2)
    hosts = [ready(name, None if HERE else directory / name, FakeSettings(1.0)) for name in names]
    chosen = choose_campaign(wanted, [host.planning for host in hosts], store, ResumePolicy.AUTO)
    faults = Faults(silence_s=6, return_s=120, queue_s=60)
    order = CampaignRequest(chosen, hosts, "s", "sweep", "inventory", None, faults=faults, sweep=wanted)

    def observe(progress: CampaignProgress) -> None:
        if isinstance(progress, Notice):
            told.append(f"{time.monotonic() - begun:.1f} {progress.text}")
            if NAME == "start_node" and "h1 is lost" in progress.text:
                scenario.strike()

    begun = time.monotonic()
    run_campaign(order, Watched(cluster, scenario.take), store, ProjectFiles(directory), observe)
    assert scenario.struck_s is not None
    rows = store.trials(["host", "trial_id", "status", "attempt"]).to_pylist()
    outcome = {
        "after_s": time.monotonic() - scenario.struck_s,
        "told": told,
        "rows": sorted([row["host"], row["status"], row["attempt"]] for row in rows),
        "keys": [[row["trial_id"], row["attempt"]] for row in rows],
        "worker_is_left": Path(f"/proc/{scenario.worker}").exists(),
    }
    print(json.dumps(outcome))


def main() -> None:
    directory = Path(sys.argv[2])
    scenario = Scenario(directory)
    if HERE:
        campaign(scenario, this_machine)
        return
    with RayNodes(["h1", "h2"], directory) as nodes:
        scenario.nodes = nodes
        cluster = partial(existing_cluster, nodes.address, nodes.token)
        if NAME == "start_node":
            nodes.kill("h1")
            until_noticed(cluster)
        campaign(scenario, cluster)


def until_noticed(cluster: RayCluster) -> None:
    """Ray counts a node that was killed among the living for some seconds."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with cluster([SchedulingHost(name, {}) for name in ("h1", "h2")]) as connected:
            if connected.absent:
                return
        time.sleep(0.5)
    raise AssertionError("Ray did not notice")


if __name__ == "__main__":
    main()
