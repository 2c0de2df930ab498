"""`taxmeter sweep status | stop | drain | resume` beside a driver that a test plays, and on stores without one."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.campaign import ResumeDecision
from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostPhase,
    HostProgress,
    Request,
    RequestKind,
)
from orchestrator.cli import run, sweep_control
from orchestrator.cli.sweep_control import CampaignStatus, render
from orchestrator.config import load_sweep
from orchestrator.errors import ExitCode
from orchestrator.files import ProjectFiles
from orchestrator.hosts.lock import HostLock
from orchestrator.planning import PlanningHost
from orchestrator.store import Store, campaign_row
from orchestrator.store.storage.layout import store_id
from tests.conftest import Captured, Patch
from tests.recording import wait_for
from tests.scripted_campaign import STORED, Stored

SWEEP = """
version: 1
name: s
environments: [cpu]
workloads: [{name: synthetic-null, batch: [1, 2]}]
backends: [python]
threads: 1
rounds: 2
"""
INVENTORY = "version: 1\nhosts: {here: {connection: local, executor: process}}\n"

Act = Callable[[ControlFiles, Request], CampaignProgressState | None]


def state(phase: CampaignPhase = CampaignPhase.RUNNING, **hosts: HostPhase) -> CampaignProgressState:
    now = time.time_ns()
    known = hosts or {"h1": HostPhase.RUNNING, "h2": HostPhase.READY}
    running = "tiny-bert eager batch 1 round 1"
    progress = tuple(
        HostProgress(name, one, now, trial=running if one is HostPhase.RUNNING else None, done=1, left=2)
        for name, one in known.items()
    )
    return CampaignProgressState("c-1", "s", now, now, phase, progress, 2, 4, 0, 1, "this machine", "results")


@pytest.fixture
def control(tmp_path: Path, monkeypatch: Patch) -> ControlFiles:
    """Of a project that is the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestrator.hosts.lock.HOST_LOCK", HostLock(directory=tmp_path))
    return ControlFiles(ProjectFiles(tmp_path).control)


@contextmanager
def driver(control: ControlFiles, first: CampaignProgressState, act: Act) -> Iterator[list[Request]]:
    """A driver that answers each request with what `act` says; it ends where that is null."""
    taken: list[Request] = []
    drives, over = threading.Event(), threading.Event()

    def drive() -> None:
        with control.driving():
            control.publish(first)
            drives.set()
            while not over.is_set():
                for request in control.take_requests():
                    taken.append(request)
                    answer = act(control, request)
                    if answer is None:
                        control.publish(replace(first, phase=CampaignPhase.ENDED))
                        return
                    control.publish(answer)
                time.sleep(0.01)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        assert drives.wait(10)
        yield taken
    finally:
        over.set()
        thread.join()


def stopping(_control: ControlFiles, _request: Request) -> None:
    return None


def test_a_stop_waits_until_the_driver_has_ended_if_that_is_wanted(control: ControlFiles, capsys: Captured) -> None:
    with driver(control, state(), lambda *_: state()) as taken:
        assert run(["sweep", "stop", "--no-wait"]) == ExitCode.OK
        wait_for(lambda: taken == [Request(RequestKind.STOP)])
        assert control.is_alive()
    assert capsys.readouterr().out == "asked c-1 to stop\n"
    with driver(control, state(), stopping) as taken:
        assert run(["sweep", "stop"]) == ExitCode.OK
        assert taken == [Request(RequestKind.STOP)]
        assert not control.is_alive()
    assert "c-1 has ended: 2 of 6 trials are in the store; `taxmeter sweep resume` goes on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hosts", "answer", "told"),
    [
        (("h2",), state(h1=HostPhase.RUNNING, h2=HostPhase.DRAINED), ("drain h2", "2 trials are left there")),
        ((), state(CampaignPhase.DRAINING), ("drain all hosts", "h1 ends tiny-bert eager batch 1 round 1")),
    ],
    ids=["some", "all"],
)
def test_hosts_that_take_part_are_drained_and_what_runs_or_is_left_is_named(
    control: ControlFiles,
    capsys: Captured,
    hosts: tuple[str, ...],
    answer: CampaignProgressState,
    told: tuple[str, str],
) -> None:
    with driver(control, state(), lambda *_: answer) as taken:
        assert run(["sweep", "drain", *hosts]) == ExitCode.OK
        assert taken == [Request(RequestKind.DRAIN, hosts)]
        said = capsys.readouterr().out
        assert f"asked c-1 to {told[0]}" in said
        assert told[1] in said
        assert run(["sweep", "drain", "h3"]) == ExitCode.USAGE
        assert taken == [Request(RequestKind.DRAIN, hosts)]
    assert "h3 takes no part in c-1; known: h1, h2" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stop", "drain"])
