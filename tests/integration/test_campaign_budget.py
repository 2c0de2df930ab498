"""Campaigns that spend a budget: a real runner chooses the sessions, and the store knows what was spent."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.campaign import CampaignProgress, TrialRecorded
from orchestrator.config import load_sweep
from orchestrator.config.sweep import Sweep
from orchestrator.errors import ConfigurationError
from orchestrator.execution import ProcessSettings
from tests.local_scheduler import LocalScheduler
from tests.scripted_campaign import PATIENT, Lab, ready

pytestmark = pytest.mark.slow

SWEEP = """
version: 1
name: spending
environments: [cpu]
workloads: [{name: synthetic-null, batch: [1, 2]}]
backends: [python]
threads: [1]
guards: off
protocol: {warmup_min_calls: 1, warmup_min_ms: 1, warmup_max_ms: 5, turn_ms: 2, cycles: 2, min_cycles: 1}
"""
NARROW = "precision: 0.1 %\n"
"""Which nothing here ever reaches."""
HOST = ready("h1", settings=ProcessSettings(Path(sys.executable), (0,), 2**31, Path()))


def sweep(directory: Path, more: str, workload: str = "synthetic-null") -> Sweep:
    path = directory / "sweep.yaml"
    path.write_text(SWEEP.replace("synthetic-null", workload) + more)
    return load_sweep(path)


def sessions(lab: Lab) -> Counter[int]:
    """How many sessions each batch had."""
    rows = lab.store.trials(["batch", "round", "status"]).to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    visits = [(row["batch"], row["round"]) for row in rows]
    assert len(visits) == len(set(visits))
    counts = Counter(batch for batch, _ in visits)
    assert {number for _, number in visits} == set(range(1, max(counts.values()) + 1))
    return counts


def test_after_three_sessions_of_each_group_the_rest_goes_where_it_is_needed(lab: Lab, tmp_path: Path) -> None:
    campaign_id = lab.run(sweep(tmp_path, "budget: 6 s\n" + NARROW), LocalScheduler(), [HOST], faults=PATIENT)
    counts = sessions(lab)
    assert min(counts.values()) >= 3
    assert sum(counts.values()) > 6
    rows = lab.store.trials(["started_at", "finished_at", "round", "trial_id"]).to_pylist()
    took = max(row["finished_at"] for row in rows) - min(row["started_at"] for row in rows)
    assert took.total_seconds() < 8
    [campaign] = lab.store.campaigns().to_pylist()
    assert (campaign["campaign_id"], campaign["planned_trials"]) == (campaign_id, 6)
    assert (campaign["rows"], campaign["trials_ok"]) == (len(rows), len(rows))


@pytest.mark.parametrize("planned", ["budget: 1 s\n", "rounds: 2\n"])
def test_a_finished_campaign_goes_on_only_if_that_is_asked_for(lab: Lab, tmp_path: Path, planned: str) -> None:
    wanted = sweep(tmp_path, planned + NARROW)
    with pytest.raises(ConfigurationError, match="no campaign of sweep spending is in the store"):
        lab.run(wanted, LocalScheduler(), [HOST], faults=PATIENT, more_s=3)
    first = lab.run(wanted, LocalScheduler(), [HOST], faults=PATIENT)
    before = sessions(lab)
    assert "budget" in planned or before == {1: 2, 2: 2}
    assert lab.run(wanted, LocalScheduler(), [HOST], faults=PATIENT, more_s=3) == first
    after = sessions(lab).total()
    assert after > before.total()
    assert lab.run(wanted, LocalScheduler(), [HOST], faults=PATIENT) != first
    assert lab.store.trials(["trial_id"], campaign_id=first).num_rows == after


def test_an_interrupted_campaign_spends_what_is_left(lab: Lab, tmp_path: Path) -> None:
    wanted = sweep(tmp_path, "budget: 6 s\n" + NARROW)

    def interrupt(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded) and progress.trial.round > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(wanted, LocalScheduler(), [HOST], interrupt, PATIENT)
    [campaign] = lab.store.campaigns()["campaign_id"].to_pylist()
    before = sum(sessions(lab).values())
    assert before > 6
    assert lab.run(wanted, LocalScheduler(), [HOST], faults=PATIENT) == campaign
    assert sum(sessions(lab).values()) > before
    rows = lab.store.trials(["started_at", "finished_at"]).to_pylist()
    spent = sum((row["finished_at"] - row["started_at"]).total_seconds() for row in rows)
    assert spent < 8
