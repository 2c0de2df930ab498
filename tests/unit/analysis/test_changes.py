"""What else differs between then and now."""

import json
from typing import Any

import pyarrow as pa

from orchestrator.analysis import Change, changes
from orchestrator.store import CAMPAIGNS, ENVIRONMENTS, SYSTEMS, TRIALS, environment_row, system_row
from tests.storing import campaign, row

SYSTEM_ROWS = [
    system_row("s1", "h1", {}, {"cpu": {"model_name": "EPYC", "microcode": "0x1"}, "private": {"boot_id": "b1"}}),
    system_row("s2", "h1", {}, {"cpu": {"model_name": "EPYC", "microcode": "0x2"}, "private": {"boot_id": "b2"}}),
]
ENVIRONMENT_ROWS = [
    environment_row("e1", "cpu", {"torch": "2.13.0", "numpy": "2.0"}, {}, image_digest=None, lock_sha256="l"),
    environment_row("e2", "cpu", {"torch": "2.13.0", "numpy": "2.1"}, {}, image_digest=None, lock_sha256="l"),
]


def trials(of: str, conditions: list[dict[str, object]], **more: Any) -> pa.Table:
    shared: dict[str, Any] = {
        "campaign_id": of, "environment_id": "e1", "host": "lab1", "isolation": "docker", "system_id": "s1",
        "runner_sha256": "r1", "facts": "{}",
    }  # fmt: skip
    rows = [
        row(f"{of}-{number}", **{**shared, "round": number, "conditions_before": json.dumps(found), **more})
        for number, found in enumerate(conditions)
    ]
    return pa.Table.from_pylist(rows, schema=TRIALS)


def compared(then: pa.Table, now: pa.Table) -> tuple[Change, ...]:
    campaigns = [campaign(name, taxmeter_version=version) for name, version in (("old", "0.1"), ("new", "0.2"))]
    return changes(
        then,
        now,
        pa.Table.from_pylist(SYSTEM_ROWS, schema=SYSTEMS),
        pa.Table.from_pylist(ENVIRONMENT_ROWS, schema=ENVIRONMENTS),
        pa.Table.from_pylist(campaigns, schema=CAMPAIGNS),
    )


def test_only_differing_fields_are_told() -> None:
    same = trials("old", [{"load_1m": 0.5}, {"load_1m": 0.7}])
    assert compared(same, same) == ()
    then = trials("old", [{}], facts=json.dumps({"limit_cpus": "0-1", "flops_per_example": 8}))
    other = json.dumps({"limit_cpus": "0-3", "flops_per_example": 9})
    now = trials("new", [{}], system_id="s2", environment_id="e2", runner_sha256="r2", facts=other)
    assert set(compared(then, now)) == {
        Change("system", "cpu.microcode", "0x1", "0x2"),
        Change("environment", "numpy", "2.0", "2.1"),
        Change("environment", "limit_cpus", "0-1", "0-3"),
        Change("code", "runner_sha256", "r1", "r2"),
        Change("code", "taxmeter_version", "0.1", "0.2"),
    }


def test_conditions_are_medians_without_counters_and_without_trifles() -> None:
    quiet = {"cpu_steal_jiffies": 5, "cpu_clock_khz_mean": 3_000_000}
    then = trials("old", [{"load_1m": load, **quiet} for load in (0, 1, 9)])
    now = trials("new", [{"load_1m": 4.0, "cpu_steal_jiffies": 900, "cpu_clock_khz_mean": 3_010_000}])
    found = [change for change in compared(then, now) if change.group == "conditions"]
    assert found == [Change("conditions", "load_1m", "1", "4")]


def test_a_side_with_several_values_tells_them_all() -> None:
    then = pa.concat_tables([trials("old", [{}]), trials("old", [{}], system_id="s2", attempt=2)])
    found = compared(then, trials("old", [{}]))
    assert Change("system", "cpu.microcode", "0x1 / 0x2", "0x1") in found
