"""Campaigns on a real store: rows, retries, resumes and guards. The fake executor forces what a campaign must survive."""

import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import CampaignPlanned, CampaignProgress, ResumePolicy, TrialRecorded, choose_campaign
from orchestrator.campaign.driver.record_intake import RecordIntake
from orchestrator.campaign.driver.task_tracker import TaskTracker
from orchestrator.config import Exclusive, load_sweep
from orchestrator.config.sweep import Duplicate
from orchestrator.execution import ProcessSettings, TaskOutcome, aftermath
from orchestrator.planning import make_slots
from orchestrator.scheduling import HostObserved, RecordPiece, TaskEnded, TaskEvent, run_on_host
from orchestrator.store import Stage, open_store
from orchestrator.store.origin import environment_id
from runners.contract import Begin, Status, Task, TaskFiles, Trial, TrialRecord, encode_line
from runners.system import GpuPlace, NumaNode, Topology, collect
from tests.conftest import Patch
from tests.local_scheduler import LocalScheduler
from tests.recording import neighbour
from tests.scripted_campaign import PATIENT, PIN, Kept, Lab, ready, sweep

HOST = ready("h1")
WANTED = sweep(backends=("python", "eager"))
"""Four trials of which one backend is able, and two skips."""
CRASHING = sweep(workloads=("synthetic-null", "synthetic-crash"), backends=("python", "eager"))


def statuses(lab: Lab) -> list[str]:
    return sorted(lab.store.trials(["status"])["status"].to_pylist())


def test_every_trial_and_every_skip_gets_one_row_that_joins(lab: Lab) -> None:
    campaign_id = lab.run(CRASHING, LocalScheduler(), [HOST])
    assert statuses(lab) == ["crashed"] * 4 + ["ok"] * 4 + ["skipped"] * 4
    rows = lab.store.trials().to_pylist()
    assert {row["campaign_id"] for row in rows} == {campaign_id}
    assert {row["isolation"] for row in rows} == {"process"}
    assert {row["system_id"] for row in rows} == set(lab.store.systems()["system_id"].to_pylist())
    assert {row["environment_id"] for row in rows} == set(lab.store.environments()["environment_id"].to_pylist())
    assert not lab.files.campaign(campaign_id).exists()

    [campaign] = lab.store.campaigns().to_pylist()
    counts = ("rows", "planned_trials", "trials_ok", "trials_crashed", "trials_skipped", "trials_timeout")
    assert [campaign[name] for name in counts] == [12, 8, 4, 4, 4, 0]
    assert campaign["finished_at"] > campaign["started_at"]
    stages = {stage: campaign[stage.value] for stage in Stage}
    assert min(stages[stage] for stage in (Stage.SETUP, Stage.RUNNING, Stage.TEARDOWN)) > 0
    assert stages[Stage.LOOKING] == stages[Stage.IMAGES] == 0  # its hosts were ready
    assert json.loads(campaign["versions"])["pyarrow"] == version("pyarrow")
    planned = json.loads(campaign["plan"])
    skipped = [skip["trial"] for skip in planned["skips"]]
    told = {
        name: [
            *(value for task in planned["tasks"] for value in task["trials"][name]),
            *(trial[name] for trial in skipped),
        ]
        for name in ("trial_id", "trial_key")
    }
    assert sorted(told["trial_id"]) == sorted(row["trial_id"] for row in rows)
    assert set(told["trial_key"]) == set(planned["specifications"])


def test_a_complete_campaign_is_followed_by_a_new_one_unless_told_otherwise(lab: Lab) -> None:
    first = lab.run(WANTED, LocalScheduler(), [HOST])
    assert lab.run(WANTED, LocalScheduler(), [HOST], policy=ResumePolicy.ALWAYS) == first
    assert [progress.plan.trials for progress in lab.told if isinstance(progress, CampaignPlanned)] == [0]
    assert statuses(lab).count("ok") == 4
    assert lab.run(WANTED, LocalScheduler(), [HOST]) != first
    assert statuses(lab).count("ok") == 8


