"""Two selections side by side, what else differs between them, and the gate."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.analysis import Change, Pairing, Verdict
from orchestrator.analysis.comparison import Outcome, Policy, Pool, compare, compare_selections, gate
from orchestrator.analysis.confounders import is_left_out
from orchestrator.errors import ConfigurationError
from orchestrator.store import Store, open_store
from tests.comparing import NEW, OLD, by_backend, ratios_of, rounds, store_of, system_of
from tests.results import put_dimensions
from tests.storing import campaign

TIMES = [0.100, 0.101, 0.099, 0.1005, 0.0995]


def scaled(factor: float) -> list[float]:
    return [factor * value for value in TIMES]


def test_cells_correspond_on_what_makes_a_configuration_and_differs(tmp_path: Path) -> None:
    rows = [
        row
        for name, factor in (("a", 1.0), ("b", 0.5))
        for batch in (1, 8)
        for row in rounds(scaled(batch * factor), campaign=OLD, gpu_name=name, host=name, batch=batch)
    ]
    table = compare_selections(store_of(tmp_path, *rows), "gpu=a", "gpu=b")
    assert [where.name for where in table.axes] == ["batch", "side"]
    assert {where.name: value for where, value in table.fixed.items()}["backend"] == "eager"
    assert [one.key for one in table.ratios] == [(1, "gpu=b"), (8, "gpu=b")]
    assert [ratio.estimate.value for ratio in ratios_of(table)] == pytest.approx([2, 2])
    assert {ratio.pairing for ratio in ratios_of(table)} == {Pairing.UNPAIRED}
    one_campaign = [*rounds(TIMES), *rounds(scaled(0.5), environment="next", environment_id="f" * 32)]
    environments = compare_selections(store_of(tmp_path / "b", *one_campaign), "environment=cpu", "environment=next")
    assert [ratio.pairing for ratio in ratios_of(environments)] == [Pairing.ROUNDS]


@pytest.mark.parametrize(
    ("left", "right", "match", "message"),
    [
        ("backend=eager", "backend=eager", None, "both selections are backend=eager"),
        ("backend=eager", "batch=1", None, "have 5 trials in common"),
        ("backend=eager", "backend=x", ["backend"], "backend is eager against x; --match chooses .* .here backend"),
        ("backend=eager", "backend=failed", None, "no trial of backend=failed has latency_sync"),
        ("backend=eager", "backend=x batch=8", None, "no trial meets backend=x batch=8"),
        ("", "backend=x", None, "is empty"),
        ([], "backend=x", None, "a selection needs a condition"),
        ("backend=eager", "backend=x", ["colour"], "--match: no axis is called colour"),
    ],
)
def test_sides_that_make_no_sense_are_refused(
    tmp_path: Path, left: str, right: str, match: list[str] | None, message: str
) -> None:
    failed = rounds(TIMES, backend="failed", status="crashed", batch=1)
    rows = [*rounds(TIMES), *rounds(TIMES, backend="x"), *failed, *rounds(TIMES, batch=8)]
    with pytest.raises(ConfigurationError, match=message):
        compare_selections(store_of(tmp_path, *rows), left, right, match)


def test_a_difference_names_the_ratios_that_have_it(tmp_path: Path) -> None:
    systems = [system_of("s1", gpu_driver_version="535"), system_of("s2", gpu_driver_version="550")]
    same = {"campaign": OLD, "system_id": "s1"}
    rows = [*rounds(TIMES, **same), *rounds(TIMES, backend="x", **same), *rounds(TIMES, batch=2, **same)]
    rows += rounds(TIMES, backend="x", batch=2, campaign=OLD, system_id="s2")
    table = compare(store_of(tmp_path, *rows, systems=systems), ["batch"], ["backend"], "backend=eager")
    [difference] = table.differences
    assert difference.change == Change("system", "gpu_driver_version", "535", "550")
    assert "gpu_driver_version: 535 → 550" in table.arrow().to_pylist()[-1]["differs"]
    assert [table.text(table.entries[position]) for position in difference.entries] == ["batch=2 backend=x"]


def test_conditions_are_told_only_where_rounds_are_not_shared(tmp_path: Path) -> None:
    idle, busy = ({"conditions_before": json.dumps({"load_1m": load})} for load in (0.5, 9.0))
    assert by_backend(tmp_path / "a", *rounds(TIMES, **idle), *rounds(TIMES, backend="x", **busy)).differences == ()
    rows = [*rounds(TIMES, campaign=OLD, **idle), *rounds(TIMES, campaign=NEW, **busy)]
    apart = compare_selections(store_of(tmp_path / "b", *rows), "campaign=previous", "campaign=newest")
    assert [one.change for one in apart.differences] == [Change("conditions", "load_1m", "0.5", "9")]


SAID = [
    *(("cpu.model_name", "system", "cpu"), ("cpu.caches[1].ways", "system", "cpu"), ("gpus[0].name", "system", "gpu")),
    *(("cpu.governor", "system", "system"), ("driver_libcuda", "environment", "driver")),
    *(("lock_sha256", "environment", "environment"), ("torch", "environment", "torch")),
    ("sync_budget_ms", "protocol", "protocol"),
]
NOT_SAID = [
    *(("cpu.governor", "system", "cpu"), ("gpu_driver_version", "system", "gpu")),
    *(("torch", "environment", "environment"), ("runner_sha256", "code", "backend")),
]


@pytest.mark.parametrize(("field", "group", "compared"), [*SAID, *NOT_SAID])
def test_only_what_an_axis_says_itself_is_left_out(field: str, group: str, compared: str) -> None:
    assert is_left_out(Change(group, field, "1", "2"), [compared]) is ((field, group, compared) in SAID)


@pytest.mark.parametrize(
    ("factor", "outcome", "passed"),
    [
        (1.2, Outcome.SLOWER, False),
        (1.0, Outcome.WITHIN_LIMIT, True),
        (0.8, Outcome.FASTER, True),
        (1.05, Outcome.UNDECIDED, True),
    ],
)
def test_the_gate_fails_on_a_proven_slow_down_alone(
    tmp_path: Path, factor: float, outcome: Outcome, passed: bool
) -> None:
    rows = [*rounds(TIMES, campaign=OLD), *rounds(scaled(factor), campaign=NEW)]
    results = store_of(tmp_path, *rows)
    # A baseline is without the candidate
    for baseline in ("campaign=previous", "workload=bert_base"):
        found = gate(results, baseline)
        [cell] = found.cells
        assert (cell.outcome, found.passed) == (outcome, passed)
        assert cell.entry.baseline is not None
        assert (cell.entry.baseline.campaigns, cell.entry.cell.campaigns) == ((OLD,), (NEW,))
    with pytest.raises(ConfigurationError, match="--max-slowdown: is 0, expected more than 0"):
        gate(results, "campaign=previous", max_slowdown=0)


def test_what_the_candidate_lacks_is_told_and_fails_only_if_required(tmp_path: Path) -> None:
    rows = [*rounds(TIMES, campaign=OLD), *rounds(TIMES, campaign=OLD, batch=8), *rounds(TIMES, campaign=OLD, batch=64)]
    rows += [*rounds(TIMES, campaign=NEW), *rounds(TIMES, campaign=NEW, batch=128)]
    rows += rounds(TIMES, campaign=NEW, batch=64, status="oom", reason="no memory")
    results = store_of(tmp_path, *rows)
    found = gate(results, "campaign=previous")
    assert [(one.name, one.outcome, one.reason) for one in found.cells] == [
        ("batch=8", Outcome.MISSING, "the candidate has no such trial"),
        ("batch=64", Outcome.MISSING, "no memory"),
        ("batch=1", Outcome.WITHIN_LIMIT, None),
        ("batch=128", Outcome.NEW, "no baseline"),
    ]
    assert found.passed
    strict = gate(results, "campaign=previous", require_all=True)
    assert [one.name for one in strict.failures] == ["batch=8", "batch=64"]


def test_campaigns_by_age_are_those_that_the_other_conditions_leave(tmp_path: Path) -> None:
    rows = [*rounds(TIMES, campaign=OLD), *rounds(TIMES, campaign=NEW), *rounds(TIMES, campaign=OLD, backend="x")]
    results = store_of(tmp_path, *rows)
    [entry] = compare(results, ["campaign"], where="campaign=newest backend=x").entries
    assert entry.key == (OLD,)
    with pytest.raises(ConfigurationError, match=f"leave one campaign only, {OLD}"):
        compare(results, ["campaign"], where="campaign=previous backend=x")
    assert len(compare(results, ["campaign"], where="campaign=newest,previous backend=eager").entries) == 2


def test_of_pooled_trials_of_one_round_their_mean_counts(tmp_path: Path) -> None:
    other = {"environment": "next", "environment_id": "f" * 32}
    rows = [*rounds(TIMES), *rounds(scaled(4.0), **other)]
    rows += [*rounds(TIMES, backend="x"), *rounds(TIMES, backend="x", **other)]
    [ratio] = ratios_of(by_backend(tmp_path, *rows, policy=Policy(pool=frozenset({Pool.ENVIRONMENT}))))
    assert (ratio.pairing, ratio.estimate.processes, ratio.verdict) == (Pairing.ROUNDS, 5, Verdict.FASTER)
    assert ratio.estimate.value == pytest.approx(2.0)


def test_campaigns_of_different_sweeps_are_told_apart(tmp_path: Path) -> None:
    """The one before the newest is often of another sweep."""
    name = "roofs-20251220T000000Z-cccccc"
    with Store.open(tmp_path).writer() as writer:
        put_dimensions(writer)
        writer.put_campaign(campaign(name, sweep="roofs", started_at=datetime(2025, 12, 20, tzinfo=UTC)))
        writer.append([*rounds(TIMES, campaign=NEW), *rounds(TIMES, campaign=name, workload="op-gemm")])
    with pytest.raises(ConfigurationError, match="different sweeps, night and roofs: add --where sweep=roofs"):
        gate(open_store(tmp_path), "campaign=previous")
