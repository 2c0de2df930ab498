"""One floor for each structure in a place, from the least of all measurements of its twins."""

import math

import pytest

from orchestrator.analysis.floors import common_floors, floor_key, with_common_floors


def row(small_s: float | None = 0.0011, large_s: float | None = 0.0014, **more: object) -> dict[str, object]:
    values = {
        "system_id": "s1", "environment_id": "e1", "isolation": "process", "method_version": 2, "status": "ok",
        "dispatch_floor_structure": "bert", "dispatch_floor_valid": True, "dispatch_floor_small_s": small_s,
        "dispatch_floor_large_s": large_s, "latency_sync_median_s": 0.004, "dispatch_floor_s": None,
        "exposed_overhead_s": None, "framework_fraction": None, "latency_floor_log_ratio": None, "regime": None,
    }  # fmt: skip
    return {**values, **more}


def test_the_least_of_either_twin_makes_the_line() -> None:
    rows = [row(0.0011, 0.0020), row(0.0030, 0.0014)]
    assert common_floors(rows) == {floor_key(rows[0]): pytest.approx(0.001)}


def test_a_disturbed_large_twin_does_not_lower_the_floor() -> None:
    alone, together = (common_floors(rows) for rows in ([row()], [row(), row(0.0011, 0.0040)]))
    assert alone == together


def test_what_is_not_proven_counts_only_where_nothing_is() -> None:
    disturbed = row(0.0001, 0.0001, dispatch_floor_valid=False)
    assert list(common_floors([row(), disturbed]).values()) == [pytest.approx(0.001)]
    assert list(common_floors([disturbed]).values()) == [pytest.approx(0.0001)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("system_id", "s2"),
        ("environment_id", "e2"),
        ("isolation", "docker"),
        ("method_version", 3),
        ("dispatch_floor_structure", "other"),
    ],
)
def test_floors_are_never_pooled_over_places_and_structures(column: str, value: object) -> None:
    assert len(common_floors([row(), row(**{column: value})])) == 2


def test_a_row_without_a_structure_has_no_common_floor() -> None:
    assert common_floors([row(dispatch_floor_structure=None), row(small_s=None)]) == {}


def test_without_a_larger_twin_the_small_one_counts() -> None:
    assert list(common_floors([row(large_s=None)]).values()) == [0.0011]


def test_twins_in_proportion_have_no_floor() -> None:
    assert common_floors([row(large_s=0.0044)]) == {}


def test_rows_of_a_structure_say_one_floor_and_what_follows_from_it() -> None:
    rows = with_common_floors([row(), row(0.0020, 0.0030, latency_sync_median_s=0.0009, batch=2)])
    assert [one["dispatch_floor_s"] for one in rows] == [pytest.approx(0.001)] * 2
    assert [one["framework_fraction"] for one in rows] == [pytest.approx(0.25), 1.0]
    assert [one["regime"] for one in rows] == ["compute-bound", "framework-bound"]
    assert [one["latency_floor_log_ratio"] for one in rows] == [
        pytest.approx(math.log(4)),
        pytest.approx(math.log(0.9)),
    ]


def test_of_what_is_not_proven_nothing_follows() -> None:
    (one,) = with_common_floors([row(dispatch_floor_valid=False)])
    assert one["dispatch_floor_s"] == pytest.approx(0.001)
    assert (one["framework_fraction"], one["regime"]) == (None, None)
