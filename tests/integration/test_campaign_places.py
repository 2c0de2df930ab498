"""A campaign goes on with other hosts than it began with, as long as each does what it was to do."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import ResumeDecision, ResumePolicy, choose_campaign
from orchestrator.campaign.pinned import Pinned, go_on, pinned, refuse_other_locks
from orchestrator.campaign.resume import write_widened
from orchestrator.config import Sweep
from orchestrator.environments import Catalogue, lock_sha256
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from runners.contract import METHOD_VERSION, Status
from tests.conftest import PROJECT, Patch
from tests.scripted_campaign import STORED as PIN
from tests.scripted_campaign import Stored, sweep

H1, H2, H3 = (PlanningHost(name, {}, (0, 1), {"cpu": PIN}) for name in ("h1", "h2", "h3"))
SWEEP, ANY = sweep(), sweep("any")


class Bench(Stored):
    """A store, and campaigns that end where a test says."""

    def choose(
        self, sweep: Sweep, *hosts: PlanningHost, policy: ResumePolicy = ResumePolicy.AUTO, absent: Iterable[str] = ()
    ) -> ResumeDecision:
        chosen = choose_campaign(sweep, hosts, self.store, policy, absent=tuple(absent))
        write_widened(chosen, "another inventory", self.store)
        return chosen

    def row(self, campaign_id: str) -> dict[str, object]:
        return next(row for row in self.store.campaigns().to_pylist() if row["campaign_id"] == campaign_id)

    def pinned(self, chosen: ResumeDecision) -> Pinned:
        return pinned(self.row(chosen.campaign_id), self.store)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "results")


def left(chosen: ResumeDecision) -> dict[str, int]:
    return dict(Counter(planned.host for planned in chosen.left.tasks for _ in planned.task.trials))


def test_an_unfinished_campaign_goes_on_without_a_host_that_is_gone(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1, H2)
    bench.measure(first, {"h1": 1, "h2": 2})
    again = bench.choose(SWEEP, H1)
    assert (again.campaign_id, again.is_new, left(again)) == (first.campaign_id, False, {"h1": 3})
    assert "h2: 2 trials of the campaign are left there" in again.left.unmatched
    assert again.widened is None
    bench.measure(again, {"h1": None})
    whole = bench.choose(SWEEP, H1, H2)
    assert (whole.campaign_id, left(whole)) == (first.campaign_id, {"h2": 2})


def test_a_host_that_comes_later_is_added_and_the_row_holds_the_larger_plan(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1, H2)
    bench.measure(first, {"h1": 1, "h2": 2})
    again = bench.choose(SWEEP, H1, H3)
    assert (again.campaign_id, left(again), again.joined) == (first.campaign_id, {"h1": 3, "h3": 4}, ("h3",))
    row = bench.row(first.campaign_id)
    assert (row["planned_trials"], row["inventory_document"], row["git_commit"]) == (12, "another inventory", "c0ffee")
    document = json.loads(str(row["plan"]))
    assert {one["host"] for one in document["tasks"]} == {"h1", "h2", "h3"}
    assert document["places"] == {"h1": "h1", "h2": "h2", "h3": "h3"}
    whole = bench.choose(SWEEP, H1, H2, H3)
    assert (whole.campaign_id, left(whole)) == (first.campaign_id, {"h1": 3, "h2": 2, "h3": 4})
    assert whole.plan.digest == row["plan_digest"]
    assert bench.store.campaigns().num_rows == 1


def test_a_complete_campaign_does_not_grow_by_itself(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1)
    bench.measure(first, {"h1": None})
    assert bench.choose(SWEEP, H1, H2).is_new
    told = bench.choose(SWEEP, H1, H2, policy=ResumePolicy.ALWAYS)
    assert (told.campaign_id, left(told)) == (first.campaign_id, {"h2": 4})


def test_hosts_that_are_done_are_measured_anew_unless_the_others_are_meant_too(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1, H2)
    bench.measure(first, {"h1": None, "h2": 2})
    assert bench.choose(SWEEP, H1).is_new
    waiting = bench.choose(SWEEP, H1, absent=["h2"])
    assert (waiting.campaign_id, left(waiting)) == (first.campaign_id, {})


def test_what_infrastructure_failed_waits(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1, H2)
    bench.measure(first, {"h1": 2, "h2": 2})
    bench.measure(bench.choose(SWEEP, H2), {"h2": None}, Status.INFRASTRUCTURE_ERROR)
    again = bench.choose(SWEEP, H1)
    assert "h2: 2 trials of the campaign are left there" in again.left.unmatched
    assert {t.attempt for one in bench.choose(SWEEP, H2).left.tasks for t in one.task.trials} == {2}


@pytest.mark.parametrize(
    "other", [replace(H1, environments={"cpu": replace(PIN, lock_sha256="another")}), replace(H1, cores=(0, 1, 2))]
)
def test_a_host_that_would_do_something_else_begins_anew(bench: Bench, other: PlanningHost) -> None:
    bench.measure(bench.begin(SWEEP, H1, H2), {"h1": 1})
    assert bench.choose(SWEEP, other, H2).is_new
    assert bench.choose(SWEEP, other, H3).is_new
    assert bench.choose(SWEEP, H3).is_new
    assert bench.choose(SWEEP.model_copy(update={"rounds": 3}), H1, H2).is_new


def test_the_work_of_any_host_goes_on_wherever(bench: Bench) -> None:
    first = bench.begin(ANY, H1, H2)
    assert {one.host for one in first.plan.tasks} == {"h1"}
    bench.measure(first, {"h1": 3})
    again = bench.choose(ANY, H2)
    assert (again.campaign_id, left(again), again.widened) == (first.campaign_id, {"h2": 1}, None)
    ids = [{t.trial_id for one in c.plan.tasks for t in one.task.trials} for c in (first, again)]
    assert ids[0] == ids[1]


def test_a_campaign_is_gone_on_with_by_its_name(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1, H2)
    bench.begin(SWEEP, H1, H2)
    bench.measure(first, {"h1": 1})
    campaign = bench.pinned(first)
    again = go_on(campaign, SWEEP, [H2, H1], bench.store)
    assert (again.campaign_id, left(again)) == (first.campaign_id, {"h1": 3, "h2": 4})
    with pytest.raises(NoUsableHostError, match=r"has trials for h1, h2, and at hand is h3; name an inventory"):
        go_on(campaign, SWEEP, [H3], bench.store)


IMAGE = EnvironmentPin("cpu", Isolation.DOCKER, "", "lock", image_id="sha256:" + "1" * 64)
REBUILT = replace(IMAGE, image_id="sha256:" + "2" * 64, image_layers=("a",), image_config_sha256="c")


LOCK = {"cpu": replace(PIN, lock_sha256="another")}
DOCKER = {"cpu": replace(PIN, isolation=Isolation.DOCKER, image_id="sha256:1")}


@pytest.mark.parametrize(
    ("pin", "changes", "named"),
    [
        (PIN, {"environments": LOCK}, "h1: environment cpu: lock: expected lock, found another"),
        (PIN, {"cores": (0, 1, 2)}, "h1: threads: expected 2, found 3"),
        (PIN, {"unavailable": {"cpu": "no Python 3.9"}}, "h1: what it was to run cannot run there: no Python 3.9"),
        (PIN, {"environments": DOCKER}, "h1: environment cpu: isolation: expected process, found docker (for a test)"),
        (IMAGE, {"environments": {"cpu": REBUILT}}, "image: expected 111111111111, found 222222222222"),
    ],
)
def test_what_is_not_as_it_was_is_named(bench: Bench, pin: EnvironmentPin, changes: dict[str, Any], named: str) -> None:
    first = bench.begin(SWEEP, replace(H1, environments={"cpu": pin}), H2)
    bench.measure(first, {"h1": 1}, pin=pin)
    with pytest.raises(ConfigurationError) as caught:
        go_on(bench.pinned(first), SWEEP, [replace(H1, **changes), H2], bench.store)
    for words in (named, f"campaign {first.campaign_id} cannot go on", "commit c0ffee", "sweep run --resume never"):
        assert words in str(caught.value)


def test_each_difference_is_named_also_of_the_method_and_of_the_space(bench: Bench, monkeypatch: Patch) -> None:
    first = bench.begin(SWEEP, H1)
    bench.measure(first, {"h1": 1})
    monkeypatch.setattr("orchestrator.campaign.pinned.METHOD_VERSION", 99)
    with pytest.raises(ConfigurationError) as caught:
        go_on(bench.pinned(first), SWEEP.model_copy(update={"seed": 7}), [replace(H1, cores=(0, 1, 2))], bench.store)
    method = f"method version: expected {METHOD_VERSION}, found 99"
    for line in (method, "h1: seed: expected ", "h1: threads: expected 2, found 3"):
        assert line in str(caught.value)


def test_other_locks_are_refused_before_anything_is_built(bench: Bench) -> None:
    catalogue = Catalogue.load(PROJECT / "docker" / "images.yaml")
    first = bench.begin(SWEEP, H1)
    bench.measure(first, {"h1": 1}, pin=replace(PIN, lock_sha256=lock_sha256(catalogue.entry("cpu"))))
    refuse_other_locks(bench.pinned(first), catalogue)
    second = bench.begin(SWEEP, H1)
    bench.measure(second, {"h1": 1})
    with pytest.raises(ConfigurationError, match=r"environment cpu: lock: expected lock, found [0-9a-f]{12}"):
        refuse_other_locks(bench.pinned(second), catalogue)


def test_campaigns_without_a_plan_start_anew_and_are_refused_by_name(bench: Bench) -> None:
    first = bench.begin(SWEEP, H1, H2)
    with bench.store.writer() as writer:
        writer.finish_campaign(first.campaign_id, plan=None, started_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert bench.choose(SWEEP, H1, H2).is_new
    with pytest.raises(ConfigurationError, match="has no plan in the store"):
        bench.pinned(first)
