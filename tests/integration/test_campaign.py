"""Campaigns on a real store, with the fake executor forcing what a campaign must survive."""

import json
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator.campaign import (
    CampaignOrder,
    CampaignPlanned,
    CampaignProgress,
    Notice,
    ProjectFiles,
    ReadyHost,
    ResumePolicy,
    TrialRecorded,
    choose_campaign,
    run_campaign,
)
from orchestrator.campaign.driving.task_tracker import TaskTracker
from orchestrator.config import Sweep
from orchestrator.errors import StoreError
from orchestrator.execution import Aftermath, FakeSettings, TaskOutcome, aftermath
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.scheduling import (
    Event,
    HostObserved,
    LocalScheduler,
    RecordPiece,
    TaskEnded,
    TaskRequest,
    run_on_host,
)
from orchestrator.store import Store, Writer, environment_id
from runners.contract import Begin, Status, Task, TaskFiles, Trial, encode_line
from runners.system import collect

PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
HOST = ReadyHost(PlanningHost("h1", {}, (0, 1), {"cpu": PIN}), {"cpu": FakeSettings()})


def sweep(*workloads: str, rounds: int = 2) -> Sweep:
    return Sweep.model_validate(
        {
            "version": 1,
            "name": "s",
            "environments": "cpu",
            "workloads": tuple({"name": name, "batch": (1, 2)} for name in workloads),
            "backends": ("python", "eager"),
            "rounds": rounds,
        }
    )


class Lab:
    """A project directory with its store, in which campaigns run."""

    def __init__(self, directory: Path) -> None:
        self.files = ProjectFiles(directory)
        self.store = Store.open(directory / "results")
        self.told: list[CampaignProgress] = []

    def run(
        self,
        wanted: Sweep,
        scheduler: LocalScheduler | None = None,
        policy: ResumePolicy = ResumePolicy.AUTO,
        observe: Callable[[CampaignProgress], None] = lambda progress: None,
    ) -> str:
        continuation = choose_campaign(wanted, [HOST.planning], self.store, policy)
        order = CampaignOrder(continuation, [HOST], wanted.name, "sweep", "inventory", "0", None)
        self.told.clear()

        def both(progress: CampaignProgress) -> None:
            self.told.append(progress)
            observe(progress)

        run_campaign(order, scheduler or LocalScheduler(), self.store, self.files, both)
        return continuation.campaign_id

    def statuses(self) -> list[str]:
        return sorted(self.store.trials(["status"])["status"].to_pylist())


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_every_trial_gets_one_row_and_skips_get_theirs(lab: Lab) -> None:
    campaign = lab.run(sweep("synthetic-null", "synthetic-crash"))
    assert lab.statuses() == ["crashed"] * 4 + ["ok"] * 4 + ["skipped"] * 4
    rows = lab.store.trials().to_pylist()
    assert {row["campaign_id"] for row in rows} == {campaign}
    assert {row["isolation"] for row in rows} == {"process"}
    assert len({row["trial_id"] for row in rows}) == len(rows)
    ran = [row for row in rows if row["status"] != "skipped"]
    assert {row["system_id"] for row in ran} == set(lab.store.systems()["system_id"].to_pylist())
    assert {row["environment_id"] for row in rows} == set(lab.store.environments()["environment_id"].to_pylist())
    assert lab.store.campaigns()["campaign_id"].to_pylist() == [campaign]
    assert not lab.files.campaign(campaign).exists()


def test_a_complete_campaign_is_followed_by_a_new_one_unless_told_otherwise(lab: Lab) -> None:
    wanted = sweep("synthetic-null")
    first = lab.run(wanted)
    assert lab.run(wanted, policy=ResumePolicy.ALWAYS) == first
    assert [p.plan.trials for p in lab.told if isinstance(p, CampaignPlanned)] == [0]
    assert lab.statuses().count("ok") == 4
    assert lab.run(wanted) != first
    assert lab.statuses().count("ok") == 8


def test_an_interrupted_campaign_goes_on_where_it_stopped(lab: Lab) -> None:
    wanted = sweep("synthetic-null", rounds=4)

    def interrupt(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded) and len(lab.told) > 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(wanted, observe=interrupt)
    before = lab.store.trials(["trial_id", "status"]).to_pylist()
    done = {row["trial_id"] for row in before if row["status"] == "ok"}
    assert 0 < len(done) < 8
    lab.run(wanted)
    rows = lab.store.trials(["trial_id", "status", "campaign_id"]).to_pylist()
    assert sorted(row["status"] for row in rows) == ["ok"] * 8 + ["skipped"] * 2
    assert len({row["campaign_id"] for row in rows}) == 1
    assert not done & {p.trial.trial_id for p in lab.told if isinstance(p, TrialRecorded)}


