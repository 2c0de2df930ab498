"""Stored trials once more, on a real store with the fake executor: what is found, refused, run and written."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import Place, Sides, change_columns, changes, compare_sides, reproduction_columns
from orchestrator.campaign import (
    Allowed,
    CampaignOrder,
    CampaignProgress,
    ProjectFiles,
    ReadyHost,
    ResumePolicy,
    TrialRecorded,
    choose_campaign,
    continuation_of,
    decide,
    find,
    order_again,
    refuse_another_method,
    run_campaign,
    targets,
)
from orchestrator.campaign.reproducing.reproduction import Reproduction
from orchestrator.cli.reproduce import print_reproduction
from orchestrator.config.inventory import Connection, Host, Inventory
from orchestrator.config.sweep import Sweep
from orchestrator.errors import ConfigurationError
from orchestrator.execution import ExecutionSettings, FakeSettings
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, trial_key
from orchestrator.scheduling import LocalScheduler
from orchestrator.store import TRIALS, Store

LAYERS = ("sha256:" + "a" * 64, "sha256:" + "b" * 64)
PIN = EnvironmentPin(
    "cpu", Isolation.DOCKER, "for a test", "0" * 64, "sha256:" + "1" * 64, "sha256:" + "1" * 64, LAYERS, "c" * 64
)
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
        "protocol": {"sync_budget_ms": 123},
        "duplicate": ({"workload": "synthetic-null", "backend": "python", "batch": 1},),
    }
)


def host(
    pin: EnvironmentPin = PIN, execution: ExecutionSettings | None = None, name: str = "h1", cores: int = 2
) -> ReadyHost:
    planning = PlanningHost(name, {}, tuple(range(cores)), {"cpu": pin})
    return ReadyHost(planning, {"cpu": execution or FakeSettings()}, None)


class Lab:
    """A project directory with a store that holds one campaign."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = ProjectFiles(directory)
        self.store = Store.open(directory / "results")
        continuation = choose_campaign(SWEEP, [host().planning], self.store, ResumePolicy.NEVER)
        order = CampaignOrder(continuation, [host()], SWEEP.name, "sweep", "inventory", "0", None)
        run_campaign(order, LocalScheduler(), self.store, self.files, lambda progress: None)
        self.campaign = continuation.campaign_id

    def rows(self, campaign_id: str, **wanted: object) -> list[dict[str, Any]]:
        rows = self.store.trials(campaign_id=campaign_id).to_pylist()
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def again(self, campaign_id: str, rows: list[dict[str, Any]], **changes: object) -> None:
        """Writes rows once more as those of another campaign, with other values."""
        with self.store.writer() as writer:
            if campaign_id not in self.store.campaigns()["campaign_id"].to_pylist():
                [row] = [one for one in self.store.campaigns().to_pylist() if one["campaign_id"] == self.campaign]
                writer.put_campaign({**row, "campaign_id": campaign_id, "plan_digest": campaign_id})
            columns = set(TRIALS.names)
            for row in rows:
                kept = {name: value for name, value in row.items() if name in columns}
                writer.append(
                    [kept | {"campaign_id": campaign_id, "trial_id": f"{campaign_id}-{row['trial_id']}"} | changes]
                )

    def decide(self, text: str, ready: ReadyHost | None = None, **options: Any) -> Reproduction:
        wanted = find(self.store, text, self.directory)
        allowed = options.pop("allowed", Allowed())
        found = targets(wanted, INVENTORY, Path("inventory"), None)
        return decide(wanted, [(target, ready or host()) for target in found], allowed, **options)

    def run(self, reproduction: Reproduction, observe: Any = lambda progress: None) -> str:
        chosen = continuation_of(reproduction, self.store)
        order = order_again(reproduction, chosen, "inventory", "0", None)
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
    chosen = stored.rows(stored.campaign, status="ok", batch=2)[0]
    wanted = find(stored.store, chosen["trial_id"][:16], stored.directory)
    [one] = wanted.configurations
    assert one.rebuilt_key == one.trial_key == chosen["trial_key"]
    assert (one.spec.seed, one.spec.protocol.sync_budget_ms, one.timeout_s, one.rounds) == (7, 123, 77, 4)
    assert one.pin == PIN
    assert refuse_another_method(wanted, allowed=False) == {}
    reproduction = stored.decide(chosen["trial_id"])
    assert [again.trial_key for again in reproduction.again] == [chosen["trial_key"]]
    assert "trial keys: 1 of 1 are those of the stored trials" in reproduction.notes