def test_an_interrupted_campaign_says_what_there_is_and_goes_on_where_it_stopped(lab: Lab) -> None:
    wanted = sweep(rounds=4, backends=("python", "eager"))

    def interrupt(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded) and len(lab.told) > 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(wanted, LocalScheduler(), [HOST], interrupt)
    rows = lab.store.trials(["trial_id", "status"]).to_pylist()
    done = {row["trial_id"] for row in rows if row["status"] == "ok"}
    assert 0 < len(done) < 8
    [before] = lab.store.campaigns().to_pylist()
    assert (before["rows"], before["trials_ok"], before["trials_skipped"]) == (len(rows), len(done), 2)
    assert choose_campaign(wanted, [HOST.planning], lab.store, ResumePolicy.NEVER).is_new

    assert lab.run(wanted, LocalScheduler(), [HOST]) == before["campaign_id"]
    assert statuses(lab) == ["ok"] * 8 + ["skipped"] * 2
    assert not done & {progress.trial.trial_id for progress in lab.recorded()}
    [after] = lab.store.campaigns().to_pylist()
    assert (after["rows"], after["trials_ok"], after["trials_skipped"]) == (10, 8, 2)
    assert after["finished_at"] > before["finished_at"]
    assert all(after[stage.value] >= before[stage.value] for stage in Stage)
    assert after["running_s"] > before["running_s"]


def test_trials_of_a_session_that_ended_its_task_are_measured_again_and_at_last_each_alone(lab: Lab) -> None:
    killers = sweep(rounds=1, workloads=("synthetic-kill-supervisor",))
    pair = Duplicate(workload="synthetic-kill-supervisor", backend="python", batch=1)
    lab.run(killers.model_copy(update={"duplicate": (pair,)}), LocalScheduler(), [HOST])
    rows = lab.store.trials(["trial_id", "batch", "attempt", "status", "reason"]).to_pylist()
    ends = sorted((row["batch"], row["attempt"], row["status"]) for row in rows)
    lost, blamed = "infrastructure_error", "crashed"
    assert ends == [(1, n, s) for n, s in ((1, lost), (2, lost), (3, blamed)) for _ in "ab"] + [(2, 1, blamed)]
    together = {row["reason"] for row in rows if row["status"] == lost}
    assert together == {"the supervisor ended while the 2 trials of a session ran (exit code -9, signal 9)"}
    alone = {row["reason"] for row in rows if row["status"] == blamed}
    assert alone == {"the supervisor ended while this trial ran (exit code -9, signal 9)"}
    assert "before its trials were done" in lab.notices()


class Unstable(Kept):
    """Loses tasks: the first `losses` of them, after `lines` lines each."""

    def __init__(self, losses: int, lines: int) -> None:
        super().__init__()
        self._losses = losses
        self._lines = lines

    def events(self) -> Generator[TaskEvent | None, None, None]:
        while self._queue:
            if self._losses == 0:
                yield from super().events()
                return
            request = self._queue.popleft()
            self._losses -= 1
            elsewhere = replace(request, directory=request.directory.with_name("elsewhere") / uuid.uuid4().hex)
            whole = b"".join(event.data for event in run_on_host(elsewhere) if isinstance(event, RecordPiece))
            shutil.rmtree(elsewhere.directory.parent)
            some = b"".join(whole.splitlines(keepends=True)[: self._lines])
            task_id = request.task.task_id
            yield HostObserved(request.host, task_id, collect())
            yield RecordPiece(request.host, task_id, 0, 0, some)
            yield TaskEnded(request.host, task_id, None, "the host went away", None)