def test_never_resuming_starts_anew(lab: Lab) -> None:
    wanted = sweep("synthetic-null")
    assert lab.run(wanted) != lab.run(wanted, policy=ResumePolicy.NEVER)


def test_a_dead_supervisor_costs_its_trial_and_the_rest_runs_again(lab: Lab) -> None:
    lab.run(sweep("synthetic-null", "synthetic-kill-supervisor"))
    assert lab.statuses() == ["crashed"] * 4 + ["ok"] * 4 + ["skipped"] * 4
    assert any(isinstance(p, Notice) and "before its trials were done" in p.text for p in lab.told)


class Unstable(LocalScheduler):
    """Loses tasks: the first `losses` of them, after `lines` lines each."""

    def __init__(self, losses: int, lines: int) -> None:
        super().__init__()
        self._losses = losses
        self._lines = lines
        self.submitted: list[TaskRequest] = []

    def submit(self, request: TaskRequest) -> None:
        self.submitted.append(request)
        super().submit(request)

    def events(self) -> Generator[Event, None, None]:
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
    lab.run(sweep("synthetic-null"), Unstable(losses=1, lines=2))
    rows = lab.store.trials(["trial_id", "attempt", "status", "reason"]).to_pylist()
    assert lab.statuses() == ["infrastructure_error"] + ["ok"] * 4 + ["skipped"] * 2
    [lost] = [row for row in rows if row["status"] == "infrastructure_error"]
    assert (lost["attempt"], lost["reason"]) == (1, "the host went away")
    assert [row["attempt"] for row in rows if row["trial_id"] == lost["trial_id"] and row["status"] == "ok"] == [2]


def test_a_row_that_arrives_while_its_task_is_given_up_is_neither_told_as_lost_nor_measured_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_when_stored, decided = TaskTracker.is_stored, []

    def seen_late(tracker: TaskTracker, trial: Trial) -> bool:
        """Until something was decided about the first task, no row of it has come."""
        return bool(decided) and seen_when_stored(tracker, trial)

    def deciding(task: Task, begun: Mapping[str, Begin], recorded: frozenset[str], outcome: TaskOutcome) -> Aftermath:
        decided.append(aftermath(task, begun, recorded, outcome))
        return decided[-1]

    monkeypatch.setattr(TaskTracker, "is_stored", seen_late)
    monkeypatch.setattr("orchestrator.campaign.driving.task_tracker.aftermath", deciding)
    # environment, begin, record: the first trial of the first task was stored when the host went away
    lab.run(sweep("synthetic-null"), Unstable(losses=1, lines=3))
    assert decided[0].victim is not None
    assert lab.statuses() == ["ok"] * 4 + ["skipped"] * 2
    assert set(lab.store.trials(["attempt"])["attempt"].to_pylist()) == {1}
    told = [p for p in lab.told if isinstance(p, TrialRecorded)]
    assert [(p.record.status, p.final) for p in told] == [(Status.OK, True)] * 4


def test_a_host_that_never_starts_a_task_is_given_up_and_a_resume_tries_again(lab: Lab) -> None:
    wanted = sweep("synthetic-null", rounds=1)
    scheduler = Unstable(losses=100, lines=0)
    campaign = lab.run(wanted, scheduler)
    assert len(scheduler.submitted) == 3
    assert lab.statuses() == ["infrastructure_error"] * 2 + ["skipped"] * 2
    assert [p.final for p in lab.told if isinstance(p, TrialRecorded)] == [True, True]
    assert lab.run(wanted) == campaign
    rows = lab.store.trials(["attempt", "status"]).to_pylist()
    assert sorted((row["attempt"], row["status"]) for row in rows if row["status"] != "skipped") == [
        (1, "infrastructure_error"),
        (1, "infrastructure_error"),
        (2, "ok"),
        (2, "ok"),
    ]