def test_a_campaign_means_all_that_ended_ok(stored: Lab) -> None:
    wanted = find(stored.store, stored.campaign, stored.directory)
    ok = {row["trial_key"] for row in stored.rows(stored.campaign, status="ok")}
    assert {one.trial_key for one in wanted.configurations} == ok
    assert len(wanted.configurations) == 2


@pytest.mark.parametrize("text", ["", "nothing", "0123456789abcdef0123456789abcdef"])
def test_an_unknown_id_is_one_error(stored: Lab, text: str) -> None:
    with pytest.raises(ConfigurationError, match="no trial and no campaign is called"):
        find(stored.store, text, stored.directory)


def test_a_prefix_of_several_trials_is_refused(stored: Lab) -> None:
    firsts = [row["trial_id"][0] for row in stored.rows(stored.campaign)]
    shared = max(set(firsts), key=firsts.count)
    with pytest.raises(ConfigurationError, match=f"{firsts.count(shared)} trials begin with {shared}: .*write more"):
        find(stored.store, shared, stored.directory)


def test_what_never_ran_cannot_be_reproduced(stored: Lab) -> None:
    [skipped, *_] = stored.rows(stored.campaign, status="skipped")
    with pytest.raises(ConfigurationError, match="never ran .skipped: "):
        find(stored.store, skipped["trial_id"], stored.directory)


@pytest.mark.parametrize("named_by", ["image_id", "image_digest"])
def test_keys_of_earlier_formulas_are_known_and_nothing_is_said(lab: Lab, named_by: str) -> None:
    [one, *_] = find(lab.store, lab.campaign, lab.directory).configurations
    nameless = replace(PIN, image_layers=(), image_config_sha256=None, image_id=getattr(PIN, named_by))
    earlier = trial_key(one.spec, nameless)
    assert earlier != one.trial_key
    lab.again("earlier", lab.rows(lab.campaign, trial_key=one.trial_key), trial_key=earlier)
    wanted = find(lab.store, "earlier", lab.directory)
    assert [found.trial_key for found in wanted.configurations] == [earlier]
    assert refuse_another_method(wanted, allowed=False) == {}
    rows = lab.rows(lab.run(lab.decide("earlier")))
    assert {(row["trial_key"], row["reproduces_trial_key"]) for row in rows} == {(one.trial_key, earlier)}
    assert {row["reproduction_differs"] for row in rows} == {None}


def test_trials_of_one_key_with_other_limits_are_not_mixed(lab: Lab) -> None:
    [key, *_] = [one.trial_key for one in find(lab.store, lab.campaign, lab.directory).configurations]
    rows = lab.rows(lab.campaign, trial_key=key, replicate=0)
    lab.again("mixed", rows[:2], trial_cores="0")
    lab.again("mixed", rows[2:], trial_cores="0-1")
    ids = [{row["trial_id"] for row in lab.rows("mixed", trial_cores=cores)} for cores in ("0", "0-1")]
    with pytest.raises(ConfigurationError, match="with cores 0 .* and with cores 0-1 .*; say which .* by the id"):
        find(lab.store, "mixed", lab.directory)
    for wanted_ids, cores in zip(ids, [(0,), (0, 1)], strict=True):
        [one] = find(lab.store, min(wanted_ids), lab.directory).configurations
        assert (set(one.trial_ids), one.limits.cores, one.rounds) == (wanted_ids, cores, len(wanted_ids))