def test_where_nothing_runs_nothing_is_asked(command: str, control: ControlFiles, capsys: Captured) -> None:
    assert run(["sweep", command]) == ExitCode.OK
    assert capsys.readouterr().out == "no campaign of this project runs\n"
    with control.driving():
        assert control.take_requests() == []


def test_the_status_says_whether_all_is_well(control: ControlFiles, capsys: Captured) -> None:
    assert run(["sweep", "status"]) == ExitCode.OK
    assert capsys.readouterr().out == "no campaign of this project runs\n"
    with driver(control, state(), stopping):
        assert run(["sweep", "status"]) == ExitCode.OK
        assert "tiny-bert eager batch 1 round 1" in " ".join(capsys.readouterr().out.split())
    control.publish(state(h1=HostPhase.RUNNING, h2=HostPhase.LOST))
    assert run(["sweep", "status"]) == ExitCode.TRIALS_FAILED
    assert "the driver of c-1 died" in capsys.readouterr().out
    with driver(control, state(h1=HostPhase.RUNNING, h2=HostPhase.GIVEN_UP), stopping):
        assert run(["sweep", "status"]) == ExitCode.TRIALS_FAILED
    with driver(control, state(h1=HostPhase.RUNNING, h2=HostPhase.LOST), stopping):
        assert run(["sweep", "status"]) == ExitCode.TRIALS_FAILED
        assert run(["sweep", "status", "--format", "json"]) == ExitCode.TRIALS_FAILED
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["is_alive"], document["is_well"]) == (True, False)
    assert [host["phase"] for host in document["campaign"]["hosts"]] == ["running", "lost"]