def test_a_lost_trial_is_tried_again_and_each_attempt_is_a_row(lab: Lab) -> None:
    # environment, begin: the first trial of the first task was running when the host went away
    lab.run(sweep(), Unstable(losses=1, lines=2), [HOST], faults=PATIENT)
    rows = lab.store.trials(["trial_id", "attempt", "status", "reason"]).to_pylist()
    assert statuses(lab) == ["infrastructure_error"] + ["ok"] * 4
    [lost] = [row for row in rows if row["status"] == "infrastructure_error"]
    assert (lost["attempt"], lost["reason"]) == (1, "the host went away")
    assert [row["attempt"] for row in rows if row["trial_id"] == lost["trial_id"] and row["status"] == "ok"] == [2]


def test_a_row_that_arrives_while_its_task_is_given_up_is_neither_told_as_lost_nor_measured_again(
    lab: Lab, monkeypatch: Patch
) -> None:
    seen_when_stored, answered, decided = TaskTracker.is_stored, RecordIntake.answered, []

    def seen_late(tracker: TaskTracker, trial: Trial) -> bool:
        """Until something was decided about the first task, no row of it has come."""
        return bool(decided) and seen_when_stored(tracker, trial)

    def elsewhere(intake: RecordIntake) -> list[tuple[Trial, TrialRecord]]:
        """So long its records do not count as those that brought the rows."""
        begun = dict(intake.begun)
        stored = answered(intake)
        intake.begun |= {} if decided else begun
        return stored

    def deciding(task: Task, begun: Mapping[str, Begin], recorded: frozenset[str], outcome: TaskOutcome) -> Any:
        decided.append(aftermath(task, begun, recorded, outcome))
        return decided[-1]

    monkeypatch.setattr(TaskTracker, "is_stored", seen_late)
    monkeypatch.setattr(RecordIntake, "answered", elsewhere)
    monkeypatch.setattr("orchestrator.campaign.driver.task_tracker.aftermath", deciding)
    # environment, begin, record: the first trial of the first task was stored when the host went away
    lab.run(sweep(), Unstable(losses=1, lines=3), [HOST], faults=PATIENT)
    assert decided[0][0] != ()
    assert lab.rows() == [("h1", "ok", 1)] * 4
    assert [(progress.record.status, progress.final) for progress in lab.recorded()] == [(Status.OK, True)] * 4


def test_a_host_that_never_starts_a_task_is_given_up_and_a_resume_tries_again(lab: Lab) -> None:
    wanted = sweep(rounds=1, backends=("python", "eager"))
    scheduler = Unstable(losses=100, lines=0)
    campaign_id = lab.run(wanted, scheduler, [HOST], faults=PATIENT)
    assert len(scheduler.submitted) == 3
    assert statuses(lab) == ["infrastructure_error"] * 2 + ["skipped"] * 2
    assert [progress.final for progress in lab.recorded()] == [True, True]
    # Where nothing ran, rows join all the same.
    rows = lab.store.trials(["environment_id", "system_id", "hw_id"]).to_pylist()
    [environment], [system] = lab.store.environments().to_pylist(), lab.store.systems().to_pylist()
    assert {row["environment_id"] for row in rows} == {environment["environment_id"]} == {environment_id(PIN, {})}
    assert environment["versions"] == "{}"
    assert {(row["system_id"], row["hw_id"]) for row in rows} == {(system["system_id"], system["hw_id"])}

    assert lab.run(wanted, LocalScheduler(), [HOST]) == campaign_id
    assert lab.rows() == [("h1", "infrastructure_error", 1)] * 2 + [("h1", "ok", 2)] * 2


def test_a_record_that_its_task_ended_early_says_why(lab: Lab, monkeypatch: Patch) -> None:
    def runs_out_of_memory(self: object, task: Task, directory: Path, stop: object) -> TaskOutcome:
        begin = Begin(trial_id=task.trials[0].trial_id, attempt=1, started_at_ns=time.time_ns() - 1)
        Path(TaskFiles(str(directory)).records).write_bytes(encode_line(begin))
        return TaskOutcome(137, time.time_ns(), None, "the end of the log")

    monkeypatch.setattr("orchestrator.execution.fake.FakeExecutor.run", runs_out_of_memory)
    lab.run(sweep(rounds=1), LocalScheduler(), [HOST])
    rows = lab.store.trials(["status", "reason", "log_tail", "exit_code"]).to_pylist()
    expected = ("oom", "the task ran out of memory while this trial ran", "the end of the log", 137)
    assert [tuple(row.values()) for row in rows] == [expected] * 2