def test_only_trials_of_the_same_limits_are_shown_as_then(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    [key, *_] = [one.trial_key for one in find(lab.store, lab.campaign, lab.directory).configurations]
    rows = lab.rows(lab.campaign, trial_key=key, replicate=0)
    lab.again("mixed", rows[:3], trial_cores="0")
    lab.again("mixed", rows[3:], trial_cores="0-1")
    [chosen, *_] = lab.rows("mixed", trial_cores="0")
    reproduction = lab.decide(chosen["trial_id"])
    print_reproduction(lab.store, reproduction, lab.run(reproduction))
    shown = capsys.readouterr().out
    assert f"then: mixed on h1, trial key {key}, 3 ok" in shown
    assert "3 rounds" in shown


def test_a_changed_layer_is_refused_and_named(stored: Lab) -> None:
    rebuilt = replace(PIN, image_id="sha256:" + "2" * 64, image_layers=(LAYERS[0], "sha256:" + "d" * 64))
    with pytest.raises(ConfigurationError, match="layer 2 of 2: expected b{12}, found d{12}; --allow-different-image"):
        stored.decide(stored.campaign, host(rebuilt))


def test_an_equal_image_under_another_name_keeps_the_keys(stored: Lab) -> None:
    pushed = replace(PIN, image_id="sha256:" + "9" * 64, image_digest="registry/cpu@sha256:" + "8" * 64)
    reproduction = stored.decide(stored.campaign, host(pushed))
    assert all(one.trial_key == one.then.trial_key for one in reproduction.again)
    assert {one.differs for one in reproduction.reproduces.trials.values()} == {None}
    assert any("is identical to the stored one (lock and 2 layers" in note for note in reproduction.notes)


def test_containers_are_not_reproduced_as_processes(stored: Lab) -> None:
    process = replace(PIN, isolation=Isolation.PROCESS, image_id=None, image_digest=None, reason="no engine")
    with pytest.raises(ConfigurationError, match="isolation: expected docker, found process .no engine"):
        stored.decide(stored.campaign, host(process))


def test_rounds_are_those_of_then_and_at_least_three(stored: Lab) -> None:
    assert stored.decide(stored.campaign).rounds == 4
    assert stored.decide(stored.campaign, rounds=1).rounds == 1
    wanted = find(stored.store, stored.campaign, stored.directory)
    short = replace(wanted, configurations=tuple(replace(one, rounds=1) for one in wanted.configurations))
    [target] = targets(short, INVENTORY, Path("inventory"), None)
    assert decide(short, [(target, host())], Allowed()).rounds == 3


def test_a_reproduction_is_a_campaign_of_its_own_that_says_what_it_is(lab: Lab) -> None:
    new = lab.run(lab.decide(lab.campaign))
    rows = lab.rows(new)
    assert len(rows) == 2 * 4
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["reproduces"] for row in rows} == {lab.campaign}
    assert {row["reproduction_differs"] for row in rows} == {None}
    assert all(row["reproduces_trial_key"] == row["trial_key"] for row in rows)
    assert {row["trial_key"] for row in rows} == {row["trial_key"] for row in lab.rows(lab.campaign, status="ok")}
    assert {row["reproduces"] for row in lab.rows(lab.campaign)} == {None}
    assert lab.run(lab.decide(lab.campaign)) != new
    once_more = lab.rows(lab.run(lab.decide(rows[0]["trial_id"])))
    assert ({row["reproduces"] for row in once_more}, len(once_more)) == ({new}, 4)


