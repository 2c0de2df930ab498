"""Rows of the small tables."""

import json
from datetime import UTC, datetime

import pyarrow as pa

from orchestrator.store import (
    CAMPAIGNS,
    ENVIRONMENTS,
    campaign_row,
    campaign_totals,
    environment_row,
)
from runners.contract import Status

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TEXTS = {"sweep_document": "", "inventory_document": "", "plan_digest": "p", "taxmeter_version": "1"}


def test_a_campaign_that_starts_has_no_totals() -> None:
    versions = {"python": "3.11.7", "pyarrow": "26.0.1"}
    row = campaign_row(
        "c", NOON, "quick", planned_trials=3, git_commit=None, plan=[{"b": 1, "a": 2}], versions=versions, **TEXTS
    )
    assert set(row) == set(CAMPAIGNS.names)
    assert row["plan"] == '[{"a":2,"b":1}]'
    assert json.loads(str(row["versions"])) == versions
    assert {row[name] for name in row if name.startswith("trials_")} == {None}
    assert (row["finished_at"], row["rows"]) == (None, None)


def test_what_nobody_says_about_a_campaign_is_null() -> None:
    row = campaign_row("c", NOON, "quick", planned_trials=3, git_commit=None, **TEXTS)
    assert (row["plan"], row["versions"]) == (None, None)


def test_the_totals_of_a_campaign_count_each_status_and_none_is_null() -> None:
    totals = campaign_totals(NOON, [Status.OK, Status.OOM, Status.OK], rows=5)
    row = campaign_row("c", NOON, "quick", planned_trials=3, git_commit=None, **TEXTS) | totals
    [back] = pa.RecordBatch.from_pylist([row], CAMPAIGNS).to_pylist()
    assert (back["finished_at"], back["rows"]) == (NOON, 5)
    counted = {name: value for name, value in back.items() if name.startswith("trials_")}
    assert {name: value for name, value in counted.items() if value} == {"trials_ok": 2, "trials_oom": 1}
    assert set(counted) == {f"trials_{status.value}" for status in Status}
    assert None not in counted.values()


def test_an_environment_that_nobody_looked_into_has_a_row() -> None:
    row = environment_row("e", "cpu", {}, {}, image_digest="sha256:d", lock_sha256="l")
    [back] = pa.RecordBatch.from_pylist([row], ENVIRONMENTS).to_pylist()
    assert back["versions"] == "{}"
    assert (back["image_digest"], back["lock_sha256"]) == ("sha256:d", "l")
