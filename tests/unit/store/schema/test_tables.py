"""Rows of campaigns."""

import json
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from orchestrator.store import CAMPAIGNS, campaign_row, campaign_totals
from runners.contract import Status

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
of_campaign = partial(
    campaign_row, "c", NOON, "quick", planned_trials=3, git_commit=None, sweep_document="", inventory_document="",
    plan_digest="p", taxmeter_version="1",
)  # fmt: skip


def test_a_campaign_that_starts_has_no_totals() -> None:
    versions = {"python": "3.11.7", "pyarrow": "26.0.1"}
    row = of_campaign(plan=[{"b": 1, "a": 2}], versions=versions)
    assert set(row) == set(CAMPAIGNS.names)
    assert row["plan"] == '[{"a":2,"b":1}]'
    assert json.loads(str(row["versions"])) == versions
    assert {row[name] for name in row if name.startswith("trials_")} == {None}
    assert (row["finished_at"], row["rows"]) == (None, None)
    assert [of_campaign()[name] for name in ("plan", "versions")] == [None, None], "what nobody says is null"


def test_the_totals_of_a_campaign_count_each_status_and_none_is_null() -> None:
    totals = campaign_totals(NOON, [Status.OK, Status.OOM, Status.OK], rows=5)
    [back] = pa.RecordBatch.from_pylist([of_campaign() | totals], CAMPAIGNS).to_pylist()
    assert (back["finished_at"], back["rows"]) == (NOON, 5)
    counted = {name: value for name, value in back.items() if name.startswith("trials_")}
    assert counted == {f"trials_{status.value}": 0 for status in Status} | {"trials_ok": 2, "trials_oom": 1}
