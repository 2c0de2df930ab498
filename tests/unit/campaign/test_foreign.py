"""Campaigns of a store that others wrote: which are continued, and what their names may lead to."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.pinned import pinned
from orchestrator.campaign.resume import ResumeDecision, ResumePolicy, choose_campaign, new_campaign_id
from orchestrator.campaign.stored_plan import StoredPlan, plan_document
from orchestrator.cli import run
from orchestrator.config import Connection, Host
from orchestrator.errors import ExitCode, ForeignDataError, NoUsableHostError
from orchestrator.files import ProjectFiles, WorkFiles
from orchestrator.planning import Plan, PlannedTask, PlanningHost
from orchestrator.store import Store
from orchestrator.store.origin import RowContext
from orchestrator.store.rows import trial_row
from orchestrator.store.storage.layout import store_id
from runners.contract import (
    CONTRACT_VERSION,
    BackendSpec,
    Protocol,
    Status,
    Task,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
)
from runners.contract.spec import OptionValue
from tests.conftest import Captured
from tests.scripted_campaign import STORED, Stored, sweep

HOST = PlanningHost("h1", {}, (0, 1), {"cpu": STORED})
WANTED = sweep(rounds=1)
ELSEWHERE = ["../../victim", "/etc/cron.d/x", "..", ".", "", "a/b", "a\0b", "-rf", "a\nb", "x" * 241]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "results")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_name_out_of_a_store_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    row = {"campaign_id": name, "sweep": "s", "plan": "{}"}
    for refuses in (
        lambda: StoredPlan.of(row),
        lambda: WorkFiles(tmp_path).campaign(name),
        lambda: WorkFiles(tmp_path).cache(name, "docker", of_own_models=False),
        lambda: new_campaign_id(name),
    ):
        with pytest.raises(ForeignDataError, match="is no name that taxmeter gives"):
            refuses()


OF_NO_HOST = '{"tasks": [{"host": 1}], "skips": [], "unmatched": [], "places": {}}'
OF_NOTHING = '{"tasks": [], "skips": [], "unmatched": [], "places": {}, "common": {}, "specifications": {"k": {}}}'


@pytest.mark.parametrize("plan", ["{", "[]", "{}", "[" * 10_000, '{"tasks": 1}', OF_NO_HOST, OF_NOTHING])
def test_a_plan_that_cannot_be_read_keeps_nobody_from_starting_anew(stored: Stored, plan: str) -> None:
    begun = stored.begin(WANTED, HOST)
    [row] = stored.store.campaigns().to_pylist()
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        whole = stored.store.campaigns()
        spoilt = whole.set_column(whole.schema.get_field_index("plan"), "plan", [[plan]])
        patch.setattr(type(stored.store), "campaigns", lambda _store: spoilt)
        chosen = choose_campaign(WANTED, [HOST], stored.store, ResumePolicy.AUTO, tell=told.append)
    assert chosen.is_new
    [line] = told
    assert line.startswith(f"the plan of campaign {begun.campaign_id}: ")
    with pytest.raises(ForeignDataError, match="the plan of campaign"):
        pinned({**row, "plan": plan}, stored.store)


@pytest.mark.parametrize(
    ("common", "own"),
    [
        ({"workload": {"options": {"a": 1}, "source": "x"}}, {"workload": {"options": None}}),
        ({"workload": {"options": {}, "source": "x"}}, {"workload": None}),
        ({"workload": {"options": {}}, "protocol": {"turn_ms": 1}}, {"protocol": "none"}),
    ],
)
def test_a_plan_whose_parts_do_not_fit_together_can_be_read(common: dict[str, Any], own: dict[str, Any]) -> None:
    trials = {"trial_id": ["t"], "trial_key": ["k"], "round": [1], "replicate": [0]}
    document = {"tasks": [{"host": "h1", "trials": trials}], "skips": [], "unmatched": [], "places": {"h1": "h1"}}
    text = json.dumps({**document, "common": common, "specifications": {"k": own}})
    plan = StoredPlan.of({"campaign_id": "c", "sweep": "s", "plan": text})
    assert plan is not None
    assert plan.specifications("h1")["k"].keys() == common.keys()
    assert len(plan.modules) <= 1


def test_what_specifications_share_is_told_apart_by_its_type() -> None:
    options: tuple[dict[str, OptionValue], ...] = ({"x": True, "y": 1}, {"x": 1, "y": 1}, {"x": 0, "y": 1})
    workloads = [WorkloadSpec("w", 1, options=some) for some in options]
    specs = [TrialSpec(workload, BackendSpec("b", {}), "float32", "cpu", 1, 0, Protocol()) for workload in workloads]
    trials = [Trial(f"t{number}", f"k{number}", 1, number, 0, 1, 60, spec) for number, spec in enumerate(specs)]
    task = PlannedTask("h1", Task(CONTRACT_VERSION, "c", "t", "cpu", tuple(trials)))
    document = json.loads(json.dumps(plan_document(Plan((task,), (), (), "", 0.0))))
    told = StoredPlan("s", document).specifications("h1")
    found = [told[f"k{number}"]["workload"]["options"] for number in range(len(options))]
    assert [json.dumps(some, sort_keys=True) for some in found] == [
        json.dumps(some, sort_keys=True) for some in options
    ]
    assert document["common"]["workload"]["options"] == {"y": 1}


def test_another_machine_of_the_same_name_does_not_continue_what_the_first_one_began(stored: Stored) -> None:
    begun = stored.begin(WANTED, HOST)
    first, *_ = (trial for planned in begun.left.tasks for trial in planned.task.trials)
    context = RowContext(begun.campaign_id, "cpu", "t", "h1", "process", "", "e", hw_id="1" * 32, system_id="2" * 32)
    now = time.time_ns()
    with stored.store.writer() as writer:
        writer.append([trial_row(context, first, TrialRecord(first.trial_id, 1, Status.CRASHED, "r", now, now))])
    told: list[str] = []

    def chosen(hw_id: str) -> ResumeDecision:
        host = replace(HOST, hw_id=hw_id)
        return choose_campaign(WANTED, [host], stored.store, ResumePolicy.AUTO, tell=told.append)

    assert (chosen("1" * 32).campaign_id, told) == (begun.campaign_id, [])
    assert chosen("3" * 32).is_new
    [line] = told
    assert line.startswith(f"campaign {begun.campaign_id} is not continued: h1 is other hardware (3333")


SWEEP = """\
version: 1
name: s
environments: cpu
workloads: [{name: synthetic-null, batch: [1, 2]}]
backends: [python]
rounds: 1
"""
STRANGE = "version: 1\nhosts: {h1: {connection: ssh, address: 198.51.100.7, user: root}}\n"


@pytest.fixture
def merged(tmp_path: Path, in_project: Path) -> str:
    """A campaign of another lab, merged into `results` with one trial left, and an inventory of our own."""
    theirs = Stored(tmp_path / "theirs")
    begun = theirs.begin(WANTED, HOST, document=SWEEP, inventory=STRANGE)
    theirs.measure(begun, {"h1": 1})
    (tmp_path / "own.yaml").write_text("version: 1\nhosts: {h1: {connection: local}}\n")
    (tmp_path / "other.yaml").write_text("version: 1\nhosts: {h2: {connection: local}}\n")
    assert run(["results", "merge", str(tmp_path / "theirs"), "--results", str(tmp_path / "results")]) == ExitCode.OK
    return begun.campaign_id


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[Host]:
    """The hosts that a resume would reach; none is."""
    hosts: list[Host] = []

    def none(known: Mapping[str, Host], *_: object) -> None:
        hosts.extend(known.values())
        raise NoUsableHostError("nobody is reached in this test")

    for command in ("sweep", "reproduce"):
        monkeypatch.setattr(f"orchestrator.cli.{command}.open_hosts", none)
    monkeypatch.setattr("orchestrator.cli.sweep.refuse_other_locks", lambda *_: None)
    return hosts


def test_a_campaign_of_another_store_goes_on_only_on_hosts_that_the_user_names(
    merged: str, reached: list[Host], tmp_path: Path, capsys: Captured
) -> None:
    command = ["sweep", "resume", merged, "--results", str(tmp_path / "results")]
    assert run(command) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert f"campaign {merged} came from another store (merged)" in told
    assert "name your own with --inventory" in told
    assert run(["sweep", "resume", "--results", str(tmp_path / "results")]) == ExitCode.OK
    assert "nothing is left of any campaign" in capsys.readouterr().out
    again = ["reproduce", merged, *command[3:], "--inventory", str(tmp_path / "other.yaml")]
    assert run(again) == ExitCode.NO_USABLE_HOST
    assert "ran on h1, which" in capsys.readouterr().err
    assert reached == []
    assert run([*command, "--inventory", str(tmp_path / "own.yaml")]) == ExitCode.NO_USABLE_HOST
    assert [host.connection for host in reached] == [Connection.LOCAL]


def test_a_copied_store_leads_nobody_to_the_hosts_of_its_inventory(
    merged: str, reached: list[Host], tmp_path: Path, capsys: Captured
) -> None:
    copied = tmp_path / "theirs"
    for campaign in ([], [merged]):
        assert run(["sweep", "resume", *campaign, "--results", str(copied)]) == ExitCode.USAGE
        told = capsys.readouterr().err
        assert f"campaign {merged} is of a store that no sweep of this project wrote to ({copied})" in told
        assert "name your own with --inventory" in told
    assert reached == []
    identity = store_id(Store.open(copied).layout)
    assert identity is not None
    ProjectFiles(Path.cwd()).remember_store(identity)
    assert run(["sweep", "resume", "--results", str(copied)]) == ExitCode.NO_USABLE_HOST
    assert [host.address for host in reached] == ["198.51.100.7"]
