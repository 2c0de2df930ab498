"""Where a trial of an export that never ran belongs."""

from orchestrator.campaign.exchange.environments import as_found, as_locked
from orchestrator.campaign.exchange.manifest import LockedEnvironment
from orchestrator.campaign.exchange.rows import declared_row, on_system
from orchestrator.store import environment_id, environment_row, system_row

LOCKED = LockedEnvironment(python="3.11", lock_sha256="a" * 64, versions={"torch": "2.13.0"})
ROW = {"trial_id": "t", "status": "skipped", "system_id": None, "hw_id": None, "cpu_model": None}
SYSTEM = system_row("s1", "h1", {"cpu_model": "EPYC", "cpu_cores": 2}, {"cpu": {"model_name": "EPYC"}})


def test_a_trial_that_never_ran_is_on_the_one_system_of_the_others() -> None:
    row = on_system(ROW, [SYSTEM])
    assert (row["trial_id"], row["system_id"], row["hw_id"], row["cpu_model"]) == ("t", "s1", "h1", "EPYC")
    assert row["cpu_cores"] == 2
    assert not {"fingerprint", "details"} & set(row)


def test_of_several_systems_or_none_nobody_knows_which() -> None:
    assert on_system(ROW, [SYSTEM, SYSTEM | {"system_id": "s2"}]) == ROW
    assert on_system(ROW, []) == ROW


def test_an_environment_that_nobody_looked_into_is_another_than_the_one_that_was_seen() -> None:
    declared = declared_row(as_locked("cpu", LOCKED))
    assert declared["environment_id"] == environment_id(as_locked("cpu", LOCKED).pin, {})
    assert declared["environment_id"] != environment_id(as_locked("cpu", LOCKED).pin, LOCKED.versions)
    assert declared == environment_row(
        str(declared["environment_id"]), "cpu", {}, {}, image_digest=None, lock_sha256="a" * 64
    )
    assert declared["environment_id"] != declared_row(as_found("cpu", {"torch": "1.0"}))["environment_id"]
