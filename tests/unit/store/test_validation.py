"""What is wrong with a row is told in one line, and costs that row alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Row, system_row
from orchestrator.store.schema import SCHEMAS
from orchestrator.store.validation import batch_of, fitting, told, violations
from tests.storing import campaign, row

NOW, FAR = datetime.now(UTC), datetime(2099, 1, 1, tzinfo=UTC)
GUARD = {
    "guard": "load", "moment": "after", "policy": "flag", "outcome": "passed",
    "observed": 1.0, "limit": 100.0, "unit": "permille", "detail": None, "waited_s": 0.0,
}  # fmt: skip
SYSTEM, CAMPAIGN = system_row("s", "h", {}, {}), campaign("c")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status": "evil"}, "status is 'evil'; expected one of ok, wrong_output, "),
        ({"status": None}, "status is null; expected a value"),
        ({"device": "tpu"}, "device is 'tpu'; expected one of cpu, cuda"),
        ({"isolation": "none"}, "isolation is 'none'; expected one of docker, process"),
        ({"trial_id": "../../etc"}, "trial_id is '../../etc'; expected letters, digits and "),
        ({"campaign_id": ".."}, "campaign_id is '..'; expected letters, digits and "),
        ({"campaign_id": "c\n"}, "campaign_id is 'c\\n'; expected letters, digits and "),
        ({"task_id": "x" * 300}, "task_id is 'xxx"),
        ({"attempt": 0}, "attempt is 0; expected at least 1"),
        ({"batch": -1}, "batch is -1; expected at least 1"),
        ({"memory_bytes": -1}, "memory_bytes is -1; expected at least 0"),
        ({"backend_options": "{bad"}, "backend_options is '{bad'; expected a JSON object"),
        ({"protocol": "[]"}, "protocol is '[]'; expected a JSON object"),
        ({"facts": '{"a":' * 5000 + "1" + "}" * 5000}, "facts is "),
        ({"facts": '{"a": NaN}'}, "expected a JSON object"),
        ({"facts": '{"a": "\\ud800"}'}, "expected a JSON object"),
        ({"workload": "x" * 5000}, "expected at most 4096 bytes"),
        ({"log_tail": "x" * 2**21}, "expected at most 1048576 bytes"),
        ({"started_at": NOW + timedelta(days=2)}, "expected a time from 1970 until tomorrow"),
        ({"started_at": FAR}, "started_at is 2099-01-01"),
        ({"finished_at": datetime(1969, 1, 1, tzinfo=UTC)}, "finished_at is 1969-01-01"),
        ({"cosine": float("nan")}, "cosine is nan; expected a finite number"),
        ({"latency_sync_median_s": -1.0}, "latency_sync_median_s is -1.0; expected at least 0"),
        ({"samples_sync_s": [0.5, float("inf")]}, "samples_sync_s is inf; expected finite seconds of at least 0"),
        ({"samples_sync_s": [0.5, -0.5]}, "samples_sync_s is -0.5; expected finite seconds of at least 0"),
        ({"turn_samples": [3, -3]}, "turn_samples is -3; expected counts of at least 0"),
        ({"guards": [GUARD, {**GUARD, "outcome": "fine"}]}, "expected outcome one of passed, flagged, "),
    ],
)
def test_each_violation_is_one_line_and_costs_one_row(changes: dict[str, Any], expected: str) -> None:
    unusual = row("a", guards=[GUARD], started_at=NOW + timedelta(hours=20), exit_code=-9, host="лаб 1", cosine=-0.5)
    rows = [unusual, {**row("b"), **changes}, row("c")]
    batch, problems = fitting(rows)
    assert batch.column("trial_id").to_pylist() == ["a", "c"]
    assert list(problems) == [1]
    assert expected in problems[1]
    assert "\n" not in problems[1]
    assert len(problems[1]) < 400
    with pytest.raises(StoreError, match="^trial "):
        batch_of(rows, "trials")


def test_a_value_of_another_type_and_an_unknown_column_are_named() -> None:
    batch, problems = fitting([row("a", batch="many"), row("b"), row("c", seed="x"), row("d", unknown=1)])
    assert batch.column("trial_id").to_pylist() == ["b"]
    assert sorted(problems) == [0, 2, 3]
    for place, words in ((0, "batch: "), (2, "seed: "), (3, "unknown column unknown")):
        assert words in problems[place]


def test_a_time_beyond_all_calendars_is_told() -> None:
    batch = pa.RecordBatch.from_pylist([row("a")], SCHEMAS["trials"])
    place = batch.schema.get_field_index("started_at")
    batch = batch.set_column(place, batch.schema.field(place), pa.array([2**62], pa.timestamp("us", "UTC")))
    [line] = told(batch, "trials", violations(batch, "trials"))
    assert line.startswith("trial a, attempt 1: started_at is beyond all calendars; expected a time ")


@pytest.mark.parametrize(
    ("table", "good", "changes", "expected"),
    [
        ("systems", SYSTEM, {"system_id": "a/b"}, "system a/b: system_id is 'a/b'"),
        ("systems", SYSTEM, {"fingerprint": "{"}, "system s: fingerprint is '{'"),
        ("campaigns", CAMPAIGN, {"started_at": FAR}, "campaign c: started_at is 2099-01-01"),
        ("campaigns", CAMPAIGN, {"plan": '{"tasks": '}, "campaign c: plan is '{\"ta"),
        ("campaigns", CAMPAIGN, {"planned_trials": -3}, "planned_trials is -3"),
    ],
)
def test_the_small_tables_have_the_same_judge(table: str, good: Row, changes: dict[str, Any], expected: str) -> None:
    assert batch_of([good], table).num_rows == 1
    with pytest.raises(StoreError) as raised:
        batch_of([{**good, **changes}], table)
    assert expected in str(raised.value)
