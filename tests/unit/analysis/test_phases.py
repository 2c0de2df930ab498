"""Where the time of trials went, added up."""

from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.analysis.phases import phase_columns, time_spent
from orchestrator.store import Stage

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(begin_s: float, end_s: float, **values: Any) -> dict[str, Any]:
    known = dict.fromkeys(phase_columns()) | {"campaign_id": "c", "host": "h", "slot": 0, "session_id": "one"}
    ends = {"started_at": START + timedelta(seconds=begin_s), "finished_at": START + timedelta(seconds=end_s)}
    return known | ends | values


def test_time_of_others_is_theirs_and_that_of_a_session_counts_once() -> None:
    first = row(0, 10, timed_s=4.0, others_s=5.0, session_s=1.0)
    second = row(0, 10, timed_s=3.0, verify_s=2.0, others_s=4.0, session_s=1.5)
    third = row(12, 20, timed_s=8.0, others_s=0.0, session_s=0.0, session_id="two")
    skipped = row(0, 0, finished_at=None)
    found = time_spent([first, second, third, skipped])
    assert found.by_phase == {"timed_s": 15.0, "verify_s": 2.0, "session_s": 1.0}
    assert (found.trials, found.between_s, found.total_s) == (3, 2.0, 20.0)


def test_hosts_work_side_by_side() -> None:
    rows = [row(0, 10, timed_s=10.0, session_s=0.0, host=host) for host in ("h1", "h2")]
    assert time_spent(rows).total_s == 20.0
    assert time_spent([]).total_s == 0.0


def test_stages_are_those_of_the_campaigns_of_the_trials() -> None:
    known = [dict.fromkeys(stage.value for stage in Stage) | {"campaign_id": name} for name in ("c", "d")]
    campaigns = [known[0] | {"setup_s": 3.0, "running_s": 20.0, "waiting_s": 0.0}, known[1] | {"setup_s": 9.0}]
    assert time_spent([row(0, 10, session_s=0.0)], campaigns).stages == {"setup_s": 3.0, "running_s": 20.0}
    assert time_spent([row(0, 10, session_s=0.0, campaign_id="e")], campaigns).stages == {}