def test_a_record_that_its_task_ended_early_says_why(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_out_of_memory(self: object, task: Task, directory: Path, stop: object) -> TaskOutcome:
        begin = Begin(trial_id=task.trials[0].trial_id, attempt=1, started_at_ns=time.time_ns() - 1)
        Path(TaskFiles(str(directory)).records).write_bytes(encode_line(begin))
        return TaskOutcome(137, time.time_ns(), None, "the end of the log")

    monkeypatch.setattr("orchestrator.execution.fake.FakeExecutor.run", runs_out_of_memory)
    lab.run(sweep("synthetic-null", rounds=1))
    rows = [row for row in lab.store.trials().to_pylist() if row["status"] == "oom"]
    assert len(rows) == 2
    assert {(row["reason"], row["log_tail"], row["exit_code"]) for row in rows} == {
        ("the task ran out of memory while this trial ran", "the end of the log", 137)
    }


def test_pins_decide_what_is_continued(lab: Lab) -> None:
    wanted = sweep("synthetic-null")
    lab.run(wanted)
    other = replace(HOST.planning, environments={"cpu": replace(PIN, lock_sha256="1" * 64)})
    continuation = choose_campaign(wanted, [other], lab.store, ResumePolicy.ALWAYS)
    assert continuation.is_new


def test_a_row_that_arrived_counts_though_nobody_heard_of_it(lab: Lab) -> None:
    class Deaf(LocalScheduler):
        """Hears how a task began, and that it was lost when all its rows were stored."""

        def events(self) -> Generator[Event, None, None]:
            while self._queue:
                request = self._queue.popleft()
                yield from [event for event in run_on_host(request) if isinstance(event, HostObserved)]
                yield TaskEnded(request.host, request.task.task_id, None, "the host went away", None)

    lab.run(sweep("synthetic-null"), Deaf())
    assert lab.statuses() == ["ok"] * 4 + ["skipped"] * 2


def test_every_row_joins_also_where_nothing_ran(lab: Lab) -> None:
    lab.run(sweep("synthetic-null", rounds=1), Unstable(losses=100, lines=0))
    rows = lab.store.trials(["status", "environment_id", "system_id", "hw_id", "campaign_id"]).to_pylist()
    assert {row["status"] for row in rows} == {"infrastructure_error", "skipped"}
    environments = {row["environment_id"]: row for row in lab.store.environments().to_pylist()}
    assert {row["environment_id"] for row in rows} == set(environments) == {environment_id(PIN, {})}
    assert [row["versions"] for row in environments.values()] == ["{}"]
    assert {(row["system_id"], row["hw_id"]) for row in rows} == {
        (row["system_id"], row["hw_id"]) for row in lab.store.systems().to_pylist()
    }
    assert {row["campaign_id"] for row in rows} == set(lab.store.campaigns()["campaign_id"].to_pylist())


def test_a_campaign_says_what_was_planned_and_what_came_of_it(lab: Lab) -> None:
    lab.run(sweep("synthetic-null", "synthetic-crash"))
    [campaign] = lab.store.campaigns().to_pylist()
    counts = ("rows", "planned_trials", "trials_ok", "trials_crashed", "trials_skipped", "trials_timeout")
    assert [campaign[name] for name in counts] == [12, 8, 4, 4, 4, 0]
    assert campaign["finished_at"] > campaign["started_at"]
    planned = json.loads(campaign["plan"])
    trials = [trial for task in planned["tasks"] for trial in task["trials"]] + [
        one["trial"] for one in planned["skips"]
    ]
    assert {trial["trial_id"] for trial in trials} == set(lab.store.trials(["trial_id"])["trial_id"].to_pylist())
    assert {trial["trial_key"] for trial in trials} == set(planned["specifications"])
    assert json.loads(campaign["versions"])["pyarrow"] == version("pyarrow")


def test_an_interrupted_campaign_says_what_there_is_so_far(lab: Lab) -> None:
    def interrupt(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded):
            raise KeyboardInterrupt

    wanted = sweep("synthetic-null")
    with pytest.raises(KeyboardInterrupt):
        lab.run(wanted, observe=interrupt)
    [campaign] = lab.store.campaigns().to_pylist()
    assert (campaign["rows"], campaign["trials_ok"], campaign["trials_skipped"]) == (4, 2, 2), "also what came after"
    lab.run(wanted)
    [after] = lab.store.campaigns().to_pylist()
    assert (after["rows"], after["trials_ok"], after["trials_skipped"]) == (6, 4, 2)
    assert after["finished_at"] > campaign["finished_at"]


def test_a_store_that_fails_ends_the_campaign(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Writer, batches: object) -> None:
        raise StoreError("cannot write the journal")

    wanted = sweep("synthetic-null")
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_batches", fails)
        with pytest.raises(StoreError, match="cannot write the journal"):
            lab.run(wanted)
    lab.run(wanted)
    assert lab.statuses() == ["ok"] * 4 + ["skipped"] * 2
