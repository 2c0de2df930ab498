"""Stored trials once more, on a real store with the fake executor: what is found, refused, run and written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from orchestrator.analysis import change_columns, changes
from orchestrator.analysis.reproduction import Sides, TrialPlace, compare_sides, reproduction_columns
from orchestrator.campaign import (
    Allowed,
    CampaignProgress,
    ReadyHost,
    Reproduction,
    TrialRecorded,
    find,
    refuse_another_method,
    run_campaign,
    targets,
)
from orchestrator.campaign.reproduce.reproduction import ReadyTarget, continuation_of, decide, order_again
from orchestrator.campaign.reproduce.stored import StoredTrials
from orchestrator.cli.reproduce import print_reproduction
from orchestrator.config import Connection, Host, Inventory, Sweep
from orchestrator.errors import ConfigurationError
from orchestrator.execution import FakeSettings
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.store import TRIALS
from runners.contract import Protocol
from tests import scripted_campaign
from tests.local_scheduler import LocalScheduler
from tests.scripted_campaign import PATIENT

LAYERS = ("sha256:" + "a" * 64, "sha256:" + "b" * 64)
PIN = EnvironmentPin(
    "cpu", Isolation.DOCKER, "for a test", "0" * 64, "sha256:" + "1" * 64, "sha256:" + "1" * 64, LAYERS, "c" * 64
)
REBUILT = replace(PIN, image_id="sha256:" + "2" * 64, image_layers=(LAYERS[0], "sha256:" + "d" * 64))
INVENTORY = Inventory(hosts={"h1": Host(connection=Connection.LOCAL)})
SWEEP = Sweep.model_validate(
    {
        "version": 1,
        "name": "s",
        "environments": "cpu",
        "workloads": ({"name": ("synthetic-null", "synthetic-crash"), "batch": (1, 2)},),
        "backends": ("python", "eager"),
        "rounds": 4,
        "seed": 7,
        "timeout_s": 77,
        "protocol": Protocol(sync_budget_ms=123),
        "duplicate": ({"workload": "synthetic-null", "backend": "python", "batch": 1},),
    }
)


def host(pin: EnvironmentPin = PIN) -> ReadyHost:
    return ReadyHost(PlanningHost("h1", {}, (0, 1), {"cpu": pin}), {"cpu": FakeSettings()})


class Lab(scripted_campaign.Lab):
    """A project directory with a store that holds one campaign."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory = directory
        self.campaign = super().run(SWEEP, LocalScheduler(), [host()], faults=PATIENT)

    def rows_of(self, campaign_id: str, **wanted: object) -> list[dict[str, Any]]:
        rows = self.store.trials(campaign_id=campaign_id).to_pylist()
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def with_two_limits(self) -> str:
        """Writes rows of one key once more as those of another campaign, the first three with fewer cores."""
        [row] = [row for row in self.store.campaigns().to_pylist() if row["campaign_id"] == self.campaign]
        rows = self.rows_of(self.campaign, trial_key=self.find(self.campaign).configurations[0].trial_key, replicate=0)
        with self.store.writer() as writer:
            writer.put_campaign({**row, "campaign_id": "mixed", "plan_digest": "mixed"})
            for number, row in enumerate(rows):
                kept = {name: value for name, value in row.items() if name in set(TRIALS.names)}
                cores = "0" if number < 3 else "0-1"
                changes = {"campaign_id": "mixed", "trial_id": f"mixed-{row['trial_id']}", "trial_cores": cores}
                writer.append([kept | changes])
        return "mixed"

    def find(self, text: str) -> StoredTrials:
        return find(self.store, text, self.directory)

    def decide(self, text: str | StoredTrials, pin: EnvironmentPin = PIN, **options: Any) -> Reproduction:
        wanted = self.find(text) if isinstance(text, str) else text
        [target] = targets(wanted, INVENTORY, None)
        return decide(wanted, [ReadyTarget(target, host(pin), {})], options.pop("allowed", Allowed()), **options)

    def again(self, reproduction: Reproduction, observe: Any = lambda progress: None) -> str:
        chosen = continuation_of(reproduction, self.store)
        order = order_again(reproduction, chosen, INVENTORY, None)
        run_campaign(order, LocalScheduler(), self.store, self.files, observe)
        return chosen.campaign_id


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """For tests that only read."""
    return Lab(tmp_path_factory.mktemp("stored"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_trial_is_rebuilt_exactly_with_its_key(stored: Lab) -> None:
    chosen = stored.rows_of(stored.campaign, status="ok", batch=2)[0]
    wanted = stored.find(chosen["trial_id"][:16])
    [found] = wanted.configurations
    assert found.rebuilt_key == found.trial_key == chosen["trial_key"]
    assert (found.spec.seed, found.spec.protocol.sync_budget_ms, found.timeout_s, found.rounds) == (7, 123, 77, 4)
    assert found.pin == PIN
    assert refuse_another_method(wanted, allowed=False) == {}
    reproduction = stored.decide(wanted)
    assert [trial.trial_key for trial in reproduction.again] == [chosen["trial_key"]]
    assert "trial keys: 1 of 1 are those of the stored trials" in reproduction.notes


def test_a_campaign_means_all_that_ended_ok_as_often_as_then_and_three_times_at_least(stored: Lab) -> None:
    wanted = stored.find(stored.campaign)
    ok = {row["trial_key"] for row in stored.rows_of(stored.campaign, status="ok")}
    assert {trial.trial_key for trial in wanted.configurations} == ok
    assert len(wanted.configurations) == 2
    short = replace(wanted, configurations=tuple(replace(trial, rounds=1) for trial in wanted.configurations))
    given = stored.decide(wanted), stored.decide(wanted, rounds=1), stored.decide(short)
    assert [reproduction.rounds for reproduction in given] == [4, 1, 3]


def test_what_cannot_be_found_or_never_ran_is_one_error(stored: Lab) -> None:
    for text in ("", "nothing", "0123456789abcdef0123456789abcdef"):
        with pytest.raises(ConfigurationError, match="no trial and no campaign is called"):
            stored.find(text)
    firsts = [row["trial_id"][0] for row in stored.rows_of(stored.campaign)]
    shared = max(set(firsts), key=firsts.count)
    with pytest.raises(ConfigurationError, match=f"{firsts.count(shared)} trials begin with {shared}: .*write more"):
        stored.find(shared)
    [skipped, *_] = stored.rows_of(stored.campaign, status="skipped")
    with pytest.raises(ConfigurationError, match="never ran .skipped: "):
        stored.find(skipped["trial_id"])


def test_trials_of_one_key_with_other_limits_are_not_mixed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = lab.with_two_limits()
    with pytest.raises(ConfigurationError, match="with cores 0 .* and with cores 0-1 .*; say which .* by the id"):
        lab.find(mixed)
    for text, cores, rounds in (("0", (0,), 3), ("0-1", (0, 1), 1)):
        ids = {row["trial_id"] for row in lab.rows_of(mixed, trial_cores=text)}
        [found] = lab.find(min(ids)).configurations
        assert (set(found.trial_ids), found.limits.cores, found.rounds) == (ids, cores, rounds)
    reproduction = lab.decide(lab.rows_of(mixed, trial_cores="0")[0]["trial_id"])
    print_reproduction(lab.store, reproduction, lab.again(reproduction))
    shown = capsys.readouterr().out
    assert f"then: mixed on h1, trial key {reproduction.again[0].trial_key}, 3 ok" in shown
    assert "3 rounds" in shown


def test_an_equal_image_under_another_name_keeps_the_keys(stored: Lab) -> None:
    pushed = replace(PIN, image_id="sha256:" + "9" * 64, image_digest="registry/cpu@sha256:" + "8" * 64)
    reproduction = stored.decide(stored.campaign, pushed)
    assert all(trial.trial_key == trial.then.trial_key for trial in reproduction.again)
    assert {trial.differs for trial in reproduction.reproduces.trials["h1"].values()} == {None}
    assert any("is identical to the stored one (lock and 2 layers" in note for note in reproduction.notes)


def test_a_reproduction_is_a_campaign_of_its_own_that_says_what_it_is(lab: Lab) -> None:
    again = lab.decide(lab.campaign)
    # without a sweep no other host can take the place of one that is lost: a stored trial runs again where it ran
    assert order_again(again, continuation_of(again, lab.store), INVENTORY, None).sweep is None
    new = lab.again(again)
    rows = lab.rows_of(new)
    assert len(rows) == 2 * 4
    assert {(row["status"], row["reproduces"], row["reproduction_differs"]) for row in rows} == {
        ("ok", lab.campaign, None)
    }
    assert all(row["reproduces_trial_key"] == row["trial_key"] for row in rows)
    assert {row["trial_key"] for row in rows} == {row["trial_key"] for row in lab.rows_of(lab.campaign, status="ok")}
    assert {row["reproduces"] for row in lab.rows_of(lab.campaign)} == {None}
    assert lab.again(lab.decide(lab.campaign)) != new
    once_more = lab.rows_of(lab.again(lab.decide(rows[0]["trial_id"])))
    assert ({row["reproduces"] for row in once_more}, len(once_more)) == ({new}, 4)


def test_another_image_is_refused_or_every_row_says_so_and_pairs_in_sql(lab: Lab) -> None:
    with pytest.raises(ConfigurationError, match="layer 2 of 2: expected b{12}, found d{12}; --allow-different-image"):
        lab.decide(lab.campaign, REBUILT)
    first, second = (trial.trial_key for trial in lab.find(lab.campaign).configurations)
    allowed = Allowed(image=True, method={first: "method version 2 then, 1 now"})
    rows = lab.rows_of(lab.again(lab.decide(lab.campaign, REBUILT, allowed=allowed)))
    layers = "layer 2 of 2: expected bbbbbbbbbbbb, found dddddddddddd"
    assert {(row["reproduces_trial_key"], row["reproduction_differs"]) for row in rows} == {
        (first, f"method version 2 then, 1 now; {layers}"),
        (second, layers),
    }
    assert not {row["trial_key"] for row in rows} & {row["trial_key"] for row in lab.rows_of(lab.campaign)}
    trials = f"'{lab.directory}/results/trials/**/*.parquet'"
    joined = duckdb.sql(f"""
        SELECT now.workload, median(past.latency_sync_median_s) / median(now.latency_sync_median_s), count(*)
        FROM {trials} AS now JOIN {trials} AS past
          ON past.campaign_id = now.reproduces AND past.trial_key = now.reproduces_trial_key
        WHERE now.status = 'ok' AND past.status = 'ok' GROUP BY now.workload, now.batch""").fetchall()
    assert [(name, ratio) for name, ratio, _ in joined] == [("synthetic-null", 1.0)] * 2


def test_an_interrupted_reproduction_goes_on(lab: Lab) -> None:
    recorded = []

    def interrupt(progress: CampaignProgress) -> None:
        recorded.extend([progress] if isinstance(progress, TrialRecorded) else [])
        if len(recorded) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.again(lab.decide(lab.campaign), interrupt)
    chosen = continuation_of(lab.decide(lab.campaign), lab.store)
    # what the host had recorded by then is stored, too
    stored = len(lab.rows_of(chosen.campaign_id))
    assert stored >= 3
    assert (chosen.is_new, chosen.left.trials) == (False, 8 - stored)
    assert lab.again(lab.decide(lab.campaign)) == chosen.campaign_id
    assert len(lab.rows_of(chosen.campaign_id, status="ok")) == 8


def test_then_and_now_are_compared_by_configuration(lab: Lab) -> None:
    again = lab.decide(lab.campaign)
    new = lab.again(again)
    sides = [
        Sides(
            TrialPlace(lab.campaign, trial.then.host, trial.then.trial_key),
            TrialPlace(new, trial.host, trial.trial_key),
        )
        for trial in again.again
    ]
    columns = list(dict.fromkeys([*reproduction_columns(), *change_columns()]))
    then, now = (lab.store.trials(columns, campaign_id=campaign) for campaign in (lab.campaign, new))
    found = compare_sides(then, now, sides)
    assert [row.batch for row in found] == [trial.then.spec.workload.batch for trial in again.again]
    for row in found:
        assert [mode.name for mode in row.modes] == ["one call at a time", "back-to-back calls"]
        for mode in row.modes:
            assert mode.then is not None
            assert mode.ratio is not None
            # the A/A duplicate of then does not count
            assert (mode.then.processes, mode.ratio.estimate.value) == (4, pytest.approx(1.0))
    differing = changes(then, now, lab.store.systems(), lab.store.environments(), lab.store.campaigns())
    assert [change for change in differing if change.group != "conditions"] == []