def test_rounds_take_turns_on_the_gpus_of_a_host_and_rows_tell_which(lab: Lab) -> None:
    gpus = (GpuPlace("GPU-a", None, 0), GpuPlace("GPU-b", None, 1))
    topology = Topology(tuple(map(str, range(8))), (NumaNode(0, "0-3"), NumaNode(1, "4-7")), gpus)
    cores, shared = tuple(range(8)), Exclusive.GPU
    slots = make_slots(cores, topology, gpus, shared)
    planning = replace(HOST.planning, cores=cores, topology=topology, slots=slots, exclusive=shared)
    wanted = sweep(rounds=3, workloads=("bert-base",), backends=("eager",))
    wanted = wanted.model_copy(update={"device": "cuda", "threads": ("all",)})
    lab.run(wanted, LocalScheduler(), [replace(HOST, planning=planning)])
    rows = lab.store.trials(["round", "slot", "gpu_uuid", "exclusive", "threads"]).to_pylist()
    expected = [(1, 0, "GPU-a", "gpu", 4), (2, 1, "GPU-b", "gpu", 4), (3, 0, "GPU-a", "gpu", 4)]
    assert sorted(tuple(row.values()) for row in rows) == [row for row in expected for _ in "ab"]


CORE = max(os.sched_getaffinity(0))
GUARDED = """
version: 1
name: guarded
environments: cpu
workloads: [{name: synthetic-sleep, batch: 1}]
backends: [python]
threads: 1
rounds: 1
protocol: {warmup_min_ms: 1, turn_ms: 1000, cycles: 1, min_cycles: 1, floor_budget_ms: 0}
"""


def test_what_a_guard_forbids_is_a_row_and_a_resume_with_other_guards_measures_it(lab: Lab, tmp_path: Path) -> None:
    """From a sweep file to the store: a real runner beside a real neighbour."""
    host = ready("h1", settings=ProcessSettings(Path(sys.executable), (CORE,), 2**31, Path()))

    def run(guards: str) -> str:
        (tmp_path / "sweep.yaml").write_text(GUARDED + guards)
        return lab.run(load_sweep(tmp_path / "sweep.yaml"), LocalScheduler(), [host], faults=PATIENT)

    with neighbour(CORE):
        first = run("guards: {load: {policy: wait, max_busy_permille: 500, wait_s: 1}, throttling: off, clocks: off}")
        second = run("guards: {load: {policy: flag, max_busy_permille: 500}, throttling: off, clocks: off}")
    assert second == first
    refused, measured = lab.store.trials().sort_by("attempt").to_pylist()
    assert (refused["status"], refused["attempt"]) == ("infrastructure_error", 1)
    assert "guard load: " in refused["reason"]
    assert "did not run" in refused["reason"]
    assert refused["guard_flags"] == []
    [before] = [observed for observed in refused["guards"] if observed["guard"] == "load"]
    assert (before["policy"], before["outcome"], before["limit"]) == ("wait", "failed", 500)
    assert before["waited_s"] >= 1
    assert (measured["status"], measured["attempt"]) == ("ok", 2)
    assert "load" in measured["guard_flags"]
    assert measured["trial_key"] == refused["trial_key"]

    results = open_store(lab.store.layout.root)
    rows = results.sql(
        "SELECT guard.guard, guard.moment, guard.outcome, guard.observed > guard.limit, guard.unit "
        "FROM (SELECT unnest(guards) AS guard FROM latest) ORDER BY guard.moment"
    ).fetchall()
    assert rows == [("load", moment, "flagged", True, "permille") for moment in ("after", "before")]
    unflagged = "SELECT attempt FROM trials WHERE coalesce(len(guard_flags), 0) = 0"
    assert results.sql(unflagged).fetchall() == [(1,)]