def test_watching_ends_with_the_campaign(control: ControlFiles, capsys: Captured, monkeypatch: Patch) -> None:
    shown: list[object] = []

    def show(seen: CampaignStatus) -> object:
        shown.append(seen)
        if len(shown) == 2:
            control.request(Request(RequestKind.STOP))
        return render(seen)

    monkeypatch.setattr(sweep_control, "_WATCH_PLAIN_S", 0.05)
    monkeypatch.setattr(sweep_control, "render", show)
    with driver(control, state(), stopping):
        assert run(["sweep", "status", "--watch"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.count("c-1 is running") >= 2
    assert said.rstrip().endswith("no campaign of this project runs")


def test_what_nobody_understood_is_named(control: ControlFiles, capsys: Captured) -> None:
    with control.driving():
        control.request(Request(RequestKind.STOP))
        [file] = (control.directory / "requests").iterdir()
        file.write_text("{}")
        assert control.take_requests() == []
        assert run(["sweep", "status"]) == ExitCode.OK
    assert f"not understood, so nobody acted on it: {file}.refused" in capsys.readouterr().out


def begun(directory: Path, rows: int) -> ResumeDecision:
    """A campaign in the store `results` that ended after so many rows."""
    path = directory / "s.yaml"
    path.write_text(SWEEP)
    stored = Stored(directory / "results")
    host = PlanningHost("here", {}, (0,), {"cpu": STORED})
    chosen = stored.begin(load_sweep(path), host, document=SWEEP, inventory=INVENTORY)
    stored.measure(chosen, {"here": rows})
    ProjectFiles(directory).remember_store(str(store_id(stored.store.layout)))
    path.unlink()
    return chosen


def test_a_campaign_is_resumed_only_with_the_locks_of_then_and_while_none_runs(
    control: ControlFiles, tmp_path: Path, project: Path, capsys: Captured
) -> None:
    (tmp_path / "docker").symlink_to(project / "docker")
    chosen = begun(tmp_path, rows=1)
    assert run(["sweep", "status"]) == ExitCode.TRIALS_FAILED
    assert "3 of 4 trials are left; `taxmeter sweep resume` goes on" in " ".join(capsys.readouterr().out.split())
    assert run(["sweep", "resume"]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert f"campaign {chosen.campaign_id} of sweep s, begun " in told.out
    assert "of 4 trials 3 are left (here 3)" in told.out
    assert "environment cpu: lock: expected lock, found " in told.err
    assert "it began at commit c0ffee" in told.err
    with driver(control, state(), stopping):
        assert run(["sweep", "resume"]) == ExitCode.NO_USABLE_HOST
    assert "c-1 of this project runs; `taxmeter sweep status` shows it" in capsys.readouterr().err


def test_a_finished_campaign_has_nothing_to_resume(control: ControlFiles, tmp_path: Path, capsys: Captured) -> None:
    chosen = begun(tmp_path, rows=4)
    assert run(["sweep", "resume"]) == ExitCode.OK
    assert capsys.readouterr().out == "nothing is left of any campaign\n"
    assert run(["sweep", "resume", chosen.campaign_id[:12]]) == ExitCode.OK
    assert "all 4 planned trials are in the store" in capsys.readouterr().out
    assert run(["sweep", "status"]) == ExitCode.OK


def test_what_was_imported_or_reproduces_another_is_not_what_a_resume_goes_on_with(
    control: ControlFiles, tmp_path: Path, capsys: Captured
) -> None:
    begun(tmp_path, rows=4)
    again = {"sweep_document": "# made by `taxmeter reproduce t-1`\n", "plan": {}}
    with Store.open(tmp_path / "results").writer() as writer:
        for name, columns in (("imported", {"sweep_document": SWEEP}), ("again", again)):
            whole = {"inventory_document": INVENTORY, "planned_trials": 4, "plan_digest": name, **columns}
            writer.put_campaign(
                campaign_row(name, datetime.now(UTC), "s", taxmeter_version="0", git_commit=None, **whole)
            )
    assert run(["sweep", "resume"]) == ExitCode.OK
    assert capsys.readouterr().out == "nothing is left of any campaign\n"
    assert run(["sweep", "resume", "imported"]) == ExitCode.USAGE
    assert "has no plan in the store: it was imported" in capsys.readouterr().err
    assert run(["sweep", "resume", "again"]) == ExitCode.USAGE
    assert "again reproduces another one; `taxmeter reproduce t-1` goes on with it by itself" in capsys.readouterr().err


def test_an_inventory_without_its_hosts_is_refused(
    control: ControlFiles, tmp_path: Path, project: Path, capsys: Captured
) -> None:
    begun(tmp_path, rows=1)
    assert run(["sweep", "resume", "nothing"]) == ExitCode.USAGE
    assert "no campaign nothing" in capsys.readouterr().err
    assert run(["sweep", "resume", "--limit", "there"]) == ExitCode.USAGE
    assert "no host is called there; did you mean here? known: here" in capsys.readouterr().err
    assert run(["sweep", "resume", "--inventory", "missing.yaml"]) == ExitCode.USAGE
    assert "missing.yaml: no such file" in capsys.readouterr().err
    # another inventory counts, and not the one that the campaign is stored with
    (tmp_path / "another.yaml").write_text(INVENTORY.replace("process}", "process, state: drain}"))
    assert run(["sweep", "resume", "--inventory", "another.yaml"]) == ExitCode.NO_USABLE_HOST
    assert "the state of here is drain" in capsys.readouterr().err