def test_then_and_now_pair_in_sql(
    lab: Lab, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuilt = replace(PIN, image_id="sha256:" + "2" * 64, image_layers=(LAYERS[0], "sha256:" + "d" * 64))
    lab.run(lab.decide(lab.campaign, host(rebuilt), allowed=Allowed(image=True)))
    [snippet] = re.findall(r"^```python\n(.*?)^```", (project / "docs/reproduce.md").read_text(), re.M | re.S)
    monkeypatch.chdir(lab.directory)
    exec(snippet, {})
    shown = capsys.readouterr().out
    assert shown.count("synthetic-null") == 2
    assert shown.count("1.0 ") == 2
    assert "layer 2 of 2" in shown


def test_with_another_image_every_row_says_so(lab: Lab) -> None:
    rebuilt = replace(PIN, image_id="sha256:" + "2" * 64, image_layers=(LAYERS[0], "sha256:" + "d" * 64))
    first, second = (one.trial_key for one in find(lab.store, lab.campaign, lab.directory).configurations)
    allowed = Allowed(image=True, method={first: "method version 1 then, 2 now"})
    rows = lab.rows(lab.run(lab.decide(lab.campaign, host(rebuilt), allowed=allowed)))
    layers = "layer 2 of 2: expected bbbbbbbbbbbb, found dddddddddddd"
    assert {(row["reproduces_trial_key"], row["reproduction_differs"]) for row in rows} == {
        (first, f"method version 1 then, 2 now; {layers}"),
        (second, layers),
    }
    assert not {row["trial_key"] for row in rows} & {row["trial_key"] for row in lab.rows(lab.campaign)}


def test_an_interrupted_reproduction_goes_on(lab: Lab) -> None:
    recorded = []

    def interrupt(progress: CampaignProgress) -> None:
        recorded.extend([progress] if isinstance(progress, TrialRecorded) else [])
        if len(recorded) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(lab.decide(lab.campaign), interrupt)
    chosen = continuation_of(lab.decide(lab.campaign), lab.store)
    assert (chosen.is_new, chosen.left.trials) == (False, 8 - 3)
    assert lab.run(lab.decide(lab.campaign)) == chosen.campaign_id
    assert len(lab.rows(chosen.campaign_id, status="ok")) == 8


def test_then_and_now_are_compared_by_configuration(lab: Lab) -> None:
    reproduction = lab.decide(lab.campaign)
    new = lab.run(reproduction)
    sides = [
        Sides(Place(lab.campaign, one.then.host, one.then.trial_key), Place(new, one.host, one.trial_key))
        for one in reproduction.again
    ]
    columns = list(dict.fromkeys([*reproduction_columns(), *change_columns()]))
    then, now = (lab.store.trials(columns, campaign_id=one) for one in (lab.campaign, new))
    found = compare_sides(then, now, sides)
    assert [one.batch for one in found] == [one.then.spec.workload.batch for one in reproduction.again]
    for one in found:
        assert [mode.name for mode in one.modes] == ["one call at a time", "back-to-back calls"]
        for mode in one.modes:
            assert mode.then is not None
            assert mode.ratio is not None
            # the A/A duplicate of then does not count
            assert (mode.then.processes, mode.ratio.value) == (4, pytest.approx(1.0))
    differing = changes(then, now, lab.store.systems(), lab.store.environments(), lab.store.campaigns())
    assert [change for change in differing if change.group != "conditions"] == []


def test_an_image_that_was_stored_without_layers_gets_them_with_its_next_campaign(lab: Lab) -> None:
    old = replace(PIN, image_layers=(), image_config_sha256=None)
    for pin in (old, PIN):
        continuation = choose_campaign(SWEEP, [host(pin).planning], lab.store, ResumePolicy.NEVER)
        order = CampaignOrder(continuation, [host(pin)], SWEEP.name, "sweep", "inventory", "0", None)
        run_campaign(order, LocalScheduler(), lab.store, lab.files, lambda progress: None)
    # those of the skips were only declared, and nothing was seen inside
    rows = [row for row in lab.store.environments().to_pylist() if row["versions"] != "{}"]
    assert sorted(row["image_layers"] or [] for row in rows) == [[], list(LAYERS)]
    [newest] = {row["environment_id"] for row in lab.rows(continuation.campaign_id, status="ok")}
    assert [row["image_config_sha256"] for row in rows if row["environment_id"] == newest] == ["c" * 64]
