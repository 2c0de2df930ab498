"""What every executor keeps to. A difference that is known stands here with its reason."""

import os
from contextlib import closing, suppress
from pathlib import Path
from sys import executable

import pytest

from orchestrator.environments import BuiltImage, connect
from orchestrator.errors import InfrastructureError
from orchestrator.execution import (
    DockerSettings,
    ExecutionSettings,
    FakeSettings,
    ProcessSettings,
    aftermath,
    stage,
)
from orchestrator.execution.docker import LABEL
from runners.contract import Begin, End, Environment, Status, Task, TrialRecord
from tests.recording import Ended, Running, processes_naming, run_staged, wait_for

GIB = 1 << 30
CORES = tuple(sorted(os.sched_getaffinity(0)))

REAL = ["process", pytest.param("docker", marks=pytest.mark.engine)]
ALL = ["fake", *REAL]


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionSettings:
    kind = getattr(request, "param", "fake")
    cache = tmp_path / "cache"
    if kind == "docker":
        image: BuiltImage = request.getfixturevalue("cpu_image")
        return DockerSettings(image.image_id, None, CORES, 2 * GIB, cache)
    if kind == "process":
        # Synthetic workloads need nothing but the standard library, so that any Python will do.
        return ProcessSettings(Path(executable), CORES, 2 * GIB, cache)
    return FakeSettings()


def run(settings: ExecutionSettings, task: Task, directory: Path) -> Ended:
    stage(task, directory)
    return run_staged(settings, task, directory)


