"""Campaigns of a store that others wrote: which are continued, and what their names may lead to."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign.pinned import pinned
from orchestrator.campaign.resume import ResumePolicy, choose_campaign, new_campaign_id
from orchestrator.campaign.stored_plan import StoredPlan
from orchestrator.errors import ForeignDataError
from orchestrator.files import WorkFiles
from orchestrator.planning import PlanningHost
from orchestrator.store import RowContext, trial_row
from runners.contract import Status, TrialRecord
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
        lambda: WorkFiles(tmp_path).cache(name, "cpu", "docker"),
        lambda: new_campaign_id(name),
    ):
        with pytest.raises(ForeignDataError, match="is no name that taxmeter gives"):
            refuses()


@pytest.mark.parametrize(
    "plan",
    [
        "{",
        "[]",
        "{}",
        "[" * 10_000,
        '{"tasks": 1}',
        '{"tasks": [{"host": 1}], "skips": [], "unmatched": [], "places": {}}',
    ],
)
def test_a_plan_that_cannot_be_read_keeps_nobody_from_starting_anew(stored: Stored, plan: str) -> None:
    begun = stored.begin(WANTED, HOST)
    [row] = stored.store.campaigns().to_pylist()
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        spoilt = stored.store.campaigns().set_column(
            stored.store.campaigns().schema.get_field_index("plan"), "plan", [[plan]]
        )
        patch.setattr(type(stored.store), "campaigns", lambda _store: spoilt)
        chosen = choose_campaign(WANTED, [HOST], stored.store, ResumePolicy.AUTO, tell=told.append)
    assert chosen.is_new
    [line] = told
    assert line.startswith(f"the plan of campaign {begun.campaign_id}: ")
    assert line.endswith("; it is not continued")
    with pytest.raises(ForeignDataError, match="the plan of campaign"):
        pinned({**row, "plan": plan}, stored.store)


def test_another_machine_of_the_same_name_does_not_continue_what_the_first_one_began(stored: Stored) -> None:
    begun = stored.begin(WANTED, HOST)
    first, *_ = (trial for planned in begun.left.tasks for trial in planned.task.trials)
    context = RowContext(begun.campaign_id, "cpu", "t", "h1", "process", "", "e", hw_id="1" * 32, system_id="2" * 32)
    now = time.time_ns()
    with stored.store.writer() as writer:
        writer.append([trial_row(context, first, TrialRecord(first.trial_id, 1, Status.CRASHED, "r", now, now))])
    told: list[str] = []
    same = choose_campaign(WANTED, [replace(HOST, hw_id="1" * 32)], stored.store, ResumePolicy.AUTO, tell=told.append)
    assert (same.campaign_id, told) == (begun.campaign_id, [])
    other = choose_campaign(WANTED, [replace(HOST, hw_id="3" * 32)], stored.store, ResumePolicy.AUTO, tell=told.append)
    assert other.is_new
    [line] = told
    assert line.startswith(f"campaign {begun.campaign_id} is not continued: h1 is other hardware (3333")
    assert line.endswith("than what it measured under this name (11111111111111111111111111111111)")
