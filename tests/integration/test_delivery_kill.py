"""A driver that is killed between the spool and the answer: what was measured is stored once and not measured again."""

import subprocess
import sys
import textwrap
from pathlib import Path

from orchestrator.campaign import (
    CampaignOrder,
    CampaignProgress,
    ProjectFiles,
    ReadyHost,
    ResumePolicy,
    TrialBegun,
    choose_campaign,
    run_campaign,
)
from orchestrator.config.sweep import Sweep
from orchestrator.delivery import Spool
from orchestrator.execution import FakeSettings
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.scheduling import LocalScheduler
from orchestrator.store import Store

SWEEP = Sweep.model_validate(
    {
        "version": 1,
        "name": "s",
        "environments": "cpu",
        "workloads": ({"name": "synthetic-null", "batch": (1, 2)},),
        "backends": ("python", "eager"),
        "rounds": 3,
    }
)
PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
HOST = ReadyHost(PlanningHost("h1", {}, (0, 1), {"cpu": PIN}), {"cpu": FakeSettings()}, None)

DRIVER = textwrap.dedent(
    """
    import importlib.util, sys, time
    from pathlib import Path
    from orchestrator.store import Writer

    place = importlib.util.spec_from_file_location("test", sys.argv[1])
    test = importlib.util.module_from_spec(place)
    place.loader.exec_module(test)
    append, left = Writer.append_batches, [3]

    def blocking(self, batches):
        if left[0] == 0:
            print("spooled", flush=True)
            time.sleep(600)  # a disk that hangs; the row is in the spool, and in no journal
        left[0] -= 1
        append(self, batches)

    Writer.append_batches = blocking
    test.campaign(Path(sys.argv[2]))
    """
)


def campaign(directory: Path) -> list[CampaignProgress]:
    """Runs the sweep, or what is left of it."""
    told: list[CampaignProgress] = []
    store = Store.open(directory / "results")
    continuation = choose_campaign(SWEEP, [HOST.planning], store, ResumePolicy.AUTO)
    order = CampaignOrder(continuation, [HOST], SWEEP.name, "sweep", "inventory", "0", None)
    run_campaign(order, LocalScheduler(), store, ProjectFiles(directory), told.append)
    return told


def test_what_was_spooled_when_the_driver_was_killed_is_stored_and_not_measured_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, __file__, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "spooled\n"
        driver.kill()
    store = Store.open(tmp_path / "results")
    assert len(store.trials(["trial_id"])) == 2 + 2  # the skips, and two that ran
    [spooled] = (tmp_path / ".taxmeter" / "spool").iterdir()
    [waiting] = Spool(spooled).pending()

    told = campaign(tmp_path)

    begun = [one.trial.trial_id for one in told if isinstance(one, TrialBegun)]
    rows = store.trials(["trial_id", "status"]).to_pylist()
    assert sorted(row["status"] for row in rows) == ["ok"] * 6 + ["skipped"] * 2
    assert len({row["trial_id"] for row in rows}) == 8
    assert len(begun) == len(set(begun)) == 3
    assert not waiting.exists()
    assert not spooled.exists()