@pytest.mark.parametrize("settings", ALL, indirect=True)
def test_every_trial_of_a_good_task_is_recorded(settings, make_trial, make_task, tmp_path) -> None:
    # two of one session, and one of another
    task = make_task(*(make_trial(trial_id=f"t{i}", order=i, batch=1 + i // 2) for i in range(3)))
    ended = run(settings, task, tmp_path / "task")
    session = [Begin, Begin, TrialRecord, TrialRecord]
    assert [type(line) for line in ended.lines] == [Environment, *session, Begin, TrialRecord, End], ended.outcome
    assert [record.status for record in ended.records.values()] == [Status.OK] * 3
    assert list(ended.records) == ["t0", "t1", "t2"]
    assert ended.outcome.exit_code == 0
    assert ended.outcome.out_of_memory_at_ns is None
    sessions = [record.session.session_id for record in ended.records.values()]
    assert sessions[0] == sessions[1] != sessions[2]
    for record in ended.records.values():
        assert {series.mode for series in record.series} >= {"sync", "pipelined"}
        assert all(series.durations_ns for series in record.series)
        assert all(series.turns for series in record.series if series.mode == "sync")
        assert record.verification is not None
        assert record.verification.passed


BAD = {
    "synthetic-wrong": Status.WRONG_OUTPUT,
    "synthetic-turns-wrong": Status.WRONG_OUTPUT,
    "synthetic-raise": Status.CRASHED,
    "synthetic-unsupported": Status.UNSUPPORTED,
    "synthetic-exit": Status.CRASHED,
    "synthetic-crash": Status.CRASHED,
    "synthetic-print": Status.CRASHED,
    "synthetic-garbage": Status.CRASHED,
    "synthetic-hang": Status.TIMEOUT,
    "synthetic-memory": Status.OOM,
}


@pytest.mark.parametrize("settings", ALL, indirect=True)
def test_bad_trials_cost_themselves_only(settings, make_trial, make_task, tmp_path) -> None:
    limits = {"synthetic-hang": {"timeout_s": 3}}
    bad = [make_trial(name, trial_id=name, **limits.get(name, {})) for name in BAD]
    good = [make_trial(trial_id=f"after-{name}", batch=number) for number, name in enumerate(BAD, 1)]
    ended = run(
        settings, make_task(*(trial for pair in zip(bad, good, strict=True) for trial in pair)), tmp_path / "task"
    )
    assert ended.outcome.exit_code == 0, ended.outcome
    assert {name: record.status for name, record in ended.records.items()} == {
        **BAD,
        **{trial.trial_id: Status.OK for trial in good},
    }
    for name in BAD:
        record = ended.records[name]
        assert record.reason
        assert "\n" not in record.reason
        assert record.series == ()


@pytest.mark.parametrize("settings", ALL, indirect=True)
def test_a_dead_supervisor_costs_the_running_trial_and_leaves_the_rest(
    settings, make_trial, make_task, tmp_path
) -> None:
    task = make_task(
        make_trial(trial_id="before"),
        make_trial("synthetic-kill-supervisor", trial_id="killer"),
        make_trial(trial_id="after", batch=2),
    )
    ended = run(settings, task, tmp_path / "task")
    assert ended.outcome.exit_code not in (0, None)
    [victim], left = aftermath(task, ended.begun, frozenset(ended.records), ended.outcome)
    assert (victim.trial_id, victim.status) == ("killer", Status.CRASHED)
    assert "signal 9" in (victim.reason or "")
    assert [trial.trial_id for trial in left] == ["after"]
    assert live_traces(settings, tmp_path / "task", task) == []


@pytest.mark.parametrize("settings", REAL, indirect=True)
def test_records_come_while_the_task_runs_and_a_stop_ends_it(settings, make_trial, make_task, tmp_path) -> None:
    directory = tmp_path / "task"
    task = make_task(*(make_trial("synthetic-sleep", trial_id=f"t{i}", batch=i + 1) for i in range(200)))
    stage(task, directory)
    running = Running(settings, task, directory)
    running.wait_for(TrialRecord)
    assert live_traces(settings, directory, task), "the task must still be running, or this test shows nothing"
    running.end()
    assert live_traces(settings, directory, task) == []
    assert (directory / "records.jsonl").read_bytes().count(b'"type":"record"') < 200


@pytest.mark.parametrize("settings", REAL, indirect=True)
def test_nothing_of_the_orchestrators_environment_reaches_a_trial(
    settings, make_trial, make_task, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ended = run(settings, make_task(make_trial()), tmp_path / "task")
    [environment] = [line for line in ended.lines if isinstance(line, Environment)]
    assert environment.versions["python"]
    assert len(environment.runner_sha256) == 64
    assert "env_OMP_NUM_THREADS" not in environment.facts


@pytest.mark.parametrize("settings", REAL, indirect=True)
def test_what_cannot_start_is_the_infrastructures_fault(settings, make_trial, make_task, tmp_path) -> None:
    cache = tmp_path / "cache"
    broken = (
        DockerSettings("sha256:" + "0" * 64, None, CORES, GIB, cache)
        if isinstance(settings, DockerSettings)
        else ProcessSettings(tmp_path / "no-python", CORES, GIB, cache)
    )
    task = make_task(make_trial())
    if isinstance(broken, DockerSettings):
        with pytest.raises(
            InfrastructureError, match=r"^the engine at \S+ no longer has the image sha256:0{64} [^\n]*$"
        ):
            run(broken, task, tmp_path / "task")
    else:
        # The process is started by `taskset`, whose own start succeeds: nothing begins, and the log says why.
        ended = run(broken, task, tmp_path / "task")
        assert ended.lines == []
        assert ended.outcome.exit_code == 127
        assert "no-python" in ended.outcome.log_tail
    assert live_traces(settings, tmp_path / "task", task) == []


@pytest.mark.engine
def test_a_container_is_hardened(cpu_image, make_trial, make_task, tmp_path) -> None:
    settings = DockerSettings(cpu_image.image_id, None, CORES[:1], GIB, tmp_path / "cache")
    task = make_task(*(make_trial("synthetic-sleep", trial_id=f"t{i}") for i in range(50)))
    stage(task, tmp_path / "task")
    running = Running(settings, task, tmp_path / "task")
    running.wait_for(Environment)
    with closing(connect()) as client:
        [container] = client.containers.list(filters={"label": f"{LABEL}={task.campaign_id}"}, ignore_removed=True)
        host = container.attrs["HostConfig"]
        user = container.attrs["Config"]["User"]
    running.end()
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] in (None, [])
    assert host["Privileged"] is False
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["CpusetCpus"] == str(CORES[0])
    assert host["Memory"] == host["MemorySwap"] == GIB
    assert host["PidsLimit"] > 0
    assert container.attrs["Config"]["Cmd"][0] == "timeout"
    assert host["AutoRemove"] is True
    assert not user.startswith("0")


def live_traces(settings: ExecutionSettings, directory: Path, task: Task) -> list[str]:
    """Containers of the task, or processes with its directory among their arguments or in their environment."""
    if isinstance(settings, DockerSettings):
        with closing(connect()) as client:
            label = {"label": f"{LABEL}={task.campaign_id}"}
            return [
                str(container.name)
                for container in client.containers.list(all=True, filters=label, ignore_removed=True)
            ]
    with suppress(AssertionError):  # a killed process stays in the table until its parent has read its status
        wait_for(lambda: not processes_naming(directory), 2)
    return processes_naming(directory)
